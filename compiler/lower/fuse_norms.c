/* fuse_norms.c - post-norms and gated products whose launches are of few rows.
 *
 * What a norm makes of a product is added to the stream where it is made. Gate and up with an activation become one
 * launch where weights are streamed, or come in tiles from as many rows on as elsewhere (rows_of_products.c). An
 * invariant plan keeps them apart, since what is streamed has an order of its own.
 */
#include "artifacts/numbers.h"
#include "compiler/lower/fuse.h"

enum { FEW_ROWS = 16, MOST_ROWS = 64 /* that are streamed, without and with a norm inside */ };

bool fuse_norm_residual(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *sum = member(f, i + 1), *by = member(f, i + 2);
	if (!flows(f, norm, "y", sum, "y"))
		return false;
	if (by && !flows(f, sum, "z", by, "x")) { /* a launch of its own, then */
		f->at[i + 2] = -1;
		by = NULL;
	}
	LOp *op = new_op(f, OP_norm_residual, norm);
	merge_attrs(op, norm);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_tensor(f, op, "x", operand(norm, "x"));
	bind_tensor(f, op, "norm", operand(norm, "w"));
	bind_tensor(f, op, "residual", operand(sum, "x"));
	bind_tensor(f, op, "factor", by ? operand(by, "w") : -1);
	bind_tensor(f, op, "z", by ? operand(by, "y") : operand(sum, "z"));
	return true;
}

/* Do kernels of the op stream weights of such a linear, with the scales that it has? */
static bool is_streamed(const Fuser *f, OpKind op, const GraphOp *linear)
{
	const Tensor *w = weight_tensor(f, linear, "w"), *scale = weight_tensor(f, linear, "w_scale");
	const Attrs *a = &linear->attrs;
	const bool has_blocks = !scale || (w->dtype == DT_e4m3 && a->block_n == FP8_BLOCK && a->block_k == FP8_BLOCK) ||
		(w->dtype == DT_e2m1 && a->block_n == 1 && (a->block_k == NVFP4_GROUP || a->block_k == MXFP4_GROUP));
	const KernelTemplate *t = NULL;
	while (has_blocks && dtype_span(w->dtype, w->shape[1]) % 16 == 0 && (t = next_template(f, op, t)))
		if (!t->n_maps && takes_dtype(t, "gate", w->dtype))
			return true;
	return false;
}

/* The op of gate and up on rows x, in place of an activation that reads both. */
static LOp *gate_and_up(Fuser *f, OpKind kind, const GraphOp *gate, const GraphOp *up, const GraphOp *act,
	const Attrs *block)
{
	LOp *op = new_op(f, kind, gate);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_weight(f, op, "gate", gate);
	bind_weight(f, op, "up", up);
	op->attrs.block_n = block->block_n;
	op->attrs.block_k = block->block_k;
	bind_tensor(f, op, "gate_bias", operand(gate, "bias"));
	bind_tensor(f, op, "up_bias", operand(up, "bias"));
	bind_tensor(f, op, "y", operand(act, "y"));
	return op;
}

static bool is_pair(Fuser *f, const GraphOp *gate, const GraphOp *up, const GraphOp *act, Attrs *block)
{
	return operand(gate, "x") == operand(up, "x") && flows(f, gate, "y", act, "gate") &&
		flows(f, up, "y", act, "up") && block_of_two(f, gate, up, block);
}

/* Are rows of this step multiplied by such weights in tiles or as codes? */
static bool is_of_many(const Fuser *f, const GraphOp *linear)
{
	return multiplies_tiles(f, OP_linear_rows, "w", linear, weight_tensor(f, linear, "w")->shape[0]) ||
		multiplies_codes(f, OP_linear_rows, "w", linear) || multiplies_e2m1(f, OP_linear_rows, "w", linear);
}

bool fuse_norm_geglu(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *gate = member(f, i + 1), *up = member(f, i + 2), *act = member(f, i + 3);
	const int n = operand(norm, "y");
	Attrs block;
	if (operand(gate, "x") != n || f->uses[n] != 2 || !is_pair(f, gate, up, act, &block) ||
		f->c->model.options.is_invariant || f->low->rows > MOST_ROWS || is_of_many(f, gate) ||
		!is_streamed(f, OP_norm_geglu, gate) || !is_streamed(f, OP_norm_geglu, up))
		return false;
	LOp *op = gate_and_up(f, OP_norm_geglu, gate, up, act, &block);
	merge_attrs(op, norm);
	bind_tensor(f, op, "x", operand(norm, "x"));
	bind_tensor(f, op, "norm", operand(norm, "w"));
	return true;
}

/* Rows that no norm makes for them. */
bool fuse_linear_swiglu(Fuser *f, int i)
{
	const GraphOp *gate = member(f, i), *up = member(f, i + 1), *act = member(f, i + 2);
	const int64_t columns = weight_tensor(f, gate, "w")->shape[0];
	Attrs block;
	if (!is_pair(f, gate, up, act, &block) || multiplies_codes(f, OP_linear_rows, "w", gate) ||
		multiplies_e2m1(f, OP_linear_rows, "w", gate))
		return false;
	const bool in_tiles = multiplies_tiles(f, OP_linear_swiglu, "gate", gate, columns) &&
		multiplies_tiles(f, OP_linear_swiglu, "up", up, columns);
	if (!in_tiles && (f->c->model.options.is_invariant || f->low->rows > FEW_ROWS || is_of_many(f, gate) ||
		!is_streamed(f, OP_linear_swiglu, gate) || !is_streamed(f, OP_linear_swiglu, up)))
		return false;
	bind_tensor(f, gate_and_up(f, OP_linear_swiglu, gate, up, act, &block), "x", operand(gate, "x"));
	return true;
}
