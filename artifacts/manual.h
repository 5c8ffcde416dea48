/* manual.h - the commands' own tables as --help, as manual pages and as completion of bash, zsh and fish.
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
	const char *help;  /* NULL: no option but the heading of those that follow, with `name` as its text */
} ManualOption;
typedef struct ManualExample { const char *what, *command; } ManualExample; /* "sign a plan", "atlas sign ..." */
typedef struct ManualFile { const char *name, *what; } ManualFile;

/* Help: filled to the width of the terminal, at most 100 columns, else to 80 */
void help_options(FILE *out, const ManualOption *options, int n); /* a heading without options is left out */
/* "  NAME   TEXT" filled from column `at` on; what is too long for its place gets a line of its own. */
void help_item(FILE *out, const char *name, int at, const char *text);
/* Paragraphs, one a line. One that begins with two blanks is an item, "  NAME  TEXT"; with four, unchanged. */
void help_lines(FILE *out, const char *text);
void help_examples(FILE *out, const ManualExample *examples, int n); /* with their head; n = 0: nothing */

/* Pages: "atlas-run", 1, "generate text" */
void manual_begin(FILE *out, const char *name, int section, const char *what);
void manual_head(FILE *out, const char *head);       /* "OPTIONS" */
void manual_text(FILE *out, const char *text);
void manual_paragraph(FILE *out);                    /* between two of them, or two synopses */
void manual_lines(FILE *out, const char *text);      /* as help_lines takes them */
void manual_synopsis(FILE *out, const char *command, const char *words); /* "atlas run", "PLAN [options]" */
void manual_item(FILE *out, const char *tag, const char *text);
void manual_options(FILE *out, const ManualOption *options, int n);
void manual_examples(FILE *out, const ManualExample *examples, int n); /* with their head */
void manual_files(FILE *out, const ManualFile *files, int n);          /* with their head */
void manual_exit_codes(FILE *out);                   /* with their head */
void manual_see_also(FILE *out, const char *const *pages, int n); /* "atlas(1)" */

/* Completion of a command whose first word may be one of `words`; the last one, "", is what it takes without them.
 * `operand` is as ManualOption.value, of words that are no options; NULL = there are none. */
#define COMPLETION_SHELLS "bash|zsh|fish"
typedef struct CompletionWord {
	const char *name, *summary, *operand;
	const ManualOption *options;
	int n;
} CompletionWord;
/* False: there is no such shell. */
bool manual_completion(FILE *out, const char *shell, const char *command, const CompletionWord *words, int n);

#endif
