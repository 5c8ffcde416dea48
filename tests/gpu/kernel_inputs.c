/* kernel_inputs.c - legal random operands: who sits in the step, page tables, sampling parameters, numbers.
 *
 * Index operands follow the words at the top of artifacts/ops.h. Keys and values that no row may see are NaN:
 * a kernel that reads one step too far shows it.
 */
#include "artifacts/numbers.h"
#include "artifacts/op_table.h"
#include "tests/gpu/kernel_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has(const Case *c, const char *field) { return case_field(c, field) >= 0; }
/* Is the history of a slot read, not only written? */
static bool attends(const Case *c) { return has(c, "o") && has(c, "page_table"); }

static void shuffle(Random *r, int32_t *a, int64_t n)
{
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = random_below(r, i + 1);
		int32_t x = a[i];
		a[i] = a[j];
		a[j] = x;
	}
}

static int32_t *permutation(Case *c, int64_t n)
{
	int32_t *a = case_alloc(c, n * 4);
	for (int64_t i = 0; i < n; i++)
		a[i] = (int32_t)i;
	shuffle(&c->random, a, n);
	return a;
}

/* The step ---------------------------------------------------------------------------------------- */

/* Positions of `count` rows of one slot: from the start, at the very end, soon after the start, anywhere. */
static int64_t first_position(Case *c, int64_t count, int64_t capacity)
{
	int kind = (int)random_below(&c->random, 5);
	int64_t last = capacity - count, soon = last < 600 ? last : 600;
	return kind == 0 ? 0 : kind == 1 ? last : random_below(&c->random, (kind == 2 ? soon : last) + 1);
}

/* Rows of a verify step: as many of each slot, from a multiple of that on, the last ones perhaps cut off by the step's
 * end. */
static bool seat_verify(Case *c, int64_t each, int64_t rows, int64_t slots, int64_t capacity)
{
	Rows *s = &c->step;
	int32_t *order = permutation(c, slots);
	int64_t n = 0, in_use = 0;
	if (rows % each)
		return false;
	for (int64_t t = 0; t < s->rows && capacity >= each; t += each) {
		if (n == slots || one_in(&c->random, 6))
			continue; /* idle ones */
		int64_t pos = first_position(c, each, capacity);
		for (int64_t j = 0; j < each; j++) {
			s->slot[t + j] = order[n];
			s->pos[t + j] = (int32_t)(pos + j);
			in_use += t + j < s->rows;
		}
		n++;
	}
	return in_use > 0;
}

/* Rows of distinct slots, one run each; in a decode step each run is one row and some rows are idle. */
static bool seat_rows(Case *c, int64_t rows, int64_t slots, int64_t capacity)
{
	Rows *s = &c->step;
	/* rows of a whole decode layer have a slot each, and so have those of drafts */
	bool apart = (attends(c) && has(c, "qkv")) || has(c, "readers") || has(c, "draft_len");
	bool decode = apart || (!has(c, "seg") && rows <= 4 * slots && one_in(&c->random, 2));
	int32_t *order = permutation(c, slots);
	int64_t t = 0, n_runs = decode ? slots : 1 + random_below(&c->random, slots < 4 ? slots : 4);
	for (int64_t i = 0; i < n_runs && t < s->rows; i++) {
		int64_t left = s->rows - t, count = decode ? 1 : i + 1 == n_runs ? left : 1 + random_below(&c->random, left);
		if (count > capacity)
			count = capacity;
		int64_t pos = first_position(c, count, capacity);
		if (decode && one_in(&c->random, 6) && t + 1 < s->rows)
			t++; /* an idle row in between */
		if (s->seg)
			memcpy(s->seg + 4 * s->segs, (int32_t[4]){(int32_t)t, (int32_t)count, order[i], (int32_t)pos}, 16);
		s->segs++;
		for (int64_t j = 0; j < count; j++, t++) {
			s->slot[t] = order[i];
			s->pos[t] = (int32_t)(pos + j);
		}
	}
	s->rows = (int)t;
	return t > 0 && t <= rows;
}

