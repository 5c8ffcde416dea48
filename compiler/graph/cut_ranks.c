/* cut_ranks.c - the graph of one rank becomes that which each of several ranks runs with its own parts.
 *
 * Heads, widths of MLPs, experts and the vocabulary are cut; the residual stream, norms and routers are whole on each
 * rank. What is cut follows from the graph alone, so no family is named here:
 *
 *   1. Columns of rows are cut from the ops that work on heads (attention, the delta rule) and on the width of an MLP
 *      (swiglu), and along what leads to them and away from them (spread).
 *   2. A product whose result is cut has its rows cut; one whose input is cut has its columns cut, and gives a part of
 *      a sum (cut_products). The head that tokens are drawn from has its rows cut, where they divide.
 *   3. Each part of a sum goes on through what is linear in it, and is summed before anything else reads it, so a
 *      shared expert's part is added to that of the chosen ones before one sum (find_sums).
 *   4. The ops are written anew, with the shapes of a rank and the collectives (rewrite).
 *
 * Keys and values that are fewer than the ranks are on several of them. A cut that would end within a head, a block of
 * scales or a byte is an error. artifacts/rank_check.c, which shares nothing with this file, proves the result.
 */
#include "artifacts/ranks.h"
#include "artifacts/reader.h"
#include "compiler/ir.h"

#include <stdlib.h>
#include <string.h>

typedef struct Runs { int n; CutRun at[PLAN_MAX_RUNS]; } Runs; /* n 0 = not cut */

/* How a tensor is cut. of: columns of rows, heads of a cache. */
typedef struct Plan {
	Runs runs;
	int axis;      /* of a weight */
	bool is_read_whole; /* a weight that an op reads whole: one that is cut as well becomes two tensors */
	bool is_part, is_summed; /* of a sum; of which the sum is read */
	int sum_bias;  /* added with the sum, -1 = none */
	int twin;      /* tensor that has the part: of a sum, of logits, of a weight that is read whole; -1 = none */
} Plan;

typedef struct Cutter {
	Compile *c;
	Graph *g;
	int n; /* ranks */
	Plan *of; int cap; /* [tensors] */
	const GraphOp *ops; int n_ops; /* as they were */
	bool has_whole_experts, is_head_noted;
	const char *refused[16]; int n_refused; /* units and sizes that were reported: once, not once a layer */
} Cutter;

static int at(const GraphOp *op, const char *name)
{
	const int k = op_operand(op->kind, name);
	return k < 0 ? -1 : op->operands[k];
}

static const char *name_of(const Cutter *x, int tensor) { return x->g->tensors[tensor].name; }

/* Has that not been refused? Now it has. */
static bool is_first(Cutter *x, const char *key)
{
	for (int i = 0; i < x->n_refused; i++)
		if (strcmp(x->refused[i], key) == 0)
			return false;
	if (x->n_refused < (int)(sizeof x->refused / sizeof x->refused[0]))
		x->refused[x->n_refused++] = key;
	return true;
}

/* pieces: how many indivisible ones n of the unit are; 0 = the last one is cut off. */
static bool cannot(Cutter *x, const char *what, int64_t n, const char *unit, int64_t pieces)
{
	const int64_t most = pieces ? pieces & -pieces : 1; /* a power of two, less than the ranks */
	if (!is_first(x, arena_printf(&x->c->scratch, "%lld %s", (long long)n, unit)))
		return false;
	return fail_at(&x->c->diags, A0313, x->c->model.options.at_ranks, "parallel.ranks = %d: %s: %lld %s cannot be "
		"divided evenly: %s", x->n, what, (long long)n, unit, most < 2 ? "not even among 2"
		: arena_printf(&x->c->scratch, "among %lld at most", (long long)most));
}

static bool are_equal(const Runs *a, const Runs *b)
{
	bool same = a->n == b->n;
	for (int i = 0; i < a->n && same; i++)
		same = a->at[i].n == b->at[i].n && a->at[i].parts == b->at[i].parts;
	return same;
}

static Runs one_run(int64_t n, int parts) { return (Runs){1, {{n, parts}}}; }

static int64_t own_of(const Runs *r)
{
	int64_t n = 0;
	for (int i = 0; i < r->n; i++)
		n += r->at[i].n / r->at[i].parts;
	return n;
}

