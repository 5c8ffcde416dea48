/* test_request.c - what a sequence is started with besides its prompt: each member, and each that makes no sense.
 *
 * On the fake GPU, where steps run ahead and some draft, and on the reference device.
 */
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EVENTS = 4 * PLAN_MAX_VERIFY };

static AtlasRequest request_of(const int32_t *tokens, int n, int max_new)
{
	return (AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = tokens, .n_tokens = n, .max_new = max_new};
}

typedef struct Wrong { AtlasRequest request; AtlasStatus status; const char *says; } Wrong;

/* Each is refused with a sentence of its member and value, and takes no slot. */
static void members_that_make_no_sense(void **state)
{
	static const int32_t tokens[] = {5, 6, 40}, ends[] = {3, -1, INT32_MAX};
	static const AtlasBias bias[] = {{5, 1}, {6, 101}}, nan[] = {{5, NAN}}, inf[] = {{5, INFINITY}}, twice[] = {{5, 1},
		{6, 1}, {5, -INFINITY}}, far[] = {{40, 1}};
	static const AtlasSampling unset = {.top_p = 1};
#define BAD_BASE(at, n, most, status, says) {{.tokens = at, .n_tokens = n, .max_new = most}, status, says}
#define BASE .tokens = tokens, .n_tokens = 2, .max_new = 3
#define BAD(member, value, status, says) {{BASE, .member = value}, status, says}
#define BAD_LIST(list, values, n, status, says) {{BASE, .list = values, .n_##list = n}, status, says}
	static const Wrong wrong[] = {
		BAD_BASE(tokens, 2, 0, ATLAS_ARGUMENT, "max_new = 0: at least 1 expected"),
		BAD_BASE(tokens, 2, INT32_MIN, ATLAS_ARGUMENT, "max_new = -2147483648: at least 1 expected"),
		BAD(min_new, -1, ATLAS_ARGUMENT, "min_new = -1: 0 or more expected"),
		BAD(ignore_stops, 2, ATLAS_ARGUMENT, "ignore_stops = 2: 0 to 1 expected"),
		BAD(ignore_stops, -1, ATLAS_ARGUMENT, "ignore_stops = -1: 0 to 1 expected"),
		BAD(n_stop_tokens, 3, ATLAS_ARGUMENT, "stop_tokens is NULL, n_stop_tokens = 3"),
		BAD(n_stop_tokens, 65, ATLAS_ARGUMENT, "n_stop_tokens = 65: 0 to 64 expected"),
		BAD(n_stop_tokens, -1, ATLAS_ARGUMENT, "n_stop_tokens = -1: 0 to 64 expected"),
		BAD_LIST(stop_tokens, ends, 2, ATLAS_TOKEN, "stop_tokens[1] = -1: the vocabulary has 40"),
		BAD_LIST(stop_tokens, ends + 2, 1, ATLAS_TOKEN, "stop_tokens[0] = 2147483647: the vocabulary has 40"),
		BAD(n_bias, 1, ATLAS_ARGUMENT, "bias is NULL, n_bias = 1"),
		BAD(n_bias, 301, ATLAS_ARGUMENT, "n_bias = 301: 0 to 300 expected"),
		BAD(n_bias, -7, ATLAS_ARGUMENT, "n_bias = -7: 0 to 300 expected"),
		BAD_LIST(bias, bias, 2, ATLAS_ARGUMENT, "bias[1].value = 101: -100 to 100 or -infinity expected"),
		BAD_LIST(bias, nan, 1, ATLAS_ARGUMENT, "bias[0].value = nan: -100 to 100 or -infinity expected"),
		BAD_LIST(bias, inf, 1, ATLAS_ARGUMENT, "bias[0].value = inf: -100 to 100 or -infinity expected"),
		BAD_LIST(bias, twice, 3, ATLAS_ARGUMENT, "bias[2].token = 5: bias[0] has this token already"),
		BAD_LIST(bias, far, 1, ATLAS_TOKEN, "bias[0].token = 40: the vocabulary has 40"),
		BAD(top_logprobs, 21, ATLAS_ARGUMENT, "top_logprobs = 21: 0 to 20 expected"),
		BAD(top_logprobs, -1, ATLAS_ARGUMENT, "top_logprobs = -1: 0 to 20 expected"),
		BAD(steps_ahead, -1, ATLAS_ARGUMENT, "steps_ahead = -1: 0 or more expected"),
		BAD(pages_as_needed, 2, ATLAS_ARGUMENT, "pages_as_needed = 2: 0 to 1 expected"),
		BAD(n_tail, -1, ATLAS_ARGUMENT, "n_tail = -1: 0 or more expected"),
		BAD(sampling, &unset, ATLAS_ARGUMENT, "sampling.struct_size is not set"),
		BAD_BASE(tokens, 0, 3, ATLAS_CONTEXT, "0 tokens: at least one is needed"),
		BAD_BASE(tokens, INT32_MAX, 3, ATLAS_CONTEXT, "2147483647 tokens: the context holds 128"),
		BAD_BASE(tokens, 3, 3, ATLAS_TOKEN, "token 2 is 40: the vocabulary has 40"),
		BAD_BASE(NULL, 2, 3, ATLAS_ARGUMENT, "request.tokens must not be NULL"),
	};
	AtlasRequest r = request_of(tokens, 2, 3);
	int slot = 77;
	Rig rig;
	(void)state;
	rig_open(&rig, "llama", 0);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		AtlasRequest bad = wrong[i].request;
		bad.struct_size = sizeof bad;
		assert_int_equal(atlas_request_start(rig.session, &bad, &slot), wrong[i].status);
		assert_string_equal(atlas_session_error(rig.session), wrong[i].says);
	}
	assert_int_equal(atlas_request_start(rig.session, NULL, &slot), ATLAS_ARGUMENT);
	assert_string_equal(atlas_session_error(rig.session), "request and slot must not be NULL");
	assert_int_equal(atlas_request_start(rig.session, &r, NULL), ATLAS_ARGUMENT);
	r.struct_size = 0;
	assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_ARGUMENT);
	assert_string_equal(atlas_session_error(rig.session), "request.struct_size is not set");
	assert_int_equal(atlas_request_start(NULL, &r, &slot), ATLAS_ARGUMENT);
	assert_true(atlas_active(rig.session) == 0 && slot == 77);
	rig_close(&rig);
}

