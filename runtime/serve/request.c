/* request.c - bodies of Chat Completions and Completions, and fields that other APIs have too (api.h, request.h).
 *
 * `known` is the list of all fields with what becomes of each. A field of kind REFUSED is accepted with the one value
 * that asks for nothing, and refused with its reason otherwise, so that nothing that would change an answer is dropped.
 */
#include "runtime/serve/request.h"
#include "runtime/serve/structure.h"

#include <stdlib.h>
#include <string.h>

typedef enum Rule { HONOURED, IGNORED, REFUSED } Rule;

static const struct Known {
	const char *name;
	int apis;
	Rule rule;
	const char *nothing, *reason; /* of REFUSED: the value that asks for nothing, as JSON; "" = none */
} known[] = {
	{"model", ALL, HONOURED, "", ""},
	{"messages", CHAT, HONOURED, "", ""},
	{"prompt", COMPLETIONS, HONOURED, "", ""},
	{"echo", COMPLETIONS, HONOURED, "", ""},
	{"max_tokens", BOTH, HONOURED, "", ""},
	{"max_completion_tokens", CHAT, HONOURED, "", ""},
	{"temperature", ALL, HONOURED, "", ""},
	{"top_p", ALL, HONOURED, "", ""},
	{"top_k", ALL, HONOURED, "", ""},
	{"min_p", ALL, HONOURED, "", ""},
	{"repetition_penalty", ALL, HONOURED, "", ""},
	{"presence_penalty", ALL, HONOURED, "", ""},
	{"frequency_penalty", ALL, HONOURED, "", ""},
	{"seed", ALL, HONOURED, "", ""},
	{"n", BOTH, HONOURED, "", ""},
	{"stop", BOTH, HONOURED, "", ""},
	{"include_stop_str_in_output", BOTH, HONOURED, "", ""},
	{"logprobs", BOTH, HONOURED, "", ""},
	{"top_logprobs", CHAT, HONOURED, "", ""},
	{"stream", ALL, HONOURED, "", ""},
	{"stream_options", BOTH, HONOURED, "", ""},
	{"add_special_tokens", BOTH, HONOURED, "", ""},
	{"add_generation_prompt", CHAT, HONOURED, "", ""},
	{"continue_final_message", CHAT, HONOURED, "", ""},
	{"chat_template_kwargs", CHAT, HONOURED, "", ""},
	{"reasoning_effort", CHAT, HONOURED, "", ""},
	{"cache_salt", ALL, HONOURED, "", ""},
	{"user", BOTH, IGNORED, "", ""},
	{"metadata", ALL, IGNORED, "", ""},
	{"store", BOTH, IGNORED, "", ""},
	{"service_tier", ALL, IGNORED, "", ""},
	{"prompt_cache_key", BOTH, IGNORED, "", ""},
	{"prompt_cache_retention", BOTH, IGNORED, "", ""},
	{"safety_identifier", BOTH, IGNORED, "", ""},
	{"verbosity", BOTH, IGNORED, "", ""},
	{"prediction", BOTH, IGNORED, "", ""},
	{"parallel_tool_calls", CHAT, HONOURED, "", ""},
	{"priority", BOTH, IGNORED, "", ""},
	{"request_id", BOTH, IGNORED, "", ""},
	{"logit_bias", ALL, HONOURED, "", ""},
	{"stop_token_ids", ALL, HONOURED, "", ""},
	{"min_tokens", ALL, HONOURED, "", ""},
	{"ignore_eos", ALL, HONOURED, "", ""},
	{"tools", CHAT, HONOURED, "", ""},
	{"tool_choice", CHAT, HONOURED, "", ""},
	{"functions", CHAT, REFUSED, "[]", "functions gave way to tools"},
	{"function_call", CHAT, REFUSED, "\"none\"", "functions gave way to tools"},
	{"response_format", BOTH, HONOURED, "", ""},
	{"structured_outputs", BOTH, HONOURED, "", ""},
	{"guided_json", BOTH, HONOURED, "", ""},
	{"guided_regex", BOTH, HONOURED, "", ""},
	{"guided_choice", BOTH, HONOURED, "", ""},
	{"guided_grammar", BOTH, REFUSED, "", "structures are JSON schemas, regular expressions and choices"},
	{"structural_tag", BOTH, REFUSED, "", "structures are JSON schemas, regular expressions and choices"},
	{"audio", CHAT, REFUSED, "", "the model reads and writes text"},
	{"modalities", CHAT, REFUSED, "[\"text\"]", "the model reads and writes text"},
	{"web_search_options", CHAT, REFUSED, "", "the server searches nothing"},
	{"chat_template", CHAT, REFUSED, "", "the plan's own template is applied"},
	{"documents", CHAT, REFUSED, "[]", "the server passes no documents to the template"},
	{"best_of", BOTH, REFUSED, "1", "an answer is drawn once"},
	{"use_beam_search", BOTH, REFUSED, "false", "answers are drawn token by token"},
	{"length_penalty", BOTH, REFUSED, "1.0", "it belongs to beam search"},
	{"suffix", COMPLETIONS, REFUSED, "\"\"", "the model continues a text, it fills no gap"},
	{"prompt_embeds", COMPLETIONS, REFUSED, "", "a prompt is text or token ids"},
	{"prompt_logprobs", BOTH, REFUSED, "0", "echo with logprobs gives those of a prompt"},
	{"truncate_prompt_tokens", BOTH, REFUSED, "", "a prompt is read whole or refused"},
	{"bad_words", BOTH, REFUSED, "[]", "no words can be banned"},
	{"allowed_token_ids", BOTH, REFUSED, "[]", "all tokens may be drawn"},
	{"logits_processors", BOTH, REFUSED, "[]", "a request brings no code"},
	{"skip_special_tokens", BOTH, REFUSED, "true", "control tokens give no text"},
	{"spaces_between_special_tokens", BOTH, REFUSED, "true", "control tokens give no text"},
	{"vllm_xargs", BOTH, REFUSED, "{}", "there are no such arguments"},
	/* Responses */
	{"input", RESPONSES, HONOURED, "", ""},
	{"instructions", RESPONSES, HONOURED, "", ""},
	{"max_output_tokens", RESPONSES, HONOURED, "", ""},
	{"top_logprobs", RESPONSES, HONOURED, "", ""},
	{"include", RESPONSES, HONOURED, "", ""},
	{"text", RESPONSES, HONOURED, "", ""},
	{"reasoning", RESPONSES, HONOURED, "", ""},
	{"tools", RESPONSES, HONOURED, "", ""},
	{"tool_choice", RESPONSES, HONOURED, "", ""},
	{"parallel_tool_calls", RESPONSES, HONOURED, "", ""},
	{"chat_template_kwargs", NEWER, HONOURED, "", ""},
	{"stream_options", RESPONSES, IGNORED, "", ""},
	{"max_tool_calls", RESPONSES, IGNORED, "", ""},
	{"client_metadata", RESPONSES, IGNORED, "", ""},
	{"store", RESPONSES, IGNORED, "", ""},
	{"user", RESPONSES, IGNORED, "", ""},
	{"prompt_cache_key", RESPONSES, IGNORED, "", ""},
	{"prompt_cache_retention", RESPONSES, IGNORED, "", ""},
	{"safety_identifier", RESPONSES, IGNORED, "", ""},
	{"context_management", NEWER, IGNORED, "", ""},
	{"truncation", RESPONSES, REFUSED, "\"disabled\"", "a prompt is read whole or refused"},
	{"previous_response_id", RESPONSES, REFUSED, "", "no responses are stored: send the whole conversation"},
	{"conversation", RESPONSES, REFUSED, "", "no conversations are stored: send the whole conversation"},
	{"background", RESPONSES, REFUSED, "false", "answers are not kept for later"},
	{"prompt", RESPONSES, REFUSED, "", "no prompts are stored"},
	/* Messages */
	{"messages", MESSAGES, HONOURED, "", ""},
	{"system", MESSAGES, HONOURED, "", ""},
	{"max_tokens", MESSAGES, HONOURED, "", ""},
	{"stop_sequences", MESSAGES, HONOURED, "", ""},
	{"thinking", MESSAGES, HONOURED, "", ""},
	{"output_config", MESSAGES, HONOURED, "", ""},
	{"tools", MESSAGES, HONOURED, "", ""},
	{"tool_choice", MESSAGES, HONOURED, "", ""},
	{"cache_control", MESSAGES, IGNORED, "", ""},
	{"inference_geo", MESSAGES, IGNORED, "", ""},
	{"diagnostics", MESSAGES, IGNORED, "", ""},
	{"speed", MESSAGES, IGNORED, "", ""},
	{"user_profile_id", MESSAGES, IGNORED, "", ""},
	{"workspace_id", MESSAGES, IGNORED, "", ""},
	{"betas", MESSAGES, IGNORED, "", ""},
	{"output_format", MESSAGES, HONOURED, "", ""},
	{"container", MESSAGES, REFUSED, "", "the server runs no code"},
	{"mcp_servers", MESSAGES, REFUSED, "[]", "the server calls no other servers"},
};
enum { N_KNOWN = sizeof known / sizeof known[0] };

