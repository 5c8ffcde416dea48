/* tool_grammar.c - see tool_grammar.h.
 *
 * The schemas of tools become parts of one, in which their references lead from its root. */
#include "runtime/serve/tool_grammar.h"
#include "runtime/grammar/grammar.h"

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

/* `at`: where it is in the whole. */
static json_t *schema_at(const char *at, const ToolFormat *format, json_t *tools, const char *only)
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
		snprintf(place, sizeof place, "%s%s/anyOf/%zu/properties/%s", at, is_list ? "/items" : "", json_array_size(any),
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

json_t *tool_schema(const ToolFormat *format, json_t *tools, const char *only)
{
	return schema_at("", format, tools, only);
}

/* Forms ------------------------------------------------------------ */

enum { MAX_HOPS = 8 }; /* of $ref, unions and values inside each other */

typedef struct Maker {
	const ToolFormat *format;
	json_t *root; /* {"form", "schemas"} */
	FormError *e;
	char pointer[160];
} Maker;

static json_t *refuse(Maker *m, const char *text)
{
	if (!m->e->text[0]) {
		snprintf(m->e->pointer, sizeof m->e->pointer, "%s", m->pointer);
		snprintf(m->e->text, sizeof m->e->text, "%s", text);
	}
	return NULL;
}

/* Does it say nothing but these, and what says nothing of values? */
static bool says_only(json_t *schema, const char *const *keys)
{
	static const char *const silent[] = {"title", "description", "default", "examples", "example", "deprecated",
		"$defs", "definitions", "$schema", NULL};
	const char *key;
	json_t *value;
	json_object_foreach(schema, key, value)
		if (!is_among(key, silent) && !is_among(key, keys))
			return false;
	return true;
}

static bool has_type(json_t *schema, const char *type)
{
	json_t *types = json_object_get(schema, "type");
	for (size_t i = 0; i < json_array_size(types); i++)
		if (json_is_string(json_array_get(types, i)) && strcmp(json_string_value(json_array_get(types, i)), type) == 0)
			return true;
	return json_is_string(types) ? strcmp(json_string_value(types), type) == 0 : !types;
}

/* Any text that does not have the mark, and is as long as the schema says. */
static json_t *text_without(const char *mark, json_t *schema)
{
	char pattern[200] = "(?![\\s\\S]*", *to = pattern + strlen(pattern), *end = pattern + sizeof pattern;
	json_t *least = json_object_get(schema, "minLength"), *most = json_object_get(schema, "maxLength");
	mark += strspn(mark, " \n");
	for (; *mark && *mark != '\n' && to < pattern + 120; mark++)
		to += sprintf(to, strchr("|.*+?()[]{}^$\\", *mark) ? "\\%c" : "%c", *mark);
	to += snprintf(to, (size_t)(end - to), ")[\\s\\S]{%lld,", (long long)json_integer_value(least));
	to += most ? snprintf(to, (size_t)(end - to), "%lld", (long long)json_integer_value(most)) : 0;
	snprintf(to, (size_t)(end - to), "}");
	return json_pack("{s:s}", "regex", pattern);
}

/* A value where strings have quotes of the format's own. */
static void put_quoted(FILE *out, const char *quote, json_t *value)
{
	const char *key, *between = "";
	json_t *member;
	size_t i;
	fputs(json_is_object(value) ? "{" : json_is_array(value) ? "[" : "", out);
	json_object_foreach(value, key, member) {
		fprintf(out, "%s%s%s%s:", between, quote, key, quote);
		put_quoted(out, quote, member);
		between = ",";
	}
	json_array_foreach(value, i, member) {
		fputs(i ? "," : "", out);
		put_quoted(out, quote, member);
	}
	if (json_is_string(value))
		fprintf(out, "%s%s%s", quote, json_string_value(value), quote);
	else if (!json_is_object(value) && !json_is_array(value))
		json_dumpf(value, out, JSON_ENCODE_ANY);
	fputs(json_is_object(value) ? "}" : json_is_array(value) ? "]" : "", out);
}

static json_t *quoted_text(const char *quote, json_t *value)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);
	if (!out)
		return NULL;
	put_quoted(out, quote, value);
	json_t *form = fclose(out) == 0 && text ? json_string(text) : NULL;
	free(text);
	return form;
}

