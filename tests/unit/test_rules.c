/* test_rules.c - what requests say of single tokens: bias, the least length, stop tokens, and those that are ignored.
 *
 * Properties over seeds, greedy and sampled, each on the fake GPU with steps ahead, on the reference device, and on
 * both with drafts, most of which count.
 */
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EVENTS = 8 * PLAN_MAX_VERIFY, SEEDS = 6, PROMPT = 9, LENGTH = 24, MOST = 64 };
enum { FAKE, CPU, FAKE_DRAFTS, CPU_DRAFTS, KINDS };

typedef struct Answer { int token[MOST]; float logprob[MOST]; int n; AtlasFinish finish; } Answer;

static AtlasPlanInfo open_kind(Rig *r, int kind)
{
	const double most[PLAN_MAX_VERIFY - 1] = {0.7, 0.7, 0.7};
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
	if (kind == FAKE_DRAFTS)
		session_prescribe(r->session, most);
	atlas_plan_info(r->plan, &info);
	return info;
}

static AtlasSampling sampling_of(int seed)
{
	return (AtlasSampling){.struct_size = sizeof(AtlasSampling), .top_p = seed % 3 ? 1 : 0.9f, .repetition_penalty =
		seed % 4 == 3 ? 1.2f : 1, .seed = (uint64_t)seed, .temperature = seed % 2 ? 0.9f : 0};
}

/* n requests at once, to their ends; what they all share is filled in. Answers are by request. */
static void answer(AtlasSession *s, AtlasRequest *r, int n, int seed, Answer *a)
{
	AtlasSampling sampling = sampling_of(seed);
	AtlasEvent events[EVENTS];
	int32_t prompt[PROMPT];
	int of[8] = {0}, slot, made;
	memset(a, 0, sizeof *a * (size_t)n);
	for (int i = 0; i < n; i++) {
		fill_prompt(prompt, PROMPT, i);
		r[i].struct_size = sizeof r[i];
		r[i].tokens = prompt;
		r[i].n_tokens = PROMPT;
		r[i].sampling = &sampling;
		r[i].max_new = r[i].max_new ? r[i].max_new : LENGTH;
		if (atlas_request_start(s, &r[i], &slot) != ATLAS_OK)
			fail_msg("%s", atlas_session_error(s));
		of[slot] = i;
	}
	while (atlas_active(s)) {
		assert_int_equal(atlas_step(s, events, EVENTS, &made), ATLAS_OK);
		for (int i = 0; i < made; i++) {
			Answer *to = &a[of[events[i].slot]];
			assert_int_equal(to->finish, ATLAS_RUNNING);
			to->token[to->n] = events[i].token;
			to->logprob[to->n++] = events[i].logprob;
			to->finish = events[i].finish;
		}
	}
}

static void assert_same(const Answer *a, const Answer *b)
{
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->finish, b->finish);
	assert_memory_equal(a->token, b->token, sizeof a->token);
	assert_memory_equal(a->logprob, b->logprob, sizeof a->logprob);
}

static int below(uint64_t *random, int n)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (int)((*random >> 33) % (uint64_t)n);
}

/* Half of the tokens are banned and no token of these is drawn; what others draw beside it has not one bit changed, nor
 * what the slot draws for its next owner. */
static void banned_tokens_are_not_drawn(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		int n_drawn = 0;
		for (int seed = 0; seed < SEEDS; seed++) {
			AtlasBias bias[ATLAS_MAX_BIAS];
			AtlasRequest plain[3] = {{0}}, biased[3] = {{.bias = bias}};
			Answer before[3], with[3], after[3];
			uint64_t random = (uint64_t)seed;
			int n = 0;
			for (int v = 0; v < info.vocab && n < ATLAS_MAX_BIAS; v++)
				if (below(&random, 2))
					bias[n++] = (AtlasBias){v, -INFINITY};
			biased[0].n_bias = n;
			answer(rig.session, plain, 3, seed, before);
			answer(rig.session, biased, 3, seed, with);
			answer(rig.session, plain, 3, seed, after);
			for (int k = 0; k < with[0].n; k++)
				for (int i = 0; i < n; i++)
					assert_int_not_equal(with[0].token[k], bias[i].token);
			for (int k = 0; k < before[0].n; k++)
				for (int i = 0; i < n; i++)
					n_drawn += before[0].token[k] == bias[i].token;
			assert_same(&before[0], &after[0]);
			for (int i = 1; i < 3; i++) {
				assert_same(&before[i], &with[i]);
				assert_same(&before[i], &after[i]);
			}
		}
		assert_true(n_drawn > SEEDS); /* else nothing was asked of the bans */
		rig_close(&rig);
	}
}

