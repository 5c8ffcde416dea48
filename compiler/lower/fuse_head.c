/* fuse_head.c - the launches from the last rows to what is drawn of them.
 *
 * Logits come with the best of each part of the vocabulary, so that who draws need not read them all again. Few rows
 * are gathered and normed inside the product; those of many outs are written first, where that is faster
 * (rows_of_products.c).
 */
#include "compiler/lower/fuse.h"

/* How many parts of the vocabulary there are (PARTS) is decided by the kernel that makes the logits. */
static int part_tensor(Fuser *f, int logits, const char *name, Dtype dtype, int n_dims)
{
	const char *of = f->c->graph.tensors[logits].name;
	*vec_push(&f->c->arena, &f->low->tensors) = (LTensor){.name = arena_printf(&f->c->arena, "%s.%s", of, name),
		.dtype = dtype, .role = ROLE_ACTIVATION, .n_dims = n_dims, .shape = {f->low->outs, 0, n_dims > 2 ? 2 : 0},
		.tensor = -1, .weight = -1};
	return f->low->tensors.n - 1;
}

/* The op that gathers rows and norms them, up to an output of its own. */
static LOp *normed_outs(Fuser *f, const Head *h, OpKind kind)
{
	LOp *op = new_op(f, kind, h->norm);
	merge_attrs(op, h->norm);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_tensor(f, op, "x", h->x);
	bind_tensor(f, op, "out_row", h->out_row);
	bind_tensor(f, op, "norm", operand(h->norm, "w"));
	return op;
}

/* The same in a launch of its own, and the op that reads what it wrote. */
static LOp *logits_of_written(Fuser *f, const Head *h)
{
	const Tensor *x = &f->c->graph.tensors[h->x];
	*vec_push(&f->c->arena, &f->low->tensors) = (LTensor){.name = arena_printf(&f->c->arena, "%s.outs", x->name),
		.dtype = DT_bf16, .role = ROLE_ACTIVATION, .n_dims = 2, .shape = {f->low->outs, x->shape[1]}, .tensor = -1,
		.weight = -1};
	const int outs = f->low->tensors.n - 1;
	LOp *op = normed_outs(f, h, OP_norm_outs);
	op->operands[op_operand(OP_norm_outs, "y")] = outs;
	op->note = note_of_rows(f, ROWS_PLAIN, weight_tensor(f, h->linear, "w")->dtype);
	op = new_op(f, OP_linear_logits, h->linear);
	bind_tensor(f, op, "step", input_named(f, "step"));
	op->operands[op_operand(OP_linear_logits, "x")] = outs;
	return op;
}

/* The logits, with the best of each part. */
static LOp *logits_and_best(Fuser *f, const Head *h)
{
	const int logits = operand(h->cap ? h->cap : h->linear, "y");
	const int best = part_tensor(f, logits, "best", DT_f32, 3), best_id = part_tensor(f, logits, "best_id", DT_i32, 2);
	LOp *op = multiplies_outs(f, h->linear) ? logits_of_written(f, h) : normed_outs(f, h, OP_norm_logits);
	merge_attrs(op, h->linear);
	merge_attrs(op, h->draw);
	if (h->cap)
		merge_attrs(op, h->cap);
	bind_weight(f, op, "w", h->linear);
	bind_tensor(f, op, "logits", logits);
	op->operands[op_operand(op->kind, "best")] = best;
	op->operands[op_operand(op->kind, "best_id")] = best_id;
	return op;
}

LOp *fuse_head(Fuser *f, const Head *h, OpKind drawing)
{
	const LOp logits = *logits_and_best(f, h);
	LOp *op = new_op(f, drawing, h->draw);
	bind_same(f, op, h->draw);
	op->operands[op_operand(drawing, "best")] = logits.operands[op_operand(logits.kind, "best")];
	op->operands[op_operand(drawing, "best_id")] = logits.operands[op_operand(logits.kind, "best_id")];
	return op;
}

/* A rank knows the best of its own columns alone, which stays unused: the launch that draws reads all. */
bool fuse_head_of_ranks(Fuser *f, int i)
{
	const GraphOp *take = member(f, i), *norm = member(f, i + 1), *linear = member(f, i + 2), *all = member(f, i + 3);
	const GraphOp *draw = member(f, i + 4);
	if (!flows(f, take, "y", norm, "x") || !flows(f, norm, "y", linear, "x") || operand(linear, "bias") >= 0 ||
		!flows(f, linear, "y", all, "part") || operand(take, "out_row") != operand(draw, "out_row"))
		return false;
	logits_and_best(f, &(Head){norm, linear, NULL, draw, operand(take, "x"), operand(take, "out_row")});
	lower_collective(f, all);
	lower_op(f, draw, NULL);
	return true;
}
