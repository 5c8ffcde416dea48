/* kernels_cmd.c - `atlasc kernels`: every template with its contract, from the table alone.
 *
 * The text is for people, aligned, one fact a line; --json has the same facts under the names of ir.h and a
 * schema_version that changes when a name does.
 */
#include "compiler/commands/kernels_cmd.h"
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 1 };

static const char *const role_names[OPERAND_ROLES] = { /* optional: has a flag */
	[OPERAND_IN] = "in", [OPERAND_IN_OPT] = "in", [OPERAND_INOUT] = "inout", [OPERAND_INOUT_OPT] = "inout",
	[OPERAND_OUT] = "out"};

static const char *hash_text(const uint8_t sha256[32], char text[65])
{
	for (int i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", sha256[i]);
	return text;
}

/* Text -------------------------------------------------------------------------------------------- */

static void print_names(const char *label, const char *const *names, int n)
{
	if (n == 0)
		return;
	printf("  %-9s", label);
	for (int i = 0; i < n; i++)
		printf("%s%s", i ? ", " : "", names[i]);
	putchar('\n');
}

static void print_choices(const KernelTemplate *k)
{
	for (int i = 0; i < k->n_dtypes; i++) {
		printf("  dtype    %s:", k->dtypes[i].var);
		for (int j = 0; j < k->dtypes[i].n; j++)
			printf(" %s", dtype_name(k->dtypes[i].allowed[j]));
		putchar('\n');
	}
	for (int i = 0; i < k->n_tunables; i++) {
		printf("  tunable  %s:", k->tunables[i].name);
		for (int j = 0; j < k->tunables[i].n_values; j++)
			printf(" %d", k->tunables[i].values[j]);
		putchar('\n');
	}
	for (int i = 0; i < k->n_requires; i++)
		printf("  %-7s  %s\n", k->requires[i].is_pruning ? "prune" : k->requires[i].is_preference ? "prefer" :
			"require", k->requires[i].text);
	for (int i = 0; i < k->n_orders; i++)
		printf("  order    %s%s%s%s\n", k->orders[i].name, *k->orders[i].text ? "(" : "", k->orders[i].text,
			*k->orders[i].text ? ")" : "");
}

static void print_template(const KernelTemplate *k)
{
	char hash[65];
	printf("%s: %s\n  file     %s:%d\n", k->name, op_table[k->op].name, k->file, k->line);
	print_names("arch", k->archs, k->n_archs);
	printf("  targets ");
	for (int i = 0; i < n_target_table; i++)
		if (template_serves(k, &target_table[i]))
			printf(" %s%s", target_table[i].name, target_table[i].ran_on ? "" : " (never run)");
	printf("\n  numerics %s%s\n  matrix   %s\n", k->numerics,
		k->overlaps ? ", overlaps its predecessors" : "", k->matrix);
	print_names("dims", k->dims, k->n_dims);
	print_names("attrs", k->attrs, k->n_attrs);
	print_choices(k);
	printf("  grid     %s, %s, %s\n  block    %s\n  smem     %s\n", k->grid[0], k->grid[1], k->grid[2], k->block,
		k->smem);
	printf("  reads    %s\n  writes   %s\n  flops    %s\n", k->reads, k->writes, k->flops);
	if (strcmp(k->pieces, "0") != 0)
		printf("  pieces   %s\n", k->pieces);
	if (strcmp(k->rate, "100") != 0)
		printf("  rate     %s %%\n", k->rate);
	for (int i = 0; i < k->n_fields; i++) {
		const ContractField *f = &k->fields[i];
		printf("  %-8s %s %s [%s]%s%s\n", role_names[f->role], f->name, f->dtype, f->shape, f->flag ? " if " : "",
			f->flag ? f->flag : "");
	}
	print_names("sources", k->sources, k->n_sources);
	printf("  sha256   %s\n", hash_text(k->source_sha256, hash));
	printf("  code     %s\n", hash_text(k->code_sha256, hash));
}

/* JSON -------------------------------------------------------------------------------------------- */

static json_t *json_names(const char *const *names, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_string(names[i]));
	return list;
}

static json_t *json_choices(const KernelTemplate *k)
{
	json_t *tunables = json_object();
	for (int i = 0; i < k->n_tunables; i++) {
		json_t *values = json_array();
		for (int j = 0; j < k->tunables[i].n_values; j++)
			json_array_append_new(values, json_integer(k->tunables[i].values[j]));
		json_object_set_new(tunables, k->tunables[i].name, values);
	}
	return tunables;
}

