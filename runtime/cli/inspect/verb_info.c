/* verb_info.c - atlas info: what a plan holds. It opens no GPU; where there is one, it asks for its name. */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/order.h"
#include "artifacts/rolling.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/inspect/sbom.h"
#include "runtime/cuda.h"
#include "runtime/plan_handle.h"

#include <string.h>

/* Ids of the keys that signed it. */
static void print_keys(const AtlasPlan *plan, int n, const char *quote, const char *between)
{
	uint8_t id[32];
	for (int i = 0; i < n; i++) {
		atlas_plan_signature(plan, i, NULL, id);
		printf("%s%s", i ? between : "", quote);
		hex_put(stdout, id, 32);
		fputs(quote, stdout);
	}
}

/* A resolved option of the plan by its dotted name; "" = there is none. */
static const char *option_of(const AtlasPlan *plan, const char *name)
{
	const char *value = artifact_option(&plan->artifact, name);
	return value ? value : "";
}

/* What the plan records of a target: of which card and driver the times are that its kernels were chosen by, and on
 * which cards plans for it had run by then. "" = not recorded. */
static const char *of_target(const AtlasPlan *plan, const char *what, const char *target, const char *which)
{
	const char *value = artifact_option_of(&plan->artifact, what, target, which);
	return value ? value : "";
}

/* May prompts and answers be in one step where there are no drafts? As session_mix decides on one of the targets. */
static bool can_mix(const AtlasPlan *plan)
{
	const Artifact *a = &plan->artifact;
	bool has_room = a->n_targets == 0; /* the reference device has a row for each slot besides */
	for (int t = 0; t < a->n_targets; t++)
		for (int i = 0; i < a->targets[t].n_phases; i++)
			has_room |= a->targets[t].phases[i].kind == PREFILL && a->targets[t].phases[i].rows > a->graph.prompt_grid;
	return has_room && !order_is_invariant(a);
}

static void print_targets(const AtlasPlan *plan, const AtlasPlanInfo *info)
{
	for (int i = 0; i < info->n_targets; i++) {
		const char *target = info->targets[i], *card = of_target(plan, "tuning", target, ".card");
		printf("%s %s, run on: %s; kernels chosen by ", i ? "\n            " : "", target,
			of_target(plan, "target", target, ".ran_on"));
		if (*card)
			printf("times of %s, driver %s", card, of_target(plan, "tuning", target, ".driver"));
		else
			printf("a model of its typical card, without times");
	}
	fputs(info->n_targets ? "\n" : " none: for the reference device\n", stdout);
}

static void json_targets(const AtlasPlan *plan, const AtlasPlanInfo *info)
{
	static const struct { const char *name, *what, *which; } fields[] = {{"ran_on", "target", ".ran_on"},
		{"times", "tuning", ""}, {"card", "tuning", ".card"}, {"driver", "tuning", ".driver"}};
	for (int i = 0; i < info->n_targets; i++) {
		printf("%s{\"target\": \"%s\"", i ? ", " : "", info->targets[i]);
		for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
			printf(", \"%s\": ", fields[k].name);
			json_quoted(stdout, of_target(plan, fields[k].what, info->targets[i], fields[k].which));
		}
		putchar('}');
	}
}

/* Rows of the plan's options whose name begins so: "config." what MODEL.toml says in place of config.json, "note." what
 * of the checkpoint's files was not read. */
static void print_rows(const Artifact *a, const char *begin, const char *title)
{
	for (int i = 0; i < a->n_options; i++)
		if (strncmp(a->options[i].name, begin, strlen(begin)) == 0)
			printf("%-12s %s = %s\n", title, a->options[i].name + strlen(begin), a->options[i].value);
}

static void json_rows(const Artifact *a, const char *begin)
{
	const char *between = "";
	for (int i = 0; i < a->n_options; i++)
		if (strncmp(a->options[i].name, begin, strlen(begin)) == 0) {
			fputs(between, stdout);
			json_quoted(stdout, a->options[i].name + strlen(begin));
			fputs(": ", stdout);
			json_quoted(stdout, a->options[i].value);
			between = ", ";
		}
}

static const char *weights_word(const AtlasPlanInfo *info)
{
	return info->weights_made ? "made" : info->weights_by_reference ? "ref" : "embed";
}

