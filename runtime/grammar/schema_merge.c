/* schema_merge.c - schemas that hold together: $ref with other keywords, allOf, anyOf with other keywords.
 *
 * Two schemas become one whose values are those of both. Members are put together only when they are compiled, by a
 * schema {"allOf": [one, other]} that is made once for each pair, so recursive schemas stay finite.
 */
#include "runtime/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HOPS = 64, MOST_PAIRS = 20000, MOST_BRANCHES = 256, FEW_BRANCHES = 4, MOST_PRODUCT = 4096 };

json_t *schema_keep(Schemas *b, json_t *made)
{
	if (!made || json_array_append_new(b->made, made) != 0) {
		effort_refuse(&b->g->effort, "there is no memory", -1);
		return NULL;
	}
	return made;
}

json_t *schema_without(Schemas *b, json_t *schema, const char *key)
{
	json_t *copy = schema_keep(b, json_copy(schema));
	if (copy)
		json_object_del(copy, key);
	return copy;
}

json_t *schema_at(Schemas *b, const char *pointer)
{
	if (!pointer || pointer[0] != '#' || (pointer[1] && pointer[1] != '/')) {
		schema_refuse(b, "$ref", "a place of this schema is expected: \"#\" or \"#/...\"");
		return NULL;
	}
	json_t *at = grammar_at(b->root, pointer);
	if (!json_is_object(at) && !json_is_boolean(at)) {
		schema_refuse(b, "$ref", "there is no schema %.150s", pointer);
		return NULL;
	}
	return at;
}

static uint32_t pair_hash(const json_t *one, const json_t *other, PairKind kind)
{
	const uintptr_t key[2] = {(uintptr_t)one, (uintptr_t)other};
	return tok_hash_string(key, sizeof key) + kind;
}

static json_t *find_pair(const Schemas *b, const json_t *one, const json_t *other, PairKind kind)
{
	uint32_t at = b->pair_slots ? pair_hash(one, other, kind) & (b->pair_slots - 1) : 0;
	for (; b->pair_slots && b->pair_table[at]; at = (at + 1) & (b->pair_slots - 1)) {
		const Pair *p = &b->pairs[b->pair_table[at] - 1];
		if (p->a == one && p->b == other && p->kind == kind)
			return p->both;
	}
	return NULL;
}

static bool enlarge_table(Schemas *b)
{
	if (b->n_pairs * 2 < b->pair_slots)
		return true;
	const uint32_t slots = b->pair_slots ? b->pair_slots * 2 : 256;
	uint32_t *table = calloc(slots, sizeof *table);
	if (!table)
		return effort_refuse(&b->g->effort, "there is no memory", -1);
	for (uint32_t i = 0; i < b->n_pairs; i++) {
		uint32_t at = pair_hash(b->pairs[i].a, b->pairs[i].b, b->pairs[i].kind) & (slots - 1);
		while (table[at])
			at = (at + 1) & (slots - 1);
		table[at] = i + 1;
	}
	free(b->pair_table);
	b->pair_table = table;
	b->pair_slots = slots;
	return true;
}

/* The result for a pair, made before; takes the reference. */
static json_t *keep_pair(Schemas *b, json_t *one, json_t *other, json_t *both, PairKind kind)
{
	if (!schema_keep(b, both))
		return NULL;
	b->g->effort.left -= 300;
	if (b->n_pairs >= MOST_PAIRS || b->g->effort.left < 0) {
		effort_refuse(&b->g->effort, "it takes too long to compile", -1);
		return NULL;
	}
	if (!GROW(&b->g->effort, b->pairs, b->pairs_cap, b->n_pairs + 1) || !enlarge_table(b))
		return NULL;
	uint32_t at = pair_hash(one, other, kind) & (b->pair_slots - 1);
	while (b->pair_table[at])
		at = (at + 1) & (b->pair_slots - 1);
	b->pairs[b->n_pairs++] = (Pair){one, other, both, kind};
	b->pair_table[at] = b->n_pairs;
	return both;
}

/* Of a schema that is nothing but allOf its list; NULL: it is more. */
static json_t *only_all_of(json_t *schema)
{
	return json_object_size(schema) == 1 ? json_object_get(schema, "allOf") : NULL;
}

