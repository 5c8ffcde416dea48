/* read_responses.c - requests of Responses as those of Chat Completions (apis.h). Nothing is stored: a request brings
 * all of its conversation. */
#include "runtime/serve/conversation.h"
#include "runtime/serve/json_scan.h"
#include "runtime/serve/request.h"

#include <stdlib.h>
#include <string.h>

static const char *const text_types[] = {"input_text", "output_text", "text", "refusal", NULL};

/* Items of the input ------------------------------------------------------------ */

static bool read_message(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	static const struct { const char *name, *role; } roles[] = {
		{"user", "user"}, {"assistant", "assistant"}, {"system", NULL}, {"developer", NULL}};
	const char *name = json_string_value(json_object_get(item, "role"));
	char *text;
	size_t i = 0;
	while (name && i < 4 && strcmp(roles[i].name, name) != 0)
		i++;
	if (!name || i == 4)
		return api_refuse(e, 400, at, "%s.role: expected user, assistant, system or developer", at);
	if (!conversation_text_of(json_object_get(item, "content"), text_types, NULL, at, &text, e))
		return false;
	const bool good = roles[i].role ? conversation_add_text(c, roles[i].role, text, e)
									: conversation_add_system(c, text, e);
	free(text);
	return good;
}

static bool read_call(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	const char *id, *name, *arguments;
	if (!conversation_needs_name(item, "call_id", at, &id, e) || !conversation_needs_name(item, "name", at, &name, e) ||
		!conversation_needs(item, "arguments", at, &arguments, e))
		return false;
	if (!json_scan_object(arguments, strlen(arguments)))
		return api_refuse(e, 400, at, "%s.arguments is not the text of a JSON object", at);
	return conversation_add_call(c, id, name, arguments, e);
}

/* A custom tool is a function of one text. */
static bool read_custom_call(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	const char *id, *name, *input;
	if (!conversation_needs_name(item, "call_id", at, &id, e) || !conversation_needs_name(item, "name", at, &name, e) ||
		!conversation_needs(item, "input", at, &input, e))
		return false;
	json_t *object = json_pack("{s:s}", "input", input);
	char *arguments = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	const bool good =
		arguments ? conversation_add_call(c, id, name, arguments, e) : api_refuse(e, 500, NULL, "no memory");
	free(arguments);
	return good;
}

static bool read_output(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	const char *id;
	char *text;
	if (!conversation_needs_name(item, "call_id", at, &id, e) ||
		!conversation_text_of(json_object_get(item, "output"), text_types, NULL, at, &text, e))
		return false;
	const bool good = conversation_add_result(c, id, text, e);
	free(text);
	return good;
}

/* Its own text where it has one, else the summary; one that is encrypted elsewhere has nothing to read. */
static bool read_reasoning(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	static const char *const types[] = {"reasoning_text", "summary_text", "text", NULL};
	json_t *content = api_get(item, "content");
	char *text = NULL;
	if (!json_array_size(content))
		content = api_get(item, "summary");
	if (content && !conversation_text_of(content, types, NULL, at, &text, e))
		return false;
	const bool good = !text || !*text || conversation_add_reasoning(c, text, e);
	free(text);
	return good;
}

static const struct ItemKind {
	const char *type;
	bool (*read)(Conversation *c, json_t *item, const char *at, ApiError *e);
} item_kinds[] = {
	{"message", read_message},
	{"function_call", read_call},
	{"function_call_output", read_output},
	{"custom_tool_call", read_custom_call},
	{"custom_tool_call_output", read_output},
	{"reasoning", read_reasoning},
};
enum { N_ITEM_KINDS = sizeof item_kinds / sizeof item_kinds[0] };

static bool read_item(Conversation *c, json_t *item, const char *at, ApiError *e)
{
	json_t *type = api_get(item, "type");
	const char *name = json_is_string(type) ? json_string_value(type) : "message";
	if (!json_is_object(item) || (type && !json_is_string(type)))
		return api_refuse(e, 400, at, "%s: expected an object with a type", at);
	for (int i = 0; i < N_ITEM_KINDS; i++)
		if (strcmp(item_kinds[i].type, name) == 0)
			return item_kinds[i].read(c, item, at, e);
	return api_refuse(
		e, 400, at, "%s is of type %.60s: expected messages, calls, their outputs or reasoning", at, name);
}