static json_t *json_dtypes(const KernelTemplate *k)
{
	json_t *vars = json_object();
	for (int i = 0; i < k->n_dtypes; i++) {
		json_t *allowed = json_array();
		for (int j = 0; j < k->dtypes[i].n; j++)
			json_array_append_new(allowed, json_string(dtype_name(k->dtypes[i].allowed[j])));
		json_object_set_new(vars, k->dtypes[i].var, allowed);
	}
	return vars;
}

static json_t *json_fields(const KernelTemplate *k)
{
	json_t *list = json_array();
	for (int i = 0; i < k->n_fields; i++) {
		const ContractField *f = &k->fields[i];
		json_array_append_new(list, json_pack("{s:s, s:s, s:s?, s:s, s:s, s:i, s:s, s:i, s:b}", "name", f->name, "role",
			role_names[f->role], "flag", f->flag, "dtype", f->dtype, "shape", f->shape, "offset", f->offset,
			"file", f->file, "line", f->line, "early", f->early));
	}
	return list;
}

static json_t *json_maps(const KernelTemplate *k)
{
	json_t *list = json_array();
	for (int i = 0; i < k->n_maps; i++) {
		const ContractMap *m = &k->maps[i];
		json_array_append_new(list, json_pack("{s:s, s:s, s:[s,s], s:i, s:s, s:i}", "name", m->name, "operand",
			k->fields[m->field].name, "box", m->box[0], m->box[1], "offset", m->offset, "file", m->file, "line",
			m->line));
	}
	return list;
}

static json_t *json_template(const KernelTemplate *k)
{
	char hash[65], code[65];
	json_t *requires = json_array(), *orders = json_array(), *targets = json_array();
	for (int i = 0; i < k->n_requires; i++) {
		const ContractRequire *r = &k->requires[i];
		json_array_append_new(requires, json_pack("{s:s, s:b, s:b, s:s, s:i}", "text", r->text, "is_preference",
			r->is_preference, "is_pruning", r->is_pruning, "file", r->file, "line", r->line));
	}
	for (int i = 0; i < k->n_orders; i++)
		json_array_append_new(orders, json_pack("{s:s, s:s}", "name", k->orders[i].name, "text", k->orders[i].text));
	for (int i = 0; i < n_target_table; i++)
		if (template_serves(k, &target_table[i]))
			json_array_append_new(targets, json_string(target_table[i].name));
	json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "name", k->name,
		"op", op_table[k->op].name, "file", k->file, "line", k->line, "archs", json_names(k->archs, k->n_archs),
		"targets", targets, "numerics", k->numerics, "matrix", k->matrix, "overlaps", k->overlaps,
		"dims", json_names(k->dims, k->n_dims), "attrs", json_names(k->attrs, k->n_attrs),
		"dtypes", json_dtypes(k), "tunables", json_choices(k), "requires", requires);
	json_t *rest = json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:o, s:s, s:s, s:o}", "grid",
		json_names(k->grid, 3),
		"block", k->block, "smem", k->smem, "reads", k->reads, "writes", k->writes, "flops", k->flops,
		"pieces", k->pieces, "rate", k->rate, "fields", json_fields(k), "maps", json_maps(k),
		"param_bytes", k->param_bytes, "sources", json_names(k->sources, k->n_sources),
		"sha256", hash_text(k->source_sha256, hash), "code_sha256", hash_text(k->code_sha256, code),
		"orders", orders);
	json_object_update(o, rest);
	json_decref(rest);
	return o;
}

static bool print_json(void)
{
	json_t *list = json_array();
	for (int i = 0; i < n_kernel_table; i++)
		json_array_append_new(list, json_template(&kernel_table[i]));
	json_t *all = json_pack("{s:i, s:o}", "schema_version", SCHEMA_VERSION, "kernels", list);
	bool ok = json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
	json_decref(all);
	return ok;
}

int kernels_command(Diags *d, bool json)
{
	bool ok = true;
	if (json)
		ok = print_json();
	else
		for (int i = 0; i < n_kernel_table; i++)
			print_template(&kernel_table[i]);
	if (ok && fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_OK;
	fail_at(d, A0103, (Loc){0}, "stdout cannot be written");
	return EXIT_ENVIRONMENT;
}