/* 1 and 1.0 are the same; {} is any object whose members are all null. */
static bool asks_nothing(json_t *value, const char *nothing)
{
	json_t *none = *nothing ? json_loads(nothing, JSON_DECODE_ANY, NULL) : NULL, *member;
	const char *name;
	bool same = none &&
		(json_is_number(none) ? json_is_number(value) && json_number_value(none) == json_number_value(value)
							  : json_equal(none, value));
	if (json_is_object(none) && json_object_size(none) == 0 && json_is_object(value)) {
		same = true;
		json_object_foreach(value, name, member)
			same &= json_is_null(member);
	}
	json_decref(none);
	return same;
}

void request_ignore(ApiRequest *r, const char *name)
{
	if (r->n_unknown < API_MAX_UNKNOWN)
		snprintf(r->unknown[r->n_unknown++], API_NAME_BYTES, "%s", name);
}

static bool check_names(json_t *object, int api, ApiRequest *r, ApiError *e)
{
	const char *name;
	json_t *value;
	json_object_foreach(object, name, value) {
		const struct Known *k = NULL;
		for (int i = 0; i < N_KNOWN && !k; i++)
			if ((known[i].apis & api) && strcmp(known[i].name, name) == 0)
				k = &known[i];
		if (!k)
			request_ignore(r, name);
		if (k && k->rule == REFUSED && !json_is_null(value) && !asks_nothing(value, k->nothing))
			return api_refuse(e, 400, name, "%s: %s", name, k->reason);
	}
	return true;
}

