/* mask.c - which tokens may follow.
 *
 * Most of a mask depends on the lexeme alone that the text is in (atom.c). What is left are tokens that end the lexeme
 * and go on after it: they are walked with what follows, from the places of the tree where the lexeme ends. Items that
 * are plain texts allow few bytes, so for them the tree itself is walked.
 */
#include "runtime/grammar/atom.h"
#include "runtime/grammar/unique.h"

#include <stdlib.h>
#include <string.h>

enum {
	KEPT = 16,                /* whole masks */
	MOST_IDLE = 32,           /* texts whose memory waits for others */
	MOST_IDLE_BYTES = 1 << 20 /* of a text's states: more are given back */
};

struct GrammarText {
	const Grammar *g;
	const GrammarVocab *v;
	int32_t *ends; int n_ends;
	Match m;
	Unique unique;           /* where the grammar has items that must differ */
	uint32_t state;
	bool has_begun;
	Atoms atoms;
	uint32_t *way, *until;   /* [depth of the tree + 2] of a walk */
	Item *items;             /* the same */
	uint32_t kept[KEPT], *kept_words; /* states, 0 = none, and the masks [KEPT, n_words] of these */
	struct Tried {           /* what it was when bytes were begun to be tried */
		bool is_on, has_begun;
		uint32_t state;
		Effort effort;
	} tried;
	Undo *undo; uint32_t n_undo, undo_cap; /* bytes of these, or of one push, where items must differ */
	GrammarText *next;       /* idle one of the vocabulary */
};

/* Masks of states ------------------------------------------------------------ */

static void walk(GrammarText *t, uint32_t state, uint32_t i, uint32_t end, uint32_t depth, uint32_t *words);

/* The same where the state is an item alone: no states are made until its lexeme ends. */
static void walk_item(GrammarText *t, const Item *item, uint32_t i, uint32_t end, const uint32_t base, uint32_t *words)
{
	const GrammarVocab *v = t->v;
	uint32_t depth = base, after = 0;
	bool has_after = false, ends;
	t->items[base] = *item;
	t->until[base] = end;
	while (i < end && !t->m.effort.why) {
		while (depth > base && i >= t->until[depth])
			depth--;
		const uint32_t next = vocab_end(v, i);
		Item to = t->items[depth];
		const bool goes_on = match_move(t->g, &to, vocab_byte(v, i), &ends);
		if (goes_on || ends)
			vocab_set(v, words, i);
		if (ends && next > i + 1) {
			after = has_after ? after : match_after(&t->m, item, 1);
			has_after = true;
			if (after && t->m.states[after].n > 0)
				walk(t, after, i + 1, next, depth + 1, words);
		}
		if (goes_on && next > i + 1) {
			t->items[++depth] = to;
			t->until[depth] = next;
		}
		i = goes_on ? i + 1 : next;
	}
}

/* Places [i, end) of the tree, of which those on the uppermost level are reached from `state`. `base`: their depth, or
 * less. */
static void walk(GrammarText *t, uint32_t state, uint32_t i, uint32_t end, const uint32_t base, uint32_t *words)
{
	const GrammarVocab *v = t->v;
	uint32_t depth = base;
	if (t->m.states[state].n == 1) {
		const Item item = t->m.items[t->m.states[state].first];
		walk_item(t, &item, i, end, base, words);
		return;
	}
	t->way[base] = state;
	t->until[base] = end;
	while (i < end) {
		while (depth > base && i >= t->until[depth])
			depth--;
		const uint32_t next = vocab_end(v, i), to = match_step(&t->m, t->way[depth], vocab_byte(v, i));
		if (to == 0) {
			i = next;
			continue;
		}
		vocab_set(v, words, i);
		if (t->m.states[to].n == 1 && next > i + 1) {
			walk(t, to, i + 1, next, depth + 1, words);
			i = next;
			continue;
		}
		if (next > i + 1) {
			t->way[++depth] = to;
			t->until[depth] = next;
		}
		i++;
	}
}

/* Below a place that leads to `state`. Of a place of the uppermost level only bytes that the state takes: to pass the
 * others would mean to read the tree all over. */
