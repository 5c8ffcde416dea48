/* schema_object.c - objects and arrays: what has members, and how many. */
#include "runtime/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CELLS = 20000 /* members by counts of members */ };

static uint32_t text(Schemas *b, const char *s) { return node_text(b->g, s, strlen(s)); }

/* `item`s with separators between, from lo to hi of them; `are_before`: something is before the first. */
static uint32_t items_node(Schemas *b, uint32_t item, uint32_t lo, uint32_t hi, bool are_before)
{
	Grammar *g = b->g;
	if (lo > hi)
		return NONE;
	if (item == NONE)
		return lo == 0 ? EMPTY : NONE;
	const uint32_t others = NODE_LIST_OF(g, b->separator, item);
	if (are_before)
		return node_repeat(g, others, lo, hi);
	if (hi == 0)
		return EMPTY;
	const uint32_t some = NODE_LIST_OF(g, item,
		node_repeat(g, others, lo ? lo - 1 : 0, hi == ENDLESS ? ENDLESS : hi - 1));
	return lo > 0 ? some : NODE_EITHER_OF(g, EMPTY, some);
}

static uint32_t less(uint32_t n, uint32_t gone) { return n == ENDLESS ? n : n > gone ? n - gone : 0; }

/* Arrays ------------------------------------------------------------ */

/* How many different values there are; ENDLESS: many. */
static uint32_t count_values(Schemas *b, json_t *schema)
{
	schema = schema_resolve(b, schema);
	json_t *values = json_object_get(schema, "enum");
	uint32_t n = 0;
	if (json_object_get(schema, "const"))
		return 1;
	for (size_t i = 0; i < json_array_size(values); i++) {
		bool is_new = schema_takes(b, schema, json_array_get(values, i));
		for (size_t k = 0; k < i && is_new; k++)
			is_new = !schema_same(json_array_get(values, i), json_array_get(values, k));
		n += is_new;
	}
	if (values || !schema || json_is_false(schema))
		return n;
	return schema_allows(schema, "object") || schema_allows(schema, "array") || schema_allows(schema, "string") ||
			schema_allows(schema, "integer") ? ENDLESS
		: 2u * schema_allows(schema, "boolean") + schema_allows(schema, "null");
}

/* Lists of items of which one at least is of `found`. */
static uint32_t containing(Schemas *b, uint32_t item, uint32_t found, uint32_t lo, uint32_t hi)
{
	Grammar *g = b->g;
	const uint32_t most = hi == ENDLESS ? (lo > 1 ? lo : 1) : hi;
	uint32_t *nodes = calloc((size_t)most + 1, sizeof *nodes), n = 0, all = NONE;
	const uint32_t before = NODE_LIST_OF(g, item, b->separator), after = NODE_LIST_OF(g, b->separator, item);
	if (!nodes)
		return effort_refuse(&g->effort, "there is no memory", -1);
	for (uint32_t i = 0; i < most && !schema_failed(b); i++) { /* that many before the first of `found`, or more */
		const uint32_t left = lo > i + 1 ? lo - i - 1 : 0, room = hi == ENDLESS ? ENDLESS : hi - i - 1;
		const bool is_last = hi == ENDLESS && i == most - 1;
		nodes[n++] = NODE_LIST_OF(g, node_repeat(g, before, i, is_last ? ENDLESS : i), found,
			left <= room ? node_repeat(g, after, left, room) : NONE);
	}
	if (!schema_failed(b))
		all = node_all(g, NODE_EITHER, nodes, n);
	free(nodes);
	return all;
}