static void print_json(const AtlasPlan *plan, const AtlasPlanInfo *info)
{
	char why[NO_CHAT_BYTES];
	printf("{\"schema_version\": 2, \"root\": \"");
	hex_put(stdout, info->root_hash, 32);
	printf("\", \"signatures\": [");
	print_keys(plan, info->n_signatures, "\"", ", ");
	printf("], \"family\": ");
	json_quoted(stdout, info->family);
	printf(", \"family_facts\": ");
	cli_json_or_null(stdout, artifact_option(&plan->artifact, "family.facts"));
	printf(", \"targets\": [");
	for (int i = 0; i < info->n_targets; i++) {
		fputs(i ? ", " : "", stdout);
		json_quoted(stdout, info->targets[i]);
	}
	printf("], \"by_target\": [");
	json_targets(plan, info);
	printf("], \"n_layers\": %d, \"hidden_dim\": %d, \"vocab\": %d, \"slots\": %d, "
		   "\"max_context\": %d, "
		   "\"page\": %d, \"pages\": %d, \"bos_token\": %d, \"max_new_tokens\": %d, "
		   "\"stop_tokens\": [",
		info->n_layers, info->hidden_dim, info->vocab, info->slots, info->max_context, info->page,
		info->pages, info->bos_token, info->max_new_tokens);
	for (int i = 0; i < info->n_stop_tokens; i++)
		printf("%s%d", i ? ", " : "", info->stop_tokens[i]);
	printf("], \"kv_layers\": ");
	json_quoted(stdout, option_of(plan, "kv.layers"));
	const char *seed = artifact_option(&plan->artifact, "weights.random_seed");
	printf(", \"random_seed\": %s%s%s", seed ? "\"" : "", seed ? seed : "null", seed ? "\"" : "");
	printf(", \"config\": {");
	json_rows(&plan->artifact, "config.");
	printf("}, \"replaced\": {");
	json_rows(&plan->artifact, "replaced.");
	printf("}, \"unread\": {");
	json_rows(&plan->artifact, "note.");
	printf("}, \"weight_bytes\": %lld, \"weights\": \"%s\", \"has_tokenizer\": %s, "
		   "\"has_chat_template\": %s, \"has_chat\": %s, \"no_chat\": ",
		(long long)info->weight_bytes, weights_word(info), info->has_tokenizer ? "true" : "false",
		info->chat_template ? "true" : "false", info->has_chat ? "true" : "false");
	plan_no_chat(plan, why, sizeof why);
	cli_json_or_null(stdout, info->has_chat ? NULL : why);
	const Graph *g = &plan->artifact.graph;
	printf(", \"drafter\": ");
	cli_json_or_null(stdout, drafter_of(g));
	printf(", \"ngram\": [%d, %d], \"ladder\": [", g->ngram_min, g->ngram_max);
	for (int i = 0; i < g->n_ladder; i++)
		printf("%s[%d, %d]", i ? ", " : "", g->ladder[i].slots, g->ladder[i].rows);
	printf("], \"verify_rows\": %d, \"prompt_grid\": %d, \"invariant\": %s, \"mixed\": %s, \"drawable\": %d, "
		"\"tokens\": %d}\n", info->verify_rows, info->prompt_grid, order_is_invariant(&plan->artifact) ? "true"
		: "false", can_mix(plan) && !g->verify_rows ? "true" : "false", info->n_drawable, info->n_tokens);
}

static void print_drafts(const Graph *g)
{
	const Rung *r = g->ladder;
	printf("drafts       %s%d for each token, by ", !head_drafts(g) || g->n_ladder > 1 ? "up to " : "",
		g->verify_rows - 1);
	if (g->ngram_max)
		printf("n-grams of %d to %d tokens", g->ngram_min, g->ngram_max);
	else
		printf("the model's head");
	printf(": verify steps of %d rows a slot", g->verify_rows);
	for (int i = 1; i < g->n_ladder; i++)
		printf("%s %d from %d slots on", i > 1 ? "," : ";", r[i].rows, r[i - 1].slots + 1);
	puts(g->n_ladder && r[g->n_ladder - 1].rows == 1 ? ", which drafts nothing" : "");
}

