/* match.h - states of texts in a grammar: sets of items, each with its own number, and the steps between them. */
#ifndef ATLAS_GRAMMAR_MATCH_H
#define ATLAS_GRAMMAR_MATCH_H

#include "runtime/grammar/nodes.h"

typedef struct Item { /* the state of a lexeme, and what follows it */
	uint32_t kind;    /* NODE_TEXT: a = byte that is next, b = how many are left
					   * NODE_LEXEME: a = lexeme, b = its state
					   * NODE_COUNTED: the same, and c, d = least and most characters to come
					   * NODE_STRING: b = state of the lexeme, c, d = the same */
	uint32_t a, b, c, d;
	uint32_t cont;
} Item;

typedef struct Cont { /* `node`, of a repetition with what is left of its counts, and then `next`; 0 = nothing */
	uint32_t node, lo, hi, next;
} Cont;

typedef struct State {
	uint32_t first, n, hash; /* items, ascending and each once */
	bool is_whole;           /* the text may end */
	bool ends_item;          /* an item of a list that repeats none may have ended */
	uint64_t bytes[4];       /* that may come next */
} State;

typedef struct Step { uint64_t key; uint32_t to; } Step; /* key: (state << 8 | byte) << 1 | repeats, + 1; 0 = empty */

/* All states met so far. State 0 is dead. */
typedef struct Match {
	const Grammar *g;
	Effort effort;      /* its `why`: it failed */
	Cont *conts; uint32_t n_conts, conts_cap;
	uint32_t *cont_table, cont_slots;
	Item *items; uint32_t n_items, items_cap;
	State *states; uint32_t n_states, states_cap;
	uint32_t *state_table, state_slots;
	Step *steps; uint32_t n_steps;
	bool repeats;       /* the next step would end an item that is equal to one before (unique.c) */
	/* of the state in the making */
	Item *fresh; uint32_t n_fresh, fresh_cap;
	bool fresh_whole, fresh_item;
	Cont *work; uint32_t n_work, work_cap;
	Cont *seen; uint32_t n_seen, seen_cap;
} Match;

/* *m is zero, or was open before: then its memory is used again. match_close in any case. */
bool match_open(Match *m, const Grammar *g, uint32_t node, uint32_t *state);
/* Room for what most texts need, written once, so that no mask waits for it. */
bool match_reserve(Match *m);
size_t match_bytes(const Match *m); /* that it has room for */
void match_close(Match *m);
/* 0: the byte cannot come, or it failed. */
uint32_t match_step(Match *m, uint32_t state, uint8_t byte);
/* Moves an item alone; *ends: its lexeme may end there. False: nothing follows in it. */
bool match_move(const Grammar *g, Item *item, uint8_t byte, bool *ends);
/* The state of what follows items [n], when their lexemes end. */
uint32_t match_after(Match *m, const Item *items, uint32_t n);
/* The state of some items of another; `whole`: and the text may end. */
uint32_t match_of_items(Match *m, const Item *items, uint32_t n);
/* Forgets all states but this one, if they take much room; it has another number then, and all others are void. */
bool match_forget(Match *m, uint32_t *state, bool *forgot);

#endif
