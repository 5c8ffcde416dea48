/* prompt.c - prompts of requests as token ids (api.h). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static bool too_long(const ApiLimits *limits, size_t n, const char *param, ApiError *e)
{
	api_refuse(e, 400, param, "the prompt has %zu tokens: this model's maximum context length is %d tokens", n,
		limits->info->max_context);
	e->code = "context_length_exceeded";
	return false;
}

static bool check_length(const ApiLimits *limits, size_t n, const char *param, ApiError *e)
{
	if (n == 0)
		return api_refuse(e, 400, param, "the prompt has no tokens");
	return n <= (size_t)limits->info->max_context || too_long(limits, n, param, e);
}

bool api_prompt_of_text(const ApiLimits *limits, const char *text, size_t n, int flags, ApiPrompt *p, ApiError *e)
{
	size_t cap = n + 8, count = 0;
	p->text = malloc(n + 1);
	if (!p->text)
		return api_refuse(e, 500, NULL, "no memory");
	memcpy(p->text, text, n);
	p->text[n] = 0;
	p->n_bytes = n;
	for (;;) {
		int32_t *tokens = cap < INT_MAX ? realloc(p->tokens, cap * sizeof *tokens) : NULL;
		if (!tokens)
			return api_refuse(e, 500, NULL, "no memory");
		p->tokens = tokens;
		const AtlasStatus status = atlas_encode(limits->plan, text, n, flags, tokens, cap, &count);
		if (status == ATLAS_NO_TOKENIZER)
			return api_refuse(e, 400, "prompt", "the plan holds no tokenizer: give token ids");
		if (status == ATLAS_CONTEXT)
			return api_refuse(e, 400, "prompt", "the tokenizer's pattern takes too long on this text");
		if (status != ATLAS_OK)
			return api_refuse(e, 500, NULL, "%s", atlas_status_text(status));
		if (count <= cap)
			break;
		cap = count;
	}
	p->n = (int)count;
	return check_length(limits, count, "prompt", e);
}

/* The ids' text, for who echoes it. */
static bool text_of_ids(const ApiLimits *limits, ApiPrompt *p)
{
	AtlasText *stream;
	FILE *out = open_memstream(&p->text, &p->n_bytes);
	const char *bytes;
	size_t n;
	if (!out)
		return false;
	if (atlas_text_open(limits->plan, 1, &stream) == ATLAS_OK) {
		for (int i = 0; i < p->n; i++)
			if (atlas_text_push(stream, p->tokens[i], &bytes, &n) == ATLAS_OK)
				fwrite(bytes, 1, n, out);
		if (atlas_text_finish(stream, &bytes, &n) == ATLAS_OK)
			fwrite(bytes, 1, n, out);
		atlas_text_close(stream);
	}
	return fclose(out) == 0;
}

bool api_prompt_of_ids(const ApiLimits *limits, json_t *ids, const char *param, ApiPrompt *p, ApiError *e)
{
	const size_t n = json_array_size(ids);
	if (!json_is_array(ids))
		return api_refuse(e, 400, param, "%s is %s: expected a list of token ids", param, api_kind(ids));
	if (!check_length(limits, n, param, e))
		return false;
	p->tokens = malloc(n * sizeof *p->tokens);
	if (!p->tokens)
		return api_refuse(e, 500, NULL, "no memory");
	for (size_t i = 0; i < n; i++) {
		json_t *id = json_array_get(ids, i);
		const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
		if (!json_is_integer(id))
			return api_refuse(e, 400, param, "%s[%zu] is %s: expected a token id", param, i, api_kind(id));
		if (value < 0 || value >= limits->info->vocab)
			return api_refuse(e, 400, param, "%s[%zu] is %lld: expected a token id below %d", param, i,
				(long long)value, limits->info->vocab);
		p->tokens[i] = (int32_t)value;
	}
	p->n = (int)n;
	return text_of_ids(limits, p) || api_refuse(e, 500, NULL, "no memory");
}

/* Chat ------------------------------------------------------------ */

static bool check_content(json_t *content, const char *at, ApiError *e)
{
	char param[96];
	if (!content || json_is_string(content))
		return true;
	if (!json_is_array(content))
		return api_refuse(e, 400, at, "%s is %s: expected a string or a list of parts", at, api_kind(content));
	for (size_t i = 0; i < json_array_size(content); i++) {
		json_t *part = json_array_get(content, i), *type = json_object_get(part, "type");
		snprintf(param, sizeof param, "%.60s[%zu]", at, i);
		if (!json_is_object(part) || !json_is_string(type))
			return api_refuse(e, 400, param, "%s: expected an object with a type", param);
		if (strcmp(json_string_value(type), "text") != 0)
			return api_refuse(
				e, 400, param, "%s is of type %.60s: the model reads text", param, json_string_value(type));
		if (!json_is_string(json_object_get(part, "text")))
			return api_refuse(e, 400, param, "%s has no text", param);
	}
	return true;
}

static bool check_messages(json_t *messages, ApiError *e)
{
	static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
	if (!messages)
		return api_refuse(e, 400, "messages", "messages is missing");
	if (!json_is_array(messages))
		return api_refuse(e, 400, "messages", "messages is %s: expected a list", api_kind(messages));
	if (json_array_size(messages) == 0 || json_array_size(messages) > API_MAX_MESSAGES)
		return api_refuse(e, 400, "messages", "messages has %zu messages: expected 1 to %d", json_array_size(messages),
			API_MAX_MESSAGES);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		json_t *m = json_array_get(messages, i), *role = json_object_get(m, "role");
		char at[48];
		bool found = false;
		snprintf(at, sizeof at, "messages[%zu]", i);
		if (!json_is_object(m))
			return api_refuse(e, 400, at, "%s is %s: expected an object", at, api_kind(m));
		for (size_t k = 0; json_is_string(role) && k < sizeof roles / sizeof roles[0]; k++)
			found |= strcmp(roles[k], json_string_value(role)) == 0;
		if (!found) {
			strcat(at, ".role");
			return api_refuse(e, 400, at, "%s: expected system, developer, user, assistant or tool", at);
		}
		strcat(at, ".content");
		if (!check_content(api_get(m, "content"), at, e))
			return false;
	}
	return true;
}

/* Messages to token ids by the plan's own template. */
static bool render_chat(const ApiLimits *limits, json_t *request, ApiPrompt *p, ApiError *e)
{
	(void)limits, (void)request, (void)p;
	return api_refuse(e, 400, "messages", "the plan has no chat template");
}

bool api_prompt_of_chat(const ApiLimits *limits, json_t *request, ApiPrompt *prompt, ApiError *e)
{
	return check_messages(api_get(request, "messages"), e) && render_chat(limits, request, prompt, e);
}