/* Each steals what it is given, and is NULL if that is. */
static json_t *one_key(const char *key, json_t *form) { return form ? json_pack("{s:o}", key, form) : NULL; }
static json_t *three(const char *before, json_t *form, const char *after)
{
	return form ? json_pack("[s,o,s]", before, form, after) : NULL;
}
static bool add(json_t *list, json_t *form) { return form && json_array_append_new(list, form) == 0; }

static json_t *value_form(Maker *m, json_t *schema, int hops);

/* A string, as the format writes it. */
static json_t *string_form(const Maker *m, json_t *inside)
{
	const ToolMarks *marks = &m->format->marks;
	const bool has_breaks = marks->keyed && marks->keyed[strlen(marks->keyed) - 1] == '\n';
	return marks->quote ? three(marks->quote, inside, marks->quote)
		: marks->value  ? three(marks->value, inside, "")
						: three("", inside, has_breaks ? "\n" : "");
}

/* A value that is JSON as it is in any schema. */
static json_t *json_form(const Maker *m, json_t *schema)
{
	const ToolMarks *marks = &m->format->marks;
	const bool has_breaks = marks->keyed && marks->keyed[strlen(marks->keyed) - 1] == '\n';
	const char *before = marks->typed ? marks->typed : marks->value ? marks->value : "";
	return three(before, json_pack("{s:O, s:o}", "schema", schema, "at",
		json_string_nocheck(m->pointer)), has_breaks ? "\n" : "");
}

/* Has a string of the value what ends it in this format? */
static bool has_mark(const Maker *m, json_t *value)
{
	const char *mark = m->format->marks.quote ? m->format->marks.quote : m->format->marks.valued, *key;
	json_t *member;
	size_t i;
	bool has = false;
	mark = mark ? mark + strspn(mark, " \n") : "";
	const size_t n = strcspn(mark, "\n");
	if (!n)
		return false;
	json_object_foreach(value, key, member)
		has = has || memmem(key, strlen(key), mark, n) || has_mark(m, member);
	json_array_foreach(value, i, member)
		has = has || has_mark(m, member);
	return has || (json_is_string(value) && memmem(json_string_value(value), json_string_length(value), mark, n));
}

static json_t *literal_form(Maker *m, json_t *value)
{
	if (has_mark(m, value))
		return refuse(m, "a text with the mark that ends it cannot be forced in this form of calls");
	if (m->format->marks.quote)
		return quoted_text(m->format->marks.quote, value);
	json_t *schema = json_is_string(value) ? NULL : json_pack("{s:O}", "const", value);
	json_t *form = json_is_string(value) ? string_form(m, json_incref(value)) : schema ? json_form(m, schema) : NULL;
	json_decref(schema);
	return form;
}

/* Alternatives: of each member of a list. */
static json_t *any_of(Maker *m, json_t *list, bool are_values, int hops)
{
	json_t *either = json_array();
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *one = json_array_get(list, i);
		if (!add(either, are_values ? literal_form(m, one) : value_form(m, one, hops + 1))) {
			json_decref(either);
			return NULL;
		}
	}
	return one_key("either", either);
}

static json_t *members_form(Maker *m, json_t *schema, int hops);

/* An object or a list, where strings have quotes of the format's own. */
static json_t *nested_form(Maker *m, json_t *schema, bool is_list, int hops)
{
	static const char *const of_lists[] = {"type", "items", "minItems", "maxItems", NULL};
	if (!is_list)
		return three("{", members_form(m, schema, hops + 1), "}");
	json_t *items = json_object_get(schema, "items"), *most = json_object_get(schema, "maxItems");
	const json_int_t least = json_integer_value(json_object_get(schema, "minItems"));
	if (!says_only(schema, of_lists) || !json_is_object(items))
		return refuse(m, "such a list cannot be forced in this form of calls");
	if (most && json_integer_value(most) == 0 && least == 0)
		return json_string("[]");
	json_t *item = value_form(m, items, hops + 1);
	const json_int_t fewest = least > 0 ? least - 1 : 0, more = most ? json_integer_value(most) - 1 : -1;
	json_t *list = item
		? json_pack("[O,{s:[s,O], s:I, s:I}]", item, "many", ",", item, "least", fewest, "most", more) : NULL;
	json_decref(item);
	return three("[", least > 0 ? list : one_key("optional", list), "]");
}

