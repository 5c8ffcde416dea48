/* lexeme.c - automata over bytes, from two others. */
#include "runtime/grammar/lexeme.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 65535, MOST_SOLID = 5000,
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

bool effort_spend(Effort *e, int64_t steps)
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
	free(l->is_inside);
	free(l->least);
	free(l->most);
	free(l->solid);
	*l = (Lexeme){0};
}

bool lexeme_copy(const Lexeme *from, Lexeme *l, Effort *e)
{
	const size_t n = from->n_states;
	*l = (Lexeme){.n_states = from->n_states, .n_classes = from->n_classes};
	memcpy(l->class_of, from->class_of, sizeof l->class_of);
	l->next = malloc(n * l->n_classes * sizeof *l->next + 1);
	l->accepts = malloc(n + 1);
	l->ends = malloc(n + 1);
	l->bytes = malloc(n * sizeof *l->bytes + 1);
	if (!l->next || !l->accepts || !l->ends || !l->bytes) {
		lexeme_free(l);
		return effort_refuse(e, "there is no memory", -1);
	}
	memcpy(l->next, from->next, n * l->n_classes * sizeof *l->next);
	memcpy(l->accepts, from->accepts, n);
	memcpy(l->ends, from->ends, n);
	memcpy(l->bytes, from->bytes, n * sizeof *l->bytes);
	return effort_spend(e, (int64_t)n * l->n_classes / 4);
}

/* States that lead nowhere become 0, the others keep their order. */
bool lexeme_prune(Lexeme *l, Effort *e)
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
	while (changed && effort_spend(e, (int64_t)n * k / 2)) {
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
	free(l->ends);
	free(l->bytes);
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
		ok = effort_spend(e, 6 * l->n_classes) && GROW(e, l->next, cap, (i + 1) * l->n_classes) &&
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
	ok = ok && lexeme_prune(l, e);
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
	while (changed && effort_spend(e, (int64_t)n * m * 4)) {
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
	while (changed && effort_spend(e, (int64_t)l->n_states * l->n_classes)) {
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
	while (changed && effort_spend(e, (int64_t)l->n_states * l->n_classes)) {
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

/* From which count on, at least `from`, all up to the most are those of some text: by induction over counts they are if
 * what is known of the states that follow leaves no gap. */
static uint32_t solid_from(const Lexeme *l, const uint8_t *one, uint32_t s, uint32_t from)
{
	uint32_t next = from; /* counts before this one can be */
	bool changed = true;
	while (next <= l->most[s] && next < MOST_SOLID) {
		changed = next == 0 && l->accepts[s];
		next += changed;
		for (uint32_t c = 0; c < l->n_classes && !changed; c++) {
			const uint32_t to = l->next[s * l->n_classes + c];
			const bool more = !l->is_inside[s] && one[c] != '"';
			if (to && and_one(l->solid[to], more) <= next && and_one(l->most[to], more) >= next) {
				next = and_one(l->most[to], more);
				if (next == ENDLESS)
					return from;
				next++;
				changed = true;
			} else if (to && and_one(l->least[to], more) == next) {
				next++;
				changed = true;
			}
		}
		if (!changed)
			from = ++next;
	}
	return next > l->most[s] ? from : MOST_SOLID;
}

static bool find_solid(Lexeme *l, const uint8_t *one, Effort *e)
{
	bool changed = true, known = true;
	memcpy(l->solid, l->least, sizeof *l->solid * l->n_states);
	while (changed && known && effort_spend(e, 4 * (int64_t)l->n_states * l->n_classes)) {
		changed = false;
		for (uint32_t s = l->n_states; s-- > 1 && known;) {
			const uint32_t from = solid_from(l, one, s, l->solid[s]);
			changed |= from != l->solid[s];
			l->solid[s] = from;
			known = from < MOST_SOLID;
		}
	}
	return known;
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
	l->solid = calloc(n + 1, sizeof *l->solid);
	bool ok = (phase && waiting && is_known && l->is_inside && l->least && l->most && l->solid) ||
		effort_refuse(e, "there is no memory", -1);
	bool counts = ok && n > 1 && find_phases(l, string, one, phase, waiting);
	for (uint32_t s = 1; s < n && counts; s++)
		l->is_inside[s] = phase[s] != STRING_START;
	ok = ok && (!counts || (find_least(l, one, e) && find_most(l, one, is_known, e) &&
		effort_spend(e, 4 * (int64_t)n * l->n_classes)));
	counts = counts && ok && find_solid(l, one, e);
	ok = ok && !e->why;
	l->span = 0;
	l->has_gaps = false;
	for (uint32_t s = 1; s < n && ok && counts; s++) {
		l->has_gaps |= l->solid[s] != l->least[s];
		l->span = l->solid[s] > l->span ? l->solid[s] : l->span;
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
		free(l->solid);
		l->is_inside = NULL;
		l->least = l->most = l->solid = NULL;
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
