/* test_flights.c - decode steps that run ahead of the host: what they cost, and that nobody can tell.
 *
 * The fake driver does work when somebody waits or asks, or, where the test says so, at once; both are legal for a GPU.
 */
#include "runtime/session.h"
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What a step costs the driver. Decode steps are launched ahead, some in one graph; they send inputs once, and
 * tokens come by the ring. */
static void steps_are_one_graph(void **state)
{
#define WAITED "CtxPushCurrent\nMemcpyHtoDAsync\nGraphLaunch\nCtxPopCurrent\n" \
	"CtxPushCurrent\nStreamSynchronize\nCtxPopCurrent\n"
	static const char entered[] = WAITED WAITED;
#undef WAITED
	char *log;
	size_t n;
	int32_t tokens[9];
	int slot, made, before;
	AtlasEvent events[4];
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	r.fake.is_eager = true;
	fill_prompt(tokens, 9, 5);
	before = r.fake.n_allocations;
	log_calls(&r, &log, &n);
	assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 23, &slot), ATLAS_OK);
	assert_calls(&r, &log, "");
	log_calls(&r, &log, &n); /* the slot, and the prompt */
	assert_int_equal(atlas_step(r.session, events, 4, &made), ATLAS_OK);
	assert_calls(&r, &log, entered);
	log_calls(&r, &log, &n); /* 22 tokens are left: 8 at once, then 4 whenever 4 were taken, and the last 2 */
	for (int i = 0; i < 22; i++) {
		assert_int_equal(atlas_step(r.session, events, 4, &made), ATLAS_OK);
		assert_int_equal(made, 1);
		assert_int_equal(events[0].finish, i == 21 ? ATLAS_LENGTH : ATLAS_RUNNING);
	}
	assert_calls(&r, &log, "CtxPushCurrent\nMemcpyHtoDAsync\nGraphLaunch x2\nCtxPopCurrent\n"
		"CtxPushCurrent\nGraphLaunch\nCtxPopCurrent\nCtxPushCurrent\nGraphLaunch\nCtxPopCurrent\n"
		"CtxPushCurrent\nGraphLaunch\nCtxPopCurrent\nCtxPushCurrent\nGraphLaunch x2\nCtxPopCurrent\n");
	assert_int_equal(r.fake.n_allocations, before);
	rig_close(&r);
}

/* Runs a sequence alone to its end; its tokens, and how many. */
static int answer_alone(AtlasSession *s, const AtlasSampling *sampling, int max_new, int *answer)
{
	int32_t prompt[9];
	int slot, made, n = 0;
	AtlasEvent e[4] = {{0}};
	fill_prompt(prompt, 9, 1);
	assert_int_equal(atlas_start(s, prompt, 9, sampling, max_new, &slot), ATLAS_OK);
	while (n == 0 || e[0].finish == ATLAS_RUNNING) {
		assert_int_equal(atlas_step(s, e, 4, &made), ATLAS_OK);
		assert_true(made <= 1 && n < 128);
		if (made)
			answer[n++] = e[0].token;
	}
	return n;
}

/* An answer of more tokens than a ring holds, any number of steps ahead: the same tokens, none lost or twice. */
static void rings_wrap(void **state)
{
	static const int ahead[] = {1, 2, 7, 8, 32, 1000};
	int first[128], again[128], n = 0;
	AtlasSampling hot = {0};
	(void)state;
	for (size_t i = 0; i < sizeof ahead / sizeof ahead[0]; i++) {
		Rig r;
		rig_plan(&r, "llama", 0);
		r.steps_ahead = ahead[i];
		assert_int_equal(open_fake(&r), ATLAS_OK);
		if (i == 0) {
			atlas_sampling_init(r.plan, &hot);
			hot.temperature = 0.7f;
			hot.seed = 54; /* early ones soon give the stop token */
			while (n < 80) {
				hot.seed++;
				n = answer_alone(r.session, &hot, 110, first);
			}
		}
		assert_int_equal(answer_alone(r.session, &hot, 110, again), n);
		assert_memory_equal(again, first, sizeof *first * (size_t)n);
		rig_close(&r);
	}
}

