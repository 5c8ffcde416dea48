/* nfa.h - nondeterministic automata over bytes, built from their end to their start. */
#ifndef ATLAS_GRAMMAR_NFA_H
#define ATLAS_GRAMMAR_NFA_H

#include "runtime/grammar/lexeme.h"

typedef enum NfaKind {
	NFA_BYTES,  /* a byte from lo to hi, then next */
	NFA_SPLIT,  /* next or other */
	NFA_PASS,   /* next */
	NFA_START,  /* next, if nothing was read */
	NFA_LATER,  /* next, if something was */
	NFA_END,    /* next, if nothing is read after this but the closing quote */
	NFA_ACCEPT,
} NfaKind;

typedef struct NfaNode {
	uint8_t kind, lo, hi;
	bool is_close; /* the closing quote of a string, which an end does not forbid */
	uint32_t next, other;
} NfaNode;

enum { NFA_NOTHING = 0 }; /* node 0 is never reached */

typedef struct Nfa {
	NfaNode *nodes;
	uint32_t n, cap;
	Effort *effort;
} Nfa;

/* Each gives the node's number, NFA_NOTHING after a failure, which stays in `effort`. */
uint32_t nfa_add(Nfa *a, NfaNode node);
uint32_t nfa_bytes(Nfa *a, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t nfa_either(Nfa *a, uint32_t one, uint32_t other); /* one may be NFA_NOTHING */
uint32_t nfa_text(Nfa *a, const void *text, size_t n, uint32_t next);
/* A code point from lo to hi, in UTF-8; or else `others`. */
uint32_t nfa_points(Nfa *a, uint32_t lo, uint32_t hi, uint32_t next, uint32_t others);

/* The deterministic automaton that begins at `start`, where nothing was read before, or something. */
bool nfa_lexeme(const Nfa *a, uint32_t start, bool at_start, Lexeme *l, Effort *e);

#endif
