/* read_messages.c - requests of Messages, the API of Anthropic, as those of Chat Completions (apis.h). */
#include "artifacts/json_put.h"
#include "runtime/serve/conversation.h"
#include "runtime/serve/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_types[] = {"text", NULL};
/* A first block of Claude Code, which differs in each request and says nothing to a model. */
static const char billing[] = "x-anthropic-billing-header";

/* Tools ------------------------------------------------------------ */

static bool read_tool(Conversation *c, json_t *tool, size_t place, const char *at, ApiError *e)
{
	json_t *schema = api_get(tool, "input_schema");
	const char *name, *type = NULL, *description = NULL;
	if (!json_is_object(tool))
		return api_refuse(e, 400, at, "%s is %s: expected an object", at, tool ? api_kind(tool) : "missing");
	if (!api_text(tool, "type", &type, e) || !api_text(tool, "description", &description, e))
		return false;
	if (type && strcmp(type, "custom") != 0)
		return api_refuse(e, 400, at, "%s is of type %.60s: this server runs no tools", at, type);
	if (!conversation_needs_name(tool, "name", at, &name, e))
		return false;
	if (!json_is_object(schema))
		return api_refuse(
			e, 400, at, "%s.input_schema is %s: expected an object", at, schema ? api_kind(schema) : "missing");
	return conversation_add_tool(c, place, name, description, schema, api_get(tool, "strict"), e);
}

static bool read_tools(Conversation *c, json_t *o, ApiError *e)
{
	json_t *tools = api_get(o, "tools");
	char at[40];
	if (tools && !json_is_array(tools))
		return api_refuse(e, 400, "tools", "tools is %s: expected a list", api_kind(tools));
	for (size_t i = 0; i < json_array_size(tools); i++) {
		snprintf(at, sizeof at, "tools[%zu]", i);
		if (!read_tool(c, json_array_get(tools, i), i, at, e))
			return false;
	}
	return true;
}

/* A block that offers a tool from there on, by name or by definition, or withdraws it. Templates have one list for a
 * whole conversation: the last word counts. */
static bool read_tool_change(Conversation *c, json_t *block, bool adds, const char *at, ApiError *e)
{
	json_t *tool = json_object_get(block, "tool");
	const char *type = json_string_value(json_object_get(tool, "type")), *name;
	char place[sizeof e->param];
	snprintf(place, sizeof place, "%.70s.tool", at);
	if (!type)
		return api_refuse(e, 400, place, "%s: expected an object with a type", place);
	if (adds && strcmp(type, "tool_definition") == 0)
		return read_tool(c, json_object_get(tool, "definition"), CONVERSATION_INLINE, place, e);
	if (strcmp(type, "tool_reference") != 0)
		return api_refuse(e, 400, place, "%s is of type %.60s: this server runs no tools", place, type);
	return conversation_needs_name(tool, "name", place, &name, e) && conversation_offer_tool(c, name, adds, e);
}

/* Content ------------------------------------------------------------ */

static bool refuse_type(const char *at, const char *type, ApiError *e)
{
	return api_refuse(e, 400, at, "%s is of type %.60s: expected text, thinking, tool_use or tool_result", at, type);
}

/* What a search for tools found is there already: all tools are shown. */
static const char *const result_types[] = {"text", "tool_reference", NULL};

static bool read_result(Conversation *c, json_t *block, const char *at, ApiError *e)
{
	const char *id;
	char *text = NULL;
	json_t *content = api_get(block, "content");
	if (!conversation_needs_name(block, "tool_use_id", at, &id, e) ||
		(content && !conversation_text_of(content, result_types, NULL, at, &text, e)))
		return false;
	const bool good = conversation_add_result(c, id, text ? text : "", e);
	free(text);
	return good;
}

/* With the fewest digits that say it, as Python prints it; jansson writes 0.1 with seventeen. */
static void put_real(double x, FILE *out)
{
	char number[40];
	if (x == floor(x) && fabs(x) < 1e16) {
		fprintf(out, "%.1f", x);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(number, sizeof number, "%.*g", digits, x);
		if (strtod(number, NULL) == x)
			break;
	}
	fputs(number, out);
}

/* As templates print an object. */
static void put_json(json_t *value, FILE *out)
{
	const char *key, *between = "";
	json_t *member;
	size_t i;
	if (json_is_object(value)) {
		fputc('{', out);
		json_object_foreach(value, key, member) {
			fputs(between, out);
			json_quoted(out, key);
			fputs(": ", out);
			put_json(member, out);
			between = ", ";
		}
		fputc('}', out);
	} else if (json_is_array(value)) {
		fputc('[', out);
		json_array_foreach(value, i, member) {
			fputs(i ? ", " : "", out);
			put_json(member, out);
		}
		fputc(']', out);
	} else if (json_is_string(value)) {
		json_text(out, json_string_value(value), json_string_length(value));
	} else if (json_is_real(value)) {
		put_real(json_real_value(value), out);
	} else if (json_is_integer(value)) {
		fprintf(out, "%lld", (long long)json_integer_value(value));
	} else {
		fputs(json_is_null(value) ? "null" : json_is_true(value) ? "true" : "false", out);
	}
}

