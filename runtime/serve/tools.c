/* tools.c - the fields of requests that are about tools, and what messages have of calls and reasoning (api.h). */
#include "runtime/serve/api.h"
#include "artifacts/hash.h"
#include "runtime/serve/reasoning.h"
#include "runtime/serve/structure.h"
#include "runtime/serve/tool_calls.h"
#include "runtime/serve/tool_grammar.h"

#include <string.h>

enum { MAX_TOOLS = 128 };

typedef enum ToolChoice { CHOICE_AUTO, CHOICE_NONE, CHOICE_FORCED } ToolChoice;

/* Templates and formats print it between marks of their own. */
static bool is_name(json_t *name)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/";
	const char *text = json_string_value(name);
	const size_t n = json_string_length(name);
	return text && n > 0 && n <= TOOL_NAME_BYTES && strspn(text, letters) == n;
}

/* Tools ------------------------------------------------------------ */

static bool check_tool(json_t *tools, size_t i, ApiError *e)
{
	json_t *tool = json_array_get(tools, i), *type = json_object_get(tool, "type"), *f = api_get(tool, "function");
	json_t *name = json_object_get(f, "name"), *parameters = api_get(f, "parameters"), *strict = api_get(f, "strict");
	const char *text = NULL;
	char at[64];
	snprintf(at, sizeof at, "tools[%zu]", i);
	if (!json_is_object(tool))
		return api_refuse(e, 400, at, "%s is %s: expected an object", at, api_kind(tool));
	strcat(at, ".type");
	if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
		return api_refuse(e, 400, at, "%s is %.60s: only tools of type function are called", at,
			json_is_string(type) ? json_string_value(type) : type ? api_kind(type) : "missing");
	snprintf(at, sizeof at, "tools[%zu].function", i);
	if (!json_is_object(f))
		return api_refuse(e, 400, at, "%s is %s: expected an object", at, f ? api_kind(f) : "missing");
	if (!api_text(f, "description", &text, e) || (parameters && !json_is_object(parameters)) ||
		(strict && !json_is_boolean(strict))) {
		const char *field = e->status                       ? "description"
			: parameters && !json_is_object(parameters) ? "parameters"
														: "strict";
		snprintf(at, sizeof at, "tools[%zu].function.%s", i, field);
		return api_refuse(e, 400, at, "%s is %s: expected %s", at, api_kind(json_object_get(f, field)),
			*field == 'd' ? "a string" : *field == 'p' ? "an object" : "true or false");
	}
	snprintf(at, sizeof at, "tools[%zu].function.name", i);
	if (!is_name(name))
		return api_refuse(e, 400, at, "%s: expected 1 to %d letters, digits and _-.:/", at, TOOL_NAME_BYTES);
	if (tool_find(tools, json_string_value(name), json_string_length(name)) != f)
		return api_refuse(e, 400, at, "%s: an earlier tool is %.128s already", at, json_string_value(name));
	return true;
}

