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

/* Lists of which some items are also of `contains`: cells by how many items there are and how many of them are. */
typedef struct Cells {
	Items items;
	uint32_t lo, hi, least, most; /* items; of those that are found */
	uint32_t n, last;             /* of `items.first`; from here on all places are alike */
	uint32_t found;               /* counts of those found: beyond are as good as the last */
	bool is_unique;
	uint32_t *other, *one;        /* [n + 1] nodes of an item that is not counted, and of one that is */
	uint32_t *at;                 /* [last + 1, found + 1] */
} Cells;

/* Items that `contains` takes, and others: any, unless there may be too many. */
static bool make_items(Schemas *b, json_t *schema, Cells *k)
{
	json_t *contains = json_object_get(schema, "contains");
	const uint32_t fresh = k->is_unique ? node_add(b->g, (Node){.kind = NODE_FRESH}) : EMPTY;
	b->g->has_fresh |= k->is_unique;
	for (uint32_t i = 0; i <= k->n && !schema_failed(b); i++) {
		json_t *item = i < k->n ? json_array_get(k->items.first, i) : k->items.rest;
		json_t *is_not = schema_keep(b, json_pack("{s:O}", "not", contains));
		size_t before = i < k->n ? schema_down_to(b, k->items.first_key, i) : schema_down(b, k->items.rest_key);
		json_t *other = k->most == ENDLESS ? item : item ? schema_both(b, item, is_not) : is_not;
		if (!schema_failed(b))
			k->other[i] = !other ? b->any : other == item ? schema_node(b, other) : schema_rule(b, other);
		schema_up(b, before);
		before = schema_down(b, "contains");
		json_t *both = schema_failed(b) ? NULL : item ? schema_both(b, item, contains) : contains;
		k->one[i] = NODE_LIST_OF(b->g, both ? schema_rule(b, both) : NONE, fresh);
		k->other[i] = NODE_LIST_OF(b->g, k->other[i], fresh);
		schema_up(b, before);
	}
	return !schema_failed(b);
}

/* What follows where c items are written and f of them were found. */
static uint32_t cell(Schemas *b, const Cells *k, uint32_t separator, uint32_t c, uint32_t f)
{
	Grammar *g = b->g;
	uint32_t ways[3], n = 0;
	const bool is_last = c == k->last, loops = is_last && k->hi == ENDLESS;
	const uint32_t i = c < k->n ? c : k->n, row = loops ? c : c + 1, sign = c > 0 ? separator : EMPTY;
	const uint32_t *after = k->at + (size_t)row * (k->found + 1);
	if (c >= k->lo && f >= k->least)
		ways[n++] = EMPTY;
	if (!is_last || loops) {
		ways[n++] = NODE_LIST_OF(g, sign, k->other[i], after[f]);
		if (f < k->found || k->most == ENDLESS)
			ways[n++] = f == k->found ? NONE : NODE_LIST_OF(g, sign, k->one[i], after[f + 1]);
	}
	return node_all(g, NODE_EITHER, ways, n);
}

static uint32_t cells_node(Schemas *b, Cells *k, uint32_t separator)
{
	Grammar *g = b->g;
	const uint32_t row = k->found + 1;
	for (uint32_t f = 0; f < row && k->hi == ENDLESS; f++)
		k->at[k->last * row + f] = node_rule(g);
	for (uint32_t c = k->last + 1; c-- > 0 && !schema_failed(b);)
		for (uint32_t f = row; f-- > 0 && !schema_failed(b);) {
			const uint32_t node = cell(b, k, separator, c, f);
			if (c == k->last && k->hi == ENDLESS && !schema_failed(b))
				g->nodes[k->at[c * row + f]].a = node;
			else
				k->at[c * row + f] = node;
		}
	return schema_failed(b) ? NONE : NODE_LIST_OF(g, text(b, "["), k->at[0], text(b, "]"));
}