static void add_each(Schemas *b, json_t *all, json_t *schema)
{
	json_t *list = only_all_of(schema), *one;
	size_t i, k;
	const size_t n = list ? json_array_size(list) : 1;
	for (i = 0; i < n; i++) {
		one = list ? json_array_get(list, i) : schema;
		for (k = 0; k < json_array_size(all) && !json_equal(json_array_get(all, k), one);)
			k++;
		b->g->effort.left -= 20 * (int64_t)(k + 1);
		if (k == json_array_size(all))
			json_array_append(all, one);
	}
}

/* {"allOf": [one, other]}, not looked into. */
static json_t *later(Schemas *b, json_t *one, json_t *other)
{
	if (one == other || json_is_true(other) || json_is_false(one))
		return one;
	if (json_is_true(one) || json_is_false(other))
		return other;
	json_t *known = find_pair(b, one, other, PAIR_LATER);
	if (known)
		return known;
	json_t *all = json_array();
	add_each(b, all, one);
	add_each(b, all, other);
	if (json_array_size(all) == 1) { /* equal */
		json_decref(all);
		return one;
	}
	return keep_pair(b, one, other, json_pack("{s:o}", "allOf", all), PAIR_LATER);
}

/* Keywords ------------------------------------------------------------ */

typedef json_t *MergeFn(Schemas *b, const char *key, json_t *one, json_t *other); /* a new reference */

static bool is_more(json_t *one, json_t *other)
{
	return json_is_integer(one) && json_is_integer(other) ? json_integer_value(one) > json_integer_value(other)
		: json_number_value(one) > json_number_value(other);
}

static json_t *larger(Schemas *b, const char *key, json_t *one, json_t *other)
{
	(void)b;
	(void)key;
	return json_incref(is_more(one, other) ? one : other);
}

static json_t *smaller(Schemas *b, const char *key, json_t *one, json_t *other)
{
	(void)b;
	(void)key;
	return json_incref(is_more(one, other) ? other : one);
}

static json_t *each_once(Schemas *b, const char *key, json_t *one, json_t *other)
{
	json_t *all = json_is_array(one) ? json_copy(one) : json_pack("[O]", one), *item;
	size_t i, k;
	(void)b;
	(void)key;
	for (i = 0; i < (json_is_array(other) ? json_array_size(other) : 1); i++) {
		item = json_is_array(other) ? json_array_get(other, i) : other;
		for (k = 0; k < json_array_size(all) && !schema_same(json_array_get(all, k), item);)
			k++;
		if (k == json_array_size(all))
			json_array_append(all, item);
	}
	return all;
}

static json_t *common(Schemas *b, const char *key, json_t *one, json_t *other)
{
	json_t *all = json_array();
	(void)b;
	(void)key;
	for (size_t i = 0; i < json_array_size(one); i++)
		for (size_t k = 0; k < json_array_size(other); k++)
			if (schema_same(json_array_get(one, i), json_array_get(other, k))) {
				json_array_append(all, json_array_get(one, i));
				break;
			}
	return all;
}

static json_t *common_types(Schemas *b, const char *key, json_t *one, json_t *other)
{
	static const char *const types[] = {"null", "boolean", "object", "array", "number", "integer", "string"};
	json_t *all = json_array(), *a = json_pack("{s:O}", "type", one), *c = json_pack("{s:O}", "type", other);
	(void)b;
	(void)key;
	bool number = false;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		const bool has = schema_allows(a, types[i]) && schema_allows(c, types[i]);
		number |= has && i == 4;
		if (has && !(number && i == 5))
			json_array_append_new(all, json_string(types[i]));
	}
	json_decref(a);
	json_decref(c);
	return all;
}

static json_t *both_later(Schemas *b, const char *key, json_t *one, json_t *other)
{
	(void)key;
	return json_incref(later(b, one, other));
}