/* Outs: the last row of some slots, each slot once; without slots any row. Some are idle. */
static void seat_outs(Case *c, int64_t rows, int64_t outs)
{
	Rows *s = &c->step;
	int32_t *order = permutation(c, rows);
	int n = 0;
	for (int64_t o = 0; o < outs; o++)
		s->out_row[o] = -1;
	for (int64_t i = 0; i < rows && n < outs; i++) {
		int32_t t = order[i];
		bool last = s->slot && s->slot[t] >= 0;
		for (int64_t u = 0; last && u < s->rows; u++)
			last = s->slot[u] != s->slot[t] || s->pos[u] <= s->pos[t];
		if (s->slot && !last)
			continue;
		s->out_row[n++] = one_in(&c->random, 9) ? -1 : t;
	}
	if (!rows) /* an operand has a row of each out */
		n = (int)outs;
	s->outs = one_in(&c->random, 8) ? (int)random_below(&c->random, n + 1) : n;
}

bool case_rows(Case *c)
{
	int64_t rows = case_value(c, "ROWS", 0), outs = case_value(c, "OUTS", 0);
	int64_t slots = case_value(c, "SLOTS", has(c, "seg") ? case_value(c, "SEGS", 1) : 0);
	int64_t capacity = has(c, "page_table") ? case_value(c, "MAX_PAGES", 1) * case_value(c, "PAGE", 16) : 1000;
	Rows *s = &c->step;
	*s = (Rows){.flags = has(c, "counts") && one_in(&c->random, 8)};
	s->rows = (int)(one_in(&c->random, 3) ? 1 + random_below(&c->random, rows ? rows : 1) : rows);
	if (has(c, "seg"))
		s->seg = case_alloc(c, slots * 16);
	if (rows && slots) {
		s->slot = case_alloc(c, rows * 4);
		s->pos = case_alloc(c, rows * 4);
		for (int64_t t = 0; t < rows; t++)
			s->slot[t] = -1;
		const int64_t each = case_each(c);
		if (!(each ? seat_verify(c, each, rows, slots, capacity) : seat_rows(c, rows, slots, capacity)))
			return false;
	}
	if (rows && !slots && has(c, "row_pos")) { /* of rows whose slots nothing asks for */
		s->pos = case_alloc(c, rows * 4);
		for (int64_t t = 0; t < rows; t++)
			s->pos[t] = (int32_t)random_below(&c->random, one_in(&c->random, 4) ? 1 << 20 : 5000);
	}
	if (outs) {
		s->out_row = case_alloc(c, outs * 4);
		seat_outs(c, rows, outs);
	}
	return true;
}

/* Index operands ------------------------------------------------------------------------------------ */

/* A page for every page of positions the step's slots hold (all of their history when it is read, else only
 * what is written); the others point at pages whose contents are NaN. */
static bool fill_pages(Case *c, int32_t *table)
{
	int64_t slots = case_value(c, "SLOTS", 1), per_slot = case_value(c, "MAX_PAGES", 1);
	int64_t page = case_value(c, "PAGE", 0), pages = case_value(c, "PAGES", 0), used = 0;
	if (!pages || !c->step.slot) { /* acquire: any numbers */
		for (int64_t i = 0; i < slots * per_slot; i++)
			table[i] = (int32_t)random_below(&c->random, 1 << 20);
		return true;
	}
	bool reads = attends(c);
	int32_t *order = permutation(c, pages);
	for (int64_t i = 0; i < slots * per_slot; i++)
		table[i] = -1;
	for (int t = 0; t < c->step.rows; t++)
		if (c->step.slot[t] >= 0)
			for (int64_t p = reads ? 0 : c->step.pos[t] / page; p <= c->step.pos[t] / page; p++) {
				int32_t *entry = &table[c->step.slot[t] * per_slot + p];
				if (*entry < 0 && used + 1 >= pages)
					return false;
				if (*entry < 0)
					*entry = order[used++];
			}
	for (int64_t i = 0; i < slots * per_slot; i++)
		if (table[i] < 0)
			table[i] = order[pages - 1];
	return true;
}

/* kv, or the scales of its runs, which are positive. */
static void fill_kv(Case *c, const CaseBuffer *b, bool is_scale)
{
	int64_t per_slot = case_value(c, "MAX_PAGES", 1), page = case_value(c, "PAGE", 1), n_kv = case_value(c, "NKV", 1);
	int64_t width = b->shape[b->n_dims - 1];
	float *kv = b->before;
	const int32_t *table = c->buf[case_field(c, "page_table")].before;
	bool reads = attends(c), writes = has(c, "qkv"); /* its own position as well: what stands there is not read */
	for (int64_t i = 0; i < b->n; i++)
		kv[i] = reads ? NAN : 7;
	for (int t = 0; reads && t < c->step.rows; t++) {
		const bool follows = writes && t > 0 && c->step.slot[t - 1] == c->step.slot[t]; /* made by the kernel as well */
		for (int64_t p = 0; c->step.slot[t] >= 0 && !follows && p <= c->step.pos[t] - writes; p++)
			for (int64_t h = 0; h < 2 * n_kv; h++) {
				int64_t at = table[c->step.slot[t] * per_slot + p / page] * 2 * n_kv + h;
				float *line = kv + (at * page + p % page) * width;
				for (int64_t d = width - 1; isnan(line[0]) && d >= 0; d--) /* once: the first at last */
					line[d] = is_scale ? exp2f(random_normal(&c->random) / 2 - 1) : random_normal(&c->random);
			}
	}
}