/* Is no object in it, whose members may come in another order where it is found? */
static bool has_objects(Schemas *b, json_t *schema)
{
	schema = schema ? schema_resolve(b, schema) : json_true();
	return schema_failed(b) || schema_allows(schema, "object") || schema_allows(schema, "array");
}

static uint32_t contains_node(Schemas *b, json_t *schema, Cells k)
{
	json_t *contains = json_object_get(schema, "contains");
	const uint32_t separator = b->separator;
	const bool was_tight = b->is_tight;
	if (k.is_unique && has_objects(b, contains) && (k.n > 0 || has_objects(b, k.items.rest)))
		return schema_failed(b) ? NONE
			: schema_refuse(b, "contains", "contains of objects and lists is not supported next to uniqueItems");
	k.last = k.hi != ENDLESS ? k.hi : k.lo > k.n ? k.lo : k.n;
	k.last = k.last < 1 && k.hi == ENDLESS ? 1 : k.last;
	k.found = k.most != ENDLESS ? (k.most < k.last || k.hi == ENDLESS ? k.most : k.last) : k.least;
	if ((uint64_t)(k.last + 1) * (k.found + 1) > MOST_CELLS)
		return schema_refuse(b, k.hi != ENDLESS ? "maxItems" : "minItems", "it is too large next to contains");
	if (k.lo > k.hi || k.least > k.most || k.least > k.found)
		return NONE;
	k.other = calloc((size_t)k.n + 1, sizeof *k.other);
	k.one = calloc((size_t)k.n + 1, sizeof *k.one);
	k.at = calloc((size_t)(k.last + 2) * (k.found + 1), sizeof *k.at);
	schema_tighten(b, was_tight || k.is_unique);
	bool ok = (k.other && k.one && k.at) || effort_refuse(&b->g->effort, "there is no memory", -1);
	ok = ok && make_items(b, schema, &k);
	schema_tighten(b, was_tight);
	const uint32_t node = ok ? cells_node(b, &k, separator) : NONE;
	free(k.other);
	free(k.one);
	free(k.at);
	return node;
}