static bool read_use(Conversation *c, json_t *block, const char *at, ApiError *e)
{
	const char *id, *name;
	json_t *input = json_object_get(block, "input");
	if (!conversation_needs_name(block, "id", at, &id, e) || !conversation_needs_name(block, "name", at, &name, e))
		return false;
	if (!json_is_object(input))
		return api_refuse(e, 400, at, "%s.input is %s: expected an object", at, input ? api_kind(input) : "missing");
	char *arguments = NULL;
	size_t n;
	FILE *out = open_memstream(&arguments, &n);
	if (out)
		put_json(input, out);
	const bool good = out && fclose(out) == 0 ? conversation_add_call(c, id, name, arguments, e)
											  : api_refuse(e, 500, NULL, "no memory");
	free(arguments);
	return good;
}

static bool read_system_block(Conversation *c, json_t *block, const char *type, const char *at, ApiError *e)
{
	const char *text;
	if (strcmp(type, "text") == 0)
		return conversation_needs(block, "text", at, &text, e) &&
			(strncmp(text, billing, strlen(billing)) == 0 || conversation_add_system(c, text, e));
	if (strcmp(type, "tool_addition") == 0 || strcmp(type, "tool_removal") == 0)
		return read_tool_change(c, block, type[5] == 'a', at, e);
	return api_refuse(e, 400, at, "%s is of type %.60s: expected text, tool_addition or tool_removal", at, type);
}

static bool read_block(Conversation *c, const char *role, json_t *block, const char *at, ApiError *e)
{
	const bool is_model = strcmp(role, "assistant") == 0;
	const char *type = json_string_value(json_object_get(block, "type")), *text;
	if (!type)
		return api_refuse(e, 400, at, "%s: expected an object with a type", at);
	if (strcmp(role, "system") == 0)
		return read_system_block(c, block, type, at, e);
	if (strcmp(type, "text") == 0)
		return conversation_needs(block, "text", at, &text, e) && conversation_add_text(c, role, text, e);
	if (is_model && strcmp(type, "thinking") == 0)
		return conversation_needs(block, "thinking", at, &text, e) && conversation_add_reasoning(c, text, e);
	if (is_model && strcmp(type, "redacted_thinking") == 0)
		return true; /* sealed by another server: there is nothing to read */
	if (is_model && strcmp(type, "tool_use") == 0)
		return read_use(c, block, at, e);
	if (!is_model && strcmp(type, "tool_result") == 0)
		return read_result(c, block, at, e);
	return refuse_type(at, type, e);
}

/* Static: what a JSON text says of the role; NULL = neither. */
static const char *role_of(json_t *message)
{
	static const char *const roles[] = {"user", "assistant", "system"};
	const char *role = json_string_value(json_object_get(message, "role"));
	for (size_t i = 0; role && i < sizeof roles / sizeof roles[0]; i++)
		if (strcmp(roles[i], role) == 0)
			return roles[i];
	return NULL;
}

static bool read_message(Conversation *c, json_t *message, const char *at, ApiError *e)
{
	char place[sizeof e->param];
	json_t *content = json_object_get(message, "content");
	const char *role = role_of(message);
	if (!role)
		return api_refuse(e, 400, at, "%s.role: expected user or assistant", at);
	if (json_is_string(content) && strcmp(role, "system") == 0)
		return conversation_add_system(c, json_string_value(content), e);
	if (json_is_string(content))
		return conversation_add_text(c, role, json_string_value(content), e);
	if (!json_is_array(content))
		return api_refuse(e, 400, at, "%s.content is %s: expected a string or a list of blocks", at,
			content ? api_kind(content) : "missing");
	for (size_t i = 0; i < json_array_size(content); i++) {
		snprintf(place, sizeof place, "%.40s.content[%zu]", at, i);
		if (!read_block(c, role, json_array_get(content, i), place, e))
			return false;
	}
	return true;
}

static bool read_all_messages(Conversation *c, json_t *o, ApiError *e)
{
	json_t *messages = api_get(o, "messages");
	const size_t n = json_array_size(messages);
	char at[40];
	if (!json_is_array(messages))
		return api_refuse(
			e, 400, "messages", "messages is %s: expected a list", messages ? api_kind(messages) : "missing");
	if (n == 0 || n > API_MAX_MESSAGES)
		return api_refuse(
			e, 400, "messages", "messages has %zu messages: expected 1 to %d", n, API_MAX_MESSAGES);
	for (size_t i = 0; i < n; i++) {
		snprintf(at, sizeof at, "messages[%zu]", i);
		if (!read_message(c, json_array_get(messages, i), at, e))
			return false;
	}
	/* A last turn of the model is the beginning of the answer. */
	const char *last = conversation_last_text(c);
	if (last && strcmp(last, "assistant") == 0)
		return conversation_set(c, "continue_final_message", json_true(), e) &&
			conversation_set(c, "add_generation_prompt", json_false(), e);
	return true;
}

