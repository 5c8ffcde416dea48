/* vocab.c - the tree of a tokenizer's tokens: tokens in the order of their bytes, and what they have in common.
 *
 * Added tokens are left out, special or not: a text that is written byte by byte never needs them, and a stream from
 * tokens to text may drop them.
 */
#include "runtime/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

typedef struct Entry { const uint8_t *bytes; uint32_t n; int32_t id; } Entry;

static int by_bytes(const void *a, const void *b)
{
	const Entry *x = a, *y = b;
	const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
	return order ? order : x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x->id > y->id) - (x->id < y->id);
}

static bool is_added(const Tok *t, int32_t id)
{
	for (uint32_t i = 0; i < t->count[TOK_SEC_ADDED]; i++)
		if (t->added[i].id == (uint32_t)id)
			return true;
	return false;
}

/* Entries of all tokens that a text is made of; *total: bytes of all. */
static Entry *list_tokens(const Tok *tok, int n_ids, int *n, size_t *total)
{
	Entry *list = malloc(sizeof *list * ((size_t)n_ids + 1));
	*n = 0;
	*total = 0;
	for (int32_t id = 0; list && id < n_ids; id++) {
		const char *bytes;
		size_t n_bytes;
		bool special;
		if (!tok_token_bytes(tok, id, &bytes, &n_bytes, &special) || special || n_bytes == 0 || is_added(tok, id))
			continue;
		list[(*n)++] = (Entry){(const uint8_t *)bytes, (uint32_t)n_bytes, id};
		*total += n_bytes;
	}
	if (list && *n > 1)
		qsort(list, (size_t)*n, sizeof *list, by_bytes);
	return list;
}

/* Places of one token after another; those that it has in common with the one before are there. */
static void grow_tree(GrammarVocab *v, const Entry *list, int n, uint32_t *way)
{
	const Entry *before = NULL;
	uint32_t depth = 0; /* places on the way to the token before */
	for (int i = 0; i < n; i++) {
		const Entry *e = &list[i];
		uint32_t common = 0;
		while (before && common < before->n && common < e->n && before->bytes[common] == e->bytes[common])
			common++;
		while (depth > common)
			v->end[way[--depth]] = v->n;
		for (; depth < e->n; depth++) {
			way[depth] = v->n;
			v->byte[v->n] = e->bytes[depth];
			v->token[v->n] = -1;
			if (depth == 0)
				v->first[e->bytes[0]] = v->n;
			v->n++;
		}
		int32_t *at = &v->token[way[depth - 1]];
		while (*at >= 0)
			at = &v->same[*at];
		*at = e->id;
		v->depth = e->n > v->depth ? e->n : v->depth;
		before = e;
	}
	while (depth > 0)
		v->end[way[--depth]] = v->n;
}

static void measure_tree(GrammarVocab *v)
{
	for (uint32_t i = v->n; i-- > 0;) {
		v->height[i] = 0;
		for (uint32_t below = i + 1; below < v->end[i]; below = v->end[below])
			if (v->height[below] >= v->height[i])
				v->height[i] = (uint8_t)(v->height[below] < 255 ? v->height[below] + 1 : 255);
	}
}

static void mark_first(GrammarVocab *v)
{
	const TokHeader *h = v->tok->header;
	unsigned char strip[UTF8_MAX];
	const size_t n_strip = h->strip_count ? (size_t)utf8_write(strip, h->strip_point) : 0;
	for (int32_t id = 0; id < v->n_ids; id++) {
		const char *bytes;
		size_t n;
		bool special;
		if (!tok_token_bytes(v->tok, id, &bytes, &n, &special))
			continue;
		if (v->tok->tokens[id].flags & TOK_FIRST || (n_strip && n >= n_strip && memcmp(bytes, strip, n_strip) == 0))
			v->not_first[id / 32] |= (uint32_t)1 << id % 32;
	}
}

static int longest_first(const void *a, const void *b)
{
	const Place *x = a, *y = b;
	return x->chars != y->chars ? (x->chars < y->chars) - (x->chars > y->chars) : (x->at > y->at) - (x->at < y->at);
}

static void fill_short(GrammarVocab *v)
{
	for (uint32_t n = 0, last = v->n_inside; n < SHORT; n++) {
		uint32_t *words = v->in_short + (size_t)n * (size_t)v->n_words;
		if (n > 0)
			memcpy(words, words - v->n_words, sizeof *words * (size_t)v->n_words);
		for (; last > 0 && v->inside[last - 1].chars <= n; last--)
			vocab_set(v, words, v->inside[last - 1].at);
		for (uint32_t i = 0; i < v->n_closing; i++)
			if (v->closing[i].chars == n)
				vocab_set(v, words, v->closing[i].at);
	}
}

