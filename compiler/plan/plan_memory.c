/* plan_memory.c - give every buffer its place.
 *
 * Weights: the ones made here first, then the checkpoint's in the order of use, so that the weights of one
 * layer are neighbours; weights that a fused op reads as one have no gap between them. State and the host's inputs
 * and outputs: one after the other, at the same place in every phase and sized for the largest bucket.
 * Scratch: each phase packs its intermediates by lifetime, largest first, into the lowest gap that is free
 * while they live; phases never run at the same time, so they share one slab as large as the largest needs.
 * Best packing is NP-hard; a decoder layer holds about six buffers of similar size at a time, and largest-first
 * comes within a few percent of the sum of the live ones at the worst launch.
 */
#include "artifacts/memory.h"
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <stdlib.h>
#include <string.h>

static const int64_t max_arena_bytes = (int64_t)1 << 42; /* 4 TiB: beyond any card */

static int64_t align_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t tensor_bytes(Dtype dtype, int n_dims, const int64_t *shape)
{
	int64_t n = 1;
	for (int i = 0; i < n_dims; i++)
		n *= shape[i];
	return dtype_span(dtype, n);
}

static void place_weights_of(Compile *c, Graph *g)
{
	bool *joined = ARENA_ARRAY(&c->scratch, bool, g->n_weights); /* follows its predecessor without a gap */
	for (int i = 0; i < g->n_tensors; i++)
		for (int k = 1; k < g->tensors[i].n_weights; k++)
			joined[g->tensors[i].weight + k] = true;
	for (int w = 0; w < c->work.n && g == &c->graph; w++)
		for (int i = 0; i < c->work.at[w].phases.n; i++) {
			const Lowered *low = &c->work.at[w].phases.at[i];
			for (int t = 0; t < low->tensors.n; t++)
				for (int k = 1; k < low->tensors.at[t].n_weights; k++)
					joined[low->tensors.at[t].weight + k] = true;
		}
	int64_t at = 0;
	for (int kept = 1; kept >= 0; kept--)
		for (int i = 0; i < g->n_weights; i++) {
			if ((g->weights[i].file == NULL && !g->weights[i].made) != kept)
				continue;
			if (!joined[i])
				at = align_up(at, PLAN_BUF_ALIGN);
			g->weights[i].offset = at;
			at += g->weights[i].bytes;
		}
	g->weight_arena_bytes = align_up(at, PLAN_BUF_ALIGN);
}

/* Of several ranks: those of the file, and the parts of a rank. */
static void place_weights(Compile *c)
{
	Ranks *r = &c->ranks;
	place_weights_of(c, &c->graph);
	if (!r->n)
		return;
	place_weights_of(c, &c->whole);
	r->weight_bytes = c->graph.weight_arena_bytes;
	r->places = ARENA_ARRAY(&c->arena, RankPlace, c->graph.n_weights);
	for (int i = 0; i < c->graph.n_weights; i++)
		r->places[r->n_places++] = (RankPlace){c->graph.weights[i].offset};
}

/* Rows and outs of the largest bucket of a step: what the host's buffers are sized for. */
static void largest_bucket(const TargetWork *work, int *rows, int *outs)
{
	*rows = *outs = 1;
	for (int i = 0; i < work->phases.n; i++) {
		if (work->phases.at[i].kind == PROBE)
			continue;
		if (work->phases.at[i].rows > *rows)
			*rows = work->phases.at[i].rows;
		if (work->phases.at[i].outs > *outs)
			*outs = work->phases.at[i].outs;
	}
}

/* Offsets of all graph tensors of one role, from *at on. */
static void place_role(Compile *c, const TargetWork *work, Role role, int64_t *offsets, int64_t *at)
{
	const Graph *g = &c->graph;
	int rows, outs;
	largest_bucket(work, &rows, &outs);
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		if (t->role != role)
			continue;
		int64_t shape[PLAN_MAX_DIMS];
		for (int d = 0; d < t->n_dims; d++)
			shape[d] = t->shape[d] == DIM_ROWS ? rows : t->shape[d] == DIM_OUTS ? outs : t->shape[d];
		offsets[i] = *at;
		*at += align_up(tensor_bytes(t->dtype, t->n_dims, shape), PLAN_BUF_ALIGN);
	}
}