static void walk_below(GrammarText *t, uint32_t state, uint32_t place, uint32_t *words)
{
	const GrammarVocab *v = t->v;
	const uint32_t first = vocab_byte(v, place);
	uint64_t bytes[4];
	if (v->first[first] != place) {
		walk(t, state, place + 1, vocab_end(v, place), 0, words);
		return;
	}
	memcpy(bytes, t->m.states[state].bytes, sizeof bytes);
	for (int w = 0; w < 4; w++)
		for (uint64_t left = bytes[w]; left; left &= left - 1) {
			const uint32_t at = v->second[first * 256 + (uint32_t)w * 64 + (uint32_t)__builtin_ctzll(left)];
			if (at)
				walk(t, state, at, vocab_end(v, at), 0, words);
		}
}

/* The whole tree. */
static void walk_all(GrammarText *t, uint32_t state, uint32_t *words)
{
	uint64_t bytes[4];
	memcpy(bytes, t->m.states[state].bytes, sizeof bytes);
	for (int w = 0; w < 4; w++)
		for (uint64_t left = bytes[w]; left; left &= left - 1) {
			const uint32_t byte = (uint32_t)w * 64 + (uint32_t)__builtin_ctzll(left), place = t->v->first[byte];
			const uint32_t to = place < t->v->n ? match_step(&t->m, state, (uint8_t)byte) : 0;
			if (!to)
				continue;
			vocab_set(t->v, words, place);
			walk_below(t, to, place, words);
		}
}

static bool is_same_atom(const Item *a, const Item *b)
{
	return a->kind == b->kind && a->a == b->a && a->b == b->b && a->c == b->c && a->d == b->d;
}

/* Items [n] of one state of a lexeme, with different stacks. */
static bool add_atom(GrammarText *t, const Item *items, uint32_t n, uint32_t *words)
{
	const AtomMask *m = atom_mask(&t->atoms, items);
	if (!m)
		return effort_refuse(&t->m.effort, "there is no memory", -1);
	for (int i = 0; i < t->v->n_words; i++)
		words[i] |= m->words[i];
	if (m->n_exits == 0)
		return true;
	const uint32_t after = match_after(&t->m, items, n);
	const bool goes_on = after && t->m.states[after].n > 0;
	for (uint32_t i = 0; goes_on && i < m->n_exits; i++)
		walk_below(t, after, m->exits[i], words);
	return !t->m.effort.why;
}

static bool make_mask(GrammarText *t, uint32_t *words)
{
	const State s = t->m.states[t->state];
	Item *items = malloc(sizeof *items * (s.n + 1));
	if (!items)
		return false;
	memcpy(items, t->m.items + s.first, sizeof *items * s.n); /* the match moves its own */
	memset(words, 0, sizeof *words * (size_t)t->v->n_words);
	uint32_t i = 0;
	while (i < s.n && items[i].kind == NODE_TEXT)
		i++;
	const uint32_t texts = i ? match_of_items(&t->m, items, i) : 0;
	if (texts)
		walk_all(t, texts, words);
	bool ok = !t->m.effort.why;
	for (uint32_t n; ok && i < s.n; i += n) {
		n = 1;
		while (i + n < s.n && is_same_atom(&items[i], &items[i + n]))
			n++;
		ok = add_atom(t, items + i, n, words);
	}
	free(items);
	for (int e = 0; e < t->n_ends && s.is_whole; e++)
		words[t->ends[e] / 32] |= (uint32_t)1 << t->ends[e] % 32;
	return ok && !t->m.effort.why;
}

static bool hide_first(const GrammarText *t, uint32_t *words)
{
	for (int i = 0; i < t->v->n_words && !t->has_begun; i++)
		words[i] &= ~t->v->not_first[i];
	return true;
}

/* Items that must differ ------------------------------------------------------------ */

static bool has_place(const uint32_t *places, uint32_t n, uint32_t from, uint32_t until)
{
	uint32_t low = 0, high = n;
	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;
		if (places[mid] < from)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && places[low] < until;
}

/* May a token within [from, until) end an item and begin another? */
static bool may_separate(const GrammarText *t, uint32_t from, uint32_t until)
{
	const GrammarVocab *v = t->v;
	return t->unique.in_string ? has_place(v->quoted_commas, v->n_quoted_commas, from, until)
		: has_place(v->commas, v->n_commas, from, until);
}

