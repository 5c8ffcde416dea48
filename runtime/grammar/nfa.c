/* nfa.c - nondeterministic automata over characters, and the deterministic ones over bytes that they become.
 *
 * Characters that are of the same sets are one class. Sets of states are made over classes, of which there are few;
 * then each step becomes the bytes that characters of its class are written in, by a tree of all characters' bytes.
 * Where all of a part of the tree is of one class, its states are shared by all that lead to the same place.
 */
#include "runtime/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 400000, MOST_STATES = 65535 };

void nfa_free(Nfa *a)
{
	free(a->nodes);
	free(a->ranges);
	free(a->sets);
	*a = (Nfa){.effort = a->effort};
}

uint32_t nfa_add(Nfa *a, NfaNode node)
{
	if (a->n >= MOST_NODES)
		return effort_refuse(a->effort, "it is too large", -1);
	if (!effort_spend(a->effort, 8) || !GROW(a->effort, a->nodes, a->cap, a->n + 1))
		return 0;
	a->nodes[a->n] = node;
	return a->n++;
}

uint32_t nfa_set(Nfa *a, const Range *ranges, uint32_t n, uint32_t next)
{
	uint32_t s = a->n_sets;
	const size_t bytes = sizeof *ranges * n;
	if (n == 0)
		return NFA_NOTHING;
	while (s > 0 && !(a->sets[s - 1].n == n && memcmp(a->ranges + a->sets[s - 1].first, ranges, bytes) == 0))
		s--;
	if (s == 0) {
		if (!GROW(a->effort, a->sets, a->sets_cap, a->n_sets + 1) ||
			!GROW(a->effort, a->ranges, a->ranges_cap, a->n_ranges + n))
			return NFA_NOTHING;
		memcpy(a->ranges + a->n_ranges, ranges, bytes);
		a->sets[a->n_sets++] = (struct NfaSet){a->n_ranges, n};
		a->n_ranges += n;
		s = a->n_sets;
	}
	const NfaNode node = {.kind = NFA_SET, .set = s - 1, .next = next};
	return effort_spend(a->effort, a->n_sets - s + n) ? nfa_add(a, node) : NFA_NOTHING;
}

uint32_t nfa_range(Nfa *a, uint32_t lo, uint32_t hi, uint32_t next) { return nfa_set(a, &(Range){lo, hi}, 1, next); }

uint32_t nfa_either(Nfa *a, uint32_t one, uint32_t other)
{
	return one == NFA_NOTHING ? other : nfa_add(a, (NfaNode){.kind = NFA_SPLIT, .next = one, .other = other});
}

static uint32_t nfa_text(Nfa *a, const void *text, size_t n, uint32_t next)
{
	for (size_t i = n; i-- > 0;)
		next = nfa_range(a, ((const uint8_t *)text)[i], ((const uint8_t *)text)[i], next);
	return next;
}

/* Classes ------------------------------------------------------------ */

/* Class 0 is of no set. */
typedef struct Classes {
	uint32_t *starts, n_starts; /* interval i is [starts[i], starts[i + 1]) */
	uint16_t *of;               /* [n_starts] its class */
	uint32_t n;
	uint8_t *in;                /* [sets, n] is the class of the set? */
} Classes;

static void classes_free(Classes *k)
{
	free(k->starts);
	free(k->of);
	free(k->in);
}

static int by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

