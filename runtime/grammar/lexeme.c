/* lexeme.c - automata over bytes: from sets of states of a nondeterministic one, and from two others. */
#include "runtime/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 32768, MOST_NODES = 200000,
	FEW_STEPS_LEFT = 60000000 /* none of them for what only makes masks faster */ };

bool effort_refuse(Effort *e, const char *why, int at)
{
	if (!e->why) {
		e->why = why;
		e->at = at;
	}
	return false;
}

bool effort_reserve(Effort *e, void **at, uint32_t *cap, uint32_t n, size_t bytes)
{
	if (n <= *cap)
		return true;
	uint32_t grown = *cap ? *cap : 16;
	while (grown < n)
		grown *= 2;
	void *p = realloc(*at, grown * bytes);
	if (!p)
		return effort_refuse(e, "there is no memory", -1);
	*at = p;
	*cap = grown;
	return true;
}

static bool spend(Effort *e, int64_t steps)
{
	e->left -= steps;
	return e->left >= 0 || effort_refuse(e, "it takes too long to compile", -1);
}

void lexeme_free(Lexeme *l)
{
	free(l->next);
	free(l->accepts);
	free(l->ends);
	free(l->bytes);
	free(l->like);
	free(l->near);
	free(l->is_inside);
	free(l->least);
	free(l->most);
	*l = (Lexeme){0};
}

/* Nondeterministic automata ------------------------------------------------------------ */

uint32_t nfa_add(Nfa *a, NfaNode node)
{
	if (a->n >= MOST_NODES)
		return effort_refuse(a->effort, "it is too large", -1);
	if (!GROW(a->effort, a->nodes, a->cap, a->n + 1))
		return 0;
	a->nodes[a->n] = node;
	return a->n++;
}

uint32_t nfa_bytes(Nfa *a, uint8_t lo, uint8_t hi, uint32_t next)
{
	return nfa_add(a, (NfaNode){.kind = NFA_BYTES, .lo = lo, .hi = hi, .next = next});
}

uint32_t nfa_either(Nfa *a, uint32_t one, uint32_t other)
{
	return one == NFA_NOTHING ? other : nfa_add(a, (NfaNode){.kind = NFA_SPLIT, .next = one, .other = other});
}

uint32_t nfa_text(Nfa *a, const void *text, size_t n, uint32_t next)
{
	for (size_t i = n; i-- > 0;)
		next = nfa_bytes(a, ((const uint8_t *)text)[i], ((const uint8_t *)text)[i], next);
	return next;
}

/* The code points from lo to hi, whose encodings all have n bytes, where each place is a range of its own. */
static uint32_t add_encodings(Nfa *a, uint32_t lo, uint32_t hi, int n, uint32_t next, uint32_t others)
{
	for (int i = 1; i < n; i++) {
		const uint32_t m = (1u << (6 * i)) - 1;
		if ((lo & ~m) == (hi & ~m))
			continue;
		if (lo & m)
			return add_encodings(a, (lo | m) + 1, hi, n, next, add_encodings(a, lo, lo | m, n, next, others));
		if ((hi & m) != m)
			return add_encodings(a, hi & ~m, hi, n, next, add_encodings(a, lo, (hi & ~m) - 1, n, next, others));
	}
	uint8_t from[UTF8_MAX], to[UTF8_MAX];
	utf8_write(from, lo);
	utf8_write(to, hi);
	for (int i = n; i-- > 0;)
		next = nfa_bytes(a, from[i], to[i], next);
	return nfa_either(a, others, next);
}

uint32_t nfa_points(Nfa *a, uint32_t lo, uint32_t hi, uint32_t next, uint32_t others)
{
	static const struct { uint32_t lo, hi; int n; } parts[] = {
		{0, 0x7f, 1}, {0x80, 0x7ff, 2}, {0x800, 0xd7ff, 3}, {0xe000, 0xffff, 3}, {0x10000, 0x10ffff, 4}};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		const uint32_t from = lo > parts[i].lo ? lo : parts[i].lo, to = hi < parts[i].hi ? hi : parts[i].hi;
		if (from <= to)
			others = add_encodings(a, from, to, parts[i].n, next, others);
	}
	return others;
}

