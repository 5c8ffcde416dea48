/* contracts.c - the contracts that a plan's ledgers were decided by, as data of the plan.
 *
 * With them and the operands of a slot every verdict can be checked again without this program: artifacts/plan.h says
 * what the terms mean.
 */
#include "compiler/ir.h"

#include <string.h>

typedef struct Terms { Arena *arena; VEC(ContractTerm) list; } Terms;

static void add(Terms *t, const char *kind, const char *name, const char *text)
{
	*vec_push(t->arena, &t->list) = (ContractTerm){kind, name, text};
}

static void add_fields(Terms *t, const KernelTemplate *k)
{
	for (int i = 0; i < k->n_fields; i++) {
		const ContractField *f = &k->fields[i];
		add(t, "operand", f->name, arena_printf(t->arena, "%s [%s]", f->dtype, f->shape));
		if (f->flag)
			add(t, "flag", f->name, f->flag);
	}
	for (int i = 0; i < k->n_maps; i++) {
		const char *operand = k->fields[k->maps[i].field].name;
		add(t, "map.rows", operand, k->maps[i].box[0]);
		add(t, "map.columns", operand, k->maps[i].box[1]);
	}
}

static void add_choices(Terms *t, const KernelTemplate *k)
{
	for (int i = 0; i < k->n_dtypes; i++) {
		const char *text = "";
		for (int v = 0; v < k->dtypes[i].n; v++)
			text = arena_printf(t->arena, "%s%s%s", text, v ? " " : "", dtype_name(k->dtypes[i].allowed[v]));
		add(t, "dtype", k->dtypes[i].var, text);
	}
	for (int i = 0; i < k->n_tunables; i++) {
		const char *text = "";
		for (int v = 0; v < k->tunables[i].n_values; v++)
			text = arena_printf(t->arena, "%s%s%d", text, v ? " " : "", k->tunables[i].values[v]);
		add(t, "tunable", k->tunables[i].name, text);
	}
}

static Contract contract_of(Arena *arena, const KernelTemplate *k)
{
	static const char *const axes[3] = {"grid.x", "grid.y", "grid.z"};
	Terms t = {.arena = arena};
	for (int i = 0; i < k->n_archs; i++)
		add(&t, "arch", k->archs[i], "");
	for (int i = 0; i < k->n_dims; i++)
		add(&t, "dim", k->dims[i], "");
	for (int i = 0; i < k->n_attrs; i++)
		add(&t, "attr", k->attrs[i], "");
	add_choices(&t, k);
	add_fields(&t, k);
	for (int i = 0; i < k->n_requires; i++)
		add(&t, k->requires[i].is_preference ? "prefers" : "requires",
			arena_printf(arena, "%s:%d", k->requires[i].file, k->requires[i].line), k->requires[i].text);
	for (int i = 0; i < k->n_orders; i++)
		*vec_push(t.arena, &t.list) = k->orders[i];
	for (int i = 0; i < 3; i++)
		add(&t, axes[i], "", k->grid[i]);
	add(&t, "block", "", k->block);
	add(&t, "smem", "", k->smem);
	add(&t, "reads", "", k->reads);
	add(&t, "writes", "", k->writes);
	add(&t, "flops", "", k->flops);
	return (Contract){k->name, k->op, t.list.at, t.list.n};
}

static bool is_in_a_ledger(const Compile *c, OpKind op)
{
	for (int w = 0; w < c->work.n; w++)
		for (int i = 0; i < c->work.at[w].ledger.n; i++)
			if (c->work.at[w].ledger.at[i].op == op)
				return true;
	return false;
}

Contract *list_contracts(Compile *c, int *n)
{
	Contract *list = ARENA_ARRAY(&c->arena, Contract, n_kernel_table);
	*n = 0;
	for (int i = 0; i < n_kernel_table; i++)
		if (is_in_a_ledger(c, kernel_table[i].op))
			list[(*n)++] = contract_of(&c->arena, &kernel_table[i]);
	return list;
}