static uint32_t interval_of(const Classes *k, uint32_t point)
{
	uint32_t low = 0, high = k->n_starts;
	while (high - low > 1) {
		const uint32_t mid = low + (high - low) / 2;
		if (k->starts[mid] <= point)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static uint32_t class_at(const Classes *k, uint32_t point) { return k->of[interval_of(k, point)]; }

static bool find_starts(const Nfa *a, Classes *k)
{
	uint32_t n = 0;
	k->starts = malloc(sizeof *k->starts * ((size_t)a->n_ranges * 2 + 1));
	if (!k->starts)
		return false;
	k->starts[n++] = 0;
	for (uint32_t i = 0; i < a->n_ranges; i++) {
		k->starts[n++] = a->ranges[i].lo;
		if (a->ranges[i].hi < NFA_CLOSE)
			k->starts[n++] = a->ranges[i].hi + 1;
	}
	qsort(k->starts, n, sizeof *k->starts, by_value);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || k->starts[i] != k->starts[k->n_starts - 1])
			k->starts[k->n_starts++] = k->starts[i];
	return true;
}

/* bits [n_starts, words]: the sets of each interval. */
static void mark_sets(const Nfa *a, const Classes *k, uint64_t *bits, uint32_t words)
{
	for (uint32_t s = 0; s < a->n_sets; s++)
		for (uint32_t r = a->sets[s].first; r < a->sets[s].first + a->sets[s].n; r++)
			for (uint32_t i = interval_of(k, a->ranges[r].lo); i < k->n_starts && k->starts[i] <= a->ranges[r].hi; i++)
				bits[(size_t)i * words + s / 64] |= (uint64_t)1 << s % 64;
}

static bool number_classes(const Nfa *a, Classes *k, const uint64_t *bits, uint32_t words, uint32_t *one)
{
	k->n = 1;
	for (uint32_t i = 0; i < k->n_starts; i++) {
		const uint64_t *mine = bits + (size_t)i * words;
		bool is_free = true;
		for (uint32_t w = 0; w < words; w++)
			is_free &= mine[w] == 0;
		uint32_t c = is_free ? 0 : 1;
		while (c > 0 && c < k->n && memcmp(bits + (size_t)one[c] * words, mine, words * sizeof *mine) != 0)
			c++;
		if (c == k->n && k->n > UINT16_MAX)
			return effort_refuse(a->effort, "it is too large", -1);
		if (c == k->n)
			one[k->n++] = i;
		k->of[i] = (uint16_t)c;
		if (!effort_spend(a->effort, (int64_t)(c + 1) * words))
			return false;
	}
	return true;
}

static bool find_classes(const Nfa *a, Classes *k)
{
	const uint32_t words = a->n_sets / 64 + 1;
	*k = (Classes){0};
	if (!find_starts(a, k) || !effort_spend(a->effort, (int64_t)k->n_starts * words * 4))
		return effort_refuse(a->effort, "there is no memory", -1);
	uint64_t *bits = calloc((size_t)k->n_starts * words, sizeof *bits);
	uint32_t *one = malloc(sizeof *one * (k->n_starts + 1)); /* an interval of each class */
	k->of = malloc(sizeof *k->of * k->n_starts);
	bool ok = bits && one && k->of;
	if (ok)
		mark_sets(a, k, bits, words);
	ok = ok && number_classes(a, k, bits, words, one);
	k->in = ok ? calloc((size_t)a->n_sets * k->n + 1, 1) : NULL;
	for (uint32_t s = 0; s < a->n_sets && k->in; s++)
		for (uint32_t c = 1; c < k->n; c++)
			k->in[s * k->n + c] = bits[(size_t)one[c] * words + s / 64] >> s % 64 & 1;
	free(bits);
	free(one);
	return k->in || effort_refuse(a->effort, "there is no memory", -1);
}

/* Sets of states ------------------------------------------------------------ */

/* Members are node * 2, or node * 2 + 1 once an end of the text was passed, after which nothing is read. */
typedef struct Sets {
	const Nfa *a;
	const Classes *k;
	Effort *e;
	uint32_t *members; uint32_t n_members, members_cap;
	struct SetOf { uint32_t first, n, hash; } *of; uint32_t n, cap; /* [0] is the empty one, which is dead */
	uint32_t *table; uint32_t slots; /* number + 1 */
	uint32_t *stack; uint32_t stack_cap;
	uint32_t *seen, turn; /* [2 * nodes] the turn in which each was met */
	uint32_t *fresh; uint32_t n_fresh, fresh_cap;
} Sets;

/* An end of the text does not forbid it. */
static bool is_close(const Nfa *a, const NfaNode *o) { return a->ranges[a->sets[o->set].first].lo == NFA_CLOSE; }

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
		if (!effort_spend(s->e, 4) || !GROW(s->e, s->stack, s->stack_cap, n + 2))
			return false;
		if (o->kind == NFA_SPLIT)
			s->stack[n++] = o->other * 2 | ended;
		if (o->kind == NFA_SPLIT || o->kind == NFA_PASS || (o->kind == NFA_START && at_start) ||
			(o->kind == NFA_LATER && !at_start))
			s->stack[n++] = o->next * 2 | ended;
		else if (o->kind == NFA_END)
			s->stack[n++] = o->next * 2 | 1;
		else if (o->kind == NFA_ACCEPT || (o->kind == NFA_SET && (!ended || is_close(s->a, o)))) {
			if (!GROW(s->e, s->fresh, s->fresh_cap, s->n_fresh + 1))
				return false;
			s->fresh[s->n_fresh++] = m;
		}
	}
	return true;
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
	if (!effort_spend(s->e, 8 * s->n_fresh + 16) || !enlarge_table(s))
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

