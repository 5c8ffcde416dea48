/* fuse_draft.c - the launches around a head that drafts: its rows, what it reads, what it and a verify step draw.
 *
 * What comes before the head's first product (an embedded token and a row of the position before it, each normed, side
 * by side) is one launch, with whatever makes these rows. Logits come as decode's do, with the best of each part of the
 * vocabulary with them; the norm before them is made again where another op reads the normed rows as well, which
 * costs less than a launch. In draft and verify steps each row's logits are wanted: out_row names row t in place t.
 */
#include "compiler/lower/fuse.h"

#include <string.h>

/* A row of the model or the head and a token, each normed, side by side: ops at i, i + 1, i + 2. */
static bool is_join(const Fuser *f, int i, int embedded, int rows)
{
	const GraphOp *first = member(f, i), *second = member(f, i + 1), *join = member(f, i + 2);
	return operand(first, "x") == embedded && operand(second, "x") == rows && f->uses[embedded] == 1 &&
		flows(f, first, "y", join, "x") && flows(f, second, "y", join, "y");
}

/* Operands of the op that norms and joins so; attributes are those of either norm. */
static void bind_join(Fuser *f, LOp *op, int i)
{
	merge_attrs(op, member(f, i));
	bind_tensor(f, op, "embedding_norm", operand(member(f, i), "w"));
	bind_tensor(f, op, "hidden_norm", operand(member(f, i + 1), "w"));
	bind_tensor(f, op, "z", operand(member(f, i + 2), "z"));
}

bool fuse_embed_verify(Fuser *f, int i)
{
	if (operand(member(f, i), "row_token") != operand(member(f, i + 1), "row_token"))
		return false;
	LOp *op = new_op(f, OP_embed_verify, member(f, i));
	bind_same(f, op, member(f, i));
	bind_same(f, op, member(f, i + 1));
	return true;
}

int fuse_draft_len(Fuser *f)
{
	for (int t = 0; t < f->low->tensors.n; t++)
		if (f->low->tensors.at[t].tensor < 0 && strcmp(f->low->tensors.at[t].name, "draft_len") == 0)
			return t;
	*vec_push(&f->c->arena, &f->low->tensors) = (LTensor){.name = "draft_len", .dtype = DT_i32,
		.role = ROLE_ACTIVATION, .n_dims = 1, .shape = {f->c->graph.slots}, .tensor = -1, .weight = -1};
	return f->low->tensors.n - 1;
}

/* draft_rows, recall, embed, rmsnorm, rmsnorm, join */
bool fuse_draft_first(Fuser *f, int i)
{
	const GraphOp *rows = member(f, i), *recall = member(f, i + 1), *embed = member(f, i + 2);
	if (operand(rows, "row_token") != operand(embed, "row_token") ||
		operand(rows, "row_slot") != operand(recall, "row_slot") || f->uses[operand(recall, "y")] != 1 ||
		!is_join(f, i + 3, operand(embed, "x"), operand(recall, "y")))
		return false;
	LOp *op = new_op(f, OP_draft_first, rows);
	bind_same(f, op, rows);
	bind_tensor(f, op, "held", operand(recall, "held"));
	bind_tensor(f, op, "table", operand(embed, "table"));
	bind_join(f, op, i + 3);
	op->operands[op_operand(OP_draft_first, "draft_len")] = fuse_draft_len(f);
	return true;
}

/* rmsnorm, linear, draw, where `readers` ops of the phase read the normed rows: logits, and an op `kind` that draws
 * from them. cap: soft_cap between the last two, NULL = none. NULL: they do not fit. */
static LOp *logits_and_draw(Fuser *f, int i, int readers, const GraphOp *cap, OpKind kind)
{
	const GraphOp *norm = member(f, i), *lin = member(f, i + 1), *draw = member(f, i + 2);
	const int rows = operand(norm, "y");
	if (operand(lin, "x") != rows || f->uses[rows] != readers || operand(lin, "bias") >= 0 ||
		!flows(f, cap ? cap : lin, "y", draw, "logits") || (cap && !flows(f, lin, "y", cap, "x")))
		return NULL;
	return fuse_head(f, &(Head){norm, lin, cap, draw, operand(norm, "x"), input_named(f, "out_row")}, kind);
}

/* hold, embed_next_token, rmsnorm, rmsnorm, join from position i on, of the rows that `norm` makes. */
static bool is_following(const Fuser *f, const GraphOp *norm, int i)
{
	const GraphOp *hold = member(f, i), *embed = member(f, i + 1);
	return operand(hold, "x") == operand(norm, "y") && is_join(f, i + 2, operand(embed, "x"), operand(norm, "y"));
}