bool api_check_model(const ApiLimits *limits, json_t *object, ApiError *e)
{
	const char *name = NULL;
	if (!api_text(object, "model", &name, e))
		return false;
	for (int i = 0; name && i < limits->n_names; i++)
		if (strcmp(limits->names[i], name) == 0)
			return true;
	if (!name)
		return true;
	api_refuse(e, 404, "model", "there is no model %.200s: this server has %.200s", name, limits->names[0]);
	e->code = "model_not_found";
	return false;
}

/* Sampling ------------------------------------------------------------ */

static bool read_sampling(const ApiLimits *limits, json_t *o, AtlasSampling *s, ApiError *e)
{
	atlas_sampling_init(limits->plan, s);
	double temperature = s->temperature, top_p = s->top_p, min_p = s->min_p, repetition = s->repetition_penalty,
		   presence = s->presence_penalty, frequency = s->frequency_penalty;
	int64_t top_k = s->top_k, seed = 0;
	if (!api_number(o, "temperature", 0, 100, &temperature, e) || !api_number(o, "top_p", 0, 1, &top_p, e) ||
		!api_number(o, "min_p", 0, 1, &min_p, e) || !api_number(o, "repetition_penalty", 0.001, 1000, &repetition, e) ||
		!api_number(o, "presence_penalty", -2, 2, &presence, e) ||
		!api_number(o, "frequency_penalty", -2, 2, &frequency, e) ||
		!api_integer(o, "top_k", -1, 1 << 30, &top_k, e) || !api_integer(o, "seed", INT64_MIN, INT64_MAX, &seed, e))
		return false;
	s->temperature = (float)temperature;
	s->top_p = top_p < 1e-6 ? 1e-6f : (float)top_p; /* 0: the likeliest token alone */
	s->min_p = (float)min_p;
	s->repetition_penalty = (float)repetition;
	s->presence_penalty = (float)presence;
	s->frequency_penalty = (float)frequency;
	s->top_k = top_k < 0 ? 0 : (int32_t)top_k;
	s->seed = (uint64_t)seed;
	return true;
}