/* Sets of states ------------------------------------------------------------ */

/* Members are node * 2, or node * 2 + 1 once an end of the text was passed, after which nothing is read. */
typedef struct Sets {
	const Nfa *a;
	Effort *e;
	uint32_t *members; uint32_t n_members, members_cap;
	struct SetOf { uint32_t first, n, hash; } *of; uint32_t n, cap; /* [0] is the empty one, which is dead */
	uint32_t *table; uint32_t slots; /* number + 1 */
	uint32_t *stack; uint32_t stack_cap;
	uint32_t *seen, turn; /* [2 * nodes] the turn in which each was met */
	uint32_t *fresh; uint32_t n_fresh, fresh_cap;
} Sets;

/* Adds what is reached from `member` without reading. */
static bool reach(Sets *s, uint32_t member, bool at_start)
{
	uint32_t n = 0;
	if (!GROW(s->e, s->stack, s->stack_cap, 1))
		return false;
	s->stack[n++] = member;
	while (n > 0) {
		const uint32_t m = s->stack[--n], ended = m & 1;
		const NfaNode *o = &s->a->nodes[m / 2];
		if (s->seen[m] == s->turn)
			continue;
		s->seen[m] = s->turn;
		if (!spend(s->e, 4) || !GROW(s->e, s->stack, s->stack_cap, n + 2))
			return false;
		if (o->kind == NFA_SPLIT)
			s->stack[n++] = o->other * 2 | ended;
		if (o->kind == NFA_SPLIT || o->kind == NFA_PASS || (o->kind == NFA_START && at_start) ||
			(o->kind == NFA_LATER && !at_start))
			s->stack[n++] = o->next * 2 | ended;
		else if (o->kind == NFA_END)
			s->stack[n++] = o->next * 2 | 1;
		else if (o->kind == NFA_ACCEPT || (o->kind == NFA_BYTES && (!ended || o->is_close))) {
			if (!GROW(s->e, s->fresh, s->fresh_cap, s->n_fresh + 1))
				return false;
			s->fresh[s->n_fresh++] = m;
		}
	}
	return true;
}

static int by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

static void sort(uint32_t *of, uint32_t n)
{
	if (n > 24) {
		qsort(of, n, sizeof *of, by_value);
		return;
	}
	for (uint32_t i = 1, k; i < n; i++) {
		const uint32_t value = of[i];
		for (k = i; k > 0 && of[k - 1] > value; k--)
			of[k] = of[k - 1];
		of[k] = value;
	}
}

static bool enlarge_table(Sets *s)
{
	if (s->n * 2 < s->slots)
		return true;
	const uint32_t slots = s->slots ? s->slots * 2 : 256;
	uint32_t *table = calloc(slots, sizeof *table);
	if (!table)
		return effort_refuse(s->e, "there is no memory", -1);
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t at = s->of[i].hash & (slots - 1);
		while (table[at])
			at = (at + 1) & (slots - 1);
		table[at] = i + 1;
	}
	free(s->table);
	s->table = table;
	s->slots = slots;
	return true;
}

