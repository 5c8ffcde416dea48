/* bind.c - tensors and operands of lowered ops, and what fusions ask of graph ops and of templates. */
#include "compiler/lower/fuse.h"

#include <stdio.h>
#include <string.h>

const GraphOp *op_at(const Fuser *f, int i) { return &f->c->graph.ops[f->ops[i]]; }

/* Member k of the fusion at hand; NULL when it is absent. */
const GraphOp *member(const Fuser *f, int k)
{
	return k < f->n_at && f->at[k] >= 0 ? op_at(f, f->at[k]) : NULL;
}

/* The LTensor of a graph tensor, made on first use; columns of a joined tensor are not a tensor of their own. */
int lower_tensor(Fuser *f, int t)
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

LOp *new_op(Fuser *f, OpKind kind, const GraphOp *from)
{
	LOp *op = vec_push(&f->c->arena, &f->low->ops);
	*op = (LOp){.kind = kind, .layer = from->layer, .produces_layer = -1, .pick = -1};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = -1;
	return op;
}

void merge_attrs(LOp *op, const GraphOp *from)
{
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(op->kind, #NAME) && op_has_attr(from->kind, #NAME)) \
		op->attrs.field = from->attrs.field;
#include "artifacts/attrs.h"
#undef ATTR
}

int operand(const GraphOp *op, const char *name)
{
	int i = op_operand(op->kind, name);
	if (i < 0)
		bug("op %s has no operand %s", op_table[op->kind].name, name);
	return op->operands[i];
}

void bind_tensor(Fuser *f, LOp *op, const char *name, int graph_tensor)
{
	int i = op_operand(op->kind, name);
	if (i < 0)
		bug("op %s has no operand %s", op_table[op->kind].name, name);
	op->operands[i] = lower_tensor(f, graph_tensor);
}

/* Copies operands of the same name, and the attributes, from a graph op. */
void bind_same(Fuser *f, LOp *op, const GraphOp *from)
{
	for (int i = 0; i < op_table[from->kind].n_operands; i++) {
		const char *name = op_table[from->kind].operands[i].name;
		if (op_operand(op->kind, name) >= 0)
			bind_tensor(f, op, name, from->operands[i]);
	}
	merge_attrs(op, from);
}

int input_named(const Fuser *f, const char *name)
{
	const Graph *g = &f->c->graph;
	for (int i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].role == ROLE_INPUT && strcmp(g->tensors[i].name, name) == 0)
			return i;
	bug("the graph has no input %s", name);
}

/* Does op `to` read, as `in`, what `from` writes as `out`, and no other op? Then it may disappear between them. */
bool flows(const Fuser *f, const GraphOp *from, const char *out, const GraphOp *to, const char *in)
{
	int t = operand(from, out);
	return operand(to, in) == t && f->uses[t] == 1;
}

bool fail_note(Fuser *f, const char *note)
{
	f->note = note;
	return false;
}

const Tensor *weight_tensor(const Fuser *f, const GraphOp *op, const char *name)
{
	int t = operand(op, name);
	return t < 0 ? NULL : &f->c->graph.tensors[t];
}

bool joins(Fuser *f, const GraphOp *a, const GraphOp *b, const char *name, int *step)
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

bool block_of_two(Fuser *f, const GraphOp *gate, const GraphOp *up, Attrs *attrs)
{
	static const char *const parts[] = {"w", "w_scale", "w_row_scale"};
	const char *names[] = {weight_tensor(f, gate, "w")->name, weight_tensor(f, up, "w")->name};
	*attrs = gate->attrs;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		const Tensor *a = weight_tensor(f, gate, parts[i]), *b = weight_tensor(f, up, parts[i]);
		if (!a != !b || (a && a->dtype != b->dtype))
			return fail_note(f, arena_printf(&f->c->arena, "%s of %s is %s, of %s %s", parts[i], names[0],
				a ? dtype_name(a->dtype) : "absent", names[1], b ? dtype_name(b->dtype) : "absent"));
	}
	if (!weight_tensor(f, gate, "w_scale") ||
		(gate->attrs.block_n == up->attrs.block_n && gate->attrs.block_k == up->attrs.block_k))
		return true;
	return fail_note(f, arena_printf(&f->c->arena, "%s has scales of %d x %d elements, %s of %d x %d", names[0],
		gate->attrs.block_n, gate->attrs.block_k, names[1], up->attrs.block_n, up->attrs.block_k));
}

/* The weight of a linear and its scales, as operands of which `name` is the weight. */
void bind_weight(Fuser *f, LOp *op, const char *name, const GraphOp *linear)
{
	char scale[32], row_scale[32];
	snprintf(scale, sizeof scale, "%s_scale", name);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", name);
	bind_tensor(f, op, name, operand(linear, "w"));
	bind_tensor(f, op, scale, operand(linear, "w_scale"));
	bind_tensor(f, op, row_scale, operand(linear, "w_row_scale"));
}

/* A buffer of a launch that the graph does not know. The shape of an attention_step's parts (SPLITS) is decided by the
 * kernel that writes them. Layers follow each other, so state of one phase may serve them all, but not where it is
 * touched early. */
void bind_own(Fuser *f, LOp *op, const char *name, Role role, bool is_shared, Dtype dtype, int n_dims,
	const int64_t *shape)
{
	int *at = &op->operands[op_operand(op->kind, name)];
	for (int t = 0; is_shared && *at < 0 && t < f->low->tensors.n; t++) /* layers may differ in heads */
		if (f->low->tensors.at[t].tensor < 0 && strcmp(f->low->tensors.at[t].name, name) == 0 &&
			memcmp(f->low->tensors.at[t].shape, shape, sizeof shape[0] * (size_t)n_dims) == 0)
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

const KernelTemplate *next_template(const Fuser *f, OpKind op, const KernelTemplate *last)
{
	for (const KernelTemplate *t = last ? last + 1 : kernel_table; t < kernel_table + n_kernel_table; t++)
		if (t->op == op && template_serves(t, f->target))
			return t;
	return NULL;
}

bool takes_dtype(const KernelTemplate *t, const char *field, Dtype dtype)
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

bool takes_field(const KernelTemplate *t, const char *field)
{
	for (int i = 0; i < t->n_fields; i++)
		if (strcmp(t->fields[i].name, field) == 0)
			return true;
	return false;
}