/* A caller that was compiled before a member was there: what lies behind its struct is not looked at. */
static void shorter_structs_are_whole(void **state)
{
	static const int32_t tokens[] = {5, 6};
	AtlasRequest r = request_of(tokens, 2, 3);
	int slot, answers[4][64], counts[4] = {0};
	AtlasFinish finish[4];
	Rig rig;
	(void)state;
	memset((char *)&r + offsetof(AtlasRequest, min_new), 0xee, sizeof r - offsetof(AtlasRequest, min_new));
	rig_open(&rig, "llama", 0);
	assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_ARGUMENT);
	r.struct_size = offsetof(AtlasRequest, min_new);
	assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_OK);
	run_all(rig.session, answers, counts, finish);
	assert_int_equal(counts[0], 3);
	rig_close(&rig);
}

typedef struct Answers { int token[4][64]; int n[4]; AtlasFinish finish[4]; } Answers;

/* Three requests at once, each with the stop tokens of its list, to their ends. */
static void answer(Rig *rig, const int32_t *stops[3], const int n_stops[3], bool is_warm, Answers *a)
{
	AtlasEvent events[EVENTS];
	AtlasSampling sampling = {.struct_size = sizeof sampling, .top_p = 1, .repetition_penalty = 1, .seed = 5,
		.temperature = is_warm ? 1 : 0};
	int32_t prompt[9];
	int slot, n;
	memset(a, 0, sizeof *a);
	for (int i = 0; i < 3; i++) {
		fill_prompt(prompt, 9, i);
		AtlasRequest r = request_of(prompt, 9, 40);
		r.sampling = &sampling;
		r.stop_tokens = stops[i];
		r.n_stop_tokens = n_stops[i];
		assert_int_equal(atlas_request_start(rig->session, &r, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
	}
	while (atlas_active(rig->session)) {
		assert_int_equal(atlas_step(rig->session, events, EVENTS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			const int s = events[i].slot;
			assert_int_equal(a->finish[s], ATLAS_RUNNING); /* nothing comes after an end */
			a->token[s][a->n[s]++] = events[i].token;
			a->finish[s] = events[i].finish;
		}
	}
}

/* With the stop tokens of each sequence: its text is that without, up to the first of them; the others' is whole. */
static void check_stops(Rig *rig)
{
	static const int32_t *none[3];
	static const int no_stops[3];
	Answers free_run, stopped;
	AtlasSessionInfo before = {.struct_size = sizeof before}, after = before;
	int ended = 0;
	atlas_session_info(rig->session, &before);
	for (int is_warm = 0; is_warm < 2; is_warm++) {
		answer(rig, none, no_stops, is_warm, &free_run);
		for (int at = 0; at < 20; at++) {
			int32_t lists[3][ATLAS_MAX_STOP_TOKENS];
			const int32_t *stops[3] = {lists[0], lists[1], lists[2]};
			const int n_stops[3] = {at < free_run.n[0] ? 1 : 0, 0, ATLAS_MAX_STOP_TOKENS};
			lists[0][0] = free_run.token[0][at];
			for (int i = 0; i < ATLAS_MAX_STOP_TOKENS; i++) /* the same one often: that is no mistake */
				lists[2][i] = free_run.token[2][at < free_run.n[2] ? at : 0];
			answer(rig, stops, n_stops, is_warm, &stopped);
			for (int s = 0; s < 3; s++) {
				int n = 0;
				bool is_stop = false;
				while (n < free_run.n[s] && !is_stop)
					is_stop = free_run.token[s][n++] == (n_stops[s] ? lists[s][0] : -1);
				assert_int_equal(stopped.n[s], n);
				assert_int_equal(stopped.finish[s], is_stop ? ATLAS_STOP : free_run.finish[s]);
				assert_memory_equal(stopped.token[s], free_run.token[s], sizeof(int) * (size_t)n);
				ended += is_stop && n < free_run.n[s];
			}
		}
	}
	assert_true(ended > 20);
	atlas_session_info(rig->session, &after);
	assert_true(before.free_pages == after.free_pages && before.free_slots == after.free_slots);
}

static void stop_tokens_end_their_sequence_alone(void **state)
{
	const double most[PLAN_MAX_VERIFY - 1] = {0.9, 0.9, 0.9};
	Rig rig;
	(void)state;
	for (int ahead = 1; ahead <= 8; ahead += 7) {
		rig_plan(&rig, "llama", 0);
		rig.steps_ahead = ahead;
		assert_int_equal(open_fake(&rig), ATLAS_OK);
		check_stops(&rig);
		rig_close(&rig);
	}
	rig_plan(&rig, "llama", 0);
	assert_int_equal(atlas_session_open(rig.plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
		.device = "cpu", .n_threads = 1}, &rig.session, &rig.error), ATLAS_OK);
	check_stops(&rig);
	rig_close(&rig);
	rig_checkpoint(&rig, "tests/fixtures/qwen3_5"); /* with drafts, most of which count */
	assert_int_equal(open_fake(&rig), ATLAS_OK);
	session_speculate(rig.session, true);
	session_prescribe(rig.session, most);
	check_stops(&rig);
	rig_close(&rig);
}

/* Counts decode steps on their way to another device's launch. */
typedef struct Counting { DeviceOps ops; const DeviceOps *real; int launched; } Counting;
static Counting counting;

static AtlasStatus count_launch(Device *d, const StepSize *size, int n)
{
	counting.launched += size->phase == DECODE ? n : 0;
	return counting.real->launch(d, size, n);
}

/* Sequences that want 1, 3 and the session's 8 steps ahead, together and after each other's ends: never more are on
 * their way than the least of those that run, and that many are; the tokens are the same. */
static void the_least_of_steps_ahead_counts(void **state)
{
	static const int ahead[] = {1, 3, 0}, max_new[] = {12, 24, 40};
	Answers answers[2];
	AtlasEvent events[EVENTS];
	int32_t prompt[9];
	(void)state;
	for (int is_set = 0; is_set < 2; is_set++) {
		int slot, n, taken = 0, most[3] = {0};
		Rig rig;
		rig_open(&rig, "llama", 0);
		Device *d = session_device(rig.session);
		counting = (Counting){.ops = *d->ops, .real = d->ops};
		counting.ops.launch = count_launch;
		memset(&answers[is_set], 0, sizeof answers[is_set]);
		for (int i = 0; i < 3; i++) {
			fill_prompt(prompt, 9, i);
			AtlasRequest r = request_of(prompt, 9, max_new[i]);
			r.steps_ahead = is_set ? ahead[i] : 0;
			assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_OK);
		}
		while (atlas_active(rig.session)) {
			const int running = atlas_active(rig.session);
			d->ops = &counting.ops;
			assert_int_equal(atlas_step(rig.session, events, EVENTS, &n), ATLAS_OK);
			d->ops = counting.real;
			const int on_way = counting.launched - taken;
			most[running - 1] = on_way > most[running - 1] ? on_way : most[running - 1];
			taken += counting.launched > 0 && n > 0;
			for (int i = 0; i < n; i++) {
				const int s = events[i].slot;
				answers[is_set].token[s][answers[is_set].n[s]++] = events[i].token;
			}
		}
		assert_int_equal(most[2], is_set ? 1 : 8);
		assert_int_equal(most[1], is_set ? 3 : 8);
		assert_int_equal(most[0], 8);
		rig_close(&rig);
	}
	assert_memory_equal(&answers[0], &answers[1], sizeof answers[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_that_make_no_sense),
		cmocka_unit_test(shorter_structs_are_whole),
		cmocka_unit_test(stop_tokens_end_their_sequence_alone),
		cmocka_unit_test(the_least_of_steps_ahead_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