/* The number of the set of fresh members. */
static bool intern(Sets *s, uint32_t *number)
{
	if (!spend(s->e, 8 * s->n_fresh + 16) || !enlarge_table(s))
		return false;
	sort(s->fresh, s->n_fresh);
	const uint32_t hash = tok_hash_string(s->fresh, s->n_fresh * sizeof *s->fresh);
	uint32_t at = hash & (s->slots - 1);
	for (; s->table[at]; at = (at + 1) & (s->slots - 1)) {
		const struct SetOf *o = &s->of[s->table[at] - 1];
		if (o->hash == hash && o->n == s->n_fresh &&
			(!o->n || memcmp(s->members + o->first, s->fresh, o->n * sizeof *s->fresh) == 0)) {
			*number = s->table[at] - 1;
			return true;
		}
	}
	if (s->n >= MOST_STATES)
		return effort_refuse(s->e, "it has too many states", -1);
	if (!GROW(s->e, s->of, s->cap, s->n + 1) ||
		!GROW(s->e, s->members, s->members_cap, s->n_members + s->n_fresh + 1))
		return false;
	s->of[s->n] = (struct SetOf){s->n_members, s->n_fresh, hash};
	if (s->n_fresh)
		memcpy(s->members + s->n_members, s->fresh, s->n_fresh * sizeof *s->fresh);
	s->n_members += s->n_fresh;
	s->table[at] = s->n + 1;
	*number = s->n++;
	return true;
}

/* Bytes that all nodes take alike are one class. */
static void find_classes(const Nfa *a, Lexeme *l, uint8_t *first_of)
{
	bool begins[257] = {true};
	for (uint32_t i = 0; i < a->n; i++)
		if (a->nodes[i].kind == NFA_BYTES) {
			begins[a->nodes[i].lo] = true;
			begins[a->nodes[i].hi + 1] = true;
		}
	l->n_classes = 0;
	for (int b = 0; b < 256; b++) {
		if (begins[b])
			first_of[l->n_classes++] = (uint8_t)b;
		l->class_of[b] = (uint8_t)(l->n_classes - 1);
	}
}

static bool step_set(Sets *s, uint32_t from, uint8_t byte, uint32_t *to)
{
	s->turn++;
	s->n_fresh = 0;
	for (uint32_t i = 0; i < s->of[from].n; i++) {
		const NfaNode *o = &s->a->nodes[s->members[s->of[from].first + i] / 2];
		if (o->kind == NFA_BYTES && o->lo <= byte && byte <= o->hi && !reach(s, o->next * 2, false))
			return false;
	}
	*to = 0; /* most bytes lead nowhere */
	return spend(s->e, s->of[from].n) && (s->n_fresh == 0 || intern(s, to));
}

static bool accepts_set(const Sets *s, uint32_t number)
{
	for (uint32_t i = 0; i < s->of[number].n; i++)
		if (s->a->nodes[s->members[s->of[number].first + i] / 2].kind == NFA_ACCEPT)
			return true;
	return false;
}

static bool run_sets(Sets *s, uint32_t start, bool at_start, Lexeme *l)
{
	uint8_t first_of[256];
	uint32_t cap = 0, accepts_cap = 0, number;
	find_classes(s->a, l, first_of);
	s->turn = 1;
	if (!intern(s, &number) || !reach(s, start * 2, at_start) || !intern(s, &number))
		return false;
	if (number == 0)
		return true; /* nothing at all */
	for (uint32_t i = 0; i < s->n; i++) {
		if (!GROW(s->e, l->next, cap, (i + 1) * l->n_classes) || !GROW(s->e, l->accepts, accepts_cap, i + 1))
			return false;
		l->accepts[i] = accepts_set(s, i);
		for (uint32_t c = 0; c < l->n_classes; c++) {
			if (!step_set(s, i, first_of[c], &number))
				return false;
			l->next[i * l->n_classes + c] = (uint16_t)number;
		}
	}
	l->n_states = s->n;
	return true;
}