/* Where strings have quotes of the format's own, a value that has none inside may be JSON. */
static json_t *value_form(Maker *m, json_t *schema, int hops)
{
	static const char *const plain[] = {"type", "minLength", "maxLength", NULL},
		*const listed[] = {"type", "enum", "const", NULL}, *const joined[] = {"anyOf", "oneOf", NULL},
		*const pointed[] = {"$ref", NULL};
	const ToolMarks *marks = &m->format->marks;
	json_t *ref = json_object_get(schema, "$ref"), *list = json_object_get(schema, "enum");
	json_t *only = json_object_get(schema, "const"), *unions = json_object_get(schema, "anyOf");
	unions = unions ? unions : json_object_get(schema, "oneOf");
	if (m->format->body == TOOL_LITERALS && !marks->quote)
		return json_form(m, schema);
	if (hops > MAX_HOPS)
		return refuse(m, "schemas that lead on so far cannot be forced in this form of calls");
	if (ref) {
		json_t *at = says_only(schema, pointed) ? grammar_at(m->root, json_string_value(ref)) : NULL;
		return at ? value_form(m, at, hops + 1) : refuse(m, "such a reference cannot be forced in this form of calls");
	}
	if (unions && says_only(schema, joined) && json_array_size(unions))
		return any_of(m, unions, false, hops);
	if ((list || only) && says_only(schema, listed)) {
		json_t *one = only ? json_pack("[O]", only) : json_incref(list);
		json_t *form = one ? any_of(m, one, true, hops) : NULL;
		json_decref(one);
		return form;
	}
	const bool is_object = has_type(schema, "object"), is_list = has_type(schema, "array");
	if (!has_type(schema, "string") && !(marks->quote && (is_object || is_list)))
		return json_form(m, schema);
	if (marks->quote && json_object_get(schema, "type") && is_object != is_list && !has_type(schema, "string"))
		return nested_form(m, schema, is_list, hops);
	if (!says_only(schema, plain) && !(marks->quote && !json_object_get(schema, "type")))
		return refuse(m, "a string with conditions cannot be forced in this form of calls");
	return string_form(m, text_without(marks->quote ? marks->quote : marks->valued, schema));
}

static void go_down(Maker *m, const char *key)
{
	size_t n = strlen(m->pointer);
	if (n + 20 > sizeof m->pointer)
		return;
	n += (size_t)sprintf(m->pointer + n, "/properties/");
	for (; *key && n + 3 < sizeof m->pointer; key++) {
		if (*key == '~' || *key == '/')
			m->pointer[n++] = '~';
		m->pointer[n++] = (char)(*key == '~' ? '0' : *key == '/' ? '1' : *key);
	}
	m->pointer[n] = 0;
}

/* Name and value, with what is around them. */
static json_t *member_form(Maker *m, const char *key, json_t *schema, int hops)
{
	const ToolMarks *marks = &m->format->marks;
	const size_t before = strlen(m->pointer);
	go_down(m, key);
	json_t *form = NULL;
	if (m->format->body == TOOL_PARAMETERS && (strpbrk(key, "<>\n\"") || !*key))
		refuse(m, "this name of a parameter cannot be written in this form of calls");
	else if (m->format->body == TOOL_LITERALS && strlen(key) != strcspn(key, " \t\r\n=:,()[]{}\"'<"))
		refuse(m, "this name of a parameter cannot be written in this form of calls");
	else
		form = value_form(m, schema, hops);
	if (form)
		form = m->format->body == TOOL_PARAMETERS
			? json_pack("[s,s,s,o,s]", marks->key, key, marks->keyed, form, marks->valued)
			: json_pack("[s,s,o]", key, marks->quote ? ":" : "=", form);
	m->pointer[before] = 0;
	return form;
}

typedef struct Members { json_t *required, *optional; } Members; /* lists of forms */

