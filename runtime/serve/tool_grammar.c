/* tool_grammar.c - see tool_grammar.h.
 *
 * The schemas of tools become parts of one, in which their references lead from its root. */
#include "runtime/serve/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_among(const char *key, const char *const *keys)
{
	while (*keys && strcmp(*keys, key) != 0)
		keys++;
	return *keys != NULL;
}

/* References of a schema that is moved to `path` follow it there; what is data and no schema stays. `is_map`: its keys
 * are names, and each value is a schema. */
static bool move_refs(json_t *schema, const char *path, bool is_map)
{
	static const char *const data[] = {"const", "enum", "default", "examples", "example", NULL},
		*const maps[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
			"dependencies", NULL};
	json_t *member;
	const char *key;
	size_t i;
	bool good = true;
	json_array_foreach(schema, i, member)
		good = good && move_refs(member, path, false);
	json_object_foreach(schema, key, member) {
		const char *ref = !is_map && strcmp(key, "$ref") == 0 ? json_string_value(member) : NULL;
		if (!ref || *ref != '#') {
			if (is_map || !is_among(key, data))
				good = good && move_refs(member, path, !is_map && is_among(key, maps));
			continue;
		}
		json_t *moved = json_sprintf("#%s%s", path, ref + 1);
		good = good && moved && json_object_set_new(schema, key, moved) == 0;
	}
	return good;
}

/* Arguments are an object, whatever else the schema allows; a tool without a schema has none. */
static json_t *arguments_of(json_t *function, const char *place)
{
	json_t *given = json_object_get(function, "parameters");
	const char *type = json_string_value(json_object_get(given, "type"));
	const bool is_object = type && strcmp(type, "object") == 0;
	char path[80];
	if (!json_is_object(given))
		return json_pack("{s:s, s:b}", "type", "object", "additionalProperties", 0);
	json_t *schema = json_deep_copy(given);
	snprintf(path, sizeof path, "%s%s", place, is_object ? "" : "/allOf/0");
	if (!schema || !move_refs(schema, path, false)) {
		json_decref(schema);
		return NULL;
	}
	return is_object ? schema : json_pack("{s:[o, {s:s}]}", "allOf", schema, "type", "object");
}

json_t *tool_schema(const ToolFormat *format, json_t *tools, const char *only)
{
	const bool is_list = format->body == TOOL_NAMED;
	json_t *any = json_array();
	bool good = any != NULL;
	for (size_t i = 0; good && i < json_array_size(tools); i++) {
		json_t *function = json_object_get(json_array_get(tools, i), "function");
		json_t *name = json_object_get(function, "name");
		char place[64];
		if (only && strcmp(only, json_string_value(name)) != 0)
			continue;
		snprintf(place, sizeof place, "%s/anyOf/%zu/properties/%s", is_list ? "/items" : "", json_array_size(any),
			format->arguments);
		json_t *arguments = arguments_of(function, place);
		json_t *call = !arguments ? NULL : json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s,s], s:b}", "type", "object",
			"properties", "name", "const", name, format->arguments, arguments, "required", "name", format->arguments,
			"additionalProperties", 0);
		good = call && json_array_append_new(any, call) == 0;
	}
	if (!good) {
		json_decref(any);
		return NULL;
	}
	json_t *call = json_pack("{s:o}", "anyOf", any);
	if (!is_list || !call)
		return call;
	return json_pack("{s:s, s:o, s:i, s:i}", "type", "array", "items", call, "minItems", 1, "maxItems", 1);
}
