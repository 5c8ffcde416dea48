/* ranks.c - what of a weight is whose, and the order of collectives: see ranks.h. */
#include "artifacts/ranks.h"
#include "artifacts/hash.h"

#include <stdlib.h>
#include <string.h>

const Cut *ranks_cut(const Ranks *r, int tensor)
{
	int low = 0, high = r->n_cuts;
	while (low < high) {
		const int mid = (low + high) / 2;
		if (r->cuts[mid].tensor < tensor)
			low = mid + 1;
		else
			high = mid;
	}
	return low < r->n_cuts && r->cuts[low].tensor == tensor ? &r->cuts[low] : NULL;
}

void ranks_whole_shape(const Graph *g, const Ranks *r, const Tensor *t, int64_t shape[PLAN_MAX_DIMS])
{
	const Cut *c = ranks_cut(r, (int)(t - g->tensors));
	memcpy(shape, t->shape, sizeof *shape * PLAN_MAX_DIMS);
	if (c)
		shape[c->axis] = 0;
	for (int i = 0; c && i < c->n_runs; i++)
		shape[c->axis] += c->runs[i].n;
}

/* Elements of the dims before the axis, and of those after it. */
static void around(const Tensor *t, int axis, int64_t *outer, int64_t *inner)
{
	*outer = *inner = 1;
	for (int i = 0; i < t->n_dims; i++)
		if (i != axis)
			*(i < axis ? outer : inner) *= t->shape[i];
}

int64_t ranks_n_ranges(const Tensor *t, const Cut *c)
{
	int64_t outer, inner;
	around(t, c->axis, &outer, &inner);
	return outer * c->n_runs;
}

CutRange ranks_range(const Ranks *r, const Tensor *t, const Cut *c, int rank, int64_t i)
{
	int64_t outer, inner, before = 0, all = 0;
	around(t, c->axis, &outer, &inner);
	const CutRun *run = &c->runs[i % c->n_runs];
	for (int k = 0; k < c->n_runs; k++) {
		all += c->runs[k].n;
		before += &c->runs[k] < run ? c->runs[k].n : 0;
	}
	const int64_t part = (int64_t)rank * run->parts / r->n, n = run->n / run->parts;
	const int64_t at = (i / c->n_runs * all + before + part * n) * inner;
	return (CutRange){dtype_span(t->dtype, at), dtype_span(t->dtype, n * inner)};
}

int64_t ranks_tensor_bytes(const Tensor *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	return dtype_span(t->dtype, n);
}

typedef struct WeightOrder { int weight, tensor; } WeightOrder;

static int compare_order(const void *a, const void *b)
{
	const WeightOrder *x = a, *y = b;
	return x->weight != y->weight ? x->weight - y->weight : x->tensor - y->tensor;
}

bool ranks_view(const Graph *g, const Ranks *r, Graph *view)
{
	int n = 0;
	*view = *g;
	view->tensors = malloc(sizeof *view->tensors * ((size_t)g->n_tensors + 1));
	view->weights = malloc(sizeof *view->weights * ((size_t)g->n_tensors + 1));
	WeightOrder *order = malloc(sizeof *order * ((size_t)g->n_tensors + 1));
	if (!view->tensors || !view->weights || !order) {
		free(order);
		ranks_view_free(view);
		return false;
	}
	if (g->n_tensors)
		memcpy(view->tensors, g->tensors, sizeof *view->tensors * (size_t)g->n_tensors);
	for (int i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].role == ROLE_WEIGHT)
			order[n++] = (WeightOrder){g->tensors[i].weight, i};
	qsort(order, (size_t)n, sizeof *order, compare_order);
	for (int i = 0; i < n; i++) {
		Tensor *t = &view->tensors[order[i].tensor];
		const Weight *from = &g->weights[t->weight];
		Weight *w = &view->weights[i];
		*w = (Weight){.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .bytes = ranks_tensor_bytes(t),
			.offset = r->n_places == n ? r->places[i].offset : 0, .file = from->file, .made = from->made,
			.made_cols = from->made_cols};
		memcpy(w->shape, t->shape, sizeof w->shape);
		t->weight = i;
		t->n_weights = 1;
	}
	free(order);
	view->n_weights = n;
	view->weight_arena_bytes = r->weight_bytes;
	return true;
}

void ranks_view_free(Graph *view)
{
	free(view->tensors);
	free(view->weights);
	*view = (Graph){0};
}

int64_t ranks_largest_part(const Graph *g, int64_t rows, int64_t outs)
{
	int64_t most = 0;
	for (int i = 0; i < g->n_ops; i++) {
		if (!is_collective(g->ops[i].kind))
			continue;
		const Tensor *part = &g->tensors[g->ops[i].operands[0]];
		const int64_t bytes = dtype_span(part->dtype, (part->shape[0] == DIM_OUTS ? outs : rows) * part->shape[1]);
		most = bytes > most ? bytes : most;
	}
	return most;
}

static void add_number(Sha256 *h, int64_t n)
{
	uint8_t bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
	sha256_add(h, bytes, sizeof bytes);
}

RankPhase ranks_phase(const Graph *g, const Ranks *r, int phase)
{
	RankPhase p = {.phase = phase};
	Sha256 h;
	sha256_start(&h);
	sha256_add(&h, "collectives", sizeof "collectives");
	add_number(&h, r->n);
	add_number(&h, phase);
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		if (!is_collective(op->kind) || !(op->phases & phase))
			continue;
		const Tensor *part = &g->tensors[op->operands[0]];
		add_number(&h, i);
		add_number(&h, part->shape[1]);
		add_number(&h, part->shape[0] == DIM_OUTS);
		sha256_add(&h, op_table[op->kind].name, strlen(op_table[op->kind].name) + 1);
		p.n_collectives++;
		p.row_bytes += part->shape[1] * (int64_t)sizeof(float);
	}
	sha256_end(&h, p.digest);
	return p;
}

bool ranks_use_nccl(const TargetPlan *t)
{
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_launches; i++)
			if (t->phases[p].launches[i].op == OP_sum_nccl || t->phases[p].launches[i].op == OP_gather_nccl)
				return true;
	return false;
}