uint32_t schema_array(Schemas *b, json_t *schema)
{
	uint32_t lo = 0, hi = ENDLESS, least = 1, most = ENDLESS;
	Items of;
	if (!schema_count(b, schema, "minItems", &lo) || !schema_count(b, schema, "maxItems", &hi) ||
		!schema_count(b, schema, "minContains", &least) || !schema_count(b, schema, "maxContains", &most) ||
		!schema_items(b, schema, &of))
		return NONE;
	const uint32_t n = (uint32_t)json_array_size(of.first);
	const bool is_unique = json_is_true(json_object_get(schema, "uniqueItems")) && hi > 1;
	if (is_unique && of.rest && n == 0) {
		const uint32_t values = count_values(b, of.rest);
		hi = values < hi ? values : hi;
	}
	if (json_object_get(schema, "contains") && (least > 0 || most != ENDLESS))
		return contains_node(b, schema, (Cells){.items = of, .lo = lo, .hi = hi, .least = least, .most = most, .n = n,
			.is_unique = is_unique});
	const bool was_tight = b->is_tight;
	const uint32_t separator = b->separator, fresh = is_unique ? node_add(b->g, (Node){.kind = NODE_FRESH}) : EMPTY;
	b->g->has_fresh |= is_unique;
	schema_tighten(b, was_tight || is_unique);
	size_t before = schema_down(b, of.rest_key);
	uint32_t item = of.rest && n < hi ? schema_node(b, of.rest) : b->any;
	schema_up(b, before);
	if (is_unique)
		item = NODE_LIST_OF(b->g, item, fresh);
	b->separator = separator;
	uint32_t rest = items_node(b, item, less(lo, n), less(hi, n), n > 0);
	for (size_t i = n; i-- > 0 && !schema_failed(b);) {
		schema_tighten(b, was_tight || is_unique);
		before = schema_down_to(b, of.first_key, i);
		const uint32_t node = schema_node(b, json_array_get(of.first, i));
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

/* Keys that match the same patterns: their names, and what their values must be (NULL: they match none). */
typedef struct Part { Lexeme names; json_t *value; char pointer[sizeof((Schemas){0}).pointer]; } Part;
typedef struct Parts { Part *of; uint32_t n, cap; } Parts;

/* Of part i the keys that match become one of its own. */
static bool split(Schemas *b, Parts *p, uint32_t i, const Lexeme *matching, json_t *value)
{
	Part *part = &p->of[i];
	Lexeme mine = {0}, rest = {0};
	if (!lexeme_combine(&part->names, matching, BOTH, &mine, &b->g->effort) || lexeme_is_empty(&mine)) {
		lexeme_free(&mine);
		return !schema_failed(b);
	}
	json_t *both = part->value ? schema_both(b, part->value, value) : value;
	bool ok = both && lexeme_combine(&part->names, matching, FIRST_ONLY, &rest, &b->g->effort);
	if (p->n >= 64)
		ok = schema_refuse(b, NULL, "keys may match too many of the patterns together");
	if (!ok || !GROW(&b->g->effort, p->of, p->cap, p->n + 1)) {
		lexeme_free(&mine);
		lexeme_free(&rest);
		return false;
	}
	part = &p->of[i];
	lexeme_free(&part->names);
	part->names = rest;
	p->of[p->n] = (Part){.names = mine, .value = both};
	memcpy(p->of[p->n++].pointer, b->pointer, sizeof b->pointer);
	return true;
}

/* Members that are not named; takes `names`, of all their keys. `other`: node of those that match no pattern. */
static bool add_unnamed(Schemas *b, Members *m, Lexeme *names, uint32_t other)
{
	const char *pattern;
	json_t *schema;
	Parts p = {0};
	bool ok = GROW(&b->g->effort, p.of, p.cap, 1);
	if (ok)
		p.of[p.n++] = (Part){.names = *names};
	else
		lexeme_free(names);
	*names = (Lexeme){0};
	const size_t before = schema_down(b, "patternProperties");
	json_object_foreach(m->patterns, pattern, schema) {
		Lexeme all = {0};
		ok = ok && schema_pattern(b, pattern, pattern, PART, &all);
		const size_t above = schema_down(b, pattern);
		for (uint32_t i = 0, n = p.n; i < n && ok; i++)
			ok = split(b, &p, i, &all, schema);
		schema_up(b, above);
		lexeme_free(&all);
	}
	schema_up(b, before);
	uint32_t *nodes = calloc((size_t)p.n + 1, sizeof *nodes), n = 0;
	ok = ok && (nodes || effort_refuse(&b->g->effort, "there is no memory", -1));
	for (uint32_t i = 0; i < p.n; i++) {
		Part *part = &p.of[i];
		if (ok && !lexeme_is_empty(&part->names)) {
			char pointer[sizeof b->pointer];
			memcpy(pointer, b->pointer, sizeof pointer);
			const size_t n_pointer = b->n_pointer;
			if (part->value) {
				memcpy(b->pointer, part->pointer, sizeof pointer);
				b->n_pointer = strlen(b->pointer);
			}
			const uint32_t value = part->value ? schema_rule(b, part->value) : other;
			memcpy(b->pointer, pointer, sizeof pointer);
			b->n_pointer = n_pointer;
			nodes[n++] = keyed(b, &part->names, value);
		}
		lexeme_free(&part->names);
	}
	if (ok)
		m->others = n ? node_all(b->g, NODE_EITHER, nodes, n) : NONE;
	free(p.of);
	free(nodes);
	return ok && !schema_failed(b);
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
	const bool ok = lexeme_copy(&b->g->string, &names, &b->g->effort) && known_names(b, m, &known) &&
		take_away(b, &names, &known, FIRST_ONLY) && (!m->has_names || take_away(b, &names, &m->names, BOTH)) &&
		add_unnamed(b, m, &names, value);
	lexeme_free(&names);
	lexeme_free(&known);
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