/* anyOf: pairs that no value can be of are left out, where there would be many. */
static json_t *every_pair(Schemas *b, const char *key, json_t *one, json_t *other)
{
	json_t *all = json_array();
	const size_t n = json_array_size(one), m = json_array_size(other);
	if (n * m > MOST_PRODUCT)
		schema_refuse(b, key, "too many alternatives come together");
	for (size_t i = 0; i < n && !schema_failed(b); i++)
		for (size_t k = 0; k < m && !schema_failed(b); k++) {
			json_t *mine = json_array_get(one, i), *yours = json_array_get(other, k);
			b->g->effort.left -= 500;
			if (n * m <= FEW_BRANCHES || !schemas_are_apart(b, mine, yours))
				json_array_append(all, later(b, mine, yours));
		}
	if (json_array_size(all) > MOST_BRANCHES)
		schema_refuse(b, key, "too many alternatives come together");
	return all;
}

static json_t *neither(Schemas *b, const char *key, json_t *one, json_t *other) /* not */
{
	(void)b;
	(void)key;
	return json_pack("{s:[O,O]}", "anyOf", one, other);
}

static json_t *either_true(Schemas *b, const char *key, json_t *one, json_t *other)
{
	(void)b;
	(void)key;
	return json_incref(json_is_true(one) ? one : other);
}

static const struct { const char *key; MergeFn *merge; } rules[] = {
	{"type", common_types}, {"required", each_once}, {"enum", common}, {"pattern", each_once}, {"format", each_once},
	{"minimum", larger}, {"exclusiveMinimum", larger}, {"minLength", larger}, {"minItems", larger},
	{"minProperties", larger}, {"maximum", smaller}, {"exclusiveMaximum", smaller}, {"maxLength", smaller},
	{"maxItems", smaller}, {"maxProperties", smaller}, {"propertyNames", both_later}, {"anyOf", every_pair},
	{"uniqueItems", either_true}, {"multipleOf", each_once}, {"not", neither},
};

/* Of no weight: the first one stays. */
static bool is_note(const char *key)
{
	static const char *const notes[] = {"title", "description", "default", "examples", "example", "$schema", "$id",
		"id", "$comment", "$defs", "definitions", "$anchor", "readOnly", "writeOnly", "deprecated", "contentEncoding",
		"contentMediaType", "contentSchema", "then", "else", "nullable"};
	for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
		if (strcmp(notes[i], key) == 0)
			return true;
	return strncmp(key, "x-", 2) == 0;
}

static bool merge_key(Schemas *b, json_t *all, const char *key, json_t *value)
{
	json_t *had = json_object_get(all, key);
	if (!had || schema_same(had, value))
		return had || json_object_set(all, key, value) == 0;
	if (is_note(key))
		return true;
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
		if (strcmp(rules[i].key, key) == 0) {
			json_t *both = rules[i].merge(b, key, had, value);
			return both && json_object_set_new(all, key, both) == 0 && !schema_failed(b);
		}
	return schema_refuse(b, key, "two schemas that hold at once have a different %s, which is not supported", key);
}

json_t *schema_for_others(Schemas *b, json_t *schema, const char *key)
{
	json_t *all = NULL, *one, *properties = json_object_get(schema, "patternProperties");
	const char *pattern;
	size_t n;
	char *quoted = schema_quoted(key, strlen(key), &n);
	json_object_foreach(properties, pattern, one) {
		Lexeme l = {0};
		if (quoted && schema_pattern(b, "patternProperties", pattern, PART, &l) && lexeme_has(&l, quoted, n))
			all = all ? later(b, all, one) : one;
		lexeme_free(&l);
		if (schema_failed(b))
			break;
	}
	free(quoted);
	if (!quoted || schema_failed(b))
		return NULL;
	one = json_object_get(schema, "additionalProperties");
	one = one ? one : json_object_get(schema, "unevaluatedProperties");
	return all ? all : one ? one : schema_keep(b, json_true());
}

/* Properties of `from` that `to` has by other means than by name. */
static bool cross(Schemas *b, json_t *all, json_t *from, json_t *to)
{
	const char *key;
	json_t *schema;
	json_object_foreach(json_object_get(from, "properties"), key, schema) {
		if (json_object_get(json_object_get(to, "properties"), key))
			continue;
		json_t *other = schema_for_others(b, to, key);
		json_t *both = other ? later(b, schema, other) : NULL;
		if (!both || json_object_set(all, key, both) != 0)
			return false;
	}
	return true;
}

