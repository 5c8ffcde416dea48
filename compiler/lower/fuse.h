/* fuse.h - what the parts of fuse share: the state of one phase's lowering, and how operands of new ops are bound. */
#ifndef ATLASC_FUSE_H
#define ATLASC_FUSE_H

#include "compiler/ir.h"

#include <stdio.h>
#include <string.h>

typedef struct View { int tensor; int64_t col; } View; /* LTensor and first column; tensor -1 = not yet made */

typedef struct Codes { int tensor, scale, block; } Codes; /* LTensors; tensor -1 = there are none; block: of e2m1 */

enum { MAX_MEMBERS = 16 }; /* of a fusion */

typedef struct Fuser {
	Compile *c;
	const Target *target;
	Lowered *low;
	int *ops, n_ops; /* graph ops of this phase */
	bool *is_lowered; /* [n_ops] */
	int at[MAX_MEMBERS], n_at; /* of the fusion at hand, its members: index in ops, -1 = absent */
	View *views;     /* by graph tensor */
	Codes *codes;    /* by graph tensor: the quantised form of rows */
	int *uses;       /* by graph tensor: how many operands of this phase read it */
	const char *note; /* why the last attempt failed */
	const char *split; /* why the linears after the last norm are several products; NULL = they are one */
} Fuser;

/* A member of a fusion and how it is found: its operand `in` is the tensor that member `from` has as `out`. */
typedef struct Member {
	OpKind kind;
	int from;           /* -1: the anchor, one in each fusion */
	const char *out, *in;
	bool is_optional;
	bool stays;         /* it is looked at alone: another launch does it */
} Member;
typedef struct Fusion {
	const char *name;
	bool (*apply)(Fuser *f, int i); /* members from i = 0 on; what it finds missing it may drop from f->at */
	bool reads_columns; /* of tensors that joined products write */
	int n;
	Member members[MAX_MEMBERS];
} Fusion;

static inline const GraphOp *op_at(const Fuser *f, int i) { return &f->c->graph.ops[f->ops[i]]; }

/* Member k of the fusion at hand; NULL when it is absent. */
static inline const GraphOp *member(const Fuser *f, int k)
{
	return k < f->n_at && f->at[k] >= 0 ? op_at(f, f->at[k]) : NULL;
}

/* The LTensor of a graph tensor, made on first use; columns of a joined tensor are not a tensor of their own. */
static inline int lower_tensor(Fuser *f, int t)
{
	if (t < 0)
		return -1;
	if (f->views[t].tensor >= 0)
		return f->views[t].tensor;
	const Tensor *g = &f->c->graph.tensors[t];
	LTensor *l = vec_push(&f->c->arena, &f->low->tensors);
	*l = (LTensor){.name = g->name, .dtype = g->dtype, .role = g->role, .n_dims = g->n_dims,
		.tensor = t, .weight = g->weight, .n_weights = g->n_weights};
	for (int i = 0; i < g->n_dims; i++)
		l->shape[i] = g->shape[i] == DIM_ROWS ? f->low->rows
			: g->shape[i] == DIM_OUTS ? f->low->outs : g->shape[i];
	f->views[t] = (View){f->low->tensors.n - 1, 0};
	return f->views[t].tensor;
}

static inline LOp *new_op(Fuser *f, OpKind kind, const GraphOp *from)
{
	LOp *op = vec_push(&f->c->arena, &f->low->ops);
	*op = (LOp){.kind = kind, .layer = from->layer, .produces_layer = -1, .pick = -1};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = -1;
	return op;
}

static inline void merge_attrs(LOp *op, const GraphOp *from)
{
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(op->kind, #NAME) && op_has_attr(from->kind, #NAME)) \
		op->attrs.field = from->attrs.field;
#include "artifacts/attrs.h"
#undef ATTR
}

static inline int operand(const GraphOp *op, const char *name)
{
	int i = op_operand(op->kind, name);
	if (i < 0)
		bug("op %s has no operand %s", op_table[op->kind].name, name);
	return op->operands[i];
}

static inline void bind(Fuser *f, LOp *op, const char *name, int graph_tensor)
{
	int i = op_operand(op->kind, name);
	if (i < 0)
		bug("op %s has no operand %s", op_table[op->kind].name, name);
	op->operands[i] = lower_tensor(f, graph_tensor);
}

/* Copies operands of the same name, and the attributes, from a graph op. */
static inline void bind_same(Fuser *f, LOp *op, const GraphOp *from)
{
	for (int i = 0; i < op_table[from->kind].n_operands; i++) {
		const char *name = op_table[from->kind].operands[i].name;
		if (op_operand(op->kind, name) >= 0)
			bind(f, op, name, from->operands[i]);
	}
	merge_attrs(op, from);
}

static inline int input_named(const Fuser *f, const char *name)
{
	const Graph *g = &f->c->graph;
	for (int i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].role == ROLE_INPUT && strcmp(g->tensors[i].name, name) == 0)
			return i;
	bug("the graph has no input %s", name);
}

/* Does op `to` read, as `in`, what `from` writes as `out`, and no other op? Then it may disappear between them. */
static inline bool flows(const Fuser *f, const GraphOp *from, const char *out, const GraphOp *to, const char *in)
{
	int t = operand(from, out);
	return operand(to, in) == t && f->uses[t] == 1;
}

static inline bool fail_note(Fuser *f, const char *note)
{
	f->note = note;
	return false;
}

static inline const Tensor *weight_tensor(const Fuser *f, const GraphOp *op, const char *name)
{
	int t = operand(op, name);
	return t < 0 ? NULL : &f->c->graph.tensors[t];
}