static uint32_t contains_node(Schemas *b, json_t *schema, uint32_t lo, uint32_t hi)
{
	json_t *items = json_object_get(schema, "items"), *contains = json_object_get(schema, "contains");
	if (json_is_array(items) || json_object_get(schema, "prefixItems"))
		return schema_refuse(b, "contains", "contains is not supported next to prefixItems");
	if (hi != ENDLESS && hi > 1000)
		return schema_refuse(b, "maxItems", "it is too large next to contains");
	if (hi == 0 || lo > hi)
		return NONE;
	size_t before = schema_down(b, "items");
	const uint32_t item = items ? schema_node(b, items) : b->any;
	schema_up(b, before);
	before = schema_down(b, "contains");
	json_t *both = schema_failed(b) ? NULL : items ? schema_both(b, items, contains) : contains;
	const uint32_t found = both ? schema_rule(b, both) : NONE;
	schema_up(b, before);
	const uint32_t inner = schema_failed(b) ? NONE : containing(b, item, found, lo < 1 ? 1 : lo, hi);
	return schema_failed(b) ? NONE : NODE_LIST_OF(b->g, text(b, "["), inner, text(b, "]"));
}

uint32_t schema_array(Schemas *b, json_t *schema)
{
	uint32_t lo = 0, hi = ENDLESS;
	json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
	const char *items_key = "items", *prefix_key = "prefixItems";
	if (!schema_count(b, schema, "minItems", &lo) || !schema_count(b, schema, "maxItems", &hi))
		return NONE;
	const bool is_unique = json_is_true(json_object_get(schema, "uniqueItems")) && hi > 1;
	json_t *least = json_object_get(schema, "minContains");
	if (json_object_get(schema, "contains") && (json_object_get(schema, "maxContains") ||
			(least && json_number_value(least) > 1)))
		return schema_refuse(b, "contains", "another count than one at least is not supported");
	if (json_object_get(schema, "contains") && !(least && json_number_value(least) == 0))
		return is_unique ? schema_refuse(b, "contains", "contains is not supported next to uniqueItems")
			: contains_node(b, schema, lo, hi);
	if (json_is_array(items)) { /* before draft 2020-12 */
		prefix = items;
		items = json_object_get(schema, "additionalItems");
		prefix_key = "items";
		items_key = "additionalItems";
	}
	if (prefix && !json_is_array(prefix))
		return schema_refuse(b, prefix_key, "a list of schemas is expected");
	const size_t n = json_array_size(prefix);
	if (is_unique && items && n == 0) {
		const uint32_t values = count_values(b, items);
		hi = values < hi ? values : hi;
	}
	const bool was_tight = b->is_tight;
	const uint32_t separator = b->separator, fresh = is_unique ? node_add(b->g, (Node){.kind = NODE_FRESH}) : EMPTY;
	b->g->has_fresh |= is_unique;
	schema_tighten(b, was_tight || is_unique);
	size_t before = schema_down(b, items_key);
	uint32_t item = items && (n < hi) ? schema_node(b, items) : b->any;
	schema_up(b, before);
	if (is_unique)
		item = NODE_LIST_OF(b->g, item, fresh);
	b->separator = separator;
	uint32_t rest = items_node(b, item, less(lo, (uint32_t)n), less(hi, (uint32_t)n), n > 0);
	for (size_t i = n; i-- > 0 && !schema_failed(b);) {
		schema_tighten(b, was_tight || is_unique);
		before = schema_down_to(b, prefix_key, i);
		const uint32_t node = schema_node(b, json_array_get(prefix, i));
		schema_up(b, before);
		const uint32_t more = NODE_LIST_OF(b->g, i ? separator : EMPTY, node, fresh, rest);
		rest = i >= hi ? EMPTY : i < lo ? more : NODE_EITHER_OF(b->g, EMPTY, more);
	}
	schema_tighten(b, was_tight);
	if (lo > hi)
		return NONE;
	return schema_failed(b) ? NONE : NODE_LIST_OF(b->g, text(b, "["), rest, text(b, "]"));
}

/* Objects ------------------------------------------------------------ */

typedef struct Member { const char *key; uint32_t node; bool is_required; } Member;

typedef struct Members {
	json_t *schema, *properties, *required, *patterns;
	Member *of; uint32_t n, cap;
	uint32_t others;       /* node of a member that is none of these; NONE: there is none */
	uint32_t lo, hi;
	Lexeme names;          /* that propertyNames allows */
	bool has_names;
} Members;