static bool merge_objects(Schemas *b, json_t *all, json_t *one, json_t *other)
{
	static const char *const keys[] = {"properties", "patternProperties", "additionalProperties"};
	json_t *properties = json_object();
	const char *key;
	json_t *schema, *mine;
	bool ok = properties != NULL;
	json_object_foreach(json_object_get(one, "properties"), key, schema) {
		mine = json_object_get(json_object_get(other, "properties"), key);
		mine = mine || !ok ? mine : schema_for_others(b, other, key);
		json_t *both = mine ? later(b, schema, mine) : NULL;
		ok = ok && both && json_object_set(properties, key, both) == 0;
	}
	ok = ok && cross(b, properties, other, one);
	if (json_object_size(properties))
		json_object_set(all, "properties", properties);
	json_decref(properties);
	json_t *p = json_object_get(one, "patternProperties"), *q = json_object_get(other, "patternProperties");
	json_t *x = json_object_get(one, "additionalProperties"), *y = json_object_get(other, "additionalProperties");
	x = x ? x : json_object_get(one, "unevaluatedProperties");
	y = y ? y : json_object_get(other, "unevaluatedProperties");
	if (((p && y && !json_is_true(y)) || (q && x && !json_is_true(x))) && !schema_same(p, q))
		return schema_refuse(b, keys[1], "two schemas that hold at once have them, which is not supported");
	if (p || q)
		json_object_set_new(all, keys[1], p ? json_copy(p) : json_object());
	json_object_foreach(q, key, schema) {
		mine = json_object_get(p, key);
		json_t *both = mine ? later(b, mine, schema) : schema;
		ok = ok && both && json_object_set(json_object_get(all, keys[1]), key, both) == 0;
	}
	json_t *rest = x && y ? later(b, x, y) : x ? x : y;
	if (rest)
		json_object_set(all, keys[2], rest);
	return ok && !schema_failed(b);
}

bool schema_items(Schemas *b, json_t *schema, Items *items)
{
	json_t *given = json_object_get(schema, "items"), *left = json_object_get(schema, "unevaluatedItems"),
		   *contains = json_object_get(schema, "contains");
	*items = (Items){json_object_get(schema, "prefixItems"), given, "prefixItems", "items"};
	if (json_is_array(given)) /* before draft 2020-12 */
		*items = (Items){given, json_object_get(schema, "additionalItems"), "items", "additionalItems"};
	if (!items->rest && left) { /* what `contains` takes is evaluated */
		items->rest = !contains || json_is_true(left) ? left : json_is_false(left) ? contains
			: schema_keep(b, json_pack("{s:[O,O]}", "anyOf", contains, left));
		items->rest_key = "unevaluatedItems";
	}
	return !items->first || json_is_array(items->first) ||
		schema_refuse(b, items->first_key, "a list of schemas is expected");
}

/* Schemas of one item; either may be NULL. */
static json_t *item_of_both(Schemas *b, json_t *one, json_t *other)
{
	return one && other ? later(b, one, other) : one ? one : other;
}

static json_t *item_at(const Items *items, size_t i)
{
	return i < json_array_size(items->first) ? json_array_get(items->first, i) : items->rest;
}

static bool merge_arrays(Schemas *b, json_t *all, json_t *one, json_t *other)
{
	Items x, y;
	if (!schema_items(b, one, &x) || !schema_items(b, other, &y))
		return false;
	const size_t n_one = json_array_size(x.first), n_other = json_array_size(y.first);
	json_t *first = json_array(), *rest = item_of_both(b, x.rest, y.rest);
	for (size_t i = 0; i < n_one || i < n_other; i++)
		json_array_append(first, item_of_both(b, item_at(&x, i), item_at(&y, i)));
	if (json_array_size(first))
		json_object_set(all, "prefixItems", first);
	json_decref(first);
	if (rest)
		json_object_set(all, "items", rest);
	return !schema_failed(b);
}

