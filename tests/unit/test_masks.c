/* test_masks.c - sequences whose every token has a mask, beside others, on the fake GPU and the reference device. */
#include "tests/unit/rig.h"
#include "artifacts/op_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EVENTS = 8 * PLAN_MAX_VERIFY, PROMPT = 9, LENGTH = 24, MOST_WORDS = 64, MOST = 64 };
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

static bool is_allowed(int position, int token) { return (token * 7919 + position * 104729) % 5 == 0; }

static void mask_of(int position, int vocab, uint32_t *words)
{
	memset(words, 0, MOST_WORDS * sizeof *words);
	for (int v = 0; v < vocab; v++)
		words[v / 32] |= (uint32_t)is_allowed(position, v) << v % 32;
}

static void allow(AtlasSession *s, int slot, int position, int vocab)
{
	uint32_t words[MOST_WORDS];
	mask_of(position, vocab, words);
	if (atlas_mask(s, slot, words, (vocab + 31) / 32) != ATLAS_OK)
		fail_msg("%s", atlas_session_error(s));
}

/* Three requests at once, to their ends; those of `masked` (bits) by masks, which come after an empty step now and
 * then. */
static void answer(AtlasSession *s, int vocab, int masked, float temperature, Answer *a)
{
	const AtlasSampling sampling = {.struct_size = sizeof sampling, .top_p = 0.95f, .repetition_penalty = 1.2f,
		.seed = 5, .temperature = temperature};
	AtlasEvent events[EVENTS];
	int of[8] = {0}, slot, made, turn = 0;
	bool waits[8] = {0};
	memset(a, 0, 3 * sizeof *a);
	for (int i = 0; i < 3; i++) {
		int32_t prompt[PROMPT];
		fill_prompt(prompt, PROMPT, i);
		const AtlasRequest r = {.struct_size = sizeof r, .tokens = prompt, .n_tokens = PROMPT, .sampling = &sampling,
			.max_new = LENGTH, .ignore_stops = 1, .masked = masked >> i & 1};
		if (atlas_request_start(s, &r, &slot) != ATLAS_OK)
			fail_msg("%s", atlas_session_error(s));
		of[slot] = i;
		waits[slot] = r.masked;
	}
	while (atlas_active(s)) {
		for (int i = 0; i < 8; i++)
			if (waits[i] && turn++ % 3 == 0) {
				allow(s, i, PROMPT + a[of[i]].n, vocab);
				waits[i] = false;
			}
		assert_int_equal(atlas_step(s, events, EVENTS, &made), ATLAS_OK);
		for (int i = 0; i < made; i++) {
			Answer *to = &a[of[events[i].slot]];
			assert_int_equal(to->finish, ATLAS_RUNNING);
			to->token[to->n] = events[i].token;
			to->logprob[to->n++] = events[i].logprob;
			to->finish = events[i].finish;
			waits[events[i].slot] = masked >> of[events[i].slot] & 1 && to->finish == ATLAS_RUNNING;
		}
	}
}

/* Each token of such a sequence is one that its mask allows; of the others beside it not one bit changes, nor of what
 * the slots draw later. */
static void tokens_are_those_that_masks_allow(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++)
		for (int is_drawn = 0; is_drawn < 2; is_drawn++) {
			Rig r;
			const AtlasPlanInfo info = open_kind(&r, kind);
			Answer before[3], with[3], after[3];
			int n_others = 0;
			answer(r.session, info.vocab, 0, (float)is_drawn, before);
			answer(r.session, info.vocab, 5, (float)is_drawn, with);
			answer(r.session, info.vocab, 0, (float)is_drawn, after);
			for (int i = 0; i < 3; i += 2) {
				assert_int_equal(with[i].n, LENGTH);
				assert_int_equal(with[i].finish, ATLAS_LENGTH);
				for (int k = 0; k < LENGTH; k++) {
					assert_true(is_allowed(PROMPT + k, with[i].token[k]));
					n_others += !is_allowed(PROMPT + k, before[i].token[k]);
				}
			}
			assert_true(n_others > LENGTH); /* else masks had nothing to do */
			assert_memory_equal(&with[1], &before[1], sizeof with[1]);
			assert_memory_equal(after, before, sizeof after);
			rig_close(&r);
		}
}