/* States that lead nowhere become 0, the others keep their order. */
static bool prune(Lexeme *l, Effort *e)
{
	const uint32_t n = l->n_states, k = l->n_classes;
	uint16_t *map = calloc(n + 1, sizeof *map);
	bool *lives = calloc(n + 1, sizeof *lives), changed = true;
	if (!map || !lives || n == 0) {
		free(map);
		free(lives);
		return n == 0 || effort_refuse(e, "there is no memory", -1);
	}
	for (uint32_t i = 0; i < n; i++)
		lives[i] = l->accepts[i];
	while (changed && spend(e, (int64_t)n * k / 2)) {
		changed = false;
		for (uint32_t i = n; i-- > 1;)
			for (uint32_t c = 0; c < k && !lives[i]; c++)
				changed |= lives[i] = lives[l->next[i * k + c]];
	}
	uint32_t kept = 1;
	for (uint32_t i = 1; i < n; i++)
		map[i] = lives[i] ? (uint16_t)kept++ : 0;
	if (!lives[1])
		kept = 1; /* the start itself leads nowhere, so nothing does */
	l->ends = calloc(kept, 1);
	l->bytes = calloc(kept, sizeof *l->bytes);
	const bool has_room = l->ends && l->bytes;
	for (uint32_t i = 0; i < n && has_room; i++) {
		if (i > 0 && (!map[i] || kept == 1))
			continue;
		for (uint32_t c = 0; c < k; c++)
			l->next[map[i] * k + c] = map[l->next[i * k + c]];
		l->accepts[map[i]] = l->accepts[i];
	}
	for (uint32_t i = 1; i < kept && has_room; i++) {
		bool goes_on = false;
		for (uint32_t b = 0; b < 256; b++)
			if (l->next[i * k + l->class_of[b]]) {
				l->bytes[i][b / 64] |= (uint64_t)1 << b % 64;
				goes_on = true;
			}
		l->ends[i] = l->accepts[i] && !goes_on;
	}
	l->n_states = kept;
	const bool ok = has_room || effort_refuse(e, "there is no memory", -1);
	free(map);
	free(lives);
	return ok && !e->why;
}

bool nfa_lexeme(const Nfa *a, uint32_t start, bool at_start, Lexeme *l, Effort *e)
{
	Sets s = {.a = a, .e = e, .seen = calloc((size_t)a->n * 2 + 2, sizeof *s.seen)};
	*l = (Lexeme){0};
	bool ok = !e->why && (s.seen || effort_refuse(e, "there is no memory", -1)) && run_sets(&s, start, at_start, l) &&
		prune(l, e);
	free(s.seen);
	free(s.members);
	free(s.of);
	free(s.table);
	free(s.stack);
	free(s.fresh);
	if (!ok)
		lexeme_free(l);
	return ok;
}

bool lexeme_of_texts(const char *const *texts, const size_t *n_bytes, uint32_t n, Lexeme *l, Effort *e)
{
	Nfa a = {.effort = e};
	uint32_t start = NFA_NOTHING, accept = nfa_add(&a, (NfaNode){.kind = NFA_PASS});
	accept = nfa_add(&a, (NfaNode){.kind = NFA_ACCEPT});
	for (uint32_t i = 0; i < n; i++)
		start = nfa_either(&a, start, nfa_text(&a, texts[i], n_bytes[i], accept));
	const bool ok = nfa_lexeme(&a, start, true, l, e);
	free(a.nodes);
	return ok;
}

/* Two automata ------------------------------------------------------------ */

/* Of pairs (or triples) of states: those met so far, numbered from 1 in their order. */
typedef struct Pairs {
	Effort *e;
	struct Pair { uint32_t a, b, n; } *of; uint32_t n, cap;
	uint32_t *table; uint32_t slots;
} Pairs;

static uint32_t pair_hash(struct Pair p) { return tok_hash_pair(tok_hash_pair(p.a, p.b), p.n); }

static bool number_of(Pairs *s, struct Pair p, uint32_t *number)
{
	if (s->n * 2 >= s->slots) {
		const uint32_t slots = s->slots ? s->slots * 2 : 256;
		uint32_t *table = calloc(slots, sizeof *table);
		if (!table)
			return effort_refuse(s->e, "there is no memory", -1);
		for (uint32_t i = 1; i < s->n; i++) {
			uint32_t at = pair_hash(s->of[i]) & (slots - 1);
			while (table[at])
				at = (at + 1) & (slots - 1);
			table[at] = i;
		}
		free(s->table);
		s->table = table;
		s->slots = slots;
	}
	uint32_t at = pair_hash(p) & (s->slots - 1);
	for (; s->table[at]; at = (at + 1) & (s->slots - 1))
		if (memcmp(&s->of[s->table[at]], &p, sizeof p) == 0) {
			*number = s->table[at];
			return true;
		}
	if (s->n >= MOST_STATES)
		return effort_refuse(s->e, "it has too many states", -1);
	if (!GROW(s->e, s->of, s->cap, s->n + 1))
		return false;
	s->of[s->n] = p;
	s->table[at] = s->n;
	*number = s->n++;
	return true;
}