static ArenaKind arena_of(Role role, PhaseKind phase)
{
	switch (role) {
	case ROLE_WEIGHT: return ARENA_WEIGHTS;
	case ROLE_STATE: return ARENA_STATE;
	case ROLE_ACTIVATION: return phase == PROBE ? ARENA_PROBE : ARENA_SCRATCH;
	case ROLE_INPUT: return ARENA_IO;
	case ROLE_OUTPUT: return ARENA_RING;
	default: bug("role %d", role);
	}
}

static void set_lifetime(const Lowered *low, int t, Buf *b)
{
	b->first = low->ops.n;
	b->last = -1;
	for (int i = 0; i < low->ops.n; i++) {
		const OpInfo *info = &op_table[low->ops.at[i].kind];
		for (int k = 0; k < info->n_operands; k++)
			if (low->ops.at[i].operands[k] == t) {
				b->first = i < b->first ? i : b->first;
				b->last = i;
			}
	}
}

/* logits, which the host reads after the step, and what prompts' logits are made of: more of them may be asked for. */
static bool is_kept(const Lowered *low, int t)
{
	bool is_read = strcmp(low->tensors.at[t].name, logits_name(low->kind)) == 0;
	for (int i = 0; i < low->ops.n && low->kind == PREFILL && !is_read; i++) {
		const LOp *op = &low->ops.at[i];
		for (int k = 0; k < op_table[op->kind].n_operands && op_operand(op->kind, "out_row") >= 0; k++)
			is_read |= op->operands[k] == t && op_table[op->kind].operands[k].role == OPERAND_IN;
	}
	return is_read;
}

static bool live_together(const Buf *a, const Buf *b)
{
	return a->first <= b->last && b->first <= a->last;
}

static int compare_size(const void *a, const void *b)
{
	const Buf *x = *(Buf *const *)a, *y = *(Buf *const *)b;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x < y ? -1 : 1; /* one array: by index */
}

/* The lowest offset at which b overlaps none of the n placed buffers it lives with. */
static int64_t lowest_gap(Buf **placed, int n, const Buf *b)
{
	int64_t at = 0;
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < n; i++) {
			const Buf *o = placed[i];
			if (live_together(o, b) && at < o->offset + o->bytes && o->offset < at + b->bytes) {
				at = align_up(o->offset + o->bytes, PLAN_BUF_ALIGN);
				moved = true;
			}
		}
	}
	return at;
}

static int64_t pack_scratch(Compile *c, Phase *phase, ArenaKind arena)
{
	Buf **order = ARENA_ARRAY(&c->scratch, Buf *, phase->n_bufs);
	int n = 0;
	int64_t top = 0;
	for (int i = 0; i < phase->n_bufs; i++)
		if (phase->bufs[i].arena == arena)
			order[n++] = &phase->bufs[i];
	qsort(order, (size_t)n, sizeof order[0], compare_size);
	for (int i = 0; i < n; i++) {
		order[i]->offset = lowest_gap(order, i, order[i]);
		if (order[i]->offset + order[i]->bytes > top)
			top = order[i]->offset + order[i]->bytes;
	}
	return align_up(top, PLAN_BUF_ALIGN);
}

/* State that is no tensor of the graph (counters of a launch) lies after the graph's, from *own on: phases find it
 * as it was made, so they may share it. */
