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

/* A sequence whose masks leave two tokens, others at each of three positions, so that texts repeat themselves. */
typedef struct Drafted { int position, vocab, asked, most; } Drafted;

static bool may_come(int position, int token, int vocab) { return token % (vocab / 2) == 20 + position % 3; }

static void mask_at(int position, int vocab, uint32_t *words)
{
	memset(words, 0, (size_t)(vocab + 31) / 32 * sizeof *words);
	for (int v = 0; v < vocab; v++)
		words[v / 32] |= (uint32_t)may_come(position, v, vocab) << v % 32;
}

/* AtlasMasksFn */
static int masks_after(void *ctx, int slot, const int32_t *drafts, int n, uint32_t *words)
{
	Drafted *d = ctx;
	int k = 0;
	(void)slot;
	for (; k < n && k < d->most && may_come(d->position + k, drafts[k], d->vocab); k++)
		mask_at(d->position + k + 1, d->vocab, words + k * ((d->vocab + 31) / 32));
	d->asked++;
	return k;
}

/* Three requests at once, of which the second is free; most: drafts that are taken of the others, at most. */
static void answer_drafted(AtlasSession *s, int vocab, int most, float temperature, Answer *a)
{
	const AtlasSampling sampling = {.struct_size = sizeof sampling, .top_p = 0.95f, .repetition_penalty = 1.1f,
		.seed = 5, .temperature = temperature};
	AtlasEvent events[EVENTS];
	Drafted drafted[3];
	uint32_t words[MOST_WORDS];
	int of[8] = {0}, slot, made;
	memset(a, 0, 3 * sizeof *a);
	for (int i = 0; i < 3; i++) {
		int32_t prompt[PROMPT];
		fill_prompt(prompt, PROMPT, i);
		drafted[i] = (Drafted){PROMPT, vocab, 0, most};
		const AtlasRequest r = {.struct_size = sizeof r, .tokens = prompt, .n_tokens = PROMPT, .sampling = &sampling,
			.max_new = LENGTH + 7 * i, .ignore_stops = 1, .masked = i != 1, .masks_after = most ? masks_after : NULL,
			.masks_ctx = &drafted[i]};
		assert_int_equal(atlas_request_start(s, &r, &slot), ATLAS_OK);
		of[slot] = i;
		mask_at(PROMPT, vocab, words);
		if (i != 1)
			assert_int_equal(atlas_mask(s, slot, words, (vocab + 31) / 32), ATLAS_OK);
	}
	while (atlas_active(s)) {
		assert_int_equal(atlas_step(s, events, EVENTS, &made), ATLAS_OK);
		for (int i = 0; i < made; i++) {
			Answer *to = &a[of[events[i].slot]];
			to->token[to->n] = events[i].token;
			to->logprob[to->n++] = events[i].logprob;
			to->finish = events[i].finish;
			drafted[of[events[i].slot]].position = PROMPT + to->n;
		}
		for (int i = 0; i < made; i++) {
			const int at = of[events[i].slot];
			const bool is_last = i + 1 == made || events[i + 1].slot != events[i].slot;
			mask_at(drafted[at].position, vocab, words);
			if (at != 1 && is_last && a[at].finish == ATLAS_RUNNING)
				assert_int_equal(atlas_mask(s, events[i].slot, words, (vocab + 31) / 32), ATLAS_OK);
		}
	}
	for (int i = 0; i < 3; i++)
		assert_true(most == 0 || (i == 1) == (drafted[i].asked == 0));
}

static void by_ngrams(Options *o)
{
	o->ladder[0] = (Rung){2, 4};
	o->ladder[1] = (Rung){4, 3};
	o->n_ladder = 2;
	o->verify_rows = 4;
	o->ngram_min = 1;
	o->ngram_max = 2;
}

/* Each row of a verify step draws by the mask after its drafts, also where fewer have one than the step has rows: an
 * answer with drafts is the one without, on the reference device to the bit. A head's are hardly ever right here: its
 * weights are random. */
static void drafts_of_masked_sequences_have_masks_of_their_own(void **state)
{
	(void)state;
	for (int kind = 0; kind < 8; kind++) {
		const bool is_head = kind & 1, is_cpu = kind & 2, is_drawn = kind & 4;
		const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
		AtlasPlanInfo info = {.struct_size = sizeof info};
		AtlasSessionInfo told[4];
		Answer answers[4][3];
		Rig r;
		rig_checkpoint_as(&r, is_head ? "tests/fixtures/qwen3_5" : "tests/fixtures/llama", is_head ? NULL : by_ngrams);
		assert_int_equal(is_cpu ? atlas_session_open(r.plan, &options, &r.session, &r.error) : open_fake(&r), ATLAS_OK);
		session_speculate(r.session, true);
		atlas_plan_info(r.plan, &info);
		for (int k = 0; k < 4; k++) { /* none, one, all of a step's drafts, and none again, of the same slots */
			static const int most[] = {0, 1, PLAN_MAX_VERIFY, 0};
			answer_drafted(r.session, info.vocab, most[k], is_drawn, answers[k]);
			told[k].struct_size = sizeof told[k];
			atlas_session_info(r.session, &told[k]);
			if (is_cpu)
				assert_memory_equal(answers[k], answers[0], sizeof answers[0]);
			for (int i = 0; i < 3; i += 2)
				for (int t = 0; t < answers[k][i].n; t++)
					assert_true(may_come(PROMPT + t, answers[k][i].token[t], info.vocab));
		}
		const int64_t of_free = told[0].accepted_drafts, of_one = told[1].accepted_drafts - of_free;
		const int64_t of_all = told[2].accepted_drafts - told[1].accepted_drafts;
		if (is_cpu)
			assert_int_equal(told[3].accepted_drafts - told[2].accepted_drafts, of_free);
		assert_true(is_head || (of_one > of_free + 4 && of_all > of_one + 4));
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
				bool reads = false, reads_later = false;
				for (int i = 0; i < launch->n_args; i++) {
					const Buf *b = launch->args[i].buf < 0 ? NULL : &t->phases[p].bufs[launch->args[i].buf];
					const bool is_later = b && strcmp(b->name, "masks_later") == 0;
					if (is_later)
						assert_int_equal(b->bytes, 4 * (int64_t)g->slots * (g->verify_rows - 1) * mask_words(g));
					reads_later |= is_later;
					if (!b || strcmp(b->name, "masks") != 0)
						continue;
					reads = true;
					assert_int_equal(b->arena, ARENA_STATE);
					assert_int_equal(b->bytes, 4 * (int64_t)g->slots * mask_words(g));
				}
				const bool draws = launch->op == OP_sample_best || launch->op == OP_draw_best;
				assert_int_equal(reads, draws);
				assert_int_equal(reads_later, launch->op == OP_draw_best);
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
		cmocka_unit_test(drafts_of_masked_sequences_have_masks_of_their_own),
		cmocka_unit_test(masks_are_copied_when_they_change),
		cmocka_unit_test(masks_are_operands_of_what_draws),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
