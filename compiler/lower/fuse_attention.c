/* fuse_attention.c - the launches of a layer's attention between the product that makes q, k and v and that which reads
 * what attention gives.
 *
 * Norms of heads, rope and the write of keys and values are one launch. Where a slot has one new position or a few that
 * follow each other, all that attends to them is in it, and a gate of each element. q, k and v are columns of one
 * tensor.
 */
#include "compiler/lower/fuse.h"

/* The ops around the new keys, from position i on: [head_norm head_norm] rope rope kv_write, [head_norm] of v. */
typedef struct NewKeys {
	const GraphOp *q_norm, *k_norm, *q_rope, *k_rope, *write, *v_norm;
	int q, k, v;
	bool v_is_k;   /* v has no columns of its own */
	bool is_gated; /* columns as wide as q follow v */
} NewKeys;

/* q, k and v must be the three column ranges of one tensor: what norm_linear made of them. */
static bool new_keys(Fuser *f, NewKeys *n, const GraphOp *v_norm)
{
	*n = (NewKeys){member(f, 0), member(f, 1), member(f, 2), member(f, 3), member(f, 4), v_norm, 0, 0, 0, false, false};
	n->q = operand(n->q_norm ? n->q_norm : n->q_rope, "x");
	n->k = operand(n->k_norm ? n->k_norm : n->k_rope, "x");
	n->v = n->v_norm ? operand(n->v_norm, "x") : operand(n->write, "v");
	n->v_is_k = n->v == n->k;
	const int64_t nq = f->c->graph.tensors[n->q].shape[1], nkv = f->c->graph.tensors[n->k].shape[1];
	const View *q = &f->views[n->q], *k = &f->views[n->k], *v = &f->views[n->v];
	bool same_turn = operand(n->q_rope, "inv_freq") == operand(n->k_rope, "inv_freq") &&
		operand(n->q_rope, "row_pos") == operand(n->write, "row_pos") &&
		operand(n->k_rope, "row_pos") == operand(n->write, "row_pos") &&
		n->q_rope->attrs.rotate == n->k_rope->attrs.rotate &&
		n->q_rope->attrs.neighbours == n->k_rope->attrs.neighbours;
	if (!same_turn || !flows(f, n->k_rope, "y", n->write, "k") ||
		(n->q_norm && !flows(f, n->q_norm, "y", n->q_rope, "x")) ||
		(n->k_norm && !flows(f, n->k_norm, "y", n->k_rope, "x")) ||
		(n->v_norm && !flows(f, n->v_norm, "y", n->write, "v")) || f->uses[n->q] != 1 ||
		f->uses[n->k] != (n->v_is_k ? 2 : 1) || f->uses[n->v] != f->uses[n->k])
		return false;
	const int64_t width = q->tensor < 0 ? 0 : f->low->tensors.at[q->tensor].shape[1];
	const int64_t v_at = n->v_is_k ? nq : nq + nkv;
	n->is_gated = width == v_at + nkv + nq;
	if (q->tensor < 0 || q->tensor != k->tensor || q->tensor != v->tensor ||
		q->col != 0 || k->col != nq || v->col != v_at || (!n->is_gated && width != v_at + nkv))
		return f->note ? false : fail_note(f, f->split ? f->split : "q, k and v are not columns of one tensor");
	return true;
}

/* The gate of what new keys and their attention make: columns after v. */
static bool is_gate_of(Fuser *f, const NewKeys *n, const GraphOp *gate)
{
	const View *q = &f->views[n->q], *v = &f->views[n->v], *g = &f->views[operand(gate, "gate")];
	const Graph *graph = &f->c->graph;
	return (n->is_gated && g->tensor == q->tensor && g->col == v->col + graph->tensors[n->v].shape[1] &&
		graph->tensors[operand(gate, "gate")].shape[1] == graph->tensors[n->q].shape[1]) ||
		fail_note(f, f->split ? f->split : "the gate's columns do not follow q, k and v");
}

static void bind_new_keys(Fuser *f, LOp *op, const NewKeys *n)
{
	if (n->q_norm || n->k_norm || n->v_norm)
		merge_attrs(op, n->q_norm ? n->q_norm : n->k_norm ? n->k_norm : n->v_norm);
	bind_tensor(f, op, "q_norm", n->q_norm ? operand(n->q_norm, "w") : -1);
	bind_tensor(f, op, "k_norm", n->k_norm ? operand(n->k_norm, "w") : -1);
	bind_tensor(f, op, "v_norm", n->v_norm ? operand(n->v_norm, "w") : -1);
	merge_attrs(op, n->q_rope);
	bind_same(f, op, n->write);
	op->attrs.n_heads = (int)(f->c->graph.tensors[n->q].shape[1] / n->write->attrs.head_dim);
	bind_tensor(f, op, "inv_freq", operand(n->q_rope, "inv_freq"));
	op->attrs.norm_whole = n->q_norm && n->q_norm->kind == OP_rmsnorm;
	op->attrs.v_is_k = n->v_is_k;
	op->attrs.gated = n->is_gated;
	bind_tensor(f, op, "qkv", n->q);
}

