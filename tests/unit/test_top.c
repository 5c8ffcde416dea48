/* test_top.c - the most probable tokens beside each one that is drawn, against the scores of the whole text.
 *
 * On the fake GPU with steps ahead, on the reference device, and on both with drafts.
 */
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EVENTS = 8 * PLAN_MAX_VERIFY, PROMPT = 9, LENGTH = 20, SEQUENCES = 3, VOCAB = 304 };
enum { FAKE, CPU, FAKE_DRAFTS, CPU_DRAFTS, KINDS };

typedef struct Made {
	int token[LENGTH], n, n_top[LENGTH];
	float logprob[LENGTH];
	AtlasTop top[LENGTH][ATLAS_MAX_TOP];
} Made;

static AtlasPlanInfo open_kind(Rig *r, int kind)
{
	AtlasPlanInfo info = {.struct_size = sizeof info};
	if (kind >= FAKE_DRAFTS)
		rig_checkpoint(r, "tests/fixtures/qwen3_5");
	else
		rig_plan(r, "llama", 0);
	r->steps_ahead = 8;
	if (kind == FAKE || kind == FAKE_DRAFTS)
		assert_int_equal(open_fake(r), ATLAS_OK);
	else
		assert_int_equal(atlas_session_open(r->plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
			.device = "cpu", .n_threads = 1}, &r->session, &r->error), ATLAS_OK);
	session_speculate(r->session, kind >= FAKE_DRAFTS);
	atlas_plan_info(r->plan, &info);
	return info;
}