typedef struct Wanted { int token; double logprob; } Wanted;

static int score_of(void *ctx, int pos, const float *logits)
{
	Wanted *w = ctx;
	double sum = 0;
	(void)pos;
	for (int v = 0; v < 40; v++)
		sum += exp(logits[v]);
	w->logprob = logits[w->token] - log(sum);
	return 0;
}

/* A token that gains 100 is always drawn; its log probability is that of the model's own scores. */
static void a_large_bias_decides(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		for (int seed = 0; seed < SEEDS; seed++) {
			uint64_t random = (uint64_t)seed + 100;
			AtlasBias bias[2] = {{below(&random, info.n_drawable), 100}, {0, -3}};
			bias[1].token = (bias[0].token + 1) % info.n_drawable;
			AtlasRequest r[2] = {{.bias = bias, .n_bias = 2, .ignore_stops = 1}};
			Answer a[2];
			answer(rig.session, r, 2, seed, a);
			assert_int_equal(a[0].n, LENGTH);
			assert_int_equal(a[0].finish, ATLAS_LENGTH);
			for (int k = 0; k < LENGTH; k++)
				assert_int_equal(a[0].token[k], bias[0].token);
			if (kind >= FAKE_DRAFTS || sampling_of(seed).repetition_penalty != 1)
				continue;
			int32_t tokens[PROMPT + LENGTH];
			fill_prompt(tokens, PROMPT, 0);
			for (int k = 0; k < LENGTH; k++) {
				Wanted w = {bias[0].token, 0};
				assert_int_equal(atlas_score(rig.session, tokens, PROMPT + k, score_of, &w), ATLAS_OK);
				assert_true(fabs(w.logprob - a[0].logprob[k]) < (kind == FAKE ? 2e-2 : 1e-5));
				tokens[PROMPT + k] = bias[0].token;
			}
		}
		rig_close(&rig);
	}
}

/* The least length holds exactly: a stop token that nothing else can beat comes first when it may. */
static void the_least_length_is_exact(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		for (int seed = 0; seed < SEEDS; seed++)
			for (int least = 0; least < LENGTH + 2; least += 1 + least / 4) {
				uint64_t random = (uint64_t)seed + 7;
				const int32_t own = 3 + below(&random, info.n_drawable - 3);
				const AtlasBias model[] = {{info.stop_tokens[0], 100}}, mine[] = {{own, 100}}, both[] = {{own, 100},
					{info.stop_tokens[0], 100}};
				AtlasRequest r[4] = {{.min_new = least, .bias = model, .n_bias = 1},
					{.min_new = least, .bias = mine, .n_bias = 1, .stop_tokens = &own, .n_stop_tokens = 1},
					{.min_new = least, .bias = both, .n_bias = 2, .stop_tokens = &own, .n_stop_tokens = 1},
					{.min_new = least, .bias = model, .n_bias = 1, .ignore_stops = 1}};
				Answer a[4];
				answer(rig.session, r, 4, seed, a);
				for (int i = 0; i < 3; i++) {
					const int n = least < LENGTH ? least + 1 : LENGTH;
					assert_int_equal(a[i].n, n);
					assert_int_equal(a[i].finish, least < LENGTH ? ATLAS_STOP : ATLAS_LENGTH);
					for (int k = 0; k < n; k++) {
						const bool is_stop = a[i].token[k] == (i ? own : info.stop_tokens[0]) ||
							(i == 2 && a[i].token[k] == info.stop_tokens[0]);
						assert_int_equal(is_stop, k == least);
					}
				}
				assert_int_equal(a[3].n, LENGTH); /* of its tokens none ends it, so none is kept back */
				for (int k = 0; k < LENGTH; k++)
					assert_int_equal(a[3].token[k], info.stop_tokens[0]);
			}
		rig_close(&rig);
	}
}