static bool is_required(const Members *m, const char *key)
{
	size_t i;
	json_t *name;
	json_array_foreach(m->required, i, name)
		if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
			return true;
	return false;
}

/* "key": value, with the key as it is. */
static uint32_t member_node(Schemas *b, const char *key, uint32_t value)
{
	size_t n;
	char *quoted = schema_quoted(key, strlen(key), &n);
	if (!quoted)
		return effort_refuse(&b->g->effort, "there is no memory", -1);
	const uint32_t name = node_text(b->g, quoted, n);
	free(quoted);
	return NODE_LIST_OF(b->g, text(b, "\""), name, b->colon, value);
}

static bool name_fits(const Members *m, const char *key)
{
	size_t n;
	char *quoted = m->has_names ? schema_quoted(key, strlen(key), &n) : NULL;
	const bool fits = !m->has_names || (quoted && lexeme_has(&m->names, quoted, n));
	free(quoted);
	return fits;
}

static bool add_member(Schemas *b, Members *m, const char *key, json_t *schema, const char *under)
{
	if (!GROW(&b->g->effort, m->of, m->cap, m->n + 1))
		return false;
	size_t before = under ? schema_down(b, under) : b->n_pointer;
	if (under)
		schema_down(b, key);
	json_t *all = schema;
	const char *pattern;
	json_t *also;
	json_object_foreach(m->patterns, pattern, also) {
		Lexeme l;
		size_t n;
		char *quoted = schema_quoted(key, strlen(key), &n);
		if (quoted && under && schema_pattern(b, NULL, pattern, PART, &l)) {
			if (lexeme_has(&l, quoted, n))
				all = schema_both(b, all, also);
			lexeme_free(&l);
		}
		free(quoted);
		if (!all || schema_failed(b))
			break;
	}
	uint32_t value = NONE;
	if (all && name_fits(m, key))
		value = all == schema ? schema_node(b, all) : schema_rule(b, all);
	schema_up(b, before);
	m->of[m->n++] = (Member){key, member_node(b, key, value), is_required(m, key)};
	return !schema_failed(b);
}

static bool add_members(Schemas *b, Members *m)
{
	const char *key;
	json_t *schema, *name;
	size_t i;
	json_object_foreach(m->properties, key, schema)
		if (!add_member(b, m, key, schema, "properties"))
			return false;
	json_array_foreach(m->required, i, name) {
		const char *text_of = json_string_value(name);
		bool is_there = false;
		if (!text_of)
			return schema_refuse(b, "required", "a list of strings is expected");
		for (uint32_t k = 0; k < m->n; k++)
			is_there |= strcmp(m->of[k].key, text_of) == 0;
		if (is_there)
			continue;
		schema = schema_for_others(b, m->schema, text_of);
		if (!schema || !add_member(b, m, text_of, schema, NULL))
			return false;
	}
	return true;
}

/* Takes from *l what `gone` has. */
static bool take_away(Schemas *b, Lexeme *l, const Lexeme *gone, Combine how)
{
	Lexeme rest;
	if (!lexeme_combine(l, gone, how, &rest, &b->g->effort))
		return false;
	lexeme_free(l);
	*l = rest;
	return true;
}

/* The keys of the members, quoted, as a lexeme. */
static bool known_names(Schemas *b, const Members *m, Lexeme *l)
{
	char **texts = calloc(m->n + 1, sizeof *texts);
	size_t *n = calloc(m->n + 1, sizeof *n);
	bool ok = texts && n;
	*l = (Lexeme){0};
	for (uint32_t i = 0; ok && i < m->n; i++)
		ok = (texts[i] = schema_quoted(m->of[i].key, strlen(m->of[i].key), &n[i])) != NULL;
	ok = ok ? lexeme_of_texts((const char *const *)texts, n, m->n, l, &b->g->effort)
		: effort_refuse(&b->g->effort, "there is no memory", -1);
	for (uint32_t i = 0; texts && i < m->n; i++)
		free(texts[i]);
	free(texts);
	free(n);
	return ok;
}