static json_t *merge(Schemas *b, json_t *one, json_t *other)
{
	static const char *const members[] = {"properties", "patternProperties", "additionalProperties",
		"unevaluatedProperties", "items", "prefixItems", "additionalItems", "unevaluatedItems"};
	json_t *all = json_copy(one), *value;
	const char *key;
	bool ok = all != NULL;
	json_t *const_one = json_object_get(one, "const"), *const_other = json_object_get(other, "const");
	json_t *rest = json_copy(other);
	for (int k = 0; k < 2; k++) { /* counts of what is not looked for say nothing */
		json_t *counts = k ? rest : all;
		if (!json_object_get(counts, "contains")) {
			json_object_del(counts, "minContains");
			json_object_del(counts, "maxContains");
		}
	}
	for (size_t i = 0; ok && i < sizeof members / sizeof members[0]; i++) {
		json_object_del(all, members[i]);
		json_object_del(rest, members[i]);
	}
	if (ok && const_one && json_object_get(other, "enum") && !const_other) /* one value, or none */
		ok = json_object_set_new(all, "enum", json_pack("[O]", const_one)) == 0 && json_object_del(all, "const") == 0;
	if (ok && const_other && json_object_get(one, "enum") && !const_one)
		ok = json_object_set_new(rest, "enum", json_pack("[O]", const_other)) == 0 &&
			json_object_del(rest, "const") == 0;
	if (ok && const_one && const_other && !schema_same(const_one, const_other)) {
		json_decref(all);
		json_decref(rest);
		return json_false();
	}
	ok = ok && merge_objects(b, all, one, other) && merge_arrays(b, all, one, other);
	json_t *any = json_incref(json_object_get(rest, "anyOf")), *context = b->context;
	json_object_del(rest, "anyOf"); /* the last one: by the others alternatives are left out */
	json_object_foreach(rest, key, value)
		ok = ok && merge_key(b, all, key, value);
	b->context = all;
	ok = ok && (!any || merge_key(b, all, "anyOf", any));
	b->context = context;
	json_decref(any);
	json_decref(rest);
	if (ok)
		return all;
	json_decref(all);
	return NULL;
}

json_t *schema_closed(Schemas *b, json_t *schema, json_t *given)
{
	json_t *properties = json_object_get(given, "unevaluatedProperties"),
		   *items = json_object_get(given, "unevaluatedItems");
	Items had;
	if (!schema || !json_is_object(schema) || !schema_items(b, schema, &had))
		return schema;
	if (json_object_get(schema, "additionalProperties") || json_object_get(schema, "unevaluatedProperties"))
		properties = NULL; /* they leave none that is not evaluated */
	if (had.rest)
		items = NULL;
	json_t *closed = properties || items ? schema_keep(b, json_copy(schema)) : schema;
	if (closed && properties)
		json_object_set(closed, "unevaluatedProperties", properties);
	if (closed && items)
		json_object_set(closed, "unevaluatedItems", items);
	return closed;
}

json_t *schema_resolve(Schemas *b, json_t *schema)
{
	for (int hops = 0; json_is_object(schema) && !schema_failed(b); hops++) {
		json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf"), *given = schema;
		const bool has_conditions = schema_has_conditions(schema);
		if (!ref && !all && !has_conditions)
			return schema;
		json_t *known = find_pair(b, schema, NULL, PAIR_BOTH);
		if (known) {
			schema = known;
			continue;
		}
		if (has_conditions && !(schema = schema_without_conditions(b, given)))
			return NULL;
		all = json_object_get(schema, "allOf");
		if (!ref && !all && !keep_pair(b, given, NULL, json_incref(schema), PAIR_BOTH))
			return NULL;
		if (!ref && !all)
			return schema;
		if (hops >= MOST_HOPS) {
			schema_refuse(b, ref ? "$ref" : "allOf", "it leads back to itself");
			return NULL;
		}
		json_t *rest = schema_without(b, schema, ref ? "$ref" : "allOf");
		const bool closes = json_object_get(schema, "unevaluatedProperties") ||
			json_object_get(schema, "unevaluatedItems");
		json_t *whole = schema;
		if (!rest)
			return NULL;
		json_object_del(rest, "unevaluatedProperties"); /* they hold of all that are joined here */
		json_object_del(rest, "unevaluatedItems");
		if (ref) {
			json_t *target = schema_at(b, json_string_value(ref));
			/* the rest of it is put with the target, which may be a $ref itself */
			if (target && (closes || json_object_size(rest) > 0)) {
				target = schema_closed(b, schema_both(b, rest, target), whole);
				if (!target || !keep_pair(b, given, NULL, json_incref(target), PAIR_BOTH))
					return NULL;
			}
			schema = target;
			continue;
		}
		if (json_array_size(all) == 0) {
			schema_refuse(b, "allOf", "a list of schemas is expected");
			return NULL;
		}
		if (++b->depth > GRAMMAR_MAX_DEPTH) {
			schema_refuse(b, "allOf", "schemas are more than %d deep, or lead back to themselves", GRAMMAR_MAX_DEPTH);
			return NULL;
		}
		json_t *joined = rest;
		for (size_t i = 0; joined && i < json_array_size(all); i++) {
			const size_t before = schema_down_to(b, "allOf", i);
			joined = schema_both(b, joined, json_array_get(all, i));
			schema_up(b, before);
		}
		b->depth--;
		joined = schema_closed(b, joined, whole);
		if (!joined || !keep_pair(b, given, NULL, json_incref(joined), PAIR_BOTH))
			return NULL;
		schema = joined;
	}
	if (!schema_failed(b) && !json_is_boolean(schema))
		schema_refuse(b, NULL, "a schema is expected: an object, true or false");
	return schema_failed(b) ? NULL : schema;
}