/* Clears the tokens at [from, until), reached from `state`, after which an item is one that was before, or can only
 * become one. `is_less`: fewer texts follow than the mask was made for. */
static bool clear_repeated(GrammarText *t, uint32_t state, uint32_t from, uint32_t until, bool is_less, uint32_t *words)
{
	const GrammarVocab *v = t->v;
	for (uint32_t i = from, next; i < until && !t->m.effort.why; i = next) {
		Undo undo;
		next = vocab_end(v, i);
		const uint32_t to = unique_step(&t->unique, &t->m, state, vocab_byte(v, i), &undo);
		const bool may = to && unique_may_repeat(&t->unique), goes_on = to && unique_goes_on(&t->unique, &t->m, to);
		const bool less = is_less || (may && !t->unique.in_string);
		if (!goes_on)
			for (uint32_t k = i; k < next; k++)
				vocab_clear(v, words, k);
		else if (next > i + 1 && (less || may || may_separate(t, i + 1, next)))
			clear_repeated(t, to, i + 1, next, less, words);
		if (to)
			unique_undo(&t->unique, &undo);
	}
	return !t->m.effort.why;
}

/* Without losing states that the text may go back to. */
static bool make_room(GrammarText *t, bool *forgot)
{
	*forgot = false;
	return t->tried.is_on ? !t->m.effort.why : match_forget(&t->m, &t->state, forgot);
}

bool grammar_text_mask(GrammarText *t, uint32_t *words)
{
	const int slot = (int)(t->state % KEPT);
	const size_t bytes = sizeof *words * (size_t)t->v->n_words;
	bool forgot;
	if (t->g->has_fresh)
		return make_room(t, &forgot) && make_mask(t, words) &&
			clear_repeated(t, t->state, 0, t->v->n, false, words) && hide_first(t, words);
	if (t->state && t->kept[slot] == t->state) {
		memcpy(words, t->kept_words + (size_t)slot * (size_t)t->v->n_words, bytes);
		return true;
	}
	if (!make_room(t, &forgot) || !make_mask(t, words))
		return false;
	if (forgot)
		memset(t->kept, 0, sizeof t->kept);
	if (!t->has_begun) /* asked for once */
		return hide_first(t, words);
	const uint32_t to = t->state % KEPT;
	memcpy(t->kept_words + (size_t)to * (size_t)t->v->n_words, words, bytes);
	t->kept[to] = t->state;
	return true;
}

/* Texts ------------------------------------------------------------ */

/* Its memory is written to: else the first masks would wait for the system's pages. */
static GrammarText *make_text(const GrammarVocab *v)
{
	GrammarText *t = calloc(1, sizeof *t);
	const size_t words = (size_t)v->n_words * KEPT;
	if (!t)
		return NULL;
	t->v = v;
	t->way = malloc(sizeof *t->way * (v->depth + 2));
	t->until = malloc(sizeof *t->until * (v->depth + 2));
	t->items = malloc(sizeof *t->items * (v->depth + 2));
	t->kept_words = malloc(sizeof *t->kept_words * (words + 1));
	if (t->kept_words)
		memset(t->kept_words, 0xff, sizeof *t->kept_words * words);
	if (atoms_open(&t->atoms, v) && t->way && t->until && t->items && t->kept_words && match_reserve(&t->m))
		return t;
	text_free(t);
	return NULL;
}

static GrammarText *take_idle(GrammarVocab *v)
{
	pthread_mutex_lock(&v->atoms.lock);
	GrammarText *t = v->idle;
	if (t) {
		v->idle = t->next;
		v->n_idle--;
	}
	pthread_mutex_unlock(&v->atoms.lock);
	return t ? t : make_text(v);
}

static void give_idle(GrammarVocab *v, GrammarText *t)
{
	if (match_bytes(&t->m) > MOST_IDLE_BYTES)
		match_close(&t->m);
	pthread_mutex_lock(&v->atoms.lock);
	const bool is_kept = v->n_idle < MOST_IDLE;
	if (is_kept) {
		t->next = v->idle;
		v->idle = t;
		v->n_idle++;
	}
	pthread_mutex_unlock(&v->atoms.lock);
	if (!is_kept)
		text_free(t);
}

GrammarText *text_next(const GrammarText *t) { return t->next; }

