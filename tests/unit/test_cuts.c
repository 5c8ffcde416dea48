/* test_cuts.c - where prompts are cut into steps: on the plan's grid, whatever else waits, starts and is cancelled; and
 * how they take turns with answers, or have one step with them.
 *
 * The device writes down the segments of each step and draws any token at once; so the rule itself is seen, over many
 * loads, without a model.
 */
#include "artifacts/ring.h"
#include "runtime/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SLOTS = 6, CONTEXT = 400, VOCAB = 16, MAX_ROWS = 256, LOADS = 100000 };

typedef struct CutDevice {
	Device base; /* first */
	const Graph *graph;
	int read[SLOTS];   /* tokens of the slot's prompt that steps have read */
	int length[SLOTS]; /* of the prompt; 0 = it is no prompt any more */
	int64_t order[SLOTS]; /* of arrival */
	int made[SLOTS];   /* position behind the slot's last token */
	bool runs[SLOTS];  /* it has answers to come */
	int max_gap, max_gap_each; /* of the session */
	bool mixes;
	bool has_read;     /* the step before was of prompts alone */
	long n_turns;      /* steps of prompts alone while answers ran, of sessions that take turns */
	long n_mixed;      /* steps of both */
	long n_segments, n_cuts, n_waited; /* segments; of them not to the end; steps that outs were missing in */
	int32_t words[SLOTS * PLAN_RING_ENTRIES * PLAN_RING_WORDS];
	int32_t step[4], row[4][MAX_ROWS], out_row[MAX_ROWS], seg[SLOTS * 4], acquire[SLOTS], limits[SLOTS * 8];
	float sampling[SLOTS * 8];
	int32_t pages[SLOTS * CONTEXT];
} CutDevice;

