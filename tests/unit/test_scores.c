/* test_scores.c - scores in steps among other sequences (atlas_score_start), on the fake driver and the reference. */
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 70, VOCAB = 40, GRID = 16 /* of the plan: synthetic.c */ };

static void open_on(Rig *r, int device)
{
	rig_plan(r, "llama", 0);
	if (device == 0)
		assert_int_equal(open_fake(r), ATLAS_OK);
	else
		assert_int_equal(atlas_session_open(r->plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
			.device = "cpu", .n_threads = 2}, &r->session, &r->error), ATLAS_OK);
}

/* Steps until the slot's event; tokens of other slots go to answers. */
static AtlasEvent run_to(AtlasSession *s, int slot, int answers[4][64], int counts[4])
{
	AtlasEvent events[4];
	for (int n = 0;;) {
		assert_int_equal(atlas_step(s, events, 4, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			if (events[i].slot == slot)
				return events[i];
			answers[events[i].slot][counts[events[i].slot]++] = events[i].token;
		}
	}
}

/* The rows are those of atlas_score, and answers meanwhile those without it, wherever the steps were cut. */
static void scores_among_answers(void **state)
{
	static const int gaps[] = {0, 1, 64};
	(void)state;
	for (int device = 0; device < 2; device++) {
		for (int g = 0; g < 3; g++) {
			Rig r;
			int32_t tokens[N], prompt[9];
			int slot, scorer, answers[2][4][64], counts[2][4] = {{0}};
			AtlasFinish finish[4];
			Collected whole = {0}, steps = {0};
			open_on(&r, device);
			session_max_gap(r.session, gaps[g], 0);
			fill_prompt(tokens, N, 3);
			fill_prompt(prompt, 9, 1);
			assert_int_equal(atlas_score(r.session, tokens, N, take_logits, &whole), ATLAS_OK);
			assert_int_equal(whole.n, N * VOCAB);
			assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 40, &slot), ATLAS_OK);
			run_all(r.session, answers[0], counts[0], finish);
			assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 40, &slot), ATLAS_OK);
			assert_int_equal(atlas_score_start(r.session, tokens, N, take_logits, &steps, &scorer), ATLAS_OK);
			memset(tokens, 0, sizeof tokens); /* they were copied */
			assert_int_equal(atlas_active(r.session), 2);
			const AtlasEvent end = run_to(r.session, scorer, answers[1], counts[1]);
			assert_true(end.token == -1 && isnan(end.logprob) && end.finish == ATLAS_LENGTH);
			assert_int_equal(atlas_active(r.session), 1);
			run_all(r.session, answers[1], counts[1], finish);
			assert_int_equal(steps.n, whole.n);
			assert_memory_equal(steps.at, whole.at, sizeof(float) * (size_t)whole.n);
			assert_int_equal(counts[1][slot], counts[0][slot]);
			assert_memory_equal(answers[1][slot], answers[0][slot], sizeof(int) * (size_t)counts[0][slot]);
			free(whole.at), free(steps.at);
			rig_close(&r);
		}
	}
}

/* While a text is scored, an answer loses no more than every second step, a cell's: with max_gap, and where steps are
 * mixed, since one that scores has no row for it. */
static void answers_go_on_beside_scores(void **state)
{
	static const struct { int mixed, max_gap; bool takes_turns; } rows[] = {{ATLAS_MIXED_OFF, 0, false},
		{ATLAS_MIXED_OFF, 1, true}, {ATLAS_MIXED_ON, 0, true}, {ATLAS_MIXED_ON, 200, true}};
	(void)state;
	for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
		Rig r;
		int32_t tokens[N], prompt[9];
		AtlasEvent events[4];
		Collected scores = {0};
		int slot, scorer, n, before = 0, least = N, most = 0;
		open_on(&r, i % 2);
		session_max_gap(r.session, rows[i / 2].max_gap, 0);
		assert_int_equal(session_mix(r.session, rows[i / 2].mixed, &r.error), ATLAS_OK);
		fill_prompt(tokens, N, 3);
		fill_prompt(prompt, 9, 1);
		assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 40, &slot), ATLAS_OK);
		assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
		assert_int_equal(n, 1);
		assert_int_equal(atlas_score_start(r.session, tokens, N, take_logits, &scores, &scorer), ATLAS_OK);
		for (bool had_answer = true; scores.n < N * VOCAB; before = scores.n) {
			assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
			const int read = (scores.n - before) / VOCAB;
			const bool has_answer = n > 0 && events[0].slot == slot;
			assert_true(has_answer == (read == 0) && (has_answer || had_answer || !rows[i / 2].takes_turns));
			had_answer = has_answer;
			least = read && scores.n < N * VOCAB && read < least ? read : least;
			most = read > most ? read : most;
		}
		assert_true(rows[i / 2].takes_turns ? least == GRID && most == GRID : most > GRID);
		free(scores.at);
		rig_close(&r);
	}
}

