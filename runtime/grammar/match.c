/* match.c - states of texts: what the next byte may be, and where it leads.
 *
 * The grammar is read as by a recursive machine with a stack, only that all its choices are followed at once: an item
 * is a machine, its stack a list of cells that machines share. Equal cells, and equal sets of items, are made once, so
 * a step that was taken before is a look into a table. Nothing here calls itself: work waits in a list.
 */
#include "runtime/grammar/match.h"

#include <stdlib.h>
#include <string.h>

enum {
	MOST_ITEMS = 8192,
	MOST_WORK = 1 << 16,
	ROOM_BYTES = 3 << 20,
	STEP_SLOTS = 8192, /* as many steps are known at once, twice */
	ROOM_STATES = 1024, ROOM_ITEMS = 2048, ROOM_CONTS = 512,
};

static uint32_t hash_words(const void *words, size_t n_bytes) { return tok_hash_string(words, n_bytes); }

static uint32_t *make_slots(Match *m, uint32_t n)
{
	uint32_t *t = calloc(n, sizeof *t);
	if (!t)
		effort_refuse(&m->effort, "there is no memory", -1);
	return t;
}

static uint32_t make_cont(Match *m, Cont c)
{
	if (m->n_conts * 2 >= m->cont_slots) {
		const uint32_t slots = m->cont_slots ? m->cont_slots * 2 : 64;
		uint32_t *t = make_slots(m, slots);
		if (!t)
			return 0;
		for (uint32_t i = 1; i < m->n_conts; i++) {
			uint32_t at = hash_words(&m->conts[i], sizeof c) & (slots - 1);
			while (t[at])
				at = (at + 1) & (slots - 1);
			t[at] = i;
		}
		free(m->cont_table);
		m->cont_table = t;
		m->cont_slots = slots;
	}
	uint32_t at = hash_words(&c, sizeof c) & (m->cont_slots - 1);
	for (; m->cont_table[at]; at = (at + 1) & (m->cont_slots - 1))
		if (memcmp(&m->conts[m->cont_table[at]], &c, sizeof c) == 0)
			return m->cont_table[at];
	if (!GROW(&m->effort, m->conts, m->conts_cap, m->n_conts + 1))
		return 0;
	m->conts[m->n_conts] = c;
	m->cont_table[at] = m->n_conts;
	return m->n_conts++;
}

/* Work: match `node` (lo and hi: of a repetition) and then `next`. */
static bool add_work(Match *m, uint32_t node, uint32_t lo, uint32_t hi, uint32_t next)
{
	if (m->n_work >= MOST_WORK)
		return effort_refuse(&m->effort, "the grammar is too ambiguous", -1);
	if (!GROW(&m->effort, m->work, m->work_cap, m->n_work + 1))
		return false;
	m->work[m->n_work++] = (Cont){node, lo, hi, next};
	return true;
}

static bool add_node_work(Match *m, uint32_t node, uint32_t next)
{
	const Node *o = &m->g->nodes[node];
	const bool counts = o->kind == NODE_REPEAT;
	return add_work(m, node, counts ? o->b : 0, counts ? o->c : 0, next);
}

/* What a machine does when its lexeme ended. */
static bool go_on(Match *m, uint32_t cont)
{
	if (cont == 0)
		return m->fresh_whole = true;
	const Cont c = m->conts[cont];
	return add_work(m, c.node, c.lo, c.hi, c.next);
}

static bool add_item(Match *m, Item item)
{
	if (m->n_fresh >= MOST_ITEMS)
		return effort_refuse(&m->effort, "the grammar is too ambiguous", -1);
	if (!GROW(&m->effort, m->fresh, m->fresh_cap, m->n_fresh + 1))
		return false;
	m->fresh[m->n_fresh++] = item;
	return true;
}

/* Only rules and repetitions lead back to themselves. */
static bool was_seen(Match *m, const Cont *w)
{
	for (uint32_t i = 0; i < m->n_seen; i++)
		if (memcmp(&m->seen[i], w, sizeof *w) == 0)
			return true;
	if (m->n_seen >= MOST_ITEMS)
		return !effort_refuse(&m->effort, "the grammar is too ambiguous", -1);
	if (!GROW(&m->effort, m->seen, m->seen_cap, m->n_seen + 1))
		return true;
	m->seen[m->n_seen++] = *w;
	return false;
}

static uint32_t one_less(uint32_t n) { return n == 0 || n == ENDLESS ? n : n - 1; }

static bool repeat(Match *m, const Cont *w, const Node *o)
{
	bool ok = w->lo > 0 || go_on(m, w->next);
	if (ok && w->hi > 0) {
		const uint32_t hi = one_less(w->hi);
		const uint32_t rest = hi == 0 ? w->next : make_cont(m, (Cont){w->node, one_less(w->lo), hi, w->next});
		ok = !m->effort.why && add_node_work(m, o->a, rest);
	}
	return ok;
}

