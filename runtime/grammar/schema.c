/* schema.c - JSON schemas become grammars.
 *
 * Keywords that say nothing about which values are valid are passed over, as are names that no draft knows. Every other
 * keyword is honoured or refused. A schema that is referred to becomes a rule, so schemas may be recursive; rules are
 * compiled one after the other, so that only the nesting of the source takes stack.
 */
#include "runtime/grammar/schema.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A text that was cut to its room ends with a whole character. */
static void end_whole(char *text)
{
	const size_t n = strlen(text), last = n ? utf8_back((const unsigned char *)text, n) : 0;
	uint32_t point;
	if (n && utf8_read((const unsigned char *)text + n - last, last, &point) != (int)last)
		text[n - last] = 0;
}

uint32_t schema_refuse(Schemas *b, const char *key, const char *fmt, ...)
{
	GrammarError *e = b->error;
	if (e->text[0])
		return NONE;
	va_list args;
	va_start(args, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, args);
	va_end(args);
	end_whole(e->text);
	const size_t before = key ? schema_down(b, key) : b->n_pointer;
	snprintf(e->pointer, sizeof e->pointer, "%s", b->pointer);
	end_whole(e->pointer);
	if (key)
		schema_up(b, before);
	return NONE;
}

bool schema_failed(const Schemas *b) { return b->error->text[0] || b->g->effort.why; }

size_t schema_down(Schemas *b, const char *key)
{
	const size_t before = b->n_pointer, most = sizeof b->pointer - 3;
	if (b->n_pointer < most)
		b->pointer[b->n_pointer++] = '/';
	for (const char *c = key; *c && b->n_pointer < most; c++) {
		if (*c == '~' || *c == '/')
			b->pointer[b->n_pointer++] = '~';
		b->pointer[b->n_pointer++] = (char)(*c == '~' ? '0' : *c == '/' ? '1' : *c);
	}
	b->pointer[b->n_pointer] = 0;
	return before;
}

size_t schema_down_to(Schemas *b, const char *key, size_t index)
{
	char number[24];
	const size_t before = schema_down(b, key);
	snprintf(number, sizeof number, "%zu", index);
	schema_down(b, number);
	return before;
}

void schema_up(Schemas *b, size_t before) { b->pointer[b->n_pointer = before] = 0; }

/* Keywords ------------------------------------------------------------ */

/* What would change which values are valid, and is not compiled. */
static const char *const refused[] = {"$dynamicRef", "$recursiveRef", "extends", "disallow",
	"divisibleBy"};

static bool check_keys(Schemas *b, json_t *schema)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		if (json_object_get(schema, refused[i]))
			return schema_refuse(b, refused[i], "%s is not supported", refused[i]);
	return true;
}

bool schema_count(Schemas *b, json_t *schema, const char *key, uint32_t *value)
{
	json_t *found = json_object_get(schema, key);
	if (!found)
		return true;
	const double x = json_is_number(found) ? json_number_value(found) : -1;
	if (!(x >= 0) || x != (double)(int64_t)x)
		return schema_refuse(b, key, "a whole number of 0 or more is expected");
	*value = x < 1e9 ? (uint32_t)x : 1000000000;
	return true;
}

static bool is_type(json_t *given, const char *type)
{
	const char *name = json_string_value(given);
	return name && (strcmp(name, type) == 0 || (strcmp(name, "number") == 0 && strcmp(type, "integer") == 0));
}

bool schema_allows(json_t *schema, const char *type)
{
	json_t *given = json_object_get(schema, "type"), *one;
	size_t i;
	if (!given || is_type(given, type))
		return true;
	json_array_foreach(given, i, one)
		if (is_type(one, type))
			return true;
	return false;
}

static bool check_type(Schemas *b, json_t *schema)
{
	static const char *const types[] = {"null", "boolean", "object", "array", "number", "string", "integer"};
	json_t *given = json_object_get(schema, "type");
	const size_t n = json_is_array(given) ? json_array_size(given) : given ? 1 : 0;
	for (size_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_is_array(given) ? json_array_get(given, i) : given);
		bool known = false;
		for (size_t k = 0; name && k < sizeof types / sizeof types[0]; k++)
			known |= strcmp(types[k], name) == 0;
		if (!known)
			return schema_refuse(b, "type", "a type of JSON is expected");
	}
	return true;
}

/* Types ------------------------------------------------------------ */

static uint32_t text(Schemas *b, const char *s) { return node_text(b->g, s, strlen(s)); }