static bool list_members(Maker *m, json_t *schema, Members *all, int hops)
{
	static const char *const keys[] = {"type", "properties", "required", "additionalProperties", NULL};
	json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
	json_t *others = json_object_get(schema, "additionalProperties"), *free_one = json_object(), *member, *name;
	const char *key;
	size_t i;
	bool good = all->required && all->optional && free_one;
	if (!says_only(schema, keys) || !has_type(schema, "object"))
		good = refuse(m, "such an object cannot be forced in this form of calls") != NULL;
	json_object_foreach(properties, key, member) {
		bool is_required = false;
		json_array_foreach(required, i, name)
			is_required |= json_is_string(name) && strcmp(json_string_value(name), key) == 0;
		/* Where nothing is between members, each keeps its place. */
		const bool is_first = is_required || m->format->body == TOOL_PARAMETERS;
		if (json_is_false(member))
			good = refuse(m, "a property that has no value cannot be forced in this form of calls") != NULL;
		json_t *form = good ? member_form(m, key, json_is_object(member) ? member : free_one, hops) : NULL;
		if (is_first && !is_required)
			form = one_key("optional", form);
		good = good && add(is_first ? all->required : all->optional, form);
	}
	json_array_foreach(required, i, name) {
		if (!json_is_string(name) || json_object_get(properties, json_string_value(name)))
			continue;
		if (json_is_false(others))
			good = refuse(m, "a required property is none of the schema's") != NULL;
		good = good && add(all->required, member_form(m, json_string_value(name),
			json_is_object(others) ? others : free_one, hops));
	}
	json_decref(free_one);
	return good;
}

/* With ", " between members: those that must be come first. */
static json_t *join_members(const Members *all)
{
	json_t *parts = json_array(), *starts = json_array(), *form;
	const size_t n = json_array_size(all->optional);
	bool good = parts && starts;
	size_t i;
	json_array_foreach(all->required, i, form)
		good = good && (i == 0 || add(parts, json_string(", "))) && json_array_append(parts, form) == 0;
	for (size_t first = 0; good && first < n; first++) {
		json_t *start = json_array_size(parts) ? parts : json_array();
		if (start != parts)
			good = json_array_append(start, json_array_get(all->optional, first)) == 0;
		for (size_t k = first + (start != parts); good && k < n; k++)
			good = add(start, json_pack("{s:[s,O]}", "optional", ", ", json_array_get(all->optional, k)));
		if (start == parts)
			break;
		good = add(starts, start) && good;
	}
	if (good && json_array_size(starts))
		good = add(parts, one_key("optional", one_key("either", json_incref(starts))));
	json_decref(starts);
	if (good)
		return parts;
	json_decref(parts);
	return NULL;
}

/* What is between the brackets of an object of the schema. */
static json_t *members_form(Maker *m, json_t *schema, int hops)
{
	static const char *const pointed[] = {"$ref", NULL}, *const joined[] = {"anyOf", "oneOf", "type", NULL};
	json_t *ref = json_object_get(schema, "$ref"), *unions = json_object_get(schema, "anyOf");
	unions = unions ? unions : json_object_get(schema, "oneOf");
	if (hops > MAX_HOPS)
		return refuse(m, "schemas that lead on so far cannot be forced in this form of calls");
	if (ref && says_only(schema, pointed) && grammar_at(m->root, json_string_value(ref)))
		return members_form(m, grammar_at(m->root, json_string_value(ref)), hops + 1);
	if (unions && says_only(schema, joined) && json_array_size(unions)) {
		json_t *either = json_array();
		for (size_t i = 0; either && i < json_array_size(unions); i++)
			if (!add(either, members_form(m, json_array_get(unions, i), hops + 1))) {
				json_decref(either);
				return NULL;
			}
		return one_key("either", either);
	}
	Members all = {json_array(), json_array()};
	json_t *form = !list_members(m, schema, &all, hops) ? NULL
		: m->format->body == TOOL_PARAMETERS           ? json_incref(all.required)
													   : join_members(&all);
	json_decref(all.required);
	json_decref(all.optional);
	return form;
}