static bool step_set(Sets *s, uint32_t from, uint32_t class, uint32_t *to)
{
	s->turn++;
	s->n_fresh = 0;
	for (uint32_t i = 0; i < s->of[from].n; i++) {
		const NfaNode *o = &s->a->nodes[s->members[s->of[from].first + i] / 2];
		if (o->kind == NFA_SET && s->k->in[o->set * s->k->n + class] && !reach(s, o->next * 2, false))
			return false;
	}
	*to = 0; /* most classes lead nowhere */
	return effort_spend(s->e, s->of[from].n) && (s->n_fresh == 0 || intern(s, to));
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
	uint32_t cap = 0, accepts_cap = 0, number;
	l->n_classes = s->k->n;
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
			if (!step_set(s, i, c, &number))
				return false;
			l->next[i * l->n_classes + c] = (uint16_t)number;
		}
	}
	l->n_states = s->n;
	return true;
}

/* Over classes: class c takes the place of byte c, if there are no more of them than bytes. */
static bool run_classes(const Nfa *a, const Classes *k, uint32_t start, bool at_start, Lexeme *l)
{
	Sets s = {.a = a, .k = k, .e = a->effort, .seen = calloc((size_t)a->n * 2 + 2, sizeof *s.seen)};
	*l = (Lexeme){0};
	for (uint32_t b = 0; b < 256; b++)
		l->class_of[b] = (uint8_t)(b < k->n ? b : 0);
	const bool ok = !a->effort->why && (s.seen || effort_refuse(a->effort, "there is no memory", -1)) &&
		run_sets(&s, start, at_start, l) && lexeme_prune(l, a->effort);
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

bool nfa_lexeme(const Nfa *a, uint32_t start, Lexeme *l)
{
	Classes k;
	*l = (Lexeme){0};
	bool ok = find_classes(a, &k) && (k.n <= 256 || effort_refuse(a->effort, "it is too large", -1)) &&
		run_classes(a, &k, start, true, l);
	if (ok) {
		for (uint32_t b = 0; b < 256; b++)
			l->class_of[b] = (uint8_t)class_at(&k, b);
		ok = lexeme_prune(l, a->effort);
	}
	classes_free(&k);
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
	const bool ok = nfa_lexeme(&a, start, l);
	nfa_free(&a);
	return ok;
}

/* Looking ahead ------------------------------------------------------------ */

/* The nodes of an automaton over classes, by its start. */
static uint32_t add_lexeme(Nfa *a, const Classes *k, const Lexeme *l)
{
	const uint32_t first = a->n, n = l->n_states, accept = n > 1 ? nfa_add(a, (NfaNode){.kind = NFA_ACCEPT}) : 0;
	Range *ranges = malloc(sizeof *ranges * (k->n_starts + 1));
	if (!ranges)
		effort_refuse(a->effort, "there is no memory", -1);
	for (uint32_t s = 1; s < n; s++)
		nfa_add(a, (NfaNode){.kind = NFA_PASS}); /* first + s */
	for (uint32_t s = 1; s < n && !a->effort->why; s++) {
		uint32_t all = l->accepts[s] ? accept : NFA_NOTHING;
		for (uint32_t c = 1; c < k->n && !a->effort->why; c++) {
			const uint32_t to = l->next[s * k->n + c], close = class_at(k, NFA_CLOSE);
			uint32_t m = 0;
			for (uint32_t d = 1; d < c && to && c != close; d++)
				m |= d != close && l->next[s * k->n + d] == to; /* with an earlier class */
			if (!to || m || !effort_spend(a->effort, k->n_starts + c))
				continue;
			for (uint32_t i = 0; i < k->n_starts; i++) {
				const uint32_t d = k->of[i], hi = i + 1 < k->n_starts ? k->starts[i + 1] - 1 : NFA_CLOSE;
				if (d == 0 || (d == close) != (c == close) || l->next[s * k->n + d] != to)
					continue;
				if (m > 0 && ranges[m - 1].hi + 1 == k->starts[i])
					ranges[m - 1].hi = hi;
				else
					ranges[m++] = (Range){k->starts[i], hi};
			}
			all = nfa_either(a, all, nfa_set(a, ranges, m, first + to));
		}
		if (!a->effort->why)
			a->nodes[first + s].next = all;
	}
	free(ranges);
	return n > 1 ? first + 1 : NFA_NOTHING;
}

uint32_t nfa_both(Nfa *a, uint32_t next, uint32_t seen, bool is_not, bool at_start)
{
	Classes k;
	Lexeme rest = {0}, looked = {0}, both = {0};
	const bool ok = find_classes(a, &k) && (k.n <= 256 || effort_refuse(a->effort, "it is too large", -1)) &&
		run_classes(a, &k, next, at_start, &rest) && run_classes(a, &k, seen, at_start, &looked) &&
		lexeme_combine(&rest, &looked, is_not ? FIRST_ONLY : BOTH, &both, a->effort);
	uint32_t at = NFA_NOTHING;
	if (ok && !lexeme_is_empty(&both)) { /* its classes are those of bytes once more */
		uint16_t *next_of = malloc(sizeof *next_of * both.n_states * k.n);
		for (uint32_t i = 0; i < both.n_states && next_of; i++)
			for (uint32_t c = 0; c < k.n; c++)
				next_of[i * k.n + c] = (uint16_t)lexeme_step(&both, i, (uint8_t)c);
		free(both.next);
		both.next = next_of;
		at = next_of ? add_lexeme(a, &k, &both) : effort_refuse(a->effort, "there is no memory", -1);
	}
	classes_free(&k);
	lexeme_free(&rest);
	lexeme_free(&looked);
	lexeme_free(&both);
	return at;
}

/* Bytes ------------------------------------------------------------ */

/* A tree of the bytes of all characters. A step leads to 0 = nothing, -class = all of a character of it,
 * node > 0, WHOLE_BLOCK + 4 * class + n = n more bytes of a character that is of the class in any case, or SAME = to
 * where all of its characters lead. Node n of 1 to 3 is that with n bytes to come; node 0 the root. */
enum { SAME = INT32_MIN, WHOLE_BLOCK = 1 << 24, FIRST_NODE = 4 };
typedef struct Tree {
	const Classes *k;
	Effort *e;
	int32_t (*to)[256]; uint32_t n, cap;
	uint64_t *has; /* [n, words] classes below each node */
	uint32_t words;
} Tree;

static uint32_t add_tree_node(Tree *t)
{
	if (!effort_spend(t->e, 300) || !GROW(t->e, t->to, t->cap, t->n + 1))
		return 0;
	memset(t->to[t->n], 0, sizeof t->to[0]);
	return t->n++;
}

/* Of the points [base, base + 64 ^ n) those from lo to hi, written in n bytes more. */
static int32_t add_block(Tree *t, uint32_t base, int n, uint32_t lo, uint32_t hi)
{
	const uint32_t last = base + (1u << 6 * n) - 1, i = interval_of(t->k, base), class = t->k->of[i];
	if (base > hi || last < lo || t->e->why)
		return 0;
	const bool is_whole = base >= lo && last <= hi && (i + 1 == t->k->n_starts || t->k->starts[i + 1] > last);
	if (is_whole)
		return class == 0 ? 0 : n == 0 ? -(int32_t)class : WHOLE_BLOCK + 4 * (int32_t)class + n;
	const uint32_t node = add_tree_node(t);
	bool any = false;
	for (uint32_t b = 0; b < 64 && node; b++) {
		const int32_t to = add_block(t, base + (b << 6 * (n - 1)), n - 1, lo, hi);
		t->to[node][0x80 + b] = to;
		any |= to != 0;
	}
	return any ? (int32_t)node : 0;
}

/* How JSON writes a character that it does not write as it is; 0 bytes for others. */
static int escape_of(uint32_t point, char *s)
{
	static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
	const char *found = point && point < 128 ? strchr(plain, (int)point) : NULL;
	if (found)
		return snprintf(s, 8, "\\%c", names[found - plain]);
	return point < 32 || point == 127 ? snprintf(s, 8, "\\u%04x", (unsigned)point) : 0;
}

static void add_text(Tree *t, const char *text, int n, int32_t class)
{
	uint32_t node = 0;
	for (int i = 0; i + 1 < n; i++) {
		int32_t to = t->to[node][(uint8_t)text[i]];
		if (to == 0) {
			to = (int32_t)add_tree_node(t);
			t->to[node][(uint8_t)text[i]] = to;
		}
		node = (uint32_t)to;
	}
	t->to[node][(uint8_t)text[n - 1]] = -class;
}

static bool grow_tree(Tree *t, Writing writing)
{
	char text[16];
	for (uint32_t i = 0; i < FIRST_NODE && !t->e->why; i++)
		add_tree_node(t);
	for (uint32_t n = 1; n < FIRST_NODE && !t->e->why; n++)
		for (int b = 0; b < 64; b++)
			t->to[n][0x80 + b] = n == 1 ? SAME : (int32_t)n - 1;
	for (uint32_t p = 0; p < 0x80 && !t->e->why; p++) {
		const int n = writing == AS_JSON_STRING ? escape_of(p, text) : 0;
		const int32_t class = (int32_t)class_at(t->k, p);
		if (class)
			add_text(t, n ? text : (char[]){(char)p}, n ? n : 1, class);
	}
	for (uint32_t b = 0xc2; b <= 0xf4 && !t->e->why; b++) {
		const int32_t to = b < 0xe0 ? add_block(t, (b & 31) << 6, 1, 0x80, 0x7ff)
			: b < 0xf0 ? add_block(t, (b & 15) << 12, 2, 0x800, b == 0xed ? 0xd7ff : 0xffff)
			: add_block(t, (b & 7) << 18, 3, 0x10000, MOST_POINT);
		t->to[0][b] = to;
	}
	if (writing == AS_JSON_STRING)
		t->to[0]['"'] = -(int32_t)class_at(t->k, NFA_CLOSE);
	return !t->e->why;
}

/* Which classes are below each node: nodes below have greater numbers, but for the escapes, which have, too. */
static bool find_below(Tree *t)
{
	t->words = t->k->n / 64 + 1;
	t->has = calloc((size_t)t->n * t->words, sizeof *t->has);
	if (!t->has || !effort_spend(t->e, (int64_t)t->n * 256))
		return effort_refuse(t->e, "there is no memory", -1);
	for (uint32_t i = t->n; i-- > FIRST_NODE;)
		for (int b = 0; b < 256; b++) {
			const int32_t to = t->to[i][b];
			const uint32_t class = to < 0 ? (uint32_t)-to : to >= WHOLE_BLOCK ? (uint32_t)(to - WHOLE_BLOCK) / 4 : 0;
			if (class)
				t->has[i * t->words + class / 64] |= (uint64_t)1 << class % 64;
			for (uint32_t w = 0; w < t->words && to > 0 && to < WHOLE_BLOCK; w++)
				t->has[i * t->words + w] |= t->has[(uint32_t)to * t->words + w];
		}
	return true;
}

/* Bytes that all nodes take alike are one class. */
static void join_bytes(const Tree *t, Lexeme *l, uint8_t *one)
{
	l->n_classes = 0;
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t c = 0;
		for (; c < l->n_classes; c++) {
			uint32_t i = 0;
			while (i < t->n && t->to[i][b] == t->to[i][one[c]])
				i++;
			if (i == t->n)
				break;
		}
		if (c == l->n_classes)
			one[l->n_classes++] = (uint8_t)b;
		l->class_of[b] = (uint8_t)c;
	}
}