BestOfPart case_best(const Case *c, const float *logits, int64_t out, int64_t p)
{
	int64_t v = case_value(c, "V", 1), parts = c->buf[case_field(c, "best_id")].shape[1], ids = 1;
	while ((v + ids - 1) / ids > parts)
		ids *= 2;
	int64_t first = p * ids, end = first + ids, valid = case_value(c, "N_VALID", v);
	BestOfPart b = {.id = (int)first};
	end = end < valid ? end : valid;
	for (int64_t i = first; i < end; i++)
		if (logits[out * v + i] > logits[out * v + b.id])
			b.id = (int)i;
	for (int64_t i = first; i < end; i++)
		b.sum += exp((double)logits[out * v + i] - logits[out * v + b.id]);
	return b;
}

/* What stands beside logits that a kernel draws from. */
static void fill_best(Case *c, void *a, bool ids)
{
	const CaseBuffer *best_id = &c->buf[case_field(c, "best_id")];
	const float *logits = c->buf[case_field(c, "logits")].before;
	int64_t parts = best_id->shape[1], v = case_value(c, "V", 1);
	for (int64_t i = 0; i < best_id->n; i++) {
		BestOfPart b = case_best(c, logits, i / parts, i % parts);
		if (ids) {
			((int32_t *)a)[i] = b.id;
			continue;
		}
		((float *)a)[2 * i] = b.sum > 0 ? logits[i / parts * v + b.id] : -INFINITY;
		((float *)a)[2 * i + 1] = (float)b.sum;
	}
}

static void fill_sampling(Case *c, float *a, int64_t slots)
{
	static const float temperature[] = {0, 0.7f, 1, 1.5f}, top_p[] = {1, 0.95f, 0.5f, 0.05f},
		min_p[] = {0, 0.02f, 0.3f}, repetition[] = {1, 1.1f, 1.3f}, presence[] = {0, 0.5f}, frequency[] = {0, 0.3f};
	for (int64_t s = 0; s < slots; s++) {
		float row[8] = {temperature[random_below(&c->random, 4)], top_p[random_below(&c->random, 4)],
			min_p[random_below(&c->random, 3)], repetition[random_below(&c->random, 3)],
			presence[random_below(&c->random, 2)], frequency[random_below(&c->random, 2)], 0, 0};
		memcpy(a + s * 8, row, sizeof row);
	}
}

static void fill_limits(Case *c, int32_t *a, int64_t slots)
{
	static const int32_t top_k[] = {0, 1, 5, 50, 3000, 1 << 30};
	for (int64_t s = 0; s < slots; s++) {
		int32_t row[8] = {top_k[random_below(&c->random, 6)], (int32_t)random_bits(&c->random),
			(int32_t)random_bits(&c->random), (int32_t)random_below(&c->random, 1200), 0, 0, 0, 0};
		if (one_in(&c->random, 2))
			row[7] = one_in(&c->random, 4) ? PLAN_RULES : 1 + (int32_t)random_below(&c->random, 20);
		row[7] |= one_in(&c->random, 4) ? 1 << 16 : 0;
		row[7] |= one_in(&c->random, 2) ? 1 << 17 : 0; /* masked */
		for (int i = 4; i < 7 && one_in(&c->random, 3); i++) /* shares of drafts that count whatever was drawn */
			row[i] = (int32_t)random_below(&c->random, (1 << 16) + 1);
		memcpy(a + s * 8, row, sizeof row);
	}
}

/* The row of logits by which row t draws; NULL when it has none. */
static const float *logits_of(const Case *c, int t)
{
	const int logits = case_field(c, "logits");
	int64_t row = t;
	for (int64_t o = 0; c->step.out_row && o < c->step.outs; o++)
		row = c->step.out_row[o] == t ? o : row;
	return logits < 0 || row >= c->buf[logits].shape[0] ? NULL
		: (const float *)c->buf[logits].before + row * case_value(c, "V", 1);
}

