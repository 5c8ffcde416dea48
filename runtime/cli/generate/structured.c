/* structured.c - see structured.h. */
#include "runtime/cli/generate/structured.h"
#include "runtime/plan_handle.h"

#include <errno.h>
#include <string.h>

static int read_schema(const Args *args, json_t **schema)
{
	json_error_t at;
	FILE *f = strcmp(args->json_schema, "-") == 0 ? stdin : fopen(args->json_schema, "rb");
	if (!f)
		return cli_say(args, EXIT_ENVIRONMENT, "%s: %s", args->json_schema, strerror(errno));
	*schema = json_loadf(f, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at);
	if (f != stdin)
		fclose(f);
	return *schema ? 0
		: cli_say(args, EXIT_BAD_INPUT, "%s:%d:%d: %s", args->json_schema, at.line, at.column, at.text);
}

int structured_open(const Args *args, const AtlasPlan *plan, Structured *s)
{
	GrammarSource source = {.kind = args->json_schema ? GRAMMAR_SCHEMA : GRAMMAR_REGEX, .text = args->regex,
		.tok = &plan->tokenizer};
	GrammarError why;
	if (!args->json_schema && !args->regex)
		return 0;
	if (args->json_schema && args->regex)
		return cli_say(args, EXIT_USAGE, "--json-schema and --regex both ask for a structure: give one of them");
	if (!plan->has_tokenizer)
		return cli_say(args, EXIT_BAD_INPUT, "the plan holds no tokenizer, by which an answer has a structure");
	const int code = args->json_schema ? read_schema(args, &source.json) : 0;
	if (code)
		return code;
	s->grammar = grammar_compile(&source, &why);
	json_decref(source.json);
	if (!s->grammar)
		return cli_say(args, EXIT_BAD_INPUT, "%s%s%s: %s", args->json_schema ? args->json_schema : "--regex",
			why.pointer[0] ? " at " : "", why.pointer, why.text);
	AtlasPlanInfo info = {.struct_size = sizeof info};
	atlas_plan_info(plan, &info);
	s->vocab = grammar_vocab_open(&plan->tokenizer, info.vocab);
	return s->vocab ? 0 : cli_say(args, EXIT_ENVIRONMENT, "no memory for the vocabulary, or its tokens are words with "
		"spaces between");
}

void structured_close(Structured *s)
{
	grammar_free(s->grammar);
	grammar_vocab_close(s->vocab);
}

bool structured_guide(const Structured *s, const AtlasPlanInfo *plan, Guide **guide)
{
	const GuideSource source = {.grammar = s->grammar, .vocab = s->vocab};
	if (!s->grammar)
		return true;
	*guide = guide_open(&source, plan->stop_tokens, plan->n_stop_tokens);
	return *guide != NULL;
}

int structured_masks_after(void *ctx, int slot, const int32_t *drafts, int n, uint32_t *words)
{
	(void)slot;
	return guide_masks_after(*(Guide **)ctx, drafts, n, words);
}

AtlasStatus structured_mask(AtlasSession *session, int slot, Guide *guide)
{
	int n;
	const uint32_t *words = guide_mask(guide, &n);
	return words ? atlas_mask(session, slot, words, n) : ATLAS_NO_MEMORY;
}