static bool add_stop(ApiRequest *r, const char *name, json_t *text, ApiError *e)
{
	const size_t n = json_string_length(text);
	if (!json_is_string(text))
		return api_refuse(e, 400, name, "%s has %s: expected strings", name, api_kind(text));
	if (n == 0 || n > ATLAS_MAX_STOP_BYTES)
		return api_refuse(
			e, 400, name, "%s has a string of %zu bytes: expected 1 to %d", name, n, ATLAS_MAX_STOP_BYTES);
	r->stop_bytes[r->n_stops] = n;
	r->stops[r->n_stops] = strdup(json_string_value(text));
	return r->stops[r->n_stops++] ? true : api_refuse(e, 500, NULL, "no memory");
}

bool request_stops(json_t *o, const char *name, ApiRequest *r, ApiError *e)
{
	json_t *stop = api_get(o, name);
	if (!stop)
		return true;
	if (json_is_string(stop))
		return add_stop(r, name, stop, e);
	if (!json_is_array(stop))
		return api_refuse(e, 400, name, "%s is %s: expected a string or a list of strings", name, api_kind(stop));
	if (json_array_size(stop) > ATLAS_MAX_STOPS)
		return api_refuse(
			e, 400, name, "%s has %zu strings: expected at most %d", name, json_array_size(stop), ATLAS_MAX_STOPS);
	for (size_t i = 0; i < json_array_size(stop); i++)
		if (!add_stop(r, name, json_array_get(stop, i), e))
			return false;
	return true;
}

static bool read_stop_tokens(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	static const char name[] = "stop_token_ids";
	json_t *ids = api_get(o, name);
	if (!ids)
		return true;
	if (!json_is_array(ids) || json_array_size(ids) > ATLAS_MAX_STOP_TOKENS)
		return api_refuse(e, 400, name, "%s: expected a list of at most %d token ids", name, ATLAS_MAX_STOP_TOKENS);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		json_t *id = json_array_get(ids, i);
		const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
		if (value < 0 || value >= limits->info->vocab)
			return api_refuse(e, 400, name, "%s[%zu]: expected a token id below %d", name, i, limits->info->vocab);
		r->stop_tokens[r->n_stop_tokens++] = (int32_t)value;
	}
	return true;
}

/* {"ID": BIAS}: decimal ids, as the API has them. */
static bool read_bias(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	static const char name[] = "logit_bias";
	json_t *bias = api_get(o, name), *value;
	const char *key;
	if (!bias)
		return true;
	if (!json_is_object(bias) || json_object_size(bias) > ATLAS_MAX_BIAS)
		return api_refuse(e, 400, name, "%s: expected an object of at most %d token ids", name, ATLAS_MAX_BIAS);
	r->bias = calloc(json_object_size(bias) + 1, sizeof *r->bias);
	if (!r->bias)
		return api_refuse(e, 500, NULL, "no memory");
	json_object_foreach(bias, key, value) {
		const size_t n = strlen(key);
		const bool is_id = n > 0 && n < 10 && strspn(key, "0123456789") == n && (n == 1 || key[0] != '0');
		const double x = json_is_number(value) ? json_number_value(value) : 1e9;
		if (!is_id || atol(key) >= limits->info->vocab)
			return api_refuse(
				e, 400, name, "%s has %.40s: expected a token id below %d", name, key, limits->info->vocab);
		if (!(x >= -100 && x <= 100))
			return api_refuse(e, 400, name, "%s[%s] is %s: expected a number from -100 to 100", name, key,
				json_is_number(value) ? "out of range" : api_kind(value));
		r->bias[r->n_bias++] = (AtlasBias){(int32_t)atol(key), (float)x};
	}
	return true;
}

/* Answers ------------------------------------------------------------ */