/* Of tools that may be called, the first that must be called by its schema; -1 = none. */
static int strict_tool(json_t *tools)
{
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (json_is_true(json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict")))
			return (int)i;
	return -1;
}

static bool check_tools(json_t *tools, ApiError *e)
{
	if (!json_is_array(tools))
		return api_refuse(e, 400, "tools", "tools is %s: expected a list", api_kind(tools));
	if (json_array_size(tools) > MAX_TOOLS)
		return api_refuse(
			e, 400, "tools", "tools has %zu tools: expected at most %d", json_array_size(tools), MAX_TOOLS);
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (!check_tool(tools, i, e))
			return false;
	return true;
}

/* Gives tools what some templates ask for: a description, parameters and their properties. It means what was meant. */
static bool fill_tools(json_t *tools)
{
	bool good = true;
	for (size_t i = 0; good && i < json_array_size(tools); i++) {
		json_t *f = json_object_get(json_array_get(tools, i), "function");
		if (!api_get(f, "description"))
			good = json_object_set_new(f, "description", json_string("")) == 0;
		if (!api_get(f, "parameters"))
			good = good && json_object_set_new(f, "parameters", json_pack("{s:s, s:b}", "type", "object",
				"additionalProperties", 0)) == 0;
		json_t *parameters = json_object_get(f, "parameters");
		if (!json_object_get(parameters, "properties"))
			good = good && json_object_set_new(parameters, "properties", json_object()) == 0;
	}
	return good;
}

/* *only: the tool that is called; NULL = any. */
static bool read_choice(json_t *request, json_t *tools, ToolChoice *choice, const char **only, ApiError *e)
{
	static const char name[] = "tool_choice";
	json_t *named = NULL, *given = api_get(request, name);
	const char *word = json_string_value(given);
	*choice = !given || (word && strcmp(word, "auto") == 0) ? CHOICE_AUTO
		: word && strcmp(word, "none") == 0                 ? CHOICE_NONE
															: CHOICE_FORCED;
	if (*choice != CHOICE_FORCED)
		return true;
	if (word ? strcmp(word, "required") != 0 : !json_is_object(given))
		return api_refuse(e, 400, name, "%s is %.60s: expected none, auto, required or an object", name,
			word ? word : api_kind(given));
	if (json_array_size(tools) == 0)
		return api_refuse(e, 400, name, "%s without tools", name);
	if (word)
		return true;
	const char *type = json_string_value(json_object_get(given, "type"));
	named = json_object_get(json_object_get(given, "function"), "name");
	*only = json_string_value(named);
	if (!type || strcmp(type, "function") != 0 || !*only)
		return api_refuse(e, 400, name, "%s: expected an object of type function with the name of one", name);
	return tool_find(tools, *only, json_string_length(named)) ||
		api_refuse(e, 400, name, "%s: there is no tool %.128s", name, *only);
}

/* The answer is to be one call, of masked tokens; or (may_talk) text in which calls are of these. */
static bool hold_calls(
	const ApiLimits *limits, json_t *tools, const char *only, bool may_talk, ApiRequest *r, ApiError *e)
{
	const char *name = may_talk ? "tools" : "tool_choice";
	if (r->wanted)
		return api_refuse(e, 400, name, "%s: another field asks for a structure of the answer already", name);
	const ToolFormat *f = limits->tools;
	const bool is_schema = f->lead && !may_talk;
	FormError why = {{0}, {0}};
	json_t *json = may_talk ? tool_talk(f, limits->reasoning, tools, &why) : f->lead ? tool_schema(f, tools, only)
																  : tool_form(f, tools, only, &why);
	const GrammarSource source = {is_schema ? GRAMMAR_SCHEMA : GRAMMAR_FORM, .json = json,
		.before = is_schema ? f->lead : NULL};
	const bool good = json ? structure_of_call(limits, &source, name, r, e)
		: why.text[0]      ? api_refuse(e, 400, name, "%s at %s: %s (%s)", name, why.pointer, why.text, f->name)
						   : api_refuse(e, 500, NULL, "no memory");
	if (why.text[0])
		e->code = "invalid_structure";
	json_decref(json);
	return good;
}

/* Where a tool is strict, and calls may come anywhere. */
static bool hold_strict(const ApiLimits *limits, json_t *tools, ApiRequest *r, ApiError *e)
{
	char at[64];
	const int strict = strict_tool(tools);
	if (strict < 0)
		return true;
	if (tool_can_talk(limits->tools))
		return hold_calls(limits, tools, NULL, true, r, e);
	snprintf(at, sizeof at, "tools[%d].function.strict", strict);
	return api_refuse(e, 400, at, "%s: in this form of calls one that fits its schema for certain needs tool_choice "
		"required or a tool by name", at);
}

bool api_read_tools(const ApiLimits *limits, json_t *request, ApiRequest *r, ApiError *e)
{
	json_t *tools = api_get(request, "tools");
	bool parallel = true;
	ToolChoice choice;
	const char *only = NULL;
	if ((tools && !check_tools(tools, e)) || !read_choice(request, tools, &choice, &only, e) ||
		!api_bool(request, "parallel_tool_calls", &parallel, e))
		return false;
	if (json_array_size(tools) == 0 || choice == CHOICE_NONE) {
		json_object_del(request, "tools"); /* the template is not to know of them */
		return true;
	}
	if (!limits->tools)
		return api_refuse(e, 400, "tools",
			"tools: calls of this model have a form that is not known here (GET /v1/plan: tool_format is null)");
	if (limits->fills_tools && !fill_tools(tools))
		return api_refuse(e, 500, NULL, "no memory");
	r->tools = json_incref(tools);
	r->one_call = !parallel;
	return choice == CHOICE_FORCED ? hold_calls(limits, tools, only, false, r, e) : hold_strict(limits, tools, r, e);
}

/* Messages ------------------------------------------------------------ */

/* Some templates take ids of nine letters and digits alone. Of another id, always the same nine. */
static bool shorten_id(const ApiLimits *limits, json_t *object, const char *name, const char *at, ApiError *e)
{
	json_t *id = api_get(object, name);
	unsigned char hash[32];
	char digits[65];
	if (!id)
		return true;
	if (!json_is_string(id))
		return api_refuse(e, 400, at, "%s.%s is %s: expected a string", at, name, api_kind(id));
	const char *text = json_string_value(id);
	const size_t n = json_string_length(id);
	if (!limits->has_short_ids ||
		(n == 9 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") == n))
		return true;
	sha256_of(text, n, hash);
	hex_text(hash, 32, digits);
	digits[9] = 0;
	return json_object_set_new(object, name, json_string(digits)) == 0 || api_refuse(e, 500, NULL, "no memory");
}

static bool check_arguments(json_t *f, const char *at, ApiError *e)
{
	json_t *arguments = api_get(f, "arguments");
	const char *text = json_string_value(arguments);
	bool good = json_is_object(arguments);
	if (!arguments || (text && !*text))
		return json_object_set_new(f, "arguments", json_string("{}")) == 0 || api_refuse(e, 500, NULL, "no memory");
	if (text)
		good = json_scan_object(text, json_string_length(arguments));
	return good || api_refuse(e, 400, at, "%s.function.arguments: expected a JSON object, as text or as it is", at);
}

static bool check_call(const ApiLimits *limits, json_t *call, const char *at, ApiError *e)
{
	json_t *type = api_get(call, "type"), *f = api_get(call, "function");
	if (!json_is_object(call) || !json_is_object(f))
		return api_refuse(e, 400, at, "%s: expected an object with a function", at);
	if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
		return api_refuse(e, 400, at, "%s.type: expected function", at);
	if (json_string_length(json_object_get(f, "name")) == 0)
		return api_refuse(e, 400, at, "%s.function.name: expected the name of what was called", at);
	return check_arguments(f, at, e) && shorten_id(limits, call, "id", at, e);
}

static bool check_calls(const ApiLimits *limits, json_t *message, const char *at, ApiError *e)
{
	json_t *calls = json_object_get(message, "tool_calls");
	const char *role = json_string_value(json_object_get(message, "role"));
	char param[96];
	snprintf(param, sizeof param, "%.60s.tool_calls", at);
	if (!calls)
		return true;
	if (!json_is_array(calls))
		return api_refuse(e, 400, param, "%s is %s: expected a list", param, api_kind(calls));
	if (json_array_size(calls) == 0) {
		json_object_del(message, "tool_calls");
		return true;
	}
	if (strcmp(role, "assistant") != 0)
		return api_refuse(e, 400, param, "%s: a message of role %s calls nothing", param, role);
	for (size_t i = 0; i < json_array_size(calls); i++) {
		snprintf(param, sizeof param, "%.60s.tool_calls[%zu]", at, i);
		if (!check_call(limits, json_array_get(calls, i), param, e))
			return false;
	}
	return true;
}

/* null is the same as absent, for a template too; without content a message is shaped later. */
static void drop_nulls(json_t *message)
{
	const char *name;
	json_t *value;
	void *next;
	json_object_foreach_safe(message, next, name, value)
		if (json_is_null(value) && strcmp(name, "content") != 0)
			json_object_del(message, name);
}

/* Templates of channels call it thinking. With calls they take one text, of the reasoning and of what was said before
 * them, and show it as reasoning. */
static bool to_thinking(json_t *message)
{
	json_t *thought = json_object_get(message, "reasoning_content"), *said = json_object_get(message, "content");
	if (!thought || json_object_get(message, "thinking") || json_array_size(said))
		return true; /* parts are shown as reasoning without it */
	if (!json_object_get(message, "tool_calls") || json_string_length(said) == 0)
		return json_object_set(message, "thinking", thought) == 0;
	json_t *both = json_sprintf("%s\n\n%s", json_string_value(thought), json_string_value(said));
	return both && json_object_set_new(message, "thinking", both) == 0 &&
		json_object_set_new(message, "content", json_string("")) == 0;
}

/* reasoning is what some clients call reasoning_content. */
static bool check_reasoning(const ApiLimits *limits, json_t *message, const char *at, ApiError *e)
{
	static const char *const names[] = {"reasoning_content", "reasoning"};
	char param[96];
	for (size_t i = 0; i < 2; i++) {
		json_t *text = json_object_get(message, names[i]);
		snprintf(param, sizeof param, "%.60s.%s", at, names[i]);
		if (text && !json_is_string(text))
			return api_refuse(e, 400, param, "%s is %s: expected a string", param, api_kind(text));
		if (text && !json_object_get(message, names[0]) && json_object_set(message, names[0], text) != 0)
			return api_refuse(e, 500, NULL, "no memory");
	}
	return !limits->reasoning || !limits->reasoning->has_channels || to_thinking(message) ||
		api_refuse(e, 500, NULL, "no memory");
}

bool api_tools_of_message(const ApiLimits *limits, json_t *message, const char *at, ApiError *e)
{
	char param[96];
	drop_nulls(message);
	snprintf(param, sizeof param, "%.60s.function_call", at);
	if (json_object_get(message, "function_call"))
		return api_refuse(e, 400, param, "%s: function_call gave way to tool_calls", param);
	return check_reasoning(limits, message, at, e) && check_calls(limits, message, at, e) &&
		shorten_id(limits, message, "tool_call_id", at, e);
}
