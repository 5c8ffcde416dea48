/* atom.c - which tokens the state of a lexeme takes: inside a string nearly every token goes on, whatever follows the
 * string. Such a mask is made once and kept.
 *
 * To make one, the tree of the vocabulary is walked, but not where the answer is known. Bytes that only lead on, as
 * letters in a name, are looked for first: tokens of them alone are one set, which is kept for all grammars. The others
 * are found by the first byte that is none of these. Masks of strings are beginnings in the same way: only what differs
 * is walked. Where few bytes may come, all of what they begin is.
 */
#include "runtime/grammar/counted.h"
#include "runtime/grammar/marked.h"

#include <stdlib.h>
#include <string.h>

enum {
	PREPARED = 32,        /* masks of a grammar's lexemes that are made before its first text */
	FEW_BYTES = 16,       /* of 256 that may come next */
	FEW_PLACES = 6000,    /* of the tree */
	LARGE = 1000,         /* tokens of a mask that takes long to make */
	MOST_PLAIN_STEPS = 3, /* within which the bytes that only lead on are chosen */
};

typedef struct Exits {
	AtomMask *m;
	uint32_t cap;
	Effort effort;
	int left; /* places that may still be met; 0: any number, or there were more */
} Exits;

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
	levels[0] = (Level){.end = v->n, .state = state};
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
			levels[++depth] = (Level){.end = vocab_end(v, i), .state = to, .other = chars};
		i++;
	}
	return true;
}

/* The state after a byte, with lo to hi characters to come of a lexeme that counts; 0: it cannot come. */
static uint32_t advance(const Lexeme *l, const Item *item, uint32_t state, uint32_t *chars, uint8_t byte)
{
	const uint32_t to = lexeme_step(l, state, byte);
	if (to == 0 || item->kind != NODE_COUNTED)
		return to;
	*chars += !l->is_inside[state] && byte != '"';
	if (*chars > item->d)
		return 0;
	return lexeme_can_have(l, to, item->c > *chars ? item->c - *chars : 0,
		item->d == ENDLESS ? ENDLESS : item->d - *chars) ? to : 0;
}

static bool may_end(const Lexeme *l, const Item *item, uint32_t state, uint32_t chars)
{
	return l->accepts[state] && (item->kind != NODE_COUNTED || chars >= item->c);
}

/* Groups of bytes of which all texts of at most `reach` bytes go on, no longer ones do, and none ends the lexeme. After
 * each of these texts a byte of the `other` groups may come, and no more. */
typedef struct Plain { uint32_t groups, other, reach; } Plain;

/* Of each group one byte of each class that the lexeme makes of its bytes: the others lead where these do. */
typedef struct Kinds { uint8_t n[GROUPS], bytes[GROUPS][256 / 4]; } Kinds;

static void find_kinds(const GrammarVocab *v, const Lexeme *l, Kinds *k)
{
	uint32_t seen[256] = {0}; /* groups of a class */
	memset(k->n, 0, sizeof k->n);
	for (int b = 0; b < 256; b++) {
		const uint32_t group = v->group[b], bit = (uint32_t)1 << group;
		if (!(seen[l->class_of[b]] & bit))
			k->bytes[group][k->n[group]++] = (uint8_t)b;
		seen[l->class_of[b]] |= bit;
	}
}

/* Where all bytes of a group lead, UINT32_MAX: not to one place. */
static uint32_t after_group(const Kinds *k, const Lexeme *l, const Item *item, int group, uint32_t state,
	uint32_t chars, uint32_t *then)
{
	uint32_t to = UINT32_MAX;
	for (int i = 0; i < k->n[group]; i++) {
		uint32_t n = chars;
		const uint32_t at = advance(l, item, state, &n, k->bytes[group][i]);
		if (to != UINT32_MAX && (at != to || n != *then))
			return UINT32_MAX;
		to = at;
		*then = n;
	}
	return to;
}

