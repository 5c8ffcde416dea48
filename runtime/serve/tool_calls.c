/* tool_calls.c - see tool_calls.h. */
#include "runtime/serve/tool_calls.h"
#include "artifacts/json_put.h"
#include "runtime/grammar/grammar.h"
#include "runtime/serve/tool_literals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *tool_find(json_t *tools, const char *name, size_t n)
{
	for (size_t i = 0; i < json_array_size(tools); i++) {
		json_t *f = json_object_get(json_array_get(tools, i), "function"), *its = json_object_get(f, "name");
		if (json_string_length(its) == n && n && memcmp(json_string_value(its), name, n) == 0)
			return f;
	}
	return NULL;
}

void tool_calls_clear(ToolCalls *calls)
{
	for (int i = 0; i < calls->n; i++) {
		free(calls->at[i].name);
		free(calls->at[i].arguments);
	}
	free(calls->at);
	*calls = (ToolCalls){0};
}

/* Takes `arguments` over, which malloc made. */
static CallResult add(ToolCalls *calls, const char *name, size_t n_name, char *arguments, size_t n_arguments)
{
	json_scan_mend(arguments, n_arguments);
	if (calls->n == TOOL_MAX_CALLS) {
		free(arguments);
		return CALL_WRONG;
	}
	if (calls->n == calls->cap) {
		const int cap = calls->cap * 2 + 4;
		ToolCall *at = realloc(calls->at, sizeof *at * (size_t)cap);
		if (!at) {
			free(arguments);
			return CALL_NO_MEMORY;
		}
		calls->at = at;
		calls->cap = cap;
	}
	char *copy = strndup(name, n_name);
	if (!copy) {
		free(arguments);
		return CALL_NO_MEMORY;
	}
	calls->at[calls->n++] = (ToolCall){copy, arguments, n_name, n_arguments};
	return CALL_GOOD;
}

static CallResult add_copy(ToolCalls *calls, const char *name, size_t n_name, const char *text, size_t n)
{
	char *copy = malloc(n + 1);
	if (!copy)
		return CALL_NO_MEMORY;
	memcpy(copy, text, n);
	copy[n] = 0;
	return add(calls, name, n_name, copy, n);
}

CallResult tool_calls_add_named(ToolCalls *calls, json_t *tools, JsonSlice name, JsonSlice arguments)
{
	if (!tool_find(tools, name.at, name.n) || !arguments.n || arguments.at[0] != '{')
		return CALL_WRONG;
	return add_copy(calls, name.at, name.n, arguments.at, arguments.n);
}

/* Of JSON ------------------------------------------------------------ */

static bool is_key(JsonSlice key, const char *name)
{
	return key.n == strlen(name) + 2 && memcmp(key.at + 1, name, key.n - 2) == 0;
}

/* Arguments that are a string which has the object, as some models write them. */
static CallResult add_quoted(ToolCalls *calls, JsonSlice name, JsonSlice string)
{
	size_t n;
	char *text = json_scan_text(string, &n), *p = text;
	if (!text)
		return CALL_NO_MEMORY;
	while (n && strchr(" \t\r\n", p[n - 1]))
		n--;
	while (n && strchr(" \t\r\n", *p))
		p++, n--;
	const CallResult result = n == 0             ? add_copy(calls, name.at, name.n, "{}", 2)
		: *p == '{' && json_scan_whole(p, n) ? add_copy(calls, name.at, name.n, p, n)
											 : CALL_WRONG;
	free(text);
	return result;
}

static CallResult add_arguments(ToolCalls *calls, JsonSlice name, JsonSlice arguments)
{
	switch (arguments.n ? arguments.at[0] : 'n') {
	case 'n': return add_copy(calls, name.at, name.n, "{}", 2); /* null */
	case '{': return add_copy(calls, name.at, name.n, arguments.at, arguments.n);
	case '"': return add_quoted(calls, name, arguments);
	default: return CALL_WRONG;
	}
}

