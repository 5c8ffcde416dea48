/* ref_ops.h - what every op means, as plain C over host arrays.
 *
 * For each row of artifacts/ops.h there is one function, written for clarity: float32 values, sums
 * in float64 in a fixed order, so that a row's bits do not depend on threads, on other rows or on
 * how the compiler vectorises (exponentials and angles are the C library's, good to its last bit).
 * The reference device (device_cpu.c) executes a graph with them, and every GPU kernel is tested
 * against them.
 *
 *   RefCall c = {.op = OP_linear, .operand = {
 *       {x, DT_f32, 2, {rows, k}}, {w, DT_bf16, 2, {n, k}}, {0}, {y, DT_f32, 2, {rows, n}}}};
 *   c.scratch = malloc(ref_scratch_bytes(&c));
 *   ref_op(&c);
 *
 * Operands are in the order of the op's row. Integers are i32, floats f32, row-major without gaps; weights and scales
 * (class_is_weight) may also be of any narrower float type and are converted as they are read. Rows come from the
 * operands' shapes. Idle rows (at or beyond step[0], or of slot -1) never touch state; where an op yields something for
 * them, attention, causal_conv, delta_rule, gather and norm_logits give zeros, experts_up, experts_down and
 * experts_down_rows nothing, the others just apply their formula. What is of class own is not touched.
 */
#ifndef ATLAS_REF_OPS_H
#define ATLAS_REF_OPS_H

#include "artifacts/op_table.h"

enum { REF_MAX_GROUPS = 64 }; /* of experts */

typedef struct RefOperand {
	void *data; /* NULL = absent. The caller's; IN operands are only read */
	Dtype dtype;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS]; /* elements, all positive */
	bool is_bf16; /* its f32 model bf16: delta, f32 as all state, is rounded when it is stored; of qkv, what it becomes
					 before scores are made. Nothing else looks */
} RefOperand;

typedef struct RefCall RefCall;
struct RefCall {
	OpKind op;
	Attrs attrs;
	RefOperand operand[PLAN_MAX_OPERANDS];
	void *scratch; /* ref_scratch_bytes() of this call, aligned to 16; NULL when that is 0 */
	int part, parts; /* 0, 0 = all of it. Else an op with OP_PARTS makes slice `part` of `parts` of its output columns,
						heads or rows; others do everything in part 0 and nothing in the others. Calls of
						different parts may run at once, each with its own scratch */
	void (*inner)(void *ctx, const RefCall *call); /* runs the graph ops that define a fused op, by threads
						perhaps; scratch is there for one part. NULL = ref_op */
	void *inner_ctx;
	const void *const *ranks; int n_ranks; /* of a collective: its first operand on each rank; 0 = its own alone */
	struct RefRoom *room; /* of ref_op and ref_scratch_bytes alone */
};

/* Executes the call. Shapes must fit the op's row, indices must be in range: neither is checked. */
void ref_op(const RefCall *call);

/* Converts n elements of a float operand, from element `first`, to f32. */
void ref_convert(const RefOperand *from, int64_t first, int64_t n, float *out);

/* A head of hdim elements times the Hadamard matrix, in place: ROTATE in artifacts/ops.h. */
void ref_rotate(float *x, int hdim);

/* Bytes of scratch the call needs: from its op, attributes and shapes, and from which operands are
 * absent. */
size_t ref_scratch_bytes(const RefCall *call);

#endif