static bool read_input(Conversation *c, json_t *o, ApiError *e)
{
	const char *instructions = NULL;
	json_t *input = api_get(o, "input");
	const size_t n = json_array_size(input);
	char at[40];
	if (!api_text(o, "instructions", &instructions, e) ||
		(instructions && *instructions && !conversation_add_system(c, instructions, e)))
		return false;
	if (json_is_string(input))
		return conversation_add_text(c, "user", json_string_value(input), e);
	if (!json_is_array(input))
		return api_refuse(e, 400, "input", "input is %s: expected a string or a list of items",
			input ? api_kind(input) : "missing");
	if (n == 0 || n > API_MAX_MESSAGES)
		return api_refuse(e, 400, "input", "input has %zu items: expected 1 to %d", n, API_MAX_MESSAGES);
	for (size_t i = 0; i < n; i++) {
		snprintf(at, sizeof at, "input[%zu]", i);
		if (!read_item(c, json_array_get(input, i), at, e))
			return false;
	}
	return true;
}

/* Tools ------------------------------------------------------------ */

/* Its grammar is part of what the model reads about it. */
static bool add_custom(Conversation *c, size_t place, json_t *tool, const char *name, const char *description,
	ApiRequest *r, ApiError *e)
{
	const char *grammar = json_string_value(json_object_get(json_object_get(tool, "format"), "definition"));
	json_t *parameters = json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type", "object", "properties", "input", "type",
		"string", "required", "input");
	char *all = NULL;
	if (!r->custom_tools)
		r->custom_tools = json_object();
	bool good = r->custom_tools && parameters && json_object_set_new(r->custom_tools, name, json_true()) == 0 &&
		asprintf(&all, "%s%s%s", description ? description : "",
			grammar ? "\nThe input is a text of this grammar:\n" : "", grammar ? grammar : "") >= 0;
	good = good ? conversation_add_tool(c, place, name, all, parameters, NULL, e)
				: api_refuse(e, 500, NULL, "no memory");
	free(all);
	json_decref(parameters);
	return good;
}

/* kept: the tools that a model can call, as they came. The server runs none: those that it would are left out. */
static bool read_tool(Conversation *c, json_t *tool, size_t place, json_t *kept, ApiRequest *r, ApiError *e)
{
	const char *type = json_string_value(json_object_get(tool, "type")), *name, *description = NULL;
	json_t *parameters = api_get(tool, "parameters");
	char ignored[API_NAME_BYTES], at[40];
	snprintf(at, sizeof at, "tools[%zu]", place);
	if (!type)
		return api_refuse(e, 400, at, "%s: expected an object with a type", at);
	if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0) {
		snprintf(ignored, sizeof ignored, "tools.%.40s", type);
		request_ignore(r, ignored);
		return true;
	}
	if (!conversation_needs_name(tool, "name", at, &name, e) || !api_text(tool, "description", &description, e))
		return false;
	if (json_array_append(kept, tool) != 0)
		return api_refuse(e, 500, NULL, "no memory");
	if (*type == 'c')
		return add_custom(c, place, tool, name, description, r, e);
	if (parameters && !json_is_object(parameters))
		return api_refuse(e, 400, at, "%s.parameters is %s: expected an object", at, api_kind(parameters));
	return conversation_add_tool(c, place, name, description, parameters, api_get(tool, "strict"), e);
}

static bool read_tools(Conversation *c, json_t *o, json_t *kept, ApiRequest *r, ApiError *e)
{
	json_t *tools = api_get(o, "tools"), *parallel = api_get(o, "parallel_tool_calls");
	if (tools && !json_is_array(tools))
		return api_refuse(e, 400, "tools", "tools is %s: expected a list", api_kind(tools));
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (!read_tool(c, json_array_get(tools, i), i, kept, r, e))
			return false;
	if (parallel && !json_is_boolean(parallel))
		return api_refuse(e, 400, "parallel_tool_calls", "parallel_tool_calls is %s: expected true or false",
			api_kind(parallel));
	return !parallel || conversation_set(c, "parallel_tool_calls", json_incref(parallel), e);
}

