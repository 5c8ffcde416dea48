/* test_prefix.c - the start of prompts that is kept: what a sequence reads was written by its own tokens at their
 * positions, whatever was kept, shared, evicted, set aside or cancelled before; and texts are those without a cache.
 *
 * The first device has no model: in its pages each line holds a hash of the salt and of all tokens up to its position,
 * and a step compares all lines before its own with the hashes of the sequence's tokens. A head that drafts has its own
 * lines, whose hash has the next token as well; a recurrent state holds the hash of all tokens that it has seen, and is
 * wrong where they are not those before a step. The device does its work at once, which a GPU may.
 */
#include "artifacts/ring.h"
#include "runtime/session_handle.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SLOTS = 6, VOCAB = 16, CONTEXT = 96, MAX_PAGES = 40, POOL = 3 * MAX_PAGES, MAX_PAGE = 16, MAX_ROWS = 128,
	LOADS = 8000, MOST_TOKENS = PLAN_MAX_VERIFY, SALTS = 3, MAX_SNAPSHOTS = 12 };

static const char *const salts[SALTS] = {NULL, "one", "another"};

typedef struct Known { /* what the test knows of a slot */
	int32_t tokens[2 * CONTEXT]; /* prompt, then the answer as the device draws it */
	int length, salt, read, at, end;
	bool is_there, is_running, has_ended, is_new, as_needed, is_aside, has_repetition;
	bool noted[2 * CONTEXT];
	int64_t ticket;
} Known;

typedef struct PrefixDevice {
	Device base; /* first */
	const Graph *graph;
	bool has_head, has_states;
	uint32_t states[SLOTS], snapshots[MAX_SNAPSHOTS];
	int each;
	uint64_t *random;
	uint32_t lines[POOL][MAX_PAGE], heads[POOL][MAX_PAGE];
	int32_t table[SLOTS][MAX_PAGES];
	Known slot[SLOTS];
	long n_aside, n_cloned, n_noted, n_kept, n_restored;
	int32_t words[SLOTS * PLAN_RING_ENTRIES * PLAN_RING_WORDS];
	int32_t step[4], row[4][MAX_ROWS], out_row[MAX_ROWS], seg[SLOTS * 4], acquire[SLOTS], limits[SLOTS * 8];
	float sampling[SLOTS * 8];
	int32_t pages[SLOTS * MAX_PAGES];
} PrefixDevice;

static int below(uint64_t *random, int n)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (int)((*random >> 33) % (uint64_t)n);
}

static uint32_t mix(uint32_t h, int32_t token) { return (h ^ (uint32_t)token) * 16777619u + 12345; }

/* What a line at the position holds: of the salt and tokens [0, position]. -1: of the salt alone. */
static uint32_t tag(const Known *k, int position)
{
	uint32_t h = 7u + (uint32_t)k->salt;
	for (int i = 0; i <= position; i++)
		h = mix(h, k->tokens[i]);
	return h;
}

static int place(const PrefixDevice *d, int slot, int position, int *line)
{
	const int page = d->graph->page, number = d->table[slot][position / page];
	assert_in_range(number, 0, d->graph->pages - 1);
	*line = position % page;
	return number;
}

/* next: the token after it; -1 = not known yet. */
static void write_line(PrefixDevice *d, int slot, int position, int32_t next)
{
	int line, page = place(d, slot, position, &line);
	d->lines[page][line] = tag(&d->slot[slot], position);
	d->heads[page][line] = mix(d->lines[page][line], next);
}

/* All lines before the position are of the sequence's own tokens; the head's but for the last. */
static void look_back(PrefixDevice *d, int slot, int position)
{
	const Known *k = &d->slot[slot];
	uint32_t h = 7u + (uint32_t)k->salt;
	assert_false(k->is_aside);
	for (int p = 0; p < position; p++) {
		int line, page = place(d, slot, p, &line);
		h = mix(h, k->tokens[p]);
		if (d->lines[page][line] != h)
			fail_msg("slot %d: position %d of %d, prompt of %d: other tokens", slot, p, position, k->length);
		if (d->has_head && p + 1 < position && d->heads[page][line] != mix(h, k->tokens[p + 1]))
			fail_msg("slot %d: position %d of %d, prompt of %d: another token after it", slot, p, position, k->length);
	}
}