/* Sequences that ask for n_top alternatives each, with bias [n_bias] in the first. */
static void answer(AtlasSession *s, const int n_top[SEQUENCES], bool is_warm, const AtlasBias *bias, int n_bias,
	Made made[SEQUENCES])
{
	AtlasSampling sampling = {.struct_size = sizeof sampling, .top_p = 1, .repetition_penalty = 1, .seed = 5,
		.temperature = is_warm ? 1.2f : 0};
	AtlasEvent events[EVENTS];
	int32_t prompt[PROMPT];
	const AtlasTop *top;
	int slot, n, n_alternatives;
	memset(made, 0, sizeof *made * SEQUENCES);
	for (int i = 0; i < SEQUENCES; i++) {
		fill_prompt(prompt, PROMPT, i);
		assert_int_equal(atlas_request_start(s, &(AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = prompt,
			.n_tokens = PROMPT, .sampling = &sampling, .max_new = LENGTH, .ignore_stops = 1, .top_logprobs = n_top[i],
			.bias = bias, .n_bias = i ? 0 : n_bias}, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
		assert_int_equal(atlas_event_top(s, 0, &top, &n), ATLAS_ARGUMENT);
	}
	while (atlas_active(s)) {
		assert_int_equal(atlas_step(s, events, EVENTS, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			Made *m = &made[events[i].slot];
			assert_int_equal(atlas_event_top(s, i, &top, &n_alternatives), ATLAS_OK);
			m->token[m->n] = events[i].token;
			m->logprob[m->n] = events[i].logprob;
			m->n_top[m->n] = n_alternatives;
			if (n_alternatives)
				memcpy(m->top[m->n], top, sizeof *top * (size_t)n_alternatives);
			m->n++;
		}
		assert_int_equal(atlas_event_top(s, n, &top, &n_alternatives), ATLAS_ARGUMENT);
		assert_true(!top && n_alternatives == 0);
		assert_int_equal(atlas_event_top(s, -1, &top, &n_alternatives), ATLAS_ARGUMENT);
	}
	assert_int_equal(atlas_step(s, events, EVENTS, &n), ATLAS_OK);
	assert_int_equal(n, 0);
	assert_int_equal(atlas_event_top(s, 0, &top, &n), ATLAS_ARGUMENT); /* those of the step before are gone */
}

typedef struct Scores { double at[PROMPT + LENGTH][VOCAB]; int n_drawable; } Scores;

static int keep_scores(void *ctx, int pos, const float *logits)
{
	Scores *s = ctx;
	double sum = 0;
	for (int v = 0; v < s->n_drawable; v++)
		sum += exp(logits[v]);
	for (int v = 0; v < s->n_drawable; v++)
		s->at[pos][v] = logits[v] - log(sum);
	return 0;
}

static int descending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? 1 : x > y ? -1 : 0;
}

/* What was made of one prompt, against scores of prompt and answer. */
static void check(AtlasSession *s, const AtlasPlanInfo *info, int which, int n_top, const Made *m, int kind,
	bool is_top)
{
	static Scores scores;
	int32_t tokens[PROMPT + LENGTH];
	static const double tolerances[KINDS] = {5e-2, 2e-5, 0.6, 2e-5}; /* the fake GPU rounds to bf16 between ops */
	const double tolerance = tolerances[kind];
	int n_drawn = 0;
	fill_prompt(tokens, PROMPT, which);
	scores.n_drawable = info->n_drawable;
	assert_int_equal(m->n, LENGTH);
	for (int k = 0; k < LENGTH; k++)
		tokens[PROMPT + k] = m->token[k];
	assert_int_equal(atlas_score(s, tokens, PROMPT + LENGTH - 1, keep_scores, &scores), ATLAS_OK);
	for (int k = 0; k < LENGTH; k++) {
		const double *want = scores.at[PROMPT + k - 1];
		double sorted[VOCAB];
		memcpy(sorted, want, sizeof *want * (size_t)info->n_drawable);
		qsort(sorted, (size_t)info->n_drawable, sizeof *sorted, descending);
		assert_int_equal(m->n_top[k], n_top);
		for (int j = 0; j < n_top; j++) {
			const AtlasTop t = m->top[k][j];
			assert_in_range(t.token, 0, info->n_drawable - 1);
			if (!(fabs(t.logprob - want[t.token]) < tolerance && fabs(t.logprob - sorted[j]) < tolerance))
				fail_msg("kind %d, token %d of the answer: alternative %d is %d, %g; its score says %g, that in its "
					"place %g", kind, k, j, t.token, (double)t.logprob, want[t.token], sorted[j]);
			assert_true(t.logprob <= 0);
			for (int i = 0; i < j; i++) {
				assert_int_not_equal(m->top[k][i].token, t.token);
				assert_true(m->top[k][i].logprob >= t.logprob);
			}
			if (j && m->top[k][j - 1].logprob == t.logprob && want[m->top[k][j - 1].token] == want[t.token])
				assert_true(m->top[k][j - 1].token < t.token);
			if (t.token == m->token[k]) {
				assert_memory_equal(&t.logprob, &m->logprob[k], sizeof t.logprob);
				n_drawn++;
			}
		}
	}
	assert_true(n_drawn == LENGTH || !is_top || !n_top);
}

static void alternatives_are_those_of_the_scores(void **state)
{
	static const int asked[][SEQUENCES] = {{5, 0, ATLAS_MAX_TOP}, {0, 1, 0}, {3, 7, 2}, {0, 0, 0}};
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		assert_true(info.vocab <= VOCAB);
		for (int is_warm = 0; is_warm < 2; is_warm++) {
			static Made plain[SEQUENCES], made[SEQUENCES];
			answer(rig.session, asked[3], is_warm, NULL, 0, plain);
			for (int a = 0; a < 3; a++) {
				answer(rig.session, asked[a], is_warm, NULL, 0, made);
				for (int i = 0; i < SEQUENCES; i++) {
					assert_memory_equal(made[i].token, plain[i].token, sizeof plain[i].token);
					assert_memory_equal(made[i].logprob, plain[i].logprob, sizeof plain[i].logprob);
					check(rig.session, &info, i, asked[a][i], &made[i], kind, !is_warm);
				}
			}
		}
		rig_close(&rig);
	}
}

/* They are of the scores before bias: what it forbids is among them, what it brings in has the probability it had. */
static void bias_does_not_move_them(void **state)
{
	static const int asked[] = {6, 0, 4};
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		static Made plain[SEQUENCES], made[SEQUENCES];
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		answer(rig.session, asked, false, NULL, 0, plain);
		const AtlasBias bias[] = {{plain[0].top[0][0].token, -INFINITY}, {plain[0].top[0][2].token, 100}};
		answer(rig.session, asked, false, bias, 2, made);
		assert_int_equal(made[0].token[0], bias[1].token);
		for (int j = 0; j < 6; j++) {
			assert_int_equal(made[0].top[0][j].token, plain[0].top[0][j].token);
			assert_true(fabsf(made[0].top[0][j].logprob - plain[0].top[0][j].logprob) < 1e-5f);
		}
		for (int i = 0; i < SEQUENCES; i++)
			check(rig.session, &info, i, asked[i], &made[i], kind, i > 0);
		AtlasSessionInfo now = {.struct_size = sizeof now};
		atlas_session_info(rig.session, &now); /* bias brings one token in, which is drafted as well */
		assert_true(now.accepted_drafts >= (kind >= FAKE_DRAFTS ? LENGTH / 3 : 0));
		rig_close(&rig);
	}
}