/* Of the automaton over classes, its states and the tree's nodes. */
typedef struct Writer {
	const Tree *t;
	const Lexeme *from;
	uint64_t *lives;    /* [states, words] classes that lead on */
	uint32_t *number;   /* [states, nodes] of the pair, 0 = not met */
	struct { uint32_t state, node; } *pairs; uint32_t n, cap;
} Writer;

static bool number_of(Writer *w, uint32_t state, uint32_t node, uint32_t *number)
{
	uint32_t *at = &w->number[(size_t)state * w->t->n + node];
	if (*at == 0) {
		if (w->n >= MOST_STATES)
			return effort_refuse(w->t->e, "it has too many states", -1);
		if (!GROW(w->t->e, w->pairs, w->cap, w->n + 1))
			return false;
		w->pairs[w->n].state = state;
		w->pairs[w->n].node = node;
		*at = w->n++;
	}
	*number = *at;
	return true;
}

static bool write_step(Writer *w, uint32_t state, uint32_t node, uint8_t byte, uint32_t *number)
{
	const Tree *t = w->t;
	const Lexeme *l = w->from;
	const int32_t to = t->to[node][byte];
	*number = 0;
	if (to == 0)
		return true;
	if (to == SAME)
		return number_of(w, state, 0, number);
	if (to > 0 && to < FIRST_NODE)
		return number_of(w, state, (uint32_t)to, number);
	if (to < 0 || to >= WHOLE_BLOCK) {
		const uint32_t class = to < 0 ? (uint32_t)-to : (uint32_t)(to - WHOLE_BLOCK) / 4;
		const uint32_t next = l->next[state * l->n_classes + class];
		return next == 0 || number_of(w, next, to < 0 ? 0 : (uint32_t)(to - WHOLE_BLOCK) % 4, number);
	}
	bool lives = false;
	for (uint32_t i = 0; i < t->words; i++)
		lives |= (t->has[(uint32_t)to * t->words + i] & w->lives[state * t->words + i]) != 0;
	return !lives || number_of(w, state, (uint32_t)to, number);
}