static bool read_chat_logprobs(json_t *o, ApiRequest *r, ApiError *e)
{
	int64_t top = 0;
	if (!api_bool(o, "logprobs", &r->logprobs, e) || !api_integer(o, "top_logprobs", 0, 20, &top, e))
		return false;
	r->top_logprobs = (int)top;
	return top == 0 || r->logprobs || api_refuse(e, 400, "top_logprobs", "top_logprobs without logprobs: true");
}

static bool read_text_logprobs(json_t *o, ApiRequest *r, ApiError *e)
{
	int64_t top = -1;
	if (!api_integer(o, "logprobs", 0, 5, &top, e))
		return false;
	r->logprobs = top >= 0;
	r->top_logprobs = top > 0 ? (int)top : 0;
	return true;
}

static bool read_stream(json_t *o, ApiRequest *r, ApiError *e)
{
	json_t *options = api_get(o, "stream_options");
	if (!api_bool(o, "stream", &r->stream, e))
		return false;
	if (!options)
		return true;
	if (!json_is_object(options))
		return api_refuse(e, 400, "stream_options", "stream_options is %s: expected an object", api_kind(options));
	if (!api_bool(options, "include_usage", &r->include_usage, e) ||
		!api_bool(options, "continuous_usage_stats", &r->continuous_usage, e)) {
		char param[sizeof e->param];
		snprintf(param, sizeof param, "stream_options.%.60s", e->param);
		memcpy(e->param, param, sizeof param);
		return false;
	}
	return true;
}

int request_own_limit(const ApiLimits *limits)
{
	return limits->info->max_new_tokens > 0 ? limits->info->max_new_tokens : limits->info->max_context;
}

static int least(int64_t n, int most) { return n < most ? (int)n : most; }

bool request_limit(const ApiLimits *limits, json_t *o, int64_t max_new, const char *name, const char *newer,
	ApiRequest *r, ApiError *e)
{
	int64_t min_new = 0;
	/* An echo of a prompt with its log probabilities is an answer too. */
	if (!api_integer(o, name, r->echo && r->logprobs ? 0 : 1, 1 << 30, &max_new, e) ||
		(newer && !api_integer(o, newer, 1, 1 << 30, &max_new, e)) ||
		!api_integer(o, "min_tokens", 0, 1 << 30, &min_new, e))
		return false;
	if (min_new > max_new)
		return api_refuse(e, 400, "min_tokens", "min_tokens is %lld: expected at most the %lld tokens of the answer",
			(long long)min_new, (long long)max_new);
	r->min_new = least(min_new, limits->info->max_context);
	r->max_new = least(max_new, limits->info->max_context);
	return true;
}

/* A string, a list of strings, a list of ids, a list of lists of ids. */
static bool read_prompts(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	json_t *prompt = api_get(o, "prompt"), *first = json_array_get(prompt, 0);
	bool adds = true;
	if (!api_bool(o, "add_special_tokens", &adds, e))
		return false;
	const int flags = ATLAS_PARSE_SPECIAL | (adds ? ATLAS_ADD_SPECIAL : 0);
	const bool is_list = json_is_array(prompt) && (json_is_string(first) || json_is_array(first));
	const size_t n = is_list ? json_array_size(prompt) : 1;
	if (!prompt)
		return api_refuse(e, 400, "prompt", "prompt is missing");
	if (!json_is_string(prompt) && !json_is_array(prompt))
		return api_refuse(
			e, 400, "prompt", "prompt is %s: expected a string, token ids, or a list of either", api_kind(prompt));
	if (json_is_array(prompt) && !first)
		return api_refuse(e, 400, "prompt", "prompt is an empty list");
	if (n > API_MAX_PROMPTS)
		return api_refuse(e, 400, "prompt", "prompt has %zu prompts: expected at most %d", n, API_MAX_PROMPTS);
	r->prompts = calloc(n, sizeof *r->prompts);
	if (!r->prompts)
		return api_refuse(e, 500, NULL, "no memory");
	for (size_t i = 0; i < n; i++) {
		json_t *one = is_list ? json_array_get(prompt, i) : prompt;
		char param[32] = "prompt";
		if (is_list)
			snprintf(param, sizeof param, "prompt[%zu]", i);
		ApiPrompt *p = &r->prompts[r->n_prompts++];
		if (is_list && json_typeof(one) != json_typeof(first))
			return api_refuse(
				e, 400, param, "%s is %s: expected %s as the first", param, api_kind(one), api_kind(first));
		if (json_is_string(one)
				? !api_prompt_of_text(limits, json_string_value(one), json_string_length(one), flags, p, e)
				: !api_prompt_of_ids(limits, one, param, p, e)) {
			if (!e->param[0] || strcmp(e->param, "prompt") == 0)
				snprintf(e->param, sizeof e->param, "%s", param);
			return false;
		}
	}
	return true;
}

