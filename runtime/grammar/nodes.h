/* nodes.h - a compiled grammar: lexemes, and nodes that put them in order. */
#ifndef ATLAS_GRAMMAR_NODES_H
#define ATLAS_GRAMMAR_NODES_H

#include "runtime/grammar/lexeme.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum NodeKind {
	NODE_NONE,   /* matches nothing */
	NODE_EMPTY,  /* the empty text */
	NODE_TEXT,   /* bytes [a, a + b) of the grammar's, b > 0 */
	NODE_LEXEME, /* lexemes[a] */
	NODE_STRING, /* a JSON string after its first quote, of a to b characters; UINT32_MAX = any number */
	NODE_COUNTED, /* lexemes[a], which counts: with b to c characters */
	NODE_LIST,   /* children [a, a + b), one after the other */
	NODE_EITHER, /* one of children [a, a + b) */
	NODE_REPEAT, /* node a, from b to c times; UINT32_MAX = any number */
	NODE_FRESH,  /* the empty text, where an item of a list ends that is none of those before */
	NODE_RULE,   /* node a, which may be set later and may lead back here */
} NodeKind;

typedef struct Node { uint8_t kind; uint32_t a, b, c; } Node;

/* Of a state of a lexeme that counts (counted.c): tokens with as many characters after which it is in one state. */
typedef struct CountSet {
	uint32_t chars, state;
	uint32_t *words;      /* NULL: they are few, and at these places of the tree */
	uint32_t *places, n, cap;
} CountSet;
typedef struct CountExit { uint32_t place, chars, state; } CountExit;
typedef struct CountSets {
	CountSet *at; uint32_t n, cap;
	CountExit *exits; uint32_t n_exits, exits_cap; /* as those of the mask */
	uint32_t most; /* characters of a token */
} CountSets;

/* Which tokens a lexeme's state takes (mask.c). */
typedef struct AtomMask {
	struct AtomMask *next;
	uint32_t key[5]; /* kind, lexeme, state, least and most characters */
	uint32_t *words; /* the lexeme goes on, or ends with the token */
	uint32_t *exits; uint32_t n_exits; /* places of the tree where it may end and bytes follow */
	CountSets *counts;  /* where any number of characters may come, else NULL; owned */
} AtomMask;

enum { ATOM_SLOTS = 256, MOST_ATOMS = 256, MOST_SPARE = 48 };
typedef struct AtomTable { /* filled while it is used, in any thread; entries stay to the end */
	pthread_mutex_t lock;
	AtomMask *slots[ATOM_SLOTS];
	int n;
	uint32_t *spare[MOST_SPARE]; int n_spare; /* words for masks to come: memory that was written before, as pages that
											   * the system must give first take longer than most masks */
	struct Marked *marked; int n_marked; /* of a grammar's lexemes (marked.h) */
} AtomTable;

struct Grammar {
	atomic_int owners;
	Node *nodes; uint32_t n_nodes, nodes_cap; /* 0 is NONE, 1 EMPTY */
	uint32_t *children, n_children, children_cap;
	char *bytes; uint32_t n_bytes, bytes_cap;
	Lexeme *lexemes; uint32_t n_lexemes, lexemes_cap;
	Lexeme string;     /* of NODE_STRING */
	uint32_t root;
	bool has_fresh;    /* has NODE_FRESH */
	Effort effort;     /* while it is compiled */
	AtomTable atoms;   /* of its lexemes; those of strings are the vocabulary's */
};

enum { NONE = 0, EMPTY = 1 };

Grammar *nodes_open(void);
/* Each gives the number of a new node, NONE after a failure, which stays in effort. */
uint32_t node_add(Grammar *g, Node node);
uint32_t node_text(Grammar *g, const char *text, size_t n);
uint32_t node_lexeme(Grammar *g, Lexeme *l); /* takes it over */
uint32_t node_counted(Grammar *g, Lexeme *l, uint32_t lo, uint32_t hi); /* takes it over; lexeme_count was done */
uint32_t node_all(Grammar *g, NodeKind kind, const uint32_t *children, uint32_t n); /* LIST or EITHER */
uint32_t node_repeat(Grammar *g, uint32_t node, uint32_t lo, uint32_t hi);
uint32_t node_rule(Grammar *g); /* matches nothing until its `a` is set */
#define NODE_LIST_OF(g, ...) \
	node_all((g), NODE_LIST, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)
#define NODE_EITHER_OF(g, ...) \
	node_all((g), NODE_EITHER, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

/* What no text can ever match becomes NONE, so that each state that is reached leads to an end. */
void nodes_prune(Grammar *g);

#endif
