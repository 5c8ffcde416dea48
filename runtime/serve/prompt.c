/* prompt.c - prompts of requests as token ids (api.h). */
#include "runtime/plan_handle.h"
#include "runtime/serve/api.h"
#include "runtime/serve/channels.h"
#include "runtime/serve/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool too_long(const ApiLimits *limits, size_t n, const char *param, ApiError *e)
{
	api_refuse(e, 400, param, "the prompt has %zu tokens: this model's maximum context length is %d tokens", n,
		limits->info->max_context);
	e->code = "context_length_exceeded";
	e->n_tokens = n;
	e->max_tokens = limits->info->max_context;
	return false;
}

static bool check_length(const ApiLimits *limits, size_t n, const char *param, ApiError *e)
{
	if (n == 0)
		return api_refuse(e, 400, param, "the prompt has no tokens");
	return n <= (size_t)limits->info->max_context || too_long(limits, n, param, e);
}

/* Special tokens in spans alone; in all of the text where flags have ATLAS_PARSE_SPECIAL. */
static bool encode(const ApiLimits *limits, const char *param, const char *text, size_t n, int flags,
	const AtlasSpan *spans, size_t n_spans, ApiPrompt *p, ApiError *e)
{
	size_t cap = n + 8, count = 0;
	for (;;) {
		int32_t *tokens = cap < INT_MAX ? realloc(p->tokens, cap * sizeof *tokens) : NULL;
		if (!tokens)
			return api_refuse(e, 500, NULL, "no memory");
		p->tokens = tokens;
		const AtlasStatus status =
			atlas_encode_spans(limits->plan, text, n, flags, spans, n_spans, tokens, cap, &count);
		if (status == ATLAS_NO_TOKENIZER)
			return api_refuse(e, 400, param, "the plan holds no tokenizer: give token ids");
		if (status == ATLAS_CONTEXT)
			return api_refuse(e, 400, param, "the tokenizer's pattern takes too long on this text");
		if (status != ATLAS_OK)
			return api_refuse(e, 500, NULL, "%s", atlas_status_text(status));
		if (count <= cap)
			break;
		cap = count;
	}
	p->n = (int)count;
	return true;
}

bool api_encode(const ApiLimits *limits, const char *text, size_t n, int flags, ApiPrompt *p, ApiError *e)
{
	return encode(limits, "prompt", text, n, flags, NULL, 0, p, e);
}

bool api_prompt_of_text(const ApiLimits *limits, const char *text, size_t n, int flags, ApiPrompt *p, ApiError *e)
{
	p->text = malloc(n + 1);
	if (!p->text)
		return api_refuse(e, 500, NULL, "no memory");
	memcpy(p->text, text, n);
	p->text[n] = 0;
	p->n_bytes = n;
	return api_encode(limits, text, n, flags, p, e) && check_length(limits, (size_t)p->n, "prompt", e);
}

/* The ids' text, for echo. */
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

static bool check_messages(const ApiLimits *limits, json_t *messages, ApiError *e)
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
		if (!api_tools_of_message(limits, m, at, e))
			return false;
		strcat(at, ".content");
		if (!check_content(api_get(m, "content"), at, e))
			return false;
	}
	return true;
}

/* "system" is the older word for a developer's message, which every template knows. */
static bool name_developer(const AtlasPlanInfo *info, json_t *messages)
{
	bool good = true;
	if (memmem(info->chat_template, info->chat_template_bytes, "developer", 9))
		return true;
	for (size_t i = 0; good && i < json_array_size(messages); i++) {
		json_t *m = json_array_get(messages, i);
		if (strcmp(json_string_value(json_object_get(m, "role")), "developer") == 0)
			good = json_object_set_new(m, "role", json_string("system")) == 0;
	}
	return good;
}

/* What apply_chat_template would be given. NULL after filling `e`. */
static json_t *conversation_of(json_t *request, ApiError *e)
{
	bool adds = true, goes_on = false;
	json_t *given = api_get(request, "chat_template_kwargs"), *effort = api_get(request, "reasoning_effort");
	const char *word = NULL;
	if (!api_bool(request, "add_generation_prompt", &adds, e) ||
		!api_bool(request, "continue_final_message", &goes_on, e) || !api_text(request, "reasoning_effort", &word, e))
		return NULL;
	if (given && !json_is_object(given))
		return api_refuse(
				   e, 400, "chat_template_kwargs", "chat_template_kwargs is %s: expected an object", api_kind(given)),
			   NULL;
	json_t *kwargs = given ? json_copy(given) : json_object(), *o = json_object();
	bool good = kwargs && o && (!effort || json_object_get(kwargs, "reasoning_effort") ||
		json_object_set(kwargs, "reasoning_effort", effort) == 0);
	json_t *tools = api_get(request, "tools");
	good = good && json_object_set(o, "messages", api_get(request, "messages")) == 0 &&
		(!tools || json_object_set(o, "tools", tools) == 0) &&
		json_object_set_new(o, "add_generation_prompt", json_boolean(adds && !goes_on)) == 0 &&
		json_object_set_new(o, "continue_final_message", json_boolean(goes_on)) == 0 &&
		json_object_set_new(o, "shape_messages", json_true()) == 0 &&
		json_object_set(o, "chat_template_kwargs", kwargs) == 0;
	json_decref(kwargs);
	if (good)
		return o;
	json_decref(o);
	api_refuse(e, 500, NULL, "no memory");
	return NULL;
}

