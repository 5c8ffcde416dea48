/* builder.c - tensors, weights and ops, appended to Compile.graph. */
#include "compiler/graph/weights.h"

#include <stdio.h>
#include <string.h>

int g_tensor(Compile *c, Role role, Dtype dtype, const char *name, int n_dims, const int64_t *shape)
{
	Graph *g = &c->graph;
	VEC(Tensor) list = {g->tensors, g->n_tensors, c->graph_cap[0]};
	Tensor *t = vec_push(&c->arena, &list);
	*t = (Tensor){.name = arena_strdup(&c->arena, name), .dtype = dtype, .role = role,
		.n_dims = n_dims, .weight = -1};
	memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
	g->tensors = list.at;
	g->n_tensors = list.n;
	c->graph_cap[0] = list.cap;
	return g->n_tensors - 1;
}

int g_activation(Compile *c, const char *name, int64_t cols)
{
	return g_tensor(c, ROLE_ACTIVATION, DT_bf16, name, 2, (int64_t[]){DIM_ROWS, cols});
}

void g_op(Compile *c, OpKind kind, int layer, int phases, const Attrs *attrs, const int *operands)
{
	Graph *g = &c->graph;
	VEC(GraphOp) list = {g->ops, g->n_ops, c->graph_cap[1]};
	GraphOp *op = vec_push(&c->arena, &list);
	*op = (GraphOp){.kind = kind, .layer = layer < g->n_layers ? layer : g->n_layers,
		.phases = phases ? phases : c->layer_phases};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = i < op_table[kind].n_operands ? operands[i] : -1;
#define ATTR(NAME, field, type, meaning) \
	if (attrs && op_has_attr(kind, #NAME)) \
		op->attrs.field = attrs->field;
#include "artifacts/attrs.h"
#undef ATTR
	g->ops = list.at;
	g->n_ops = list.n;
	c->graph_cap[1] = list.cap;
}

int g_add_weights(Compile *c, const char *name, int n_dims, const int64_t *shape, int n, const Weight *w)
{
	Graph *g = &c->graph;
	VEC(Weight) list = {g->weights, g->n_weights, c->graph_cap[2]};
	for (int i = 0; i < n; i++)
		*vec_push(&c->arena, &list) = w[i];
	g->weights = list.at;
	g->n_weights = list.n;
	c->graph_cap[2] = list.cap;
	int t = g_tensor(c, ROLE_WEIGHT, w->dtype, name, n_dims, shape);
	g->tensors[t].weight = g->n_weights - n;
	g->tensors[t].n_weights = n;
	return t;
}

int g_add_weight(Compile *c, const Weight *w) { return g_add_weights(c, w->name, w->n_dims, w->shape, 1, w); }

StTensor *g_find_tensor(Compile *c, const char *name)
{
	int lo = 0, hi = c->model.tensors.n - 1;
	while (lo <= hi) {
		int mid = (lo + hi) / 2, order = strcmp(name, c->model.tensors.at[mid].name);
		if (order == 0)
			return &c->model.tensors.at[mid];
		if (order < 0)
			hi = mid - 1;
		else
			lo = mid + 1;
	}
	return NULL;
}

const char *g_shape_text(Compile *c, int n_dims, const int64_t *shape)
{
	char text[128] = "[";
	for (int i = 0, at = 1; i < n_dims; i++)
		at += snprintf(text + at, sizeof text - (size_t)at, i ? ", %lld" : "%lld", (long long)shape[i]);
	return arena_printf(&c->arena, "%s]", text);
}

bool g_has_type(const StTensor *t, const char *name) { return t && strcmp(t->dtype_text, name) == 0; }

Weight g_stored(const Compile *c, const StTensor *t, Dtype dtype)
{
	Weight w = {.name = t->name, .dtype = dtype, .n_dims = t->n_dims, .bytes = t->bytes,
		.file = c->model.shards.at[t->shard].name, .file_offset = t->offset};
	memcpy(w.shape, t->shape, sizeof w.shape[0] * (size_t)t->n_dims);
	return w;
}

bool g_misfit(Compile *c, const StTensor *t, int n_dims, const int64_t *want)
{
	Misfit m = {.t = t, .n_dims = n_dims};
	memcpy(m.want, want, (size_t)n_dims * sizeof *want);
	*vec_push(&c->arena, &c->misfits) = m;
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: config.json asks for %s", t->name,
		g_shape_text(c, t->n_dims, t->shape), g_shape_text(c, n_dims, want));
}

int g_weight_of(Compile *c, const char *name, int n_dims, const int64_t *shape)
{
	Weight w = {.name = arena_strdup(&c->arena, name), .dtype = DT_bf16, .n_dims = n_dims};
	memcpy(w.shape, shape, (size_t)n_dims * sizeof *shape);
	for (int i = 0; i < c->graph.n_tensors; i++) /* a tied head uses the embedding again */
		if (c->graph.tensors[i].role == ROLE_WEIGHT && strcmp(c->graph.tensors[i].name, name) == 0)
			return i;
	Loc place = {c->model.config.at_hidden_dim.file, 0, 0};
	if (c->cmd.random_weights) {
		w.dtype = c->model.config.dtype;
		w.bytes = dtype_bytes(w.dtype);
		bool fits = true;
		for (int i = 0; i < n_dims; i++)
			fits &= !__builtin_mul_overflow(w.bytes, shape[i], &w.bytes);
		if (!fits)
			fail_at(&c->diags, A0801, place, "tensor %s would have more bytes than 64 bits count", name);
		return g_add_weight(c, &w);
	}
	StTensor *t = g_find_tensor(c, name);
	if (!t) {
		fail_at(&c->diags, A0601, place, "tensor %s is missing: %s needs it with shape %s", name,
			c->graph.family, g_shape_text(c, n_dims, shape));
		return g_add_weight(c, &w);
	}
	t->used_by++;
	bool is_float = t->is_supported && (t->dtype == DT_bf16 || t->dtype == DT_f16 || t->dtype == DT_f32);
	w.dtype = is_float ? t->dtype : DT_bf16;
	w.bytes = t->bytes;
	w.file = c->model.shards.at[t->shard].name;
	w.file_offset = t->offset;
	place.file = c->model.shards.at[t->shard].path;
	if (!is_float)
		fail_at(&c->diags, A0603, place, "tensor %s has dtype %s: expected BF16, F16 or F32", name,
			t->dtype_text);
	if (t->n_dims != n_dims || memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape) != 0)
		g_misfit(c, t, n_dims, shape);
	return g_add_weight(c, &w);
}