/* The token that a row of the slot, `skipped` ones after its first, would be most likely to draw, or has drawn; -1 when
 * the slot has none. */
static int32_t likely_token(const Case *c, int64_t slot, int64_t skipped)
{
	const int drawn = case_field(c, "drawn"), ids = case_field(c, "ids");
	for (int t = 0; c->step.slot && t < c->step.rows; t++) { /* acquire has no rows */
		if (c->step.slot[t] != slot || skipped-- > 0)
			continue;
		if (drawn >= 0 && c->tmpl->fields[drawn].role == OPERAND_IN)
			return ((const int32_t *)c->buf[drawn].before)[t];
		const float *l = logits_of(c, t);
		int64_t best = 0;
		if (!l)
			continue;
		for (int64_t i = 1; i < case_value(c, "N_VALID", case_value(c, "V", 1)); i++)
			best = l[i] > l[best] ? i : best;
		return ids >= 0 && c->buf[ids].present ? ((const int32_t *)c->buf[ids].before)[best] : (int32_t)best;
	}
	return -1;
}

/* Of every second column, of few, of one, of the likeliest alone or of all but it, of those with low scores, of all;
 * now and then of none. A row of masks for each of `each` rows of a slot, after `skipped` others. */
static void fill_masks(Case *c, int32_t *a, int64_t rows, int64_t each, int64_t skipped)
{
	const int64_t vocab = case_value(c, "V", 1), words = (vocab + 31) / 32;
	for (int64_t s = 0; s < rows; s++) {
		const int64_t one = random_below(&c->random, vocab);
		int64_t before = s % each + skipped;
		const int32_t likely = likely_token(c, s / each, before);
		const int kind = (int)random_below(&c->random, one_in(&c->random, 9) ? 8 : 7);
		const float *l = NULL;
		for (int t = 0; c->step.slot && t < c->step.rows && !l; t++)
			l = c->step.slot[t] == s / each && before-- == 0 ? logits_of(c, t) : NULL;
		for (int64_t v = 0; v < vocab; v++) {
			const bool may[] = {kind == 0 && one_in(&c->random, 2), kind == 1 && one_in(&c->random, 300), v == one,
				v == likely, v != likely, l ? l[v] < -3 : v % 7 == 0, true, false};
			a[s * words + v / 32] |= (int32_t)((uint32_t)may[kind] << v % 32);
		}
		a[(s + 1) * words - 1] |= vocab % 32 ? (int32_t)(~(uint32_t)0 << vocab % 32) : 0; /* bits of no token */
	}
}

/* Of tokens that differ, a few of which may be none: one of them the likeliest of a row. */
static void fill_rules(Case *c, int32_t *a, int64_t slots)
{
	static const float values[] = {0, 0, 3, -3, 100, -100, -INFINITY};
	const int64_t vocab = case_value(c, "VOCAB", case_value(c, "V", 1)), n = vocab > PLAN_RULES ? vocab : PLAN_RULES;
	int32_t *order = permutation(c, n);
	for (int64_t s = 0; s < slots; s++) {
		const int64_t first = random_below(&c->random, n), at = (first + random_below(&c->random, 20)) % n;
		const int32_t likely = likely_token(c, s, 0);
		for (int64_t i = 0; i < n && likely >= 0; i++)
			if (order[i] == likely) {
				order[i] = order[at];
				order[at] = likely;
				break;
			}
		for (int64_t i = 0; i < PLAN_RULES; i++) {
			int32_t *w = a + (s * PLAN_RULES + i) * PLAN_RULE_WORDS;
			w[0] = order[(first + i) % n];
			memcpy(w + 1, &values[random_below(&c->random, 7)], 4);
			w[2] = one_in(&c->random, 3) ? (int32_t)random_below(&c->random, 1200) : 0;
			w[3] = one_in(&c->random, 3);
		}
	}
}

static void fill_counts(Case *c, int32_t *a, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (one_in(&c->random, 4))
			a[i] = (int32_t)random_below(&c->random, 4) + (one_in(&c->random, 2) ? 1 << 30 : 0);
}

/* Where the state of slots says at which position a row stands: there, or, when its sequence has ended, at 0 whatever
 * the length is. */