/* Fills classes so that two bytes of one are of one class in a and in b; `one` has a byte of each. */
static void join_classes(const Lexeme *a, const Lexeme *b, Lexeme *l, uint8_t *one)
{
	l->n_classes = 0;
	for (int x = 0; x < 256; x++) {
		uint32_t c = 0;
		while (c < l->n_classes &&
			(a->class_of[one[c]] != a->class_of[x] || b->class_of[one[c]] != b->class_of[x]))
			c++;
		if (c == l->n_classes)
			one[l->n_classes++] = (uint8_t)x;
		l->class_of[x] = (uint8_t)c;
	}
}

typedef struct Joint Joint;
struct Joint {
	const Lexeme *a, *b;
	bool (*step)(const Joint *j, struct Pair from, uint8_t byte, struct Pair *to); /* false: to nowhere */
	bool (*accepts)(const Joint *j, struct Pair p);
	uint32_t lo, hi;
};

static bool run_joint(const Joint *j, struct Pair start, Lexeme *l, Effort *e)
{
	Pairs s = {.e = e, .n = 1};
	uint8_t one[256];
	uint32_t cap = 0, accepts_cap = 0, number;
	*l = (Lexeme){0};
	join_classes(j->a, j->b, l, one);
	bool ok = GROW(e, s.of, s.cap, 1) && number_of(&s, start, &number);
	if (ok)
		s.of[0] = (struct Pair){0};
	for (uint32_t i = 0; ok && i < s.n; i++) {
		ok = spend(e, 6 * l->n_classes) && GROW(e, l->next, cap, (i + 1) * l->n_classes) &&
			GROW(e, l->accepts, accepts_cap, i + 1);
		if (!ok)
			break;
		l->accepts[i] = i > 0 && j->accepts(j, s.of[i]);
		for (uint32_t c = 0; ok && c < l->n_classes; c++) {
			struct Pair to = {0};
			number = 0;
			if (i > 0 && j->step(j, s.of[i], one[c], &to))
				ok = number_of(&s, to, &number);
			l->next[i * l->n_classes + c] = (uint16_t)number;
		}
	}
	l->n_states = s.n;
	ok = ok && prune(l, e);
	free(s.of);
	free(s.table);
	if (!ok)
		lexeme_free(l);
	return ok;
}

static bool step_both(const Joint *j, struct Pair from, uint8_t byte, struct Pair *to)
{
	*to = (struct Pair){.a = lexeme_step(j->a, from.a, byte), .b = lexeme_step(j->b, from.b, byte)};
	return to->a && to->b;
}

static bool accepts_both(const Joint *j, struct Pair p) { return j->a->accepts[p.a] && j->b->accepts[p.b]; }

static bool step_first(const Joint *j, struct Pair from, uint8_t byte, struct Pair *to)
{
	*to = (struct Pair){.a = lexeme_step(j->a, from.a, byte), .b = from.b ? lexeme_step(j->b, from.b, byte) : 0};
	return to->a;
}

static bool step_either(const Joint *j, struct Pair from, uint8_t byte, struct Pair *to)
{
	*to = (struct Pair){.a = from.a ? lexeme_step(j->a, from.a, byte) : 0,
		.b = from.b ? lexeme_step(j->b, from.b, byte) : 0};
	return to->a || to->b;
}

static bool accepts_either(const Joint *j, struct Pair p)
{
	return (p.a && j->a->accepts[p.a]) || (p.b && j->b->accepts[p.b]);
}

