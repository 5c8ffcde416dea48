/* conversation.c - see conversation.h. */
#include "runtime/serve/conversation.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(ApiError *e) { return api_refuse(e, 500, NULL, "no memory"); }

/* Texts ------------------------------------------------------------ */

static bool add(Texts *t, const char *text, const char *between)
{
	const bool is_first = !t->f;
	if (is_first && !(t->f = open_memstream(&t->at, &t->n)))
		return false;
	return fprintf(t->f, "%s%s", is_first ? "" : between, text) >= 0;
}

static void drop(Texts *t)
{
	if (t->f)
		fclose(t->f);
	free(t->at);
	*t = (Texts){0};
}

/* Into a member of an object; afterwards there are none. */
static bool move(Texts *t, json_t *object, const char *name)
{
	const bool good = !t->f || (fflush(t->f) == 0 &&
		json_object_set_new(object, name, json_stringn(t->at, t->n)) == 0);
	drop(t);
	return good;
}

bool conversation_open(Conversation *c, ApiError *e)
{
	*c = (Conversation){.chat = json_pack("{s:[]}", "messages"), .calls = json_object()};
	return (c->chat && c->calls) || no_memory(e);
}

void conversation_free(Conversation *c)
{
	json_decref(c->chat);
	json_decref(c->calls);
	json_decref(c->turn_calls);
	json_decref(c->withdrawn);
	drop(&c->system);
	drop(&c->content);
	drop(&c->reasoning);
}

/* Messages ------------------------------------------------------------ */

static bool append(Conversation *c, json_t *message)
{
	return message && json_array_append_new(json_object_get(c->chat, "messages"), message) == 0;
}

/* The turn that was added to is a message now. */
static bool end_turn(Conversation *c)
{
	if (!c->role)
		return true;
	json_t *m = json_pack("{s:s, s:n}", "role", c->role, "content");
	bool good = m && move(&c->content, m, "content") && move(&c->reasoning, m, "reasoning_content") &&
		(!c->turn_calls || json_object_set(m, "tool_calls", c->turn_calls) == 0);
	json_decref(c->turn_calls);
	c->turn_calls = NULL;
	c->role = NULL;
	return append(c, m) && good;
}

static bool turn_to(Conversation *c, const char *role)
{
	const bool good = (c->role && strcmp(c->role, role) == 0) || end_turn(c);
	c->role = role;
	return good;
}

bool conversation_add_system(Conversation *c, const char *text, ApiError *e)
{
	return add(&c->system, text, "\n\n") || no_memory(e);
}

bool conversation_add_text(Conversation *c, const char *role, const char *text, ApiError *e)
{
	return (turn_to(c, role) && add(&c->content, text, "\n")) || no_memory(e);
}

bool conversation_add_reasoning(Conversation *c, const char *text, ApiError *e)
{
	return (turn_to(c, "assistant") && add(&c->reasoning, text, "\n")) || no_memory(e);
}

bool conversation_add_call(Conversation *c, const char *id, const char *name, const char *arguments, ApiError *e)
{
	if (!turn_to(c, "assistant"))
		return no_memory(e);
	if (!c->turn_calls)
		c->turn_calls = json_array();
	return (c->turn_calls && json_object_set_new(c->calls, id, json_string(name)) == 0 &&
			   json_array_append_new(c->turn_calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
												  "function", "name", name, "arguments", arguments)) == 0) ||
		no_memory(e);
}

bool conversation_add_result(Conversation *c, const char *id, const char *text, ApiError *e)
{
	json_t *m = end_turn(c) ? json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id", id, "content", text) : NULL;
	json_t *name = json_object_get(c->calls, id);
	if (m && name)
		json_object_set(m, "name", name);
	return append(c, m) || no_memory(e);
}

const char *conversation_last_text(const Conversation *c) { return c->content.f && !c->turn_calls ? c->role : NULL; }

/* Tools and settings ------------------------------------------------------------ */

bool conversation_add_tool(Conversation *c, size_t place, const char *name, const char *description,
	json_t *parameters, json_t *strict, ApiError *e)
{
	json_t *tools = json_object_get(c->chat, "tools");
	if (!tools && json_object_set_new(c->chat, "tools", json_array()) == 0)
		tools = json_object_get(c->chat, "tools");
	json_t *function = json_pack("{s:s, s:s*}", "name", name, "description", description);
	bool good = tools && function && (!parameters || json_object_set(function, "parameters", parameters) == 0) &&
		(!strict || json_object_set(function, "strict", strict) == 0);
	good = good && json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function", function)) == 0;
	json_decref(function);
	if (c->n_tools < CONVERSATION_TOOLS)
		c->places[c->n_tools++] = place;
	return good || no_memory(e);
}

bool conversation_offer_tool(Conversation *c, const char *name, bool is_offered, ApiError *e)
{
	if (!c->withdrawn)
		c->withdrawn = json_object();
	return json_object_set_new(c->withdrawn, name, json_boolean(!is_offered)) == 0 || no_memory(e);
}

/* From the last: places of the others stay right. */
static void drop_withdrawn(Conversation *c)
{
	json_t *tools = json_object_get(c->chat, "tools");
	for (size_t i = json_array_size(tools); c->withdrawn && i-- > 0;) {
		json_t *function = json_object_get(json_array_get(tools, i), "function");
		const char *name = json_string_value(json_object_get(function, "name"));
		if (!json_is_true(json_object_get(c->withdrawn, name)) || json_array_remove(tools, i) != 0)
			continue;
		if (i < (size_t)c->n_tools)
			memmove(&c->places[i], &c->places[i + 1], sizeof c->places[0] * ((size_t)--c->n_tools - i));
	}
}

