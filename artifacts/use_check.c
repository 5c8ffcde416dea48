/* use_check.c - does a plan touch what the graph says, all of it, and nothing besides?
 *
 * Fused ops have operands of their own, so a launch cannot be compared with a graph op one to one. But what a layer's
 * ops read of the checkpoint and keep as state does not change by fusing them: weights, caches, states of slots, and
 * what the host gives and gets. So in each phase
 *
 *   - each launch touches weights and state of its own layer alone: those that an op of that layer has;
 *   - each weight, state, input and output of an op that runs in the phase is touched by a launch of it.
 *
 * That finds a launch that was dropped, one bound to another layer's weight, state that is no longer zeroed, a token
 * that is never drawn. What the step loop shares among all layers (frame_table) belongs to no layer. Also no byte
 * of memory is there for nothing: a buffer lives from the first launch that touches it to the last, an arena ends
 * where its last buffer ends, and each weight is read by an op.
 */
#include "artifacts/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

enum { NO_LAYER = -2 }; /* of what all layers share */

typedef struct Use { int thing, layer, phases; } Use; /* thing: a weight, or n_weights + a tensor */

typedef struct Uses {
	const Graph *g;
	Use *list; int n;  /* of graph ops: sorted by thing and layer, each once */
	int *by_offset;    /* [n_weights] */
	bool *is_touched;  /* [n] in the phase at hand */
	bool *is_shared;   /* [n_tensors] of frame_table */
	Why *why;
} Uses;

static int compare_uses(const void *a, const void *b)
{
	const Use *x = a, *y = b;
	return x->thing != y->thing ? (x->thing < y->thing ? -1 : 1) : (x->layer > y->layer) - (x->layer < y->layer);
}

static bool is_frame(const char *name)
{
	for (int i = 0; i < n_frame_table; i++)
		if (strcmp(frame_table[i].name, name) == 0)
			return true;
	return false;
}

static int layer_of(const Uses *u, int tensor, int layer) { return u->is_shared[tensor] ? NO_LAYER : layer; }

static const char *name_of(const Uses *u, int thing)
{
	return thing < u->g->n_weights ? u->g->weights[thing].name : u->g->tensors[thing - u->g->n_weights].name;
}

static void add_op(Uses *u, const GraphOp *op)
{
	const Graph *g = u->g;
	for (int i = 0; i < op_table[op->kind].n_operands; i++) {
		const int t = op->operands[i];
		const bool may_lack = operand_may_be_absent(op_table[op->kind].operands[i].role);
		if (t < 0 || g->tensors[t].role == ROLE_ACTIVATION || (g->tensors[t].role == ROLE_INPUT && may_lack))
			continue;
		for (int w = 0; w < g->tensors[t].n_weights; w++)
			u->list[u->n++] = (Use){g->tensors[t].weight + w, op->layer, op->phases};
		if (g->tensors[t].role != ROLE_WEIGHT)
			u->list[u->n++] = (Use){g->n_weights + t, layer_of(u, t, op->layer), op->phases};
	}
}