static void put_token(CutDevice *d, int slot)
{
	const int position = d->made[slot]++;
	ring_write(d->words + (slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS,
		(RingEntry){.position = position, .token = position % VOCAB, .logprob = -1});
}

static int n_running(const CutDevice *d)
{
	int n = 0;
	for (int slot = 0; slot < SLOTS; slot++)
		n += d->runs[slot];
	return n;
}

/* Rows of answers that a step of prompts has: all or none. */
static int n_answers(const CutDevice *d)
{
	const int n = d->mixes ? n_running(d) : 0;
	return n + d->graph->prompt_grid <= d->base.limits.prefill_rows && n < d->base.limits.prefill_outs ? n : 0;
}

/* Rows that a step of prompts may have now. */
static int most_rows(const CutDevice *d)
{
	const int answers = n_answers(d), rows = d->base.limits.prefill_rows, grid = d->graph->prompt_grid;
	const int all = d->max_gap_each * n_running(d), gap = d->max_gap < all ? all : d->max_gap;
	const int left = gap - answers, cells = answers + (left < grid ? grid : left / grid * grid);
	return d->max_gap == 0 || n_running(d) == 0 || gap >= rows || cells >= rows ? rows : cells;
}

/* Each running slot's last token in a segment of its own, which has an out: its next token. */
static int read_answers(CutDevice *d, int answers)
{
	int n = 0;
	for (int slot = 0; slot < SLOTS && answers; slot++) {
		const int32_t *s = d->seg + n * 4;
		if (!d->runs[slot])
			continue;
		const int position = d->made[slot] - 1;
		assert_true(s[0] == n && s[1] == 1 && s[2] == slot && s[3] == position);
		assert_true(d->row[0][n] == position % VOCAB && d->row[1][n] == slot && d->row[2][n] == position);
		assert_int_equal(d->out_row[n++], s[0]);
		put_token(d, slot);
	}
	assert_int_equal(n, answers);
	d->n_mixed += answers > 0;
	return n;
}

/* Of the prompts that are not read to their end, the first whose next cell needs no out that is missing: there was no
 * room for it. */
static void check_rest(const CutDevice *d, const StepSize *size, int most)
{
	const int room = most - size->rows, grid = d->graph->prompt_grid;
	const bool has_outs = size->outs < d->base.limits.prefill_outs;
	int first = -1;
	for (int slot = 0; slot < SLOTS; slot++)
		if (d->length[slot] && (has_outs || d->length[slot] - d->read[slot] > grid) &&
			(first < 0 || d->order[slot] < d->order[first]))
			first = slot;
	const int left = first < 0 ? 0 : d->length[first] - d->read[first];
	assert_true(first < 0 || room < (left < grid ? left : grid));
}

static void read_prompts(CutDevice *d, const StepSize *size)
{
	const int grid = d->graph->prompt_grid, most = most_rows(d);
	const int answers = n_answers(d), n_before = n_running(d);
	int rows = read_answers(d, answers), outs = rows;
	int64_t last = -1;
	assert_in_range(size->rows, answers + 1, most);
	if ((d->max_gap || d->mixes) && n_before && !answers) {
		assert_false(d->has_read); /* none that runs waits for more than one */
		d->n_turns++;
	}
	d->has_read = !answers;
	assert_in_range(size->outs, 0, d->base.limits.prefill_outs);
	for (int i = answers; i < size->segs; i++) {
		const int32_t *s = d->seg + i * 4;
		const int slot = s[2], end = s[3] + s[1];
		assert_true(s[0] == rows && s[1] > 0 && d->order[slot] > last);
		last = d->order[slot];
		rows += s[1];
		d->n_segments++;
		assert_int_equal(s[3], d->read[slot]); /* from where the last one ended */
		assert_int_equal(s[3] % grid, 0);
		assert_true(end == d->length[slot] || end % grid == 0);
		d->n_cuts += end < d->length[slot];
		d->read[slot] = end;
		if (end < d->length[slot])
			continue;
		assert_int_equal(d->out_row[outs++], rows - 1); /* a prompt's last row has its out in the same step */
		d->runs[slot] = true;
		d->made[slot] = d->length[slot];
		d->length[slot] = 0;
		put_token(d, slot);
	}
	assert_true(rows == size->rows && outs == size->outs);
	check_rest(d, size, most);
	d->n_waited += outs == d->base.limits.prefill_outs;
}

static AtlasStatus launch(Device *base, const StepSize *size, int n)
{
	CutDevice *d = (CutDevice *)base;
	if (size->phase == PREFILL)
		read_prompts(d, size);
	if (size->phase == DECODE)
		assert_int_equal(size->rows, n_running(d)); /* all of them have a token in each */
	if (size->phase == DECODE)
		d->has_read = false;
	for (int i = 0; i < n && size->phase == DECODE; i++)
		for (int row = 0; row < size->rows; row++)
			put_token(d, base->io.row_slot[row]);
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

static void close_device(Device *base) { (void)base; } /* it is the test's */

static int below(uint64_t *random, int n)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (int)((*random >> 33) % (uint64_t)n);
}

static void begin(CutDevice *d, const Graph *g, int rows, int outs, int ahead)
{
	static const DeviceOps ops = {.kind = "cuts", .launch = launch, .wait = wait_for, .look = look,
		.close = close_device};
	memset(d, 0, sizeof *d);
	d->graph = g;
	d->base.ops = &ops;
	d->base.io = (StepIo){.step = d->step, .row_token = d->row[0], .row_slot = d->row[1], .row_pos = d->row[2],
		.out_row = d->out_row, .n_out_rows = MAX_ROWS, .seg = d->seg, .acquire = d->acquire,
		.new_sampling = d->sampling, .new_limits = d->limits, .new_pages = d->pages, .ring = d->words};
	d->base.limits = (StepLimits){.prefill_rows = rows, .prefill_outs = outs, .decode_rows = SLOTS, .ahead = ahead,
		.row = 1};
}

static void start_one(AtlasSession *s, CutDevice *d, const AtlasSampling *greedy, uint64_t *random, int64_t *arrived)
{
	int32_t tokens[CONTEXT] = {0};
	int slot;
	const int kind = below(random, 4), grid = d->graph->prompt_grid, most = CONTEXT - 20;
	int n = kind == 0 ? 1 + below(random, most) : kind == 1 ? 1 + below(random, grid)
		: grid * (1 + below(random, 3)) - 1 + below(random, 3);
	n = n < 1 ? 1 : n > most ? most : n;
	if (atlas_start(s, tokens, n, greedy, 1 + below(random, 6), &slot) != ATLAS_OK)
		return;
	d->length[slot] = n;
	d->runs[slot] = false;
	d->read[slot] = 0;
	d->order[slot] = (*arrived)++;
}

/* Six slots whose prompts come, are read, answered and cancelled in any order. */
static void run_load(AtlasPlan *plan, CutDevice *d, uint64_t *random)
{
	AtlasSession *s;
	AtlasEvent events[SLOTS];
	AtlasError error;
	int64_t arrived = 0;
	int n, steps = 0;
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	assert_int_equal(session_open_on(plan, &d->base, &s, &error), ATLAS_OK);
	session_max_gap(s, d->max_gap, d->max_gap_each);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	const bool has_room = d->base.limits.prefill_rows > d->graph->prompt_grid; /* for a row besides a cell */
	const AtlasStatus status = session_mix(s, d->mixes ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF, &error);
	assert_int_equal(status, d->mixes && !has_room ? ATLAS_UNSUPPORTED : ATLAS_OK);
	assert_true(status == ATLAS_OK || strstr(error.text, "mixed = on: the largest prefill bucket has no row for an "));
	d->mixes &= has_room;
	assert_int_equal(atlas_session_info(s, &info), ATLAS_OK);
	assert_int_equal(info.mixed, d->mixes);
	while (steps++ < 30 || atlas_active(s)) {
		if (steps < 30 && below(random, 3))
			start_one(s, d, &greedy, random, &arrived);
		for (int slot = 0; slot < SLOTS; slot++)
			if (below(random, 25) == 0 && atlas_cancel(s, slot) == ATLAS_OK)
				d->length[slot] = d->runs[slot] = 0;
		assert_int_equal(atlas_step(s, events, SLOTS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			if (events[i].finish != ATLAS_RUNNING)
				d->runs[events[i].slot] = false;
	}
	atlas_session_close(s);
}

static void prompts_are_cut_on_the_grid_and_take_turns(void **state)
{
	CutDevice *d = malloc(sizeof *d);
	long segments = 0, cuts = 0, waited = 0, turns = 0, mixed = 0;
	uint64_t random = 1;
	(void)state;
	for (int load = 0; load < LOADS; load++) {
		const int grid = 1 << below(&random, 7), rows = grid + below(&random, 192);
		AtlasPlan plan = {.artifact.graph = {.slots = SLOTS, .vocab = VOCAB, .max_context = CONTEXT, .page = 16,
			.pages = SLOTS * CONTEXT / 16, .max_pages = CONTEXT / 16, .prompt_grid = grid, .top_p = 1,
			.repetition_penalty = 1, .max_new_tokens = 4}};
		begin(d, &plan.artifact.graph, rows, 1 + below(&random, SLOTS < rows ? SLOTS : rows), 1 + below(&random, 8));
		d->max_gap = load % 2 ? 1 + below(&random, 2 * rows) : 0;
		d->max_gap_each = load % 4 == 3 ? below(&random, rows) : 0;
		d->mixes = load % 3 == 2;
		run_load(&plan, d, &random);
		turns += d->n_turns;
		mixed += d->n_mixed;
		segments += d->n_segments;
		cuts += d->n_cuts;
		waited += d->n_waited;
	}
	free(d);
	/* all of it has happened, and often */
	assert_true(turns > LOADS && mixed > LOADS && cuts > LOADS && segments > 2 * cuts && waited > LOADS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(prompts_are_cut_on_the_grid_and_take_turns)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