static inline bool joins(Fuser *f, const GraphOp *a, const GraphOp *b, const char *name, int *step)
{
	const Tensor *x = weight_tensor(f, a, name), *y = weight_tensor(f, b, name);
	if (!x && !y)
		return true;
	if (!x || !y)
		return fail_note(f, arena_printf(&f->c->arena, "%s has a %s, which its neighbour lacks",
			weight_tensor(f, x ? a : b, "w")->name, name));
	if (x->dtype != y->dtype)
		return fail_note(f, arena_printf(&f->c->arena, "%s is %s but %s is %s: they cannot be read as one",
			x->name, dtype_name(x->dtype), y->name, dtype_name(y->dtype)));
	*step = y->weight - x->weight;
	return *step == x->n_weights || fail_note(f, "their weights are not adjacent");
}

/* The size of blocks, which is one for gate and up, from whichever of them has block scales. False when both have, of
 * different sizes. */
static inline bool block_of_two(Fuser *f, const GraphOp *gate, const GraphOp *up, Attrs *attrs)
{
	*attrs = weight_tensor(f, gate, "w_scale") ? gate->attrs : up->attrs;
	if (!weight_tensor(f, gate, "w_scale") || !weight_tensor(f, up, "w_scale") ||
		(gate->attrs.block_n == up->attrs.block_n && gate->attrs.block_k == up->attrs.block_k))
		return true;
	return fail_note(f, arena_printf(&f->c->arena, "%s has scales of %d x %d elements, %s of %d x %d",
		weight_tensor(f, gate, "w")->name, gate->attrs.block_n, gate->attrs.block_k,
		weight_tensor(f, up, "w")->name, up->attrs.block_n, up->attrs.block_k));
}

/* The weight of a linear and its scales, as operands of which `name` is the weight. */
static inline void bind_weight(Fuser *f, LOp *op, const char *name, const GraphOp *linear)
{
	char scale[32], row_scale[32];
	snprintf(scale, sizeof scale, "%s_scale", name);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", name);
	bind(f, op, name, operand(linear, "w"));
	bind(f, op, scale, operand(linear, "w_scale"));
	bind(f, op, row_scale, operand(linear, "w_row_scale"));
}

/* A buffer of a launch that the graph does not know. The shape of an attention_step's parts (SPLITS) is decided by the
 * kernel that writes them. Layers follow each other, so state of one phase may serve them all, but not where it is
 * touched early. */
static inline void bind_own(Fuser *f, LOp *op, const char *name, Role role, bool is_shared, Dtype dtype, int n_dims,
	const int64_t *shape)
{
	int *at = &op->operands[op_operand(op->kind, name)];
	for (int t = 0; is_shared && *at < 0 && t < f->low->tensors.n; t++)
		if (f->low->tensors.at[t].tensor < 0 && strcmp(f->low->tensors.at[t].name, name) == 0)
			*at = t;
	if (*at >= 0)
		return;
	*at = f->low->tensors.n;
	LTensor *x = vec_push(&f->c->arena, &f->low->tensors);
	*x = (LTensor){.name = is_shared ? name : arena_printf(&f->c->arena, "l%d.%s", op->layer, name),
		.dtype = dtype, .role = role, .n_dims = n_dims, .tensor = -1, .weight = -1};
	memcpy(x->shape, shape, sizeof shape[0] * (size_t)n_dims);
}

/* What templates take -------------------------------------------------------------------------------- */

static inline bool takes_dtype(const KernelTemplate *t, const char *field, Dtype dtype)
{
	for (int i = 0; i < t->n_fields; i++) {
		if (strcmp(t->fields[i].name, field) != 0)
			continue;
		if (strcmp(t->fields[i].dtype, dtype_name(dtype)) == 0)
			return true;
		for (int v = 0; v < t->n_dtypes; v++)
			for (int k = 0; k < t->dtypes[v].n && strcmp(t->fields[i].dtype, t->dtypes[v].var) == 0; k++)
				if (t->dtypes[v].allowed[k] == dtype)
					return true;
	}
	return false;
}

static inline bool takes_field(const KernelTemplate *t, const char *field)
{
	for (int i = 0; i < t->n_fields; i++)
		if (strcmp(t->fields[i].name, field) == 0)
			return true;
	return false;
}

/* fuse_experts.c: a layer's experts from position i on, with or without one that all rows go to. */
bool fuse_experts(Fuser *f, int i);
bool fuse_experts_and_shared(Fuser *f, int i);

/* match_fusion.c: is op i, which is not lowered, the first of such members, and may the others move up to it? They are
 * f->at then. And: they are lowered. */
bool match_fusion(Fuser *f, const Fusion *x, int i);
bool find_fusion(Fuser *f, const Fusion *x, int i); /* is op i a member of it, wherever the others are? */
void take_members(Fuser *f, const Fusion *x);

/* The op `experts` alone: a few launches. */
void lower_experts(Fuser *f, const GraphOp *op);

/* lower_op.c: a graph op alone, as launches of which each has a template whatever is around it. */
void lower_op(Fuser *f, const GraphOp *op, const char *note);

/* fuse_draft.c: what is around a head that drafts, from position i on; and the tensor draft_len of a draft step,
 * the positions of the rows of its slots. */
bool fuse_embed_verify(Fuser *f, int i), fuse_draft_first(Fuser *f, int i), fuse_follow_prompt(Fuser *f, int i),
	fuse_accept(Fuser *f, int i), fuse_draft(Fuser *f, int i), fuse_last_draft(Fuser *f, int i),
	fuse_keys(Fuser *f, int i);
int fuse_draft_len(Fuser *f);

#endif
