/* stop_text.h - text that ends before a stop text, which may span many tokens. */
#ifndef ATLAS_STOP_TEXT_H
#define ATLAS_STOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Bytes { /* growable; zeroed = empty; free(at) by the owner */
	char *at;
	size_t n, cap;
} Bytes;

typedef struct StopText {
	const char *const *stops; /* [n_stops], none empty */
	int n_stops;
	Bytes held; /* the end of the text so far, while it may be the beginning of a stop text */
} StopText;

/* Appends; false when there is no memory. */
bool bytes_add(Bytes *b, const char *from, size_t n);

/* Takes the next n bytes of the text and appends to `out` what is certain to be before any stop
 * text. *found is set when one appeared: it and what follows are dropped. False when there is no
 * memory. */
bool stop_text_push(StopText *s, const char *from, size_t n, Bytes *out, bool *found);

/* No text follows: appends what was held back. */
bool stop_text_finish(StopText *s, Bytes *out);

#endif