void text_free(GrammarText *t)
{
	if (!t)
		return;
	match_close(&t->m);
	atoms_close(&t->atoms);
	free(t->kept_words);
	free(t->way);
	free(t->until);
	free(t->items);
	free(t);
}

void texts_prepare(const GrammarVocab *v)
{
	GrammarText *t = take_idle((GrammarVocab *)v);
	if (t)
		give_idle((GrammarVocab *)v, t);
}

GrammarText *grammar_text_open(const Grammar *g, const GrammarVocab *v, const int32_t *ends, int n_ends)
{
	GrammarText *t = take_idle((GrammarVocab *)v);
	if (!t)
		return NULL;
	t->g = g;
	atoms_begin(&t->atoms, g);
	t->has_begun = false;
	t->unique = (Unique){0};
	t->tried = (struct Tried){0};
	memset(t->kept, 0, sizeof t->kept);
	t->n_ends = 0;
	t->ends = malloc(sizeof *ends * ((size_t)n_ends + 1));
	if (t->ends && match_open(&t->m, g, g->root, &t->state)) {
		for (int i = 0; i < n_ends; i++)
			if (ends[i] >= 0 && ends[i] < v->n_ids)
				t->ends[t->n_ends++] = ends[i];
		return t;
	}
	grammar_text_close(t);
	return NULL;
}

void grammar_text_close(GrammarText *t)
{
	if (!t)
		return;
	unique_close(&t->unique);
	free(t->ends);
	free(t->undo);
	t->ends = NULL;
	t->undo = NULL;
	t->n_undo = t->undo_cap = 0;
	give_idle((GrammarVocab *)t->v, t);
}

/* All bytes or none. */
static bool push_unique(GrammarText *t, const uint8_t *bytes, size_t n)
{
	const uint32_t first = t->n_undo = t->tried.is_on ? t->n_undo : 0;
	uint32_t s = n < UINT32_MAX / 2 && GROW(&t->m.effort, t->undo, t->undo_cap, first + (uint32_t)n) ? t->state : 0;
	for (size_t k = 0; k < n && s; k++) {
		s = unique_step(&t->unique, &t->m, s, bytes[k], &t->undo[t->n_undo]);
		t->n_undo += s != 0;
	}
	if (s && !unique_goes_on(&t->unique, &t->m, s))
		s = 0;
	while (!s && t->n_undo > first)
		unique_undo(&t->unique, &t->undo[--t->n_undo]);
	t->state = s ? s : t->state;
	t->has_begun |= s != 0;
	return s != 0;
}

static uint32_t state_after(GrammarText *t, const uint8_t *bytes, size_t n)
{
	uint32_t s = t->state;
	for (size_t i = 0; i < n && s; i++)
		s = match_step(&t->m, s, bytes[i]);
	return s;
}

bool grammar_text_takes(GrammarText *t, const void *bytes, size_t n) { return state_after(t, bytes, n) != 0; }

bool grammar_text_push_bytes(GrammarText *t, const void *bytes, size_t n)
{
	if (t->g->has_fresh)
		return push_unique(t, bytes, n);
	const uint32_t s = state_after(t, bytes, n);
	if (s == 0)
		return false;
	t->state = s;
	t->has_begun = true;
	return true;
}

bool grammar_text_push(GrammarText *t, int32_t token)
{
	const char *bytes;
	size_t n;
	bool special;
	return token >= 0 && token < t->v->n_ids && tok_token_bytes(t->v->tok, token, &bytes, &n, &special) && !special &&
		grammar_text_push_bytes(t, bytes, n);
}

void grammar_text_try(GrammarText *t)
{
	t->tried = (struct Tried){true, t->has_begun, t->state, t->m.effort};
	t->n_undo = 0;
}

void grammar_text_back(GrammarText *t)
{
	while (t->g->has_fresh && t->n_undo > 0)
		unique_undo(&t->unique, &t->undo[--t->n_undo]);
	t->state = t->tried.state;
	t->has_begun = t->tried.has_begun;
	t->m.effort = t->tried.effort; /* what could not be tried says nothing of what comes */
	t->tried.is_on = false;
}

bool grammar_text_is_whole(const GrammarText *t) { return t->m.states[t->state].is_whole; }
bool grammar_text_is_over(const GrammarText *t) { return grammar_text_is_whole(t) && t->m.states[t->state].n == 0; }