/* Stop tokens of the model that are ignored are tokens like others; those of the request end it still. */
static void ignored_stops_do_not_end(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		Rig rig;
		const AtlasPlanInfo info = open_kind(&rig, kind);
		for (int seed = 0; seed < SEEDS; seed++) {
			AtlasBias bias[] = {{info.stop_tokens[0], 2.5f}};
			const int32_t stop = info.stop_tokens[0];
			AtlasRequest r[4] = {{.ignore_stops = 1, .bias = bias, .n_bias = 1}, {.bias = bias, .n_bias = 1},
				{.ignore_stops = 1, .bias = bias, .n_bias = 1, .stop_tokens = &stop, .n_stop_tokens = 1}, {0}};
			Answer a[4];
			bias[0].value = seed % 2 ? 2.5f : 100;
			answer(rig.session, r, 4, seed, a);
			assert_int_equal(a[0].n, LENGTH);
			assert_int_equal(a[0].finish, ATLAS_LENGTH);
			for (int i = 1; i < 3; i++)
				for (int k = 0; k < a[i].n; k++) {
					bool is_stop = a[i].token[k] == stop;
					for (int j = 0; i == 1 && j < info.n_stop_tokens; j++) /* any of the model's */
						is_stop |= a[i].token[k] == info.stop_tokens[j];
					assert_int_equal(is_stop, k + 1 == a[i].n && a[i].finish == ATLAS_STOP);
				}
			if (seed % 2 == 0) {
				assert_int_equal(a[0].token[LENGTH - 1], stop);
				assert_int_equal(a[1].n, 1);
				assert_int_equal(a[2].n, 1);
			}
		}
		rig_close(&rig);
	}
}

/* Nothing left to draw: the sequence fails alone. */
static void a_ban_of_everything_fails_alone(void **state)
{
	Rig rig;
	(void)state;
	for (int kind = FAKE; kind <= CPU; kind++) {
		open_kind(&rig, kind);
		AtlasBias bias[40];
		AtlasRequest plain[2] = {{0}}, r[2] = {{.bias = bias, .n_bias = 40}};
		Answer before[2], with[2];
		for (int v = 0; v < 40; v++)
			bias[v] = (AtlasBias){v, -INFINITY};
		answer(rig.session, plain, 2, 1, before);
		answer(rig.session, r, 2, 1, with);
		assert_true(with[0].n == 1 && with[0].finish == ATLAS_FAILED && with[0].token[0] == -1);
		assert_true(isnan(with[0].logprob[0]));
		assert_same(&before[1], &with[1]);
		r[0].n_bias = 39;
		answer(rig.session, r, 2, 1, with);
		for (int k = 0; k < with[0].n; k++)
			assert_int_equal(with[0].token[k], 39);
		rig_close(&rig);
	}
}

/* On the reference device texts are those of plain decoding, bit for bit, whatever the rules are. */
static void drafts_change_nothing(void **state)
{
	Rig rig;
	(void)state;
	const AtlasPlanInfo info = open_kind(&rig, CPU_DRAFTS);
	for (int seed = 0; seed < 4 * SEEDS; seed++) {
		static const float values[] = {-INFINITY, -4, 1.5f, 3, 6, 100};
		AtlasBias bias[60];
		int32_t stops[3];
		uint64_t random = (uint64_t)seed + 31;
		AtlasRequest r[3] = {{.bias = bias, .stop_tokens = stops, .n_stop_tokens = 3, .min_new = below(&random, 12)},
			{.ignore_stops = seed % 2}, {.min_new = 5}};
		Answer plain[3], with[3];
		for (int i = 0; i < 3; i++)
			stops[i] = below(&random, info.n_drawable);
		for (int v = 0; v < info.n_drawable && r[0].n_bias < 60; v += 1 + below(&random, info.n_drawable / 50 + 1))
			bias[r[0].n_bias++] = (AtlasBias){v, values[below(&random, seed % 3 ? 5 : 6)]};
		session_speculate(rig.session, false);
		answer(rig.session, r, 3, seed, plain);
		session_speculate(rig.session, true);
		answer(rig.session, r, 3, seed, with);
		for (int i = 0; i < 3; i++)
			assert_same(&plain[i], &with[i]);
	}
	AtlasSessionInfo made = {.struct_size = sizeof made};
	atlas_session_info(rig.session, &made);
	assert_true(made.accepted_drafts > 0);
	rig_close(&rig);
}