static bool accepts_first(const Joint *j, struct Pair p) { return j->a->accepts[p.a] && !(p.b && j->b->accepts[p.b]); }

bool lexeme_combine(const Lexeme *a, const Lexeme *b, Combine how, Lexeme *l, Effort *e)
{
	*l = (Lexeme){0};
	if (lexeme_is_empty(a) && (how != EITHER || lexeme_is_empty(b)))
		return true;
	if (how == BOTH && lexeme_is_empty(b))
		return true;
	const Joint j = {.a = a, .b = b,
		.step = how == BOTH ? step_both : how == EITHER ? step_either : step_first,
		.accepts = how == BOTH ? accepts_both : how == EITHER ? accepts_either : accepts_first};
	return run_joint(&j, (struct Pair){lexeme_is_empty(a) ? 0 : 1, lexeme_is_empty(b) ? 0 : 1, 0}, l, e);
}

/* Pairs of states count as equal until a byte separates them. */
bool lexeme_compare(Lexeme *l, const Lexeme *string, Effort *e)
{
	enum { MOST = 600 };
	Lexeme both;
	uint8_t one[256];
	const uint32_t n = l->n_states, m = string->n_states;
	if (n > MOST || m > 255 || e->left < FEW_STEPS_LEFT)
		return true;
	bool *equal = malloc((size_t)n * m), changed = true;
	if (!equal || !(l->like = calloc(n, 1))) {
		free(equal);
		return effort_refuse(e, "there is no memory", -1);
	}
	join_classes(l, string, &both, one);
	for (uint32_t i = 0; i < n * m; i++)
		equal[i] = l->accepts[i / m] == string->accepts[i % m] &&
			memcmp(l->bytes[i / m], string->bytes[i % m], sizeof l->bytes[0]) == 0;
	while (changed && spend(e, (int64_t)n * m * 4)) {
		changed = false;
		for (uint32_t i = 0; i < n * m; i++)
			for (uint32_t c = 0; c < both.n_classes && equal[i]; c++)
				if (!equal[lexeme_step(l, i / m, one[c]) * m + lexeme_step(string, i % m, one[c])]) {
					equal[i] = false;
					changed = true;
				}
	}
	for (uint32_t i = m; i < n * m; i++)
		if (equal[i] && i % m)
			l->like[i / m] = (uint8_t)(i % m);
	free(equal);
	return !e->why;
}

static bool is_same_state(const Lexeme *l, const uint16_t *class, uint32_t a, uint32_t b)
{
	bool same = class[a] == class[b];
	for (uint32_t c = 0; same && c < l->n_classes; c++)
		same = class[l->next[a * l->n_classes + c]] == class[l->next[b * l->n_classes + c]];
	return same;
}

/* Classes by texts of one byte more; table [slots] is room for states, + 1. */
static void refine(const Lexeme *l, const uint16_t *class, uint16_t *finer, uint32_t *table, uint32_t slots)
{
	uint16_t n = 0;
	memset(table, 0, slots * sizeof *table);
	for (uint32_t s = 0; s < l->n_states; s++) {
		uint64_t hash = class[s];
		for (uint32_t c = 0; c < l->n_classes; c++)
			hash = (hash ^ class[l->next[s * l->n_classes + c]]) * 0x9e3779b97f4a7c15u;
		uint32_t at = (uint32_t)(hash >> 32) & (slots - 1);
		while (table[at] && !is_same_state(l, class, table[at] - 1, s))
			at = (at + 1) & (slots - 1);
		finer[s] = table[at] ? finer[table[at] - 1] : n++;
		table[at] = table[at] ? table[at] : s + 1;
	}
}

