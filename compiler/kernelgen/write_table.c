/* write_table.c - the kernel table as a C file, the same bytes for the same templates.
 *
 * Everything the compiler knows of its kernels, their text included, so that it needs no file at run time.
 * Rows and sources are sorted by name. Text is written line by line with octal escapes for whatever is not plain
 * ASCII, and '?' escaped because of trigraphs.
 */
#include "artifacts/op_table.h"
#include "compiler/kernelgen/kernelgen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_template_name(const void *x, const void *y)
{
	return strcmp(((const KernelTemplate *)x)->name, ((const KernelTemplate *)y)->name);
}

static int by_source_name(const void *x, const void *y)
{
	return strcmp(((const Source *)x)->name, ((const Source *)y)->name);
}

/* C text ------------------------------------------------------------------------------------------ */

static void put_bytes(FILE *f, const char *text, size_t n)
{
	fputc('"', f);
	for (size_t i = 0; i < n; i++) {
		unsigned char ch = (unsigned char)text[i];
		if (ch == '\n')
			fputs("\\n", f);
		else if (ch == '\t')
			fputs("\\t", f);
		else if (ch == '"' || ch == '\\' || ch == '?')
			fprintf(f, "\\%c", ch);
		else if (ch >= ' ' && ch < 127)
			fputc(ch, f);
		else
			fprintf(f, "\\%03o", ch);
	}
	fputc('"', f);
}

static void put_string(FILE *f, const char *label, const char *text)
{
	fprintf(f, "%s", label);
	put_bytes(f, text, strlen(text));
}

static void put_list(FILE *f, const char *label, const char *const *list, int n, const char *count)
{
	if (n == 0)
		return;
	fprintf(f, "\t\t.%s = {", label);
	for (int i = 0; i < n; i++)
		put_string(f, i ? ", " : "", list[i]);
	fprintf(f, "}, .%s = %d,\n", count, n);
}

static void put_source(FILE *f, const Source *s)
{
	put_string(f, "\t{", s->name);
	fputs(",\n", f);
	if (s->bytes == 0)
		fputs("\t\t\"\"\n", f);
	for (size_t at = 0; at < s->bytes;) {
		const char *end = memchr(s->text + at, '\n', s->bytes - at);
		size_t n = end ? (size_t)(end - s->text) + 1 - at : s->bytes - at;
		fputs("\t\t", f);
		put_bytes(f, s->text + at, n);
		fputc('\n', f);
		at += n;
	}
	fputs("\t},\n", f);
}

static const char *const roles[OPERAND_ROLES] = {
	[OPERAND_IN] = "OPERAND_IN", [OPERAND_IN_OPT] = "OPERAND_IN_OPT", [OPERAND_INOUT] = "OPERAND_INOUT",
	[OPERAND_INOUT_OPT] = "OPERAND_INOUT_OPT", [OPERAND_OUT] = "OPERAND_OUT"};

static void put_fields(FILE *f, const KernelTemplate *k)
{
	fputs("\t\t.fields = {\n", f);
	for (int i = 0; i < k->n_fields; i++) {
		const ContractField *x = &k->fields[i];
		put_string(f, "\t\t\t{", x->name);
		fprintf(f, ", %s, ", roles[x->role]);
		if (x->flag)
			put_bytes(f, x->flag, strlen(x->flag));
		else
			fputs("NULL", f);
		put_string(f, ", ", x->dtype);
		put_string(f, ", ", x->shape);
		fprintf(f, ", %d", x->offset);
		put_string(f, ", ", x->file);
		fprintf(f, ", %d, %s},\n", x->line, x->early ? "true" : "false");
	}
	fprintf(f, "\t\t}, .n_fields = %d, .param_bytes = %d,\n", k->n_fields, k->param_bytes);
	for (int i = 0; i < k->n_maps; i++) {
		const ContractMap *m = &k->maps[i];
		put_string(f, i ? "\t\t\t{" : "\t\t.maps = {\n\t\t\t{", m->name);
		fprintf(f, ", %d, ", m->field);
		put_string(f, "{", m->box[0]);
		put_string(f, ", ", m->box[1]);
		fprintf(f, "}, %d", m->offset);
		put_string(f, ", ", m->file);
		fprintf(f, ", %d},\n", m->line);
	}
	if (k->n_maps)
		fprintf(f, "\t\t}, .n_maps = %d,\n", k->n_maps);
}