static bool read_system(Conversation *c, json_t *o, ApiError *e)
{
	json_t *system = api_get(o, "system");
	char *text = NULL;
	if (!system)
		return true;
	const bool good = conversation_text_of(system, text_types, billing, "system", &text, e) &&
		(!*text || conversation_add_system(c, text, e));
	free(text);
	return good;
}

/* Choice and reasoning ------------------------------------------------------------ */

static bool read_choice(Conversation *c, json_t *o, ApiError *e)
{
	json_t *choice = api_get(o, "tool_choice");
	const char *type = json_string_value(json_object_get(choice, "type")), *name;
	bool one = false;
	if (!choice)
		return true;
	if (!type)
		return api_refuse(e, 400, "tool_choice", "tool_choice: expected an object with a type");
	if (!api_bool(choice, "disable_parallel_tool_use", &one, e) ||
		(one && !conversation_set(c, "parallel_tool_calls", json_false(), e)))
		return false;
	if (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0)
		return conversation_set(c, "tool_choice", json_string(type), e);
	if (strcmp(type, "any") == 0)
		return conversation_set(c, "tool_choice", json_string("required"), e);
	if (strcmp(type, "tool") != 0)
		return api_refuse(
			e, 400, "tool_choice", "tool_choice is of type %.40s: expected auto, any, tool or none", type);
	return conversation_needs_name(choice, "name", "tool_choice", &name, e) &&
		conversation_set(c, "tool_choice",
			json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name), e);
}

/* "enabled" and "adaptive" ask for reasoning, "disabled" for none; other types are later ones. */
static bool read_thinking(const ApiLimits *limits, Conversation *c, json_t *o, ApiRequest *r, ApiError *e)
{
	json_t *thinking = api_get(o, "thinking"), *output = api_get(o, "output_config");
	const char *type = json_string_value(json_object_get(thinking, "type")), *effort = NULL;
	if (thinking && !type)
		return api_refuse(e, 400, "thinking", "thinking: expected an object with a type");
	if (output && !json_is_object(output))
		return api_refuse(e, 400, "output_config", "output_config is %s: expected an object", api_kind(output));
	if (output && (!api_text(output, "effort", &effort, e) ||
					  !request_format(limits, api_get(output, "format"), "output_config.format", r, e)))
		return false;
	if (!request_format(limits, api_get(o, "output_format"), "output_format", r, e))
		return false;
	if (effort && !conversation_set_variable(c, "reasoning_effort", json_string(effort), e))
		return false;
	if (type && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0))
		return conversation_set_variable(c, "enable_thinking", json_true(), e);
	return !type || strcmp(type, "disabled") != 0 || conversation_set_variable(c, "enable_thinking", json_false(), e);
}

static bool read_variables(Conversation *c, json_t *o, ApiError *e)
{
	json_t *given = api_get(o, "chat_template_kwargs");
	if (given && !json_is_object(given))
		return api_refuse(
			e, 400, "chat_template_kwargs", "chat_template_kwargs is %s: expected an object", api_kind(given));
	return !given || conversation_set(c, "chat_template_kwargs", json_copy(given), e);
}

/* Requests ------------------------------------------------------------ */

static bool read_prompt(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	Conversation c;
	const bool good = conversation_open(&c, e) && read_variables(&c, o, e) && read_system(&c, o, e) &&
		read_tools(&c, o, e) && read_all_messages(&c, o, e) && read_choice(&c, o, e) &&
		read_thinking(limits, &c, o, r, e) && conversation_end(&c, limits, "messages", r, e);
	conversation_free(&c);
	return good;
}

bool api_read_count(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	r->wants_prompt = true;
	return request_common(limits, o, MESSAGES, r, e) && read_prompt(limits, o, r, e);
}

bool api_read_messages(const ApiLimits *limits, json_t *o, ApiRequest *r, ApiError *e)
{
	if (!request_common(limits, o, MESSAGES, r, e) || !request_stops(o, "stop_sequences", r, e) ||
		!api_bool(o, "stream", &r->stream, e))
		return false;
	if (!api_get(o, "max_tokens"))
		return api_refuse(e, 400, "max_tokens", "max_tokens is missing");
	return request_limit(limits, o, 1, "max_tokens", NULL, r, e) && read_prompt(limits, o, r, e);
}
