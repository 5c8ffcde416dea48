/* ref_check.c - the last checks before the reference trusts a graph.
 *
 * The reader has compared every shape with artifacts/ops.h. Kernels bring their own contracts; the
 * reference has none, so what its functions take for granted is checked here: integers where
 * integers are read, raw weights only where they are converted, whole heads, and vocabularies of
 * one size.
 */
#include "artifacts/numbers.h"
#include "artifacts/op_table.h"
#include "runtime/cpu/ref_check.h"
#include "runtime/cpu/ref_ops.h"

#include <stdio.h>
#include <string.h>

/* Is the last dim of that name? */
static bool ends_with_dim(const char *shape, const char *dim)
{
	const size_t n = strlen(shape), m = strlen(dim);
	return n >= m && strcmp(shape + n - m, dim) == 0 && (n == m || shape[n - m - 1] == ' ');
}

/* NULL, or what is wrong with the tensor as this operand. Drafts may be drawn from fewer columns than there are ids. */
static const char *check_operand(const Graph *g, OpKind kind, int operand, const Tensor *t)
{
	const OperandInfo *info = &op_table[kind].operands[operand];
	const char *shape = operand_shape(kind, operand);
	const int64_t width = t->shape[t->n_dims - 1];
	const bool is_part = kind == OP_draw && ends_with_dim(shape, "V");
	const bool has_vocab = ends_with_dim(shape, "V") || ends_with_dim(shape, "VOCAB");
	if ((t->dtype == DT_i32) != class_is_whole(info->of))
		return t->dtype == DT_i32 ? "holds integers" : "does not hold integers";
	if (t->role == ROLE_WEIGHT && t->dtype != DT_f32 && t->dtype != DT_i32 && !class_is_weight(info->of))
		return "is a narrow weight where activations belong";
	if (is_part && width > g->vocab)
		return "is wider than the vocabulary";
	if ((has_vocab && !is_part && width != g->vocab) ||
		(strcmp(info->name, "table") == 0 && t->shape[0] != g->vocab))
		return "is not as wide as the vocabulary";
	return NULL;
}

/* Scales belong to codes: kv_scale to e4m3, kv_scale and kv_block to e2m1, and to nothing else. */
static const char *check_kv(const Graph *g, const GraphOp *op)
{
	int scale = op->operands[op_operand(op->kind, "kv_scale")], block = op->operands[op_operand(op->kind, "kv_block")];
	Dtype dtype = g->tensors[op->operands[op_operand(op->kind, "kv")]].dtype;
	if ((scale >= 0) != (dtype == DT_e4m3 || dtype == DT_e2m1))
		return scale < 0 ? "codes of kv have no kv_scale" : "kv_scale without codes";
	if ((block >= 0) != (dtype == DT_e2m1))
		return block < 0 ? "codes of kv have no kv_block" : "kv_block without 4-bit codes";
	if (block >= 0 && op->attrs.head_dim % NVFP4_GROUP)
		return "HDIM is not a multiple of 16, the size of a scale block";
	return NULL;
}

/* Zeros belong to codes of u4: their scales are f32z, and no others are. */
static const char *check_zeros(const Graph *g, const GraphOp *op)
{
	const OpInfo *info = &op_table[op->kind];
	for (int i = 0; i < info->n_operands; i++) {
		char name[40];
		snprintf(name, sizeof name, "%s_scale", info->operands[i].name);
		const int at = op_operand(op->kind, name), scale = at >= 0 ? op->operands[at] : -1;
		const bool has_zeros = scale >= 0 && g->tensors[scale].dtype == DT_f32z;
		if (op->operands[i] >= 0 && (g->tensors[op->operands[i]].dtype == DT_u4) != has_zeros)
			return has_zeros ? "zeros without u4 codes" : "codes of u4 have no zeros";
	}
	return NULL;
}

static const char *check_experts(const Graph *g, const GraphOp *op)
{
	const Attrs *a = &op->attrs;
	if (!op_has_attr(op->kind, "TOPK"))
		return NULL;
	const bool routes = op_operand(op->kind, "logits") >= 0, has_groups = op_has_attr(op->kind, "GROUPS");
	const int of = op_operand(op->kind, routes ? "logits" : "gate_up");
	const int64_t n = g->tensors[op->operands[of]].shape[routes];
	if (has_groups && (a->n_groups < 1 || a->n_groups > REF_MAX_GROUPS || n % a->n_groups || a->top_groups < 1 ||
			a->top_groups > a->n_groups))
		return "GROUPS do not divide the experts there are, or TOP_GROUPS is more than them";
	if (a->n_active < 1 || (routes && a->n_active > (has_groups ? n / a->n_groups * a->top_groups : n)))
		return "TOPK is not between 1 and the experts there are";
	if (!routes && (op->operands[op_operand(op->kind, "gate_up_scale")] >= 0 ||
		op->operands[op_operand(op->kind, "down_scale")] >= 0) && (a->block_n < 1 || a->block_k < 1))
		return "scales of blocks that have no size";
	return NULL;
}