static void make_bufs(Compile *c, const Lowered *low, const int64_t *offsets, int64_t *own, Phase *phase)
{
	*phase = (Phase){.kind = low->kind, .rows = low->rows, .outs = low->outs, .each = low->each,
		.n_bufs = low->tensors.n,
		.bufs = ARENA_ARRAY(&c->arena, Buf, low->tensors.n)};
	for (int t = 0; t < low->tensors.n; t++) {
		const LTensor *x = &low->tensors.at[t];
		Buf *b = &phase->bufs[t];
		*b = (Buf){.name = x->name, .arena = arena_of(x->role, low->kind), .dtype = x->dtype, .n_dims = x->n_dims,
			.bytes = tensor_bytes(x->dtype, x->n_dims, x->shape), .tensor = x->tensor};
		memcpy(b->shape, x->shape, sizeof b->shape);
		if (x->role == ROLE_ACTIVATION) {
			set_lifetime(low, t, b);
			if (is_kept(low, t))
				b->last = low->ops.n - 1; /* a drafting head may follow in the step */
			continue;
		}
		b->last = low->ops.n - 1;
		if (x->is_peer) {
			b->arena = ARENA_PEER;
			c->ranks.peer_bytes = b->bytes;
			continue;
		}
		if (x->role != ROLE_WEIGHT && x->tensor < 0) {
			b->offset = *own;
			*own += align_up(b->bytes, PLAN_BUF_ALIGN);
			continue;
		}
		b->offset = x->role == ROLE_WEIGHT ? c->graph.weights[x->weight].offset : offsets[x->tensor];
	}
}

static void check_size(Compile *c, const TargetWork *work)
{
	static const char *const advice[ARENA_COUNT] = {"the model's weights",
		"slots, max_context or pool_tokens", "the largest prefill bucket", "slots or max_context", "slots",
		"compiler/lower/fuse.c", "the largest prefill bucket"};
	const Loc context = c->model.options.at_max_context, places[ARENA_COUNT] = {c->model.config.at_hidden_dim,
		context, {context.file, 0, 0}, context, context, {0}, {context.file, 0, 0}};
	for (int a = 0; a < ARENA_COUNT; a++)
		if (work->plan.arena_bytes[a] > max_arena_bytes)
			fail_at(&c->diags, A0801, places[a],
				"%s arena of %s: %lld bytes, more than any card has: see %s",
				arena_name((ArenaKind)a), work->target->name,
				(long long)work->plan.arena_bytes[a], advice[a]);
}

static void check_snapshots(Compile *c)
{
	const Graph *g = &c->graph;
	const int64_t bytes = snapshot_bytes(g);
	if (g->snapshots && bytes > max_arena_bytes / g->snapshots)
		fail_at(&c->diags, A0801, c->model.options.at_snapshots,
			"cache.snapshots = %d of %lld bytes each: more than any card has", g->snapshots, (long long)bytes);
}

/* plan_memory - an offset for every weight, state, input, output and intermediate.
 *
 *   needs   Lowered with all shapes settled
 *   gives   Weight.offset, Graph.weight_arena_bytes; Phase.bufs, arena_bytes; of Ranks: places, arenas
 *   breaks  nothing
 *   fails   an arena, or snapshots, larger than any card's memory
 */
void plan_memory(Compile *c)
{
	place_weights(c);
	check_snapshots(c);
	for (int w = 0; w < c->work.n; w++) {
		TargetWork *work = &c->work.at[w];
		TargetPlan *plan = &work->plan;
		int64_t *offsets = ARENA_ARRAY(&c->scratch, int64_t, c->graph.n_tensors);
		int64_t *arena = plan->arena_bytes;
		arena[ARENA_WEIGHTS] = c->graph.weight_arena_bytes;
		place_role(c, work, ROLE_STATE, offsets, &arena[ARENA_STATE]);
		place_role(c, work, ROLE_INPUT, offsets, &arena[ARENA_IO]);
		place_role(c, work, ROLE_OUTPUT, offsets, &arena[ARENA_RING]);
		const int64_t graph_state = arena[ARENA_STATE];
		plan->n_phases = work->phases.n;
		plan->phases = ARENA_ARRAY(&c->arena, Phase, plan->n_phases);
		for (int i = 0; i < plan->n_phases; i++) {
			int64_t own = graph_state;
			make_bufs(c, &work->phases.at[i], offsets, &own, &plan->phases[i]);
			if (own > arena[ARENA_STATE])
				arena[ARENA_STATE] = own;
			ArenaKind slab = plan->phases[i].kind == PROBE ? ARENA_PROBE : ARENA_SCRATCH;
			int64_t need = pack_scratch(c, &plan->phases[i], slab);
			if (need > arena[slab])
				arena[slab] = need;
		}
		arena[ARENA_PEER] = c->ranks.peer_bytes;
		check_size(c, work);
	}
}
