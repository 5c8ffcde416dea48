/* test_misuse.c - the library asked for what makes no sense: a status that says so, and nothing is lost. */
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void nulls_are_refused(void **state)
{
	const int32_t token = 5;
	int32_t read;
	int slot, made;
	size_t n;
	const char *bytes;
	uint8_t key[32];
	AtlasEvent events[4];
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasText *text;
	AtlasError error;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	Collected scores = {0};
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
#define REFUSED(call) assert_int_equal(call, ATLAS_ARGUMENT)
	REFUSED(atlas_plan_open(NULL, NULL, &plan, &error));
	assert_null(plan);
	assert_string_equal(error.text, "path and plan must not be NULL");
	REFUSED(atlas_plan_open("x", NULL, NULL, NULL));
	REFUSED(atlas_plan_info(NULL, &info));
	REFUSED(atlas_plan_info(r.plan, NULL));
	REFUSED(atlas_plan_signature(NULL, 0, key, NULL));
	REFUSED(atlas_read_key(NULL, key, &error));
	REFUSED(atlas_read_key("x", NULL, &error));
	REFUSED(atlas_session_open(NULL, NULL, &session, &error));
	assert_null(session);
	REFUSED(atlas_session_open(r.plan, NULL, NULL, &error));
	REFUSED(atlas_session_info(NULL, &(AtlasSessionInfo){.struct_size = sizeof(AtlasSessionInfo)}));
	REFUSED(atlas_session_info(r.session, NULL));
	REFUSED(atlas_start(NULL, &token, 1, NULL, 1, &slot));
	REFUSED(atlas_start(r.session, NULL, 1, NULL, 1, &slot));
	assert_string_equal(atlas_session_error(r.session), "tokens and slot must not be NULL");
	REFUSED(atlas_start(r.session, &token, 1, NULL, 1, NULL));
	assert_int_equal(atlas_active(r.session), 0);
	REFUSED(atlas_step(NULL, events, 4, &made));
	REFUSED(atlas_step(r.session, NULL, 4, &made));
	REFUSED(atlas_step(r.session, events, 4, NULL));
	REFUSED(atlas_cancel(NULL, 0));
	REFUSED(atlas_score(NULL, &token, 1, take_logits, &scores));
	REFUSED(atlas_score(r.session, NULL, 1, take_logits, &scores));
	REFUSED(atlas_score(r.session, &token, 1, NULL, &scores));
	REFUSED(atlas_trace(r.session, &token, 1, NULL, &scores));
	REFUSED(atlas_encode(NULL, "x", 1, 0, &read, 1, &n));
	REFUSED(atlas_encode(r.plan, NULL, 1, 0, &read, 1, &n));
	REFUSED(atlas_encode(r.plan, "x", 1, 0, NULL, 1, &n));
	REFUSED(atlas_encode(r.plan, "x", 1, 0, &read, 1, NULL));
	REFUSED(atlas_text_open(NULL, 0, &text));
	REFUSED(atlas_text_open(r.plan, 0, NULL));
	REFUSED(atlas_text_push(NULL, 5, &bytes, &n));
	REFUSED(atlas_text_finish(NULL, &bytes, &n));
	atlas_text_restart(NULL);
	assert_int_equal(atlas_active(NULL), 0);
	assert_string_equal(atlas_session_error(NULL), "");
	rig_close(&r);
}

typedef struct Nosy { AtlasSession *session; int asked; } Nosy;

/* Asks its session for everything, of which nothing is given. */
static int ask_all(void *ctx, int pos, const float *logits)
{
	static const char why[] = "the session is asked from a callback of its own";
	Nosy *nosy = ctx;
	const int32_t tokens[] = {5, 6};
	AtlasEvent events[4];
	int slot, n;
	(void)pos, (void)logits;
	REFUSED(atlas_start(nosy->session, tokens, 2, NULL, 3, &slot));
	assert_string_equal(atlas_session_error(nosy->session), why);
	REFUSED(atlas_step(nosy->session, events, 4, &n));
	REFUSED(atlas_cancel(nosy->session, 0));
	REFUSED(atlas_score(nosy->session, tokens, 2, ask_all, ctx));
	nosy->asked++;
	return 0;
}