static void fill_lengths(Case *c, int32_t *a, bool tokens)
{
	const Rows *s = &c->step;
	const int32_t *token = tokens ? a : c->buf[case_field(c, "slot_token")].before;
	int64_t slots = case_value(c, "SLOTS", 1), capacity = case_value(c, "MAX_PAGES", 1) * case_value(c, "PAGE", 1);
	for (int64_t i = 0; i < slots; i++)
		a[i] = (int32_t)random_below(&c->random, tokens ? 1000 : capacity);
	for (int t = 0; t < s->rows; t++) {
		int slot = t > 0 && s->slot[t - 1] == s->slot[t] ? -1 : s->slot[t]; /* of its first row */
		if (slot >= 0 && tokens && s->pos[t] == 0 && one_in(&c->random, 2))
			a[slot] = -1;
		if (slot >= 0 && !tokens && token[slot] >= 0)
			a[slot] = s->pos[t];
	}
}

/* Rows of drafts stand a few positions behind the slot's length, the row that is held at its last one; where each has
 * a mask of its own, the last one after all drafts, too. */
static void fill_draft_lengths(Case *c, int32_t *a)
{
	const Rows *s = &c->step;
	const bool later = has(c, "masks_later");
	const int64_t drafts = case_value(c, "DRAFTS", 1);
	for (int64_t i = 0; i < case_value(c, "SLOTS", 1); i++)
		a[i] = (int32_t)random_below(&c->random, 1000);
	for (int t = 0; t < s->rows; t++) {
		const int32_t behind = (int32_t)random_below(&c->random, drafts + later) - !later;
		const int32_t length = s->slot[t] < 0 ? -1 : s->pos[t] - behind;
		if (length >= 0 && !one_in(&c->random, 8))
			a[s->slot[t]] = length;
	}
}

/* Ascending tokens of columns: a stretch of the vocabulary, or with gaps between them. */
static void fill_ids(Case *c, int32_t *a, int64_t n)
{
	int64_t spare = case_value(c, "VOCAB", n) - n, at = one_in(&c->random, 4) ? spare : 0;
	for (int64_t i = 0; i < n; i++) {
		if (at < spare && one_in(&c->random, 3))
			at += 1 + random_below(&c->random, one_in(&c->random, 2) ? 3 : spare - at);
		a[i] = (int32_t)(i + (at < spare ? at : spare));
	}
}

/* What rows of a verify step have drawn, some of it no token; and their tokens, most of them what the row before
 * drew. */
static void fill_drawn(Case *c, int32_t *a, int64_t n, bool tokens)
{
	const int32_t *drawn = tokens ? c->buf[case_field(c, "drawn")].before : NULL;
	for (int64_t i = 0; i < n; i++) {
		a[i] = (int32_t)random_below(&c->random, case_value(c, "V", 100));
		if (!tokens && one_in(&c->random, 12))
			a[i] = -1;
		if (tokens && i && drawn[i - 1] >= 0 && !one_in(&c->random, 3))
			a[i] = drawn[i - 1];
	}
}

/* Each row's experts are different ones; those of rows that are not in use are any numbers. Sometimes all rows choose
 * the same. */
static void fill_experts(Case *c, int32_t *a, int64_t rows)
{
	int64_t active = c->attrs.n_active, experts = case_value(c, "EXPERTS", case_value(c, "FIRSTS", 2) - 1);
	const bool all_same = one_in(&c->random, 6);
	for (int64_t t = 0; t < rows; t++)
		for (int64_t j = 0; j < active; j++) {
			int32_t *const row = a + t * active;
			bool is_new = t && all_same;
			if (is_new)
				row[j] = a[j];
			while (!is_new) { /* low ids are more likely: some experts have many rows, some none */
				row[j] = (int32_t)random_below(&c->random, one_in(&c->random, 3) ? experts / 4 + 1 : experts);
				is_new = true;
				for (int64_t i = 0; i < j && active <= experts; i++)
					is_new &= row[i] != row[j];
			}
		}
}

/* Of ranks: which one it is, experts of all of them, or what a rank has of these, -1 for the others. */
static void fill_own(Case *c, const char *name, int32_t *a, int64_t n)
{
	const OpKind op = c->tmpl->op;
	for (int64_t i = 0; i < n && op == OP_own_experts; i++)
		a[i] = (int32_t)random_below(&c->random, strcmp(name, "rank") == 0 ? 8 : 8 * (int64_t)c->attrs.n_own);
	for (int64_t i = 0; i < n && (op == OP_group_own || op == OP_sum_own); i++)
		a[i] = one_in(&c->random, 2) ? -1 : a[i];
}