/* Marks the columns of a tensor of rows; true where that is new. */
static bool mark(Cutter *x, int tensor, Runs runs)
{
	if (tensor < 0 || x->of[tensor].runs.n || !runs.n || runs.at[0].parts == 1) /* one head that all ranks have */
		return false;
	x->of[tensor].runs = runs;
	return true;
}

/* What is cut, and why -------------------------------------------------------------------------------- */

/* Ranks that heads of keys and values are on: each of them, or one for several ranks. 0: neither. */
static int parts_of_heads(int heads, int ranks)
{
	return heads % ranks == 0 ? ranks : ranks % heads == 0 ? heads : 0;
}

/* Is it what a product gives? Other rows are not divided. */
static bool is_of_product(const Cutter *x, int tensor)
{
	for (int i = 0; i < x->n_ops; i++)
		if (x->ops[i].kind == OP_linear && at(&x->ops[i], "y") == tensor)
			return true;
	return false;
}

static bool begin_at(Cutter *x, const GraphOp *op)
{
	const Attrs *a = &op->attrs;
	const int parts = op->kind == OP_attention || op->kind == OP_kv_write ? parts_of_heads(a->n_kv_heads, x->n) : 0;
	const int64_t hdim = a->head_dim, keys = (int64_t)a->n_k_heads * a->k_dim;
	const int64_t values = (int64_t)a->n_v_heads * a->v_dim;
	const int64_t width = at(op, "y") < 0 ? 0 : x->g->tensors[at(op, "y")].shape[1];
	const char *layer = arena_printf(&x->c->scratch, "layer %d", op->layer);
	bool is_new = false;
	switch (op->kind) {
	case OP_attention:
		if (a->n_heads % x->n)
			return cannot(x, layer, a->n_heads, "query heads", a->n_heads);
		is_new |= mark(x, at(op, "q"), one_run(a->n_heads * hdim, x->n));
		return mark(x, at(op, "o"), one_run(a->n_heads * hdim, x->n)) || is_new;
	case OP_kv_write:
		if (!parts)
			return cannot(x, layer, a->n_kv_heads, "heads of keys and values", a->n_kv_heads);
		is_new |= mark(x, at(op, "k"), one_run(a->n_kv_heads * hdim, parts));
		is_new |= mark(x, at(op, "v"), one_run(a->n_kv_heads * hdim, parts));
		is_new |= mark(x, at(op, "kv"), one_run(a->n_kv_heads, parts));
		return mark(x, at(op, "kv_block"), one_run(a->n_kv_heads, parts)) || is_new;
	case OP_swiglu:
	case OP_swiglu_limited:
	case OP_geglu:
		if (!is_of_product(x, at(op, "gate")) || !is_of_product(x, at(op, "up")))
			return false;
		if (width % x->n)
			return cannot(x, layer, width, "columns of the MLP", width);
		return mark(x, at(op, "y"), one_run(width, x->n));
	case OP_relu_squared:
		if (!is_of_product(x, at(op, "x")))
			return false;
		if (width % x->n)
			return cannot(x, layer, width, "columns of the MLP", width);
		return mark(x, at(op, "y"), one_run(width, x->n));
	case OP_delta_rule:
	case OP_delta_verify:
		if (a->n_k_heads % x->n)
			return cannot(x, layer, a->n_k_heads, "key heads of Gated DeltaNet", a->n_k_heads);
		is_new |= mark(x, at(op, "qkv"), (Runs){3, {{keys, x->n}, {keys, x->n}, {values, x->n}}});
		is_new |= mark(x, at(op, "a"), one_run(a->n_v_heads, x->n));
		is_new |= mark(x, at(op, "b"), one_run(a->n_v_heads, x->n));
		is_new |= mark(x, at(op, "delta"), one_run(values * a->k_dim, x->n));
		is_new |= mark(x, at(op, "delta_later"), one_run(values * a->k_dim, x->n));
		return mark(x, at(op, "o"), one_run(values, x->n)) || is_new;
	default:
		return false;
	}
}

/* Rows of a convolution's state are TAPS rows of the columns; kept apart, so that each is cut where the columns are. */
static Runs times(Runs r, int n)
{
	for (int i = 0; i < r.n; i++)
		r.at[i].n *= n;
	return r;
}

