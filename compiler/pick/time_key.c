/* time_key.c - what a measured time is a time of.
 *
 * A kernel is its template's code, with each constant decided, and the launch that the contract's formulas make of
 * them. So a time's key is a hash of the code that the kernel reaches (kernelgen/reach.c) and of those formulas'
 * values: grid, block, dynamic shared memory, tiles of tensor maps. What a contract says of bytes, operations and
 * admission runs nothing and is no part of it. The constants themselves are a time's place in its file.
 *
 * Times do not depend on room, slots and pages, though a grid may: so the values are taken twice, with little room and
 * with much.
 */
#include "artifacts/expr.h"
#include "artifacts/hash.h"
#include "compiler/pick/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KNOWN = 96, ROOM_FEW = 1, ROOM_MANY = 4096, WHY_BYTES = 160 };

typedef struct Known { /* names with values, of a kernel's constants */
	ExprName names[MAX_KNOWN];
	int n;
	char sizes[MAX_DTYPES][2][48]; /* "WT_BITS", "WT_BYTES" */
} Known;

static void know(Known *k, const char *name, int64_t value)
{
	if (k->n == MAX_KNOWN)
		bug("more than %d constants of one kernel", MAX_KNOWN);
	k->names[k->n++] = (ExprName){name, value};
}

static void know_sizes(Known *k, const KernelTemplate *t, const char *var, const char *type)
{
	Dtype dtype;
	for (int v = 0; v < t->n_dtypes; v++)
		if (strcmp(t->dtypes[v].var, var) == 0 && dtype_from_name(type, &dtype)) {
			snprintf(k->sizes[v][0], sizeof k->sizes[v][0], "%s_BITS", var);
			snprintf(k->sizes[v][1], sizeof k->sizes[v][1], "%s_BYTES", var);
			know(k, k->sizes[v][0], dtype_span(dtype, 8));
			if (dtype_bytes(dtype))
				know(k, k->sizes[v][1], dtype_bytes(dtype));
		}
}

/* words: a copy of the kernel's defines, whose words are ended in place. Float attributes are in no formula. */
static void know_constants(Known *k, const KernelTemplate *t, char *words, int room)
{
	char *save = NULL;
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '='), *end;
		if (!value || tuning_is_room(word))
			continue;
		*value++ = 0;
		long long number = strtoll(value, &end, 10);
		if (*value && !*end)
			know(k, word, number);
		else
			know_sizes(k, t, word, value);
	}
	for (int i = 0; tuning_room[i]; i++)
		know(k, tuning_room[i], room);
}

static void add_value(FILE *f, const Known *k, const char *what, const char *formula)
{
	const ExprEnv env = {k->names, k->n, NULL};
	int64_t value;
	char why[WHY_BYTES];
	if (expr_eval(formula, &env, &value, why, sizeof why))
		fprintf(f, "%s %lld\n", what, (long long)value);
	else
		fprintf(f, "%s %s\n", what, why);
}

char *launch_values(const KernelTemplate *t, const Target *target, const char *defines)
{
	static const int rooms[] = {ROOM_FEW, ROOM_MANY};
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	if (!f)
		bug("no memory for the key of %s", t->name);
	for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
		Known k = {.n = 0};
		char *words = strdup(defines);
		if (!words)
			bug("no memory for the key of %s", t->name);
		know(&k, "SMEM_MAX", target->smem_block_bytes);
		know(&k, "SMS", target->n_sms);
		know_constants(&k, t, words, rooms[i]);
		for (int d = 0; d < 3; d++)
			add_value(f, &k, "grid", t->grid[d]);
		add_value(f, &k, "block", t->block);
		add_value(f, &k, "smem", t->smem);
		for (int m = 0; m < t->n_maps; m++)
			for (int b = 0; b < 2; b++)
				add_value(f, &k, t->maps[m].name, t->maps[m].box[b]);
		free(words);
	}
	if (fclose(f) != 0)
		bug("no memory for the key of %s", t->name);
	return text;
}

void time_key(const KernelTemplate *t, const Target *target, const char *defines, uint8_t key[32])
{
	char *values = launch_values(t, target, defines);
	const size_t head = sizeof t->code_sha256, n = strlen(values);
	uint8_t *all = malloc(head + n);
	if (!all)
		bug("no memory for the key of %s", t->name);
	memcpy(all, t->code_sha256, head);
	memcpy(all + head, values, n);
	sha256_of(all, head + n, key);
	free(all);
	free(values);
}
