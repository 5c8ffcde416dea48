/* counted.c - see counted.h. A token is allowed where the characters that it begins, and those that its last state
 * still needs, fit into what is to come: tokens that are equal in both are one set, of few of which each mask is made.
 */
#include "runtime/grammar/counted.h"

#include <stdlib.h>
#include <string.h>

enum {
	MOST_SETS = 512,
	MANY = 256, /* tokens of a set that has a bit for each of the vocabulary: as quick to add as that many places */
	HINTS = 256,
};

typedef struct Walk {
	const GrammarVocab *v;
	CountSets *counts;
	AtomMask *m;
	Effort effort;
	uint32_t exits_cap;
	uint16_t hint[HINTS]; /* index of a set, plus 1 */
} Walk;

/* The set of tokens with that many characters which end in that state; NULL: there are too many. */
static CountSet *set_of(Walk *w, uint32_t chars, uint32_t state)
{
	CountSets *c = w->counts;
	uint16_t *hint = &w->hint[(chars * 37 + state) % HINTS];
	uint32_t i = *hint ? *hint - 1u : 0;
	if (i >= c->n || c->at[i].chars != chars || c->at[i].state != state)
		for (i = 0; i < c->n && (c->at[i].chars != chars || c->at[i].state != state); i++)
			;
	if (i == c->n && (c->n == MOST_SETS || !GROW(&w->effort, c->at, c->cap, c->n + 1)))
		return NULL;
	if (i == c->n)
		c->at[c->n++] = (CountSet){.chars = chars, .state = state};
	*hint = (uint16_t)(i + 1);
	c->most = chars > c->most ? chars : c->most;
	return &c->at[i];
}

static bool add_token(Walk *w, uint32_t place, uint32_t chars, uint32_t state)
{
	CountSet *s = set_of(w, chars, state);
	if (!s || !GROW(&w->effort, s->places, s->cap, s->n + 1))
		return false;
	s->places[s->n++] = place;
	return true;
}

static bool add_end(Walk *w, uint32_t place, uint32_t chars, uint32_t state)
{
	CountSets *c = w->counts;
	if (vocab_end(w->v, place) == place + 1)
		return true; /* no bytes follow */
	if (!GROW(&w->effort, c->exits, c->exits_cap, c->n_exits + 1) ||
		!GROW(&w->effort, w->m->exits, w->exits_cap, w->m->n_exits + 1))
		return false;
	c->most = chars > c->most ? chars : c->most;
	c->exits[c->n_exits++] = (CountExit){place, chars, state};
	w->m->exits[w->m->n_exits++] = place;
	return true;
}

/* Sets of many tokens get their bits. */
static bool make_words(const GrammarVocab *v, CountSets *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		CountSet *s = &c->at[i];
		if (s->n < MANY)
			continue;
		if (!(s->words = calloc((size_t)v->n_words, sizeof *s->words)))
			return false;
		for (uint32_t k = 0; k < s->n; k++)
			vocab_set(v, s->words, s->places[k]);
		free(s->places);
		s->places = NULL;
	}
	return true;
}

bool counted_walk(AtomMask *m, const GrammarVocab *v, const Lexeme *l, uint32_t state, Level *levels)
{
	Walk w = {.v = v, .counts = calloc(1, sizeof *w.counts), .m = m};
	uint32_t depth = 0;
	bool good = w.counts;
	levels[0] = (Level){.end = v->n, .state = state};
	for (uint32_t i = 0; i < v->n && good;) {
		while (i >= levels[depth].end)
			depth--;
		const uint32_t from = levels[depth].state, to = lexeme_step(l, from, vocab_byte(v, i));
		const uint32_t chars = levels[depth].other + (!l->is_inside[from] && vocab_byte(v, i) != '"');
		if (to == 0) {
			i = vocab_end(v, i);
			continue;
		}
		good = (!v->ids[i] || add_token(&w, i, chars, to)) && (!l->accepts[to] || add_end(&w, i, chars, to));
		if (vocab_end(v, i) > i + 1 && !l->ends[to])
			levels[++depth] = (Level){vocab_end(v, i), to, chars};
		i = l->ends[to] ? vocab_end(v, i) : i + 1;
	}
	good = good && make_words(v, w.counts);
	if (!good) {
		counted_free(w.counts);
		free(m->exits);
		m->exits = NULL;
		m->n_exits = 0;
		return false;
	}
	m->counts = w.counts;
	return counted_mask(m, m, v, l, &(Item){.d = ENDLESS});
}

void counted_clip(const AtomMask *base, const Lexeme *l, Item *item)
{
	const uint32_t most = base->counts->most + l->span;
	item->c = item->c <= most ? item->c : most + 1;
	item->d = item->d <= most ? item->d : ENDLESS;
}

static bool is_left(const Lexeme *l, const Item *item, uint32_t chars, uint32_t state)
{
	return chars <= item->d && lexeme_can_have(l, state, item->c > chars ? item->c - chars : 0,
		item->d == ENDLESS ? ENDLESS : item->d - chars);
}

/* A set's tokens are in no other. */
static void add_set(const GrammarVocab *v, const CountSet *s, uint32_t *words)
{
	for (int k = 0; k < v->n_words && s->words; k++)
		words[k] |= s->words[k];
	for (uint32_t k = 0; k < s->n && !s->words; k++)
		vocab_set(v, words, s->places[k]);
}

static void take_set(const GrammarVocab *v, const CountSet *s, uint32_t *words)
{
	for (int k = 0; k < v->n_words && s->words; k++)
		words[k] &= ~s->words[k];
	for (uint32_t k = 0; k < s->n && !s->words; k++)
		vocab_clear(v, words, s->places[k]);
}

bool counted_mask(AtomMask *m, const AtomMask *base, const GrammarVocab *v, const Lexeme *l, const Item *item)
{
	const CountSets *c = base->counts;
	const size_t bytes = sizeof *m->words * (size_t)v->n_words;
	bool left[MOST_SETS];
	uint32_t n_left = 0, n_gone = 0; /* operations */
	for (uint32_t i = 0; i < c->n; i++) {
		left[i] = is_left(l, item, c->at[i].chars, c->at[i].state);
		*(left[i] ? &n_left : &n_gone) += c->at[i].words ? (uint32_t)v->n_words / 8 : c->at[i].n;
	}
	const bool takes = m != base && n_gone < n_left;
	if (takes)
		memcpy(m->words, base->words, bytes);
	else
		memset(m->words, 0, bytes);
	for (uint32_t i = 0; i < c->n; i++)
		if (left[i] && !takes)
			add_set(v, &c->at[i], m->words);
		else if (!left[i] && takes)
			take_set(v, &c->at[i], m->words);
	if (m == base)
		return true;
	m->exits = malloc(sizeof *m->exits * ((size_t)c->n_exits + 1));
	for (uint32_t i = 0; i < c->n_exits && m->exits; i++)
		if (c->exits[i].chars >= item->c && is_left(l, item, c->exits[i].chars, c->exits[i].state))
			m->exits[m->n_exits++] = c->exits[i].place;
	return m->exits;
}

void counted_free(CountSets *c)
{
	for (uint32_t i = 0; c && i < c->n; i++) {
		free(c->at[i].words);
		free(c->at[i].places);
	}
	if (c) {
		free(c->at);
		free(c->exits);
	}
	free(c);
}