/* Between the operands of an op whose columns belong together. */
static bool spread(Cutter *x, const GraphOp *op)
{
	static const struct { OpKind op; const char *a, *b; } pairs[] = {{OP_rope, "x", "y"}, {OP_head_norm, "x", "y"},
		{OP_rmsnorm, "x", "y"}, {OP_gated_norm, "x", "y"}, {OP_gated_norm, "x", "z"}, {OP_swiglu, "gate", "y"},
		{OP_swiglu, "up", "y"},
		{OP_swiglu_limited, "gate", "y"}, {OP_swiglu_limited, "up", "y"},
		{OP_geglu, "gate", "y"}, {OP_geglu, "up", "y"}, {OP_relu_squared, "x", "y"}, {OP_sigmoid_gate, "x", "y"},
		{OP_softplus_gate, "x", "y"}, {OP_causal_conv, "x", "y"}, {OP_conv_verify, "x", "y"}};
	bool is_new = false;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		if (pairs[i].op != op->kind)
			continue;
		const int a = at(op, pairs[i].a), b = at(op, pairs[i].b);
		is_new |= mark(x, a, x->of[b].runs);
		is_new |= mark(x, b, x->of[a].runs);
	}
	const Runs *cut = &x->of[op->operands[op_operand(op->kind, "x") < 0 ? 0 : op_operand(op->kind, "x")]].runs;
	if (!cut->n)
		return is_new;
	if (op->kind == OP_sigmoid_gate || op->kind == OP_softplus_gate) {
		const int gate = at(op, "gate");
		is_new |= mark(x, gate, one_run(x->g->tensors[gate].shape[1], x->n));
	}
	if (op->kind == OP_causal_conv || op->kind == OP_conv_verify) {
		is_new |= mark(x, at(op, "conv"), times(*cut, op->attrs.n_taps));
		is_new |= mark(x, at(op, "conv_later"), times(*cut, op->attrs.n_taps));
	}
	return is_new;
}

/* Weights ---------------------------------------------------------------------------------------------- */

static Plan *plan_of(Cutter *x, int tensor) { return &x->of[tensor]; }

/* A tensor more, with the same bytes. */
static int add_twin(Cutter *x, int tensor, const char *what)
{
	Graph *g = x->g;
	VEC(Tensor) list = {g->tensors, g->n_tensors, x->c->graph_cap[0]};
	Tensor *t = vec_push(&x->c->arena, &list);
	*t = list.at[tensor];
	t->name = arena_printf(&x->c->arena, "%s.%s", t->name, what);
	g->tensors = list.at;
	g->n_tensors = list.n;
	x->c->graph_cap[0] = list.cap;
	if (g->n_tensors > x->cap) {
		Plan *more = ARENA_ARRAY(&x->c->scratch, Plan, 2 * g->n_tensors);
		memcpy(more, x->of, sizeof *more * (size_t)x->cap);
		x->of = more;
		x->cap = 2 * g->n_tensors;
	}
	x->of[g->n_tensors - 1] = (Plan){.sum_bias = -1, .twin = -1};
	return g->n_tensors - 1;
}

/* The tensor that has a rank's part of a weight along an axis. */
static int cut_weight(Cutter *x, int tensor, int axis, const Runs *runs)
{
	if (tensor < 0 || runs->at[0].parts == 1)
		return tensor;
	if (plan_of(x, tensor)->is_read_whole) {
		if (plan_of(x, tensor)->twin < 0) {
			const int twin = add_twin(x, tensor, "cut");
			plan_of(x, tensor)->twin = twin;
		}
		tensor = plan_of(x, tensor)->twin;
	}
	Plan *p = plan_of(x, tensor);
	const Tensor *t = &x->g->tensors[tensor];
	if (p->runs.n && (p->axis != axis || !are_equal(&p->runs, runs)))
		bug("%s is cut in two ways", t->name);
	for (int i = 0; i < runs->n && !dtype_bytes(t->dtype) && axis == t->n_dims - 1; i++)
		if (runs->at[i].n / runs->at[i].parts % 2)
			cannot(x, t->name, runs->at[i].n, "elements of 4 bits, two a byte,", runs->at[i].n / 2);
	p->axis = axis;
	p->runs = *runs;
	return tensor;
}