bool lexeme_measure(Lexeme *l, Effort *e)
{
	enum { LEAST = 16, MOST = 30000 };
	const uint32_t n = l->n_states, slots = 1 << 13;
	if (n < LEAST || n * l->n_classes > MOST || n > slots / 2 || e->left < FEW_STEPS_LEFT)
		return true;
	uint16_t *class = malloc(sizeof *class * n), *finer = malloc(sizeof *finer * n);
	uint32_t *table = malloc(sizeof *table * slots);
	l->near = malloc(sizeof *l->near * NEAR * n);
	bool ok = (class && finer && table && l->near) || effort_refuse(e, "there is no memory", -1);
	for (uint32_t s = 0; s < n && ok; s++)
		class[s] = (uint16_t)(s ? 1 + l->accepts[s] + 2 * l->ends[s] : 0);
	for (uint32_t bytes = 1, row = 0; bytes <= NEAR_BYTES && ok; bytes++) {
		refine(l, class, finer, table, slots);
		memcpy(class, finer, sizeof *class * n);
		if (bytes > 1 && (bytes & (bytes - 1)) == 0)
			memcpy(l->near + row++ * n, class, sizeof *class * n);
		ok = spend(e, 4 * (int64_t)n * l->n_classes + slots / 4);
	}
	free(class);
	free(finer);
	free(table);
	return ok;
}

/* n counts characters that have begun: up to lo, where there is no upper bound. */
static bool step_counted(const Joint *j, struct Pair from, uint8_t byte, struct Pair *to)
{
	*to = (struct Pair){.a = lexeme_step(j->a, from.a, byte), .b = lexeme_step(j->b, from.b, byte), .n = from.n};
	if (!to->a || !to->b)
		return false;
	if (from.b != STRING_START)
		return true;
	if (byte == '"')
		return from.n >= j->lo;
	if (from.n == j->hi)
		return false;
	to->n += j->hi != UINT32_MAX || from.n < j->lo;
	return true;
}

bool lexeme_of_length(const Lexeme *a, uint32_t lo, uint32_t hi, Lexeme *l, Effort *e)
{
	Lexeme any;
	*l = (Lexeme){0};
	if (lexeme_is_empty(a))
		return true;
	if (!lexeme_of_string(&any, e))
		return false;
	const Joint j = {.a = a, .b = &any, .step = step_counted, .accepts = accepts_both, .lo = lo, .hi = hi};
	const bool ok = run_joint(&j, (struct Pair){1, STRING_START, 0}, l, e);
	lexeme_free(&any);
	return ok;
}

/* Counting ------------------------------------------------------------ */

/* Which state of `string` each state of l goes with; false: of some there are two. */
static bool find_phases(const Lexeme *l, const Lexeme *string, const uint8_t *one, uint8_t *phase, uint32_t *waiting)
{
	uint32_t n = 0;
	phase[1] = STRING_START;
	waiting[n++] = 1;
	while (n > 0) {
		const uint32_t s = waiting[--n];
		for (uint32_t c = 0; c < l->n_classes; c++) {
			const uint32_t to = l->next[s * l->n_classes + c], of = lexeme_step(string, phase[s], one[c]);
			if (to && (of == 0 || (phase[to] && phase[to] != of)))
				return false;
			if (to && !phase[to]) {
				phase[to] = (uint8_t)of;
				waiting[n++] = to;
			}
		}
	}
	return true;
}

static uint32_t and_one(uint32_t n, bool more) { return n == ENDLESS ? n : n + more; }

/* Fewest characters to come: states are visited until none has fewer. */
static bool find_least(Lexeme *l, const uint8_t *one, Effort *e)
{
	bool changed = true;
	for (uint32_t s = 0; s < l->n_states; s++)
		l->least[s] = l->accepts[s] ? 0 : ENDLESS;
	while (changed && spend(e, (int64_t)l->n_states * l->n_classes)) {
		changed = false;
		for (uint32_t s = l->n_states; s-- > 1;)
			for (uint32_t c = 0; c < l->n_classes; c++) {
				const uint32_t to = l->next[s * l->n_classes + c];
				const uint32_t n = to ? and_one(l->least[to], !l->is_inside[s] && one[c] != '"') : ENDLESS;
				if (n < l->least[s]) {
					l->least[s] = n;
					changed = true;
				}
			}
	}
	return !e->why;
}

