/* check_plan.c - printer and checker of the Plan level: what is not in this dump is not in the artifact. */
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <stdio.h>
#include <string.h>

static void print_buf(FILE *f, const Buf *b)
{
	fprintf(f, "buf     %-40s %-7s %-4s (", b->name, arena_name(b->arena), dtype_name(b->dtype));
	for (int d = 0; d < b->n_dims; d++)
		fprintf(f, d ? ",%lld" : "%lld", (long long)b->shape[d]);
	fprintf(f, ") at %lld bytes %lld live %d..%d\n", (long long)b->offset, (long long)b->bytes, b->first, b->last);
}

static void print_launch(FILE *f, const TargetPlan *plan, const Phase *p, int i)
{
	const Launch *l = &p->launches[i];
	const Kernel *k = &plan->kernels[l->kernel];
	fprintf(f, "launch  %d layer %d %s = %s grid %d %d %d block %d smem %d", i, l->layer, op_table[l->op].name, k->name,
		l->grid[0], l->grid[1], l->grid[2], k->block[0], k->smem_bytes);
	for (int a = 0; a < l->n_args; a++)
		fprintf(f, " %s=%s%s", op_table[l->op].operands[l->args[a].operand].name,
			l->args[a].buf < 0 ? "-" : p->bufs[l->args[a].buf].name, l->args[a].early ? "(early)" : "");
	for (int m = 0; m < l->n_maps; m++)
		fprintf(f, " map(%s %dx%d)", p->bufs[l->maps[m].buf].name, l->maps[m].box[0], l->maps[m].box[1]);
	fputs(l->overlaps ? " overlaps" : " after", f);
	for (int d = 0; d < l->n_deps; d++)
		fprintf(f, " %d", l->deps[d]);
	fprintf(f, "\n        reads %lld writes %lld flops %lld  %s\n", (long long)l->read_bytes, (long long)l->write_bytes,
		(long long)l->flops, k->defines);
}

void print_plan(Compile *c, void *file)
{
	FILE *f = file;
	for (int i = 0; i < c->graph.n_weights; i++)
		fprintf(f, "weight  %-40s %-4s at %lld bytes %lld\n", c->graph.weights[i].name,
			dtype_name(c->graph.weights[i].dtype), (long long)c->graph.weights[i].offset,
			(long long)c->graph.weights[i].bytes);
	for (int w = 0; w < c->work.n; w++) {
		const TargetPlan *plan = &c->work.at[w].plan;
		fprintf(f, "plan    %s  weights %lld  state %lld  scratch %lld  io %lld  ring %lld bytes\n",
			c->work.at[w].target->name, (long long)plan->arena_bytes[ARENA_WEIGHTS],
			(long long)plan->arena_bytes[ARENA_STATE], (long long)plan->arena_bytes[ARENA_SCRATCH],
			(long long)plan->arena_bytes[ARENA_IO], (long long)plan->arena_bytes[ARENA_RING]);
		for (int i = 0; i < plan->n_phases; i++) {
			const Phase *p = &plan->phases[i];
			fprintf(f, "phase   %s rows %d outs %d\n", phase_name(p->kind), p->rows, p->outs);
			for (int b = 0; b < p->n_bufs; b++)
				print_buf(f, &p->bufs[b]);
			for (int l = 0; l < p->n_launches; l++)
				print_launch(f, plan, p, l);
		}
	}
}

static void check_bufs(const TargetPlan *plan, const Phase *p)
{
	for (int i = 0; i < p->n_bufs; i++) {
		const Buf *b = &p->bufs[i];
		if (b->offset < 0 || b->bytes < 0 || b->offset + b->bytes > plan->arena_bytes[b->arena])
			bug("buffer %s leaves arena %s", b->name, arena_name(b->arena));
		for (int j = 0; j < i && b->arena == ARENA_SCRATCH; j++) {
			const Buf *o = &p->bufs[j];
			bool together = o->arena == ARENA_SCRATCH && o->first <= b->last && b->first <= o->last;
			if (together && o->offset < b->offset + b->bytes && b->offset < o->offset + o->bytes)
				bug("buffers %s and %s share bytes while both live", b->name, o->name);
		}
	}
}

/* Every read of scratch is dominated by a write of the same step: the writer is an ancestor. */
static void check_order(Compile *c, const Phase *p)
{
	int n = p->n_launches, words = (n + 63) / 64;
	uint64_t *anc = ARENA_ARRAY(&c->scratch, uint64_t, n * words);
	int *writer = ARENA_ARRAY(&c->scratch, int, p->n_bufs);
	for (int b = 0; b < p->n_bufs; b++)
		writer[b] = -1;
	for (int i = 0; i < n; i++) {
		const Launch *l = &p->launches[i];
		uint64_t *mine = anc + (size_t)i * (size_t)words;
		for (int d = 0; d < l->n_deps; d++) {
			int j = l->deps[d];
			if (j < 0 || j >= i)
				bug("launch %d waits for launch %d", i, j);
			for (int w = 0; w < words; w++)
				mine[w] |= anc[(size_t)j * (size_t)words + (size_t)w];
			mine[j / 64] |= (uint64_t)1 << (j % 64);
		}
		for (int a = 0; a < l->n_args; a++) {
			int b = l->args[a].buf;
			OperandRole role = op_table[l->op].operands[l->args[a].operand].role;
			if (b < 0 || p->bufs[b].arena != ARENA_SCRATCH)
				continue;
			if (role != OPERAND_OUT && (writer[b] < 0 || !(mine[writer[b] / 64] >> (writer[b] % 64) & 1)))
				bug("launch %d reads %s, which no earlier launch it waits for has written", i, p->bufs[b].name);
			if (operand_is_written(role))
				writer[b] = i;
		}
	}
}

static void check_launches(const TargetPlan *plan, const Phase *p)
{
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		if (l->kernel < 0 || l->kernel >= plan->n_kernels)
			bug("launch %d has no kernel", i);
		for (int a = 0; a < l->n_args; a++) {
			if (l->args[a].buf >= p->n_bufs)
				bug("launch %d: argument %d is buffer %d of %d", i, a, l->args[a].buf, p->n_bufs);
			if (l->args[a].field_offset < 0 ||
				l->args[a].field_offset + 8 > plan->kernels[l->kernel].param_bytes)
				bug("launch %d: argument %d lies outside the parameters", i, a);
		}
	}
}

void check_plan(Compile *c)
{
	for (int w = 0; w < c->work.n; w++)
		for (int i = 0; i < c->work.at[w].plan.n_phases; i++) {
			const Phase *p = &c->work.at[w].plan.phases[i];
			check_bufs(&c->work.at[w].plan, p);
			check_launches(&c->work.at[w].plan, p);
			check_order(c, p);
		}
}
