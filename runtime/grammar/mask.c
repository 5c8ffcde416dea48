/* mask.c - which tokens may follow.
 *
 * Most of a mask depends on the lexeme alone that the text is in: inside a string nearly every token goes on, whatever
 * comes after the string. That part is made once for each state of a lexeme and kept. What is left are tokens
 * that end the lexeme and go on after it: they are walked with what follows, from the places of the tree where the
 * lexeme ends. Items that are plain texts allow few bytes, so for them the tree itself is walked.
 */
#include "runtime/grammar/unique.h"
#include "runtime/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 16 /* whole masks */ };

struct GrammarText {
	const Grammar *g;
	const GrammarVocab *v;
	int32_t *ends; int n_ends;
	Match m;
	Unique unique;           /* where the grammar has items that must differ */
	uint32_t state;
	bool has_begun;
	AtomMask scratch;        /* when no more are kept */
	struct Near { uint32_t lexeme, state; const AtomMask *mask; } last; /* kept one of a lexeme; mask NULL: none */
	uint32_t *way, *until;   /* [depth of the tree + 2] of a walk */
	struct Level *levels;    /* [depth of the tree + 2] of a walk with a lexeme alone */
	struct { uint32_t state, *words; } kept[KEPT]; /* state 0 = none */
};

/* Masks of lexemes ------------------------------------------------------------ */

/* What a walk of the tree has at each depth. */
typedef struct Level { uint32_t end, state, other; } Level;

typedef struct Exits { AtomMask *m; uint32_t cap; Effort effort; } Exits;

static bool add_exit(Exits *x, const GrammarVocab *v, uint32_t place)
{
	if (vocab_end(v, place) == place + 1)
		return true; /* no bytes follow */
	if (!GROW(&x->effort, x->m->exits, x->cap, x->m->n_exits + 1))
		return false;
	x->m->exits[x->m->n_exits++] = place;
	return true;
}

/* A string between two characters, from lo to hi of which are to come. */
static bool fill_string(AtomMask *m, const GrammarVocab *v, uint32_t lo, uint32_t hi)
{
	Exits x = {.m = m};
	const bool is_short = hi < SHORT;
	memcpy(m->words, is_short ? v->in_short + (size_t)hi * (size_t)v->n_words : v->in_string,
		sizeof *m->words * (size_t)v->n_words);
	for (uint32_t i = 0; i < v->n_inside && v->inside[i].chars > hi && !is_short; i++)
		vocab_clear(v, m->words, v->inside[i].at);
	for (uint32_t i = 0; i < v->n_closing; i++) {
		const Place p = v->closing[i];
		if (p.chars < lo || p.chars > hi)
			vocab_clear(v, m->words, p.at);
		else if (!add_exit(&x, v, p.at))
			return false;
	}
	return true;
}

/* A string within a character. */
static bool fill_character(AtomMask *m, const GrammarVocab *v, uint32_t state, uint32_t lo, uint32_t hi, Level *levels)
{
	Exits x = {.m = m};
	uint32_t depth = 0, chars = 0; /* begun at the place before */
	levels[0] = (Level){v->n, state, 0};
	for (uint32_t i = 0; i < v->n;) {
		while (depth > 0 && i >= levels[depth].end)
			depth--;
		const Level from = levels[depth];
		const uint32_t to = lexeme_step(&v->string, from.state, vocab_byte(v, i));
		const bool begins = from.state == STRING_START && vocab_byte(v, i) != '"';
		chars = from.other + begins;
		if (to == 0 || chars > hi || (v->string.ends[to] && chars < lo)) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, m->words, i);
		if (v->string.ends[to]) {
			if (!add_exit(&x, v, i))
				return false;
			i = vocab_end(v, i);
			continue;
		}
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = (Level){vocab_end(v, i), to, chars};
		i++;
	}
	return true;
}

static bool fill_lexeme(AtomMask *m, const GrammarVocab *v, const Lexeme *l, uint32_t state, Level *levels)
{
	Exits x = {.m = m};
	uint32_t depth = 0;
	levels[0] = (Level){v->n, state, 0};
	for (uint32_t i = 0; i < v->n;) {
		while (i >= levels[depth].end)
			depth--;
		const uint32_t to = lexeme_step(l, levels[depth].state, vocab_byte(v, i));
		if (to == 0) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, m->words, i);
		if (l->accepts[to] && !add_exit(&x, v, i))
			return false;
		if (l->ends[to]) {
			i = vocab_end(v, i);
			continue;
		}
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = (Level){vocab_end(v, i), to, 0};
		i++;
	}
	return true;
}