/* As group_rows makes them of such experts. */
static void fill_groups(Case *c, bool is_first)
{
	int64_t rows = case_value(c, "ROWS", 1), active = c->attrs.n_active, experts = case_value(c, "EXPERTS", 1);
	const int at = case_field(c, "first"), to = case_field(c, "pair");
	int32_t *expert = case_alloc(c, rows * active * 4), *first = c->buf[at].before, *pair = c->buf[to].before;
	if (c->buf[is_first ? to : at].made)
		return; /* with the other one */
	first = first ? first : (c->buf[at].before = case_alloc(c, (experts + 1) * 4));
	pair = pair ? pair : (c->buf[to].before = case_alloc(c, rows * active * 4));
	fill_experts(c, expert, rows);
	int32_t n = 0;
	for (int64_t e = 0; e < experts; e++) {
		first[e] = n;
		for (int64_t p = 0; p < c->step.rows * active; p++)
			if (expert[p] == e)
				pair[n++] = (int32_t)p;
	}
	first[experts] = n;
	while (n < rows * active)
		pair[n++] = -1;
}

static bool fill_integers(Case *c, const char *name, CaseBuffer *b)
{
	int32_t *a = b->before;
	const Rows *s = &c->step;
	bool token = strcmp(name, "slot_token") == 0;
	if (attends(c) && (token || strcmp(name, "slot_len") == 0))
		fill_lengths(c, a, token);
	else if (strcmp(name, "slot_len") == 0 && (has(c, "row_next") || has(c, "slot_draft")) && s->slot)
		fill_draft_lengths(c, a);
	else if (strcmp(name, "drawn") == 0 || (strcmp(name, "row_token") == 0 && has(c, "drawn")))
		fill_drawn(c, a, b->n, strcmp(name, "drawn") != 0);
	else if (strcmp(name, "step") == 0)
		memcpy(a, (int32_t[4]){s->rows, s->outs, s->segs, s->flags}, 16);
	else if (strcmp(name, "row_slot") == 0)
		memcpy(a, s->slot, (size_t)b->n * 4);
	else if (strcmp(name, "row_pos") == 0)
		memcpy(a, s->pos, (size_t)b->n * 4);
	else if (strcmp(name, "out_row") == 0)
		memcpy(a, s->out_row, (size_t)b->n * 4);
	else if (strcmp(name, "seg") == 0)
		memcpy(a, s->seg, (size_t)b->n * 4);
	else if (strcmp(name, "page_table") == 0 || strcmp(name, "new_pages") == 0)
		return fill_pages(c, a);
	else if (strcmp(name, "limits") == 0 || strcmp(name, "new_limits") == 0)
		fill_limits(c, a, b->shape[0]);
	else if (strcmp(name, "rules") == 0)
		fill_rules(c, a, b->shape[0]);
	else if (strcmp(name, "masks") == 0)
		fill_masks(c, a, b->shape[0], 1, 0);
	else if (strcmp(name, "masks_later") == 0)
		fill_masks(c, a, b->shape[0] * b->shape[1], b->shape[1], 1);
	else if (strcmp(name, "counts") == 0)
		fill_counts(c, a, b->n);
	else if (token) /* some sequences have ended */
		for (int64_t i = 0; i < b->n; i++)
			a[i] = one_in(&c->random, 5) ? -1 : (int32_t)random_below(&c->random, case_value(c, "V", 100));
	else if (strcmp(name, "slot_version") == 0)
		for (int64_t i = 0; i < b->n; i++)
			a[i] = (int32_t)random_below(&c->random, case_value(c, "DRAFTS", PLAN_MAX_VERIFY - 1) + 1);
	else if (strcmp(name, "best_id") == 0)
		fill_best(c, a, true);
	else if (strcmp(name, "ids") == 0)
		fill_ids(c, a, b->n);
	else if (strcmp(name, "rank") == 0 || (strcmp(name, "expert") == 0 && c->tmpl->op == OP_own_experts))
		fill_own(c, name, a, b->n);
	else if (strcmp(name, "expert") == 0) {
		fill_experts(c, a, b->shape[0]);
		fill_own(c, name, a, b->n);
	}
	else if (strcmp(name, "pair") == 0 || strcmp(name, "first") == 0)
		fill_groups(c, strcmp(name, "first") == 0);
	else if (op_table[c->tmpl->op].operands[op_operand(c->tmpl->op, name)].of < OF_own) /* 0 between launches */
		for (int64_t i = 0; i < b->n; i++)
			a[i] = (int32_t)random_below(&c->random,
				strcmp(name, "acquire") == 0 ? 2 : strcmp(name, "slot_len") == 0 ? 1000
				: case_value(c, "VOCAB", case_value(c, "V", 100)));
	return true;
}

