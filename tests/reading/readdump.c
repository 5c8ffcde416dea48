/* readdump.c - what the compiler's readers see, as JSON, for comparison with other readers of the same formats.
 *
 *   readdump toml|json    stdin: documents, each a 4-byte little-endian length and its bytes
 *   readdump weights      stdin: folders of checkpoints, one a line
 *
 * One line of JSON for each: {"value": ...}, {"tensors": {...}}, or {"error": [file, line, column, code, text]}.
 * {"value": ...} comes with "places": line, column and spelling of every value in the order of the text.
 */
#include "compiler/read/read_model.h"
#include "compiler/text/json.h"
#include "compiler/text/toml.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *dump_value(const Value *v, json_t *places)
{
	json_t *out;
	json_array_append_new(places, json_pack("[iis#]", v->at.line, v->at.col, v->source, v->source_bytes));
	switch (v->kind) {
	case VALUE_BOOL: return json_boolean(v->boolean);
	case VALUE_INT: return json_integer(v->integer);
	case VALUE_REAL: return json_real(v->real);
	case VALUE_NONFINITE: return json_pack("{ss#}", "nonfinite", v->source, v->source_bytes);
	case VALUE_STRING: return json_stringn(v->string, (size_t)v->n);
	case VALUE_ARRAY:
		out = json_array();
		for (const Value *e = v->first; e; e = e->next)
			json_array_append_new(out, dump_value(e, places));
		return out;
	case VALUE_TABLE:
		out = json_object();
		for (const Value *e = v->first; e; e = e->next)
			json_object_set_new(out, e->key, dump_value(e, places));
		return out;
	default: return json_null();
	}
}

static json_t *dump_tensors(const Model *m)
{
	json_t *tensors = json_object();
	for (int i = 0; i < m->tensors.n; i++) {
		const StTensor *t = &m->tensors.at[i];
		json_t *shape = json_array();
		for (int d = 0; d < t->n_dims; d++)
			json_array_append_new(shape, json_integer(t->shape[d]));
		json_object_set_new(tensors, t->name, json_pack("[soIIsb]", t->dtype_text, shape, (json_int_t)t->offset,
			(json_int_t)t->bytes, m->shards.at[t->shard].name, t->is_supported));
	}
	return tensors;
}

/* One line, with the first error where there is one. */
static void print_line(const Diags *d, json_t *seen)
{
	const Diag *first = NULL;
	for (int i = 0; i < d->n && !first; i++)
		if (!d->list[i].is_note)
			first = &d->list[i];
	json_t *line = first ? json_pack("{s[siiss]}", "error", first->at.file, first->at.line, first->at.col,
		code_name(first->code), first->text) : json_incref(seen);
	if (!line || !!first != (d->n_errors > 0))
		bug("a result that is none");
	json_dumpf(line, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(line);
	json_decref(seen);
}

static void read_document(bool is_toml, char *text, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	const Value *v = is_toml ? toml_parse(&c.arena, &c.diags, "doc", text, n) :
		json_parse(&c.arena, &c.scratch, &c.diags, &json_config_rules, "doc", text, n);
	json_t *places = json_array(), *value = v ? dump_value(v, places) : json_null();
	print_line(&c.diags, json_pack("{soso}", "value", value, "places", places));
	arena_release(&c.scratch);
	arena_release(&c.arena);
}

static void read_folder(const char *dir)
{
	Compile c = {.diags.arena = &c.arena, .cmd.model_dir = dir};
	read_weights(&c);
	print_line(&c.diags, json_pack("{so}", "tensors", dump_tensors(&c.model)));
	arena_release(&c.scratch);
	arena_release(&c.arena);
}

int main(int argc, char **argv)
{
	static char line[4096];
	if (argc == 2 && strcmp(argv[1], "weights") == 0) {
		while (fgets(line, sizeof line, stdin)) {
			line[strcspn(line, "\n")] = 0;
			read_folder(line);
		}
		return 0;
	}
	if (argc != 2 || (strcmp(argv[1], "toml") != 0 && strcmp(argv[1], "json") != 0))
		return 2;
	unsigned char n[4];
	while (fread(n, 1, 4, stdin) == 4) {
		size_t bytes = n[0] | (size_t)n[1] << 8 | (size_t)n[2] << 16 | (size_t)n[3] << 24;
		char *text = malloc(bytes + 1); /* exact, so that a sanitizer sees a step too far */
		if (!text || fread(text, 1, bytes, stdin) != bytes)
			return 1;
		text[bytes] = 0;
		read_document(argv[1][0] == 't', text, bytes);
		free(text);
	}
	return 0;
}