/* A lexeme with lo to hi characters to come. */
static bool fill_counted(AtomMask *m, const GrammarVocab *v, const Lexeme *l, const Item *item, Level *levels)
{
	Exits x = {.m = m};
	uint32_t depth = 0;
	levels[0] = (Level){v->n, item->b, 0};
	for (uint32_t i = 0; i < v->n;) {
		while (i >= levels[depth].end)
			depth--;
		const Level from = levels[depth];
		const uint32_t to = lexeme_step(l, from.state, vocab_byte(v, i));
		const uint32_t chars = from.other + (!l->is_inside[from.state] && vocab_byte(v, i) != '"');
		const uint32_t lo = item->c > chars ? item->c - chars : 0, hi = item->d == ENDLESS ? ENDLESS : item->d - chars;
		if (to == 0 || chars > item->d || !lexeme_can_have(l, to, lo, hi)) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, m->words, i);
		if (l->accepts[to] && lo == 0 && !add_exit(&x, v, i))
			return false;
		if (l->ends[to]) {
			i = vocab_end(v, i);
			continue;
		}
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = (Level){vocab_end(v, i), to, chars};
		i++;
	}
	return true;
}

/* Ends of strings at places [from, until). */
static bool add_closing(Exits *x, const GrammarVocab *v, uint32_t from, uint32_t until)
{
	uint32_t low = 0, high = v->n_closing;
	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;
		if (v->closing[mid].at < from)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < v->n_closing && v->closing[low].at < until; low++)
		if (!add_exit(x, v, v->closing[low].at))
			return false;
	return true;
}

/* The lexeme is nearly a string: what a string takes, corrected where the two differ. */
static bool fill_like(AtomMask *m, const GrammarVocab *v, const Lexeme *l, uint32_t state, Level *levels)
{
	Exits x = {.m = m};
	uint32_t depth = 0;
	memcpy(m->words, v->in_string, sizeof *m->words * (size_t)v->n_words);
	levels[0] = (Level){v->n, state, STRING_START};
	for (uint32_t i = 0; i < v->n;) {
		while (i >= levels[depth].end)
			depth--;
		const uint32_t to = lexeme_step(l, levels[depth].state, vocab_byte(v, i));
		const uint32_t other = lexeme_step(&v->string, levels[depth].other, vocab_byte(v, i));
		if (to && l->like[to] == other) {
			if (!add_closing(&x, v, i, vocab_end(v, i)))
				return false;
			i = vocab_end(v, i);
			continue;
		}
		if (to == 0) {
			for (uint32_t k = i; other && k < vocab_end(v, i); k++)
				vocab_clear(v, m->words, k);
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, m->words, i);
		if (l->accepts[to] && !add_exit(&x, v, i))
			return false;
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = (Level){vocab_end(v, i), to, other};
		i++;
	}
	return true;
}

/* What a state of the same lexeme takes, corrected where other texts follow: counts differ only near their ends. */
static bool fill_near(AtomMask *m, const GrammarVocab *v, uint32_t state, const struct Near *from, const Lexeme *l,
	Level *levels)
{
	Exits x = {.m = m};
	uint32_t depth = 0, exit = 0;
	memcpy(m->words, from->mask->words, sizeof *m->words * (size_t)v->n_words);
	levels[0] = (Level){v->n, state, from->state};
	for (uint32_t i = 0; i < v->n;) {
		while (i >= levels[depth].end)
			depth--;
		const uint32_t to = lexeme_step(l, levels[depth].state, vocab_byte(v, i));
		const uint32_t other = lexeme_step(l, levels[depth].other, vocab_byte(v, i));
		const bool is_near = lexeme_is_near(l, to, other, v->height[i]);
		for (; exit < from->mask->n_exits && from->mask->exits[exit] < (is_near ? vocab_end(v, i) : i); exit++)
			if (is_near && from->mask->exits[exit] >= i && !add_exit(&x, v, from->mask->exits[exit]))
				return false;
		if (!is_near && to)
			vocab_set(v, m->words, i);
		if (!is_near && l->accepts[to] && !add_exit(&x, v, i))
			return false;
		if (is_near || to == 0 || l->ends[to]) {
			for (uint32_t k = to ? i + 1 : i; !is_near && other && k < vocab_end(v, i); k++)
				vocab_clear(v, m->words, k);
			i = vocab_end(v, i);
			continue;
		}
		if (vocab_end(v, i) > i + 1)
			levels[++depth] = (Level){vocab_end(v, i), to, other};
		i++;
	}
	return true;
}