/* Of `groups` those that lead where most tokens do; *to: the place, 0: nowhere. */
static uint32_t groups_together(const GrammarVocab *v, const Kinds *k, const Lexeme *l, const Item *item,
	uint32_t groups, uint32_t *to, uint32_t *chars)
{
	struct { uint32_t groups, to, chars; int64_t weight; } found[GROUPS];
	int n = 0, best = -1;
	for (uint32_t left = groups; left; left &= left - 1) {
		uint32_t then = *chars;
		const int group = __builtin_ctz(left);
		const uint32_t at = after_group(k, l, item, group, *to, *chars, &then);
		int i = 0;
		if (at == 0 || at == UINT32_MAX)
			continue;
		while (i < n && !(found[i].to == at && found[i].chars == then))
			i++;
		if (i == n) {
			found[n].to = at;
			found[n].chars = then;
			found[n].groups = 0;
			found[n++].weight = 0;
		}
		found[i].groups |= (uint32_t)1 << group;
		found[i].weight += v->n_with[group];
		best = best < 0 || found[i].weight > found[best].weight ? i : best;
	}
	*to = best < 0 ? 0 : found[best].to;
	*chars = best < 0 ? *chars : found[best].chars;
	return best < 0 ? 0 : found[best].groups;
}

/* Does no byte of the groups go on? */
static bool is_dead_end(const Kinds *k, const Lexeme *l, const Item *item, uint32_t groups, uint32_t state,
	uint32_t chars)
{
	for (uint32_t left = groups; left; left &= left - 1) {
		uint32_t then;
		if (after_group(k, l, item, __builtin_ctz(left), state, chars, &then) != 0)
			return false;
	}
	return true;
}

/* after [depth + 1]: state and characters when that many bytes of p->groups were read. False: no groups are plain. */
static bool find_plain(const GrammarVocab *v, const Lexeme *l, const Item *item, Level *after, Plain *p)
{
	uint64_t bytes[4] = {0}; /* that may come anywhere */
	bool is_same = false;
	Kinds k;
	find_kinds(v, l, &k);
	*p = (Plain){.groups = (uint32_t)(((uint64_t)1 << GROUPS) - 1)};
	after[0] = (Level){.state = item->b};
	while (p->reach < v->depth) {
		uint32_t to = after[p->reach].state, chars = after[p->reach].other;
		const bool is_loop = is_same && to == after[p->reach - 1].state && chars == after[p->reach - 1].other;
		const uint32_t groups = is_loop ? p->groups : groups_together(v, &k, l, item, p->groups, &to, &chars);
		is_same = groups == p->groups;
		for (int i = 0; i < 4; i++)
			bytes[i] |= l->bytes[after[p->reach].state][i];
		if (!groups || may_end(l, item, to, chars) || (!is_same && p->reach >= MOST_PLAIN_STEPS))
			break;
		p->groups = groups;
		after[++p->reach] = (Level){.state = to, .other = chars};
	}
	for (int b = 0; b < 256; b++)
		p->other |= (uint32_t)(bytes[b / 64] >> b % 64 & 1) << v->group[b];
	p->other &= ~p->groups;
	const Level last = after[p->reach];
	return p->reach == v->depth || (p->reach && is_dead_end(&k, l, item, p->groups, last.state, last.other));
}

/* Tokens of these groups alone, of any length; NULL: they are few, or there is no memory. */
static const uint32_t *plain_set(GrammarVocab *v, uint32_t groups)
{
	const uint32_t few = (uint32_t)v->n_ids / 512;
	PlainSet *s = NULL;
	pthread_mutex_lock(&v->atoms.lock);
	for (int i = 0; i < v->n_plain && !s; i++)
		s = v->plain[i].groups == groups ? &v->plain[i] : NULL;
	if (!s && v->n_plain < PLAIN_SETS) {
		uint32_t *words = malloc(sizeof *words * (size_t)v->n_words), n = 0;
		for (int i = 0; i < v->n_words && words; i++)
			words[i] = v->all[i];
		for (int g = 0; g < GROUPS && words; g++)
			for (int i = 0; i < v->n_words && !(groups >> g & 1); i++)
				words[i] &= ~v->with[(size_t)g * (size_t)v->n_words + (size_t)i];
		for (int i = 0; i < v->n_words && words; i++)
			n += (uint32_t)__builtin_popcount(words[i]);
		s = words ? &v->plain[v->n_plain++] : NULL;
		if (s)
			*s = (PlainSet){groups, n < few ? NULL : words};
		if (n < few)
			free(words);
	}
	pthread_mutex_unlock(&v->atoms.lock);
	return s ? s->words : NULL;
}

