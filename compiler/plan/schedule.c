/* schedule.c - turn picked ops into launches, and hazards into edges.
 *
 * Launches keep the order of the ops. Launch i waits for an earlier j when one of them writes bytes that the
 * other touches (read after write, write after read, write after write), judged by arena and offset, so that
 * buffers which share a place are ordered too. Only edges that do not follow from others are kept: going back
 * from i, a j that is already an ancestor of i needs none.
 *
 * Where the target can and the kernel waits for its inputs itself, its edges are programmatic: it starts early, loads
 * weights while its predecessors finish, and then waits for all of them. Since every kernel waits before it ends,
 * "my predecessor is done" still implies "its predecessors are".
 *
 * A kernel may ask for more (EARLY in its contract): to read state before that wait, a history of keys for one, which
 * is most of what it reads and which this step only appends to. That is sound when nothing writes the bytes between the
 * end of the step before and this launch. So, in a phase with such a kernel, launches without deps do not overlap: they
 * start when all of the step before is done, every other launch of the step starts after one of them, and of the
 * launches before it in the step none writes what it reads early (else it is not early). Those after it that write
 * such bytes have edges as ever. In a draft step, where launches before it do write them (the draft before), such a
 * kernel does not overlap: it starts when all of them are done.
 */
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <string.h>

typedef struct Touch { ArenaKind arena; int64_t from, to; bool writes; } Touch;

typedef struct Graphing {
	Compile *c;
	const Lowered *low;
	Phase *phase;
	Touch *touches;      /* [launch][PLAN_MAX_OPERANDS] */
	int *n_touches;
	int *waits;          /* [launch] of the launch at hand: those it waits for, descending */
	uint64_t *ancestors; /* [launch][words] */
	int words;
	const Target *target;
} Graphing;

static void note_touches(Graphing *g, int i)
{
	const LOp *op = &g->low->ops.at[i];
	const OpInfo *info = &op_table[op->kind];
	for (int k = 0; k < info->n_operands; k++) {
		if (op->operands[k] < 0)
			continue;
		const Buf *b = &g->phase->bufs[op->operands[k]];
		if (b->arena == ARENA_WEIGHTS)
			continue;
		g->touches[i * PLAN_MAX_OPERANDS + g->n_touches[i]++] = (Touch){b->arena, b->offset,
			b->offset + b->bytes, operand_is_written(info->operands[k].role)};
	}
}

static bool conflict(const Graphing *g, int i, int j)
{
	for (int a = 0; a < g->n_touches[i]; a++)
		for (int b = 0; b < g->n_touches[j]; b++) {
			const Touch *x = &g->touches[i * PLAN_MAX_OPERANDS + a];
			const Touch *y = &g->touches[j * PLAN_MAX_OPERANDS + b];
			if ((x->writes || y->writes) && x->arena == y->arena && x->from < y->to && y->from < x->to)
				return true;
		}
	return false;
}

static void add_edges(Graphing *g, int i)
{
	uint64_t *mine = g->ancestors + (size_t)i * (size_t)g->words;
	int n = 0;
	for (int j = i - 1; j >= 0; j--) {
		if (mine[j / 64] >> (j % 64) & 1 || !conflict(g, i, j))
			continue;
		g->waits[n++] = j;
		const uint64_t *theirs = g->ancestors + (size_t)j * (size_t)g->words;
		for (int w = 0; w < g->words; w++)
			mine[w] |= theirs[w];
		mine[j / 64] |= (uint64_t)1 << (j % 64);
	}
	Launch *l = &g->phase->launches[i];
	l->deps = ARENA_ARRAY(&g->c->arena, int, n);
	l->n_deps = n;
	for (int k = 0; k < n; k++)
		l->deps[k] = g->waits[n - 1 - k]; /* ascending */
}