static uint32_t string_node(Schemas *b, json_t *schema)
{
	uint32_t lo = 0, hi = ENDLESS;
	if (!schema_count(b, schema, "minLength", &lo) || !schema_count(b, schema, "maxLength", &hi))
		return NONE;
	if (schema_is_plain_string(schema))
		return NODE_LIST_OF(b->g, text(b, "\""), node_add(b->g, (Node){.kind = NODE_STRING, .a = lo, .b = hi}));
	return NODE_LIST_OF(b->g, text(b, "\""), schema_string_node(b, schema));
}

static uint32_t number_node(Schemas *b, json_t *schema, bool is_integer)
{
	Lexeme l = {0};
	return schema_number(b, schema, is_integer, &l) ? node_lexeme(b->g, &l) : NONE;
}

typedef uint32_t NodeFn(Schemas *b, json_t *schema);

/* Objects or lists of a schema that may have a `not`. */
static uint32_t members_node(Schemas *b, json_t *schema, const char *type, NodeFn *node)
{
	json_t *no = json_object_get(schema, "not"), *one;
	if (!no)
		return node(b, schema);
	json_t *rest = schema_without(b, schema, "not");
	size_t before = schema_down(b, "not"), i;
	json_t *some = rest ? schema_unlike(b, no, rest, type) : NULL;
	schema_up(b, before);
	const size_t n = json_array_size(some);
	uint32_t *nodes = calloc(n + 1, sizeof *nodes), all = NONE;
	if (rest)
		json_object_set_new(rest, "type", json_string(type));
	json_array_foreach(some, i, one) {
		json_t *both = nodes && !schema_failed(b) ? schema_both(b, rest, one) : NULL;
		if (both)
			nodes[i] = schema_rule(b, both);
	}
	if (some && nodes && !schema_failed(b))
		all = node_all(b->g, NODE_EITHER, nodes, (uint32_t)n);
	free(nodes);
	return all;
}

static bool takes_word(Schemas *b, json_t *schema, json_t *word)
{
	json_t *no = json_object_get(schema, "not");
	return schema_allows(schema, schema_type_of(word)) && (!no || !schema_takes(b, no, word));
}

/* Values of each type that the schema allows. */
static uint32_t typed_node(Schemas *b, json_t *schema)
{
	uint32_t kinds[7], n = 0;
	json_t *no = json_object_get(schema, "not");
	const bool number = schema_allows(schema, "number") && !(no && schema_takes_all(b, no, "number"));
	const bool integer = schema_allows(schema, "integer") && !(no && schema_takes_all(b, no, "integer"));
	if (schema_allows(schema, "object"))
		kinds[n++] = members_node(b, schema, "object", schema_object);
	if (schema_allows(schema, "array"))
		kinds[n++] = members_node(b, schema, "array", schema_array);
	if (schema_allows(schema, "string") && !(no && schema_takes_all(b, no, "string")))
		kinds[n++] = string_node(b, schema);
	if (number || integer)
		kinds[n++] = number_node(b, schema, !number);
	if (takes_word(b, schema, json_true()))
		kinds[n++] = text(b, "true");
	if (takes_word(b, schema, json_false()))
		kinds[n++] = text(b, "false");
	if (takes_word(b, schema, json_null()))
		kinds[n++] = text(b, "null");
	return schema_failed(b) ? NONE : node_all(b->g, NODE_EITHER, kinds, n);
}

/* Combinations ------------------------------------------------------------ */