void weights_by_offset(const Graph *g, int *order)
{
	for (int i = 0; i < g->n_weights; i++) { /* nearly in order already */
		int k = i;
		for (; k > 0 && g->weights[order[k - 1]].offset > g->weights[i].offset; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
}

static bool collect(Uses *u)
{
	const Graph *g = u->g;
	size_t most = 1;
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < op_table[g->ops[i].kind].n_operands; k++)
			if (g->ops[i].operands[k] >= 0)
				most += (size_t)g->tensors[g->ops[i].operands[k]].n_weights + 1;
	u->list = malloc(most * sizeof *u->list);
	u->is_touched = malloc(most * sizeof *u->is_touched);
	u->by_offset = malloc(((size_t)g->n_weights + 1) * sizeof *u->by_offset);
	u->is_shared = calloc((size_t)g->n_tensors + 1, sizeof *u->is_shared);
	if (!u->list || !u->is_touched || !u->by_offset || !u->is_shared)
		return why_not(u->why, READ_NO_MEMORY, "no memory to compare %d ops", g->n_ops);
	for (int i = 0; i < g->n_tensors; i++)
		u->is_shared[i] = is_frame(g->tensors[i].name);
	for (int i = 0; i < g->n_ops; i++)
		add_op(u, &g->ops[i]);
	qsort(u->list, (size_t)u->n, sizeof *u->list, compare_uses);
	int n = 0;
	for (int i = 0; i < u->n; i++)
		if (n && compare_uses(&u->list[n - 1], &u->list[i]) == 0)
			u->list[n - 1].phases |= u->list[i].phases;
		else
			u->list[n++] = u->list[i];
	u->n = n;
	weights_by_offset(g, u->by_offset);
	return true;
}

/* Index of the use of a thing by a layer; -1 = no op of that layer has it in that phase. */
static int find_use(const Uses *u, int thing, int layer, PhaseKind phase)
{
	const Use key = {thing, layer, 0}, *at = bsearch(&key, u->list, (size_t)u->n, sizeof key, compare_uses);
	return at && at->phases & phase_bit(phase) ? (int)(at - u->list) : -1;
}

static bool touch(Uses *u, const Phase *p, int index, int thing, int layer)
{
	Why *why = u->why;
	const Launch *l = &p->launches[index];
	const int at = find_use(u, thing, layer, p->kind);
	if (at >= 0)
		u->is_touched[at] = true;
	return at >= 0 || layer == NO_LAYER || REFUSE("%s launch %d (%s): touches %s, which is not an operand of layer "
		"%d",
		PHASE_LABEL(p), index, op_table[l->op].name, name_of(u, thing), layer);
}

/* All weights in the bytes of a buffer, which begins and ends where weights do. */
static bool touch_weights(Uses *u, const Phase *p, int index, const Buf *b)
{
	Why *why = u->why;
	const Graph *g = u->g;
	int low = 0, high = g->n_weights;
	while (low < high) {
		int mid = (low + high) / 2;
		if (g->weights[u->by_offset[mid]].offset < b->offset)
			low = mid + 1;
		else
			high = mid;
	}
	int64_t at = b->offset;
	for (; at < b->offset + b->bytes && low < g->n_weights && g->weights[u->by_offset[low]].offset == at; low++) {
		if (!touch(u, p, index, u->by_offset[low], p->launches[index].layer))
			return false;
		at += g->weights[u->by_offset[low]].bytes;
	}
	return at == b->offset + b->bytes || REFUSE("%s launch %d (%s): %s is not where weights begin and end",
		PHASE_LABEL(p), index, op_table[p->launches[index].op].name, b->name);
}

static bool check_phase_uses(Uses *u, const Phase *p)
{
	Why *why = u->why;
	memset(u->is_touched, 0, sizeof *u->is_touched * (size_t)u->n);
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < p->launches[i].n_args; k++) {
			const Buf *b = p->launches[i].args[k].buf < 0 ? NULL : &p->bufs[p->launches[i].args[k].buf];
			if (b && b->arena == ARENA_WEIGHTS && !touch_weights(u, p, i, b))
				return false;
			if (b && b->tensor >= 0 && b->arena != ARENA_WEIGHTS && b->arena != ARENA_SCRATCH && !touch(u, p, i,
				u->g->n_weights + b->tensor, layer_of(u, b->tensor, p->launches[i].layer)))
				return false;
		}
	for (int i = 0; i < u->n; i++)
		if (u->list[i].phases & phase_bit(p->kind) && !u->is_touched[i])
			return REFUSE("%s: no launch of layer %d touches %s, as the graph does", PHASE_LABEL(p),
				u->list[i].layer, name_of(u, u->list[i].thing));
	return true;
}

/* Memory ------------------------------------------------------------------------------------------------- */

/* What a step makes for itself lives from the first launch that touches it to the last. To the step's end live logits,
 * which the host reads after it, and what prompts' logits are made of, since more of them may be asked for then. */
