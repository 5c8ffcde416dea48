/* counted.h - tokens of a lexeme that counts, by the characters that they have: masks for every count are unions of
 * these. */
#ifndef ATLAS_GRAMMAR_COUNTED_H
#define ATLAS_GRAMMAR_COUNTED_H

#include "runtime/grammar/atom.h"

/* The mask of a state without bounds, and m->counts; without it where there are too many sets, or no memory. */
bool counted_walk(AtomMask *m, const GrammarVocab *v, const Lexeme *l, uint32_t state, Level *levels);
/* Into m what is left of `base`, which has counts, with item->c to item->d characters to come. False: no memory. */
bool counted_mask(AtomMask *m, const AtomMask *base, const GrammarVocab *v, const Lexeme *l, const Item *item);
/* Counts that make no difference become 0, ENDLESS or the largest that does. */
void counted_clip(const AtomMask *base, const Lexeme *l, Item *item);

#endif