static uint32_t keyed(Schemas *b, Lexeme *key, uint32_t value)
{
	const uint32_t name = node_lexeme(b->g, key);
	return name == NONE || value == NONE ? NONE : NODE_LIST_OF(b->g, text(b, "\""), name, b->colon, value);
}

/* Members whose keys match patterns; takes their keys from `free_names`. */
static bool add_patterns(Schemas *b, Members *m, Lexeme *free_names, uint32_t *nodes, uint32_t *n)
{
	const char *pattern;
	json_t *schema;
	json_object_foreach(m->patterns, pattern, schema) {
		Lexeme all = {0}, mine = {0}, rest = {0};
		const size_t before = schema_down(b, "patternProperties");
		bool ok = schema_pattern(b, pattern, pattern, PART, &all) &&
			lexeme_combine(free_names, &all, BOTH, &mine, &b->g->effort) &&
			lexeme_combine(free_names, &all, FIRST_ONLY, &rest, &b->g->effort);
		schema_down(b, pattern);
		const uint32_t value = ok ? schema_node(b, schema) : NONE;
		if (ok && !schema_failed(b))
			nodes[(*n)++] = keyed(b, &mine, value);
		schema_up(b, before);
		lexeme_free(&all);
		lexeme_free(&mine);
		lexeme_free(free_names);
		*free_names = rest;
		if (schema_failed(b))
			return false;
	}
	return true;
}

/* A key that matches two patterns has a value of both schemas: such are refused, unless the schemas are equal. */
static bool check_overlap(Schemas *b, const Members *m)
{
	const char *one, *other;
	json_t *a, *c;
	json_object_foreach(m->patterns, one, a)
		json_object_foreach(m->patterns, other, c) {
			Lexeme x = {0}, y = {0}, both = {0};
			if (strcmp(one, other) >= 0 || json_equal(a, c))
				continue;
			const bool ok = schema_pattern(b, "patternProperties", one, PART, &x) &&
				schema_pattern(b, "patternProperties", other, PART, &y) &&
				lexeme_combine(&x, &y, BOTH, &both, &b->g->effort);
			const bool meet = ok && !lexeme_is_empty(&both);
			lexeme_free(&x);
			lexeme_free(&y);
			lexeme_free(&both);
			if (meet)
				return schema_refuse(b, "patternProperties", "a key may match two of the patterns");
			if (!ok)
				return false;
		}
	return true;
}

static bool add_others(Schemas *b, Members *m)
{
	json_t *given = json_object_get(m->schema, "additionalProperties");
	const char *key = given ? "additionalProperties" : "unevaluatedProperties";
	given = given ? given : json_object_get(m->schema, key);
	const size_t before = schema_down(b, key);
	const uint32_t value = given ? schema_node(b, given) : b->any;
	schema_up(b, before);
	const uint32_t n_patterns = (uint32_t)json_object_size(m->patterns);
	if (schema_failed(b) || (value == NONE && n_patterns == 0))
		return !schema_failed(b);
	if (m->n == 0 && n_patterns == 0 && !m->has_names) {
		const uint32_t name = node_add(b->g, (Node){NODE_STRING, 0, ENDLESS, 0});
		m->others = NODE_LIST_OF(b->g, text(b, "\""), name, b->colon, value);
		return true;
	}
	Lexeme names = {0}, known = {0};
	uint32_t *nodes = calloc(n_patterns + 1, sizeof *nodes), n = 0;
	bool ok = nodes && check_overlap(b, m) && lexeme_of_string(&names, &b->g->effort) &&
		known_names(b, m, &known) && take_away(b, &names, &known, FIRST_ONLY) &&
		(!m->has_names || take_away(b, &names, &m->names, BOTH)) && add_patterns(b, m, &names, nodes, &n);
	if (ok && value != NONE)
		nodes[n++] = keyed(b, &names, value);
	if (ok)
		m->others = n ? node_all(b->g, NODE_EITHER, nodes, n) : NONE;
	lexeme_free(&names);
	lexeme_free(&known);
	free(nodes);
	return ok;
}