static const char *check_delta(const GraphOp *op)
{
	const Attrs *a = &op->attrs;
	if (op_has_attr(op->kind, "TAPS") && a->n_taps < 0)
		return "TAPS is negative";
	if (!op_has_attr(op->kind, "DK"))
		return NULL;
	if (a->n_k_heads < 1 || a->n_v_heads < 1 || a->n_v_heads % a->n_k_heads || a->k_dim < 1 || a->v_dim < 1)
		return "NV is not a multiple of NK, or a head has no elements";
	return NULL;
}

static const char *check_attrs(const Graph *g, const GraphOp *op)
{
	const Attrs *a = &op->attrs;
	const Tensor *x = &g->tensors[op->operands[0]];

	if (op_has_attr(op->kind, "HDIM") && a->head_dim <= 0)
		return "HDIM is not positive";
	if (op_has_attr(op->kind, "NKV") && a->n_kv_heads <= 0)
		return "NKV is not positive";
	if (op_has_attr(op->kind, "NH") && (a->n_heads <= 0 || a->n_heads % a->n_kv_heads != 0))
		return "NH is not a multiple of NKV";
	if (op_has_attr(op->kind, "ROTARY") && (a->rotary_dim < 0 || a->rotary_dim > a->head_dim))
		return "ROTARY is not between 0 and HDIM";
	if (op_has_attr(op->kind, "NEIGHBOURS") && (a->neighbours < 0 || a->neighbours > 1))
		return "NEIGHBOURS is neither 0 nor 1";
	if (op_has_attr(op->kind, "ROTATE") && (a->rotate < 0 || a->rotate > 1))
		return "ROTATE is neither 0 nor 1";
	if (op_has_attr(op->kind, "WINDOW") && a->window < 0)
		return "WINDOW is negative";
	if (op_has_attr(op->kind, "CHUNKED") && (a->chunked < 0 || a->chunked > (a->window > 0)))
		return "CHUNKED is neither 0 nor, where there is a WINDOW, 1";
	if (op->kind == OP_sigmoid_gate && x->shape[1] % g->tensors[op->operands[1]].shape[1] != 0)
		return "a row has no equal parts for its gates";
	if ((op->kind == OP_head_norm || op->kind == OP_rope || op->kind == OP_gated_norm) &&
		x->shape[1] % a->head_dim != 0)
		return "a row is not a whole number of heads";
	if ((op_has_attr(op->kind, "OWN") && a->n_own < 1) || (op_has_attr(op->kind, "RANKS") && a->n_ranks < 1))
		return "OWN or RANKS is not positive";
	if (op->kind == OP_columns && (a->first < 0 || a->first + g->tensors[op->operands[1]].shape[1] > x->shape[1]))
		return "columns from FIRST on are not there";
	if (op->kind == OP_draw && (a->ahead < 1 || a->ahead > 2))
		return "AHEAD is neither 1 nor 2";
	if ((op->kind == OP_sample || op->kind == OP_draw) && (a->n_valid < 1 ||
		a->n_valid > g->tensors[op->operands[op_operand(op->kind, "logits")]].shape[1]))
		return "N_VALID is not between 1 and the columns of logits";
	const char *why = op_operand(op->kind, "kv_block") >= 0 ? check_kv(g, op) : NULL;
	why = why ? why : check_zeros(g, op);
	why = why ? why : check_experts(g, op);
	return why ? why : check_delta(op);
}

bool ref_check(const Graph *g, char *why, size_t why_bytes)
{
	for (int k = 0; k < g->n_ops; k++) {
		const GraphOp *op = &g->ops[k];
		const OpInfo *row = &op_table[op->kind];
		const char *operand = "", *what = check_attrs(g, op);
		for (int i = 0; i < row->n_operands && !what; i++) {
			operand = row->operands[i].name;
			if (op->operands[i] >= 0)
				what = check_operand(g, op->kind, i, &g->tensors[op->operands[i]]);
			operand = what ? operand : "";
		}
		if (what) {
			snprintf(why, why_bytes, "graph op %d (%s): %s%s%s", k, row->name, operand,
				*operand ? " " : "", what);
			return false;
		}
	}
	return true;
}
