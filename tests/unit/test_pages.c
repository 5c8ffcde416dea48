/* test_pages.c - KV pages that are taken as needed: over many loads in tight pools nothing is lost, overwritten, or
 * waits for ever; and texts are those that each prompt has alone.
 *
 * The first device has no model: in its pages each line says which sequence and position wrote it, and a step looks at
 * all lines before its own. It does its work at once, which a GPU may.
 */
#include "artifacts/ring.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SLOTS = 6, VOCAB = 16, CONTEXT = 96, MAX_PAGES = 40, POOL = 3 * MAX_PAGES, MAX_PAGE = 16, MAX_ROWS = 128,
	LOADS = 12000, MOST_TOKENS = PLAN_MAX_VERIFY };

typedef struct Known { /* what the device knows of a slot */
	int sequence;        /* its number; 0 = none was started yet */
	int length, read;    /* of its prompt */
	int at, end;         /* position of its last token; one from which on none is drawn */
	bool is_running, has_ended; /* the second on the device alone */
	bool as_needed, is_aside;
	int64_t ticket;
} Known;

typedef struct PageDevice {
	Device base; /* first */
	const Graph *graph;
	int each; /* rows of a slot in the step at hand */
	uint64_t *random;
	int32_t lines[POOL][MAX_PAGE];
	int32_t table[SLOTS][MAX_PAGES];
	Known slot[SLOTS];
	int next_sequence;
	int64_t next_ticket;
	bool has_read; /* prompts alone, in this step */
	long n_aside, n_back, n_grown, n_mixed;
	int32_t words[SLOTS * PLAN_RING_ENTRIES * PLAN_RING_WORDS];
	int32_t step[4], row[4][MAX_ROWS], out_row[MAX_ROWS], seg[SLOTS * 4], acquire[SLOTS], limits[SLOTS * 8];
	float sampling[SLOTS * 8];
	int32_t pages[SLOTS * MAX_PAGES];
} PageDevice;

static int below(uint64_t *random, int n)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (int)((*random >> 33) % (uint64_t)n);
}

static int32_t *line_of(PageDevice *d, int slot, int position)
{
	const int page = d->graph->page, number = d->table[slot][position / page];
	assert_in_range(number, 0, d->graph->pages - 1);
	return &d->lines[number][position % page];
}

static int32_t tag(const PageDevice *d, int slot, int position) { return d->slot[slot].sequence * 1024 + position; }

/* All lines before the position are the sequence's own. */
static void look_back(PageDevice *d, int slot, int position)
{
	assert_false(d->slot[slot].is_aside);
	for (int p = 0; p < position; p++)
		if (*line_of(d, slot, p) != tag(d, slot, p))
			fail_msg("slot %d, sequence %d: position %d has what sequence %d wrote at %d", slot,
				d->slot[slot].sequence, p, *line_of(d, slot, p) / 1024, *line_of(d, slot, p) % 1024);
}