/* Scales of blocks along the axis of a weight. A block that is as long as the axis is on each rank. */
static int cut_scales(Cutter *x, int scale, int weight, int axis, const Runs *runs, int block)
{
	Runs blocks = *runs;
	if (scale < 0 || x->g->tensors[scale].shape[axis] == 1)
		return scale;
	for (int i = 0; i < runs->n; i++) {
		const int64_t each = runs->at[i].n / runs->at[i].parts;
		if (each % block) {
			cannot(x, name_of(x, weight), runs->at[i].n, arena_printf(&x->c->scratch, "%s in blocks of %d, which "
				"share a scale,", axis == x->g->tensors[weight].n_dims - 1 ? "columns" : "rows", block),
				runs->at[i].n % block ? 0 : runs->at[i].n / block);
			return scale;
		}
		blocks.at[i].n /= block;
	}
	return cut_weight(x, scale, axis, &blocks);
}

static void cut_linear(Cutter *x, GraphOp *op)
{
	const Runs rows = plan_of(x, at(op, "y"))->runs, cols = plan_of(x, at(op, "x"))->runs;
	int *o = op->operands;
	const int w = op_operand(OP_linear, "w"), scale = op_operand(OP_linear, "w_scale");
	const int row_scale = op_operand(OP_linear, "w_row_scale"), bias = op_operand(OP_linear, "bias");
	if (rows.n && cols.n)
		bug("product %s is cut in rows and columns", name_of(x, at(op, "y")));
	if (rows.n) {
		o[scale] = cut_scales(x, o[scale], o[w], 0, &rows, op->attrs.block_n);
		o[w] = cut_weight(x, o[w], 0, &rows);
		o[row_scale] = cut_weight(x, o[row_scale], 0, &rows);
		o[bias] = cut_weight(x, o[bias], 0, &rows);
	} else if (cols.n) {
		o[scale] = cut_scales(x, o[scale], o[w], 1, &cols, op->attrs.block_k);
		o[w] = cut_weight(x, o[w], 1, &cols);
		plan_of(x, at(op, "y"))->sum_bias = o[bias];
		plan_of(x, at(op, "y"))->is_part = true;
		plan_of(x, at(op, "y"))->is_summed |= o[bias] >= 0;
		o[bias] = -1;
	}
}

static bool is_of_experts(OpKind kind)
{
	return kind == OP_experts || kind == OP_experts_limited || kind == OP_experts_gelu || kind == OP_experts_clamped;
}

static void cut_experts(Cutter *x, GraphOp *op)
{
	static const char *const plain[] = {"gate_up", "gate_up_scale", "gate_up_row_scale", "down", "down_scale",
		"down_row_scale"};
	static const char *const biased[] = {"gate_up", "gate_up_scale", "gate_up_bias", "down", "down_scale", "down_bias"};
	const bool is_biased = op->kind == OP_experts_clamped;
	int *of[6];
	for (int i = 0; i < 6; i++)
		of[i] = &op->operands[op_operand(op->kind, is_biased ? biased[i] : plain[i])];
	const Tensor *up = &x->g->tensors[*of[0]];
	const int64_t n = up->shape[0], width = up->shape[1] / 2;
	const Runs each = one_run(n, x->n), both = {2, {{width, x->n}, {width, x->n}}}, down = one_run(width, x->n);
	plan_of(x, at(op, "y"))->is_part = true;
	if (x->has_whole_experts && n % x->n) {
		cannot(x, up->name, n, "experts", n);
	} else if (x->has_whole_experts) {
		for (int i = 0; i < 6; i++)
			*of[i] = cut_weight(x, *of[i], 0, &each);
	} else if (is_biased) { /* in each rank's term it would be added */
		if (is_first(x, "biased"))
			fail_at(&x->c->diags, A0313, x->c->model.options.at_ranks, "parallel.ranks = %d: %s: experts with biases "
				"are not cut: parallel.experts = \"whole\"", x->n, up->name);
	} else if (width % x->n) {
		cannot(x, up->name, width, "columns of each expert", width);
	} else {
		*of[1] = cut_scales(x, *of[1], *of[0], 1, &both, op->attrs.block_n);
		*of[4] = cut_scales(x, *of[4], *of[3], 2, &down, op->attrs.block_k);
		*of[0] = cut_weight(x, *of[0], 1, &both);
		*of[2] = cut_weight(x, *of[2], 1, &both);
		*of[3] = cut_weight(x, *of[3], 2, &down);
	}
}

