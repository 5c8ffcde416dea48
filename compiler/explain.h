/* explain.h - `atlasc explain`: what a diagnostic's code means and what to do about it. */
#ifndef ATLASC_EXPLAIN_H
#define ATLASC_EXPLAIN_H

#include <stdbool.h>

/* One code, or, for NULL, all of them, a line each; to stdout. An exit code: EXIT_USAGE for a code that there is not,
 * after saying which one is closest. */
int explain_command(const char *code, bool json);

#endif