/* A sequence that runs, a text that is scored by a callback that asks for more: all pages and slots are there behind
 * it, and the sequence goes on as if nothing had been. */
static void callbacks_lose_nothing(void **state)
{
	int answers[4][64], again[4][64], counts[4] = {0}, counts_again[4] = {0};
	AtlasFinish finish[4];
	(void)state;
	for (int is_nosy = 0; is_nosy < 2; is_nosy++) {
		int32_t tokens[9];
		int slot;
		Rig r;
		AtlasSessionInfo before = {.struct_size = sizeof before}, after = before;
		rig_open(&r, "llama", 0);
		fill_prompt(tokens, 9, 3);
		assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_OK);
		atlas_session_info(r.session, &before);
		if (is_nosy) {
			Nosy nosy = {.session = r.session};
			assert_int_equal(atlas_score(r.session, tokens, 9, ask_all, &nosy), ATLAS_OK);
			assert_int_equal(nosy.asked, 9);
		}
		atlas_session_info(r.session, &after);
		assert_true(before.free_pages == after.free_pages && before.free_slots == after.free_slots);
		run_all(r.session, is_nosy ? again : answers, is_nosy ? counts_again : counts, finish);
		rig_close(&r);
	}
	assert_true(counts[0] > 0 && counts[0] == counts_again[0]);
	assert_memory_equal(answers[0], again[0], sizeof(int) * (size_t)counts[0]);
}

/* From the least number above 0 on: next to no temperature is none, on every device. */
static void hardly_warm_is_greedy(void **state)
{
	static const float temperatures[] = {0, 1e-45f, 1e-42f, 1e-40f, 1e-38f, 1e-35f, 9e-31f, 1e-30f, 1e-20f, 1e-10f};
	int first[4][64], counts[4] = {0};
	AtlasFinish finish[4];
	(void)state;
	for (int device = 0; device < 2; device++)
		for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
			int answers[4][64], n[4] = {0}, slot;
			int32_t tokens[9];
			AtlasSampling s;
			AtlasError error;
			Rig r;
			if (device == 0) {
				rig_open(&r, "llama", 0);
			} else {
				rig_plan(&r, "llama", 0);
				assert_int_equal(atlas_session_open(r.plan, &(AtlasSessionOptions){
					.struct_size = sizeof(AtlasSessionOptions), .device = "cpu", .n_threads = 1}, &r.session, &error),
					ATLAS_OK);
			}
			atlas_sampling_init(r.plan, &s);
			s.temperature = temperatures[i];
			fill_prompt(tokens, 9, 2);
			assert_int_equal(atlas_start(r.session, tokens, 9, &s, 16, &slot), ATLAS_OK);
			run_all(r.session, answers, n, finish);
			if (device == 0 && i == 0) {
				memcpy(first, answers, sizeof first);
				memcpy(counts, n, sizeof counts);
			}
			assert_int_equal(n[0], counts[0]);
			assert_memory_equal(answers[0], first[0], sizeof(int) * (size_t)n[0]);
			rig_close(&r);
		}
}

/* Penalties that could make a score infinite are the caller's mistake, not the GPU's. */
static void penalties_stay_numbers(void **state)
{
	const float far[] = {1e-45f, 1e-4f, 1001, 3e38f};
	const int32_t token = 5;
	int slot;
	AtlasSampling s;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
		atlas_sampling_init(r.plan, &s);
		s.repetition_penalty = far[i];
		REFUSED(atlas_start(r.session, &token, 1, &s, 1, &slot));
		assert_non_null(strstr(atlas_session_error(r.session), "repetition_penalty = "));
		atlas_sampling_init(r.plan, &s);
		s.frequency_penalty = i < 2 ? -1001 : far[i];
		REFUSED(atlas_start(r.session, &token, 1, &s, 1, &slot));
		assert_non_null(strstr(atlas_session_error(r.session), "frequency_penalty = "));
	}
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nulls_are_refused),
		cmocka_unit_test(callbacks_lose_nothing),
		cmocka_unit_test(hardly_warm_is_greedy),
		cmocka_unit_test(penalties_stay_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