/* Numbers ------------------------------------------------------------------------------------------- */

static bool is_product_weight(const char *name)
{
	static const char *const names[] = {"w", "w_narrow", "gate", "up", "router", "shared_gate", "gate_up", "down",
		"shared", "shared_down"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);
	return n > m && strcmp(name + n - m, end) == 0;
}

/* How codes of a product's weight are spread: over much of what the format has. */
static float code_spread(Dtype dtype)
{
	return dtype == DT_e4m3 ? 32.0f : dtype == DT_e2m1 ? 2.5f : dtype == DT_u4 ? 6.5f /* less its zero */ : 1;
}

/* Scales of a weight's codes: positive, of several powers of two, the smallest subnormal in e4m3; together they bring
 * sums over K to order one. Where blocks and rows have scales, those of blocks are of order one. */
static void fill_scales(Case *c, const char *name, CaseBuffer *b)
{
	char of[32], rows[48];
	bool is_row = ends_with(name, "_row_scale");
	snprintf(of, sizeof of, "%.*s", (int)(strlen(name) - strlen(is_row ? "_row_scale" : "_scale")), name);
	int weight = case_field(c, of);
	if (weight < 0 || !is_product_weight(of)) {
		for (int64_t i = 0; i < b->n; i++) /* keys of codes are no larger than others, so scores are of order one */
			((float *)b->before)[i] = 0.25f + 0.125f * (float)random_below(&c->random, 7);
		return;
	}
	const CaseBuffer *w = &c->buf[weight];
	snprintf(rows, sizeof rows, "%s_row_scale", of);
	bool two = !is_row && case_field(c, rows) >= 0 && c->buf[case_field(c, rows)].present;
	float unit = two ? 1 : 1 / (code_spread(w->dtype) * sqrtf((float)w->shape[w->n_dims - 1]));
	for (int64_t i = 0; i < b->n; i++) {
		float spread = ldexpf(1 + (float)random_below(&c->random, 8) / 8, (int)random_below(&c->random, 5) - 3);
		float scale = unit * (!is_row && one_in(&c->random, 40) ? 0x1p-9f : spread);
		((float *)b->before)[i] = b->dtype == DT_e4m3 ? fmaxf(scale, 0x1p-9f) : scale;
		if (b->dtype == DT_f32z) { /* of a scale that is an f16 */
			uint32_t bits;
			memcpy(&bits, (float *)b->before + i, sizeof bits);
			memcpy(&scale, &(uint32_t){bits & ~0x1fffu}, sizeof scale);
			((uint32_t *)b->before)[i] = numbers_zeroed(scale, (unsigned)random_below(&c->random, 17));
		}
	}
}

/* What the walk through chunks of rows reads of them (delta_walk): near enough to what is solved of keys in all
 * directions that a state stays of order one. */
static bool fill_chunks(Case *c, const char *name, CaseBuffer *b)
{
	const bool is_factors = strcmp(name, "factors") == 0, is_solved = strcmp(name, "solved") == 0;
	const int64_t width = b->n / b->shape[0];
	const float length = 1 / sqrtf((float)case_value(c, "DK", 1));
	if (!is_factors && !is_solved && strcmp(name, "scores") != 0)
		return false;
	for (int64_t i = 0; i < b->n; i++)
		((float *)b->before)[i] = NAN; /* rows that nothing was solved for */
	for (int s = 0; s < c->step.segs; s++)
		for (int64_t i = 0; i < c->step.seg[4 * s + 1] * width; i++) {
			const int64_t row = i / width % 64, j = i % 64;
			const float u = (float)random_below(&c->random, 1001) / 1000;
			float *x = (float *)b->before + c->step.seg[4 * s] * width + i;
			*x = is_factors ? (i % 4 == 3 ? -((float)row + u) / 20 : (0.1f + 0.9f * u) * length) : j > row ? 0
				: is_solved && j == row ? u : (is_solved ? 0.05f : 0.1f) * random_normal(&c->random);
		}
	return true;
}