/* Two that wait are read in order; one that is cancelled says nothing more. */
static void scores_wait_and_are_cancelled(void **state)
{
	Rig r;
	int32_t tokens[N];
	int first, second, third, slot, answers[4][64], counts[4] = {0};
	Collected a = {0}, b = {0}, c = {0};
	(void)state;
	open_on(&r, 0);
	fill_prompt(tokens, N, 3);
	assert_int_equal(atlas_score_start(r.session, tokens, N, take_logits, &a, &first), ATLAS_OK);
	assert_int_equal(atlas_score_start(r.session, tokens, N, take_logits, &b, &second), ATLAS_OK);
	assert_int_equal(atlas_start(r.session, tokens, 5, NULL, 2, &slot), ATLAS_OK);
	assert_int_equal(atlas_score_start(r.session, tokens, 12, take_logits, &c, &third), ATLAS_OK);
	assert_int_equal(atlas_cancel(r.session, second), ATLAS_OK);
	assert_int_equal(run_to(r.session, first, answers, counts).finish, ATLAS_LENGTH);
	assert_int_equal(run_to(r.session, third, answers, counts).finish, ATLAS_LENGTH);
	assert_int_equal(a.n, N * VOCAB);
	assert_int_equal(b.n, 0);
	assert_memory_equal(c.at, a.at, sizeof(float) * 12 * VOCAB);
	assert_int_equal(atlas_cancel(r.session, third), ATLAS_ARGUMENT);
	while (atlas_active(r.session))
		run_to(r.session, slot, answers, counts);
	free(a.at), free(c.at);
	rig_close(&r);
}

typedef struct Nosy { AtlasSession *session; int rows; } Nosy;

static int ask_and_stop(void *ctx, int pos, const float *logits)
{
	Nosy *nosy = ctx;
	AtlasEvent events[4];
	int n;
	(void)logits;
	assert_int_equal(pos, nosy->rows++);
	assert_int_equal(atlas_step(nosy->session, events, 4, &n), ATLAS_ARGUMENT);
	assert_int_equal(atlas_cancel(nosy->session, 0), ATLAS_ARGUMENT);
	return nosy->rows == 5;
}

static void a_callback_ends_its_scores(void **state)
{
	Rig r;
	int32_t tokens[N];
	int slot, answers[4][64], counts[4] = {0};
	(void)state;
	for (int device = 0; device < 2; device++) {
		open_on(&r, device);
		Nosy nosy = {.session = r.session};
		fill_prompt(tokens, N, 3);
		assert_int_equal(atlas_score_start(r.session, tokens, N, ask_and_stop, &nosy, &slot), ATLAS_OK);
		assert_int_equal(run_to(r.session, slot, answers, counts).finish, ATLAS_STOP);
		assert_int_equal(nosy.rows, 5);
		assert_int_equal(atlas_active(r.session), 0);
		rig_close(&r);
	}
}

static void bad_arguments(void **state)
{
	Rig r;
	int32_t tokens[N] = {0};
	int slot;
	Collected a = {0};
	(void)state;
	open_on(&r, 0);
	assert_int_equal(atlas_score_start(NULL, tokens, 1, take_logits, &a, &slot), ATLAS_ARGUMENT);
	assert_int_equal(atlas_score_start(r.session, NULL, 1, take_logits, &a, &slot), ATLAS_ARGUMENT);
	assert_int_equal(atlas_score_start(r.session, tokens, 1, NULL, &a, &slot), ATLAS_ARGUMENT);
	assert_int_equal(atlas_score_start(r.session, tokens, 1, take_logits, &a, NULL), ATLAS_ARGUMENT);
	assert_int_equal(atlas_score_start(r.session, tokens, 0, take_logits, &a, &slot), ATLAS_CONTEXT);
	tokens[2] = VOCAB;
	assert_int_equal(atlas_score_start(r.session, tokens, 3, take_logits, &a, &slot), ATLAS_TOKEN);
	assert_int_equal(atlas_active(r.session), 0);
	rig_close(&r);
}

/* Against sums in double precision, written down another way. */
static void rows_become_probabilities(void **state)
{
	Rig r;
	float logits[VOCAB], logprob;
	AtlasTop top[VOCAB];
	(void)state;
	open_on(&r, 0);
	for (int salt = 0; salt < 20; salt++) {
		double sum = 0;
		int n, best = 0;
		for (int v = 0; v < VOCAB; v++) {
			logits[v] = (float)(((v + 1) * (salt + 7) * 2654435761u >> 8) % 1000) / 50 - 10;
			best = logits[v] > logits[best] ? v : best;
		}
		const int count = plan_drawable(r.plan);
		for (int v = 0; v < count; v++)
			sum += exp((double)logits[v]);
		n = atlas_score_top(r.plan, logits, 5, &logprob, top, 4);
		assert_int_equal(n, 4);
		assert_true(fabs(logprob - log(exp((double)logits[5]) / sum)) < 1e-5);
		assert_int_equal(top[0].token, best);
		for (int k = 0; k < n; k++)
			assert_true(fabs(top[k].logprob - log(exp((double)logits[top[k].token]) / sum)) < 1e-5);
		atlas_score_top(r.plan, logits, best, &logprob, top, 1);
		assert_true(logprob == top[0].logprob);
		assert_int_equal(atlas_score_top(r.plan, logits, 5, &logprob, NULL, 0), 0);
	}
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scores_among_answers),
		cmocka_unit_test(answers_go_on_beside_scores),
		cmocka_unit_test(scores_wait_and_are_cancelled),
		cmocka_unit_test(a_callback_ends_its_scores),
		cmocka_unit_test(bad_arguments),
		cmocka_unit_test(rows_become_probabilities),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
