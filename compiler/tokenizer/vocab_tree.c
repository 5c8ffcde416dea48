/* vocab_tree.c - the tree of the vocabulary's bytes, by which `atlas` finds the tokens that a grammar allows.
 *
 * Tokens in the order of their bytes share the places of what they have in common with the one before. Added tokens are
 * left out, special or not: a text that is written byte by byte never needs them.
 */
#include "compiler/tokenizer/tokenizer_spec.h"

#include <stdlib.h>
#include <string.h>

typedef struct Entry { Str text; uint32_t id; } Entry;

static int by_bytes(const void *a, const void *b)
{
	const Entry *x = a, *y = b;
	const int order = memcmp(x->text.at, y->text.at, x->text.n < y->text.n ? x->text.n : y->text.n);
	return order ? order : x->text.n != y->text.n ? (x->text.n > y->text.n) - (x->text.n < y->text.n)
		: (x->id > y->id) - (x->id < y->id);
}

/* Tokens that a text is made of, by their bytes. */
static Entry *list_tokens(Arena *a, const TokenizerSpec *spec, uint32_t *n, size_t *total)
{
	Entry *list = ARENA_ARRAY(a, Entry, spec->n_ids + 1);
	bool *is_added = ARENA_ARRAY(a, bool, spec->n_ids + 1);
	for (int i = 0; i < spec->added.n; i++)
		is_added[spec->added.at[i].id] = true;
	*n = 0;
	*total = 0;
	for (int id = 0; id < spec->n_ids; id++) {
		const SpecToken *t = &spec->tokens[id];
		if (!t->name.at || t->flags & TOK_SPECIAL || t->text.n == 0 || t->text.n > TOK_MAX_DEPTH || is_added[id])
			continue;
		list[(*n)++] = (Entry){t->text, (uint32_t)id};
		*total += t->text.n;
	}
	qsort(list, *n, sizeof *list, by_bytes);
	return list;
}

VocabTree vocab_tree(Arena *a, const TokenizerSpec *spec)
{
	uint32_t n, depth = 0, n_same = 0, places = 0;
	size_t total;
	const Entry *list = list_tokens(a, spec, &n, &total), *before = NULL;
	uint32_t *words = ARENA_ARRAY(a, uint32_t, total + 1), *ids = ARENA_ARRAY(a, uint32_t, total + 1);
	uint32_t *way = ARENA_ARRAY(a, uint32_t, TOK_MAX_DEPTH + 1); /* places on the way to the token before */
	TokSame *same = ARENA_ARRAY(a, TokSame, n + 1);
	for (uint32_t i = 0; i <= n; i++) {
		const Entry *e = i < n ? &list[i] : NULL;
		uint32_t common = 0;
		while (before && e && common < before->text.n && common < e->text.n &&
			before->text.at[common] == e->text.at[common])
			common++;
		for (; depth > common; depth--)
			words[way[depth - 1]] |= places - way[depth - 1];
		for (; e && depth < e->text.n; depth++) {
			way[depth] = places;
			words[places++] = (uint32_t)(unsigned char)e->text.at[depth] << 24;
		}
		if (e && ids[way[depth - 1]])
			same[n_same++] = (TokSame){before->id, e->id};
		else if (e)
			ids[way[depth - 1]] = e->id + 1;
		before = e;
		if (places > TOK_MAX_PLACES || spec->decode == TOK_DECODE_SPACED)
			return (VocabTree){0};
	}
	return (VocabTree){words, ids, places, same, n_same};
}
