/* verb_perplexity.c - atlas perplexity: how surprised is the model by a text?
 *
 * The tokens are read in windows, each from position 0. The last token of a window is the first of
 * the next, so that every token but the first of the text is scored once, given those before it in
 * its window: exp of the mean of -log p over all of these.
 */
#include "artifacts/json_put.h"
#include "runtime/cli/cli.h"

#include <math.h>
#include <stdlib.h>

typedef struct Sum {
	const int32_t *window;
	int n, vocab;
	double nats; /* -log p, summed */
	long scored;
} Sum;

static int add_score(void *ctx, int pos, const float *logits)
{
	Sum *s = ctx;
	double max = -INFINITY, sum = 0;
	if (pos + 1 >= s->n)
		return cli_interrupted();
	for (int v = 0; v < s->vocab; v++)
		max = fmax(max, logits[v]);
	for (int v = 0; v < s->vocab; v++)
		sum += exp(logits[v] - max);
	s->nats -= logits[s->window[pos + 1]] - max - log(sum);
	s->scored++;
	return cli_interrupted();
}

static int score(
	const Args *args, AtlasSession *session, const AtlasPlanInfo *info, const Tokens *tokens)
{
	Sum sum = {.vocab = info->vocab};
	int window = args->window > 0 ? args->window : info->max_context;
	if (window > info->max_context)
		return cli_say(args, EXIT_USAGE, "--window %d: the plan's context holds %d", window,
			info->max_context);
	for (int at = 0; at + 1 < tokens->n; at += window - 1) {
		sum.window = tokens->ids + at;
		sum.n = tokens->n - at < window ? tokens->n - at : window;
		AtlasStatus status = atlas_score(session, sum.window, sum.n, add_score, &sum);
		if (status == ATLAS_STOPPED)
			return EXIT_INTERRUPTED;
		if (status != ATLAS_OK)
			return cli_fail_session(args, session, status);
	}
	if (sum.scored == 0)
		return cli_say(args, EXIT_BAD_INPUT, "%s: fewer than two tokens", args->file);
	double mean = sum.nats / (double)sum.scored;
	if (args->json) {
		printf("{\"schema_version\": 1, \"perplexity\": ");
		json_number(stdout, exp(mean));
		printf(", \"nats_per_token\": ");
		json_number(stdout, mean);
		printf(
			", \"tokens\": %d, \"scored\": %ld, \"window\": %d}\n", tokens->n, sum.scored, window);
	} else {
		printf("perplexity %.4f over %ld tokens\n", exp(mean), sum.scored);
	}
	return 0;
}

int verb_perplexity(const Args *args)
{
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	Tokens tokens = {0};
	char *text = NULL;
	size_t n;
	if (!args->file)
		return cli_say(args, EXIT_USAGE, "name the text: -f FILE");
	cli_hold_signals();
	int code = cli_read_file(args, args->file, &text, &n);
	if (!code)
		code = cli_open_plan(args, args->plan, &plan);
	if (!code)
		code = cli_encode(args, plan, text, n, &tokens);
	if (!code)
		code = cli_open_session(args, plan, NULL, NULL, &session);
	if (!code) {
		atlas_plan_info(plan, &info);
		code = score(args, session, &info, &tokens);
	}
	free(text);
	free(tokens.ids);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return code;
}
