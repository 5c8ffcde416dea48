/* test_drafts.c - steps that draft and verify, on the fake GPU: what they cost the driver, and that texts stay.
 *
 * The plan is that of a checkpoint with a head, with weights made up: no draft is right but by chance, so which count
 * is prescribed where the test needs some. The fake GPU runs every launch of the plan by what its op means, in the most
 * unusual order that the edges allow.
 */
#include "runtime/session.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SLOTS = 4, MOST = 3 /* tokens of a step */, EVENTS = SLOTS * PLAN_MAX_VERIFY, LONG = 96 };

static void by_ladder(Options *o)
{
	static const Rung ladder[] = {{1, 3}, {2, 2}, {SLOTS, 1}};
	memcpy(o->ladder, ladder, sizeof ladder);
	o->n_ladder = 3;
}

static void by_ngrams(Options *o)
{
	o->ladder[0] = (Rung){2, 4};
	o->ladder[1] = (Rung){SLOTS, 2};
	o->n_ladder = 2;
	o->verify_rows = 4;
	o->ngram_min = 1;
	o->ngram_max = 2;
}

static void open_as(Rig *r, const char *folder, void (*change)(Options *))
{
	rig_checkpoint_as(r, folder, change);
	assert_int_equal(open_fake(r), ATLAS_OK);
}

static void open_head(Rig *r)
{
	rig_checkpoint(r, "tests/fixtures/qwen3_5");
	assert_int_equal(open_fake(r), ATLAS_OK);
}