static bool do_work(Match *m, const Cont *w)
{
	const Grammar *g = m->g;
	const Node *o = &g->nodes[w->node];
	uint32_t next = w->next;
	switch ((NodeKind)o->kind) {
	case NODE_NONE: return true;
	case NODE_EMPTY: return go_on(m, w->next);
	case NODE_FRESH: return m->repeats || ((m->fresh_item = true) && go_on(m, w->next));
	case NODE_TEXT: return add_item(m, (Item){NODE_TEXT, o->a, o->b, 0, 0, w->next});
	case NODE_LEXEME:
		if (g->lexemes[o->a].accepts[1] && !go_on(m, w->next))
			return false;
		return g->lexemes[o->a].ends[1] || add_item(m, (Item){NODE_LEXEME, o->a, 1, 0, 0, w->next});
	case NODE_STRING: return add_item(m, (Item){NODE_STRING, 0, STRING_START, o->a, o->b, w->next});
	case NODE_COUNTED: return add_item(m, (Item){NODE_COUNTED, o->a, 1, o->b, o->c, w->next});
	case NODE_LIST:
		if (o->b == 0)
			return go_on(m, w->next);
		for (uint32_t i = o->b; i-- > 1 && !m->effort.why;) {
			const uint32_t child = g->children[o->a + i];
			const bool counts = g->nodes[child].kind == NODE_REPEAT;
			next = make_cont(m, (Cont){child, counts ? g->nodes[child].b : 0, counts ? g->nodes[child].c : 0, next});
		}
		return !m->effort.why && add_node_work(m, g->children[o->a], next);
	case NODE_EITHER:
		for (uint32_t i = 0; i < o->b; i++)
			if (!add_node_work(m, g->children[o->a + i], w->next))
				return false;
		return true;
	case NODE_REPEAT: return was_seen(m, w) || repeat(m, w, o);
	case NODE_RULE: return was_seen(m, w) || add_node_work(m, o->a, w->next);
	}
	return true;
}

static void begin_state(Match *m)
{
	m->n_fresh = m->n_work = m->n_seen = 0;
	m->fresh_whole = m->fresh_item = false;
}

static int by_item(const void *a, const void *b) { return memcmp(a, b, sizeof(Item)); }

static void add_bytes(const Match *m, const Item *t, uint64_t bytes[4])
{
	const uint8_t byte = t->kind == NODE_TEXT ? (uint8_t)m->g->bytes[t->a] : 0;
	const Lexeme *l = t->kind == NODE_STRING ? &m->g->string : &m->g->lexemes[t->a];
	if (t->kind == NODE_TEXT) {
		bytes[byte / 64] |= (uint64_t)1 << byte % 64;
		return;
	}
	const uint32_t at = t->b;
	const bool is_between = t->kind == NODE_STRING && at == STRING_START;
	for (int i = 0; i < 4; i++)
		bytes[i] |= is_between && t->d == 0 ? 0 : l->bytes[at][i] & ~(is_between && !i ? (uint64_t)1 << '"' : 0);
	if (is_between && t->c == 0)
		bytes[0] |= (uint64_t)1 << '"';
}

static bool enlarge_states(Match *m)
{
	if (m->n_states * 2 < m->state_slots)
		return true;
	const uint32_t slots = m->state_slots ? m->state_slots * 2 : 64;
	uint32_t *t = make_slots(m, slots);
	if (!t)
		return false;
	for (uint32_t i = 1; i < m->n_states; i++) {
		uint32_t at = m->states[i].hash & (slots - 1);
		while (t[at])
			at = (at + 1) & (slots - 1);
		t[at] = i;
	}
	free(m->state_table);
	m->state_table = t;
	m->state_slots = slots;
	return true;
}

