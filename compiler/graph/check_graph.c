/* check_graph.c - printer and checker of the Graph level. */
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <stdio.h>
#include <string.h>

static void print_shape(FILE *f, int n_dims, const int64_t *shape)
{
	fputc('[', f);
	for (int i = 0; i < n_dims; i++) {
		if (i)
			fputc(',', f);
		if (shape[i] == DIM_ROWS)
			fputs("ROWS", f);
		else if (shape[i] == DIM_OUTS)
			fputs("OUTS", f);
		else
			fprintf(f, "%lld", (long long)shape[i]);
	}
	fputc(']', f);
}

/* Without integers of 0: what an op does not have. */
static void print_attrs(FILE *f, const GraphOp *op)
{
#define KIND_int "  %s=%d"
#define KIND_float "  %s=%.9g"
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(op->kind, #NAME) && (strcmp(#type, "float") == 0 || op->attrs.field != 0)) \
		fprintf(f, KIND_##type, #field, op->attrs.field);
#include "artifacts/attrs.h"
#undef ATTR
#undef KIND_int
#undef KIND_float
}

void print_graph(Compile *c, void *file)
{
	FILE *f = file;
	const Graph *g = &c->graph;
	fprintf(f, "graph   %s  layers %d  hidden %d  vocab %d  slots %d  context %d  grid %d  page %d  pages %d",
		g->family,
		g->n_layers, g->hidden_dim, g->vocab, g->slots, g->max_context, g->prompt_grid, g->page, g->pages);
	if (g->snapshots)
		fprintf(f, "  snapshots %d", g->snapshots);
	fputc('\n', f);
	fputs("stop   ", f);
	for (int i = 0; i < g->n_stop_tokens; i++)
		fprintf(f, " %d", g->stop_tokens[i]);
	fputc('\n', f);
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		fprintf(f, "tensor  %-40s %-10s %-4s ", t->name, role_name(t->role), dtype_name(t->dtype));
		print_shape(f, t->n_dims, t->shape);
		if (t->weight >= 0 && g->weights[t->weight].file)
			fprintf(f, "  %s+%lld", g->weights[t->weight].file, (long long)g->weights[t->weight].file_offset);
		fputc('\n', f);
	}
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		const OpInfo *info = &op_table[op->kind];
		fprintf(f, "op      %-3d %-11s %s%s%s", op->layer, info->name, op->phases & PHASE_PREFILL ? "p" : "-",
			op->phases & PHASE_DECODE ? "d" : "-", op->phases & PHASE_ACQUIRE ? "a" : "-");
		if (g->verify_rows) /* draft, verify */
			fprintf(f, "%s%s", op->phases & PHASE_DRAFT ? "D" : "-", op->phases & PHASE_VERIFY ? "V" : "-");
		fputc(' ', f);
		for (int k = 0; k < info->n_operands; k++)
			if (op->operands[k] >= 0)
				fprintf(f, " %s=%s", info->operands[k].name, g->tensors[op->operands[k]].name);
		print_attrs(f, op);
		fputc('\n', f);
	}
}

static bool runs(const GraphOp *op, int phase) { return op->phases & phase; }

/* Within each phase: an activation is written once, before it is read, and by nothing else. */
static void check_phase(const Graph *g, int phase, int8_t *written)
{
	memset(written, 0, (size_t)g->n_tensors);
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		const OpInfo *info = &op_table[op->kind];
		if (!runs(op, phase))
			continue;
		for (int k = 0; k < info->n_operands; k++) {
			int t = op->operands[k];
			if (t < 0 || info->operands[k].role == OPERAND_OUT || g->tensors[t].role != ROLE_ACTIVATION)
				continue;
			if (!written[t])
				bug("op %d (%s) reads %s before anything writes it", i, info->name, g->tensors[t].name);
		}
		for (int k = 0; k < info->n_operands; k++) {
			int t = op->operands[k];
			if (t < 0 || info->operands[k].role != OPERAND_OUT)
				continue;
			if (written[t] && g->tensors[t].role == ROLE_ACTIVATION)
				bug("op %d (%s) writes %s again", i, info->name, g->tensors[t].name);
			if (g->tensors[t].role == ROLE_WEIGHT)
				bug("op %d (%s) writes the weight %s", i, info->name, g->tensors[t].name);
			written[t] = 1;
		}
	}
}

void check_graph(Compile *c)
{
	const Graph *g = &c->graph;
	for (int i = 0; i < g->n_ops; i++) {
		const OpInfo *info = &op_table[g->ops[i].kind];
		if (!(info->traits & OP_GRAPH))
			bug("op %d (%s) is not allowed in a graph", i, info->name);
		for (int k = 0; k < info->n_operands; k++) {
			int t = g->ops[i].operands[k];
			if (t < 0 && !operand_may_be_absent(info->operands[k].role))
				bug("op %d (%s) lacks operand %s", i, info->name, info->operands[k].name);
			if (t >= g->n_tensors)
				bug("op %d (%s): operand %s is tensor %d of %d", i, info->name, info->operands[k].name, t,
					g->n_tensors);
		}
	}
	for (int i = 0; i < g->n_tensors; i++)
		if ((g->tensors[i].role == ROLE_WEIGHT) != (g->tensors[i].weight >= 0))
			bug("tensor %s: role and weight disagree", g->tensors[i].name);
	int8_t *written = ARENA_ARRAY(&c->scratch, int8_t, g->n_tensors);
	for (int p = 0; p < PROBE; p++)
		check_phase(g, phase_bit((PhaseKind)p), written);
}