/* Do most bytes lead from the state where they lead in a string? */
static bool is_like_string(const GrammarVocab *v, const Lexeme *l, uint32_t state)
{
	int n = 0;
	for (int b = 0; b < 256 && l->like; b++) {
		const uint32_t to = lexeme_step(l, state, (uint8_t)b);
		n += to && l->like[to] == lexeme_step(&v->string, STRING_START, (uint8_t)b);
	}
	return n > 96;
}

static bool fill_atom(GrammarText *t, AtomMask *m, const Item *item)
{
	const GrammarVocab *v = t->v;
	if (item->kind == NODE_STRING && item->b == STRING_START)
		return fill_string(m, v, item->c, item->d);
	const Lexeme *l = item->kind == NODE_STRING ? NULL : &t->g->lexemes[item->a];
	if (l && item->kind == NODE_COUNTED && (item->c > 0 || item->d != ENDLESS)) {
		memset(m->words, 0, sizeof *m->words * (size_t)v->n_words);
		return fill_counted(m, v, l, item, t->levels);
	}
	if (l && is_like_string(v, l, item->b))
		return fill_like(m, v, l, item->b, t->levels);
	if (l && t->last.mask && t->last.lexeme == item->a && lexeme_is_near(l, item->b, t->last.state, 2))
		return fill_near(m, v, item->b, &t->last, l, t->levels);
	memset(m->words, 0, sizeof *m->words * (size_t)v->n_words);
	return l ? fill_lexeme(m, v, l, item->b, t->levels) : fill_character(m, v, item->b, item->c, item->d, t->levels);
}

static AtomMask *find_atom(const AtomTable *t, const uint32_t key[5], uint32_t slot)
{
	AtomMask *m = t->slots[slot];
	while (m && memcmp(m->key, key, sizeof m->key) != 0)
		m = m->next;
	return m;
}

/* The mask of an item's lexeme; NULL: no memory. */
static const AtomMask *atom_mask(GrammarText *t, const Item *of)
{
	const GrammarVocab *v = t->v;
	const bool is_string = of->kind == NODE_STRING;
	Item item[1] = {*of};
	if (item->kind != NODE_LEXEME) { /* counts beyond what a token can have make no difference */
		const uint32_t most = v->depth + 1 + (is_string ? 0 : t->g->lexemes[of->a].span);
		item->c = of->c < most ? of->c : most;
		item->d = of->d < most ? of->d : ENDLESS;
	}
	const uint32_t key[5] = {item->kind, item->a, item->b, item->c, item->d};
	AtomTable *table = is_string ? (AtomTable *)&v->atoms : (AtomTable *)&t->g->atoms;
	const uint32_t slot = tok_hash_string(key, sizeof key) & (ATOM_SLOTS - 1);
	pthread_mutex_lock(&table->lock);
	AtomMask *m = find_atom(table, key, slot);
	const bool is_full = table->n >= MOST_ATOMS;
	pthread_mutex_unlock(&table->lock);
	if (m)
		return m;
	if (is_full) {
		m = &t->scratch;
		free(m->exits);
		m->exits = NULL;
	} else
		m = calloc(1, sizeof *m);
	if (m && !m->words)
		m->words = malloc(sizeof *m->words * (size_t)v->n_words);
	if (m)
		m->n_exits = 0;
	const bool ok = m && m->words && fill_atom(t, m, item);
	if (is_full)
		return ok ? m : NULL;
	if (!ok) {
		if (m) {
			free(m->words);
			free(m->exits);
		}
		free(m);
		return NULL;
	}
	memcpy(m->key, key, sizeof m->key);
	pthread_mutex_lock(&table->lock);
	AtomMask *other = find_atom(table, key, slot); /* another thread may have been faster */
	if (!other) {
		m->next = table->slots[slot];
		table->slots[slot] = m;
		table->n++;
	}
	pthread_mutex_unlock(&table->lock);
	if (other) {
		free(m->words);
		free(m->exits);
		free(m);
	}
	return other ? other : m;
}

/* Masks of states ------------------------------------------------------------ */

/* Places [i, end) of the tree, of which those on the uppermost level are reached from `state`. */
static void walk(GrammarText *t, uint32_t state, uint32_t i, uint32_t end, uint32_t *words)
{
	const GrammarVocab *v = t->v;
	uint32_t depth = 0;
	t->way[0] = state;
	t->until[0] = end;
	while (i < end) {
		while (depth > 0 && i >= t->until[depth])
			depth--;
		const uint32_t to = match_step(&t->m, t->way[depth], vocab_byte(v, i));
		if (to == 0) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, words, i);
		if (vocab_end(v, i) > i + 1) {
			t->way[++depth] = to;
			t->until[depth] = vocab_end(v, i);
		}
		i++;
	}
}