int g_weight(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1)
{
	return g_weight_of(c, name, n_dims, (int64_t[]){d0, d1});
}

static int constant(Compile *c, const Weight *w, const void *values)
{
	int t = g_add_weight(c, w);
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1,
		memcpy(arena_alloc(&c->arena, (size_t)w->bytes), values, (size_t)w->bytes)};
	return t;
}

int g_constant(Compile *c, const char *name, Dtype dtype, int n, const void *values)
{
	return constant(c, &(Weight){.name = arena_strdup(&c->arena, name), .dtype = dtype, .n_dims = 1, .shape = {n},
		.bytes = dtype_span(dtype, n)}, values);
}

int g_table(Compile *c, const char *name, Dtype dtype, int rows, int cols, const void *values)
{
	return constant(c, &(Weight){.name = arena_strdup(&c->arena, name), .dtype = dtype, .n_dims = 2,
		.shape = {rows, cols}, .bytes = dtype_span(dtype, (int64_t)rows * cols)}, values);
}

int g_slot_state(Compile *c, const char *name, Dtype dtype, int64_t cols)
{
	int t = g_tensor(c, ROLE_STATE, dtype, name, 2, (int64_t[]){c->graph.slots, cols});
	*vec_push(&c->arena, &c->slot_states) = t;
	return t;
}

int g_later_state(Compile *c, const char *name, Dtype dtype, int64_t cols)
{
	return g_tensor(c, ROLE_STATE, dtype, name, 3, (int64_t[]){c->graph.slots, c->graph.verify_rows - 1, cols});
}
