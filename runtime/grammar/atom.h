/* atom.h - the part of a mask that depends on the state of a lexeme alone, whatever follows the lexeme. */
#ifndef ATLAS_ATOM_H
#define ATLAS_ATOM_H

#include "runtime/grammar/match.h"
#include "runtime/grammar/vocab.h"

/* What a walk of the tree has at each depth. */
typedef struct Level { uint32_t end, state, other; } Level;

/* Makes masks of lexemes for one text; what it makes is kept with the grammar, or the vocabulary, for all. */
typedef struct Atoms {
	const Grammar *g;
	const GrammarVocab *v;
	Level *levels, *after; /* [depth of the tree + 2] */
	AtomMask scratch; /* when no more are kept */
} Atoms;

bool atoms_open(Atoms *a, const GrammarVocab *v); /* atoms_close in any case; false: no memory */
void atoms_begin(Atoms *a, const Grammar *g); /* another text, whose grammar this is */
void atoms_close(Atoms *a);
/* The mask of an item that is no plain text. It stays to the end of grammar and vocabulary, or to the next call. NULL:
 * no memory. */
const AtomMask *atom_mask(Atoms *a, const Item *item);

#endif