static bool is_cut(const Cutter *x, const GraphOp *op, const char *name)
{
	return at(op, name) >= 0 && x->of[at(op, name)].runs.n;
}

static void cut_weights_of(Cutter *x, GraphOp *op)
{
	const int y = at(op, "y");
	Runs heads;
	switch (op->kind) {
	case OP_linear:
		cut_linear(x, op);
		break;
	case OP_experts:
	case OP_experts_limited:
	case OP_experts_gelu:
	case OP_experts_clamped:
		cut_experts(x, op);
		break;
	case OP_causal_conv:
	case OP_conv_verify:
		if (is_cut(x, op, "y"))
			op->operands[op_operand(op->kind, "w")] = cut_weight(x, at(op, "w"), 0, &x->of[y].runs);
		break;
	case OP_rmsnorm:
		if (is_cut(x, op, "y"))
			op->operands[op_operand(op->kind, "w")] = cut_weight(x, at(op, "w"), 0, &x->of[y].runs);
		break;
	case OP_delta_rule:
	case OP_delta_verify:
		heads = one_run(op->attrs.n_v_heads, x->n);
		op->operands[op_operand(op->kind, "a_log")] = cut_weight(x, at(op, "a_log"), 0, &heads);
		op->operands[op_operand(op->kind, "dt_bias")] = cut_weight(x, at(op, "dt_bias"), 0, &heads);
		break;
	case OP_attention:
	case OP_kv_write:
		heads = one_run(op->attrs.n_kv_heads, parts_of_heads(op->attrs.n_kv_heads, x->n));
		op->operands[op_operand(op->kind, "kv_scale")] = cut_weight(x, at(op, "kv_scale"), 1, &heads);
		heads = one_run(op->attrs.n_heads, x->n);
		if (at(op, "sinks") >= 0)
			op->operands[op_operand(op->kind, "sinks")] = cut_weight(x, at(op, "sinks"), 0, &heads);
		break;
	default:
		break;
	}
}

/* The head -------------------------------------------------------------------------------------------- */

/* Is it read as logits, that tokens are drawn of? */
static bool are_logits(const Cutter *x, int tensor)
{
	for (int i = 0; i < x->n_ops; i++)
		if (at(&x->ops[i], "logits") == tensor && op_has_attr(x->ops[i].kind, "N_VALID"))
			return true;
		else if (x->ops[i].kind == OP_soft_cap && at(&x->ops[i], "x") == tensor && are_logits(x, at(&x->ops[i], "y")))
			return true;
	return false;
}

/* Rows of the head by vocabulary, where they divide, and blocks too; else each rank has all of it. */
static void cut_head(Cutter *x, GraphOp *op)
{
	const int logits = at(op, "y"), w = at(op, "w"), scale = at(op, "w_scale");
	const int64_t n = x->g->tensors[logits].shape[1];
	const Runs rows = one_run(n, x->n);
	if (n % x->n || (scale >= 0 && x->g->tensors[scale].shape[0] > 1 && n / x->n % op->attrs.block_n)) {
		if (!x->is_head_noted)
			note_at(&x->c->diags, A0314, x->c->model.options.at_ranks, "parallel.ranks = %d: %s is whole on each rank: "
				"its %lld rows, or the blocks of their scales, cannot be divided evenly", x->n, name_of(x, w),
				(long long)n);
		plan_of(x, w)->is_read_whole = x->is_head_noted = true;
		return;
	}
	const int own = add_twin(x, logits, "part");
	plan_of(x, logits)->twin = own;
	plan_of(x, own)->runs = rows;
	op->operands[op_operand(OP_linear, "y")] = own;
}

/* Sums -------------------------------------------------------------------------------------------------- */

/* True while anything changes: parts go through what is linear in them, and are summed where something else reads
 * them. */