/* Is the last that the template wrote the mark that opens reasoning, with nothing but blanks after it? An answer that
 * goes on in a message goes on in its reasoning if the message began that and did not end it. */
static bool ends_in_reasoning(
	const Reasoning *marks, json_t *request, const char *text, size_t n, const AtlasSpan *spans, size_t n_spans)
{
	const size_t length = strlen(marks->opener);
	json_t *messages = api_get(request, "messages");
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	if (json_is_true(api_get(request, "continue_final_message"))) {
		const char *said = json_string_value(json_object_get(last, "content"));
		const char *begin = said ? strstr(said, marks->opener) : NULL;
		return begin && !strstr(begin, marks->closer);
	}
	while (n && strchr(" \t\r\n", text[n - 1]))
		n--;
	return n >= length && memcmp(text + n - length, marks->opener, length) == 0 && n_spans &&
		spans[n_spans - 1].begin <= n - length && n <= spans[n_spans - 1].end;
}

/* Tokens of what the template wrote last, if that ends the prompt: it asks for an answer, perhaps with <think>. */
static int tail_of(const ApiLimits *limits, const ApiPrompt *p, size_t n, const AtlasSpan *spans, size_t n_spans)
{
	const Tok *tok = &limits->plan->tokenizer;
	const char *bytes;
	bool special;
	int i = p->n;
	size_t size, left = n_spans && spans[n_spans - 1].end == n ? n - spans[n_spans - 1].begin : 0;
	while (left > 0 && i > 0 && tok_token_bytes(tok, p->tokens[--i], &bytes, &size, &special))
		left -= size < left ? size : left;
	return p->n - i;
}

/* Messages to token ids by the plan's own template: control tokens are those that the template wrote. */
static bool render_chat(const ApiLimits *limits, json_t *request, ApiPrompt *p, ApiError *e)
{
	static const char message[] = CHANNELS_MESSAGE;
	AtlasChat *chat = NULL;
	AtlasError error = {0};
	const AtlasSpan *spans;
	const char *text;
	size_t n, n_spans;
	bool adds = false;
	if (!limits->info->chat_template)
		return api_refuse(e, 400, "messages", "the plan has no chat template");
	if (!api_bool(request, "add_special_tokens", &adds, e))
		return false;
	json_t *conversation = conversation_of(request, e);
	if (!conversation)
		return false;
	char *json = name_developer(limits->info, json_object_get(conversation, "messages"))
		? json_dumps(conversation, JSON_COMPACT) : NULL;
	json_decref(conversation);
	if (!json)
		return api_refuse(e, 500, NULL, "no memory");
	const AtlasStatus status = atlas_chat_render(limits->plan, json, strlen(json), time(NULL), &chat, &error);
	free(json);
	if (status == ATLAS_ARGUMENT || status == ATLAS_CONTEXT || status == ATLAS_UNSUPPORTED)
		return api_refuse(e, 400,
			strncmp(error.text, "chat_template_kwargs", 20) ? "messages" : "chat_template_kwargs", "%s", error.text);
	if (status != ATLAS_OK)
		return api_refuse(e, 500, NULL, "%s", atlas_status_text(status));
	atlas_chat_text(chat, &text, &n, &spans, &n_spans);
	p->is_reasoning =
		limits->reasoning && ends_in_reasoning(limits->reasoning, request, text, n, spans, n_spans);
	p->in_head = limits->reasoning && limits->reasoning->has_channels && !p->is_reasoning &&
		!json_is_true(api_get(request, "continue_final_message")) &&
		!(n >= sizeof message - 1 && memcmp(text + n - (sizeof message - 1), message, sizeof message - 1) == 0);
	const bool good = encode(limits, "messages", text, n, adds ? ATLAS_ADD_SPECIAL : 0, spans, n_spans, p, e) &&
		check_length(limits, (size_t)p->n, "messages", e);
	p->n_tail = good ? tail_of(limits, p, n, spans, n_spans) : 0;
	atlas_chat_free(chat);
	return good;
}

bool api_prompt_of_chat(const ApiLimits *limits, json_t *request, ApiPrompt *prompt, ApiError *e)
{
	return check_messages(limits, api_get(request, "messages"), e) && render_chat(limits, request, prompt, e);
}