static void draw(PrefixDevice *d, int slot, int position, bool goes_on)
{
	Known *k = &d->slot[slot];
	const bool is_full = position >= k->end;
	const int32_t token = 3 + below(d->random, 2);
	k->tokens[position] = token;
	ring_write(d->words + (slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS,
		(RingEntry){.position = position, .token = token, .done = is_full ? 2 : goes_on ? 4 : 0, .logprob = -1});
	k->at = position;
	k->has_ended = is_full;
}

/* A head first replaces its line of the position before the last token, then a step writes that token and drafts. */
static void answer(PrefixDevice *d, int slot)
{
	Known *k = &d->slot[slot];
	if (k->has_ended) { /* token 0 at the first positions */
		for (int i = 0; i < d->each; i++) {
			int line, page = place(d, slot, i, &line);
			d->lines[page][line] = d->heads[page][line] = 0xdead;
		}
		return;
	}
	const int from = k->at, made = 1 + below(d->random, d->each);
	if (d->has_head)
		write_line(d, slot, from - 1, k->tokens[from]);
	look_back(d, slot, from);
	for (int i = 1; i <= made && !k->has_ended; i++)
		draw(d, slot, from + i, i < made && from + i < k->end);
	for (int i = 0; i < d->each; i++) {
		int line, page = place(d, slot, from + i, &line);
		d->lines[page][line] = d->heads[page][line] = 0xbad; /* of a draft that was refused */
		if (from + i < k->at)
			write_line(d, slot, from + i, k->tokens[from + i + 1]);
	}
}

static void read_segment(PrefixDevice *d, const int32_t *s)
{
	Known *k = &d->slot[s[2]];
	const int grid = d->graph->prompt_grid, page = d->graph->page;
	if (k->is_new) { /* it begins anywhere on the grid and a page's end */
		assert_true(s[3] % grid == 0 && s[3] % page == 0 && s[3] < k->length);
		k->read = s[3];
		k->is_new = false;
	}
	assert_int_equal(s[3], k->read);
	assert_true(s[3] % grid == 0 && (s[3] + s[1] == k->length || (s[3] + s[1]) % grid == 0));
	look_back(d, s[2], s[3]);
	assert_true(!d->has_states || d->states[s[2]] == (s[3] ? tag(k, s[3] - 1) : 0));
	d->states[s[2]] = tag(k, s[3] + s[1] - 1);
	for (int p = s[3]; p < s[3] + s[1]; p++) {
		assert_int_equal(d->row[0][s[0] + p - s[3]], k->tokens[p]);
		write_line(d, s[2], p, p + 1 < k->length ? k->tokens[p + 1] : -1);
		k->noted[p] = true;
	}
	k->read += s[1];
	if (k->read < k->length)
		return;
	for (int p = 0; p < k->length && k->has_repetition; p++)
		assert_true(k->noted[p]);
	k->is_running = true;
	draw(d, s[2], k->length, false);
}

static AtlasStatus launch(Device *base, const StepSize *size, int n)
{
	PrefixDevice *d = (PrefixDevice *)base;
	const int most = d->graph->max_pages;
	d->each = size->each ? size->each : 1;
	for (int i = 0; i < size->segs && size->phase == PREFILL; i++) {
		const int slot = d->seg[i * 4 + 2];
		if (d->slot[slot].is_running)
			answer(d, slot); /* a mixed step */
		else
			read_segment(d, d->seg + i * 4);
	}
	for (int slot = 0; slot < SLOTS && size->phase == ACQUIRE; slot++)
		if (d->acquire[slot] == 1) {
			memcpy(d->table[slot], d->pages + slot * most, sizeof(int32_t) * (size_t)most);
			d->slot[slot].end = d->limits[slot * 8 + 3];
			d->states[slot] = 0;
		}
	for (int i = 0; i < n && (size->phase == DECODE || size->phase == VERIFY); i++)
		for (int row = 0; row < size->rows; row += d->each)
			answer(d, base->io.row_slot[row]);
	return ATLAS_OK;
}

static AtlasStatus wait_for(Device *base)
{
	(void)base;
	return ATLAS_OK;
}

static AtlasStatus look(Device *base, bool *is_busy)
{
	(void)base;
	*is_busy = false;
	return ATLAS_OK;
}

static AtlasStatus put_pages(Device *base, int slot, int first, int n)
{
	PrefixDevice *d = (PrefixDevice *)base;
	assert_true(first >= 0 && n > 0 && first + n <= d->graph->max_pages);
	memcpy(d->table[slot] + first, d->pages + slot * d->graph->max_pages + first, sizeof(int32_t) * (size_t)n);
	return ATLAS_OK;
}

static AtlasStatus copy_pages(Device *base, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	PrefixDevice *d = (PrefixDevice *)base;
	for (int i = 0; i < n; i++) {
		void *parts[] = {d->lines[pages[i]], d->heads[pages[i]]};
		for (int k = 0; k < 2; k++, bytes += sizeof d->lines[0])
			memcpy(is_back ? parts[k] : bytes, is_back ? bytes : parts[k], sizeof d->lines[0]);
	}
	d->n_aside += !is_back;
	return ATLAS_OK;
}

static AtlasStatus clone_page(Device *base, int32_t from, int32_t to)
{
	PrefixDevice *d = (PrefixDevice *)base;
	assert_true(from != to && from >= 0 && to >= 0 && from < d->graph->pages && to < d->graph->pages);
	memcpy(d->lines[to], d->lines[from], sizeof d->lines[0]);
	memcpy(d->heads[to], d->heads[from], sizeof d->heads[0]);
	d->n_cloned++;
	return ATLAS_OK;
}

static AtlasStatus note_prompt(Device *base, int slot, const int32_t *tokens, int n)
{
	PrefixDevice *d = (PrefixDevice *)base;
	Known *k = &d->slot[slot];
	assert_true(k->has_repetition && n <= k->length && memcmp(tokens, k->tokens, sizeof *tokens * (size_t)n) == 0);
	memset(k->noted, true, (size_t)n);
	d->n_noted++;
	return ATLAS_OK;
}

static AtlasStatus keep_states(Device *base, int slot, int position, int snapshot, bool is_back)
{
	PrefixDevice *d = (PrefixDevice *)base;
	assert_in_range(snapshot, 0, d->graph->snapshots - 1);
	assert_true(d->has_states && !d->slot[slot].is_running && position > 0 && position % d->graph->page == 0);
	if (is_back)
		d->states[slot] = d->snapshots[snapshot];
	else
		d->snapshots[snapshot] = d->states[slot];
	*(is_back ? &d->n_restored : &d->n_kept) += 1;
	return ATLAS_OK;
}

static void close_device(Device *base) { (void)base; } /* it is the test's */

static void begin(PrefixDevice *d, const Graph *g, int rows, uint64_t *random)
{
	static const DeviceOps ops = {.kind = "prefix", .launch = launch, .wait = wait_for, .look = look,
		.put_pages = put_pages, .copy_pages = copy_pages, .clone_page = clone_page, .note_prompt = note_prompt,
		.keep_states = keep_states, .close = close_device};
	memset(d, 0, sizeof *d);
	d->graph = g;
	d->random = random;
	d->has_head = g->verify_rows && !g->ngram_max;
	d->has_states = g->snapshots > 0;
	d->base.ops = &ops;
	d->base.page_bytes = 2 * sizeof d->lines[0];
	d->base.io = (StepIo){.step = d->step, .row_token = d->row[0], .row_slot = d->row[1], .row_pos = d->row[2],
		.row_next = d->row[3], .out_row = d->out_row, .n_out_rows = MAX_ROWS, .seg = d->seg, .acquire = d->acquire,
		.new_sampling = d->sampling, .new_limits = d->limits, .new_pages = d->pages, .ring = d->words};
	d->base.limits = (StepLimits){.prefill_rows = rows, .prefill_outs = 1 + below(random, SLOTS), .decode_rows = SLOTS,
		.ahead = 1 + below(random, 8), .row = 1 + below(random, 4)};
}

/* A plan without a model; ladders are of one rung. */
static AtlasPlan plan_of(int page, int grid, int each, int more_pages, Rung *rung)
{
	const int max_pages = (CONTEXT + each - 1 + page - 1) / page;
	*rung = (Rung){SLOTS, each};
	return (AtlasPlan){.artifact.graph = {.slots = SLOTS, .vocab = VOCAB, .max_context = CONTEXT, .page = page,
		.pages = max_pages + more_pages, .max_pages = max_pages, .prompt_grid = grid, .top_p = 1,
		.repetition_penalty = 1, .max_new_tokens = 4, .verify_rows = each > 1 ? each : 0, .ladder = rung,
		.n_ladder = each > 1}};
}

typedef struct Ask { int n, salt, max_new, use, n_tail; bool as_needed, has_repetition; int32_t tokens[CONTEXT]; } Ask;

static AtlasStatus ask(AtlasSession *s, PrefixDevice *d, const Ask *a, int *slot)
{
	const AtlasSampling sampling = {.struct_size = sizeof sampling, .top_p = 1,
		.repetition_penalty = a->has_repetition ? 1.5f : 1};
	const AtlasRequest r = {.struct_size = sizeof r, .tokens = a->tokens, .n_tokens = a->n, .sampling = &sampling,
		.max_new = a->max_new, .pages_as_needed = a->as_needed, .cache_salt = salts[a->salt], .prefix_use = a->use,
		.n_tail = a->n_tail};
	const AtlasStatus status = atlas_request_start(s, &r, slot);
	if (status != ATLAS_OK)
		return status;
	Known *k = &d->slot[*slot];
	*k = (Known){.length = a->n, .salt = a->salt, .is_there = true, .is_new = true, .as_needed = a->as_needed,
		.has_repetition = a->has_repetition};
	memcpy(k->tokens, a->tokens, sizeof *a->tokens * (size_t)a->n);
	return ATLAS_OK;
}

/* Of two letters, and of a few beginnings that come again and again. */
static void make_ask(Ask *a, uint64_t *random)
{
	uint64_t letters = 77 + (uint64_t)below(random, 3);
	const int same = below(random, CONTEXT);
	*a = (Ask){.n = 1 + below(random, below(random, 3) ? CONTEXT : 12), .salt = below(random, 4) ? 0
		: below(random, SALTS), .max_new = 1 + below(random, below(random, 3) ? 40 : 4),
		.n_tail = below(random, 3) ? 0 : below(random, 100),
		.use = below(random, 6) ? ATLAS_PREFIX_BOTH : below(random, 4), .as_needed = below(random, 3) > 0,
		.has_repetition = below(random, 3) == 0};
	for (int i = 0; i < a->n; i++)
		a->tokens[i] = 3 + (i < same ? below(&letters, 2) : below(random, 2));
}

/* A page is free, a node, or of one sequence; and pins are those of the sequences. */
static void check_books(const AtlasSession *s)
{
	const Prefix *x = s->prefix;
	int seen[POOL] = {0}, pins[POOL] = {0}, n = 0, unpinned = 0;
	for (int i = 0; i < s->n_free_pages; i++)
		seen[s->free_pages[i]]++;
	for (int slot = 0; slot < SLOTS; slot++) {
		const Sequence *q = &s->slots[slot];
		for (int i = 0; i < q->n_pages; i++)
			if (!x->nodes[q->pages[i]].is_there)
				seen[q->pages[i]]++;
		int i = q->n_chain;
		for (int node = q->node; i-- > 0; node = x->nodes[node].parent)
			pins[node]++;
	}
	for (int i = 0; i < s->graph->pages; i++) {
		if (x->nodes[i].is_there) {
			assert_int_equal(seen[i], 0);
			assert_int_equal(x->nodes[i].pins, pins[i]);
			n++;
			unpinned += pins[i] == 0;
			continue;
		}
		assert_int_equal(seen[i], 1);
	}
	assert_true(n == x->n && unpinned == x->n_unpinned);
	for (int i = 0; i < x->n_snapshots; i++) { /* one of a node, of its end; pinned by those that will go on from it */
		const PrefixSnapshot *p = &x->snapshots[i];
		int length = 0, held = 0;
		for (int node = p->node; node >= 0; node = x->nodes[node].parent)
			length += x->page;
		for (int slot = 0; slot < SLOTS; slot++)
			held += s->slots[slot].snapshot == i + 1;
		assert_true(p->pins == held);
		assert_true(p->node < 0 || (x->nodes[p->node].is_there && x->nodes[p->node].snapshot == i &&
			p->position == length));
	}
}

static void run_load(AtlasPlan *plan, PrefixDevice *d, uint64_t *random, AtlasSessionInfo *info)
{
	AtlasEvent events[SLOTS * MOST_TOKENS];
	AtlasError error;
	AtlasSession *s;
	Ask a;
	const int n_starts = 40, cancels = below(random, 2) ? 20 : 150;
	assert_int_equal(session_open_on(plan, &d->base, &s, &error), ATLAS_OK);
	assert_int_equal(session_keep_prefixes(s, NULL), ATLAS_OK);
	session_grow_by(s, below(random, 40));
	session_max_gap(s, below(random, 3) ? 0 : 1 + below(random, 64), 0);
	session_speculate(s, plan->artifact.graph.verify_rows > 0);
	(void)session_mix(s, below(random, 2) ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF, &error); /* as it can */
	for (int step = 0, idle = 0, n; step < n_starts || atlas_active(s); step++) {
		for (int i = below(random, 4), slot; step < n_starts && i > 0; i--) {
			make_ask(&a, random);
			const bool is_alone = atlas_active(s) == 0;
			const AtlasStatus status = ask(s, d, &a, &slot);
			assert_true(status == ATLAS_OK || ((status == ATLAS_NO_PAGES || status == ATLAS_NO_SLOT) && !is_alone));
		}
		for (int slot = 0; slot < SLOTS; slot++)
			if (below(random, d->slot[slot].is_running ? 150 : cancels) == 0 && atlas_cancel(s, slot) == ATLAS_OK)
				d->slot[slot].is_there = false;
		assert_int_equal(atlas_step(s, events, SLOTS * MOST_TOKENS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			d->slot[events[i].slot].is_there = events[i].finish == ATLAS_RUNNING;
		check_books(s);
		idle = n ? 0 : idle + 1;
		assert_true(idle < 3 * CONTEXT); /* a prompt has no more cells */
	}
	atlas_session_info(s, info);
	assert_true(info->free_pages == info->pages && info->aside == 0 && info->aside_bytes == 0);
	atlas_forget_prefixes(s);
	AtlasSessionInfo end = {.struct_size = sizeof end};
	atlas_session_info(s, &end);
	assert_true(end.snapshots_used == 0 && end.prefix_pages == 0 && s->n_free_pages == end.pages);
	atlas_session_close(s);
}

static void what_is_read_was_written_by_the_same_tokens(void **state)
{
	PrefixDevice *d = malloc(sizeof *d);
	long aside = 0, cloned = 0, noted = 0, evicted = 0, hits = 0, queries = 0, kept = 0, restored = 0;
	uint64_t random = 11;
	(void)state;
	for (int load = 0; load < LOADS; load++) {
		const int page = 4 << below(&random, 3), each = below(&random, 2) ? 2 + below(&random, 3) : 1;
		const int grid = below(&random, 4) ? 1 << below(&random, 6) : 4 + below(&random, 20);
		AtlasSessionInfo info = {.struct_size = sizeof info};
		Rung rung;
		AtlasPlan plan = plan_of(page, grid, each, 0, &rung);
		plan.artifact.graph.pages += below(&random, 3) ? below(&random, plan.artifact.graph.max_pages) : 0;
		plan.artifact.graph.ngram_max = 0;
		plan.artifact.graph.snapshots = below(&random, 3) ? 0 : 1 + below(&random, MAX_SNAPSHOTS);
		begin(d, &plan.artifact.graph, grid + below(&random, 64), &random);
		run_load(&plan, d, &random, &info);
		aside += d->n_aside;
		cloned += d->n_cloned;
		noted += d->n_noted;
		evicted += (long)info.prefix_evicted;
		hits += (long)info.prefix_hits;
		queries += (long)info.prefix_queries;
		kept += d->n_kept;
		restored += d->n_restored;
	}
	free(d);
	assert_true(aside > LOADS / 16 && cloned > LOADS && noted > LOADS / 6 && evicted > LOADS && hits > queries / 30);
	assert_true(kept > LOADS / 4 && restored > LOADS / 80);
}

/* What a prompt finds of another one ------------------------------------------------------------------------ */

/* Reads the prompt to its end, with an answer of one token; returns how many tokens were not read. */
static int read_alone(AtlasSession *s, PrefixDevice *d, const Ask *a)
{
	AtlasEvent events[SLOTS * MOST_TOKENS];
	int slot, n;
	assert_int_equal(ask(s, d, a, &slot), ATLAS_OK);
	while (atlas_active(s))
		assert_int_equal(atlas_step(s, events, SLOTS * MOST_TOKENS, &n), ATLAS_OK);
	return atlas_reused_tokens(s, slot);
}

/* Largest multiple of both, at most `most`. */
static int on_grid(int most, int page, int grid)
{
	while (most % page || most % grid)
		most--;
	return most;
}

/* Two prompts with so many tokens in common, at all lengths around borders: what is found follows from these alone. */
static void check_pair(int page, int grid, int each, int n_first, int same, int n, int salt)
{
	static PrefixDevice d;
	uint64_t random = 3;
	AtlasError error;
	AtlasSession *s;
	Rung rung;
	AtlasPlan plan = plan_of(page, grid, each, 30, &rung);
	Ask first = {.n = n_first, .max_new = 1}, second = {.n = n, .max_new = 1, .salt = salt};
	begin(&d, &plan.artifact.graph, grid + 8, &random);
	assert_int_equal(session_open_on(&plan, &d.base, &s, &error), ATLAS_OK);
	assert_int_equal(session_keep_prefixes(s, NULL), ATLAS_OK);
	for (int i = 0; i < CONTEXT; i++) {
		first.tokens[i] = 3 + i % 7;
		second.tokens[i] = i < same ? first.tokens[i] : 12;
	}
	assert_int_equal(read_alone(s, &d, &first), 0);
	const int both = same < n_first ? same : n_first, ahead = each > 1;
	int most = both - ahead < n - 1 ? both - ahead : n - 1;
	most = salt || most < 0 ? 0 : on_grid(most, page, grid);
	assert_int_equal(read_alone(s, &d, &second), most);
	assert_int_equal(read_alone(s, &d, &second), on_grid(n - 1 < n - ahead ? n - 1 : n - ahead, page, grid));
	check_books(s);
	atlas_session_close(s);
}

static void what_is_found_follows_from_the_tokens(void **state)
{
	static const int shapes[][3] = {{4, 4, 1}, {8, 16, 1}, {8, 8, 3}, {16, 4, 2}, {4, 12, 1}, {4, 6, 4}};
	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
		const int page = shapes[k][0], grid = shapes[k][1], each = shapes[k][2];
		for (int n_first = 1; n_first < 4 * 16; n_first += n_first % 16 < 14 && n_first % 16 > 1 ? 3 : 1)
			for (int same = 0; same <= n_first; same += 1 + same % 3)
				for (int n = same > 0 ? same : 1; n < same + 20; n += 1 + n % 5)
					check_pair(page, grid, each, n_first, same, n, 0);
		check_pair(page, grid, each, 60, 60, 64, 1);
	}
}

/* Many that begin alike and come at once: the first one is read, the others wait for it and read what is theirs. */
static void one_is_read_for_all_that_come_at_once(void **state)
{
	PrefixDevice *d = malloc(sizeof *d);
	uint64_t random = 5;
	AtlasEvent events[SLOTS * MOST_TOKENS];
	AtlasError error;
	AtlasSession *s;
	Rung rung;
	AtlasPlan plan = plan_of(8, 8, 1, 60, &rung);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	int n, slots[SLOTS];
	(void)state;
	begin(d, &plan.artifact.graph, MAX_ROWS, &random);
	d->base.limits.prefill_outs = SLOTS;
	assert_int_equal(session_open_on(&plan, &d->base, &s, &error), ATLAS_OK);
	assert_int_equal(session_keep_prefixes(s, NULL), ATLAS_OK);
	for (int i = 0; i < SLOTS; i++) {
		Ask a = {.n = 45 + i, .max_new = 3};
		for (int k = 0; k < a.n; k++)
			a.tokens[k] = k < 44 ? 3 + k % 5 : 8 + i;
		assert_int_equal(ask(s, d, &a, &slots[i]), ATLAS_OK);
	}
	while (atlas_active(s))
		assert_int_equal(atlas_step(s, events, SLOTS * MOST_TOKENS, &n), ATLAS_OK);
	for (int i = 0; i < SLOTS; i++)
		assert_int_equal(atlas_reused_tokens(s, slots[i]), i ? 40 : 0);
	int32_t tokens[45]; /* what a request would find now: whole cells, never all of it, and of its salt alone */
	for (int k = 0; k < 45; k++)
		tokens[k] = k < 44 ? 3 + k % 5 : 99;
	AtlasRequest r = {.struct_size = sizeof r, .tokens = tokens, .n_tokens = 45};
	assert_int_equal(atlas_kept_tokens(s, &r), 40);
	r.n_tokens = 40;
	assert_int_equal(atlas_kept_tokens(s, &r), 32);
	r.cache_salt = "another";
	assert_int_equal(atlas_kept_tokens(s, &r), 0);
	r.cache_salt = NULL;
	r.prefix_use = ATLAS_PREFIX_WRITE;
	assert_int_equal(atlas_kept_tokens(s, &r), 0);
	atlas_session_info(s, &info);
	assert_true(info.prefix_hits == 40 * (SLOTS - 1) && info.prefix_queries == 45 * SLOTS + 15);
	atlas_session_close(s);
	free(d);
}

/* Of a model with states a prompt goes on where they were kept: before its own last cell that is not whole, and where
 * it leaves one that began alike, from the third on. Of snapshots the one not in use for longest is taken. */
static void states_are_kept_where_prompts_part(void **state)
{
	static PrefixDevice d;
	uint64_t random = 5;
	AtlasError error;
	AtlasSession *s;
	Rung rung;
	AtlasPlan plan = plan_of(8, 8, 1, 60, &rung);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	(void)state;
	plan.artifact.graph.snapshots = 3;
	begin(&d, &plan.artifact.graph, 64, &random);
	assert_int_equal(session_open_on(&plan, &d.base, &s, &error), ATLAS_OK);
	assert_int_equal(session_keep_prefixes(s, NULL), ATLAS_OK);
	const struct { int same, n, other, reused, used; } rows[] = {
		{60, 60, 2, 0, 1},  /* kept at 56 */
		{60, 60, 2, 56, 1}, /* there again */
		{70, 70, 2, 56, 1}, /* a longer one: 64 is less than four pages further */
		{96, 96, 2, 56, 2}, /* and one that is kept at 88 */
		{40, 50, 4, 0, 3},  /* parts at 40: kept there and at 48, which takes the place of the first one, at 56 */
		{60, 60, 2, 40, 3}, /* so this begins at 40, and is kept nowhere */
		{40, 80, 5, 40, 3}, /* the third that begins like these, kept at 72 in the place of that at 88 */
		{96, 96, 2, 40, 3}, /* as this one shows, which is kept at 88 again */
		{9, 40, 6, 0, 3},   /* too few pages for a snapshot at 8; one at 32 */
		{31, 31, 2, 0, 3},  /* no whole prompt, and no place below 32 is kept */
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		Ask a = {.n = rows[i].n, .max_new = 1};
		for (int k = 0; k < a.n; k++)
			a.tokens[k] = k < rows[i].same ? 3 + k % 2 : 3 + rows[i].other;
		const int reused = read_alone(s, &d, &a);
		atlas_session_info(s, &info);
		if (reused != rows[i].reused || info.snapshots_used != rows[i].used)
			fail_msg("row %zu: %d tokens reused, %d snapshots", i, reused, info.snapshots_used);
		check_books(s);
	}
	atlas_session_close(s);
}

/* In a pool of one context a prompt that fills it is answered, whatever is kept, and so is the same one again. */
static void one_alone_always_fits(void **state)
{
	PrefixDevice *d = malloc(sizeof *d);
	uint64_t random = 5;
	AtlasEvent events[SLOTS * MOST_TOKENS];
	AtlasError error;
	AtlasSession *s;
	Rung rung;
	(void)state;
	for (int as_needed = 0; as_needed < 2; as_needed++)
		for (int each = 1; each < 3; each++) {
			AtlasPlan plan = plan_of(8, 8, each, 0, &rung);
			begin(d, &plan.artifact.graph, 32, &random);
			assert_int_equal(session_open_on(&plan, &d->base, &s, &error), ATLAS_OK);
			assert_int_equal(session_keep_prefixes(s, NULL), ATLAS_OK);
			session_grow_by(s, 0);
			session_speculate(s, each > 1);
			for (int round = 0, n, slot; round < 6; round++) {
				Ask a = {.n = round % 2 ? 90 : 60, .max_new = CONTEXT, .as_needed = as_needed};
				for (int k = 0; k < a.n; k++)
					a.tokens[k] = 3 + k % 5 + (round == 4 && k > 20);
				assert_int_equal(ask(s, d, &a, &slot), ATLAS_OK);
				for (int steps = 0; atlas_active(s); steps++) {
					assert_int_equal(atlas_step(s, events, SLOTS * MOST_TOKENS, &n), ATLAS_OK);
					assert_true(steps < 3 * CONTEXT);
					check_books(s);
				}
			}
			atlas_session_close(s);
		}
	free(d);
}

/* Texts of models, on both devices ------------------------------------------------------------------------- */

enum { TEXTS = 14, MOST_MADE = 24, MODEL_SLOTS = 4 };

typedef struct Made { int32_t token[MOST_MADE]; uint32_t logprob[MOST_MADE]; int n; AtlasFinish finish; } Made;
typedef struct Text { int32_t prompt[96]; int n, max_new; AtlasSampling sampling; Made alone, among; } Text;

static void take(Made *m, const AtlasEvent *e)
{
	assert_true(m->n < MOST_MADE);
	memcpy(&m->logprob[m->n], &e->logprob, sizeof e->logprob);
	m->token[m->n++] = e->token;
	m->finish = e->finish;
}

static AtlasStatus start_text(AtlasSession *s, const Text *t, bool is_alone, int *slot)
{
	const AtlasRequest r = {.struct_size = sizeof r, .tokens = t->prompt, .n_tokens = t->n, .sampling = &t->sampling,
		.max_new = t->max_new, .pages_as_needed = 1, .prefix_use = is_alone ? ATLAS_PREFIX_NONE : ATLAS_PREFIX_BOTH,
		.n_tail = t->n % 9};
	return atlas_request_start(s, &r, slot);
}

/* Half of them begin like one before, with a part of any length; some count the prompt's tokens. */
static void make_texts(Text *texts, uint64_t *random)
{
	for (int i = 0; i < TEXTS; i++) {
		Text *t = &texts[i];
		*t = (Text){.n = 1 + below(random, 96), .max_new = 1 + below(random, MOST_MADE)};
		fill_prompt(t->prompt, t->n, i);
		const Text *like = i && below(random, 4) ? &texts[below(random, i)] : NULL;
		for (int k = 0, same = like ? below(random, like->n) : 0; k < same && k < t->n; k++)
			t->prompt[k] = like->prompt[k];
		t->sampling = (AtlasSampling){.struct_size = sizeof t->sampling, .temperature = i % 2 ? 0.8f : 0, .top_p = 1,
			.repetition_penalty = i % 3 ? 1 : 1.3f, .seed = (uint64_t)i};
	}
}

static void answer_all(AtlasSession *s, Text *texts, bool is_alone)
{
	AtlasEvent events[MODEL_SLOTS * PLAN_MAX_VERIFY];
	int in_slot[MODEL_SLOTS], next = 0, n;
	while (next < TEXTS || atlas_active(s)) {
		for (int slot; next < TEXTS && atlas_active(s) < (is_alone ? 1 : MODEL_SLOTS); next++) {
			const AtlasStatus status = start_text(s, &texts[next], is_alone, &slot);
			if (status != ATLAS_OK) {
				assert_true(status == ATLAS_NO_PAGES && atlas_active(s) > 0);
				break;
			}
			in_slot[slot] = next;
		}
		assert_int_equal(atlas_step(s, events, MODEL_SLOTS * PLAN_MAX_VERIFY, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			take(is_alone ? &texts[in_slot[events[i].slot]].alone : &texts[in_slot[events[i].slot]].among, &events[i]);
	}
}

/* Tokens that were not read. */
static long check_texts(Rig *r, int grow, uint64_t seed)
{
	static Text texts[TEXTS];
	AtlasSessionInfo info = {.struct_size = sizeof info};
	uint64_t random = seed;
	make_texts(texts, &random);
	assert_int_equal(session_keep_prefixes(r->session, NULL), ATLAS_OK);
	answer_all(r->session, texts, true);
	session_grow_by(r->session, grow);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < TEXTS; i++)
			texts[i].among.n = 0;
		answer_all(r->session, texts, false);
		for (int i = 0; i < TEXTS; i++) {
			const Made *a = &texts[i].alone, *b = &texts[i].among;
			assert_true(b->n == a->n && b->finish == a->finish);
			assert_memory_equal(b->token, a->token, sizeof a->token[0] * (size_t)a->n);
			assert_memory_equal(b->logprob, a->logprob, sizeof a->logprob[0] * (size_t)a->n);
		}
	}
	atlas_session_info(r->session, &info);
	assert_true(info.free_pages == info.pages && info.aside == 0);
	return (long)info.prefix_hits;
}

static AtlasStatus open_cpu(Rig *r)
{
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1,
		.prefix_cache = ATLAS_PREFIX_OFF};
	return atlas_session_open(r->plan, &options, &r->session, &r->error);
}

static void small_cells(Options *o)
{
	o->page = 16;
	o->prompt_grid = 64;
	o->pool_tokens = 1024;
	o->snapshots = 3;
}

static void texts_are_those_without(void **state)
{
	long hits[2] = {0};
	Rig r;
	(void)state;
	for (int device = 0; device < 2; device++)
		for (int pool = 192; pool <= 768; pool *= 4) {
			memset(&r, 0, sizeof r);
			make_plan_of(&r.made, "llama", pool, -1);
			rig_made(&r);
			assert_int_equal(device ? open_cpu(&r) : open_fake(&r), ATLAS_OK);
			hits[0] += check_texts(&r, pool < 200 ? 0 : 32, (uint64_t)pool);
			rig_close(&r);
		}
	for (int device = 0; device < 2; device++)
		for (int speculates = 0; speculates < 2; speculates++) {
			rig_checkpoint_as(&r, "tests/fixtures/qwen3_5", small_cells);
			assert_int_equal(device ? open_cpu(&r) : open_fake(&r), ATLAS_OK);
			session_speculate(r.session, speculates);
			hits[1] += check_texts(&r, 32, 9);
			rig_close(&r);
		}
	assert_true(hits[0] > 500 && hits[1] > 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_read_was_written_by_the_same_tokens),
		cmocka_unit_test(what_is_found_follows_from_the_tokens),
		cmocka_unit_test(one_is_read_for_all_that_come_at_once),
		cmocka_unit_test(states_are_kept_where_prompts_part),
		cmocka_unit_test(one_alone_always_fits),
		cmocka_unit_test(texts_are_those_without),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