static void follow(Fuser *f, const GraphOp *norm, int i)
{
	const GraphOp *hold = member(f, i), *embed = member(f, i + 1);
	static const char *const same[] = {"step", "row_slot", "row_pos", "slot_len", "held"};
	LOp *op = new_op(f, OP_follow_rows, hold);
	for (size_t k = 0; k < sizeof same / sizeof same[0]; k++)
		bind_tensor(f, op, same[k], operand(hold, same[k]));
	bind_tensor(f, op, "x", operand(norm, "x"));
	bind_tensor(f, op, "norm", operand(norm, "w"));
	bind_tensor(f, op, "row_next", operand(embed, "row_next"));
	bind_tensor(f, op, "table", operand(embed, "table"));
	bind_join(f, op, i + 2);
}

/* rmsnorm, hold, embed_next_token, rmsnorm, rmsnorm, join */
bool fuse_follow_prompt(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i);
	if (f->uses[operand(norm, "y")] != 2 || !is_following(f, norm, i + 1))
		return false;
	follow(f, norm, i + 1);
	return true;
}

/* rmsnorm, linear, draw, accept, hold, embed_next_token, rmsnorm, rmsnorm, join */
bool fuse_accept(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *accept = member(f, i + 3);
	if (!is_following(f, norm, i + 4) || !logits_and_draw(f, i, 3, NULL, OP_draw_best))
		return false;
	LOp *op = new_op(f, OP_accept, accept);
	bind_same(f, op, accept);
	follow(f, norm, i + 4);
	return true;
}

/* rmsnorm, linear, draw, accept, where no head follows; soft_cap of the logits, if it is there */
bool fuse_accept_alone(Fuser *f, int i)
{
	const GraphOp *accept = member(f, i + 3);
	if (!logits_and_draw(f, i, 1, member(f, i + 4), OP_draw_best))
		return false;
	bind_same(f, new_op(f, OP_accept, accept), accept);
	return true;
}

/* rmsnorm, linear, draw, keep_draft. What is drawn disappears in the draft. */
static bool draw_draft(Fuser *f, int i, int readers)
{
	const GraphOp *draw = member(f, i + 2), *keep = member(f, i + 3);
	if (!flows(f, draw, "drawn", keep, "drawn") || f->uses[operand(draw, "drawn_logprob")] ||
		operand(draw, "row_pos") != operand(keep, "row_pos"))
		return false;
	LOp *op = logits_and_draw(f, i, readers, NULL, OP_draw_draft);
	if (!op)
		return false;
	bind_same(f, op, keep);
	op->operands[op_operand(OP_draw_draft, "draft_len")] = fuse_draft_len(f);
	return true;
}

bool fuse_last_draft(Fuser *f, int i) { return draw_draft(f, i, 1); }

/* rmsnorm, linear, draw, keep_draft, embed, rmsnorm, rmsnorm, join */
bool fuse_draft(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *embed = member(f, i + 4);
	if (operand(member(f, i + 3), "row_token") != operand(embed, "row_token") ||
		!is_join(f, i + 5, operand(embed, "x"), operand(norm, "y")) || !draw_draft(f, i, 2))
		return false;
	LOp *op = new_op(f, OP_draft_next, embed);
	bind_tensor(f, op, "x", operand(norm, "x"));
	bind_tensor(f, op, "norm", operand(norm, "w"));
	bind_tensor(f, op, "row_token", operand(embed, "row_token"));
	bind_tensor(f, op, "table", operand(embed, "table"));
	bind_join(f, op, i + 5);
	return true;
}

/* Keys and values of rows that no row attends with: [head_norm] rope, kv_write, [head_norm of v]. k and v must be the
 * columns of one tensor. */
bool fuse_keys(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *turn = member(f, i + 1), *write = member(f, i + 2);
	const GraphOp *v_norm = member(f, i + 3);
	const int keys = operand(norm ? norm : turn, "x");
	const View *k = &f->views[keys], *v = &f->views[v_norm ? operand(v_norm, "x") : operand(write, "v")];
	const int64_t width = (int64_t)write->attrs.n_kv_heads * write->attrs.head_dim;
	if ((norm && !flows(f, norm, "y", turn, "x")) || !flows(f, turn, "y", write, "k") ||
		operand(turn, "row_pos") != operand(write, "row_pos") || (v_norm && !flows(f, v_norm, "y", write, "v")))
		return false;
	if (k->tensor < 0 || k->tensor != v->tensor || k->col != 0 || v->col != width ||
		f->low->tensors.at[k->tensor].shape[1] != 2 * width)
		return fail_note(f, f->split ? f->split : "k and v are not columns of one tensor");
	LOp *op = new_op(f, OP_keys_write, turn);
	if (norm || v_norm)
		merge_attrs(op, norm ? norm : v_norm);
	merge_attrs(op, turn);
	bind_same(f, op, write);
	bind_tensor(f, op, "k_norm", norm ? operand(norm, "w") : -1);
	bind_tensor(f, op, "v_norm", v_norm ? operand(v_norm, "w") : -1);
	bind_tensor(f, op, "inv_freq", operand(turn, "inv_freq"));
	bind_tensor(f, op, "keys", keys);
	return true;
}