Launch launch_of(Compile *c, const Target *target, OpKind op, const Pick *pick, const int *bufs)
{
	const KernelTemplate *t = &kernel_table[pick->template_index];
	bool overlaps = target->cc_major >= 9 && t->overlaps; /* programmatic edges: sm_90 and later */
	Launch l = {.kernel = pick->kernel, .op = op, .overlaps = overlaps, .read_bytes = pick->read_bytes,
		.write_bytes = pick->write_bytes,
		.flops = pick->flops, .slot = pick->slot, .layer = -1, .produces_layer = -1, .n_args = t->n_fields,
		.args = ARENA_ARRAY(&c->arena, Arg, t->n_fields), .n_maps = t->n_maps,
		.maps = ARENA_ARRAY(&c->arena, TensorMap, t->n_maps)};
	memcpy(l.grid, pick->grid, sizeof l.grid);
	for (int f = 0; f < t->n_fields; f++) {
		int k = op_operand(op, t->fields[f].name);
		l.args[f] = (Arg){.field_offset = t->fields[f].offset, .buf = bufs[k], .operand = k,
			.early = overlaps && t->fields[f].early && bufs[k] >= 0};
	}
	for (int m = 0; m < t->n_maps; m++)
		l.maps[m] = (TensorMap){.field_offset = t->maps[m].offset, .buf = l.args[t->maps[m].field].buf,
			.box = {pick->box[m][0], pick->box[m][1]}};
	return l;
}

static void make_launch(Graphing *g, int i)
{
	const LOp *op = &g->low->ops.at[i];
	Launch *l = &g->phase->launches[i];
	*l = launch_of(g->c, g->target, op->kind, &g->low->picks.at[op->pick], op->operands);
	l->layer = op->layer;
	l->produces_layer = op->produces_layer;
}

/* Does a launch before this one write what it would read early? */
static bool is_written_before(const Graphing *g, int i, const Arg *a)
{
	const Buf *b = &g->phase->bufs[a->buf];
	for (int j = 0; j < i; j++)
		for (int k = 0; k < g->n_touches[j]; k++) {
			const Touch *t = &g->touches[j * PLAN_MAX_OPERANDS + k];
			if (t->writes && t->arena == b->arena && t->from < b->offset + b->bytes && b->offset < t->to)
				return true;
		}
	return false;
}

static void settle_early(Graphing *g, int i)
{
	Launch *l = &g->phase->launches[i];
	for (int k = 0; k < l->n_args; k++)
		if (l->args[k].early && is_written_before(g, i, &l->args[k]))
			l->overlaps = 0;
	for (int k = 0; k < l->n_args; k++) /* weights never wait */
		if (!l->overlaps || (l->args[k].early && g->phase->bufs[l->args[k].buf].arena == ARENA_WEIGHTS))
			l->args[k].early = 0;
}

/* A kernel of a step that reads state early has the step before done when the first of its launches starts. */
static void part_steps(Phase *p)
{
	bool any_early = false;
	for (int i = 0; i < p->n_launches; i++)
		for (int a = 0; a < p->launches[i].n_args; a++)
			any_early |= p->launches[i].args[a].early != 0;
	for (int i = 0; i < p->n_launches && any_early; i++)
		if (p->launches[i].n_deps == 0)
			p->launches[i].overlaps = 0;
}

/* schedule - the launches of every phase and the edges between them.
 *
 *   needs   picks with kernels, buffers with offsets
 *   gives   Phase.launches; TargetWork.candidates
 *   breaks  nothing
 *   fails   never
 */
void schedule(Compile *c)
{
	for (int w = 0; w < c->work.n; w++) {
		for (int p = 0; p < c->work.at[w].plan.n_phases; p++) {
			const Lowered *low = &c->work.at[w].phases.at[p];
			Phase *phase = &c->work.at[w].plan.phases[p];
			int n = low->ops.n;
			Graphing g = {.c = c, .low = low, .phase = phase, .words = (n + 63) / 64,
				.target = c->work.at[w].target,
				.touches = ARENA_ARRAY(&c->scratch, Touch, n * PLAN_MAX_OPERANDS),
				.n_touches = ARENA_ARRAY(&c->scratch, int, n), .waits = ARENA_ARRAY(&c->scratch, int, n)};
			g.ancestors = ARENA_ARRAY(&c->scratch, uint64_t, n * g.words);
			phase->n_launches = n;
			phase->launches = ARENA_ARRAY(&c->arena, Launch, n);
			for (int i = 0; i < n; i++) {
				make_launch(&g, i);
				settle_early(&g, i);
				note_touches(&g, i);
				add_edges(&g, i);
			}
			part_steps(phase);
		}
		lay_out_trials(c, &c->work.at[w]);
	}
}
