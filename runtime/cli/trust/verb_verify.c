/* verb_verify.c - atlas verify: where do two devices stop to agree?
 *
 * The same prompt goes through the device under test and through the reference device; the output
 * of every layer is compared row by row. The first layer whose least cosine misses 1 by more than
 * the tolerance is named: the fault lies in it, as what went into it was still good. The logits are
 * compared last. A row that goes through another expert than the reference's is another row from there on, so the
 * median of rows is printed too. With --each-layer nothing adds up: each layer of the reference starts from what the
 * device made of the one before, so that only the layer itself is compared. With --against, the reference is another
 * plan: two compilations, or two states of a checkpoint.
 */
#include "artifacts/json_put.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_trace.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/cli/trust/verify_rebuild.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MADE_TOKENS = 32 }; /* of the prompt where none is given */

static int same_tokens(const Trace *a, const Trace *b)
{
	int same = 0;
	for (int t = 0; t < a->rows; t++) {
		const float *x = a->logits + (size_t)t * (size_t)a->vocab,
					*y = b->logits + (size_t)t * (size_t)a->vocab;
		int best_x = 0, best_y = 0;
		for (int v = 1; v < a->vocab; v++) {
			best_x = x[v] > x[best_x] ? v : best_x;
			best_y = y[v] > y[best_y] ? v : best_y;
		}
		same += best_x == best_y;
	}
	return same;
}

static void print_difference(const Args *args, const char *name, const Difference *d, bool is_first)
{
	if (!args->json) {
		printf("%-8s %11.8f %11.8f %11.3e %11.3e\n", name, d->cosine, d->median, d->max_error, d->relative);
		return;
	}
	printf("%s\n  {\"output\": \"%s\", \"cosine\": ", is_first ? "" : ",", name);
	json_number(stdout, d->cosine);
	fputs(", \"median\": ", stdout);
	json_number(stdout, d->median);
	fputs(", \"max_error\": ", stdout);
	json_number(stdout, d->max_error);
	fputs(", \"relative_error\": ", stdout);
	json_number(stdout, d->relative);
	putchar('}');
}

static int judge(const Args *args, const Trace *got, const Trace *want)
{
	double tolerance = isnan(args->tolerance) ? 1e-3 : args->tolerance;
	char name[16], bad[16] = "";
	double *cosines = malloc(sizeof *cosines * (size_t)(got->rows + 1));
	if (!cosines)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %d rows", got->rows);
	if (args->json)
		printf("{\"schema_version\": 1, \"rows\": %d, \"tolerance\": %g, \"each_layer\": %s, \"outputs\": [",
			got->rows, tolerance, args->each_layer ? "true" : "false");
	else
		printf("%-8s %11s %11s %11s %11s\n", "layer", "cosine", "median", "max error", "relative");
	for (int l = 0; l <= got->n_layers; l++) {
		size_t at = (size_t)l * (size_t)got->rows * (size_t)got->hidden_dim;
		bool is_logits = l == got->n_layers;
		Difference d = is_logits
			? trace_compare(got->logits, want->logits, got->rows, got->vocab, cosines)
			: trace_compare(got->hidden + at, want->hidden + at, got->rows, got->hidden_dim, cosines);
		snprintf(name, sizeof name, is_logits ? "logits" : "%d", l);
		print_difference(args, name, &d, l == 0);
		if (!(d.cosine >= 1 - tolerance) && !*bad)
			snprintf(bad, sizeof bad, is_logits ? "logits" : "layer %d", l);
	}
	free(cosines);
	int same = same_tokens(got, want);
	if (args->json) {
		printf("],\n \"same_best_tokens\": %d, \"first_bad\": ", same);
		cli_json_or_null(stdout, bad);
		puts("}");
	} else {
		printf("best token equal in %d of %d rows\n", same, got->rows);
		if (*bad)
			printf("first bad output: %s\n", bad);
		else
			puts("every output agrees");
	}
	return *bad ? EXIT_NEGATIVE : EXIT_OK;
}

static int trace_on(const Args *args, const AtlasPlan *plan, const char *device, const Tokens *tokens,
	const Trace *follows, Trace *trace)
{
	AtlasSession *session = NULL;
	int code = cli_open_session(args, plan, device, NULL, &session);
	if (!code)
		code = trace_prompt(args, plan, session, tokens, true, follows, trace);
	atlas_session_close(session);
	return code;
}

/* The words that --certify goes with. */
static int certify(const Args *args)
{
	AtlasPlan *plan = NULL;
	Tokens tokens = {0};
	if (args->against || args->each_layer || !isnan(args->tolerance))
		return cli_say(args, EXIT_USAGE,
			"--certify compares with the reference device by the tolerances of dtypes: give it without --against, "
			"--each-layer and --tolerance");
	if (args->device && strcmp(args->device, "cpu") == 0)
		return cli_say(args, EXIT_USAGE, "--certify compares a GPU with the reference device: leave --device cpu out");
	int code = cli_open_plan(args, args->plan, &plan);
	if (!code && (args->prompt || args->tokens))
		code = cli_prompt_tokens(args, plan, &tokens);
	if (!code)
		code = certify_plan(args, plan, NULL, &tokens);
	free(tokens.ids);
	atlas_plan_close(plan);
	return code;
}

int verb_verify(const Args *args)
{
	AtlasPlan *plan = NULL, *other = NULL;
	Tokens tokens = {0};
	Trace got = {0}, want = {0};
	if (args->rebuild && args->certify)
		return cli_say(args, EXIT_USAGE, "--rebuild and --certify are different checks: give one of them");
	if (args->rebuild)
		return verify_rebuild(args);
	if (args->checkpoint || args->atlasc || args->tuning || args->kv_scales || args->vocabulary_file ||
		args->output)
		return cli_say(args, EXIT_USAGE, "--checkpoint, --atlasc, --tuning, --kv-scales, --vocabulary-file and "
			"--output need --rebuild");
	cli_hold_signals();
	if (args->key && !args->certify)
		return cli_say(args, EXIT_USAGE, "--sign needs --certify");
	if (args->certify)
		return certify(args);
	int code = cli_open_plan(args, args->plan, &plan);
	if (!code && args->against)
		code = cli_open_plan(args, args->against, &other);
	if (!code)
		code = args->prompt || args->tokens ? cli_prompt_tokens(args, plan, &tokens)
			: cli_made_tokens(args, plan, MADE_TOKENS, &tokens);
	if (!code)
		code = trace_on(args, plan, args->device ? args->device : "cuda", &tokens, NULL, &got);
	if (!code)
		code = trace_on(args, other ? other : plan, "cpu", &tokens, args->each_layer ? &got : NULL, &want);
	if (!code &&
		(got.n_layers != want.n_layers || got.hidden_dim != want.hidden_dim ||
			got.vocab != want.vocab))
		code = cli_say(args, EXIT_BAD_INPUT,
			"%s and %s have different shapes: %d and %d layers of %d and %d, vocabularies of %d and %d",
			args->plan, args->against, got.n_layers, want.n_layers, got.hidden_dim, want.hidden_dim,
			got.vocab, want.vocab);
	if (!code && !got.is_gpu && !other && !args->quiet)
		cli_message(args, NULL, MESSAGE_NOTE, NULL,
			"both sides ran on the reference device: name a GPU, or another plan with --against");
	if (!code)
		code = judge(args, &got, &want);
	trace_free(&got);
	trace_free(&want);
	free(tokens.ids);
	atlas_plan_close(other);
	atlas_plan_close(plan);
	return code;
}
