/* progress.h - how far a compile is, on stderr: a bar on a terminal, a line every few seconds elsewhere. */
#ifndef ATLASC_PROGRESS_H
#define ATLASC_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Progress {
	FILE *out;          /* NULL = nothing is shown */
	bool is_terminal;   /* where a bar can be drawn over: it has a width */
	const char *what;   /* stage that is shown; NULL = none */
	double start, last; /* seconds: of the stage, of what was printed last */
	int columns;        /* of the bar on the terminal; 0 = there is none */
} Progress;

/* For that stream; asks what it is. */
Progress progress_on(FILE *out);
/* `done` of `total` units of a stage: "kernels" in pieces, "weights" in bytes. now: seconds of a clock that only goes
 * forward. The last unit removes the bar. */
void progress_show(Progress *p, const char *what, int64_t done, int64_t total, double now);
/* Removes a bar that stopped halfway. */
void progress_clear(Progress *p);

#endif
