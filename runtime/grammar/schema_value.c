/* schema_value.c - constants, and the values of enums that the rest of their schema allows. */
#include "runtime/grammar/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char *schema_quoted(const char *text, size_t n, size_t *n_quoted)
{
	static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
	char *s = malloc(n * 6 + 2);
	size_t k = 0;
	for (size_t i = 0; s && i < n; i++) {
		const unsigned char c = (unsigned char)text[i];
		const char *found = c ? strchr(plain, c) : NULL;
		if (found) {
			s[k++] = '\\';
			s[k++] = names[found - plain];
		} else if (c < 32 || c == 127)
			k += (size_t)snprintf(s + k, 8, "\\u%04x", c);
		else
			s[k++] = (char)c;
	}
	if (s) {
		s[k++] = '"';
		s[k] = 0;
	}
	*n_quoted = k;
	return s;
}

/* The shortest digits that are this number. */
static char *number_text(double x)
{
	char s[40];
	if (x == floor(x) && fabs(x) < 1e15)
		snprintf(s, sizeof s, "%.1f", x);
	else
		for (int digits = 1; digits <= 17; digits++) {
			snprintf(s, sizeof s, "%.*g", digits, x);
			if (strtod(s, NULL) == x)
				break;
		}
	return strdup(s);
}

char *schema_scalar_text(json_t *value)
{
	char s[32];
	size_t n;
	switch (json_typeof(value)) {
	case JSON_TRUE: return strdup("true");
	case JSON_FALSE: return strdup("false");
	case JSON_NULL: return strdup("null");
	case JSON_INTEGER:
		snprintf(s, sizeof s, "%lld", (long long)json_integer_value(value));
		return strdup(s);
	case JSON_REAL: return number_text(json_real_value(value));
	case JSON_STRING: {
		char *inner = schema_quoted(json_string_value(value), json_string_length(value), &n);
		char *whole = inner ? malloc(n + 2) : NULL;
		if (whole)
			snprintf(whole, n + 2, "\"%s", inner);
		free(inner);
		return whole;
	}
	default: return NULL;
	}
}

static uint32_t value_node(Schemas *b, json_t *value)
{
	Grammar *g = b->g;
	if (!json_is_object(value) && !json_is_array(value)) {
		char *s = schema_scalar_text(value);
		const uint32_t node = s ? node_text(g, s, strlen(s)) : effort_refuse(&g->effort, "there is no memory", -1);
		free(s);
		return node;
	}
	if (++b->depth > GRAMMAR_MAX_DEPTH)
		return schema_refuse(b, NULL, "a value is more than %d deep", GRAMMAR_MAX_DEPTH);
	const bool is_object = json_is_object(value);
	uint32_t node = node_text(g, is_object ? "{" : "[", 1), n = 0;
	const char *key;
	json_t *one;
	size_t i;
	json_object_foreach(value, key, one) {
		size_t n_key;
		char *quoted = schema_quoted(key, strlen(key), &n_key);
		const uint32_t name = quoted ? node_text(g, quoted, n_key) : NONE;
		free(quoted);
		node = NODE_LIST_OF(g, node, n++ ? b->separator : EMPTY, node_text(g, "\"", 1), name, b->colon,
			value_node(b, one));
	}
	json_array_foreach(value, i, one)
		node = NODE_LIST_OF(g, node, n++ ? b->separator : EMPTY, value_node(b, one));
	b->depth--;
	return NODE_LIST_OF(g, node, node_text(g, is_object ? "}" : "]", 1));
}

const char *schema_type_of(json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT: return "object";
	case JSON_ARRAY: return "array";
	case JSON_STRING: return "string";
	case JSON_INTEGER: return "integer";
	case JSON_REAL: return json_real_value(value) == floor(json_real_value(value)) ? "integer" : "number";
	case JSON_NULL: return "null";
	default: return "boolean";
	}
}

static bool same_members(json_t *one, json_t *other)
{
	const char *key;
	json_t *value;
	if (json_object_size(one) != json_object_size(other))
		return false;
	json_object_foreach(one, key, value)
		if (!schema_same(value, json_object_get(other, key)))
			return false;
	return true;
}

bool schema_same(json_t *one, json_t *other)
{
	if (json_is_integer(one) && json_is_integer(other))
		return json_integer_value(one) == json_integer_value(other);
	if (json_is_number(one) && json_is_number(other))
		return json_number_value(one) == json_number_value(other);
	if (json_is_object(one) && json_is_object(other))
		return same_members(one, other);
	if (!json_is_array(one) || !json_is_array(other))
		return json_equal(one, other);
	bool same = json_array_size(one) == json_array_size(other);
	for (size_t i = 0; same && i < json_array_size(one); i++)
		same = schema_same(json_array_get(one, i), json_array_get(other, i));
	return same;
}

/* All scalars: one automaton of their texts. */
static uint32_t texts_node(Schemas *b, json_t *const *values, uint32_t n)
{
	const char **texts = calloc(n, sizeof *texts);
	size_t *n_bytes = calloc(n, sizeof *n_bytes);
	Lexeme l = {0};
	bool ok = texts && n_bytes;
	for (uint32_t i = 0; ok && i < n; i++) {
		ok = (texts[i] = schema_scalar_text(values[i])) != NULL;
		n_bytes[i] = ok ? strlen(texts[i]) : 0;
	}
	if (ok)
		lexeme_of_texts(texts, n_bytes, n, &l, &b->g->effort);
	else
		effort_refuse(&b->g->effort, "there is no memory", -1);
	for (uint32_t i = 0; texts && i < n; i++)
		free((char *)(uintptr_t)texts[i]);
	free(texts);
	free(n_bytes);
	return node_lexeme(b->g, &l);
}

uint32_t schema_enum(Schemas *b, json_t *schema, json_t *values)
{
	json_t *constant = json_object_get(schema, "const");
	const size_t n = values ? json_array_size(values) : 1;
	if (json_is_array(values) && n == 0) /* two that hold at once may have no value in common */
		return NONE;
	if (values && (!json_is_array(values) || n > GRAMMAR_MAX_CHOICES))
		return schema_refuse(b, "enum", "a list of 1 to %d values is expected", GRAMMAR_MAX_CHOICES);
	if (constant && json_object_get(schema, "enum")) {
		bool among = false;
		for (size_t i = 0; i < json_array_size(json_object_get(schema, "enum")); i++)
			among |= schema_same(json_array_get(json_object_get(schema, "enum"), i), constant);
		if (!among)
			return NONE;
	}
	json_t **kept = malloc(sizeof *kept * n);
	uint32_t n_kept = 0, *nodes = calloc(n, sizeof *nodes), node = NONE;
	bool are_scalars = true;
	for (size_t i = 0; kept && nodes && i < n && !schema_failed(b); i++) {
		json_t *one = values ? json_array_get(values, i) : constant;
		if (!schema_takes(b, schema, one))
			continue;
		are_scalars &= !json_is_object(one) && !json_is_array(one);
		kept[n_kept++] = one;
	}
	if (!kept || !nodes)
		effort_refuse(&b->g->effort, "there is no memory", -1);
	else if (!schema_failed(b) && are_scalars && n_kept > 1)
		node = texts_node(b, kept, n_kept);
	else if (!schema_failed(b)) {
		for (uint32_t i = 0; i < n_kept; i++)
			nodes[i] = value_node(b, kept[i]);
		node = node_all(b->g, NODE_EITHER, nodes, n_kept);
	}
	free(kept);
	free(nodes);
	return node;
}
