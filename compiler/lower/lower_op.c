/* lower_op.c - the floor under the fusions: a graph op alone.
 *
 * Every op of artifacts/ops.h that may be in a graph has a template for it alone, so a model needs no fusion to reach a
 * GPU. Most of them keep their name. Norms and products take the templates that fused plans have for them too, which
 * leave out rows that are not in use; the experts of a row are a few launches.
 */
#include "compiler/lower/fuse.h"

/* The op `kind`, with operands of the same names, and the step's counts. */
static LOp *lower_as(Fuser *f, OpKind kind, const GraphOp *op)
{
	LOp *l = new_op(f, kind, op);
	bind_same(f, l, op);
	if (op_operand(kind, "step") >= 0)
		bind_tensor(f, l, "step", input_named(f, "step"));
	return l;
}

int widest_head(const Fuser *f)
{
	enum { ROOM_FOR_512 = 200000 /* bytes of a block: its q, and a stage of keys and values for each of some warps */ };
	return f->target->smem_block_bytes >= ROOM_FOR_512 ? 512 : 256;
}

/* Products in bf16 have the templates of linear_rows; what the op makes in f32 are scores. */
static OpKind kind_alone(const Fuser *f, const GraphOp *op)
{
	switch (op->kind) {
	case OP_linear:
		return f->c->graph.tensors[operand(op, "y")].dtype == DT_bf16 ? OP_linear_rows : OP_linear;
	case OP_rmsnorm:
		return OP_norm_rows;
	case OP_quantise:
		return OP_quant_rows;
	case OP_quantise_fp4:
		return OP_quant_rows_fp4;
	case OP_attention: /* segments are the rows of a prompt, which only a prefill step lists */
		return f->low->kind == PREFILL && operand(op, "seg") >= 0 &&
			op->attrs.head_dim <= widest_head(f) ? OP_attention : OP_attention_rows;
	default:
		return op->kind;
	}
}

void lower_op(Fuser *f, const GraphOp *op, const char *note)
{
	const int first = f->low->ops.n;
	if (op->kind == OP_experts || op->kind == OP_experts_limited || op->kind == OP_experts_gelu ||
		op->kind == OP_experts_clamped) {
		lower_experts(f, op);
	} else if (op->kind == OP_sum_ranks || op->kind == OP_gather_ranks) {
		lower_collective(f, op);
	} else {
		const OpKind kind = kind_alone(f, op);
		LOp *l = lower_as(f, kind, op);
		if (kind == OP_norm_rows)
			bind_tensor(f, l, "norm", operand(op, "w"));
	}
	f->low->ops.at[first].note = f->low->ops.at[first].alone = note;
}
