/* schema_not.c - what a schema does not allow: `not`, `if`, dependencies, and oneOf where branches meet.
 *
 * Strings and numbers of a schema are a regular language, so theirs is the difference of two. Objects and lists that a
 * schema does not allow are alternatives: one for each of its keywords that a value may break. An alternative that
 * would need a member without a name, or that two of a list are equal, is left out; if none remains, the schema is
 * refused.
 */
#include "runtime/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* Values ------------------------------------------------------------ */

static bool takes_object(Schemas *b, json_t *schema, json_t *value)
{
	json_t *properties = json_object_get(schema, "properties"),
		   *patterns = json_object_get(schema, "patternProperties"),
		   *others = json_object_get(schema, "additionalProperties"), *names = json_object_get(schema, "propertyNames"),
		   *one, *found;
	const char *key, *pattern;
	size_t i;
	uint32_t lo = 0, hi = ENDLESS;
	if (!schema_count(b, schema, "minProperties", &lo) || !schema_count(b, schema, "maxProperties", &hi) ||
		json_object_size(value) < lo || json_object_size(value) > hi)
		return false;
	json_array_foreach(json_object_get(schema, "required"), i, one)
		if (!json_is_string(one) || !json_object_get(value, json_string_value(one)))
			return false;
	json_object_foreach(value, key, one) {
		size_t n;
		char *quoted = schema_quoted(key, strlen(key), &n);
		json_t *name = schema_keep(b, json_string(key));
		bool is_known = (found = json_object_get(properties, key)) != NULL, good = quoted && name;
		good = good && (!found || schema_takes(b, found, one)) && (!names || schema_takes(b, names, name));
		json_object_foreach(patterns, pattern, found) {
			Lexeme l = {0};
			if (good && schema_pattern(b, "patternProperties", pattern, PART, &l) && lexeme_has(&l, quoted, n)) {
				is_known = true;
				good = schema_takes(b, found, one);
			}
			lexeme_free(&l);
		}
		free(quoted);
		if (!good || (!is_known && others && !schema_takes(b, others, one)))
			return false;
	}
	return true;
}

static bool takes_array(Schemas *b, json_t *schema, json_t *value)
{
	json_t *items = json_object_get(schema, "items"), *first = json_object_get(schema, "prefixItems"),
		   *contains = json_object_get(schema, "contains"), *one;
	uint32_t lo = 0, hi = ENDLESS;
	uint32_t least = contains != NULL, most = ENDLESS, n = 0;
	size_t i;
	if (json_is_array(items)) {
		first = items;
		items = json_object_get(schema, "additionalItems");
	}
	if (contains && (!schema_count(b, schema, "minContains", &least) || !schema_count(b, schema, "maxContains", &most)))
		return false;
	if (!schema_count(b, schema, "minItems", &lo) || !schema_count(b, schema, "maxItems", &hi) ||
		json_array_size(value) < lo || json_array_size(value) > hi)
		return false;
	json_array_foreach(value, i, one) {
		json_t *of = i < json_array_size(first) ? json_array_get(first, i) : items;
		if (of && !schema_takes(b, of, one))
			return false;
		n += contains && schema_takes(b, contains, one);
		for (size_t k = 0; k < i && json_is_true(json_object_get(schema, "uniqueItems")); k++)
			if (schema_same(json_array_get(value, k), one))
				return false;
	}
	return least <= n && n <= most;
}