/* From the name on. */
static json_t *call_form(Maker *m, const char *name, json_t *whole)
{
	const ToolMarks *marks = &m->format->marks;
	snprintf(m->pointer, sizeof m->pointer, "/%s", name);
	json_t *schema = json_object_get(whole, "type") ? whole : json_array_get(json_object_get(whole, "allOf"), 0);
	if (m->format->body == TOOL_NAMED || m->format->body == TOOL_CHANNELS)
		return json_pack("[s,s,{s:O, s:o}]", name, marks->named, "schema", whole, "at",
			json_string_nocheck(m->pointer));
	json_t *form = members_form(m, schema, 0);
	return form ? json_pack("[s,s,o,s]", name, marks->named, form, marks->end) : NULL;
}

json_t *tool_form(const ToolFormat *format, json_t *tools, const char *only, FormError *e)
{
	*e = (FormError){{0}, {0}};
	json_t *either = json_array(), *schemas = json_array();
	Maker m = {.format = format, .e = e, .root = json_pack("{s:o}", "schemas", schemas)};
	const char *call = format->marks.call, *opener = format->openers[0];
	if (!opener || format->is_bare || (call && strcmp(opener, call) == 0))
		opener = "";
	bool good = either && m.root;
	for (size_t i = 0; good && i < json_array_size(tools); i++) {
		json_t *function = json_object_get(json_array_get(tools, i), "function");
		const char *name = json_string_value(json_object_get(function, "name"));
		char place[40];
		if (only && strcmp(only, name) != 0)
			continue;
		snprintf(place, sizeof place, "/schemas/%zu", json_array_size(schemas));
		json_t *schema = arguments_of(function, place);
		good = schema && json_array_append_new(schemas, schema) == 0 && add(either, call_form(&m, name, schema));
	}
	json_t *form = good ? json_pack("[s,s,s,{s:o},s]", opener, call ? call : "",
		format->is_listed ? "[" : "", "either", json_incref(either), format->is_listed ? "]" : "") : NULL;
	json_decref(either);
	if (form && json_object_set_new(m.root, "form", form) == 0)
		return m.root;
	json_decref(m.root);
	return NULL;
}

bool tool_can_talk(const ToolFormat *f) { return f->openers[0] && !f->is_bare && f->body != TOOL_CHANNELS; }

/* Any text in which no call begins. */
static json_t *text_between(const ToolFormat *f)
{
	json_t *one = text_without(f->openers[0], NULL), *other = f->openers[1] ? text_without(f->openers[1], NULL) : NULL;
	if (!one || !other)
		return one;
	const char *pattern = json_string_value(json_object_get(other, "regex"));
	json_t *both = json_sprintf("%.*s%s", (int)(strstr(pattern, ")[") + 1 - pattern), pattern,
		json_string_value(json_object_get(one, "regex")));
	json_decref(one);
	json_decref(other);
	return one_key("regex", both);
}

/* Reasoning, in which calls are none; NULL: the model has none, or there is no memory. */
static json_t *thought(const Reasoning *r)
{
	json_t *inside = r && r->opener && r->closer && !r->has_channels ? text_without(r->closer, NULL) : NULL;
	return inside ? json_pack("[s,o,s]", r->opener, inside, r->closer) : NULL;
}

json_t *tool_talk(const ToolFormat *f, const Reasoning *reasoning, json_t *tools, FormError *e)
{
	json_t *before = one_key("optional", thought(reasoning));
	json_t *schema = f->lead ? schema_at("/schemas/0", f, tools, NULL) : NULL;
	json_t *root = !f->lead ? tool_form(f, tools, NULL, e)
		: schema ? json_pack("{s:[s,{s:O}], s:[O]}", "form", f->lead, "schema", schema, "schemas", schema) : NULL;
	const bool is_closed = f->marks.end && f->closer && strstr(f->marks.end, f->closer);
	json_t *text = text_between(f);
	json_t *form = !root || !text ? NULL : json_pack("[o,O,{s:[O,{s:s},s,O], s:i, s:i}]",
		before ? json_incref(before) : json_string(""), text, "many",
		json_object_get(root, "form"), "regex", "\n?", f->closer && !is_closed ? f->closer : "", text, "least", 0,
		"most", -1);
	json_decref(before);
	json_decref(schema);
	json_decref(text);
	if (form && json_object_set_new(root, "form", form) == 0)
		return root;
	json_decref(root);
	return NULL;
}