json_t *schema_both(Schemas *b, json_t *one, json_t *other)
{
	if (++b->depth > GRAMMAR_MAX_DEPTH * 2) {
		schema_refuse(b, NULL, "schemas are too deep, or lead back to themselves");
		return NULL;
	}
	one = schema_resolve(b, one);
	other = one ? schema_resolve(b, other) : NULL;
	b->depth--;
	if (!one || !other)
		return NULL;
	if (one == other || json_is_true(other) || json_is_false(one))
		return one;
	if (json_is_true(one) || json_is_false(other))
		return other;
	json_t *known = find_pair(b, one, other, PAIR_BOTH);
	if (known)
		return known;
	json_t *both = merge(b, one, other);
	return both ? keep_pair(b, one, other, both, PAIR_BOTH) : NULL;
}

/* Apart ------------------------------------------------------------ */

/* The values of const or enum; NULL: neither. */
static json_t *values_of(Schemas *b, json_t *schema)
{
	json_t *one = json_object_get(schema, "const");
	return one ? schema_keep(b, json_pack("[O]", one)) : json_object_get(schema, "enum");
}

static bool values_are_apart(Schemas *b, json_t *one, json_t *other)
{
	json_t *values = json_is_object(one) ? values_of(b, one) : NULL, *value;
	size_t i;
	json_array_foreach(values, i, value)
		if (schema_takes(b, other, value))
			return false;
	return json_is_array(values) && !schema_failed(b);
}

static bool is_listed(json_t *names, const char *key)
{
	size_t i;
	json_t *name;
	json_array_foreach(names, i, name)
		if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
			return true;
	return false;
}

static bool requires(const Schemas *b, json_t *schema, const char *key)
{
	return is_listed(json_object_get(schema, "required"), key) ||
		is_listed(json_object_get(b->context, "required"), key);
}

/* Is there a property whose values separate them? */
static bool objects_are_apart(Schemas *b, json_t *one, json_t *other)
{
	json_t *mine = json_object_get(one, "properties"), *yours = json_object_get(other, "properties"), *schema;
	const char *key;
	json_object_foreach(mine, key, schema) {
		json_t *same = json_object_get(yours, key);
		if (!requires(b, one, key))
			continue;
		if (!same && json_is_false(json_object_get(other, "additionalProperties")) &&
			!json_object_get(other, "patternProperties"))
			return true;
		json_t *x = same ? schema_resolve(b, schema) : NULL;
		json_t *y = x ? schema_resolve(b, same) : NULL;
		if (x && y && (json_is_false(x) || json_is_false(y)))
			return true;
		json_t *context = b->context; /* of the whole, not of this property */
		b->context = NULL;
		const bool apart = x && y && schemas_are_apart(b, x, y);
		b->context = context;
		if (apart) /* the one has it, so the other would say what it must be */
			return true;
		if (schema_failed(b))
			return false;
	}
	return false;
}