/* Are only names there that no value is measured by? */
static bool is_free(json_t *schema)
{
	static const char *const measures[] = {"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "properties",
		"required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
		"unevaluatedProperties", "unevaluatedItems", "items", "prefixItems", "additionalItems", "minItems", "maxItems",
		"uniqueItems",
		"minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"multipleOf", "not", "if", "contains", "dependentRequired", "dependentSchemas", "dependencies"};
	for (size_t i = 0; i < sizeof measures / sizeof measures[0]; i++)
		if (json_object_get(schema, measures[i]))
			return false;
	return true;
}

/* Of each branch what is in no other one: where two meet, both exclude each other. */
static bool set_apart(Schemas *b, json_t **branches, size_t n)
{
	json_t **others = calloc(n, sizeof *others); /* lists of those that each meets */
	bool ok = others || effort_refuse(&b->g->effort, "there is no memory", -1);
	for (size_t i = 0; i < n && ok; i++)
		ok = (others[i] = schema_keep(b, json_array())) != NULL;
	for (size_t i = 0; i < n && ok; i++)
		for (size_t k = 0; k < i && ok; k++) {
			ok = effort_spend(&b->g->effort, 2000) && !schema_failed(b);
			if (ok && !schemas_are_apart(b, branches[i], branches[k])) {
				json_array_append(others[i], branches[k]);
				json_array_append(others[k], branches[i]);
			}
			ok = ok && !schema_failed(b);
		}
	for (size_t i = 0; i < n && ok; i++)
		if (json_array_size(others[i]) > 0)
			ok = (branches[i] = schema_keep(b, json_pack("{s:[O], s:{s:O}}", "allOf", branches[i], "not", "anyOf",
				others[i]))) != NULL;
	free(others);
	return ok;
}

/* Names of the properties, in the order in which they are written. */
static json_t *names_of(json_t *schema)
{
	json_t *all = json_array(), *one;
	const char *key;
	size_t i;
	json_object_foreach(json_object_get(schema, "properties"), key, one)
		if (!json_is_false(one))
			json_array_append_new(all, json_string(key));
	json_array_foreach(json_object_get(schema, "required"), i, one)
		if (!json_object_get(json_object_get(schema, "properties"), json_string_value(one)))
			json_array_append(all, one);
	return all;
}

/* Is each object of two branches written alike by both? */
static bool are_of_one_order(Schemas *b, json_t *const *branches, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++) {
			json_t *one = schema_resolve(b, branches[i]), *other = one ? schema_resolve(b, branches[k]) : NULL;
			if (!one || !other)
				return false;
			if (!schema_allows(one, "object") || !schema_allows(other, "object"))
				continue;
			json_t *mine = names_of(one), *yours = names_of(other);
			const bool same = json_equal(mine, yours);
			json_decref(mine);
			json_decref(yours);
			if (!same && !schemas_are_apart(b, one, other))
				return schema_failed(b) ? false
					: schema_refuse(b, key, "an object may be of %zu and of %zu with another order of its properties, "
						"which is not supported where items must differ", k, i);
		}
	return true;
}

/* anyOf or oneOf: each branch together with the other keywords. */
static uint32_t branches_node(Schemas *b, json_t *schema, const char *key)
{
	json_t *list = json_object_get(schema, key), *rest = schema_without(b, schema, key);
	const size_t n = json_array_size(list);
	if (n == 0)
		return schema_refuse(b, key, "a list of schemas is expected");
	if (!rest)
		return NONE;
	json_t **branches = malloc(sizeof(json_t *) * n);
	uint32_t *nodes = malloc(sizeof *nodes * n), node = NONE;
	const bool alone = is_free(rest), has_room = branches && nodes;
	json_object_del(rest, "unevaluatedProperties"); /* they hold of the whole */
	json_object_del(rest, "unevaluatedItems");
	bool ok = has_room || effort_refuse(&b->g->effort, "there is no memory", -1);
	for (size_t i = 0; i < n && ok; i++) {
		const size_t before = schema_down_to(b, key, i);
		branches[i] = alone ? json_array_get(list, i)
			: schema_closed(b, schema_both(b, rest, json_array_get(list, i)), schema);
		ok = branches[i] != NULL;
		schema_up(b, before);
	}
	ok = ok && (strcmp(key, "oneOf") != 0 || b->joins_one_of || set_apart(b, branches, n));
	ok = ok && (!b->is_tight || are_of_one_order(b, branches, n, key));
	for (size_t i = 0; i < n && ok; i++) {
		const size_t before = schema_down_to(b, key, i);
		nodes[i] = alone ? schema_node(b, branches[i]) : schema_rule(b, branches[i]);
		ok = !schema_failed(b);
		schema_up(b, before);
	}
	if (ok)
		node = node_all(b->g, NODE_EITHER, nodes, (uint32_t)n);
	free(branches);
	free(nodes);
	return node;
}

bool schema_check(Schemas *b, json_t *schema) { return check_keys(b, schema) && check_type(b, schema); }

static uint32_t object_node(Schemas *b, json_t *schema)
{
	if (!schema_check(b, schema))
		return NONE;
	json_t *value = json_object_get(schema, "const"), *all = json_object_get(schema, "enum");
	if (schema_has_conditions(schema) || json_object_get(schema, "$ref") ||
		json_object_get(schema, "allOf")) {
		json_t *target = json_object_get(schema, "$ref") && is_free(schema_without(b, schema, "$ref"))
			? schema_at(b, json_string_value(json_object_get(schema, "$ref")))
			: schema_resolve(b, schema);
		return target ? schema_rule(b, target) : NONE;
	}
	if (json_object_get(schema, "anyOf"))
		return branches_node(b, schema, "anyOf");
	if (json_object_get(schema, "oneOf"))
		return branches_node(b, schema, "oneOf");
	if (value)
		return schema_enum(b, schema, NULL);
	if (all)
		return schema_enum(b, schema, all);
	return is_free(schema) ? b->any : typed_node(b, schema);
}