/* Places [i, until) of the tree, of which those on the uppermost level are reached from `from`. Ends before where
 * x->left becomes 0. */
static bool walk_lexeme(Exits *x, const GrammarVocab *v, const Lexeme *l, const Item *item, uint32_t i, Level from,
	Level *levels)
{
	uint32_t depth = 0;
	levels[0] = from;
	while (i < from.end) {
		if (x->left && --x->left == 0)
			return true;
		while (i >= levels[depth].end)
			depth--;
		uint32_t chars = levels[depth].other;
		const uint32_t to = advance(l, item, levels[depth].state, &chars, vocab_byte(v, i));
		if (to == 0) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, x->m->words, i);
		if (may_end(l, item, to, chars) && !add_exit(x, v, i))
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

/* A token's first byte that is not of the plain groups, and what follows it. */
static bool walk_mark(Exits *x, const GrammarVocab *v, const Lexeme *l, const Item *item, Level from, uint32_t place,
	Level *levels)
{
	uint32_t chars = from.other;
	const uint32_t to = advance(l, item, from.state, &chars, vocab_byte(v, place)), end = vocab_end(v, place);
	if (to == 0)
		return true;
	vocab_set(v, x->m->words, place);
	if (may_end(l, item, to, chars) && !add_exit(x, v, place))
		return false;
	return l->ends[to] || end == place + 1 ||
		walk_lexeme(x, v, l, item, place + 1, (Level){end, to, chars}, levels);
}

/* In the order of the tree. */
static bool walk_marks(Exits *x, const Atoms *a, const Lexeme *l, const Item *item, const Plain *p)
{
	const GrammarVocab *v = a->v;
	const Mark *at[GROUPS], *until[GROUPS];
	int n = 0;
	for (int g = 0; g < GROUPS; g++)
		if (p->other >> g & 1) {
			at[n] = v->marks + v->first_mark[g];
			until[n++] = v->marks + v->first_mark[g + 1];
		}
	for (;;) {
		int next = -1;
		for (int i = 0; i < n; i++) {
			while (at[i] < until[i] && (at[i]->above & ~p->groups || at[i]->depth > p->reach))
				at[i]++;
			if (at[i] < until[i] && (next < 0 || at[i]->at < at[next]->at))
				next = i;
		}
		if (next < 0)
			return true;
		if (!walk_mark(x, v, l, item, a->after[at[next]->depth], at[next]->at, a->levels))
			return false;
		at[next]++;
	}
}

/* The same of a lexeme that does not count, where it does not matter how many plain bytes came before. *done: it does
 * not. */
static bool add_marked(const Atoms *a, AtomMask *m, const Lexeme *l, const Item *item, const Plain *p, bool *done)
{
	const GrammarVocab *v = a->v;
	AtomTable *t = (AtomTable *)&a->g->atoms;
	MarkedKey first = {item->a, p->groups, p->other, 1, {0}}, later = {item->a, p->groups, p->other, 0, {0}};
	*done = false;
	for (int b = 0; b < 256; b++) {
		const bool is_other = p->other >> v->group[b] & 1;
		first.to[b] = (uint16_t)(is_other ? lexeme_step(l, item->b, (uint8_t)b) : 0);
		later.to[b] = (uint16_t)(is_other ? lexeme_step(l, a->after[1].state, (uint8_t)b) : 0);
		for (uint32_t i = 2; i <= p->reach && is_other; i++)
			if (lexeme_step(l, a->after[i].state, (uint8_t)b) != later.to[b])
				return true;
	}
	const Marked *one = marked_tokens(t, v, l, &first, a->levels), *two = marked_tokens(t, v, l, &later, a->levels);
	*done = one && two && marked_can_reach(two, v, p->reach);
	return !*done || marked_add(m, v, one, two, p->reach);
}

/* By the set of tokens of plain bytes. *done: there is one. */
static bool fill_plain(const Atoms *a, AtomMask *m, const Lexeme *l, const Item *item, bool *done)
{
	const GrammarVocab *v = a->v;
	Exits x = {.m = m};
	Plain p;
	uint32_t n_marks = 0;
	const bool is_plain = find_plain(v, l, item, a->after, &p);
	for (int g = 0; g < GROUPS; g++)
		n_marks += p.other >> g & 1 ? v->first_mark[g + 1] - v->first_mark[g] : 0;
	const uint32_t *set = is_plain && n_marks < v->n / 4 ? plain_set((GrammarVocab *)v, p.groups) : NULL;
	*done = set != NULL;
	if (!set)
		return true;
	for (int i = 0; i < v->n_words; i++)
		m->words[i] = set[i] & (p.reach < SHORT ? v->upto[(size_t)p.reach * (size_t)v->n_words + (size_t)i] : ~0u);
	for (uint32_t i = 0; p.reach >= SHORT && i < v->n_longer && v->longer[i].chars > p.reach; i++)
		vocab_clear(v, m->words, v->longer[i].at);
	bool is_marked = false;
	if (item->kind == NODE_LEXEME && !add_marked(a, m, l, item, &p, &is_marked))
		return false;
	return is_marked || walk_marks(&x, a, l, item, &p);
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
	levels[0] = (Level){.end = v->n, .state = state, .other = STRING_START};
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
			levels[++depth] = (Level){.end = vocab_end(v, i), .state = to, .other = other};
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

/* Few bytes may come next, as digits: a walk mostly takes less time than to put a mask together. */
static bool has_few_bytes(const Lexeme *l, uint32_t state)
{
	int n = 0;
	for (int i = 0; i < 4; i++)
		n += __builtin_popcountll(l->bytes[state][i]);
	return n <= FEW_BYTES;
}

/* All of the tree. */
static bool walk_few(Exits *x, const GrammarVocab *v, const Lexeme *l, const Item *item, Level *levels)
{
	for (int i = 0; i < 4; i++)
		for (uint64_t left = l->bytes[item->b][i]; left; left &= left - 1) {
			const uint32_t at = v->first[i * 64 + __builtin_ctzll(left)];
			if (at < v->n && !walk_lexeme(x, v, l, item, at, (Level){vocab_end(v, at), item->b, 0}, levels))
				return false;
			if (x->left == 0)
				return true;
		}
	return true;
}

static bool fill_atom(const Atoms *a, AtomMask *m, const Item *item)
{
	const GrammarVocab *v = a->v;
	const size_t bytes = sizeof *m->words * (size_t)v->n_words;
	bool done;
	if (item->kind == NODE_STRING && item->b == STRING_START)
		return fill_string(m, v, item->c, item->d);
	if (item->kind == NODE_STRING && item->c == 0 && item->d == ENDLESS && m != &a->scratch &&
		counted_walk(m, v, &v->string, item->b, a->levels))
		return true;
	if (item->kind == NODE_STRING) {
		memset(m->words, 0, bytes);
		return fill_character(m, v, item->b, item->c, item->d, a->levels);
	}
	const Lexeme *l = &a->g->lexemes[item->a];
	const bool counts = item->kind == NODE_COUNTED && (item->c > 0 || item->d != ENDLESS);
	if (item->kind == NODE_COUNTED && !counts && !l->has_gaps && m != &a->scratch &&
		counted_walk(m, v, l, item->b, a->levels))
		return true;
	Exits x = {.m = m};
	if (!counts && is_like_string(v, l, item->b))
		return fill_like(m, v, l, item->b, a->levels);
	if (has_few_bytes(l, item->b)) {
		x.left = FEW_PLACES;
		memset(m->words, 0, bytes);
		if (!walk_few(&x, v, l, item, a->levels))
			return false;
		if (x.left > 0)
			return true;
		m->n_exits = 0;
		free(m->exits);
		m->exits = NULL;
	}
	if (!fill_plain(a, m, l, item, &done))
		return false;
	if (done)
		return true;
	x = (Exits){.m = m};
	memset(m->words, 0, bytes);
	return walk_lexeme(&x, v, l, item, 0, (Level){v->n, item->b, 0}, a->levels);
}

static void free_mask(AtomMask *m)
{
	if (m) {
		free(m->words);
		free(m->exits);
		counted_free(m->counts);
	}
	free(m);
}

static AtomMask *find_atom(const AtomTable *t, const uint32_t key[5], uint32_t slot)
{
	AtomMask *m = t->slots[slot];
	while (m && memcmp(m->key, key, sizeof m->key) != 0)
		m = m->next;
	return m;
}

/* Of a lexeme that counts, from the mask of the same state without bounds. NULL: there is none that can be had so. */
static const AtomMask *derive(Atoms *a, const Item *of)
{
	const Lexeme *l = of->kind == NODE_STRING ? &a->v->string : &a->g->lexemes[of->a];
	if (l->has_gaps || (of->c == 0 && of->d == ENDLESS))
		return NULL;
	const AtomMask *base = atom_mask(a, &(Item){.kind = of->kind, .a = of->a, .b = of->b, .d = ENDLESS});
	AtomMask *m = &a->scratch;
	Item item = *of;
	if (!base || !base->counts)
		return NULL;
	counted_clip(base, l, &item);
	if (item.c == 0 && item.d == ENDLESS)
		return base;
	free(m->exits);
	m->exits = NULL;
	m->n_exits = 0;
	return counted_mask(m, base, a->v, l, &item) ? m : NULL;
}

static bool has_tokens(const AtomMask *m, const GrammarVocab *v, int least)
{
	int n = 0;
	for (int i = 0; i < v->n_words && n < least; i++)
		n += __builtin_popcount(m->words[i]);
	return n >= least;
}

/* NULL too where it is made now and has fewer tokens than `least`. */
static const AtomMask *make_atom(Atoms *a, const Item *of, int least)
{
	const GrammarVocab *v = a->v;
	const bool is_string = of->kind == NODE_STRING;
	const bool counts = of->kind == NODE_COUNTED || (is_string && of->b != STRING_START);
	const AtomMask *derived = counts ? derive(a, of) : NULL;
	if (derived)
		return derived;
	Item item[1] = {*of};
	if (item->kind != NODE_LEXEME) { /* counts beyond what a token can have make no difference */
		const uint32_t most = v->depth + 1 + (is_string ? 0 : a->g->lexemes[of->a].span);
		item->c = of->c < most ? of->c : most;
		item->d = of->d < most ? of->d : ENDLESS;
	}
	const uint32_t key[5] = {item->kind, item->a, item->b, item->c, item->d};
	AtomTable *table = is_string ? (AtomTable *)&v->atoms : (AtomTable *)&a->g->atoms;
	const uint32_t slot = tok_hash_string(key, sizeof key) & (ATOM_SLOTS - 1);
	pthread_mutex_lock(&table->lock);
	AtomMask *m = find_atom(table, key, slot);
	const bool is_full = table->n >= MOST_ATOMS;
	uint32_t *spare = !m && !is_full && table->n_spare > 0 ? table->spare[--table->n_spare] : NULL;
	pthread_mutex_unlock(&table->lock);
	if (m)
		return m;
	if (is_full) {
		m = &a->scratch;
		free(m->exits);
		m->exits = NULL;
	} else if ((m = calloc(1, sizeof *m)))
		m->words = spare ? spare : malloc(sizeof *m->words * (size_t)v->n_words);
	else
		free(spare);
	if (m)
		m->n_exits = 0;
	const bool ok = m && m->words && fill_atom(a, m, item) && has_tokens(m, v, least);
	if (is_full)
		return ok ? m : NULL;
	if (!ok) {
		free_mask(m);
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
	if (other)
		free_mask(m);
	return other ? other : m;
}

const AtomMask *atom_mask(Atoms *a, const Item *of) { return make_atom(a, of, 0); }

bool atoms_open(Atoms *a, const GrammarVocab *v)
{
	const size_t n = (size_t)v->n_words + 1;
	*a = (Atoms){.v = v, .levels = malloc(sizeof *a->levels * (v->depth + 2)),
		.after = malloc(sizeof *a->after * (v->depth + 2)), .scratch.words = malloc(sizeof *a->scratch.words * n)};
	if (a->scratch.words)
		memset(a->scratch.words, 0xff, sizeof *a->scratch.words * n);
	return a->levels && a->after && a->scratch.words;
}

void atoms_begin(Atoms *a, const Grammar *g)
{
	a->g = g;
}

void atoms_close(Atoms *a)
{
	free(a->scratch.words);
	free(a->scratch.exits);
	free(a->levels);
	free(a->after);
	*a = (Atoms){0};
}

/* Before the first text ------------------------------------------------------------ */

/* Of a lexeme the states that are reached first, at most `most`. */
static bool prepare_lexeme(Atoms *a, const Item *start, uint32_t most)
{
	const Lexeme *l = &a->g->lexemes[start->a];
	Item waiting[PREPARED];
	uint32_t n = 1;
	waiting[0] = *start;
	for (uint32_t i = 0; i < n; i++) {
		const Item from = waiting[i];
		if (!atom_mask(a, &from))
			return false;
		for (int b = 0; b < 256 && n < most; b++) {
			Item to = from;
			uint32_t chars = 0, k = 0;
			to.b = advance(l, &from, from.b, &chars, (uint8_t)b);
			to.c -= chars < to.c ? chars : to.c;
			to.d -= to.d == ENDLESS ? 0 : chars;
			while (k < n && memcmp(&waiting[k], &to, sizeof to) != 0)
				k++;
			if (to.b && !l->ends[to.b] && k == n)
				waiting[n++] = to;
		}
	}
	return true;
}

/* Words of masks to come. Written to, so that the system has given their pages. */
static void add_spare(AtomTable *t, const GrammarVocab *v)
{
	uint32_t *words = NULL;
	do {
		words = malloc(sizeof *words * (size_t)v->n_words);
		if (words)
			memset(words, 0xff, sizeof *words * (size_t)v->n_words);
		pthread_mutex_lock(&t->lock);
		const bool has_room = words && t->n_spare < MOST_SPARE && t->n_spare + t->n < MOST_ATOMS;
		if (has_room)
			t->spare[t->n_spare++] = words;
		pthread_mutex_unlock(&t->lock);
		if (!has_room) {
			free(words);
			words = NULL;
		}
	} while (words);
}

/* What masks of its states have in common, and large ones that have nothing in common with others. */
static bool prepare_marked(Atoms *a, uint32_t lexeme, uint32_t *left)
{
	const Lexeme *l = &a->g->lexemes[lexeme];
	AtomMask m = {.words = malloc(sizeof *m.words * ((size_t)a->v->n_words + 1))};
	bool ok = m.words;
	for (uint32_t s = 1; s < l->n_states && *left && ok; s++, --*left) {
		const Item item = {.kind = NODE_LEXEME, .a = lexeme, .b = s};
		bool done;
		if (l->ends[s] || is_like_string(a->v, l, s))
			continue;
		m.n_exits = 0;
		ok = fill_plain(a, &m, l, &item, &done);
		free(m.exits);
		m.exits = NULL;
		if (ok && !done && a->g->atoms.n < MOST_ATOMS / 2)
			make_atom(a, &item, LARGE);
	}
	free(m.words);
	return ok;
}

void grammar_prepare(const Grammar *g, const GrammarVocab *v)
{
	Atoms a;
	uint32_t n = 0, states = 1000;
	bool ok = atoms_open(&a, v);
	atoms_begin(&a, g);
	for (uint32_t s = 1; ok && s < v->string.n_states; s++)
		if (!v->string.ends[s])
			ok = atom_mask(&a, &(Item){.kind = NODE_STRING, .b = s, .d = ENDLESS});
	for (uint32_t i = 0; i < g->n_nodes; i++)
		n += g->nodes[i].kind == NODE_LEXEME || g->nodes[i].kind == NODE_COUNTED;
	for (uint32_t i = 0, left = PREPARED; ok && i < g->n_nodes && left; i++) {
		const Node *o = &g->nodes[i];
		const bool counts = o->kind == NODE_COUNTED;
		if ((o->kind != NODE_LEXEME && !counts) || g->lexemes[o->a].ends[1])
			continue;
		const uint32_t share = n < PREPARED ? PREPARED / n : 1;
		const bool has_bounds = counts && g->lexemes[o->a].has_gaps; /* other masks are made of those without */
		ok = counts || prepare_marked(&a, o->a, &states);
		ok = ok && prepare_lexeme(&a, &(Item){.kind = o->kind, .a = o->a, .b = 1, .c = has_bounds ? o->b : 0,
			.d = has_bounds ? o->c : counts ? ENDLESS : 0}, share);
		left -= share;
	}
	atoms_close(&a);
	add_spare((AtomTable *)&g->atoms, v);
	texts_prepare(v);
}
