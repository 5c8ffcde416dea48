/* line_input.h - lines that a person types, or a pipe brings. */
#ifndef ATLAS_LINE_INPUT_H
#define ATLAS_LINE_INPUT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct LineInput LineInput;

typedef enum LineEnd {
	LINE_WHOLE,     /* there is a line */
	LINE_QUOTED,    /* there is one, or several, which were between quotes */
	LINE_DROPPED,   /* Ctrl-C while it was typed: there is none */
	LINE_CLOSED,    /* Ctrl-D, or the end of the pipe */
	LINE_ENDED,     /* SIGTERM, or SIGINT where no terminal is */
	LINE_NO_MEMORY
} LineEnd;

/* On a terminal with editing and history (libedit), elsewhere plain. NULL: no memory. SIGINT and SIGTERM must be held
 * (cli_hold_signals). */
LineInput *line_open(void);
/* *line [*n] without its end, with a final NUL; valid until the next call. A line that ends in a backslash goes on in
 * the next one; one that begins with three quotes, up to three quotes at the end of a line. */
LineEnd line_read(LineInput *in, const char **line, size_t *n);
bool line_is_terminal(const LineInput *in);
void line_close(LineInput *in); /* NULL is fine */

#endif