/* Three prompts at once; what each answers. */
static void answer(Rig *r, int length, int answers[SLOTS][64], int counts[SLOTS])
{
	AtlasEvent events[EVENTS];
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1};
	int32_t prompt[LONG + 4];
	int slot, n;
	memset(counts, 0, sizeof *counts * SLOTS);
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < length + 4; k++)
			prompt[k] = (3 + i + 5 * k) % r->plan->artifact.graph.vocab;
		a.temperature = i == 1 ? 0.8f : 0;
		assert_int_equal(atlas_start(r->session, prompt, length + 2 * i, &a, 20 + 9 * i, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
	}
	while (atlas_active(r->session) > 0) {
		assert_int_equal(atlas_step(r->session, events, EVENTS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			answers[events[i].slot][counts[events[i].slot]++] = events[i].token;
	}
}

/* Three run, then two, then one: each rung of a ladder has its turn. */
static void texts_are_equal(const char *folder, void (*change)(Options *))
{
	int plain[SLOTS][64], drafted[SLOTS][64], n_plain[SLOTS], n_drafted[SLOTS];
	AtlasSessionInfo info = {.struct_size = sizeof info};
	Rig r;
	open_as(&r, folder, change);
	const int length = change == by_ngrams ? LONG : 5; /* in which many a token is found again */
	answer(&r, length, plain, n_plain);
	session_speculate(r.session, true);
	answer(&r, length, drafted, n_drafted);
	for (int i = 0; i < 3; i++) {
		assert_true(n_plain[i] > 5 && n_plain[i] <= 20 + 9 * i);
		assert_int_equal(n_drafted[i], n_plain[i]);
		assert_memory_equal(drafted[i], plain[i], sizeof(int) * (size_t)n_plain[i]);
	}
	atlas_session_info(r.session, &info);
	assert_true(info.drafts > 0);
	rig_close(&r);
}

static void text_is_that_of_plain_decoding(void **state)
{
	(void)state;
	texts_are_equal("tests/fixtures/qwen3_5", NULL);
	texts_are_equal("tests/fixtures/qwen3_5", by_ladder);
	texts_are_equal("tests/fixtures/qwen3_5", by_ngrams);
	texts_are_equal("tests/fixtures/llama", by_ngrams);
}

/* What is drafted here goes to the device with each step that has some, and a step is one graph: a small copy. */
static void steps_of_ngrams_are_one_copy_and_one_graph(void **state)
{
	const double all[PLAN_MAX_VERIFY - 1] = {1, 1, 1};
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1};
	AtlasSessionInfo info = {.struct_size = sizeof info};
	AtlasEvent events[EVENTS];
	int32_t prompt[9];
	int slot, made;
	char *log;
	size_t n;
	Rig r;
	(void)state;
	open_as(&r, "tests/fixtures/llama", by_ngrams);
	r.fake.is_eager = true;
	session_speculate(r.session, true);
	session_prescribe(r.session, all);
	fill_prompt(prompt, 9, 4);
	assert_int_equal(atlas_start(r.session, prompt, 9, &a, 1 + 6 * 4, &slot), ATLAS_OK);
	assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
	const int before = r.fake.n_allocations;
	for (int i = 0; i < 6; i++) {
		log_calls(&r, &log, &n);
		assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
		assert_int_equal(made, 4);
		fclose(r.fake.log);
		r.fake.log = NULL;
		drop_lines(log, "Ctx");
		const char *copy = strstr(log, "MemcpyHtoDAsync"), *graph = strstr(log, "GraphLaunch");
		assert_true(copy && graph && copy < graph && !strstr(copy + 1, "MemcpyHtoDAsync") &&
			!strstr(graph + 1, "GraphLaunch"));
		free(log);
	}
	assert_int_equal(r.fake.n_allocations, before);
	atlas_session_info(r.session, &info);
	assert_int_equal(info.accepted_drafts, info.drafts);
	assert_int_equal(info.drafts, 6 * 3);
	rig_close(&r);
}

/* Both phases send their inputs once; then a step is one graph, whatever it makes. Nothing is allocated. */
static void steps_are_one_graph(void **state)
{
	const double all[PLAN_MAX_VERIFY - 1] = {1, 1, 1};
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1};
	AtlasSessionInfo info = {.struct_size = sizeof info};
	AtlasEvent events[EVENTS];
	int32_t prompt[9];
	int slot, made;
	char *log;
	size_t n;
	Rig r;
	(void)state;
	open_head(&r);
	r.fake.is_eager = true;
	session_speculate(r.session, true);
	session_prescribe(r.session, all);
	fill_prompt(prompt, 9, 4);
	assert_int_equal(atlas_start(r.session, prompt, 9, &a, 1 + 6 * MOST, &slot), ATLAS_OK);
	assert_int_equal(atlas_session_info(r.session, &info), ATLAS_OK);
	const int room = r.plan->artifact.graph.slots * MOST; /* of which every step may need all */
	assert_int_equal(atlas_step(r.session, events, room - 1, &made), ATLAS_ARGUMENT);
	assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
	assert_int_equal(made, 1);
	const int before = r.fake.n_allocations;
	log_calls(&r, &log, &n);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
		assert_int_equal(made, MOST);
		assert_int_equal(events[MOST - 1].finish, i == 5 ? ATLAS_LENGTH : ATLAS_RUNNING);
	}
	fclose(r.fake.log);
	r.fake.log = NULL;
	drop_lines(log, "Ctx");
	assert_non_null(strstr(log, "MemcpyHtoDAsync"));
	assert_non_null(strstr(strstr(log, "MemcpyHtoDAsync") + 1, "MemcpyHtoDAsync"));
	drop_lines(log, "MemcpyHtoDAsync");
	drop_lines(log, "GraphLaunch");
	assert_string_equal(log, "");
	free(log);
	assert_int_equal(r.fake.n_allocations, before);
	atlas_session_info(r.session, &info);
	assert_int_equal(info.step_tokens, MOST);
	assert_int_equal(info.accepted_drafts, info.drafts);
	assert_string_equal(info.step_phase, "verify");
	assert_int_equal(info.step_rows, MOST);
	assert_true(info.step_bucket >= MOST && info.step_bucket % MOST == 0);
	rig_close(&r);
}

/* Scores are read behind a step, whose last launches are the head's: nothing of those lies in their place. */
static void scores_outlive_the_head(void **state)
{
	Rig r;
	(void)state;
	open_head(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_bufs; i++)
			if (strcmp(t->phases[p].bufs[i].name, logits_name(t->phases[p].kind)) == 0)
				assert_int_equal(t->phases[p].bufs[i].last, t->phases[p].n_launches - 1);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_that_of_plain_decoding),
		cmocka_unit_test(steps_are_one_graph),
		cmocka_unit_test(steps_of_ngrams_are_one_copy_and_one_graph),
		cmocka_unit_test(scores_outlive_the_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
