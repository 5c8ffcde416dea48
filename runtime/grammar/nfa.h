/* nfa.h - nondeterministic automata over characters, built from their end to their start. */
#ifndef ATLAS_GRAMMAR_NFA_H
#define ATLAS_GRAMMAR_NFA_H

#include "runtime/grammar/lexeme.h"

typedef enum NfaKind {
	NFA_SET,    /* a character of a set, then next */
	NFA_SPLIT,  /* next or other */
	NFA_PASS,   /* next */
	NFA_START,  /* next, if nothing was read */
	NFA_LATER,  /* next, if something was */
	NFA_END,    /* next, if nothing is read after this but NFA_CLOSE */
	NFA_ACCEPT,
} NfaKind;

typedef struct NfaNode { uint8_t kind; uint32_t set, next, other; } NfaNode;

typedef struct Range { uint32_t lo, hi; } Range;

/* NFA_NOTHING: node 0, which is never reached. NFA_CLOSE: the closing quote of a string, as a character of its own. */
enum { NFA_NOTHING = 0, MOST_POINT = 0x10ffff, NFA_CLOSE = MOST_POINT + 1 };

typedef struct Nfa {
	NfaNode *nodes; uint32_t n, cap;
	Range *ranges; uint32_t n_ranges, ranges_cap;
	struct NfaSet { uint32_t first, n; } *sets; uint32_t n_sets, sets_cap; /* ranges, ascending and apart; each once */
	Effort *effort;
} Nfa;

void nfa_free(Nfa *a);
/* Each gives the node's number, NFA_NOTHING after a failure, which stays in `effort`. */
uint32_t nfa_add(Nfa *a, NfaNode node);
/* ranges [n], ascending and apart; n may be 0: NFA_NOTHING. */
uint32_t nfa_set(Nfa *a, const Range *ranges, uint32_t n, uint32_t next);
uint32_t nfa_range(Nfa *a, uint32_t lo, uint32_t hi, uint32_t next);
uint32_t nfa_either(Nfa *a, uint32_t one, uint32_t other); /* one may be NFA_NOTHING */

/* The deterministic automaton that begins at `start`, where nothing was read before. Characters are bytes. */
bool nfa_lexeme(const Nfa *a, uint32_t start, Lexeme *l);
/* The same; characters are code points, written so. */
bool nfa_written(const Nfa *a, uint32_t start, Writing writing, Lexeme *l);
/* What follows from `next`, and from `seen` or (is_not) not from `seen`, as nodes of *a. */
uint32_t nfa_both(Nfa *a, uint32_t next, uint32_t seen, bool is_not, bool at_start);

#endif
