/* marked.h - tokens that go on plainly up to a byte at which a lexeme takes another turn; for masks of its states. */
#ifndef ATLAS_GRAMMAR_MARKED_H
#define ATLAS_GRAMMAR_MARKED_H

#include "runtime/grammar/atom.h"

typedef struct MarkedKey { /* compared by its bytes */
	uint32_t lexeme;
	uint32_t groups, other; /* of bytes that are plain, and of those that end what is plain */
	uint32_t is_first;      /* 1: nothing is before that byte, 0: something is */
	uint16_t to[256];       /* where each of the `other` bytes leads; 0 = nowhere */
} MarkedKey;

typedef struct Marked {
	struct Marked *next;
	MarkedKey key;
	uint32_t *upto[SHORT + 1]; /* [n_words] tokens with at most 0, 1, ... bytes before that byte, at last any number;
								* NULL = the same as the one before */
	Place *exits; uint32_t n_exits, exits_cap; /* where the lexeme may end and bytes follow; chars: bytes before it */
} Marked;

/* Made once, and kept in the table of the grammar. NULL: there are too many, or there is no memory. */
const Marked *marked_tokens(AtomTable *t, const GrammarVocab *v, const Lexeme *l, const MarkedKey *key, Level *levels);
/* Can tokens with at most `reach` bytes before be added without the others? */
bool marked_can_reach(const Marked *k, const GrammarVocab *v, uint32_t reach);
/* Adds both to a mask without exits. False: no memory. */
bool marked_add(AtomMask *m, const GrammarVocab *v, const Marked *first, const Marked *later, uint32_t reach);

#endif