/* Most characters to come: known of a state when it is of all that follow it, so never where a way leads back. */
static bool find_most(Lexeme *l, const uint8_t *one, bool *is_known, Effort *e)
{
	bool changed = true;
	is_known[0] = true;
	while (changed && spend(e, (int64_t)l->n_states * l->n_classes)) {
		changed = false;
		for (uint32_t s = l->n_states; s-- > 1;) {
			uint32_t most = 0, c = 0;
			for (; !is_known[s] && c < l->n_classes; c++) {
				const uint32_t to = l->next[s * l->n_classes + c];
				if (!is_known[to])
					break;
				const uint32_t n = to ? l->most[to] + (!l->is_inside[s] && one[c] != '"') : 0;
				most = n > most ? n : most;
			}
			if (is_known[s] || c < l->n_classes)
				continue;
			l->most[s] = most;
			changed = is_known[s] = true;
		}
	}
	for (uint32_t s = 1; s < l->n_states; s++)
		if (!is_known[s])
			l->most[s] = ENDLESS;
	return !e->why;
}

/* Is every count between least and most that of some text? By induction over counts, it is if those of the states that
 * follow leave no gap. */
static bool is_without_gaps(const Lexeme *l, const uint8_t *one, uint32_t s)
{
	uint32_t until = l->accepts[s] ? 0 : l->least[s]; /* counts up to here can be */
	bool changed = true;
	while (changed && until < l->most[s]) {
		changed = false;
		for (uint32_t c = 0; c < l->n_classes; c++) {
			const uint32_t to = l->next[s * l->n_classes + c];
			const bool more = !l->is_inside[s] && one[c] != '"';
			if (to && and_one(l->most[to], more) > until && and_one(l->least[to], more) <= until + 1) {
				until = and_one(l->most[to], more);
				changed = true;
			}
		}
	}
	return until >= l->most[s];
}

bool lexeme_count(Lexeme *l, const Lexeme *string, Effort *e)
{
	const uint32_t n = l->n_states;
	uint8_t one[256], *phase = calloc(n + 1, 1);
	uint32_t *waiting = malloc(sizeof *waiting * (n + 1));
	bool *is_known = calloc(n + 1, sizeof *is_known);
	for (int b = 256; b-- > 0;)
		one[l->class_of[b]] = (uint8_t)b;
	l->is_inside = calloc(n + 1, sizeof *l->is_inside);
	l->least = calloc(n + 1, sizeof *l->least);
	l->most = calloc(n + 1, sizeof *l->most);
	bool ok = (phase && waiting && is_known && l->is_inside && l->least && l->most) ||
		effort_refuse(e, "there is no memory", -1);
	bool counts = ok && n > 1 && find_phases(l, string, one, phase, waiting);
	for (uint32_t s = 1; s < n && counts; s++)
		l->is_inside[s] = phase[s] != STRING_START;
	ok = ok && (!counts || (find_least(l, one, e) && find_most(l, one, is_known, e) &&
		spend(e, 4 * (int64_t)n * l->n_classes)));
	l->span = 0;
	for (uint32_t s = 1; s < n && ok && counts; s++) {
		counts = is_without_gaps(l, one, s);
		l->span = l->least[s] > l->span ? l->least[s] : l->span;
		l->span = l->most[s] != ENDLESS && l->most[s] > l->span ? l->most[s] : l->span;
	}
	free(phase);
	free(waiting);
	free(is_known);
	if (!counts) {
		free(l->is_inside);
		free(l->least);
		free(l->most);
		l->is_inside = NULL;
		l->least = l->most = NULL;
	}
	return ok;
}

bool lexeme_has(const Lexeme *l, const void *text, size_t n)
{
	uint32_t s = lexeme_is_empty(l) ? 0 : 1;
	for (size_t i = 0; i < n && s; i++)
		s = lexeme_step(l, s, ((const uint8_t *)text)[i]);
	return s && l->accepts[s];
}