/* Its keywords of strings or numbers, but for enum and const. */
static bool takes_scalar(Schemas *b, json_t *schema, json_t *value)
{
	static const char *const keys[] = {"minLength", "maxLength", "pattern", "format", "minimum", "maximum",
		"exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
	bool says_some = false;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		says_some |= (i < 4) == json_is_string(value) && json_object_get(schema, keys[i]);
	if (!says_some)
		return true;
	schema = schema_without(b, schema_without(b, schema, "enum"), "const");
	json_object_del(schema, "not");
	size_t n = 0;
	char *text = schema_scalar_text(value);
	uint32_t lo = 0, hi = ENDLESS, chars = 0;
	Lexeme l = {0};
	const bool is_string = json_is_string(value);
	bool good = text && (is_string ? schema_uncounted(b, schema, &l, &lo, &hi) : schema_number(b, schema, false, &l));
	for (size_t i = 0; is_string && i < json_string_length(value); i++)
		chars += ((unsigned char)json_string_value(value)[i] & 0xc0) != 0x80;
	good = good && lo <= chars && chars <= hi;
	if (good && (n = strlen(text)) > 0)
		good = lexeme_has(&l, text + is_string, n - is_string);
	free(text);
	lexeme_free(&l);
	return good;
}

/* How many of a list take it. */
static size_t takers(Schemas *b, json_t *list, json_t *value)
{
	size_t i, n = 0;
	json_t *one;
	json_array_foreach(list, i, one)
		n += schema_takes(b, one, value);
	return n;
}

static bool is_one_of(json_t *values, json_t *value)
{
	for (size_t i = 0; i < json_array_size(values); i++)
		if (schema_same(json_array_get(values, i), value))
			return true;
	return false;
}

static bool is_not(Schemas *b, json_t *schema, json_t *value)
{
	b->in_not++;
	const bool takes = schema_takes(b, schema, value);
	b->in_not--;
	return !takes && !schema_failed(b);
}

bool schema_takes(Schemas *b, json_t *schema, json_t *value)
{
	if (++b->depth > 2 * GRAMMAR_MAX_DEPTH)
		schema_refuse(b, NULL, "schemas are too deep, or lead back to themselves");
	schema = schema_failed(b) ? NULL : schema_resolve(b, schema);
	b->g->effort.left -= 100;
	json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf"),
		   *no = json_object_get(schema, "not"), *constant = json_object_get(schema, "const"),
		   *values = json_object_get(schema, "enum");
	bool good = schema != NULL && !json_is_false(schema);
	if (good && json_is_object(schema))
		good = schema_allows(schema, schema_type_of(value)) && (!constant || schema_same(constant, value)) &&
			(!values || is_one_of(values, value)) && (!any || takers(b, any, value) > 0) &&
			(!one || takers(b, one, value) == 1) && (!no || is_not(b, no, value));
	if (good && json_is_object(value) && json_object_get(schema, "unevaluatedProperties"))
		good = schema_refuse(b, "unevaluatedProperties", "it is not supported here");
	else if (good && json_is_array(value) && json_object_get(schema, "unevaluatedItems"))
		good = schema_refuse(b, "unevaluatedItems", "it is not supported here");
	else if (good && json_is_object(schema))
		good = json_is_object(value) ? takes_object(b, schema, value)
			: json_is_array(value)   ? takes_array(b, schema, value)
			: json_is_string(value) || json_is_number(value) ? takes_scalar(b, schema, value) : true;
	b->depth--;
	return good && !schema_failed(b);
}

/* Is every value of the type of it? False: perhaps not. */
bool schema_takes_all(Schemas *b, json_t *schema, const char *type)
{
	static const char *const kinds[] = {"string", "number", "integer"};
	static const char *const keys[3][6] = {{"minLength", "maxLength", "pattern", "format"},
		{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
		{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}};
	json_t *any, *one;
	size_t i;
	if (schema_failed(b) || !effort_spend(&b->g->effort, 100) || b->depth > GRAMMAR_MAX_DEPTH)
		return false;
	if (!(schema = schema_resolve(b, schema)) || json_is_boolean(schema))
		return json_is_true(schema);
	if (!schema_allows(schema, type) || json_object_get(schema, "const") || json_object_get(schema, "enum") ||
		json_object_get(schema, "not") || json_object_get(schema, "oneOf"))
		return false;
	for (int k = 0; k < 3; k++)
		for (int n = 0; keys[k][n]; n++)
			if (strcmp(type, kinds[k]) == 0 && json_object_get(schema, keys[k][n]))
				return false;
	if (!(any = json_object_get(schema, "anyOf")))
		return true;
	b->depth++;
	bool takes = false;
	json_array_foreach(any, i, one)
		takes = takes || schema_takes_all(b, one, type);
	b->depth--;
	return takes;
}

/* Languages ------------------------------------------------------------ */

/* *l becomes what `how` makes of it and `more`, which is given up. */
static bool change(Schemas *b, Lexeme *l, Lexeme *more, Combine how)
{
	Lexeme all = {0};
	const bool ok = lexeme_combine(l, more, how, &all, &b->g->effort);
	lexeme_free(more);
	lexeme_free(l);
	*l = all;
	return ok;
}

bool schema_without_not(Schemas *b, json_t *schema, LanguageFn *of, Lexeme *l)
{
	json_t *no = json_object_get(schema, "not");
	Lexeme gone = {0};
	if (!no)
		return true;
	const size_t before = schema_down(b, "not");
	b->in_not++;
	const bool ok = of(b, no, &gone);
	b->in_not--;
	schema_up(b, before);
	if (!ok)
		lexeme_free(&gone);
	return ok && change(b, l, &gone, FIRST_ONLY);
}

/* Once: what one of a list has; twice: what two of them have. */
static bool add_branches(Schemas *b, json_t *list, LanguageFn *of, Lexeme *once, Lexeme *twice)
{
	json_t *one;
	size_t i;
	bool ok = true;
	json_array_foreach(list, i, one) {
		Lexeme l = {0}, both = {0};
		ok = ok && of(b, one, &l) && lexeme_combine(once, &l, BOTH, &both, &b->g->effort) &&
			change(b, twice, &both, EITHER) && change(b, once, &l, EITHER);
		if (!ok) {
			lexeme_free(&l);
			lexeme_free(&both);
		}
	}
	return ok;
}

bool schema_of_branches(Schemas *b, json_t *schema, LanguageFn *of, Lexeme *l)
{
	json_t *any = json_object_get(schema, "anyOf"), *single = json_object_get(schema, "oneOf");
	Lexeme once = {0}, twice = {0};
	bool ok = true;
	if (any)
		ok = add_branches(b, any, of, &once, &twice) && change(b, l, &once, BOTH);
	lexeme_free(&twice);
	if (ok && single)
		ok = add_branches(b, single, of, &once, &twice) && change(b, l, &once, BOTH) &&
			change(b, l, &twice, FIRST_ONLY);
	lexeme_free(&once);
	lexeme_free(&twice);
	return ok;
}

/* Alternatives ------------------------------------------------------------ */

typedef struct Unlike {
	Schemas *b;
	json_t *all;            /* list of the alternatives */
	const char *left_out;   /* a keyword for which there is none */
} Unlike;

/* Takes the reference. */
static void add(Unlike *u, json_t *alternative)
{
	if (!alternative || json_array_append_new(u->all, alternative) != 0)
		effort_refuse(&u->b->g->effort, "there is no memory", -1);
	if (json_array_size(u->all) > 256)
		schema_refuse(u->b, "not", "too many alternatives come together");
}

/* Its one property, if it says nothing else but that it is required. */
static const char *only_property(json_t *schema, json_t **of)
{
	json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required"), *one;
	const char *key, *name = json_string_value(json_array_get(required, 0));
	if (json_object_size(schema) != (properties != NULL) + (size_t)(required != NULL) || (!properties && !required) ||
		(properties && json_object_size(properties) != 1) || (required && (json_array_size(required) != 1 || !name)))
		return NULL;
	*of = NULL;
	json_object_foreach(properties, key, one) {
		if (name && strcmp(name, key) != 0)
			return NULL;
		name = key;
		*of = one;
	}
	return name;
}

static json_t *not_of(json_t *schema);

/* Of that property one alternative does: it is another value, or absent if it is required. */
static json_t *not_of_property(const char *key, json_t *of, bool is_required)
{
	json_t *other = of ? not_of(of) : json_false();
	return is_required ? json_pack("{s:s, s:{s:o}}", "type", "object", "properties", key, other)
		: json_pack("{s:s, s:{s:o}, s:[s]}", "type", "object", "properties", key, other, "required", key);
}

static json_t *not_of(json_t *schema)
{
	json_t *of;
	const char *key = json_is_object(schema) ? only_property(schema, &of) : NULL;
	if (key)
		return not_of_property(key, of, json_object_get(schema, "required") != NULL);
	if (json_is_boolean(schema))
		return json_boolean(json_is_false(schema));
	return json_pack("{s:O}", "not", schema);
}

static bool is_named(json_t *names, const char *key)
{
	size_t i;
	json_t *name;
	json_array_foreach(names, i, name)
		if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
			return true;
	return false;
}

/* May an object of `next_to` have the property with another value than `one` allows? False: it cannot. */
static bool can_differ(json_t *next_to, const char *key, json_t *one)
{
	json_t *mine = json_object_get(json_object_get(next_to, "properties"), key);
	if (!mine)
		return !json_is_false(json_object_get(next_to, "additionalProperties")) ||
			json_object_get(next_to, "patternProperties");
	return !json_is_false(mine) && mine != one && !json_equal(mine, one);
}

static void unlike_object(Unlike *u, json_t *schema, json_t *next_to)
{
	json_t *properties = json_object_get(schema, "properties"),
		   *others = json_object_get(schema, "additionalProperties"),
		   *patterns = json_object_get(schema, "patternProperties"), *one;
	const char *key;
	uint32_t lo = 0, hi = ENDLESS;
	size_t i;
	for (int later = 0; later < 2; later++) { /* first those that say least: of properties that are there anyway */
		json_object_foreach(properties, key, one)
			if (!json_is_true(one) && can_differ(next_to, key, one) &&
				is_named(json_object_get(next_to, "required"), key) != later)
				add(u, json_pack("{s:[s], s:{s:o}}", "required", key, "properties", key, not_of(one)));
		json_array_foreach(json_object_get(schema, "required"), i, one)
			if (!later && json_is_string(one) &&
				!is_named(json_object_get(next_to, "required"), json_string_value(one)))
				add(u, json_pack("{s:{s:b}}", "properties", json_string_value(one), 0));
	}
	if (others && !json_is_true(others)) { /* what the schema next to it names, and this one does not */
		json_object_foreach(json_object_get(next_to, "properties"), key, one)
			if (!json_object_get(properties, key) && !patterns)
				add(u, json_pack("{s:[s], s:{s:o}}", "required", key, "properties", key, not_of(others)));
		if (!json_is_false(json_object_get(next_to, "additionalProperties")) || patterns)
			u->left_out = "additionalProperties";
	}
	if (patterns)
		u->left_out = "patternProperties";
	if (json_object_get(schema, "propertyNames"))
		u->left_out = "propertyNames";
	if (json_object_get(schema, "unevaluatedProperties"))
		u->left_out = "unevaluatedProperties";
	if (schema_count(u->b, schema, "minProperties", &lo) && lo > 0)
		add(u, json_pack("{s:i}", "maxProperties", (int)lo - 1));
	if (schema_count(u->b, schema, "maxProperties", &hi) && hi != ENDLESS)
		add(u, json_pack("{s:i}", "minProperties", (int)hi + 1));
}

static void unlike_array(Unlike *u, json_t *schema)
{
	json_t *items = json_object_get(schema, "items"), *first = json_object_get(schema, "prefixItems"), *one;
	uint32_t lo = 0, hi = ENDLESS;
	size_t i;
	if (json_is_array(items)) {
		first = items;
		items = json_object_get(schema, "additionalItems");
	}
	if (schema_count(u->b, schema, "minItems", &lo) && lo > 0)
		add(u, json_pack("{s:i}", "maxItems", (int)lo - 1));
	if (schema_count(u->b, schema, "maxItems", &hi) && hi != ENDLESS)
		add(u, json_pack("{s:i}", "minItems", (int)hi + 1));
	json_array_foreach(first, i, one) {
		json_t *prefix = json_array();
		for (size_t k = 0; k < i; k++)
			json_array_append_new(prefix, json_true());
		json_array_append_new(prefix, not_of(one));
		add(u, json_pack("{s:o, s:i}", "prefixItems", prefix, "minItems", (int)i + 1));
	}
	if (items && !json_is_true(items) && !json_array_size(first))
		add(u, json_pack("{s:o}", "contains", not_of(items)));
	else if (items && !json_is_true(items))
		u->left_out = "items";
	uint32_t least = 1, most = ENDLESS;
	one = json_object_get(schema, "contains");
	if (!one || !schema_count(u->b, schema, "minContains", &least) || !schema_count(u->b, schema, "maxContains", &most))
		least = 0;
	if (least == 1)
		add(u, json_pack("{s:o}", "items", not_of(one)));
	else if (least > 1)
		add(u, json_pack("{s:O, s:i, s:i}", "contains", one, "minContains", 0, "maxContains", (int)least - 1));
	if (most != ENDLESS)
		add(u, json_pack("{s:O, s:i}", "contains", one, "minContains", (int)most + 1));
	if (json_object_get(schema, "unevaluatedItems"))
		u->left_out = "unevaluatedItems";
	if (json_is_true(json_object_get(schema, "uniqueItems")))
		u->left_out = "uniqueItems";
}

enum { MOST_WAYS = 48 /* of values that are in none of several: the first ones, where there are more */ };

/* In none of the list: one of what is unlike the first, and of what is unlike the second, and so on. */
static void unlike_all(Unlike *u, json_t *list, json_t *next_to, const char *type)
{
	json_t *all = json_array(), *one;
	size_t i;
	size_t ways = 1;
	json_array_foreach(list, i, one) {
		json_t *some = schema_unlike(u->b, one, next_to, type);
		if (some && json_array_size(some) == 1 && json_is_true(json_array_get(some, 0)))
			continue;
		while (json_array_size(some) > 1 && ways * json_array_size(some) > MOST_WAYS)
			json_array_remove(some, json_array_size(some) - 1);
		ways *= json_array_size(some);
		if (some)
			json_array_append_new(all, json_pack("{s:O}", "anyOf", some));
		if (!some || json_array_size(some) == 0) {
			json_decref(all);
			return;
		}
	}
	add(u, json_array_size(all) ? json_pack("{s:O}", "allOf", all) : json_true());
	json_decref(all);
}

static void unlike_one_of(Unlike *u, json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		for (size_t k = 0; k < i && !schema_failed(u->b); k++) {
			json_t *one = json_array_get(list, i), *other = json_array_get(list, k);
			if (!schemas_are_apart(u->b, one, other))
				add(u, json_pack("{s:[O,O]}", "allOf", one, other));
		}
}

/* Is no value of that type of both? */
static bool are_apart_as(Schemas *b, json_t *one, json_t *other, const char *type)
{
	json_t *context = b->context;
	b->context = schema_keep(b, json_pack("{s:s}", "type", type));
	const bool apart = b->context && schemas_are_apart(b, one, other);
	b->context = context;
	return apart;
}

json_t *schema_unlike(Schemas *b, json_t *schema, json_t *next_to, const char *type)
{
	Unlike u = {.b = b, .all = schema_keep(b, json_array())};
	json_t *one;
	size_t i;
	bool has_value = false;
	if (++b->depth > 2 * GRAMMAR_MAX_DEPTH)
		schema_refuse(b, NULL, "schemas are too deep, or lead back to themselves");
	schema = u.all && !schema_failed(b) ? schema_resolve(b, schema) : NULL;
	if (!schema || !(json_is_boolean(schema) || schema_check(b, schema))) {
		b->depth--;
		return NULL;
	}
	json_t *values = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
	json_array_foreach(values, i, one)
		has_value |= strcmp(schema_type_of(one), type) == 0;
	has_value |= constant && strcmp(schema_type_of(constant), type) == 0;
	if (json_is_false(schema) || !schema_allows(schema, type) || ((values || constant) && !has_value))
		add(&u, json_true());
	else if (strcmp(type, "object") == 0 && next_to && are_apart_as(b, next_to, schema, type))
		add(&u, json_true());
	else if (json_is_object(schema)) {
		if (values || constant)
			schema_refuse(b, constant ? "const" : "enum", "objects and lists in it are not supported here");
		if ((one = json_object_get(schema, "not")))
			add(&u, json_incref(one));
		if ((one = json_object_get(schema, "anyOf")))
			unlike_all(&u, one, next_to, type);
		if ((one = json_object_get(schema, "oneOf"))) {
			unlike_all(&u, one, next_to, type);
			unlike_one_of(&u, one);
		}
		if (strcmp(type, "object") == 0)
			unlike_object(&u, schema, next_to);
		else
			unlike_array(&u, schema);
		if (json_array_size(u.all) == 0 && u.left_out)
			schema_refuse(b, u.left_out, "what it forbids cannot be written in one way: it is not supported in not, if "
				"and branches of oneOf that meet");
	}
	b->depth--;
	return schema_failed(b) ? NULL : u.all;
}

/* Conditions ------------------------------------------------------------ */

/* {"anyOf": [one, other]} to the list of what holds. */
static bool add_choice(json_t *all, json_t *one, json_t *other)
{
	return json_array_append_new(all, json_pack("{s:[o,o]}", "anyOf", one, other)) == 0;
}

static bool add_dependency(Schemas *b, json_t *all, const char *key, json_t *needs)
{
	json_t *absent = json_pack("{s:{s:b}}", "properties", key, 0), *present = json_pack("{s:[s]}", "required", key);
	if (json_is_string(needs) || json_is_array(needs)) {
		json_t *names = json_object_get(present, "required");
		if (json_is_string(needs))
			json_array_append(names, needs);
		for (size_t i = 0; i < json_array_size(needs); i++)
			json_array_append(names, json_array_get(needs, i));
		return add_choice(all, absent, present);
	}
	if (!json_is_object(needs) && !json_is_boolean(needs))
		return schema_refuse(b, "dependencies", "a list of strings or a schema is expected");
	return add_choice(all, absent, json_pack("{s:[o,O]}", "allOf", present, needs));
}

static const char *const maps[] = {"dependentRequired", "dependentSchemas", "dependencies", NULL};

bool schema_has_conditions(json_t *schema)
{
	bool has_any = json_object_get(schema, "if") != NULL;
	for (int i = 0; maps[i]; i++)
		has_any |= json_object_get(schema, maps[i]) != NULL;
	return has_any;
}

json_t *schema_without_conditions(Schemas *b, json_t *schema)
{
	json_t *test = json_object_get(schema, "if"), *yes = json_object_get(schema, "then"),
		   *no = json_object_get(schema, "else"), *needs;
	const char *key;
	bool ok = true;
	json_t *rest = schema_keep(b, json_copy(schema)), *all = json_array();
	for (int i = 0; rest && maps[i] && ok; i++) {
		json_object_foreach(json_object_get(schema, maps[i]), key, needs)
			ok = ok && add_dependency(b, all, key, needs);
		json_object_del(rest, maps[i]);
	}
	json_object_del(rest, "if");
	json_object_del(rest, "then");
	json_object_del(rest, "else");
	if (ok && test && (yes || no))
		ok = add_choice(all, yes ? json_pack("{s:[O,O]}", "allOf", test, yes) : json_incref(test),
			no ? json_pack("{s:[o,O]}", "allOf", not_of(test), no) : not_of(test));
	if (!ok || !rest) {
		json_decref(all);
		return NULL;
	}
	json_t *had = json_object_get(rest, "allOf");
	for (size_t i = 0; i < json_array_size(had); i++)
		json_array_insert(all, i, json_array_get(had, i));
	if (json_array_size(all) == 0)
		json_decref(all);
	else
		json_object_set_new(rest, "allOf", all);
	return rest;
}