/* Does the work that waits; the state of the fresh items. */
static uint32_t end_state(Match *m)
{
	while (m->n_work > 0 && !m->effort.why) {
		const Cont w = m->work[--m->n_work];
		if (!do_work(m, &w))
			effort_refuse(&m->effort, "there is no memory", -1);
	}
	if (m->effort.why || (m->n_fresh == 0 && !m->fresh_whole) || !enlarge_states(m))
		return 0;
	uint32_t n = 0;
	if (m->n_fresh > 1)
		qsort(m->fresh, m->n_fresh, sizeof *m->fresh, by_item);
	for (uint32_t i = 0; i < m->n_fresh; i++)
		if (n == 0 || memcmp(&m->fresh[n - 1], &m->fresh[i], sizeof(Item)) != 0)
			m->fresh[n++] = m->fresh[i];
	const uint32_t hash = hash_words(m->fresh, n * sizeof(Item)) + m->fresh_whole + 2 * m->fresh_item;
	uint32_t at = hash & (m->state_slots - 1);
	for (; m->state_table[at]; at = (at + 1) & (m->state_slots - 1)) {
		const State *s = &m->states[m->state_table[at]];
		if (s->hash == hash && s->n == n && s->is_whole == m->fresh_whole && s->ends_item == m->fresh_item &&
			(n == 0 || memcmp(m->items + s->first, m->fresh, n * sizeof(Item)) == 0))
			return m->state_table[at];
	}
	if (!GROW(&m->effort, m->states, m->states_cap, m->n_states + 1) ||
		!GROW(&m->effort, m->items, m->items_cap, m->n_items + n + 1))
		return 0;
	State *s = &m->states[m->n_states];
	*s = (State){.first = m->n_items, .n = n, .hash = hash, .is_whole = m->fresh_whole,
		.ends_item = m->fresh_item};
	for (uint32_t i = 0; i < n; i++) {
		m->items[m->n_items++] = m->fresh[i];
		add_bytes(m, &m->fresh[i], s->bytes);
	}
	m->state_table[at] = m->n_states;
	return m->n_states++;
}

static bool move_string(const Grammar *g, Item *t, uint8_t byte, bool *ends)
{
	const uint32_t to = lexeme_step(&g->string, t->b, byte);
	*ends = to && t->b == STRING_START && byte == '"' && t->c == 0;
	if (to == 0 || (t->b == STRING_START && (byte == '"' || t->d == 0)))
		return false;
	if (t->b == STRING_START) {
		t->c = one_less(t->c);
		t->d = one_less(t->d);
	}
	t->b = to;
	return true;
}

static bool move_counted(const Lexeme *l, Item *t, uint8_t byte, bool *ends)
{
	const uint32_t to = lexeme_step(l, t->b, byte);
	const bool begins = !l->is_inside[t->b] && byte != '"';
	*ends = false;
	if (to == 0 || (begins && t->d == 0))
		return false;
	if (begins) {
		t->c = one_less(t->c);
		t->d = one_less(t->d);
	}
	t->b = to;
	if (!lexeme_can_have(l, to, t->c, t->d))
		return false;
	*ends = l->accepts[to] && t->c == 0;
	return !l->ends[to];
}

bool match_move(const Grammar *g, Item *t, uint8_t byte, bool *ends)
{
	if (t->kind == NODE_STRING)
		return move_string(g, t, byte, ends);
	if (t->kind == NODE_COUNTED)
		return move_counted(&g->lexemes[t->a], t, byte, ends);
	if (t->kind == NODE_TEXT) {
		const bool fits = (uint8_t)g->bytes[t->a++] == byte;
		*ends = fits && --t->b == 0;
		return fits && !*ends;
	}
	const Lexeme *l = &g->lexemes[t->a];
	t->b = lexeme_step(l, t->b, byte);
	*ends = l->accepts[t->b];
	return t->b && !l->ends[t->b];
}

static bool step_item(Match *m, Item t, uint8_t byte)
{
	bool ends;
	const bool goes_on = match_move(m->g, &t, byte, &ends);
	return (!ends || go_on(m, t.cont)) && (!goes_on || add_item(m, t));
}

/* Of a table that is half full all are forgotten: a larger one would have to be filled again from this. */
static bool has_step_slot(Match *m)
{
	if (!m->steps && !(m->steps = calloc(STEP_SLOTS, sizeof *m->steps)))
		return effort_refuse(&m->effort, "there is no memory", -1);
	if (m->n_steps * 2 >= STEP_SLOTS) {
		memset(m->steps, 0, STEP_SLOTS * sizeof *m->steps);
		m->n_steps = 0;
	}
	return true;
}

uint32_t match_step(Match *m, uint32_t state, uint8_t byte)
{
	const State *s = &m->states[state];
	if (!(s->bytes[byte / 64] >> byte % 64 & 1))
		return 0;
	const uint64_t key = (((uint64_t)state << 8 | byte) << 1 | m->repeats) + 1;
	if (!has_step_slot(m))
		return 0;
	uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (STEP_SLOTS - 1);
	for (; m->steps[at].key; at = (at + 1) & (STEP_SLOTS - 1))
		if (m->steps[at].key == key)
			return m->steps[at].to;
	begin_state(m);
	for (uint32_t i = 0, first = s->first, n = s->n; i < n; i++)
		if (!step_item(m, m->items[first + i], byte))
			break;
	const uint32_t to = end_state(m);
	if (m->effort.why)
		return 0;
	m->steps[at] = (Step){key, to};
	m->n_steps++;
	return to;
}

