/* check_lowered.c - printer and checker of the Lowered level. */
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <stdio.h>

static void print_tensor(FILE *f, const LTensor *t)
{
	fprintf(f, "%s[", t->name);
	for (int d = 0; d < t->n_dims; d++)
		fprintf(f, d ? ",%lld" : "%lld", (long long)t->shape[d]);
	fprintf(f, "]%s", dtype_name(t->dtype));
}

static void print_op(FILE *f, const Lowered *low, const LOp *op)
{
	const OpInfo *info = &op_table[op->kind];
	fprintf(f, "  %-3d %-16s", op->layer, info->name);
	for (int k = 0; k < info->n_operands; k++) {
		if (op->operands[k] < 0)
			continue;
		fprintf(f, " %s=", info->operands[k].name);
		print_tensor(f, &low->tensors.at[op->operands[k]]);
	}
	fputc('\n', f);
	if (op->alone || (op->pick < 0 && op->note))
		fprintf(f, "      not fused: %s\n", op->alone ? op->alone : op->note);
	if (op->pick < 0)
		return;
	const Pick *k = &low->picks.at[op->pick];
	fprintf(f, "      %s  grid %d %d %d  block %d  smem %d  reads %lld  writes %lld  flops %lld\n      %s\n",
		kernel_table[k->template_index].name, k->grid[0], k->grid[1], k->grid[2], k->block[0], k->smem_bytes,
		(long long)k->read_bytes, (long long)k->write_bytes, (long long)k->flops, k->defines);
}

void print_lowered(Compile *c, void *file)
{
	FILE *f = file;
	for (int w = 0; w < c->work.n; w++)
		for (int i = 0; i < c->work.at[w].phases.n; i++) {
			const Lowered *low = &c->work.at[w].phases.at[i];
			fprintf(f, "phase   %s %s rows %d outs %d\n", c->work.at[w].target->name, phase_name(low->kind),
				low->rows, low->outs);
			for (int k = 0; k < low->ops.n; k++)
				print_op(f, low, &low->ops.at[k]);
		}
}

static void check_op(const Lowered *low, int i, bool *written)
{
	const LOp *op = &low->ops.at[i];
	const OpInfo *info = &op_table[op->kind];
	for (int k = 0; k < info->n_operands; k++) {
		int t = op->operands[k];
		if (t < 0) {
			if (!operand_may_be_absent(info->operands[k].role))
				bug("%s op %d (%s) lacks operand %s", phase_name(low->kind), i, info->name,
					info->operands[k].name);
			continue;
		}
		const LTensor *x = &low->tensors.at[t];
		if (info->operands[k].role != OPERAND_OUT && x->role == ROLE_ACTIVATION && !written[t] && low->kind != PROBE)
			bug("%s op %d (%s) reads %s before it is written", phase_name(low->kind), i, info->name, x->name);
		for (int d = 0; d < x->n_dims; d++)
			if (x->shape[d] < 1 && (op->pick >= 0 || x->tensor >= 0))
				bug("%s: dim %d of %s is %lld", info->name, d, x->name, (long long)x->shape[d]);
	}
	for (int k = 0; k < info->n_operands; k++)
		if (op->operands[k] >= 0 && info->operands[k].role == OPERAND_OUT)
			written[op->operands[k]] = true;
}

void check_lowered(Compile *c)
{
	for (int w = 0; w < c->work.n; w++)
		for (int i = 0; i < c->work.at[w].phases.n; i++) {
			const Lowered *low = &c->work.at[w].phases.at[i];
			bool *written = ARENA_ARRAY(&c->scratch, bool, low->tensors.n);
			for (int k = 0; k < low->ops.n; k++)
				check_op(low, k, written);
		}
}