/* Rows of no segment are no numbers: what reads them shall not let them into others. */
static void forget_other_rows(const Case *c, CaseBuffer *b)
{
	const int64_t width = b->n / b->shape[0];
	for (int64_t row = 0; row < b->shape[0]; row++) {
		bool is_read = false;
		for (int s = 0; s < c->step.segs; s++)
			is_read |= row >= c->step.seg[4 * s] && row < c->step.seg[4 * s] + c->step.seg[4 * s + 1];
		for (int64_t i = 0; i < width && !is_read; i++)
			((float *)b->before)[row * width + i] = NAN;
	}
}

static void fill_floats(Case *c, const char *name, CaseBuffer *b)
{
	float *a = b->before, scale = 1, offset = 0;
	bool is_norm = strcmp(name, "norm") == 0 || strstr(name, "_norm");
	if (fill_chunks(c, name, b))
		return;
	if (ends_with(name, "_scale")) {
		fill_scales(c, name, b);
		return;
	}
	if (ends_with(name, "_block")) { /* scales of e2m1 codes */
		for (int64_t i = 0; i < b->n; i++)
			a[i] = exp2f(random_normal(&c->random) / 2 - 1);
		if (strcmp(name, "kv_block") != 0)
			return;
	}
	for (int64_t i = 0; i < b->n && b->dtype == DT_u4; i++)
		a[i] = (float)random_below(&c->random, 16);
	if (b->dtype == DT_u4)
		return;
	if (is_product_weight(name)) /* so that sums over K are of order one */
		scale = dtype_bytes(b->dtype) >= 2 ? 1 / sqrtf((float)b->shape[b->n_dims - 1]) : code_spread(b->dtype);
	if (strcmp(name, "logits") == 0)
		scale = 3;
	if (strcmp(name, "x") == 0 && strcmp(c->tmpl->name, "stream_row_residual") == 0) /* f16 ends below 2^16 */
		scale = ldexpf(1, 24 * (int)random_below(&c->random, 3));
	if (is_norm) {
		scale = 0.2f;
		offset = c->attrs.norm_one ? 0 : 1;
	}
	for (int64_t i = 0; i < b->n; i++)
		a[i] = offset + scale * random_normal(&c->random);
	if (has(c, "factors") && (strcmp(name, "qkv") == 0 || strcmp(name, "x") == 0))
		forget_other_rows(c, b);
	/* some of those that are drawn from are no numbers */
	for (int64_t o = 0; strcmp(name, "logits") == 0 && has(c, "sampling") && b->n && o < b->shape[0]; o++)
		if (one_in(&c->random, 12))
			a[o * b->shape[1] + random_below(&c->random, b->shape[1])] = one_in(&c->random, 2) ? NAN : INFINITY;
	if (strcmp(name, "inv_freq") == 0)
		for (int64_t i = 0; i < b->n; i++)
			a[i] = powf(10000, -(float)i / (float)b->n);
	else if (strcmp(name, "sampling") == 0 || strcmp(name, "new_sampling") == 0)
		fill_sampling(c, a, b->shape[0]);
	else if (strcmp(name, "kv") == 0)
		fill_kv(c, b, false);
	else if (strcmp(name, "kv_block") == 0)
		fill_kv(c, b, true);
	else if (strcmp(name, "best") == 0)
		fill_best(c, a, false);
}

static bool make(Case *c, int field)
{
	CaseBuffer *b = &c->buf[field];
	if (b->made)
		return true;
	b->made = true;
	if (!b->before)
		b->before = case_alloc(c, b->n * 4);
	if (b->dtype == DT_i32)
		return fill_integers(c, c->tmpl->fields[field].name, b);
	fill_floats(c, c->tmpl->fields[field].name, b);
	return true;
}

bool case_operand(Case *c, int field)
{
	/* what an operand is made from comes first, whatever the order of the fields */
	static const struct { const char *name, *needs; } order[] = {{"kv", "page_table"}, {"kv_block", "page_table"},
		{"best", "logits"}, {"best_id", "logits"}, {"slot_len", "slot_token"}, {"row_token", "drawn"},
		{"rules", "logits"}, {"rules", "ids"}, {"rules", "drawn"}, {"masks", "logits"}, {"masks_later", "logits"}};
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
		int needs = case_field(c, order[i].needs);
		if (strcmp(c->tmpl->fields[field].name, order[i].name) == 0 && needs >= 0 && c->buf[needs].present &&
			c->tmpl->fields[needs].role != OPERAND_OUT && !make(c, needs))
			return false;
	}
	return make(c, field);
}
