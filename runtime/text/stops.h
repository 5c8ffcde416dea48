/* stops.h - text that ends at the first of some stop strings, which may span many tokens. */
#ifndef ATLAS_STOPS_H
#define ATLAS_STOPS_H

#include "runtime/atlas.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct Stops { /* zeroed = none: text goes through as it comes */
	char *bytes;                     /* all stop strings, one after the other */
	size_t end[ATLAS_MAX_STOPS + 1]; /* string i is bytes[end[i], end[i + 1]) */
	int n;
	bool include;                    /* the one that matched is part of the text */
	int matched;                     /* 1 + the one that did; 0 = none so far */
	char *text; size_t n_text, cap;  /* what was handed out last, and what is held back after it */
	size_t n_out;                    /* bytes of text that were handed out */
} Stops;

/* Copies n strings of n_bytes each, none empty. False: no memory; then they are as they were. */
bool stops_set(Stops *s, const char *const *strings, const size_t *n_bytes, int n, bool include);
/* Takes the next n bytes. *out [*n_out] is what is certain to be part of the text, owned by `s` until its next call, or
 * `from` itself; what may begin a stop string is held back, and after a match there is no more. False: no memory. */
bool stops_push(Stops *s, const char *from, size_t n, const char **out, size_t *n_out);
/* The same of the last n bytes: nothing is held back. */
bool stops_end(Stops *s, const char *from, size_t n, const char **out, size_t *n_out);
void stops_restart(Stops *s); /* the strings stay */
void stops_free(Stops *s);

#endif