static void draw(PageDevice *d, int slot, int position, bool goes_on)
{
	const bool is_full = position >= d->slot[slot].end;
	ring_write(d->words + (slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS,
		(RingEntry){.position = position, .token = 3 + position % 7, .done = is_full ? 2 : goes_on ? 4 : 0,
			.logprob = -1});
	d->slot[slot].at = position;
	d->slot[slot].has_ended = is_full;
}

/* A step of a slot: it writes the last token and as many drafts, of which chance says how many count. */
static void answer(PageDevice *d, int slot)
{
	Known *k = &d->slot[slot];
	if (k->has_ended) { /* it reads token 0 at position 0 */
		*line_of(d, slot, 0) = -1;
		return;
	}
	const int from = k->at, made = 1 + below(d->random, d->each);
	look_back(d, slot, from);
	for (int i = 0; i < d->each; i++)
		if (from + i < k->end + d->each - 1)
			*line_of(d, slot, from + i) = tag(d, slot, from + i);
	for (int i = 1; i <= made && !k->has_ended; i++)
		draw(d, slot, from + i, i < made && from + i < k->end);
}

/* Of a mixed step the first segments are the last tokens of those that run. */
static void read_prompts(PageDevice *d, const StepSize *size)
{
	d->has_read = !d->slot[d->seg[2]].is_running; /* of prompts alone: all of a step's answers come first */
	for (int i = 0; i < size->segs; i++) {
		const int32_t *s = d->seg + i * 4;
		Known *k = &d->slot[s[2]];
		if (k->is_running) {
			assert_true(s[1] == 1 && s[3] == k->at && d->each == 1 && !k->has_ended);
			answer(d, s[2]);
			d->n_mixed++;
			continue;
		}
		assert_int_equal(s[3], k->read);
		look_back(d, s[2], s[3]);
		for (int p = s[3]; p < s[3] + s[1]; p++)
			*line_of(d, s[2], p) = tag(d, s[2], p);
		k->read += s[1];
		if (k->read == k->length) {
			k->is_running = true;
			draw(d, s[2], k->length, false);
		}
	}
}

static AtlasStatus launch(Device *base, const StepSize *size, int n)
{
	PageDevice *d = (PageDevice *)base;
	const int most = d->graph->max_pages;
	assert_true(size->each == (size->phase == VERIFY ? ladder_rows(d->graph, size->rows / size->each) : 0));
	d->each = size->each ? size->each : 1;
	if (size->phase == PREFILL)
		read_prompts(d, size);
	for (int slot = 0; slot < SLOTS && size->phase == ACQUIRE; slot++)
		if (d->acquire[slot] == 1) {
			memcpy(d->table[slot], d->pages + slot * most, sizeof(int32_t) * (size_t)most);
			d->slot[slot].sequence = ++d->next_sequence;
			d->slot[slot].end = d->limits[slot * 8 + 3];
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
	PageDevice *d = (PageDevice *)base;
	assert_true(first >= 0 && n > 0 && first + n <= d->graph->max_pages);
	memcpy(d->table[slot] + first, d->pages + slot * d->graph->max_pages + first, sizeof(int32_t) * (size_t)n);
	d->n_grown++;
	return ATLAS_OK;
}

/* The slot of the sequence that wrote the line; ends the test if there is none. */
static int owner_of(const PageDevice *d, int32_t line)
{
	for (int slot = 0; slot < SLOTS; slot++)
		if (d->slot[slot].ticket && d->slot[slot].as_needed && d->slot[slot].sequence == line / 1024)
			return slot;
	fail_msg("there is no sequence %d", line / 1024);
	return -1;
}

/* Who is set aside is the youngest of those that have pages, and never the oldest; who comes back is the oldest of
 * those that are set aside. */
static void check_order(const PageDevice *d, int slot, bool is_back)
{
	const int64_t ticket = d->slot[slot].ticket;
	bool is_oldest = true;
	for (int i = 0; i < SLOTS; i++) {
		const Known *k = &d->slot[i];
		if (!k->ticket || !k->as_needed || i == slot)
			continue;
		is_oldest &= k->ticket > ticket;
		if (k->read && k->is_aside == is_back) /* one that has read nothing comes and goes without a copy */
			assert_true(is_back ? k->ticket > ticket : k->ticket < ticket);
	}
	assert_true(is_back || !is_oldest);
}

static AtlasStatus copy_pages(Device *base, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	PageDevice *d = (PageDevice *)base;
	int32_t line;
	memcpy(&line, is_back ? bytes : (const uint8_t *)d->lines[pages[0]], sizeof line);
	const int slot = owner_of(d, line);
	assert_true(d->slot[slot].is_aside == is_back);
	check_order(d, slot, is_back);
	for (int i = 0; i < n; i++) {
		uint8_t *mine = bytes + (size_t)i * sizeof d->lines[0], *page = (uint8_t *)d->lines[pages[i]];
		memcpy(is_back ? page : mine, is_back ? mine : page, sizeof d->lines[0]);
	}
	d->slot[slot].is_aside = !is_back;
	*(is_back ? &d->n_back : &d->n_aside) += 1;
	return ATLAS_OK;
}

static void close_device(Device *base) { (void)base; } /* it is the test's */

static void begin(PageDevice *d, const Graph *g, int rows, uint64_t *random)
{
	static const DeviceOps ops = {.kind = "pages", .launch = launch, .wait = wait_for, .look = look,
		.put_pages = put_pages, .copy_pages = copy_pages, .close = close_device};
	memset(d, 0, sizeof *d);
	d->graph = g;
	d->random = random;
	d->base.ops = &ops;
	d->base.page_bytes = sizeof d->lines[0];
	d->base.io = (StepIo){.step = d->step, .row_token = d->row[0], .row_slot = d->row[1], .row_pos = d->row[2],
		.row_next = d->row[3], .out_row = d->out_row, .n_out_rows = MAX_ROWS, .seg = d->seg, .acquire = d->acquire,
		.new_sampling = d->sampling, .new_limits = d->limits, .new_pages = d->pages, .ring = d->words};
	d->base.limits = (StepLimits){.prefill_rows = rows, .prefill_outs = 1 + below(random, SLOTS), .decode_rows = SLOTS,
		.ahead = 1 + below(random, 8), .row = 1 + below(random, 4)};
}

typedef struct Load {
	AtlasSession *session;
	PageDevice *d;
	uint64_t *random;
	int n_for_life; /* of five sequences so many have their pages for life */
	int made[SLOTS], most[SLOTS];
	int64_t last_oldest; int idle; /* ticket of the oldest as needed, and how long it has waited beside free pages */
	long refused;
} Load;

static void start_one(Load *l)
{
	static int32_t tokens[CONTEXT];
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	int slot;
	AtlasRequest r = {.struct_size = sizeof r, .tokens = tokens, .n_tokens = 1 + below(l->random, below(l->random, 2)
		? CONTEXT : 12), .sampling = &greedy, .max_new = 1 + below(l->random, below(l->random, 3) ? CONTEXT : 4),
		.pages_as_needed = below(l->random, 5) >= l->n_for_life, .steps_ahead = below(l->random, 4)};
	const bool is_alone = atlas_active(l->session) == 0;
	const AtlasStatus status = atlas_request_start(l->session, &r, &slot);
	if (status != ATLAS_OK) {
		assert_true((status == ATLAS_NO_PAGES || status == ATLAS_NO_SLOT) && !is_alone);
		l->refused++;
		return;
	}
	Known *k = &l->d->slot[slot];
	*k = (Known){.length = r.n_tokens, .as_needed = r.pages_as_needed, .ticket = ++l->d->next_ticket};
	l->made[slot] = 0;
	l->most[slot] = r.max_new < CONTEXT - r.n_tokens + 1 ? r.max_new : CONTEXT - r.n_tokens + 1;
}

/* Free pages and those of the slots are all there are; a page is of one slot. */
static void check_books(const Load *l)
{
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(l->session, &info);
	int aside = 0;
	for (int slot = 0; slot < SLOTS; slot++)
		aside += l->d->slot[slot].ticket && l->d->slot[slot].is_aside;
	assert_in_range(info.free_pages, 0, info.pages);
	assert_true(info.aside >= aside); /* those that had read nothing yet leave no bytes */
	assert_true(aside || info.aside_bytes == 0);
	assert_true(info.aside_bytes <= (int64_t)(SLOTS - 1) * l->d->graph->max_pages * l->d->base.page_bytes);
}

/* While pages are free, the oldest as needed, if it was not set aside when it was younger than others, has a token in
 * each step of answers, but for those on their way before it joins. */
static void check_oldest(Load *l, const AtlasEvent *events, int n)
{
	AtlasSessionInfo info = {.struct_size = sizeof info};
	int oldest = -1;
	atlas_session_info(l->session, &info);
	for (int slot = 0; slot < SLOTS; slot++) {
		const Known *k = &l->d->slot[slot];
		if (k->ticket && k->as_needed && k->is_running && (oldest < 0 || k->ticket < l->d->slot[oldest].ticket))
			oldest = slot;
	}
	bool has_token = l->d->has_read || info.free_pages < 2 || oldest < 0;
	for (int i = 0; i < n && oldest >= 0; i++)
		has_token |= events[i].slot == oldest;
	has_token |= oldest >= 0 && (l->d->slot[oldest].is_aside || l->d->slot[oldest].ticket != l->last_oldest);
	l->idle = has_token ? 0 : l->idle + 1;
	l->last_oldest = oldest < 0 ? 0 : l->d->slot[oldest].ticket;
	l->d->has_read = false;
	assert_true(l->idle <= l->d->base.limits.ahead + 1);
}

static void end(Load *l, int slot) { l->d->slot[slot].ticket = 0; }

static void run_load(AtlasPlan *plan, PageDevice *d, uint64_t *random, long *refused)
{
	AtlasEvent events[SLOTS * MOST_TOKENS];
	AtlasError error;
	Load l = {.d = d, .random = random, .n_for_life = below(random, 2) ? below(random, 4) : 0};
	const int n_starts = 40, all = plan->artifact.graph.pages, cancels = below(random, 2) ? 20 : 150;
	AtlasSessionInfo info = {.struct_size = sizeof info};
	assert_int_equal(session_open_on(plan, &d->base, &l.session, &error), ATLAS_OK);
	session_grow_by(l.session, below(random, 40));
	session_max_gap(l.session, below(random, 3) ? 0 : 1 + below(random, 64), 0);
	session_speculate(l.session, plan->artifact.graph.verify_rows > 0);
	(void)session_mix(l.session, below(random, 2) ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF, &error); /* as it can */
	for (int step = 0, idle = 0; step < n_starts || atlas_active(l.session); step++) {
		int n;
		for (int i = below(random, 4); step < n_starts && i > 0; i--)
			start_one(&l);
		for (int slot = 0; slot < SLOTS; slot++)
			if (below(random, d->slot[slot].is_running ? 150 : cancels) == 0 &&
				atlas_cancel(l.session, slot) == ATLAS_OK)
				end(&l, slot);
		assert_int_equal(atlas_step(l.session, events, SLOTS * MOST_TOKENS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			const int slot = events[i].slot;
			l.made[slot]++;
			assert_true(l.made[slot] <= l.most[slot]);
			assert_true((events[i].finish == ATLAS_LENGTH) == (l.made[slot] == l.most[slot]));
			if (events[i].finish != ATLAS_RUNNING)
				end(&l, slot);
		}
		check_books(&l);
		check_oldest(&l, events, n);
		idle = n ? 0 : idle + 1;
		assert_true(idle < 3 * CONTEXT); /* a prompt has no more cells */
	}
	atlas_session_info(l.session, &info);
	assert_true(info.free_pages == all && info.aside == 0 && info.aside_bytes == 0);
	*refused += l.refused;
	atlas_session_close(l.session);
}

static void nothing_is_lost_in_tight_pools(void **state)
{
	PageDevice *d = malloc(sizeof *d);
	long aside = 0, back = 0, grown = 0, refused = 0, mixed = 0;
	uint64_t random = 7;
	(void)state;
	for (int load = 0; load < LOADS; load++) {
		const int page = 4 << below(&random, 3), each = below(&random, 2) ? 2 + below(&random, 3) : 1;
		const int max_pages = (CONTEXT + each - 1 + page - 1) / page, grid = 1 << below(&random, 6);
		const int fewer = 1 + below(&random, each), until = fewer < each ? 1 + below(&random, SLOTS - 1) : SLOTS;
		Rung ladder[] = {{until, each}, {SLOTS, fewer}};
		AtlasPlan plan = {.artifact.graph = {.slots = SLOTS, .vocab = VOCAB, .max_context = CONTEXT, .page = page,
			.pages = max_pages + below(&random, max_pages), .max_pages = max_pages, .prompt_grid = grid, .top_p = 1,
			.repetition_penalty = 1, .max_new_tokens = 4, .verify_rows = each > 1 ? each : 0,
			.ladder = ladder, .n_ladder = each == 1 ? 0 : until < SLOTS ? 2 : 1}};
		begin(d, &plan.artifact.graph, grid + below(&random, 64), &random);
		run_load(&plan, d, &random, &refused);
		aside += d->n_aside;
		back += d->n_back;
		grown += d->n_grown;
		mixed += d->n_mixed;
	}
	free(d);
	assert_true(aside > LOADS / 6 && back > LOADS / 6 && grown > 3 * LOADS && refused > LOADS && mixed > LOADS);
}

static int start_of(AtlasSession *s, PageDevice *d, int n, int max_new, bool as_needed)
{
	static const int32_t tokens[CONTEXT];
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	int slot;
	assert_int_equal(atlas_request_start(s, &(AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = tokens,
		.n_tokens = n, .sampling = &greedy, .max_new = max_new, .pages_as_needed = as_needed}, &slot), ATLAS_OK);
	d->slot[slot] = (Known){.length = n};
	return slot;
}

/* All pages are for life of others: the oldest as needed waits, and goes on as soon as one of them is cancelled, in the
 * middle of what another one answers. */
static void who_waits(bool mixes)
{
	PageDevice *d = malloc(sizeof *d);
	AtlasEvent events[SLOTS];
	AtlasSession *s;
	AtlasError error;
	uint64_t random = 1;
	int n, made[SLOTS] = {0};
	AtlasPlan plan = {.artifact.graph = {.slots = SLOTS, .vocab = VOCAB, .max_context = 32, .page = 4, .pages = 12,
		.max_pages = 8, .prompt_grid = 4, .top_p = 1, .repetition_penalty = 1, .max_new_tokens = 4}};
	begin(d, &plan.artifact.graph, 8, &random);
	d->base.limits.prefill_outs = SLOTS;
	assert_int_equal(session_open_on(&plan, &d->base, &s, &error), ATLAS_OK);
	session_grow_by(s, 0);
	session_max_gap(s, 4, 0);
	assert_int_equal(session_mix(s, mixes ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF, &error), ATLAS_OK);
	const int needy = start_of(s, d, 4, 20, true), other = start_of(s, d, 4, 21, false);
	const int waiting = start_of(s, d, 20, 1, false);
	for (int i = 0; i < 4; i++) { /* both prompts, and what is for the others, in turns or at once */
		assert_int_equal(atlas_step(s, events, SLOTS, &n), ATLAS_OK);
		for (int k = 0; k < n; k++)
			made[events[k].slot]++;
	}
	assert_true(made[needy] == 1 && made[other] > 1 && made[other] < 8 && made[waiting] == 0);
	assert_int_equal(atlas_cancel(s, waiting), ATLAS_OK);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(atlas_step(s, events, SLOTS, &n), ATLAS_OK);
		for (int k = 0; k < n; k++)
			made[events[k].slot]++;
	}
	assert_true(made[needy] > 8 && made[other] < 21 && (d->n_mixed > 0) == mixes);
	atlas_session_close(s);
	free(d);
}

static void who_waits_goes_on_at_once(void **state)
{
	(void)state;
	who_waits(false);
	who_waits(true);
}

/* Texts beside others ---------------------------------------------------------------------------------- */

enum { TEXTS = 12, MOST_MADE = 110 };

typedef struct Made { int32_t token[MOST_MADE]; uint32_t logprob[MOST_MADE]; int n; AtlasFinish finish; } Made;
typedef struct Text { int32_t prompt[64]; int n, max_new; AtlasSampling sampling; Made alone, beside; } Text;

static void take(Made *m, const AtlasEvent *e)
{
	assert_true(m->n < MOST_MADE);
	memcpy(&m->logprob[m->n], &e->logprob, sizeof e->logprob);
	m->token[m->n++] = e->token;
	m->finish = e->finish;
}

static AtlasStatus start_text(AtlasSession *s, const Text *t, bool as_needed, int *slot)
{
	const AtlasRequest r = {.struct_size = sizeof r, .tokens = t->prompt, .n_tokens = t->n, .sampling = &t->sampling,
		.max_new = t->max_new, .pages_as_needed = as_needed};
	return atlas_request_start(s, &r, slot);
}

/* All texts through the slots, as they come free, one in eight cancelled and started again. */
static void answer_beside(AtlasSession *s, Text *texts, int slots, uint64_t *random)
{
	AtlasEvent events[4 * PLAN_MAX_VERIFY];
	int next = 0, n, in_slot[4];
	while (next < TEXTS || atlas_active(s)) {
		for (int slot; next < TEXTS && atlas_active(s) < slots; next++) {
			const AtlasStatus status = start_text(s, &texts[next], true, &slot);
			if (status != ATLAS_OK) {
				assert_true(status == ATLAS_NO_PAGES && atlas_active(s) > 0);
				break;
			}
			in_slot[slot] = next;
			texts[next].beside.n = 0;
		}
		assert_int_equal(atlas_step(s, events, slots * PLAN_MAX_VERIFY, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			take(&texts[in_slot[events[i].slot]].beside, &events[i]);
		const int last = next - 1;
		for (int slot = 0; slot < slots && n && below(random, 60) == 0 && last >= 0; slot++)
			if (in_slot[slot] == last && atlas_cancel(s, slot) == ATLAS_OK) {
				next--; /* the last one, which is begun again */
				break;
			}
	}
}

/* How often one was set aside. */
static long check_texts(Rig *r, int pages, int grow, int max_gap, uint64_t seed)
{
	static Text texts[TEXTS];
	AtlasSessionInfo info = {.struct_size = sizeof info};
	AtlasEvent events[4 * PLAN_MAX_VERIFY];
	AtlasSession *s = r->session;
	uint64_t random = seed;
	memset(texts, 0, sizeof texts);
	for (int i = 0; i < TEXTS; i++) {
		Text *t = &texts[i];
		int n, slot;
		t->n = 1 + below(&random, 20);
		t->max_new = 60 + below(&random, MOST_MADE - 60);
		fill_prompt(t->prompt, t->n, i);
		t->sampling = (AtlasSampling){.struct_size = sizeof t->sampling, .temperature = i % 2 ? 0.8f : 0, .top_p = 1,
			.repetition_penalty = 1, .frequency_penalty = i % 3 ? 0 : 0.5f, .seed = (uint64_t)i};
		assert_int_equal(start_text(s, t, false, &slot), ATLAS_OK);
		while (atlas_active(s)) {
			assert_int_equal(atlas_step(s, events, 4 * PLAN_MAX_VERIFY, &n), ATLAS_OK);
			for (int k = 0; k < n; k++)
				take(&t->alone, &events[k]);
		}
	}
	session_grow_by(s, grow);
	session_max_gap(s, max_gap, 0);
	answer_beside(s, texts, 4, &random);
	for (int i = 0; i < TEXTS; i++) {
		const Made *a = &texts[i].alone, *b = &texts[i].beside;
		assert_int_equal(b->n, a->n);
		assert_int_equal(b->finish, a->finish);
		assert_memory_equal(b->token, a->token, sizeof a->token[0] * (size_t)a->n);
		assert_memory_equal(b->logprob, a->logprob, sizeof a->logprob[0] * (size_t)a->n);
	}
	atlas_session_info(s, &info);
	assert_true(info.pages == pages && info.free_pages == pages && info.aside == 0 && info.aside_bytes == 0);
	return (long)info.set_aside;
}

static AtlasStatus open_cpu(Rig *r)
{
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
	return atlas_session_open(r->plan, &options, &r->session, &r->error);
}

/* In a pool of less than two contexts, on both devices and with drafts: every token and bit of each logprob. */
static void texts_stay_when_they_are_set_aside(void **state)
{
	long set_aside[2] = {0};
	Rig r;
	(void)state;
	for (int device = 0; device < 2; device++)
		for (int k = 0; k < 3; k++) {
			static const int grow[] = {16, 0, 24}, max_gap[] = {0, 16, 1};
			memset(&r, 0, sizeof r);
			make_plan_of(&r.made, "llama", 192, 39); /* with a stop token that is seldom drawn */
			rig_made(&r);
			assert_int_equal(device ? open_cpu(&r) : open_fake(&r), ATLAS_OK);
			set_aside[0] += check_texts(&r, 12, grow[k], max_gap[k], (uint64_t)(1 + k));
			rig_close(&r);
		}
	for (int device = 0; device < 2; device++) {
		rig_checkpoint_of(&r, "tests/fixtures/qwen3_5", 256);
		assert_int_equal(device ? open_cpu(&r) : open_fake(&r), ATLAS_OK);
		session_speculate(r.session, true);
		set_aside[1] += check_texts(&r, 17, 16, 0, 9);
		rig_close(&r);
	}
	assert_true(set_aside[0] > 5 && set_aside[1] > 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_in_tight_pools),
		cmocka_unit_test(who_waits_goes_on_at_once),
		cmocka_unit_test(texts_stay_when_they_are_set_aside),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