static void put_choices(FILE *f, const KernelTemplate *k)
{
	for (int i = 0; i < k->n_dtypes; i++) {
		put_string(f, i ? "\t\t\t{" : "\t\t.dtypes = {\n\t\t\t{", k->dtypes[i].var);
		fprintf(f, ", %d, {", k->dtypes[i].n);
		for (int j = 0; j < k->dtypes[i].n; j++)
			fprintf(f, "%sDT_%s", j ? ", " : "", dtype_name(k->dtypes[i].allowed[j]));
		fputs("}},\n", f);
	}
	if (k->n_dtypes)
		fprintf(f, "\t\t}, .n_dtypes = %d,\n", k->n_dtypes);
	for (int i = 0; i < k->n_tunables; i++) {
		put_string(f, i ? "\t\t\t{" : "\t\t.tunables = {\n\t\t\t{", k->tunables[i].name);
		fprintf(f, ", %d, {", k->tunables[i].n_values);
		for (int j = 0; j < k->tunables[i].n_values; j++)
			fprintf(f, "%s%d", j ? ", " : "", k->tunables[i].values[j]);
		fputs("}},\n", f);
	}
	if (k->n_tunables)
		fprintf(f, "\t\t}, .n_tunables = %d,\n", k->n_tunables);
	for (int i = 0; i < k->n_requires; i++) {
		put_string(f, i ? "\t\t\t{" : "\t\t.requires = {\n\t\t\t{", k->requires[i].text);
		put_string(f, ", ", k->requires[i].file);
		fprintf(f, ", %d, %d, %d},\n", k->requires[i].line, k->requires[i].is_preference, k->requires[i].is_pruning);
	}
	if (k->n_requires)
		fprintf(f, "\t\t}, .n_requires = %d,\n", k->n_requires);
	for (int i = 0; i < k->n_orders; i++) {
		put_string(f, i ? "\t\t\t{" : "\t\t.orders = {\n\t\t\t{", k->orders[i].kind);
		put_string(f, ", ", k->orders[i].name);
		put_string(f, ", ", k->orders[i].text);
		fputs("},\n", f);
	}
	if (k->n_orders)
		fprintf(f, "\t\t}, .n_orders = %d,\n", k->n_orders);
}

static void put_hash(FILE *f, const char *label, const uint8_t sha256[32])
{
	fprintf(f, "\t\t.%s = {", label);
	for (int i = 0; i < 32; i++)
		fprintf(f, "%s0x%02x,", i % 16 ? " " : "\n\t\t\t", sha256[i]);
	fputs("\n\t\t},\n", f);
}

static void put_template(FILE *f, const KernelTemplate *k)
{
	put_string(f, "\t{\n\t\t.name = ", k->name);
	put_string(f, ", .file = ", k->file);
	fprintf(f, ", .line = %d, .op = OP_%s,\n", k->line, op_table[k->op].name);
	put_list(f, "archs", k->archs, k->n_archs, "n_archs");
	put_string(f, "\t\t.numerics = ", k->numerics);
	put_string(f, ", .matrix = ", k->matrix);
	fprintf(f, ", .overlaps = %s,\n", k->overlaps ? "true" : "false");
	put_list(f, "dims", k->dims, k->n_dims, "n_dims");
	put_list(f, "attrs", k->attrs, k->n_attrs, "n_attrs");
	put_choices(f, k);
	put_string(f, "\t\t.grid = {", k->grid[0]);
	put_string(f, ", ", k->grid[1]);
	put_string(f, ", ", k->grid[2]);
	put_string(f, "},\n\t\t.block = ", k->block);
	put_string(f, ",\n\t\t.smem = ", k->smem);
	put_string(f, ",\n\t\t.reads = ", k->reads);
	put_string(f, ",\n\t\t.writes = ", k->writes);
	put_string(f, ",\n\t\t.flops = ", k->flops);
	put_string(f, ",\n\t\t.pieces = ", k->pieces);
	put_string(f, ",\n\t\t.rate = ", k->rate);
	fputs(",\n", f);
	put_fields(f, k);
	fprintf(f, "\t\t.sources = sources_%s, .n_sources = %d,\n", k->name, k->n_sources);
	put_hash(f, "source_sha256", k->source_sha256);
	put_hash(f, "code_sha256", k->code_sha256);
	fputs("\t},\n", f);
}

static void put_table(FILE *f, Gen *g)
{
	fputs("/* Generated by kernelgen from kernels/templates: do not edit. */\n#include \"artifacts/op_table.h\"\n"
		"#include \"compiler/ir.h\"\n\n", f);
	for (int i = 0; i < g->templates.n; i++) {
		const KernelTemplate *k = &g->templates.at[i];
		fprintf(f, "static const char *const sources_%s[] = {", k->name);
		for (int j = 0; j < k->n_sources; j++)
			put_string(f, j ? ", " : "", k->sources[j]);
		fputs("};\n", f);
	}
	fputs("\nconst KernelTemplate kernel_table[] = {\n", f);
	for (int i = 0; i < g->templates.n; i++)
		put_template(f, &g->templates.at[i]);
	fprintf(f, "%s};\nconst int n_kernel_table = %d;\n\n", g->templates.n ? "" : "\t{0}\n", g->templates.n);
	fputs("const TemplateSource template_sources[] = {\n", f);
	for (int i = 0; i < g->sources.n; i++)
		put_source(f, &g->sources.at[i]);
	fprintf(f, "%s};\nconst int n_template_sources = %d;\n", g->sources.n ? "" : "\t{0}\n", g->sources.n);
	put_string(f, "const char libclang_version[] = ", libclang_text(g));
	fputs(";\n", f);
}

bool write_table(Gen *g, const char *path)
{
	if (g->templates.n)
		qsort(g->templates.at, (size_t)g->templates.n, sizeof g->templates.at[0], by_template_name);
	if (g->sources.n)
		qsort(g->sources.at, (size_t)g->sources.n, sizeof g->sources.at[0], by_source_name);
	const char *temporary = arena_printf(&g->arena, "%s.%ld.tmp", path, (long)getpid());
	FILE *f = fopen(temporary, "w");
	bool ok = f != NULL;
	if (f) {
		put_table(f, g);
		ok = !ferror(f);
		ok = fclose(f) == 0 && ok && rename(temporary, path) == 0;
	}
	if (ok)
		return true;
	fail_at(&g->diags, A0103, (Loc){path, 0, 0}, "%s", strerror(errno));
	if (f)
		remove(temporary);
	return false;
}
