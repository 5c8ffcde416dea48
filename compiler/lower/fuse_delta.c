/* fuse_delta.c - the launches of a layer of gated DeltaNet, between its products. */
#include "compiler/lower/fuse.h"

enum { ROWS_IN_TURN = 8 /* of a step: so few go one after the other, without a launch that solves chunks */ };

/* The ops of a layer of it, from position i on, and where their operands are: qkv and z in one tensor, b and a after
 * them or in a tensor of their own, `ba`. */
typedef struct DeltaOps { const GraphOp *conv, *rule, *norm; int ba; } DeltaOps;

static bool delta_ops(Fuser *f, int i, DeltaOps *d)
{
	*d = (DeltaOps){member(f, i), member(f, i + 1), member(f, i + 2), -1};
	if (!flows(f, d->conv, "y", d->rule, "qkv") || !flows(f, d->rule, "o", d->norm, "x") ||
		operand(d->conv, "row_slot") != operand(d->rule, "row_slot") ||
		d->norm->attrs.head_dim != d->rule->attrs.v_dim)
		return false;
	const Graph *g = &f->c->graph;
	const int z_at = operand(d->norm, "z"), b_at = operand(d->rule, "b");
	const View *x = &f->views[operand(d->conv, "x")], *z = &f->views[z_at], *b = &f->views[b_at],
		*a = &f->views[operand(d->rule, "a")];
	const int64_t nv = d->rule->attrs.n_v_heads, z_col = g->tensors[operand(d->conv, "x")].shape[1];
	const int64_t end = z_col + g->tensors[z_at].shape[1];
	const bool is_joined = x->tensor >= 0 && x->tensor == z->tensor && x->col == 0 && z->col == z_col;
	const bool is_behind = is_joined && b->tensor == x->tensor && b->col == end;
	if (!is_joined || b->tensor < 0 || b->tensor != a->tensor || a->col != b->col + nv || (!is_behind && b->col != 0) ||
		f->low->tensors.at[x->tensor].shape[1] != (is_behind ? end + 2 * nv : end) ||
		f->low->tensors.at[b->tensor].shape[1] != (is_behind ? end : 0) + 2 * nv)
		return fail_note(f, f->split ? f->split : "q, k, v and z, or b and a, are not columns of one tensor");
	d->ba = is_behind ? -1 : b_at;
	return true;
}

/* The operands that ops of a whole row share. */
static void bind_delta(Fuser *f, LOp *op, const DeltaOps *d)
{
	bind_same(f, op, d->rule);
	merge_attrs(op, d->norm);
	bind_tensor(f, op, "x", operand(d->conv, "x"));
	bind_tensor(f, op, "ba", d->ba);
	bind_tensor(f, op, "norm", operand(d->norm, "w"));
	bind_tensor(f, op, "y", operand(d->norm, "y"));
}

/* Are chunks of rows solved in a launch of their own? Where a kernel of each half takes such heads, and steps have more
 * rows than go one after the other, or a row is to have the same bits in all buckets. */
static bool solves_chunks(const Fuser *f, const DeltaOps *d)
{
	const Attrs *a = &d->rule->attrs;
	const View *x = &f->views[operand(d->conv, "x")];
	return (f->c->model.options.is_invariant || f->low->rows > ROWS_IN_TURN) && (a->k_dim == 64 || a->k_dim == 128) &&
		(a->v_dim == 64 || a->v_dim == 128) && f->low->tensors.at[x->tensor].shape[1] % 8 == 0 &&
		next_template(f, OP_delta_solve, NULL) && next_template(f, OP_delta_walk, NULL);
}

static void solve_and_walk(Fuser *f, const DeltaOps *d)
{
	const Attrs *a = &d->rule->attrs;
	const int64_t rows = f->low->rows, cells = (int64_t)a->n_v_heads * PLAN_DELTA_CELL;
	static const char *const results[] = {"solved", "scores", "factors"};
	int made[3];
	LOp *op = new_op(f, OP_delta_solve, d->rule);
	bind_same(f, op, d->rule);
	bind_tensor(f, op, "x", operand(d->conv, "x"));
	bind_tensor(f, op, "ba", d->ba);
	bind_tensor(f, op, "seg", input_named(f, "seg"));
	bind_own(f, op, "solved", ROLE_ACTIVATION, false, DT_f32, 2, (int64_t[]){rows, cells});
	bind_own(f, op, "scores", ROLE_ACTIVATION, false, DT_bf16, 2, (int64_t[]){rows, cells});
	bind_own(f, op, "factors", ROLE_ACTIVATION, false, DT_f32, 2, (int64_t[]){rows, (int64_t)a->n_v_heads * 4});
	for (int i = 0; i < 3; i++)
		made[i] = op->operands[op_operand(OP_delta_solve, results[i])];
	op = new_op(f, OP_delta_walk, d->rule);
	bind_same(f, op, d->rule);
	merge_attrs(op, d->norm);
	bind_tensor(f, op, "x", operand(d->conv, "x"));
	bind_tensor(f, op, "norm", operand(d->norm, "w"));
	bind_tensor(f, op, "y", operand(d->norm, "y"));
	bind_tensor(f, op, "seg", input_named(f, "seg"));
	for (int i = 0; i < 3; i++)
		op->operands[op_operand(OP_delta_walk, results[i])] = made[i];
}

/* In decode and verify a launch does it all; in prefill one launch turns rows, of whatever segment, and another goes
 * through the rows of each, or two do: what needs no state first. */
bool fuse_delta(Fuser *f, int i)
{
	DeltaOps d;
	if (!delta_ops(f, i, &d))
		return false;
	if (f->low->kind != PREFILL) {
		LOp *op = new_op(f, f->low->kind == VERIFY ? OP_delta_verify_step : OP_delta_step, d.conv);
		bind_delta(f, op, &d);
		merge_attrs(op, d.conv);
		bind_tensor(f, op, "conv_w", operand(d.conv, "w"));
		bind_tensor(f, op, "conv", operand(d.conv, "conv"));
		if (f->low->kind == VERIFY)
			bind_tensor(f, op, "conv_later", operand(d.conv, "conv_later"));
		op->attrs.rows_each = f->low->kind == VERIFY ? f->low->each : 0;
		bind_own(f, op, "readers", ROLE_STATE, false, DT_i32, 2,
			(int64_t[]){f->low->rows, d.rule->attrs.n_k_heads});
		return true;
	}
	LOp *op = new_op(f, OP_conv_rows, d.conv);
	bind_same(f, op, d.conv);
	bind_tensor(f, op, "conv_w", operand(d.conv, "w"));
	bind_tensor(f, op, "seg", input_named(f, "seg"));
	if (solves_chunks(f, &d)) {
		solve_and_walk(f, &d);
		return true;
	}
	op = new_op(f, OP_delta_rows, d.rule);
	bind_delta(f, op, &d);
	bind_tensor(f, op, "seg", input_named(f, "seg"));
	return true;
}