/* Sequences that are set aside in a tight pool go on by their rules. */
static void they_hold_when_a_text_is_set_aside(void **state)
{
	static const AtlasBias bias[] = {{5, -INFINITY}, {6, 4}, {7, 4}, {2, 3}};
	const int32_t stop = 9;
	int n_long = 0;
	(void)state;
	for (int seed = 0; seed < SEEDS; seed++) {
		Answer all[2][3];
		for (int is_tight = 0; is_tight < 2; is_tight++) {
			AtlasRequest r[3] = {{.bias = bias, .n_bias = 4, .ignore_stops = 1}, {.min_new = 50, .bias = bias + 3,
				.n_bias = 1}, {.stop_tokens = &stop, .n_stop_tokens = 1, .min_new = 30}};
			Rig rig;
			for (int i = 0; i < 3; i++) {
				r[i].pages_as_needed = 1;
				r[i].max_new = 60;
			}
			rig_open(&rig, "llama", is_tight ? 128 : 0);
			session_grow_by(rig.session, 1);
			answer(rig.session, r, 3, seed, all[is_tight]);
			rig_close(&rig);
		}
		for (int i = 0; i < 3; i++) {
			assert_same(&all[0][i], &all[1][i]);
			n_long += all[0][i].n > 40;
		}
	}
	assert_true(n_long > SEEDS); /* these do not fit beside each other */
}

/* The most that a request may say, and more tokens than a slot has room for. */
static void as_many_as_there_may_be(void **state)
{
	AtlasBias bias[ATLAS_MAX_BIAS];
	int32_t stops[ATLAS_MAX_STOP_TOKENS];
	int ends[21], slot;
	Rig rig;
	(void)state;
	rig_checkpoint(&rig, "tests/fixtures/llama-trained");
	assert_int_equal(open_fake(&rig), ATLAS_OK);
	AtlasPlanInfo info = {.struct_size = sizeof info};
	atlas_plan_info(rig.plan, &info);
	assert_true(info.n_drawable >= ATLAS_MAX_BIAS + ATLAS_MAX_STOP_TOKENS + 21);
	for (int i = 0; i < ATLAS_MAX_BIAS; i++)
		bias[i] = (AtlasBias){info.n_drawable - 1 - i, i == ATLAS_MAX_BIAS - 1 ? 100 : 1};
	for (int i = 0; i < ATLAS_MAX_STOP_TOKENS; i++)
		stops[i] = 30 + i;
	AtlasRequest r[2] = {{.bias = bias, .n_bias = ATLAS_MAX_BIAS, .stop_tokens = stops,
		.n_stop_tokens = ATLAS_MAX_STOP_TOKENS, .min_new = 7}};
	Answer a[2];
	answer(rig.session, r, 2, 2, a);
	assert_int_equal(a[0].n, LENGTH);
	for (int k = 0; k < LENGTH; k++)
		assert_int_equal(a[0].token[k], bias[ATLAS_MAX_BIAS - 1].token);
	stops[ATLAS_MAX_STOP_TOKENS - 1] = bias[ATLAS_MAX_BIAS - 1].token; /* it has one rule, which says all three */
	answer(rig.session, r, 2, 2, a);
	assert_int_equal(a[0].n, 8);
	assert_int_equal(a[0].finish, ATLAS_STOP);
	assert_int_equal(a[0].token[7], bias[ATLAS_MAX_BIAS - 1].token);

	int32_t prompt[PROMPT];
	fill_prompt(prompt, PROMPT, 0);
	r[0].tokens = prompt;
	r[0].sampling = NULL;
	stops[ATLAS_MAX_STOP_TOKENS - 1] = 29;
	Graph *g = (Graph *)(uintptr_t)&rig.plan->artifact.graph; /* of a model with many ends */
	const Graph was = *g;
	for (int i = 0; i < 21; i++)
		ends[i] = i;
	g->stop_tokens = ends;
	for (g->n_stop_tokens = 20; g->n_stop_tokens <= 21; g->n_stop_tokens++) {
		const bool fits = g->n_stop_tokens == 20;
		assert_int_equal(atlas_request_start(rig.session, &r[0], &slot), fits ? ATLAS_OK : ATLAS_ARGUMENT);
		if (fits)
			assert_int_equal(atlas_cancel(rig.session, slot), ATLAS_OK);
	}
	assert_string_equal(atlas_session_error(rig.session), "bias, stop_tokens and the model's stop tokens, which "
		"min_new names, are more than 384 tokens");
	assert_int_equal(atlas_active(rig.session), 0);
	*g = was;
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(banned_tokens_are_not_drawn),
		cmocka_unit_test(a_large_bias_decides),
		cmocka_unit_test(the_least_length_is_exact),
		cmocka_unit_test(ignored_stops_do_not_end),
		cmocka_unit_test(a_ban_of_everything_fails_alone),
		cmocka_unit_test(drafts_change_nothing),
		cmocka_unit_test(they_hold_when_a_text_is_set_aside),
		cmocka_unit_test(as_many_as_there_may_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
