/* unique.h - items of lists that must differ: what was written of them, and whether another one may still come. */
#ifndef ATLAS_GRAMMAR_UNIQUE_H
#define ATLAS_GRAMMAR_UNIQUE_H

#include "runtime/grammar/match.h"

typedef struct Span { uint32_t at, until; } Span; /* bytes of the text */

typedef struct Frame { /* an object or a list that is open */
	bool is_list;
	uint32_t item;  /* where its item in the making begins */
	uint32_t first; /* of its items that are whole; they end where those of the next frame begin */
} Frame;

/* The text so far, as JSON. Items are remembered of lists that must not repeat them, and compared by bytes: such are
 * written in one way. */
typedef struct Unique {
	uint8_t *text; uint32_t n, cap;
	Frame *frames; uint32_t depth, frames_cap;
	Span *items; uint32_t n_items, items_cap;
	bool in_string, is_escaped;
	uint32_t steps; /* of a search so far */
} Unique;

typedef struct Undo { /* what one byte changed */
	uint32_t n, depth, n_items;
	bool in_string, is_escaped;
	Frame last, over;
	Span item;
} Undo;

void unique_close(Unique *u);
/* One byte of the text, and its step in the match; 0, and nothing changed: it cannot come, or the match failed. */
uint32_t unique_step(Unique *u, Match *m, uint32_t state, uint8_t byte, Undo *undo);
void unique_undo(Unique *u, const Undo *undo);
/* May an item in the making become one that was before? */
bool unique_may_repeat(const Unique *u);
/* Does some text follow in which none is repeated? */
bool unique_goes_on(Unique *u, Match *m, uint32_t state);

#endif
