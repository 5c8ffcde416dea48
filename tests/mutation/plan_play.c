/* plan_play.c - does a plan compute what its graph means? Without a GPU: its launches are executed by what their ops
 * mean, on the fake driver (tests/unit/fake_gpu.h), in an unusual order that the edges allow and on memory full of NaN,
 * and compared with the reference device.
 *
 *   plan_play PLAN
 *
 * Scores made-up tokens on both and compares logits. Then answers by decode steps, two at a time and two more in the
 * slots that these have left: the log probability of each token must be what the reference device gives it. Exit code
 * 1, with one line, when they differ; 4 when the plan is refused.
 */
#include "tests/unit/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 24, ANSWER = 8, TOGETHER = 2, TOKENS = 40 };
static const double least_cosine = 0.999, most_apart = 0.08;

typedef struct Scores { float at[TOKENS][4096]; int vocab; } Scores;

static int take(void *ctx, int pos, const float *logits)
{
	Scores *s = ctx;
	memcpy(s->at[pos], logits, sizeof *logits * (size_t)s->vocab);
	return 0;
}

static double cosine(const float *a, const float *b, int n)
{
	double ab = 0, aa = 0, bb = 0;
	for (int i = 0; i < n; i++) {
		ab += (double)a[i] * b[i];
		aa += (double)a[i] * a[i];
		bb += (double)b[i] * b[i];
	}
	return ab / sqrt(aa * bb);
}

static double log_probability(const float *logits, int n, int token)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += exp((double)logits[i] - logits[token]);
	return -log(sum);
}

static int say(int code, const char *what, const char *text)
{
	printf("plan_play: %s%s\n", what, text);
	return code;
}

static int compare_scores(AtlasSession *gpu, AtlasSession *cpu, const int32_t *tokens, Scores *a, Scores *b)
{
	if (atlas_score(gpu, tokens, TOKENS, take, a) != ATLAS_OK || atlas_score(cpu, tokens, TOKENS, take, b) != ATLAS_OK)
		return say(1, "scoring fails", "");
	for (int i = 0; i < TOKENS; i++)
		if (!(cosine(a->at[i], b->at[i], a->vocab) >= least_cosine)) {
			printf("plan_play: logits of position %d: cosine %.5f\n", i, cosine(a->at[i], b->at[i], a->vocab));
			return 1;
		}
	return 0;
}

/* Answers in so many slots at once; the tokens are put behind their prompts. */
static int answer(AtlasSession *gpu, int32_t prompts[TOGETHER][TOKENS], float logprobs[TOGETHER][ANSWER], int counts[])
{
	AtlasEvent events[64];
	AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	int slots[TOGETHER], n;
	for (int i = 0; i < TOGETHER; i++) {
		counts[i] = 0;
		if (atlas_start(gpu, prompts[i], PROMPT + i, &greedy, ANSWER, &slots[i]) != ATLAS_OK)
			return say(1, "a sequence does not start", "");
	}
	while (atlas_active(gpu) > 0) {
		if (atlas_step(gpu, events, 64, &n) != ATLAS_OK)
			return say(1, "a step fails", "");
		for (int e = 0; e < n; e++)
			for (int i = 0; i < TOGETHER; i++)
				if (events[e].slot == slots[i] && counts[i] < ANSWER) {
					prompts[i][PROMPT + i + counts[i]] = events[e].token;
					logprobs[i][counts[i]++] = events[e].logprob;
				}
	}
	return 0;
}

static int compare_answers(AtlasSession *gpu, AtlasSession *cpu, int salt, Scores *s)
{
	int32_t prompts[TOGETHER][TOKENS];
	float logprobs[TOGETHER][ANSWER];
	int counts[TOGETHER];
	for (int i = 0; i < TOGETHER; i++)
		fill_prompt(prompts[i], TOKENS, salt + i);
	int code = answer(gpu, prompts, logprobs, counts);
	for (int i = 0; i < TOGETHER && !code; i++) {
		const int first = PROMPT + i;
		if (counts[i] < 1 || atlas_score(cpu, prompts[i], first + counts[i], take, s) != ATLAS_OK)
			return say(1, "an answer without a token", "");
		for (int k = 0; k < counts[i]; k++) {
			const int token = prompts[i][first + k];
			const double want = token < 0 || token >= s->vocab ? NAN
				: log_probability(s->at[first + k - 1], s->vocab, token);
			if (!(fabs(want - (double)logprobs[i][k]) <= most_apart)) {
				printf("plan_play: token %d of answer %d: log probability %.4f, of the graph %.4f\n", k, salt + i,
					(double)logprobs[i][k], want);
				return 1;
			}
		}
	}
	return code;
}

int main(int argc, char **argv)
{
	Rig r = {.steps_ahead = 1};
	AtlasSession *cpu;
	AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
	int32_t tokens[TOKENS];
	Scores *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
	if (argc != 2 || !a || !b)
		return say(2, "usage: plan_play PLAN", "");
	if (atlas_plan_open(argv[1], NULL, &r.plan, &r.error) != ATLAS_OK)
		return say(4, "", r.error.text);
	fake_driver_start(&r.fake, &r.driver);
	fake_gpu_start(&r.gpu, &r.fake, &r.plan->artifact);
	if (open_fake(&r) != ATLAS_OK || atlas_session_open(r.plan, &options, &cpu, &r.error) != ATLAS_OK)
		return say(4, "", r.error.text);
	a->vocab = b->vocab = r.plan->artifact.graph.vocab;
	if (a->vocab > 4096)
		return say(2, "a vocabulary of more than 4096", "");
	fill_prompt(tokens, TOKENS, 1);
	int code = compare_scores(r.session, cpu, tokens, a, b);
	for (int salt = 3; salt < 8 && !code; salt += 4)
		code = compare_answers(r.session, cpu, salt, b);
	if (!code && r.fake.broken[0])
		code = say(1, "the driver's rules are broken: ", r.fake.broken);
	atlas_session_close(r.session);
	atlas_session_close(cpu);
	fake_driver_stop(&r.fake);
	atlas_plan_close(r.plan);
	free(a);
	free(b);
	return code ? code : say(0, "plan and graph agree", "");
}