/* Sequences that end at any step of a launch, together with others that go on: as one step at a time has it. */
static void sequences_end_inside_launches(void **state)
{
	enum { ROUNDS = 16 };
	static int answers[2][ROUNDS][4][64], counts[2][ROUNDS][4];
	AtlasFinish finish[2][ROUNDS][4];
	int seen = 0;
	(void)state;
	for (int ahead = 0; ahead < 2; ahead++) {
		int32_t prompt[9];
		AtlasSampling hot;
		Rig r;
		rig_plan(&r, "llama", 0);
		r.steps_ahead = ahead ? 8 : 1;
		assert_int_equal(open_fake(&r), ATLAS_OK);
		atlas_sampling_init(r.plan, &hot);
		hot.temperature = 1;
		for (int k = 0; k < ROUNDS; k++) {
			memset(counts[ahead][k], 0, sizeof counts[ahead][k]);
			for (int i = 0, slot; i < 4; i++, hot.seed++) {
				fill_prompt(prompt, 9, i);
				assert_int_equal(atlas_start(r.session, prompt, 9, &hot, 20 + i, &slot), ATLAS_OK);
				assert_int_equal(slot, i);
			}
			run_all(r.session, answers[ahead][k], counts[ahead][k], finish[ahead][k]);
			for (int i = 0; i < 4; i++)
				seen |= finish[ahead][k][i] == ATLAS_STOP ? 1 << counts[ahead][k][i] % 8 : 0;
		}
		rig_close(&r);
	}
	assert_int_equal(seen, 255); /* a stop token at every place of eight steps */
	for (int k = 0; k < ROUNDS; k++)
		for (int i = 0; i < 4; i++) {
			assert_int_equal(counts[1][k][i], counts[0][k][i]);
			assert_int_equal(finish[1][k][i], finish[0][k][i]);
			assert_memory_equal(answers[1][k][i], answers[0][k][i], sizeof(int) * (size_t)counts[0][k][i]);
		}
}

/* Steps until the slot has given n tokens in all; all tokens go into answers. */
static void step_until(AtlasSession *s, int slot, int n, int answers[][128], int counts[])
{
	AtlasEvent e[4];
	int made;
	while (counts[slot] < n) {
		assert_int_equal(atlas_step(s, e, 4, &made), ATLAS_OK);
		for (int i = 0; i < made; i++)
			answers[e[i].slot][counts[e[i].slot]++] = e[i].token;
	}
}

/* Sequences are started, cancelled and scored while steps are on their way: each has the tokens it has alone. */
static void much_may_happen_in_flight(void **state)
{
	static int alone[128], answers[4][128];
	int counts[4] = {0}, n, slot;
	int32_t prompt[9];
	AtlasSampling hot;
	Collected scores[2] = {{0}, {0}};
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	atlas_sampling_init(r.plan, &hot);
	hot.temperature = 0.7f;
	hot.seed = 16; /* gives many tokens */
	fill_prompt(prompt, 9, 1);
	n = answer_alone(r.session, &hot, 110, alone);
	assert_true(n > 60);
	assert_int_equal(atlas_score(r.session, prompt, 9, take_logits, &scores[0]), ATLAS_OK);
	assert_int_equal(atlas_start(r.session, prompt, 9, &hot, 110, &slot), ATLAS_OK);
	step_until(r.session, 0, 6, answers, counts);
	assert_int_equal(atlas_start(r.session, prompt, 9, &hot, 110, &slot), ATLAS_OK);
	assert_int_equal(slot, 1);
	step_until(r.session, 0, 11, answers, counts);
	assert_int_equal(atlas_score(r.session, prompt, 9, take_logits, &scores[1]), ATLAS_OK);
	assert_int_equal(scores[1].n, scores[0].n);
	assert_memory_equal(scores[1].at, scores[0].at, sizeof(float) * (size_t)scores[0].n);
	step_until(r.session, 0, 20, answers, counts);
	assert_int_equal(atlas_cancel(r.session, 0), ATLAS_OK);
	assert_memory_equal(answers[0], alone, sizeof(int) * (size_t)counts[0]);
	counts[0] = 0;
	assert_int_equal(atlas_start(r.session, prompt, 9, &hot, 110, &slot), ATLAS_OK);
	assert_int_equal(slot, 0); /* the slot and pages of the one that was cancelled in flight */
	step_until(r.session, 1, n, answers, counts);
	assert_int_equal(counts[1], n);
	assert_memory_equal(answers[1], alone, sizeof(int) * (size_t)n);
	assert_memory_equal(answers[0], alone, sizeof(int) * (size_t)counts[0]);
	assert_int_equal(atlas_cancel(r.session, 0), ATLAS_OK);
	assert_int_equal(atlas_step(r.session, (AtlasEvent[4]){{0}}, 4, &n), ATLAS_OK);
	assert_int_equal(n, 0);
	assert_int_equal(atlas_start(r.session, prompt, 9, &hot, 110, &slot), ATLAS_OK);
	counts[slot] = 0;
	step_until(r.session, slot, 3, answers, counts); /* and closed in flight */
	free(scores[0].at);
	free(scores[1].at);
	rig_close(&r);
}