static bool write_states(Writer *w, Lexeme *l)
{
	Effort *e = w->t->e;
	uint8_t one[256];
	uint32_t cap = 0, accepts_cap = 0, number;
	join_bytes(w->t, l, one);
	if (!GROW(e, w->pairs, w->cap, 1))
		return false;
	w->n = 1;
	if (!number_of(w, 1, 0, &number))
		return false;
	for (uint32_t i = 0; i < w->n; i++) {
		if (!effort_spend(e, l->n_classes) || !GROW(e, l->next, cap, (i + 1) * l->n_classes) ||
			!GROW(e, l->accepts, accepts_cap, i + 1))
			return false;
		const uint32_t state = i ? w->pairs[i].state : 0, node = i ? w->pairs[i].node : 0;
		l->accepts[i] = i && node == 0 && w->from->accepts[state];
		for (uint32_t c = 0; c < l->n_classes; c++) {
			if (i > 0 && !write_step(w, state, node, one[c], &number))
				return false;
			l->next[i * l->n_classes + c] = i ? (uint16_t)number : 0;
		}
	}
	l->n_states = w->n;
	return lexeme_prune(l, e);
}

static bool write_lexeme(const Lexeme *from, const Classes *k, Writing writing, Lexeme *l, Effort *e)
{
	Tree t = {.k = k, .e = e};
	Writer w = {.t = &t, .from = from};
	bool ok = grow_tree(&t, writing) && find_below(&t);
	if (ok && (uint64_t)from->n_states * t.n > 1 << 24)
		ok = effort_refuse(e, "it is too large", -1);
	if (ok) {
		w.lives = calloc((size_t)from->n_states * t.words, sizeof *w.lives);
		w.number = calloc((size_t)from->n_states * t.n, sizeof *w.number);
		ok = (w.lives && w.number) || effort_refuse(e, "there is no memory", -1);
	}
	for (uint32_t s = 1; s < from->n_states && ok; s++)
		for (uint32_t c = 1; c < k->n; c++)
			if (from->next[s * k->n + c])
				w.lives[s * t.words + c / 64] |= (uint64_t)1 << c % 64;
	ok = ok && write_states(&w, l);
	free(w.lives);
	free(w.number);
	free(w.pairs);
	free(t.to);
	free(t.has);
	return ok;
}

bool nfa_written(const Nfa *a, uint32_t start, Writing writing, Lexeme *l)
{
	Classes k;
	Lexeme classes = {0};
	*l = (Lexeme){0};
	const bool ok = find_classes(a, &k) && run_classes(a, &k, start, true, &classes) &&
		(lexeme_is_empty(&classes) || write_lexeme(&classes, &k, writing, l, a->effort));
	classes_free(&k);
	lexeme_free(&classes);
	if (!ok)
		lexeme_free(l);
	return ok;
}