/* The whole tree: only bytes that the state takes. */
static void walk_all(GrammarText *t, uint32_t state, uint32_t *words)
{
	uint64_t bytes[4];
	memcpy(bytes, t->m.states[state].bytes, sizeof bytes);
	for (int w = 0; w < 4; w++)
		for (uint64_t left = bytes[w]; left; left &= left - 1) {
			const uint32_t place = t->v->first[w * 64 + __builtin_ctzll(left)];
			if (place < t->v->n)
				walk(t, state, place, vocab_end(t->v, place), words);
		}
}

static bool is_same_atom(const Item *a, const Item *b)
{
	return a->kind == b->kind && a->a == b->a && a->b == b->b && a->c == b->c && a->d == b->d;
}

/* Items [n] of one state of a lexeme, with different stacks. */
static bool add_atom(GrammarText *t, const Item *items, uint32_t n, uint32_t *words)
{
	const AtomMask *m = atom_mask(t, items);
	if (!m)
		return effort_refuse(&t->m.effort, "there is no memory", -1);
	if (items->kind == NODE_LEXEME && m != &t->scratch)
		t->last = (struct Near){items->a, items->b, m};
	for (int i = 0; i < t->v->n_words; i++)
		words[i] |= m->words[i];
	if (m->n_exits == 0)
		return true;
	const uint32_t after = match_after(&t->m, items, n);
	for (uint32_t i = 0; after && i < m->n_exits; i++)
		walk(t, after, m->exits[i] + 1, vocab_end(t->v, m->exits[i]), words);
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

bool grammar_text_mask(GrammarText *t, uint32_t *words)
{
	const int slot = (int)(t->state % KEPT);
	const size_t bytes = sizeof *words * (size_t)t->v->n_words;
	bool forgot;
	if (t->g->has_fresh)
		return match_forget(&t->m, &t->state, &forgot) && make_mask(t, words) &&
			clear_repeated(t, t->state, 0, t->v->n, false, words) && hide_first(t, words);
	if (t->state && t->kept[slot].state == t->state) {
		memcpy(words, t->kept[slot].words, bytes);
		return true;
	}
	if (!match_forget(&t->m, &t->state, &forgot) || !make_mask(t, words))
		return false;
	for (int i = 0; forgot && i < KEPT; i++)
		t->kept[i].state = 0;
	if (!t->has_begun) /* asked for once */
		return hide_first(t, words);
	const int to = (int)(t->state % KEPT);
	if (!t->kept[to].words)
		t->kept[to].words = malloc(bytes);
	if (t->kept[to].words) {
		memcpy(t->kept[to].words, words, bytes);
		t->kept[to].state = t->state;
	}
	return true;
}

/* Texts ------------------------------------------------------------ */

GrammarText *grammar_text_open(const Grammar *g, const GrammarVocab *v, const int32_t *ends, int n_ends)
{
	GrammarText *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->g = g;
	t->v = v;
	t->ends = malloc(sizeof *ends * ((size_t)n_ends + 1));
	t->way = malloc(sizeof *t->way * (v->depth + 2));
	t->until = malloc(sizeof *t->until * (v->depth + 2));
	t->levels = malloc(sizeof *t->levels * (v->depth + 2));
	if (t->ends && t->way && t->until && t->levels && match_open(&t->m, g, g->root, &t->state)) {
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
	match_close(&t->m);
	unique_close(&t->unique);
	for (int i = 0; i < KEPT; i++)
		free(t->kept[i].words);
	free(t->scratch.words);
	free(t->scratch.exits);
	free(t->ends);
	free(t->way);
	free(t->until);
	free(t->levels);
	free(t);
}

/* All bytes or none. */
static bool push_unique(GrammarText *t, const uint8_t *bytes, size_t n)
{
	Undo *undo = malloc(sizeof *undo * (n + 1));
	uint32_t s = undo ? t->state : 0;
	size_t k = 0;
	for (; k < n && s; k += s != 0)
		if (!(s = unique_step(&t->unique, &t->m, s, bytes[k], &undo[k])))
			break;
	if (s && !unique_goes_on(&t->unique, &t->m, s))
		s = 0;
	while (!s && k > 0)
		unique_undo(&t->unique, &undo[--k]);
	free(undo);
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

bool grammar_text_is_whole(const GrammarText *t) { return t->m.states[t->state].is_whole; }
bool grammar_text_is_over(const GrammarText *t) { return grammar_text_is_whole(t) && t->m.states[t->state].n == 0; }