/* A sequence that is started while tokens of another are on their way: those are handed out first, all of them. */
static void tokens_on_their_way_come_first(void **state)
{
	int32_t prompt[9];
	AtlasEvent e[4];
	int first, second, n, n_before = 0;
	char *log;
	size_t n_log;
	Rig r;
	(void)state;
	for (int is_eager = 0; is_eager < 2; is_eager++, n_before = 0) {
		rig_open(&r, "llama", 0);
		r.fake.is_eager = is_eager;
		fill_prompt(prompt, 9, 5);
		assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 60, &first), ATLAS_OK);
		for (int i = 0; i < 2; i++) /* its first token, and one of eight steps */
			assert_int_equal(atlas_step(r.session, e, 4, &n), ATLAS_OK);
		log_calls(&r, &log, &n_log);
		assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 60, &second), ATLAS_OK);
		assert_calls(&r, &log, ""); /* a start that waited for them would hold up all of these tokens */
		do {
			assert_int_equal(atlas_step(r.session, e, 4, &n), ATLAS_OK);
			assert_int_equal(n, 1);
			n_before += e[0].slot == first;
		} while (e[0].slot == first);
		assert_int_equal(n_before, 7);
		assert_int_equal(e[0].slot, second);
		rig_close(&r);
	}
}

typedef struct Buckets { const TargetPlan *plan; int rows[8], n; } Buckets;

static void note_bucket(void *ctx, int phase, int steps)
{
	Buckets *b = ctx;
	(void)steps;
	if (b->plan->phases[phase].kind == DECODE && b->n < 8)
		b->rows[b->n++] = b->plan->phases[phase].rows;
}

static void no_stage(void *ctx, WatchStage stage, int64_t free_bytes, int64_t total_bytes)
{
	(void)ctx, (void)stage, (void)free_bytes, (void)total_bytes;
}

static void no_node(void *ctx, int phase, int step, int launch, const SeenLaunch *seen)
{
	(void)ctx, (void)phase, (void)step, (void)launch, (void)seen;
}

/* Of the buckets that hold a step, the smallest: one sequence decodes in one row. */
static void steps_take_the_smallest_bucket(void **state)
{
	int32_t prompt[9];
	AtlasEvent e[4];
	int slot, n;
	(void)state;
	for (int n_sequences = 1; n_sequences <= 4; n_sequences++) {
		Rig r;
		Buckets b = {0};
		const DeviceWatch watch = {&b, no_stage, no_node, note_bucket};
		rig_plan(&r, "llama", 0); /* decode: 1 and 4 rows */
		b.plan = &r.plan->artifact.targets[0];
		r.watch = &watch;
		r.steps_ahead = 1;
		assert_int_equal(open_fake(&r), ATLAS_OK);
		fill_prompt(prompt, 9, 5);
		for (int i = 0; i < n_sequences; i++)
			assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 20, &slot), ATLAS_OK);
		while (b.n == 0)
			assert_int_equal(atlas_step(r.session, e, 4, &n), ATLAS_OK);
		assert_int_equal(b.rows[0], n_sequences == 1 ? 1 : 4);
		rig_close(&r);
	}
}

/* Logits of one sequence that are no numbers end it alone; the others' tokens are what they are without it. */
static void a_sequence_may_fail_alone(void **state)
{
	int32_t tokens[9];
	int whole[4][64], answers[4][64], counts[4] = {0}, slot, n = 0, failed = 0;
	AtlasFinish finish[4];
	AtlasEvent events[4];
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	fill_prompt(tokens, 9, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(atlas_start(r.session, tokens + i, 9 - i, NULL, 20, &slot), ATLAS_OK);
	run_all(r.session, whole, counts, finish);
	for (int i = 0; i < 3; i++)
		assert_int_equal(atlas_start(r.session, tokens + i, 9 - i, NULL, 20, &slot), ATLAS_OK);
	memset(counts, 0, sizeof counts);
	while (atlas_active(r.session)) {
		assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			slot = events[i].slot;
			if (events[i].finish == ATLAS_FAILED) {
				assert_true(slot == 2 && events[i].token == -1 && isnan(events[i].logprob));
				failed++;
			} else {
				answers[slot][counts[slot]++] = events[i].token;
			}
		}
		if (counts[2] == 2)
			r.gpu.spoiled = 3;
	}
	assert_int_equal(failed, 1);
	assert_true(counts[2] >= 2 && counts[2] < 20);
	for (int i = 0; i < 3; i++)
		assert_memory_equal(answers[i], whole[i], sizeof(int) * (size_t)counts[i]);
	assert_true(counts[0] == 20);
	r.gpu.spoiled = 0; /* the slot is as good as any */
	assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 20, &slot), ATLAS_OK);
	memset(counts, 0, sizeof counts);
	run_all(r.session, answers, counts, finish);
	assert_memory_equal(answers[slot], whole[0], sizeof(int) * 20);
	rig_close(&r);
}