static CallResult add_object(ToolCalls *calls, json_t *tools, const char *json, size_t n)
{
	JsonSlice key, value, name = {0}, arguments = {0}, inner = {0}, called;
	for (size_t at = 0; json_scan_next(json, n, &at, &key, &value);) {
		if (is_key(key, "name") || is_key(key, "tool_name"))
			name = value;
		else if (is_key(key, "function") && value.at[0] == '{')
			inner = value;
		else if (is_key(key, "arguments") || is_key(key, "parameters"))
			arguments = value;
	}
	if (!name.n && inner.n)
		return add_object(calls, tools, inner.at, inner.n);
	if (!name.n || name.at[0] != '"')
		return CALL_WRONG;
	char *text = json_scan_text(name, &called.n);
	if (!text)
		return CALL_NO_MEMORY;
	called.at = text;
	const CallResult result =
		tool_find(tools, called.at, called.n) ? add_arguments(calls, called, arguments) : CALL_WRONG;
	free(text);
	return result;
}

CallResult tool_calls_add(ToolCalls *calls, json_t *tools, const char *json, size_t n)
{
	const int before = calls->n;
	JsonSlice value;
	if (json[0] == '{')
		return add_object(calls, tools, json, n);
	for (size_t at = 0; json_scan_next(json, n, &at, NULL, &value);) {
		const CallResult result = value.at[0] == '{' ? add_object(calls, tools, value.at, value.n) : CALL_WRONG;
		if (result != CALL_GOOD)
			return result;
	}
	return calls->n > before ? CALL_GOOD : CALL_WRONG;
}

/* Of parameters as text ------------------------------------------------------------ */

enum { STRING = 1, INTEGER = 2, NUMBER = 4, BOOLEAN = 8, NONE = 16, OBJECT = 32, LIST = 64 };
/* Of a parameter's schema: $ref and anyOf inside each other; schemas, types and values of enum all together. */
enum { MAX_HOPS = 8, MAX_STEPS = 4096 };

static const char *const unions[] = {"anyOf", "oneOf", "allOf"};

static int type_of_word(json_t *word)
{
	static const struct { const char *name; int type; } types[] = {{"string", STRING}, {"integer", INTEGER},
		{"number", NUMBER}, {"boolean", BOOLEAN}, {"null", NONE}, {"object", OBJECT}, {"array", LIST}};
	for (size_t i = 0; json_is_string(word) && i < sizeof types / sizeof types[0]; i++)
		if (strcmp(types[i].name, json_string_value(word)) == 0)
			return types[i].type;
	return 0;
}

static int type_of_value(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT: return OBJECT;
	case JSON_ARRAY: return LIST;
	case JSON_STRING: return STRING;
	case JSON_INTEGER: return INTEGER;
	case JSON_REAL: return NUMBER;
	case JSON_NULL: return NONE;
	default: return BOOLEAN;
	}
}

/* All types that a schema allows; 0: it says nothing. */
static int types_of(json_t *root, json_t *schema, int hops, int *budget)
{
	int types = 0;
	if (!json_is_object(schema) || hops > MAX_HOPS || (*budget)-- <= 0)
		return 0;
	json_t *type = json_object_get(schema, "type"), *ref = json_object_get(schema, "$ref"),
		   *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
	types |= type_of_word(type);
	for (size_t i = 0; i < json_array_size(type) && (*budget)-- > 0; i++)
		types |= type_of_word(json_array_get(type, i));
	if (types)
		return types;
	if (only)
		types |= type_of_value(only);
	for (size_t i = 0; i < json_array_size(list) && (*budget)-- > 0; i++)
		types |= type_of_value(json_array_get(list, i));
	if (json_is_string(ref))
		types |= types_of(root, grammar_at(root, json_string_value(ref)), hops + 1, budget);
	for (size_t k = 0; k < sizeof unions / sizeof unions[0]; k++) {
		json_t *each = json_object_get(schema, unions[k]);
		for (size_t i = 0; i < json_array_size(each) && *budget > 0; i++)
			types |= types_of(root, json_array_get(each, i), hops + 1, budget);
	}
	return types;
}