/* Walks the tree as the inside of a string. */
static bool find_strings(GrammarVocab *v)
{
	typedef struct Level { uint32_t end, state, chars; } Level;
	Level *levels = malloc(sizeof *levels * (v->depth + 2));
	uint32_t depth = 0;
	v->in_string = calloc((size_t)v->n_words + 1, sizeof *v->in_string);
	v->inside = malloc(sizeof *v->inside * (v->n + 1));
	v->closing = malloc(sizeof *v->closing * (v->n + 1));
	v->in_short = calloc((size_t)SHORT * (size_t)v->n_words, sizeof *v->in_short);
	const bool ok = levels && v->in_string && v->in_short && v->inside && v->closing;
	if (ok)
		levels[0] = (Level){v->n, STRING_START, 0};
	for (uint32_t i = 0; ok && i < v->n;) {
		while (depth > 0 && i >= levels[depth].end)
			depth--;
		const Level from = levels[depth];
		const uint32_t to = lexeme_step(&v->string, from.state, v->byte[i]);
		if (to == 0) {
			i = v->end[i];
			continue;
		}
		vocab_set(v, v->in_string, i);
		if (v->string.ends[to]) {
			v->closing[v->n_closing++] = (Place){i, from.chars};
			i = v->end[i];
			continue;
		}
		const Level level = {v->end[i], to, from.chars + (from.state == STRING_START)};
		if (v->token[i] >= 0)
			v->inside[v->n_inside++] = (Place){i, level.chars};
		if (v->end[i] > i + 1)
			levels[++depth] = level;
		i++;
	}
	free(levels);
	if (ok && v->n_inside > 1)
		qsort(v->inside, v->n_inside, sizeof *v->inside, longest_first);
	if (ok)
		fill_short(v);
	return ok;
}

static bool find_commas(GrammarVocab *v)
{
	uint32_t quoted = 0; /* places up to here have a quote before */
	v->commas = malloc(sizeof *v->commas * (v->n + 1));
	v->quoted_commas = malloc(sizeof *v->quoted_commas * (v->n + 1));
	for (uint32_t i = 0; i < v->n && v->commas && v->quoted_commas; i++) {
		if (v->byte[i] == '"' && v->end[i] > quoted)
			quoted = v->end[i];
		if (v->byte[i] != ',')
			continue;
		v->commas[v->n_commas++] = i;
		if (i < quoted)
			v->quoted_commas[v->n_quoted_commas++] = i;
	}
	return v->commas && v->quoted_commas;
}

static bool fill(GrammarVocab *v)
{
	int n;
	size_t total;
	Entry *list = list_tokens(v->tok, v->n_ids < tok_n_ids(v->tok) ? v->n_ids : tok_n_ids(v->tok), &n, &total);
	uint32_t *way = malloc(sizeof *way * (TOK_MAX_STRING + 1));
	v->byte = malloc(total + 1);
	v->end = malloc(sizeof *v->end * (total + 1));
	v->height = malloc(total + 1);
	v->token = malloc(sizeof *v->token * (total + 1));
	v->same = malloc(sizeof *v->same * ((size_t)v->n_ids + 1));
	v->not_first = calloc((size_t)v->n_words + 1, sizeof *v->not_first);
	Effort e = {.left = 10000000, .at = -1};
	bool ok = list && way && v->byte && v->end && v->height && v->token && v->same && v->not_first &&
		lexeme_of_string(&v->string, &e);
	if (ok) {
		memset(v->same, -1, sizeof *v->same * (size_t)v->n_ids);
		for (int b = 0; b < 256; b++)
			v->first[b] = UINT32_MAX;
		grow_tree(v, list, n, way);
		for (int b = 0; b < 256; b++)
			v->first[b] = v->first[b] == UINT32_MAX ? v->n : v->first[b];
		measure_tree(v);
		mark_first(v);
		ok = find_strings(v) && find_commas(v);
	}
	free(list);
	free(way);
	return ok;
}

GrammarVocab *grammar_vocab_open(const Tok *tok, int n_ids)
{
	if (tok->header->decode == TOK_DECODE_SPACED)
		return NULL;
	GrammarVocab *v = calloc(1, sizeof *v);
	if (!v)
		return NULL;
	pthread_mutex_init(&v->atoms.lock, NULL);
	v->tok = tok;
	v->n_ids = n_ids;
	v->n_words = grammar_mask_words(n_ids);
	if (fill(v))
		return v;
	grammar_vocab_close(v);
	return NULL;
}

void atoms_free(AtomTable *t)
{
	for (int i = 0; i < ATOM_SLOTS; i++)
		for (AtomMask *m = t->slots[i], *next; m; m = next) {
			next = m->next;
			free(m->words);
			free(m->exits);
			free(m);
		}
	pthread_mutex_destroy(&t->lock);
}

void grammar_vocab_close(GrammarVocab *v)
{
	if (!v)
		return;
	atoms_free(&v->atoms);
	lexeme_free(&v->string);
	free(v->byte);
	free(v->end);
	free(v->height);
	free(v->token);
	free(v->same);
	free(v->not_first);
	free(v->in_string);
	free(v->in_short);
	free(v->inside);
	free(v->closing);
	free(v->commas);
	free(v->quoted_commas);
	free(v);
}