bool fuse_rope_write(Fuser *f, int i)
{
	enum { V_NORM = 6 };
	NewKeys n;
	if (!new_keys(f, &n, member(f, i + V_NORM)))
		return false;
	LOp *op = new_op(f, OP_rope_write, n.q_rope);
	bind_new_keys(f, op, &n);
	bind_tensor(f, op, "q", operand(n.q_rope, "y"));
	return true;
}

/* The op that makes the positions of a step's rows of what it knows of their slots; NULL when there is none. */
static const GraphOp *op_of_positions(const Fuser *f, const GraphOp *reader)
{
	const OpKind kind = f->low->kind == VERIFY ? OP_verify_rows : f->low->kind == DRAFT ? OP_draft_rows : OP_slot_rows;
	for (int i = 0; i < f->n_ops; i++)
		if (op_at(f, i)->kind == kind && operand(op_at(f, i), "row_pos") == operand(reader, "row_pos") &&
			operand(op_at(f, i), "row_slot") == operand(reader, "row_slot"))
			return op_at(f, i);
	return NULL;
}

/* Decode and draft have one new position a slot, verify a few that follow each other: what makes their keys and all
 * that attends to them are one launch. It makes the positions itself, which the state of slots says before the step
 * begins, or in a draft step draft_len. */
bool fuse_attention_step(Fuser *f, int i)
{
	enum { LOOK = 5, GATE = 6, V_NORM = 7 };
	NewKeys n;
	const GraphOp *look = member(f, i + LOOK), *gate = member(f, i + GATE);
	const bool is_verify = f->low->kind == VERIFY;
	if (f->low->kind == PREFILL || (f->c->ranks.n && f->low->kind == DRAFT /* whose draws leave no positions */) ||
		!new_keys(f, &n, member(f, i + V_NORM)) || !flows(f, n.q_rope, "y", look, "q"))
		return false;
	const Attrs *heads = &look->attrs;
	if (heads->head_dim > widest_head(f) || (heads->head_dim > 256 && heads->n_heads / heads->n_kv_heads % 2))
		return fail_note(f, arena_printf(&f->c->arena, "no launch does both of %d heads of %d elements over %d on %s",
			heads->n_heads, heads->head_dim, heads->n_kv_heads, f->target->name));
	if (gate && !(flows(f, look, "o", gate, "x") && is_gate_of(f, &n, gate))) { /* an op of its own, then */
		f->at[GATE] = -1;
		gate = NULL;
	}
	if (!gate && n.is_gated)
		return fail_note(f, "the columns after q, k and v are not a gate");
	static const char *const shared[] = {"step", "kv", "kv_scale", "kv_block", "row_slot", "row_pos", "page_table"};
	for (size_t k = 0; k < sizeof shared / sizeof shared[0]; k++)
		if (operand(n.write, shared[k]) != operand(look, shared[k]))
			return false;
	const GraphOp *positions = op_of_positions(f, look);
	if (!positions)
		return fail_note(f, "the positions of its rows do not come from the state of slots");
	LOp *op = new_op(f, is_verify && f->low->each > 1 ? OP_attention_verify : OP_attention_step, n.q_rope);
	bind_new_keys(f, op, &n);
	bind_tensor(f, op, "slot_token", operand(positions, "slot_token"));
	bind_tensor(f, op, "slot_len", operand(positions, "slot_len"));
	if (f->low->kind == DRAFT)
		op->operands[op_operand(OP_attention_step, "slot_len")] = fuse_draft_len(f);
	merge_attrs(op, look);
	op->attrs.rows_each = op->kind == OP_attention_verify ? f->low->each : 0;
	bind_tensor(f, op, "sinks", operand(look, "sinks"));
	bind_tensor(f, op, "o", gate ? operand(gate, "y") : operand(look, "o"));
	int64_t rows = f->low->rows, nh = look->attrs.n_heads;
	bind_own(f, op, "part", ROLE_ACTIVATION, false, DT_f32, 4, (int64_t[]){rows, nh, 0, look->attrs.head_dim});
	bind_own(f, op, "part_ml", ROLE_ACTIVATION, false, DT_f32, 4, (int64_t[]){rows, nh, 0, 2});
	bind_own(f, op, "arrived", ROLE_STATE, true, DT_i32, 2, (int64_t[]){rows, nh});
	return true;
}

bool is_gate_of_elements(const Fuser *f, const GraphOp *gate)
{
	const Tensor *tensors = f->c->graph.tensors;
	return tensors[operand(gate, "gate")].shape[1] == tensors[operand(gate, "x")].shape[1];
}

/* A gate for each element, after other columns of its tensor. */
bool fuse_gate_rows(Fuser *f, int i)
{
	const GraphOp *gate = member(f, i);
	const int g = operand(gate, "gate");
	const Tensor *x = &f->c->graph.tensors[operand(gate, "x")];
	if (!is_gate_of_elements(f, gate))
		return false;
	if (f->views[g].tensor < 0 || f->views[g].col + x->shape[1] != f->low->tensors.at[f->views[g].tensor].shape[1])
		return fail_note(f, f->split ? f->split : "the gate is not the last columns of its tensor");
	LOp *op = new_op(f, OP_gate_rows, gate);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_tensor(f, op, "x", operand(gate, "x"));
	bind_tensor(f, op, "gates", g);
	bind_tensor(f, op, "y", operand(gate, "y"));
	return true;
}