static void print_text(const AtlasPlan *plan, const AtlasPlanInfo *info)
{
	char why[NO_CHAT_BYTES];
	printf("root         ");
	hex_put(stdout, info->root_hash, 32);
	printf("\nsigned by    %s", info->n_signatures ? "" : "none");
	print_keys(plan, info->n_signatures, "", "\n             ");
	printf("\nfamily       %s", info->family);
	const char *facts = artifact_option(&plan->artifact, "family.facts");
	if (facts)
		printf(", by facts of the user: %s", facts);
	printf("\ntargets     ");
	print_targets(plan, info);
	printf("model        %d layers, hidden_dim %d, vocab %d\n", info->n_layers, info->hidden_dim, info->vocab);
	const char *seed = artifact_option(&plan->artifact, "weights.random_seed");
	printf("weights      %lld bytes, ", (long long)info->weight_bytes);
	if (info->weights_made)
		printf("random, made at open from seed %s\n", seed);
	else
		printf("%s%s%s\n", info->weights_by_reference ? "in the checkpoint's files (--weights)" : "embedded",
			seed ? ", random, made from seed " : "", seed ? seed : "");
	if (plan->artifact.ranks.n)
		printf("ranks        %d, each with its parts of weights and caches\n",
			plan->artifact.ranks.n);
	printf("slots        %d of %d tokens\n", info->slots, info->max_context);
	printf("prompts      cut into steps only at multiples of %d positions\n", info->prompt_grid);
	if (info->n_targets)
		printf("buckets      prefill %s, decode %s; %s a text has the same bits alone and with others\n",
			option_of(plan, "phases.prefill"), option_of(plan, "phases.decode"),
			order_is_invariant(&plan->artifact) ? "invariant: in all of them" : "in equal buckets");
	if (info->n_targets && can_mix(plan))
		printf("mixed steps  atlas serve%s may read prompts and answers in one; last bits of answers then follow "
			"load\n", info->verify_rows ? ", with --speculate off alone," : "");
	printf("kv           %d pages of %d tokens; by layer: %s\n", info->pages, info->page, option_of(plan, "kv.layers"));
	const Rolling rolling = rolling_of(&plan->artifact.graph);
	if (rolling.pages)
		printf("windows      of up to %d tokens, in %d pages of each slot\n", rolling.window, rolling.pages);
	if (info->verify_rows)
		print_drafts(&plan->artifact.graph);
	printf("stop tokens ");
	for (int i = 0; i < info->n_stop_tokens; i++)
		if (info->stop_tokens[i] >= 0) /* -1 = none */
			printf(" %d", info->stop_tokens[i]);
	printf("\nids          %d rows of the vocabulary", info->vocab);
	if (info->has_tokenizer)
		printf(", %d with a token", info->n_tokens);
	printf("; only ids below %d are sampled and count in log probabilities\n", info->n_drawable);
	plan_no_chat(plan, why, sizeof why);
	printf("tokenizer    %s\nchat         %s%s\n", info->has_tokenizer ? "yes" : "no",
		info->has_chat ? "yes" : "no: ", why);
	print_rows(&plan->artifact, "replaced.", "replaced");
	print_rows(&plan->artifact, "config.", "config");
	print_rows(&plan->artifact, "note.", "not read");
}

/* Where there is a GPU, which is not opened for it: whether the kernels that it would run were chosen by its times. */
static void remark_card(const Args *args, const AtlasPlan *plan)
{
	Driver driver;
	char gpu[256];
	const TargetPlan *target = driver_open(&driver, NULL) != ATLAS_OK ? NULL
		: cuda_would_run(&driver, &plan->artifact, args->device_index, gpu);
	if (target)
		cli_remark_card(args, plan, target->target, gpu);
}

int verb_info(const Args *args)
{
	AtlasPlan *plan = NULL;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	if (args->sbom && args->json)
		return cli_say(args, EXIT_USAGE, "--sbom and --json both write to stdout: give one of them");
	int code = cli_open_plan(args, args->plan, &plan);
	if (code)
		return code;
	atlas_plan_info(plan, &info);
	if (args->sbom)
		sbom_json(&plan->artifact, stdout);
	else if (args->json)
		print_json(plan, &info);
	else
		print_text(plan, &info);
	if (!args->sbom && !args->json)
		remark_card(args, plan);
	atlas_plan_close(plan);
	return 0;
}
