/* form.c - forms: texts, expressions and JSON of schemas, one after the other (grammar.h). */
#include "runtime/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of a list, as LIST or EITHER. */
static uint32_t all_of(Schemas *b, NodeKind kind, json_t *list)
{
	const size_t n = json_array_size(list);
	uint32_t *children = malloc(sizeof *children * (n + 1)), node;
	if (!children)
		return effort_refuse(&b->g->effort, "there is no memory", -1), NONE;
	for (size_t i = 0; i < n; i++)
		children[i] = form_node(b, json_array_get(list, i));
	node = n == 0 ? EMPTY : node_all(b->g, kind, children, (uint32_t)n);
	free(children);
	return node;
}

static uint32_t of_regex(Schemas *b, const char *text)
{
	Lexeme l = {0};
	lexeme_of_regex(text, WHOLE, AS_TEXT, &l, &b->g->effort);
	return node_lexeme(b->g, &l);
}

uint32_t form_node(Schemas *b, json_t *form)
{
	const char *key;
	json_t *value;
	const char *at = json_string_value(json_object_get(form, "at"));
	if (schema_failed(b))
		return NONE;
	if (json_is_string(form))
		return json_string_length(form) ? node_text(b->g, json_string_value(form), json_string_length(form)) : EMPTY;
	if (json_is_array(form))
		return all_of(b, NODE_LIST, form);
	json_object_foreach(form, key, value) {
		if (strcmp(key, "schema") == 0) {
			const size_t before = b->n_pointer;
			if (at && before + strlen(at) < sizeof b->pointer)
				b->n_pointer += (size_t)sprintf(b->pointer + before, "%s", at);
			const uint32_t node = schema_node(b, value);
			schema_up(b, before);
			return node;
		}
		if (strcmp(key, "regex") == 0 && json_is_string(value))
			return of_regex(b, json_string_value(value));
		if (strcmp(key, "either") == 0)
			return all_of(b, NODE_EITHER, value);
		if (strcmp(key, "optional") == 0)
			return node_repeat(b->g, form_node(b, value), 0, 1);
		if (strcmp(key, "many") == 0) {
			const json_int_t most = json_integer_value(json_object_get(form, "most"));
			return node_repeat(b->g, form_node(b, value), (uint32_t)json_integer_value(json_object_get(form, "least")),
				most < 0 ? UINT32_MAX : (uint32_t)most);
		}
	}
	return schema_refuse(b, NULL, "a form is expected");
}
