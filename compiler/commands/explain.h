/* explain.h - `atlasc explain`: what a diagnostic's code means and what to do about it. */
#ifndef ATLASC_EXPLAIN_H
#define ATLASC_EXPLAIN_H

#include "compiler/base.h"

/* One code, or a status of atlas.h by its name, or, for NULL, all codes, a line each; to stdout. An exit code:
 * EXIT_USAGE for a name that does not exist: an error is recorded, with the closest one. */
int explain_command(Diags *d, const char *code, bool json);
/* The code that a mistyped one is closest to, in any case of letters, or NULL; those of atlas.h only with_statuses. */
const char *closest_code(const char *seen, bool with_statuses);

#endif