/* Members from the first on, by how many were written before: counts beyond `most` are as good as that. */
static uint32_t chain(Schemas *b, const Members *m)
{
	Grammar *g = b->g;
	const bool counts_up = m->hi != ENDLESS && (m->others != NONE || m->hi < m->n);
	const uint32_t most = counts_up ? (m->hi < m->n ? m->hi : m->n) : m->lo < 1 ? 1 : m->lo < m->n ? m->lo : m->n;
	const uint32_t cells = most < 1 ? 1 : most;
	if ((uint64_t)(m->n + 1) * (cells + 1) > MOST_CELLS)
		return schema_refuse(b, m->hi != ENDLESS ? "maxProperties" : "minProperties", "it is too large here");
	if (m->others != NONE && m->lo > m->n + 1 && m->hi > m->n + 1)
		return schema_refuse(b, "minProperties", "more than one property that is not named cannot be counted: keys of "
			"such may be equal");
	uint32_t *at = calloc(cells + 2, sizeof *at), root;
	if (!at)
		return effort_refuse(&g->effort, "there is no memory", -1);
	for (uint32_t c = 0; c <= cells; c++) /* of the others only one counts as new: their keys may be equal */
		at[c] = less(m->lo, c) > 1 && m->others != NONE ? NONE
			: items_node(b, m->others, less(m->lo, c), b->is_tight && less(m->hi, c) > 1 ? 1 : less(m->hi, c), c > 0);
	for (uint32_t i = m->n; i-- > 0 && !schema_failed(b);)
		for (uint32_t c = 0; c <= cells; c++) {
			const uint32_t after = c < cells ? at[c + 1] : at[cells];
			const bool is_full = m->hi != ENDLESS && counts_up && c >= m->hi;
			const uint32_t with = is_full ? NONE : NODE_LIST_OF(g, c ? b->separator : EMPTY, m->of[i].node, after);
			at[c] = m->of[i].is_required ? with : NODE_EITHER_OF(g, with, at[c]);
		}
	root = at[0];
	free(at);
	return root;
}

static bool read_names(Schemas *b, Members *m, json_t *names)
{
	const size_t before = schema_down(b, "propertyNames");
	const bool ok = schema_strings(b, names, &m->names);
	m->has_names = true;
	schema_up(b, before);
	return ok;
}

uint32_t schema_object(Schemas *b, json_t *schema)
{
	Members m = {.schema = schema, .properties = json_object_get(schema, "properties"),
		.required = json_object_get(schema, "required"), .patterns = json_object_get(schema, "patternProperties"),
		.hi = ENDLESS};
	json_t *names = json_object_get(schema, "propertyNames");
	if (m.properties && !json_is_object(m.properties))
		return schema_refuse(b, "properties", "an object is expected");
	if (m.patterns && !json_is_object(m.patterns))
		return schema_refuse(b, "patternProperties", "an object is expected");
	if (m.required && !json_is_array(m.required)) /* in draft 3 true or false, of the property itself */
		return schema_refuse(b, "required", "a list of strings is expected");
	if (!schema_count(b, schema, "minProperties", &m.lo) || !schema_count(b, schema, "maxProperties", &m.hi))
		return NONE;
	if (names && !json_is_true(names) && !read_names(b, &m, names))
		return NONE;
	uint32_t node = NONE;
	if (add_members(b, &m) && add_others(b, &m)) {
		const uint32_t inner = chain(b, &m);
		node = schema_failed(b) ? NONE : NODE_LIST_OF(b->g, text(b, "{"), inner, text(b, "}"));
	}
	free(m.of);
	lexeme_free(&m.names);
	return node;
}