/* The last word of an entry comes when the device was looked at some times. */
typedef struct LateWord {
	DeviceOps ops;
	const DeviceOps *real;
	int32_t *entry, word;
	int looks, late_by; /* looks at the device since the entry is there; the one that brings the word, 0 = none */
} LateWord;
static LateWord late;

static AtlasStatus look_late(Device *d, bool *is_busy)
{
	AtlasStatus s = late.real->look(d, is_busy);
	if (late.entry[0] != 2)
		return s;
	if (late.looks++ == 0) {
		late.word = late.entry[3];
		late.entry[3] = ~late.word;
	}
	if (late.looks == late.late_by)
		late.entry[3] = late.word;
	*is_busy |= late.looks < late.late_by;
	return s;
}

/* The first decode step of a session: its status, with the last word of its result late. */
static AtlasStatus step_late(Rig *r, int late_by, AtlasEvent *event)
{
	int32_t token = 3;
	int slot, n;
	AtlasEvent events[4];
	assert_int_equal(atlas_start(r->session, &token, 1, NULL, 9, &slot), ATLAS_OK);
	assert_int_equal(atlas_step(r->session, events, 4, &n), ATLAS_OK);
	Device *d = session_device(r->session);
	r->fake.delays = 0; /* the words come late by what is said here */
	late = (LateWord){.ops = *d->ops, .real = d->ops, .late_by = late_by, .entry = d->io.ring + 2 * PLAN_RING_WORDS};
	late.ops.look = look_late;
	d->ops = &late.ops;
	AtlasStatus s = atlas_step(r->session, events, 4, &n);
	*event = events[0];
	d->ops = late.real; /* it is how the device knows itself */
	return s;
}

/* The words of a result need not arrive together: the host takes it when all are there. */
static void results_may_come_in_pieces(void **state)
{
	AtlasEvent want, got;
	Rig r;
	(void)state;
	for (int late_by = 1; late_by < 4; late_by++) {
		rig_open(&r, "llama", 0);
		assert_int_equal(step_late(&r, late_by, &got), ATLAS_OK);
		assert_int_equal(late.looks, late_by);
		if (late_by == 1)
			want = got; /* whole at once */
		assert_int_equal(got.token, want.token);
		assert_memory_equal(&got.logprob, &want.logprob, sizeof got.logprob);
		rig_close(&r);
	}
	rig_open(&r, "llama", 0);
	assert_int_equal(step_late(&r, 0, &got), ATLAS_DEVICE_FAULT);
	assert_non_null(strstr(atlas_session_error(r.session), "done 0, not all of it: no such result of position 2"));
	rig_close(&r);
}

/* A device whose results contradict themselves has failed. */
static void nonsense_from_the_device_ends_the_session(void **state)
{
	int32_t token = 3;
	int slot, n;
	AtlasEvent events[4];
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	assert_int_equal(atlas_start(r.session, &token, 1, NULL, 9, &slot), ATLAS_OK);
	assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
	assert_int_equal(n, 1);
	r.fake.execute = NULL; /* nothing is computed any more */
	assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_DEVICE_FAULT);
	assert_int_equal(n, 0);
	assert_string_equal(atlas_session_error(r.session),
		"slot 0 was given token 0 at position 0, done 0: no such result of position 2");
	assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_DEVICE_FAULT);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_one_graph),
		cmocka_unit_test(rings_wrap),
		cmocka_unit_test(sequences_end_inside_launches),
		cmocka_unit_test(much_may_happen_in_flight),
		cmocka_unit_test(tokens_on_their_way_come_first),
		cmocka_unit_test(steps_take_the_smallest_bucket),
		cmocka_unit_test(a_sequence_may_fail_alone),
		cmocka_unit_test(results_may_come_in_pieces),
		cmocka_unit_test(nonsense_from_the_device_ends_the_session),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