/* A sequence of which no token can be drawn has none, and leaves none of the step before. */
static void no_token_no_alternatives(void **state)
{
	AtlasBias bias[40];
	AtlasEvent events[EVENTS];
	const AtlasTop *top;
	const int32_t prompt[] = {5, 6};
	int slot, n, n_alternatives;
	Rig rig;
	(void)state;
	open_kind(&rig, FAKE);
	for (int v = 0; v < 40; v++)
		bias[v] = (AtlasBias){v, -INFINITY};
	for (int n_bias = 0; n_bias <= 40; n_bias += 40) {
		assert_int_equal(atlas_request_start(rig.session, &(AtlasRequest){.struct_size = sizeof(AtlasRequest),
			.tokens = prompt, .n_tokens = 2, .max_new = 1, .top_logprobs = 4, .bias = bias, .n_bias = n_bias}, &slot),
			ATLAS_OK);
		assert_int_equal(atlas_step(rig.session, events, EVENTS, &n), ATLAS_OK);
		assert_int_equal(n, 1);
		assert_int_equal(events[0].finish, n_bias ? ATLAS_FAILED : ATLAS_LENGTH);
		assert_int_equal(atlas_event_top(rig.session, 0, &top, &n_alternatives), ATLAS_OK);
		assert_int_equal(n_alternatives, n_bias ? 0 : 4);
	}
	rig_close(&rig);
}

/* Wakes the session when its step has waited for a while; what it waits for comes afterwards. */
typedef struct Waking { DeviceOps ops; const DeviceOps *real; AtlasSession *session; int looks; } Waking;
static Waking waking;

static AtlasStatus look_and_wake(Device *d, bool *is_busy)
{
	if (waking.looks++) {
		d->ops = waking.real;
		const AtlasStatus s = waking.real->look(d, is_busy);
		d->ops = &waking.ops;
		return s;
	}
	atlas_wake(waking.session);
	*is_busy = true;
	return ATLAS_OK;
}

/* A step whose scores are read is taken whole: what is asked next may write where they are. */
static void a_woken_step_has_its_alternatives(void **state)
{
	const int32_t prompt[] = {5, 6};
	AtlasEvent events[EVENTS];
	AtlasRequest r = {.struct_size = sizeof r, .tokens = prompt, .n_tokens = 2, .max_new = 5, .ignore_stops = 1};
	(void)state;
	for (int n_top = 0; n_top <= 4; n_top += 4) {
		const AtlasTop *top;
		int slot, n, n_alternatives, made = 0;
		Rig rig;
		open_kind(&rig, FAKE);
		r.top_logprobs = n_top;
		assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_OK);
		assert_int_equal(atlas_step(rig.session, events, EVENTS, &n), ATLAS_OK);
		Device *d = session_device(rig.session);
		waking = (Waking){.ops = *d->ops, .real = d->ops, .session = rig.session};
		waking.ops.look = look_and_wake;
		d->ops = &waking.ops;
		assert_int_equal(atlas_step(rig.session, events, EVENTS, &n), ATLAS_OK);
		d->ops = waking.real;
		assert_true(waking.looks > 0);
		assert_int_equal(n, n_top ? 1 : 0);
		assert_int_equal(atlas_request_start(rig.session, &r, &slot), ATLAS_OK);
		assert_int_equal(atlas_event_top(rig.session, 0, &top, &n_alternatives), n_top ? ATLAS_OK : ATLAS_ARGUMENT);
		assert_int_equal(n_alternatives, n_top);
		while (atlas_active(rig.session)) {
			assert_int_equal(atlas_step(rig.session, events, EVENTS, &n), ATLAS_OK);
			for (int i = 0; i < n; i++, made++) {
				assert_int_equal(atlas_event_top(rig.session, i, &top, &n_alternatives), ATLAS_OK);
				assert_int_equal(n_alternatives, n_top);
			}
		}
		assert_int_equal(made, 5 + 5 - (n_top ? 2 : 1));
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alternatives_are_those_of_the_scores),
		cmocka_unit_test(bias_does_not_move_them),
		cmocka_unit_test(no_token_no_alternatives),
		cmocka_unit_test(a_woken_step_has_its_alternatives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