static bool read_salt(json_t *o, ApiRequest *r, ApiError *e)
{
	static const char name[] = "cache_salt";
	const char *salt = NULL;
	if (!api_text(o, name, &salt, e))
		return false;
	if (salt && !*salt)
		return api_refuse(e, 400, name, "%s is empty: expected a text, or no such field", name);
	r->cache_salt = salt ? strdup(salt) : NULL;
	return !salt || r->cache_salt || api_refuse(e, 500, NULL, "no memory");
}

/* Clients of Anthropic's API ask for several models by name, and end when one is missing. */
static bool is_claude(json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "model"));
	return name && strncmp(name, "claude-", 7) == 0;
}

bool request_common(const ApiLimits *limits, json_t *o, int api, ApiRequest *r, ApiError *e)
{
	r->n = 1;
	return check_names(o, api, r, e) && ((api == MESSAGES && is_claude(o)) || api_check_model(limits, o, e)) &&
		read_sampling(limits, o, &r->sampling, e) && read_stop_tokens(limits, o, r, e) &&
		read_bias(limits, o, r, e) && read_salt(o, r, e) && api_bool(o, "ignore_eos", &r->ignore_stops, e);
}

/* What OpenAI's older APIs have before what differs. */
static bool read_older(const ApiLimits *limits, json_t *o, int api, ApiRequest *r, ApiError *e)
{
	int64_t n = 1;
	if (!request_common(limits, o, api, r, e) || !request_stops(o, "stop", r, e) ||
		!api_bool(o, "include_stop_str_in_output", &r->include_stop, e) ||
		!api_integer(o, "n", 1, limits->info->slots, &n, e) ||
		!api_read_structure(limits, o, r, e))
		return false;
	r->n = (int)n;
	return true;
}

bool api_read_completions(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	return read_older(limits, o, COMPLETIONS, r, e) && read_text_logprobs(o, r, e) && read_stream(o, r, e) &&
		api_bool(o, "echo", &r->echo, e) && request_limit(limits, o, 16, "max_tokens", NULL, r, e) &&
		read_prompts(limits, o, r, e);
}

bool api_read_chat(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	if (!read_older(limits, o, CHAT, r, e) || !read_chat_logprobs(o, r, e) || !read_stream(o, r, e) ||
		!request_limit(limits, o, request_own_limit(limits), "max_tokens", "max_completion_tokens", r, e))
		return false;
	r->prompts = calloc(1, sizeof *r->prompts);
	r->n_prompts = r->prompts != NULL;
	if (!r->prompts)
		return api_refuse(e, 500, NULL, "no memory");
	return api_read_tools(limits, o, r, e) && api_prompt_of_chat(limits, o, r->prompts, e);
}

bool api_read_request(const ApiLimits *limits, ApiReader *read, const char *body, size_t n, ApiRequest *r, ApiError *e)
{
	*r = (ApiRequest){0};
	json_t *object = api_parse(body, n, e);
	if (!object)
		return false;
	const bool good = read(limits, object, r, e);
	json_decref(object);
	return good && structure_find(limits, r, e);
}

void api_request_free(ApiRequest *r)
{
	for (int i = 0; i < r->n_stops; i++)
		free(r->stops[i]);
	for (int i = 0; i < r->n_prompts; i++) {
		free(r->prompts[i].tokens);
		free(r->prompts[i].text);
	}
	json_decref(r->tools);
	json_decref(r->custom_tools);
	free(r->repeated);
	structure_forget(r);
	grammar_free(r->grammar);
	free(r->prompts);
	free(r->bias);
	free(r->cache_salt);
	*r = (ApiRequest){0};
}
