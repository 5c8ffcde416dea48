/* vocab.c - the tree of a tokenizer's tokens, as atlasc made it, and what its tokens have in common. */
#include "runtime/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

static bool measure_tree(GrammarVocab *v)
{
	uint16_t *height = calloc((size_t)v->n + 1, sizeof *height); /* most bytes that follow below a place */
	for (uint32_t i = v->n; i-- > 0 && height;) {
		for (uint32_t below = i + 1; below < vocab_end(v, i); below = vocab_end(v, below))
			if (height[below] >= height[i])
				height[i] = (uint16_t)(height[below] + 1);
		v->depth = height[i] + 1u > v->depth ? height[i] + 1u : v->depth;
	}
	const bool good = height;
	free(height);
	return good;
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

/* The longest first, else in their order. */
static bool sort_places(const GrammarVocab *v, Place **places, uint32_t n)
{
	uint32_t *first = calloc((size_t)v->depth + 3, sizeof *first); /* where those of depth - i characters begin */
	Place *sorted = malloc(sizeof *sorted * ((size_t)n + 1)), *from = *places;
	const bool ok = first && sorted;
	for (uint32_t i = 0; ok && i < n; i++)
		first[v->depth - from[i].chars + 1]++;
	for (uint32_t c = 1; ok && c <= v->depth + 1; c++)
		first[c] += first[c - 1];
	for (uint32_t i = 0; ok && i < n; i++)
		sorted[first[v->depth - from[i].chars]++] = from[i];
	free(first);
	free(ok ? from : sorted);
	*places = ok ? sorted : from;
	return ok;
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
		const uint32_t to = lexeme_step(&v->string, from.state, vocab_byte(v, i));
		if (to == 0) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, v->in_string, i);
		if (v->string.ends[to]) {
			v->closing[v->n_closing++] = (Place){i, from.chars};
			i = vocab_end(v, i);
			continue;
		}
		const Level level = {vocab_end(v, i), to, from.chars + (from.state == STRING_START)};
		if (v->ids[i])
			v->inside[v->n_inside++] = (Place){i, level.chars};
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = level;
		i++;
	}
	free(levels);
	if (!ok || !sort_places(v, &v->inside, v->n_inside))
		return false;
	fill_short(v);
	return true;
}

static bool find_commas(GrammarVocab *v)
{
	uint32_t quoted = 0; /* places up to here have a quote before */
	v->commas = malloc(sizeof *v->commas * (v->n + 1));
	v->quoted_commas = malloc(sizeof *v->quoted_commas * (v->n + 1));
	for (uint32_t i = 0; i < v->n && v->commas && v->quoted_commas; i++) {
		if (vocab_byte(v, i) == '"' && vocab_end(v, i) > quoted)
			quoted = vocab_end(v, i);
		if (vocab_byte(v, i) != ',')
			continue;
		v->commas[v->n_commas++] = i;
		if (i < quoted)
			v->quoted_commas[v->n_quoted_commas++] = i;
	}
	return v->commas && v->quoted_commas;
}

/* Letters and digits by what hexadecimal numbers have of them, signs that patterns name, and parts of UTF-8. */
static void fill_groups(GrammarVocab *v)
{
	static const char *const of[GROUPS] = {"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF",
		"GHIJKLMNOPQRSTUVWXYZ", " ", "_", "-", ".", "/", ":", ",", "'", "\"", "\\", "@", "+", "#$%&*=?^`{|}~!"};
	enum { OTHER = 18, CONTROL, INNER, LEAD_2, LEAD_3, LEAD_4 };
	for (int b = 0; b < 256; b++) {
		int g = b >= 0xf0 ? LEAD_4 : b >= 0xe0 ? LEAD_3 : b >= 0xc0 ? LEAD_2 : b >= 0x80 ? INNER
			: b < 32 || b == 127 ? CONTROL : OTHER;
		for (int i = 0; i < OTHER && g == OTHER; i++)
			if (strchr(of[i], b))
				g = i;
		v->group[b] = (uint8_t)g;
	}
}