uint32_t match_after(Match *m, const Item *items, uint32_t n)
{
	begin_state(m);
	for (uint32_t i = 0; i < n; i++)
		if (!go_on(m, items[i].cont))
			return 0;
	return end_state(m);
}

uint32_t match_of_items(Match *m, const Item *items, uint32_t n)
{
	begin_state(m);
	for (uint32_t i = 0; i < n; i++)
		if (!add_item(m, items[i]))
			return 0;
	return end_state(m);
}

bool match_open(Match *m, const Grammar *g, uint32_t node, uint32_t *state)
{
	m->g = g;
	m->effort = (Effort){.at = -1};
	m->repeats = false;
	m->n_items = m->n_steps = 0;
	if (!GROW(&m->effort, m->states, m->states_cap, 1) || !GROW(&m->effort, m->conts, m->conts_cap, 1))
		return false;
	memset(m->states, 0, sizeof *m->states);
	memset(m->conts, 0, sizeof *m->conts);
	if (m->cont_table)
		memset(m->cont_table, 0, m->cont_slots * sizeof *m->cont_table);
	if (m->state_table)
		memset(m->state_table, 0, m->state_slots * sizeof *m->state_table);
	if (m->steps)
		memset(m->steps, 0, STEP_SLOTS * sizeof *m->steps);
	m->n_states = m->n_conts = 1;
	begin_state(m);
	*state = add_node_work(m, node, 0) ? end_state(m) : 0;
	return !m->effort.why;
}

bool match_reserve(Match *m)
{
	m->cont_slots = 2 * ROOM_CONTS;
	m->state_slots = 2 * ROOM_STATES;
	m->cont_table = malloc(m->cont_slots * sizeof *m->cont_table);
	m->state_table = malloc(m->state_slots * sizeof *m->state_table);
	m->steps = malloc(STEP_SLOTS * sizeof *m->steps); /* match_open clears these */
	if (!m->cont_table || !m->state_table || !m->steps || !GROW(&m->effort, m->states, m->states_cap, ROOM_STATES) ||
		!GROW(&m->effort, m->conts, m->conts_cap, ROOM_CONTS) || !GROW(&m->effort, m->items, m->items_cap, ROOM_ITEMS))
		return false;
	memset(m->states, 0, ROOM_STATES * sizeof *m->states);
	memset(m->conts, 0, ROOM_CONTS * sizeof *m->conts);
	memset(m->items, 0, ROOM_ITEMS * sizeof *m->items);
	return true;
}

size_t match_bytes(const Match *m)
{
	return m->conts_cap * sizeof *m->conts + m->items_cap * sizeof *m->items + m->states_cap * sizeof *m->states +
		m->cont_slots * sizeof *m->cont_table + m->state_slots * sizeof *m->state_table;
}

void match_close(Match *m)
{
	free(m->conts);
	free(m->cont_table);
	free(m->items);
	free(m->states);
	free(m->state_table);
	free(m->steps);
	free(m->fresh);
	free(m->work);
	free(m->seen);
	*m = (Match){0};
}

/* The same stack in another match. */
static uint32_t copy_cont(Match *to, const Match *from, uint32_t cont)
{
	uint32_t *way = NULL, cap = 0, n = 0, next = 0;
	for (; cont; cont = from->conts[cont].next) {
		if (!GROW(&to->effort, way, cap, n + 1))
			break;
		way[n++] = cont;
	}
	while (n > 0 && !to->effort.why) {
		const Cont c = from->conts[way[--n]];
		next = make_cont(to, (Cont){c.node, c.lo, c.hi, next});
	}
	free(way);
	return next;
}

bool match_forget(Match *m, uint32_t *state, bool *forgot)
{
	const size_t bytes = m->n_conts * sizeof *m->conts + m->n_items * sizeof *m->items +
		m->n_states * sizeof *m->states;
	*forgot = false;
	if (bytes < ROOM_BYTES || m->effort.why)
		return !m->effort.why;
	const State *s = &m->states[*state];
	Match other = {0};
	uint32_t start;
	if (!match_open(&other, m->g, NONE, &start)) {
		match_close(&other);
		return effort_refuse(&m->effort, "there is no memory", -1);
	}
	begin_state(&other);
	for (uint32_t i = 0; i < s->n && !other.effort.why; i++) {
		Item t = m->items[s->first + i];
		t.cont = copy_cont(&other, m, t.cont);
		add_item(&other, t);
	}
	other.fresh_whole = s->is_whole;
	other.fresh_item = s->ends_item;
	*state = end_state(&other);
	match_close(m);
	*m = other;
	*forgot = true;
	return !m->effort.why;
}