static int count(const char *log, const char *line)
{
	int n = 0;
	for (const char *at = log; (at = strstr(at, line)); at++)
		n++;
	return n;
}

/* A row of a mask is copied when it is another, and nothing else is; one of a cancelled sequence is waited for before
 * its place is written again. */
static void masks_are_copied_when_they_change(void **state)
{
	(void)state;
	Rig r;
	const AtlasPlanInfo info = open_kind(&r, FAKE);
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	const int n_words = (info.vocab + 31) / 32;
	uint32_t words[MOST_WORDS];
	int32_t prompt[PROMPT];
	AtlasEvent events[EVENTS];
	char *log, line[64];
	size_t n;
	int slot, made;
	fill_prompt(prompt, PROMPT, 0);
	const AtlasRequest q = {.struct_size = sizeof q, .tokens = prompt, .n_tokens = PROMPT, .sampling = &greedy,
		.max_new = LENGTH, .ignore_stops = 1, .masked = 1};
	snprintf(line, sizeof line, "MemcpyHtoDAsync %d\n", 4 * n_words);
	log_calls(&r, &log, &n);
	assert_int_equal(atlas_request_start(r.session, &q, &slot), ATLAS_OK);
	for (int k = 0; k < 6; k++) {
		mask_of(k / 3, info.vocab, words); /* three are the same */
		assert_int_equal(atlas_mask(r.session, slot, words, n_words), ATLAS_OK);
		assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
		assert_int_equal(made, 1);
		assert_true(is_allowed(k / 3, events[0].token));
		fflush(r.fake.log);
		assert_int_equal(count(log, line), 1 + k / 3);
	}
	for (int k = 2; k < 5; k++) {
		mask_of(k, info.vocab, words);
		assert_int_equal(atlas_mask(r.session, slot, words, n_words), ATLAS_OK);
		assert_int_equal(atlas_cancel(r.session, slot), ATLAS_OK);
		assert_int_equal(atlas_request_start(r.session, &q, &slot), ATLAS_OK);
	}
	mask_of(10, info.vocab, words);
	assert_int_equal(atlas_mask(r.session, slot, words, n_words), ATLAS_OK);
	assert_int_equal(atlas_step(r.session, events, EVENTS, &made), ATLAS_OK);
	assert_true(made == 1 && is_allowed(10, events[0].token));
	fflush(r.fake.log);
	assert_int_equal(count(log, line), 6);
	assert_string_equal(r.fake.broken, "");
	fclose(r.fake.log);
	r.fake.log = NULL;
	free(log);
	rig_close(&r);
}

/* What draws an answer's tokens reads masks, and nothing else does; their bytes are in the plan's own sum. */
static void masks_are_operands_of_what_draws(void **state)
{
	(void)state;
	for (int kind = FAKE; kind <= FAKE_DRAFTS; kind += FAKE_DRAFTS) {
		Rig r;
		open_kind(&r, kind);
		const TargetPlan *t = &r.made.artifact.targets[0];
		const Graph *g = &r.made.artifact.graph;
		int n_draws = 0;
		for (int p = 0; p < t->n_phases; p++)
			for (int l = 0; l < t->phases[p].n_launches; l++) {
				const Launch *launch = &t->phases[p].launches[l];
				bool reads = false;
				for (int i = 0; i < launch->n_args; i++) {
					const Buf *b = launch->args[i].buf < 0 ? NULL : &t->phases[p].bufs[launch->args[i].buf];
					if (!b || strcmp(b->name, "masks") != 0)
						continue;
					reads = true;
					assert_int_equal(b->arena, ARENA_STATE);
					assert_int_equal(b->bytes, 4 * (int64_t)g->slots * mask_words(g));
				}
				const bool draws = launch->op == OP_sample_best || launch->op == OP_draw_best;
				assert_int_equal(reads, draws);
				n_draws += draws;
			}
		assert_true(n_draws >= 2);
		rig_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_are_those_that_masks_allow),
		cmocka_unit_test(masks_are_copied_when_they_change),
		cmocka_unit_test(masks_are_operands_of_what_draws),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