static bool read_choice(Conversation *c, json_t *o, ApiError *e)
{
	static const char field[] = "tool_choice";
	json_t *choice = api_get(o, field);
	const char *type = json_string_value(json_object_get(choice, "type")), *name;
	if (!choice)
		return true;
	if (json_is_string(choice)) {
		const char *word = json_string_value(choice);
		if (strcmp(word, "auto") != 0 && strcmp(word, "none") != 0 && strcmp(word, "required") != 0)
			return api_refuse(e, 400, field, "tool_choice is %.40s: expected auto, none, required or a tool", word);
		return conversation_set(c, field, json_incref(choice), e);
	}
	if (!type || (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0))
		return api_refuse(e, 400, field, "tool_choice: expected a word, or an object of type function or custom");
	return conversation_needs_name(choice, "name", field, &name, e) &&
		conversation_set(c, field, json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name), e);
}

/* Other fields ------------------------------------------------------------ */

static bool read_variables(Conversation *c, json_t *o, ApiError *e)
{
	json_t *given = api_get(o, "chat_template_kwargs"), *reasoning = api_get(o, "reasoning");
	const char *effort = NULL;
	if (given && !json_is_object(given))
		return api_refuse(
			e, 400, "chat_template_kwargs", "chat_template_kwargs is %s: expected an object", api_kind(given));
	if (reasoning && !json_is_object(reasoning))
		return api_refuse(e, 400, "reasoning", "reasoning is %s: expected an object", api_kind(reasoning));
	if ((given && !conversation_set(c, "chat_template_kwargs", json_copy(given), e)) ||
		(reasoning && !api_text(reasoning, "effort", &effort, e)))
		return false;
	return !effort || conversation_set_variable(c, "reasoning_effort", json_string(effort), e);
}

static bool read_logprobs(json_t *o, ApiRequest *r, ApiError *e)
{
	json_t *include = api_get(o, "include");
	int64_t top = 0;
	if (include && !json_is_array(include))
		return api_refuse(e, 400, "include", "include is %s: expected a list", api_kind(include));
	if (!api_integer(o, "top_logprobs", 0, 20, &top, e))
		return false;
	r->top_logprobs = (int)top;
	r->logprobs = top > 0;
	for (size_t i = 0; i < json_array_size(include); i++) {
		const char *name = json_string_value(json_array_get(include, i));
		if (!name)
			return api_refuse(e, 400, "include", "include[%zu]: expected a string", i);
		r->logprobs |= strcmp(name, "message.output_text.logprobs") == 0;
	}
	return true;
}

static bool read_text(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	json_t *text = api_get(o, "text");
	if (text && !json_is_object(text))
		return api_refuse(e, 400, "text", "text is %s: expected an object", api_kind(text));
	return request_format(limits, api_get(text, "format"), "text.format", r, e);
}

/* What a response repeats of its request, with the defaults of what was left out. */
static bool repeat(json_t *o, json_t *kept, ApiRequest *r, ApiError *e)
{
	static const struct { const char *name, *absent; } members[] = {{"instructions", "null"},
		{"max_output_tokens", "null"}, {"max_tool_calls", "null"}, {"metadata", "{}"},
		{"parallel_tool_calls", "true"}, {"reasoning", "{\"effort\": null, \"summary\": null}"},
		{"text", "{\"format\": {\"type\": \"text\"}}"}, {"tool_choice", "\"auto\""}, {"top_logprobs", "0"}};
	json_t *all = json_object();
	bool good = all != NULL;
	for (size_t i = 0; good && i < sizeof members / sizeof members[0]; i++) {
		json_t *given = api_get(o, members[i].name);
		good = json_object_set_new(all, members[i].name,
				   given ? json_incref(given) : json_loads(members[i].absent, JSON_DECODE_ANY, NULL)) == 0;
	}
	good = good && json_object_set(all, "tools", kept) == 0;
	r->repeated = good ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return r->repeated || api_refuse(e, 500, NULL, "no memory");
}

bool api_read_responses(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	if (!request_common(limits, o, RESPONSES, r, e) || !api_bool(o, "stream", &r->stream, e) ||
		!read_logprobs(o, r, e) || !read_text(limits, o, r, e) ||
		!request_limit(limits, o, request_own_limit(limits), "max_output_tokens", NULL, r, e))
		return false;
	Conversation c;
	json_t *kept = json_array();
	const bool good = conversation_open(&c, e) && read_variables(&c, o, e) && read_input(&c, o, e) &&
		read_tools(&c, o, kept, r, e) && read_choice(&c, o, e) && repeat(o, kept, r, e) &&
		conversation_end(&c, limits, "input", r, e);
	json_decref(kept);
	conversation_free(&c);
	return good;
}