/* Of a member of the objects that a schema allows; 0: it says nothing. */
static int types_of_member(json_t *root, json_t *schema, JsonSlice key, int hops, int *budget)
{
	int types = 0;
	if (!json_is_object(schema) || hops > MAX_HOPS || (*budget)-- <= 0)
		return 0;
	json_t *its = json_object_getn(json_object_get(schema, "properties"), key.at, key.n);
	json_t *ref = json_object_get(schema, "$ref");
	if (its)
		return types_of(root, its, hops, budget);
	if (json_is_string(ref))
		types |= types_of_member(root, grammar_at(root, json_string_value(ref)), key, hops + 1, budget);
	for (size_t k = 0; k < sizeof unions / sizeof unions[0]; k++) {
		json_t *each = json_object_get(schema, unions[k]);
		for (size_t i = 0; i < json_array_size(each) && *budget > 0; i++)
			types |= types_of_member(root, json_array_get(each, i), key, hops + 1, budget);
	}
	return types ? types : types_of(root, json_object_get(schema, "additionalProperties"), hops, budget);
}

static int types_of_parameter(json_t *root, JsonSlice key)
{
	int budget = MAX_STEPS;
	return types_of_member(root, root, key, 0, &budget);
}

static bool is_word(JsonSlice s, const char *a, const char *b)
{
	return (s.n == strlen(a) && memcmp(s.at, a, s.n) == 0) || (s.n == strlen(b) && memcmp(s.at, b, s.n) == 0);
}

/* Literals of Python too: templates print values so, and models write what they have read. False: no memory. */
static bool put_value(FILE *out, int types, JsonSlice text)
{
	JsonSlice s = text;
	bool is_integer;
	while (s.n && strchr(" \t\r\n", s.at[s.n - 1]))
		s.n--;
	while (s.n && strchr(" \t\r\n", *s.at))
		s.at++, s.n--;
	const bool may_nest = s.n && ((types & OBJECT && *s.at == '{') || (types & LIST && *s.at == '['));
	if (types & NONE && is_word(s, "null", "None")) {
		fputs("null", out);
	} else if (types & BOOLEAN && is_word(s, "true", "True")) {
		fputs("true", out);
	} else if (types & BOOLEAN && is_word(s, "false", "False")) {
		fputs("false", out);
	} else if ((types & (INTEGER | NUMBER) && json_scan_number(s.at, s.n, &is_integer) &&
				   (is_integer || types & NUMBER)) ||
		(may_nest && json_scan_value(s.at, s.n))) {
		fwrite(s.at, 1, s.n, out);
	} else {
		char *json = NULL;
		size_t n;
		if (may_nest && !literal_to_json(s.at, s.n, &json, &n))
			return false;
		if (json)
			fwrite(json, 1, n, out);
		else
			json_text(out, text.at, text.n);
		free(json);
	}
	return true;
}

/* Does another of them, later, have the key of parameter i? */
static bool is_replaced(const char *text, const ToolParameter *p, int n, int i)
{
	for (int k = i + 1; k < n; k++)
		if (p[k].key.n == p[i].key.n && memcmp(text + p[k].key.at, text + p[i].key.at, p[i].key.n) == 0)
			return true;
	return false;
}

CallResult tool_calls_add_typed(
	ToolCalls *calls, json_t *tools, const char *text, ToolRange name, const ToolParameter *parameters, int n)
{
	json_t *f = tool_find(tools, text + name.at, name.n), *root = json_object_get(f, "parameters");
	const char *between = "{";
	char *arguments = NULL;
	size_t n_arguments;
	bool good = true;
	if (!f)
		return CALL_WRONG;
	FILE *out = open_memstream(&arguments, &n_arguments);
	if (!out)
		return CALL_NO_MEMORY;
	for (int i = 0; i < n; i++) {
		const ToolParameter *p = &parameters[i];
		const JsonSlice key = {text + p->key.at, p->key.n}, value = {text + p->text.at, p->text.n};
		if (is_replaced(text, parameters, n, i))
			continue;
		fputs(between, out);
		json_text(out, key.at, key.n);
		fputc(':', out);
		good = good && put_value(out, p->is_text ? STRING : types_of_parameter(root, key), value);
		between = ",";
	}
	fputs(n ? "}" : "{}", out);
	/* A memory stream that cannot grow does not say so for certain. */
	if (fclose(out) != 0 || !good || !arguments || !json_scan_whole(arguments, n_arguments)) {
		free(arguments);
		return CALL_NO_MEMORY;
	}
	return add(calls, text + name.at, name.n, arguments, n_arguments);
}