bool conversation_set(Conversation *c, const char *name, json_t *value, ApiError *e)
{
	return json_object_set_new(c->chat, name, value) == 0 || no_memory(e);
}

bool conversation_set_variable(Conversation *c, const char *name, json_t *value, ApiError *e)
{
	json_t *all = json_object_get(c->chat, "chat_template_kwargs");
	if (!all && json_object_set_new(c->chat, "chat_template_kwargs", json_object()) == 0)
		all = json_object_get(c->chat, "chat_template_kwargs");
	if (all && json_object_get(all, name)) {
		json_decref(value);
		return true;
	}
	return json_object_set_new(all, name, value) == 0 || no_memory(e);
}

/* An error about the list of messages is about the field that it was made of; one about a tool, about the request's. */
static void rename_field(const Conversation *c, const char *field, ApiError *e)
{
	char param[sizeof e->param], text[sizeof e->message];
	int index, end = 0;
	if (strncmp(e->param, "messages", 8) == 0)
		snprintf(e->param, sizeof e->param, "%s", field);
	if (sscanf(e->param, "tools[%d]%n", &index, &end) < 1 || !end || index < 0 || index >= c->n_tools ||
		c->places[index] == CONVERSATION_INLINE)
		return;
	const char *rest = e->param + end;
	rest += strncmp(rest, ".function", 9) == 0 ? 9 : 0;
	snprintf(param, sizeof param, "tools[%zu]%.60s", c->places[index], rest);
	if (strncmp(e->message, e->param, strlen(e->param)) == 0) {
		snprintf(text, sizeof text, "%s%.480s", param, e->message + strlen(e->param));
		memcpy(e->message, text, sizeof text);
	}
	memcpy(e->param, param, sizeof param);
}

bool conversation_end(Conversation *c, const ApiLimits *limits, const char *field, ApiRequest *r, ApiError *e)
{
	json_t *first = c->system.f ? json_pack("{s:s}", "role", "system") : NULL;
	if (!end_turn(c) || (c->system.f && (!first || !move(&c->system, first, "content") ||
			json_array_insert_new(json_object_get(c->chat, "messages"), 0, first) != 0)))
		return no_memory(e);
	drop_withdrawn(c);
	r->prompts = calloc(1, sizeof *r->prompts);
	if (!r->prompts)
		return no_memory(e);
	r->n_prompts = 1;
	const bool good = api_read_tools(limits, c->chat, r, e) && api_prompt_of_chat(limits, c->chat, r->prompts, e);
	if (!good)
		rename_field(c, field, e);
	return good;
}

/* Values ------------------------------------------------------------ */

static bool is_one_of(const char *word, const char *const *words)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words != NULL;
}

/* The text of part i of a list; NULL after filling `e`. */
static const char *part_text(json_t *part, const char *const *types, const char *at, size_t i, ApiError *e)
{
	char param[sizeof e->param];
	const char *type = json_string_value(json_object_get(part, "type"));
	json_t *text = json_object_get(part, !type ? "" : strcmp(type, "refusal") == 0 ? "refusal"
		: strcmp(type, "tool_reference") == 0 ? "tool_name" : "text");
	snprintf(param, sizeof param, "%.70s[%zu]", at, i);
	if (!type)
		api_refuse(e, 400, param, "%s: expected an object with a type", param);
	else if (!is_one_of(type, types))
		api_refuse(e, 400, param, "%s is of type %.60s: the model reads text", param, type);
	else if (!json_is_string(text))
		api_refuse(e, 400, param, "%s has no text", param);
	else
		return json_string_value(text);
	return NULL;
}

bool conversation_text_of(
	json_t *value, const char *const *types, const char *skip, const char *at, char **text, ApiError *e)
{
	size_t n;
	*text = NULL;
	if (!json_is_string(value) && !json_is_array(value))
		return api_refuse(e, 400, at, "%s is %s: expected a string or a list of parts", at, api_kind(value));
	FILE *out = open_memstream(text, &n);
	if (!out)
		return no_memory(e);
	const char *between = "", *one = json_string_value(value);
	const size_t n_parts = one ? 1 : json_array_size(value);
	for (size_t i = 0; i < n_parts; i++) {
		const char *part = one ? one : part_text(json_array_get(value, i), types, at, i, e);
		if (!part) {
			fclose(out);
			free(*text);
			*text = NULL;
			return false;
		}
		if (skip && strncmp(part, skip, strlen(skip)) == 0)
			continue;
		fprintf(out, "%s%s", between, part);
		between = "\n";
	}
	return fclose(out) == 0 || no_memory(e);
}

bool conversation_needs(json_t *object, const char *name, const char *at, const char **value, ApiError *e)
{
	char param[sizeof e->param];
	json_t *found = json_object_get(object, name);
	snprintf(param, sizeof param, "%.60s.%.30s", at, name);
	if (!json_is_string(found))
		return api_refuse(e, 400, param, "%s is %s: expected a string", param, found ? api_kind(found) : "missing");
	*value = json_string_value(found);
	return true;
}

bool conversation_needs_name(json_t *object, const char *name, const char *at, const char **value, ApiError *e)
{
	char param[sizeof e->param];
	if (!conversation_needs(object, name, at, value, e))
		return false;
	snprintf(param, sizeof param, "%.60s.%.30s", at, name);
	return **value || api_refuse(e, 400, param, "%s is empty", param);
}