uint32_t schema_node(Schemas *b, json_t *schema)
{
	if (schema_failed(b))
		return NONE;
	if (json_is_boolean(schema))
		return json_is_true(schema) ? b->any : NONE;
	if (!json_is_object(schema))
		return schema_refuse(b, NULL, "a schema is expected: an object, true or false");
	if (b->depth >= GRAMMAR_MAX_DEPTH)
		return schema_refuse(b, NULL, "schemas are more than %d deep", GRAMMAR_MAX_DEPTH);
	b->depth++;
	const uint32_t node = object_node(b, schema);
	b->depth--;
	return node;
}

uint32_t schema_rule(Schemas *b, json_t *schema)
{
	for (uint32_t i = 0; i < b->n_refs; i++)
		if (b->refs[i].schema == schema && b->refs[i].is_tight == b->is_tight)
			return b->refs[i].rule;
	b->g->effort.left -= 50 + b->n_refs;
	if (!GROW(&b->g->effort, b->refs, b->refs_cap, b->n_refs + 1))
		return NONE;
	Ref *r = &b->refs[b->n_refs++];
	*r = (Ref){.schema = schema, .is_tight = b->is_tight, .rule = node_rule(b->g)};
	memcpy(r->pointer, b->pointer, sizeof r->pointer);
	return r->rule;
}

bool schema_tighten(Schemas *b, bool is_tight)
{
	const bool was = b->is_tight;
	const struct Ways *w = &b->ways[is_tight];
	b->is_tight = is_tight;
	b->any = w->any;
	b->separator = w->separator;
	b->colon = w->colon;
	return was;
}

/* Any value: what "true" allows. */
static void make_any(Schemas *b, bool is_tight)
{
	Grammar *g = b->g;
	const uint32_t space = is_tight ? EMPTY : node_repeat(g, text(b, " "), 0, 1);
	b->ways[is_tight] = (struct Ways){
		node_rule(g), NODE_LIST_OF(g, text(b, ","), space), NODE_LIST_OF(g, text(b, ":"), space)};
	schema_tighten(b, is_tight);
	json_t *free_object = schema_keep(b, json_pack("{s:s}", "type", "object"));
	json_t *free_array = schema_keep(b, json_pack("{s:s}", "type", "array"));
	json_t *number = schema_keep(b, json_pack("{s:s}", "type", "number"));
	if (!free_object || !free_array || !number || schema_failed(b))
		return;
	const uint32_t string = NODE_LIST_OF(g, text(b, "\""), node_add(g, (Node){NODE_STRING, 0, ENDLESS, 0}));
	const uint32_t all = NODE_EITHER_OF(g, schema_object(b, free_object), schema_array(b, free_array), string,
		number_node(b, number, false), text(b, "true"), text(b, "false"), text(b, "null"));
	if (!schema_failed(b))
		g->nodes[b->any].a = all;
}

/* form NULL: of the schema. */
static uint32_t compile_schema(Schemas *b, json_t *schema, json_t *form)
{
	make_any(b, true);
	make_any(b, false);
	json_t *asked = json_object_get(json_object_get(schema, "x-guidance"), "coerce_one_of");
	b->joins_one_of = json_is_true(asked);
	const uint32_t root = form ? form_node(b, form) : schema_node(b, schema);
	for (; b->n_done < b->n_refs && !schema_failed(b); b->n_done++) {
		const Ref r = b->refs[b->n_done];
		memcpy(b->pointer, r.pointer, sizeof r.pointer);
		b->n_pointer = strlen(r.pointer);
		schema_tighten(b, r.is_tight);
		const uint32_t node = schema_node(b, r.schema);
		if (!schema_failed(b))
			b->g->nodes[r.rule].a = node;
	}
	return root;
}

/* Sources ------------------------------------------------------------ */