static bool lengths_are_apart(Schemas *b, json_t *one, json_t *other)
{
	uint32_t lo = 0, hi = ENDLESS;
	return schema_count(b, one, "minLength", &lo) && schema_count(b, other, "maxLength", &hi) && lo > hi;
}

/* Does it have a keyword of numbers? */
static bool is_measured(json_t *schema)
{
	static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"not", "const", "enum"};
	bool any = false;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		any |= json_object_get(schema, keys[i]) != NULL;
	return any;
}

/* Is each of a list of branches apart from the other? */
static bool branches_are_apart(Schemas *b, json_t *list, json_t *other)
{
	json_t *one;
	size_t i;
	json_array_foreach(list, i, one)
		if (schema_failed(b) || !schemas_are_apart(b, one, other))
			return false;
	return json_array_size(list) > 0;
}

static bool kinds_are_apart(Schemas *b, json_t *one, json_t *other, const char *type)
{
	Lexeme x = {0}, y = {0}, both = {0};
	bool apart = false;
	uint32_t lo, hi;
	if (strcmp(type, "object") == 0)
		return objects_are_apart(b, one, other) || (!schema_failed(b) && objects_are_apart(b, other, one));
	if (strcmp(type, "string") == 0 && schema_is_plain_string(one) && schema_is_plain_string(other))
		return lengths_are_apart(b, one, other) || lengths_are_apart(b, other, one);
	if (strcmp(type, "string") == 0)
		apart = schema_uncounted(b, one, &x, &lo, &hi) && schema_uncounted(b, other, &y, &lo, &hi) &&
			lexeme_combine(&x, &y, BOTH, &both, &b->g->effort) && lexeme_is_empty(&both);
	else if ((strcmp(type, "number") == 0 || strcmp(type, "integer") == 0) && (is_measured(one) || is_measured(other)))
		apart = schema_number(b, one, !schema_allows(one, "number"), &x) &&
			schema_number(b, other, !schema_allows(other, "number"), &y) &&
			lexeme_combine(&x, &y, BOTH, &both, &b->g->effort) && lexeme_is_empty(&both);
	lexeme_free(&x);
	lexeme_free(&y);
	lexeme_free(&both);
	return apart;
}

/* What `one` and `other` say by themselves, without branches and `not`, which only leave less. */
static bool are_apart(Schemas *b, json_t *one, json_t *other)
{
	static const char *const types[] = {"null", "boolean", "object", "array", "number", "integer", "string"};
	if (json_is_true(one) || json_is_true(other))
		return false;
	if (json_is_false(one) || json_is_false(other) || values_are_apart(b, one, other) ||
		values_are_apart(b, other, one))
		return true;
	if (json_object_get(one, "const") || json_object_get(one, "enum") || json_object_get(other, "const") ||
		json_object_get(other, "enum"))
		return false; /* one of the values is of both */
	if (branches_are_apart(b, json_object_get(one, "anyOf"), other) ||
		branches_are_apart(b, json_object_get(one, "oneOf"), other) ||
		branches_are_apart(b, json_object_get(other, "anyOf"), one) ||
		branches_are_apart(b, json_object_get(other, "oneOf"), one))
		return !schema_failed(b);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (schema_allows(one, types[i]) && schema_allows(other, types[i]) && schema_allows(b->context, types[i]) &&
			!kinds_are_apart(b, one, other, types[i]))
			return false;
	return !schema_failed(b);
}

bool schemas_are_apart(Schemas *b, json_t *one, json_t *other)
{
	enum { MOST_APART = 5 /* schemas inside each other that are looked into */ };
	b->g->effort.left -= 200;
	if (b->apart >= MOST_APART || b->g->effort.left < 0)
		return false;
	one = schema_resolve(b, one);
	other = one ? schema_resolve(b, other) : NULL;
	if (!one || !other)
		return false;
	json_t *known = b->context ? NULL : find_pair(b, one, other, PAIR_APART);
	if (!known) {
		b->apart++;
		known = json_boolean(are_apart(b, one, other));
		b->apart--;
		if (!b->context && !schema_failed(b))
			keep_pair(b, one, other, known, PAIR_APART);
	}
	return json_is_true(known) && !schema_failed(b);
}