static bool is_kept(const Phase *p, int buf)
{
	bool is_read = strcmp(p->bufs[buf].name, logits_name(p->kind)) == 0;
	for (int i = 0; i < p->n_launches && p->kind == PREFILL && !is_read; i++) {
		const Launch *l = &p->launches[i];
		for (int k = 0; k < l->n_args && op_operand(l->op, "out_row") >= 0; k++)
			is_read |= l->args[k].buf == buf && op_table[l->op].operands[l->args[k].operand].role == OPERAND_IN;
	}
	return is_read;
}

static bool check_lives(const Phase *p, Why *why)
{
	int (*lives)[2] = malloc(sizeof *lives * (size_t)(p->n_bufs + 1));
	if (!lives)
		return why_not(why, READ_NO_MEMORY, "no memory to compare %d buffers", p->n_bufs);
	for (int i = 0; i < p->n_bufs; i++)
		lives[i][0] = lives[i][1] = -1;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < p->launches[i].n_args; k++) {
			const int b = p->launches[i].args[k].buf;
			if (b < 0)
				continue;
			lives[b][1] = i;
			if (lives[b][0] < 0)
				lives[b][0] = i;
		}
	bool good = true;
	for (int i = 0; i < p->n_bufs && good; i++) {
		const Buf *b = &p->bufs[i];
		bool is_made = b->arena == ARENA_SCRATCH || b->arena == ARENA_PROBE;
		if (is_made && lives[i][0] >= 0 && is_kept(p, i))
			lives[i][1] = p->n_launches - 1;
		if (lives[i][0] < 0)
			good = REFUSE("%s buffer %s: no launch touches it", PHASE_LABEL(p), b->name);
		else if (is_made && (b->first != lives[i][0] || b->last != lives[i][1]))
			good = REFUSE("%s buffer %s: live from launch %d to %d, touched from %d to %d", PHASE_LABEL(p),
				b->name, b->first, b->last, lives[i][0], lives[i][1]);
	}
	free(lives);
	return good;
}

static int64_t align_up(int64_t n) { return (n + PLAN_BUF_ALIGN - 1) / PLAN_BUF_ALIGN * PLAN_BUF_ALIGN; }

static bool check_arenas(const Graph *g, const TargetPlan *t, Why *why)
{
	int64_t end[ARENA_COUNT] = {0};
	for (int i = 0; i < g->n_weights; i++)
		if (g->weights[i].offset + g->weights[i].bytes > end[ARENA_WEIGHTS])
			end[ARENA_WEIGHTS] = g->weights[i].offset + g->weights[i].bytes;
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_bufs; i++) {
			const Buf *b = &t->phases[p].bufs[i];
			if (b->offset + b->bytes > end[b->arena])
				end[b->arena] = b->offset + b->bytes;
		}
	for (int i = 0; i < ARENA_COUNT; i++)
		if (t->arena_bytes[i] != align_up(end[i]))
			return REFUSE("target %s: arena %s of %lld bytes, of which %lld are used", t->target,
				arena_name((ArenaKind)i), (long long)t->arena_bytes[i], (long long)end[i]);
	return true;
}

bool check_uses(const Artifact *a, const TargetPlan *t, Why *why)
{
	const Graph *g = &a->graph;
	Uses u = {.g = g, .why = why};
	bool good = collect(&u);
	for (int i = 0, at = 0; i < g->n_weights && good; i++) {
		while (at < u.n && u.list[at].thing < i)
			at++;
		good = (at < u.n && u.list[at].thing == i) || REFUSE("weight %s: no op reads it", g->weights[i].name);
	}
	for (int i = 0; i < t->n_phases && good; i++)
		good = check_lives(&t->phases[i], why) && (t->phases[i].kind == PROBE || check_phase_uses(&u, &t->phases[i]));
	good = good && check_arenas(g, t, why);
	free(u.list);
	free(u.is_touched);
	free(u.by_offset);
	free(u.is_shared);
	return good;
}