static bool find_sums(Cutter *x, const GraphOp *op)
{
	const OpInfo *info = &op_table[op->kind];
	const bool is_gate = op->kind == OP_sigmoid_gate || op->kind == OP_softplus_gate;
	const int first = op->operands[0], second = info->n_operands > 1 ? op->operands[1] : -1;
	bool is_new = false, passes = false;
	if (op->kind == OP_add)
		passes = x->of[first].is_part && !x->of[first].is_summed && x->of[second].is_part && !x->of[second].is_summed;
	else if (is_gate || op->kind == OP_scale)
		passes = x->of[first].is_part && !x->of[first].is_summed;
	const int out = op->operands[info->n_operands - 1];
	if (op->kind == OP_add || is_gate || op->kind == OP_scale) {
		is_new = x->of[out].is_part != passes;
		x->of[out].is_part = passes;
		x->of[out].is_summed &= passes;
	}
	for (int i = 0; i < info->n_operands; i++) {
		const int t = op->operands[i];
		if (t < 0 || !x->of[t].is_part || x->of[t].is_summed || info->operands[i].role != OPERAND_IN ||
			(passes && (op->kind == OP_add || i == 0)))
			continue;
		x->of[t].is_summed = is_new = true;
	}
	return is_new;
}

/* The new graph ---------------------------------------------------------------------------------------- */

static int add_activation(Cutter *x, int like, const char *what, Dtype dtype, int64_t cols)
{
	const int t = add_twin(x, like, what);
	Tensor *made = &x->g->tensors[t];
	made->dtype = dtype;
	made->role = ROLE_ACTIVATION;
	made->shape[1] = cols;
	return t;
}

static GraphOp *push(Cutter *x, OpKind kind, const GraphOp *like, const int *operands)
{
	Graph *g = x->g;
	VEC(GraphOp) list = {g->ops, g->n_ops, x->c->graph_cap[1]};
	GraphOp *op = vec_push(&x->c->arena, &list);
	*op = (GraphOp){.kind = kind, .layer = like->layer, .phases = like->phases};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = i < op_table[kind].n_operands ? operands[i] : -1;
	g->ops = list.at;
	g->n_ops = list.n;
	x->c->graph_cap[1] = list.cap;
	return op;
}

/* Heads of a rank, in an op's attributes. */
static void own_attrs(const Cutter *x, GraphOp *op)
{
	Attrs *a = &op->attrs;
	if (op->kind == OP_attention)
		a->n_heads /= x->n;
	if (op->kind == OP_attention || op->kind == OP_kv_write)
		a->n_kv_heads /= parts_of_heads(a->n_kv_heads, x->n);
	if (op->kind == OP_delta_rule || op->kind == OP_delta_verify) {
		a->n_k_heads /= x->n;
		a->n_v_heads /= x->n;
	}
}

/* rmsnorm over all heads: of the ranks' mean squares. */
static void push_norm(Cutter *x, const GraphOp *op)
{
	const int in = at(op, "x");
	const int own = add_activation(x, at(op, "y"), "squares", DT_f32, 1);
	const int all = add_activation(x, at(op, "y"), "square", DT_f32, 1);
	push(x, OP_mean_squares, op, (int[]){in, own});
	push(x, OP_sum_ranks, op, (int[]){own, -1, all});
	GraphOp *end = push(x, OP_norm_mean, op, (int[]){in, all, at(op, "w"), at(op, "y")});
	end->attrs = op->attrs;
	end->attrs.n_ranks = x->n;
}

/* The tensor with which rank a rank is. */
static int rank_tensor(Cutter *x)
{
	for (int i = 0; i < x->g->n_tensors; i++)
		if (strcmp(x->g->tensors[i].name, "rank") == 0)
			return i;
	const int t = add_twin(x, 0, "rank");
	x->g->tensors[t] = (Tensor){.name = "rank", .dtype = DT_i32, .role = ROLE_INPUT, .n_dims = 1, .shape = {1},
		.weight = -1};
	return t;
}

static void rewrite(Cutter *x, GraphOp op)
{
	const OpInfo *info = &op_table[op.kind];
	const int last = info->n_operands - 1, out = op.operands[last];
	const bool sums = out >= 0 && info->operands[last].role == OPERAND_OUT && plan_of(x, out)->is_part &&
		plan_of(x, out)->is_summed;
	own_attrs(x, &op);
	if (op.kind == OP_rmsnorm && is_cut(x, &op, "y")) {
		push_norm(x, &op);
		return;
	}
	if (is_of_experts(op.kind) && x->has_whole_experts) {
		const int k = op_operand(op.kind, "expert"), rank = rank_tensor(x);
		const int own = add_twin(x, op.operands[k], "own");
		GraphOp *chosen = push(x, OP_own_experts, &op, (int[]){rank, op.operands[k], own});
		chosen->attrs.n_own = (int)own_of(&plan_of(x, at(&op, "gate_up"))->runs);
		op.operands[k] = own;
	}
	if (sums)
		op.operands[last] = add_twin(x, out, "part");
	GraphOp *same = push(x, op.kind, &op, op.operands);
	same->attrs = op.attrs;
	if (sums)
		push(x, OP_sum_ranks, &op, (int[]){op.operands[last], plan_of(x, out)->sum_bias, out});
}

