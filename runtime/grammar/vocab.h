/* vocab.h - a vocabulary as a tree of bytes. */
#ifndef ATLAS_GRAMMAR_VOCAB_H
#define ATLAS_GRAMMAR_VOCAB_H

#include "runtime/grammar/nodes.h"

enum { SHORT = 32, GROUPS = 24, PLAIN_SETS = 32 };

typedef struct Place { uint32_t at, chars; } Place; /* of the tree; characters of a string that begin before it */

/* A place; the groups of the bytes before it, a bit each, and how many bytes. */
typedef struct Mark { uint32_t at, above, depth; } Mark;
typedef struct PlainSet { uint32_t groups, *words; } PlainSet; /* [n_words] tokens of these groups alone; NULL: few */

/* Places of the tree in the order of a walk that goes down first: the places below place i are (i, end[i]). */
struct GrammarVocab {
	const Tok *tok;
	int n_ids, n_words;
	uint32_t n;          /* places */
	const uint32_t *tree, *ids; /* [n] TOK_SEC_TREE, TOK_SEC_TREE_IDS */
	uint32_t *own_ids;   /* where they are not the tokenizer's */
	int32_t *same;       /* [n_ids] the next token of the same bytes, -1 = none */
	/* Groups of bytes: expressions mostly have all bytes of one, or none. */
	uint8_t group[256];
	Mark *marks; uint32_t first_mark[GROUPS + 1]; /* [n] all places by the group of their byte, ascending */
	uint32_t *with;      /* [GROUPS, n_words] tokens with a byte of the group */
	uint32_t n_with[GROUPS];
	PlainSet plain[PLAIN_SETS]; int n_plain; /* that were asked for; under the lock of `atoms` */
	uint32_t *all;       /* [n_words] tokens of the tree */
	uint32_t *upto;      /* [SHORT, n_words] of them, those of at most 0, 1, ... bytes */
	Place *longer; uint32_t n_longer; /* the others, the longest first; chars: bytes */
	uint32_t first[256]; /* the place that a first byte leads to; n = none */
	uint32_t *second;    /* [256, 256] and a second one; 0 = none */
	uint32_t depth;      /* most bytes of a token */
	uint32_t *known;     /* [n_words] ids that are tokens, those of control too */
	uint32_t *not_first; /* [n_words] tokens with another text where they are the first one */
	Lexeme string;       /* as that of a grammar */
	/* What a string may be from between two characters: */
	uint32_t *in_string; /* [n_words] tokens that go on in it, or end it */
	uint32_t *in_short;  /* [SHORT, n_words] of them, those of at most 0, 1, ... characters */
	Place *inside; uint32_t n_inside;   /* those that go on, the longest first */
	Place *closing; uint32_t n_closing; /* those that end it, and ends that other tokens have within */
	/* Commas of all tokens, and those after a quote of the same token: an item ends before, and another one begins. */
	uint32_t *commas, n_commas, *quoted_commas, n_quoted_commas;
	AtomTable atoms;     /* of it */
	GrammarText *idle; int n_idle; /* closed texts, whose memory the next ones have; under the lock of `atoms` */
};

static inline uint8_t vocab_byte(const GrammarVocab *v, uint32_t place) { return (uint8_t)(v->tree[place] >> 24); }
static inline uint32_t vocab_end(const GrammarVocab *v, uint32_t place)
{
	return place + (v->tree[place] & TOK_MAX_PLACES);
}

/* A token and those of the same bytes. */
static inline void vocab_set(const GrammarVocab *v, uint32_t *words, uint32_t place)
{
	for (int32_t t = (int32_t)v->ids[place] - 1; t >= 0; t = v->same[t])
		words[t / 32] |= (uint32_t)1 << t % 32;
}

static inline void vocab_clear(const GrammarVocab *v, uint32_t *words, uint32_t place)
{
	for (int32_t t = (int32_t)v->ids[place] - 1; t >= 0; t = v->same[t])
		words[t / 32] &= ~((uint32_t)1 << t % 32);
}

/* Texts without a grammar (mask.c): at least one waits idle, if there is memory. */
void texts_prepare(const GrammarVocab *v);
GrammarText *text_next(const GrammarText *t);
void text_free(GrammarText *t); /* NULL is fine */
void atoms_free(AtomTable *t);
void counted_free(CountSets *c); /* NULL is fine */
void marked_free(struct Marked *all); /* the same */

#endif