/* Which tokens have bytes of a group, and how many bytes they have. */
static bool find_groups(GrammarVocab *v)
{
	const size_t n_words = (size_t)v->n_words;
	struct Way { uint32_t end, groups; } *way = malloc(sizeof *way * (v->depth + 2));
	uint32_t depth = 0, next[GROUPS];
	v->marks = malloc(sizeof *v->marks * ((size_t)v->n + 1));
	v->with = calloc(GROUPS * n_words + 1, sizeof *v->with);
	v->all = calloc(n_words + 1, sizeof *v->all);
	v->upto = calloc(SHORT * n_words + 1, sizeof *v->upto);
	v->longer = malloc(sizeof *v->longer * ((size_t)v->n + 1));
	const bool ok = way && v->marks && v->with && v->all && v->upto && v->longer;
	fill_groups(v);
	for (uint32_t i = 0; ok && i < v->n; i++)
		v->first_mark[v->group[vocab_byte(v, i)] + 1]++;
	for (int g = 0; g < GROUPS; g++)
		v->first_mark[g + 1] += v->first_mark[g];
	memcpy(next, v->first_mark, sizeof next);
	if (ok)
		way[0] = (struct Way){v->n, 0};
	for (uint32_t i = 0; ok && i < v->n; i++) {
		while (i >= way[depth].end)
			depth--;
		const uint8_t group = v->group[vocab_byte(v, i)];
		const uint32_t above = way[depth].groups, groups = above | (uint32_t)1 << group;
		v->marks[next[group]++] = (Mark){i, above, depth};
		way[++depth] = (struct Way){vocab_end(v, i), groups};
		if (!v->ids[i])
			continue;
		vocab_set(v, v->all, i);
		for (uint32_t left = groups; left; left &= left - 1) {
			vocab_set(v, v->with + (size_t)__builtin_ctz(left) * n_words, i);
			v->n_with[__builtin_ctz(left)]++;
		}
		if (depth < SHORT)
			vocab_set(v, v->upto + depth * n_words, i);
		else
			v->longer[v->n_longer++] = (Place){i, depth};
	}
	for (size_t i = n_words; ok && i < SHORT * n_words; i++)
		v->upto[i] |= v->upto[i - n_words];
	free(way);
	return ok && sort_places(v, &v->longer, v->n_longer);
}

static void find_known(GrammarVocab *v)
{
	const char *bytes;
	size_t n;
	bool special;
	for (int32_t id = 0; id < v->n_ids; id++)
		if (tok_token_bytes(v->tok, id, &bytes, &n, &special))
			v->known[id / 32] |= (uint32_t)1 << id % 32;
}

/* Ids that have no column of the scores are none of the tree. */
static bool leave_out(GrammarVocab *v)
{
	uint32_t *ids = malloc(sizeof *ids * v->n);
	for (uint32_t i = 0; i < v->n && ids; i++)
		ids[i] = v->ids[i] > (uint32_t)v->n_ids ? 0 : v->ids[i];
	v->own_ids = ids;
	v->ids = ids;
	return ids != NULL;
}

static bool fill(GrammarVocab *v)
{
	const Tok *tok = v->tok;
	v->n = tok->count[TOK_SEC_TREE];
	v->tree = tok->tree;
	v->ids = tok->tree_ids;
	v->same = malloc(sizeof *v->same * ((size_t)v->n_ids + 1));
	v->second = calloc(256 * 256, sizeof *v->second);
	v->known = calloc((size_t)v->n_words + 1, sizeof *v->known);
	v->not_first = calloc((size_t)v->n_words + 1, sizeof *v->not_first);
	Effort e = {.left = 10000000, .at = -1};
	if (!v->same || !v->second || !v->known || !v->not_first || !lexeme_of_string(&v->string, &e) ||
		!lexeme_count(&v->string, &v->string, &e) ||
		(tok_n_ids(tok) > v->n_ids && !leave_out(v)))
		return false;
	memset(v->same, -1, sizeof *v->same * (size_t)v->n_ids);
	for (uint32_t i = 0; i < tok->count[TOK_SEC_TREE_SAME]; i++)
		if (tok->tree_same[i].next < (uint32_t)v->n_ids)
			v->same[tok->tree_same[i].id] = (int32_t)tok->tree_same[i].next;
	for (int b = 0; b < 256; b++)
		v->first[b] = v->n;
	for (uint32_t i = 0; i < v->n; i = vocab_end(v, i)) {
		v->first[vocab_byte(v, i)] = i;
		for (uint32_t k = i + 1; k < vocab_end(v, i); k = vocab_end(v, k))
			v->second[vocab_byte(v, i) * 256 + vocab_byte(v, k)] = k;
	}
	find_known(v);
	mark_first(v);
	return measure_tree(v) && find_strings(v) && find_groups(v) && find_commas(v);
}

GrammarVocab *grammar_vocab_open(const Tok *tok, int n_ids)
{
	if (tok->count[TOK_SEC_TREE] == 0)
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
			counted_free(m->counts);
			free(m);
		}
	while (t->n_spare > 0)
		free(t->spare[--t->n_spare]);
	marked_free(t->marked);
	pthread_mutex_destroy(&t->lock);
}

void grammar_vocab_close(GrammarVocab *v)
{
	if (!v)
		return;
	for (GrammarText *next; v->idle; v->idle = next) {
		next = text_next(v->idle);
		text_free(v->idle);
	}
	atoms_free(&v->atoms);
	lexeme_free(&v->string);
	free(v->own_ids);
	free(v->same);
	free(v->second);
	free(v->known);
	free(v->not_first);
	free(v->in_string);
	free(v->in_short);
	free(v->marks);
	free(v->with);
	free(v->all);
	free(v->upto);
	free(v->longer);
	for (int i = 0; i < v->n_plain; i++)
		free(v->plain[i].words);
	free(v->inside);
	free(v->closing);
	free(v->commas);
	free(v->quoted_commas);
	free(v);
}