/* The head's products, each followed by the gathering of its logits. */
static void rewrite_head(Cutter *x, const GraphOp *op, int logits)
{
	rewrite(x, *op);
	if (at(op, "y") != logits) {
		GraphOp *all = push(x, OP_gather_ranks, op, (int[]){at(op, "y"), logits});
		all->attrs.n_ranks = x->n;
	}
}

static int axis_of(const Tensor *t)
{
	return t->role == ROLE_STATE && t->n_dims == 5 ? 2 : t->n_dims - 1; /* heads of a cache; else columns */
}

static void shape_tensors(Cutter *x)
{
	Ranks *r = &x->c->ranks;
	r->cuts = ARENA_ARRAY(&x->c->arena, Cut, x->g->n_tensors);
	for (int i = 0; i < x->g->n_tensors; i++) {
		Tensor *t = &x->g->tensors[i];
		const Plan *p = plan_of(x, i);
		if (!p->runs.n)
			continue;
		const int axis = t->role == ROLE_WEIGHT ? p->axis : axis_of(t);
		t->shape[axis] = own_of(&p->runs);
		if (t->role != ROLE_WEIGHT)
			continue;
		Cut *c = &r->cuts[r->n_cuts++];
		*c = (Cut){i, axis, ARENA_ARRAY(&x->c->arena, CutRun, p->runs.n), p->runs.n};
		memcpy(c->runs, p->runs.at, sizeof *c->runs * (size_t)p->runs.n);
	}
}

static void list_phases(Compile *c)
{
	c->ranks.phases = ARENA_ARRAY(&c->arena, RankPhase, PHASE_KINDS);
	for (int bit = 1; bit <= PHASE_ALL; bit <<= 1) {
		const RankPhase p = ranks_phase(&c->graph, &c->ranks, bit);
		if (p.n_collectives)
			c->ranks.phases[c->ranks.n_phases++] = p;
	}
}

/* Each layer has a sum after what mixes rows and one after its MLP: where one is missing, an op has no rule here. */
static void check_sums(Cutter *x)
{
	for (int l = 0; l < x->g->n_layers; l++) {
		int n = 0;
		for (int i = 0; i < x->g->n_ops; i++) {
			const GraphOp *op = &x->g->ops[i];
			n += op->kind == OP_sum_ranks && op->layer == l && op->phases & PHASE_PREFILL &&
				x->g->tensors[at(op, "z")].shape[1] == x->g->hidden_dim;
		}
		if (n < 2)
			fail_at(&x->c->diags, A0313, x->c->model.options.at_ranks, "parallel.ranks = %d: layer %d has operations "
				"that this version does not divide", x->n, l);
	}
}

/* Weights that an op reads whole: all but those that cut_weights_of looks at. */
static void find_whole(Cutter *x)
{
	for (int i = 0; i < x->n_ops; i++) {
		const GraphOp *op = &x->ops[i];
		const bool is_product = op->kind == OP_linear || is_of_experts(op->kind);
		const bool is_cut_linear = op->kind == OP_linear && (is_cut(x, op, "y") || is_cut(x, op, "x") ||
			are_logits(x, at(op, "y")));
		for (int k = 0; k < op_table[op->kind].n_operands; k++) {
			const int t = op->operands[k];
			if (t >= 0 && x->g->tensors[t].role == ROLE_WEIGHT && (is_product ? op->kind == OP_linear && !is_cut_linear
					: strcmp(op_table[op->kind].operands[k].name, "table") == 0))
				x->of[t].is_read_whole = true;
		}
	}
}