static uint32_t compile_choice(Grammar *g, json_t *list, GrammarError *error)
{
	const size_t n = json_array_size(list);
	const char **texts = malloc(sizeof *texts * (n + 1));
	size_t *n_bytes = malloc(sizeof *n_bytes * (n + 1)), total = 0;
	Lexeme l = {0};
	bool ok = texts && n_bytes;
	for (size_t i = 0; ok && i < n; i++) {
		json_t *one = json_array_get(list, i);
		texts[i] = json_string_value(one);
		n_bytes[i] = json_string_length(one);
		total += n_bytes[i];
		if (!texts[i] || n_bytes[i] == 0) {
			snprintf(error->pointer, sizeof error->pointer, "/%zu", i);
			snprintf(error->text, sizeof error->text, "a string that is not empty is expected");
			ok = false;
		}
	}
	if (ok && (n == 0 || n > GRAMMAR_MAX_CHOICES || total > GRAMMAR_MAX_BYTES))
		snprintf(error->text, sizeof error->text, "1 to %d choices, of at most %d bytes together, are expected",
			GRAMMAR_MAX_CHOICES, GRAMMAR_MAX_BYTES);
	else if (ok)
		lexeme_of_texts(texts, n_bytes, (uint32_t)n, &l, &g->effort);
	free(texts);
	free(n_bytes);
	return node_lexeme(g, &l);
}

static uint32_t compile_regex(Grammar *g, const char *text, GrammarError *error)
{
	Lexeme l = {0};
	if (strlen(text) > GRAMMAR_MAX_BYTES)
		return snprintf(error->text, sizeof error->text, "it has more than %d bytes", GRAMMAR_MAX_BYTES), NONE;
	lexeme_of_regex(text, WHOLE, AS_TEXT, &l, &g->effort);
	return node_lexeme(g, &l);
}

static bool is_empty_alone(const Grammar *g)
{
	const Node *root = &g->nodes[g->root];
	return root->kind == NODE_EMPTY || (root->kind == NODE_LEXEME && g->lexemes[root->a].ends[1]);
}

static bool is_too_large(json_t *schema)
{
	return json_dumpb(schema, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) > GRAMMAR_MAX_BYTES;
}

static uint32_t compile_json(Grammar *g, const GrammarSource *source, GrammarError *error)
{
	Schemas b = {.g = g, .error = error, .made = json_array()};
	json_t *object = b.made ? schema_keep(&b, json_pack("{s:s}", "type", "object")) : NULL;
	json_t *form = source->kind == GRAMMAR_FORM ? json_object_get(source->json, "form") : NULL;
	uint32_t root = NONE;
	b.root = source->kind == GRAMMAR_OBJECT ? object : source->json;
	if (!object)
		effort_refuse(&g->effort, "there is no memory", -1);
	else if (is_too_large(form ? json_object_get(b.root, "schemas") : b.root))
		snprintf(error->text, sizeof error->text, "the schema has more than %d bytes", GRAMMAR_MAX_BYTES);
	else
		root = compile_schema(&b, b.root, form);
	if (g->effort.why && !error->text[0])
		schema_refuse(&b, NULL, "%s", g->effort.why);
	free(b.refs);
	free(b.pairs);
	free(b.pair_table);
	json_decref(b.made);
	return root;
}

Grammar *grammar_compile(const GrammarSource *source, GrammarError *error)
{
	*error = (GrammarError){{0}, {0}};
	Grammar *g = nodes_open();
	if (!g) {
		snprintf(error->text, sizeof error->text, "there is no memory");
		return NULL;
	}
	g->effort.tok = source->tok;
	switch (source->kind) {
	case GRAMMAR_SCHEMA: case GRAMMAR_OBJECT: case GRAMMAR_FORM: g->root = compile_json(g, source, error); break;
	case GRAMMAR_REGEX: g->root = compile_regex(g, source->text, error); break;
	case GRAMMAR_CHOICE: g->root = compile_choice(g, source->json, error); break;
	}
	if (source->before && *source->before)
		g->root = NODE_LIST_OF(g, node_text(g, source->before, strlen(source->before)), g->root);
	if (source->head)
		g->root = NODE_LIST_OF(g, form_node(&(Schemas){.g = g, .error = error}, source->head), g->root);
	g->effort.tok = NULL;
	if (!g->effort.why && !error->text[0])
		nodes_prune(g);
	if (g->effort.why && !error->text[0]) {
		const int at = g->effort.at;
		snprintf(error->text, sizeof error->text, at >= 0 ? "%s, at byte %d" : "%s", g->effort.why, at);
	}
	if (!error->text[0] && g->nodes[g->root].kind == NODE_NONE)
		snprintf(error->text, sizeof error->text, "nothing can match it");
	if (!error->text[0] && is_empty_alone(g))
		snprintf(error->text, sizeof error->text, "only the empty text matches it");
	if (!error->text[0])
		return g;
	grammar_free(g);
	return NULL;
}
