/* manual.h - the commands' own tables as manual pages and as completion of bash.
 *
 * Who has a table of options, of keys or of codes calls these with its rows, so that a page cannot say what the command
 * does not know. A page is man(7): begin, then heads with paragraphs and items in any order.
 */
#ifndef ATLAS_MANUAL_H
#define ATLAS_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

typedef struct ManualOption {
	const char *name;  /* "--device" */
	char letter;       /* 0 = none */
	const char *value; /* NULL = none; "cuda|cpu": words in small letters are what it may be, FILE and DIR paths */
	const char *help;
} ManualOption;

/* "atlas-run", 1, "generate text" */
void manual_begin(FILE *out, const char *name, int section, const char *what);
void manual_head(FILE *out, const char *head);       /* "OPTIONS" */
void manual_text(FILE *out, const char *text);
void manual_paragraph(FILE *out);                    /* between two of them, or two synopses */
void manual_lines(FILE *out, const char *text);      /* unchanged, line by line */
void manual_synopsis(FILE *out, const char *command, const char *words); /* "atlas run", "PLAN [options]" */
void manual_item(FILE *out, const char *tag, const char *text);
void manual_option(FILE *out, const ManualOption *o);
void manual_exit_codes(FILE *out);                   /* with their head */
void manual_see_also(FILE *out, const char *const *pages, int n); /* "atlas(1)" */

/* A script of bash: begin, each verb, the verb "" last, which is what stands without one; end. `operand` is as
 * ManualOption.value, of the words that are no options. */
void completion_begin(FILE *out, const char *command);
void completion_verb(FILE *out, const char *verb, const char *operand, const ManualOption *options, int n);
void completion_end(FILE *out, const char *command, const char *verbs); /* "run audit": what may be the first word */

#endif