static void cut(Cutter *x)
{
	GraphOp *ops = ARENA_ARRAY(&x->c->scratch, GraphOp, x->n_ops);
	int *logits = ARENA_ARRAY(&x->c->scratch, int, x->n_ops);
	const int before = x->c->diags.n_errors;
	bool is_new = true;
	memcpy(ops, x->ops, sizeof *ops * (size_t)x->n_ops);
	while (is_new && x->c->diags.n_errors == before) {
		is_new = false;
		for (int i = 0; i < x->n_ops; i++) {
			is_new |= begin_at(x, &ops[i]);
			is_new |= spread(x, &ops[i]);
		}
	}
	if (x->c->diags.n_errors > before)
		return;
	find_whole(x);
	for (int i = 0; i < x->n_ops; i++) {
		logits[i] = ops[i].kind == OP_linear && are_logits(x, at(&ops[i], "y")) ? at(&ops[i], "y") : -1;
		if (logits[i] >= 0)
			cut_head(x, &ops[i]);
		cut_weights_of(x, &ops[i]);
	}
	for (is_new = true; is_new;) {
		is_new = false;
		for (int i = 0; i < x->n_ops; i++)
			is_new |= find_sums(x, &ops[i]);
	}
	x->g->n_ops = 0;
	x->g->ops = NULL;
	x->c->graph_cap[1] = 0;
	for (int i = 0; i < x->n_ops; i++)
		if (logits[i] >= 0)
			rewrite_head(x, &ops[i], logits[i]);
		else
			rewrite(x, ops[i]);
	check_sums(x);
	shape_tensors(x);
	list_phases(x->c);
}

/* The graph becomes that which a rank's launches see. */
static void take_view(Compile *c)
{
	Graph view;
	if (!ranks_view(&c->whole, &c->ranks, &view))
		bug("no memory for %d tensors", c->whole.n_tensors);
	c->graph.tensors = ARENA_ARRAY(&c->arena, Tensor, view.n_tensors);
	c->graph.weights = ARENA_ARRAY(&c->arena, Weight, view.n_weights);
	memcpy(c->graph.tensors, view.tensors, sizeof *view.tensors * (size_t)view.n_tensors);
	memcpy(c->graph.weights, view.weights, sizeof *view.weights * (size_t)view.n_weights);
	c->graph.n_weights = view.n_weights;
	ranks_view_free(&view);
}

static bool has_collectives(const Target *target)
{
	int has = 0;
	for (const KernelTemplate *t = kernel_table; t < kernel_table + n_kernel_table; t++)
		has |= !template_serves(t, target) ? 0 : t->op == OP_sum_peers ? 1 : t->op == OP_gather_peers ? 2 : 0;
	return has == 3;
}

/* cut_ranks - the graph that each of several ranks runs.
 *
 *   needs   Graph, Options.n_ranks
 *   gives   Graph with shapes of a rank, its weights, and collectives; Compile.ranks and whole; nothing where there
 *           is one rank
 *   fails   what cannot be divided: A0313; targets without kernels of collectives: A0733
 */
void cut_ranks(Compile *c)
{
	Cutter x = {.c = c, .g = &c->graph, .n = c->model.options.n_ranks, .ops = c->graph.ops, .n_ops = c->graph.n_ops,
		.has_whole_experts = !c->model.options.cuts_experts};
	const int before = c->diags.n_errors;
	if (x.n < 2)
		return;
	for (int i = 0; i < c->cmd.n_targets && !c->cmd.estimate; i++)
		if (!has_collectives(target_by_name(c->cmd.targets[i])))
			fail_at(&c->diags, A0733, c->model.options.at_ranks, "parallel.ranks = %d: no kernel of %s adds what "
				"several ranks have: those of kernels/templates/ranks are for sm_90 and later", x.n,
				c->cmd.targets[i]);
	x.cap = 2 * c->graph.n_tensors;
	x.of = ARENA_ARRAY(&c->scratch, Plan, x.cap);
	for (int i = 0; i < x.cap; i++)
		x.of[i] = (Plan){.sum_bias = -1, .twin = -1};
	c->ranks = (Ranks){.n = x.n};
	cut(&x);
	c->whole = c->graph;
	if (c->diags.n_errors == before)
		take_view(c);
}

void check_cut_graph(Compile *c)
{
	char text[512];
	Why why = {.text = text, .bytes = sizeof text};
	check_graph(c);
	const Graph *g = c->ranks.n ? &c->whole : &c->graph;
	if (!check_cuts(g, &c->ranks, &why) || !check_ranks(g, &c->ranks, &why))
		bug("%s", text);
}
