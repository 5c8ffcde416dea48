/* experts.c - a layer's experts: which rows go to which, what these make of them, and the one that all rows go to.
 *
 * A checkpoint has three tensors for each expert, or two for all of them (gate_up_proj, down_proj), where rows of gate
 * come before those of up, or three for all. Any becomes the same two operands. Which it is, is seen from the names
 * alone. Families whose publisher has the two transposed have them as other writers store them as well: the shape shows
 * it, unless both dims are equal.
 *
 * Clamped experts (ops.h) are two tensors with biases, whose rows of gate and up alternate and stay so. In MXFP4 each
 * is two tensors, of codes and of scales, with matrices as they are elsewhere; where they are numbers these are
 * transposed.
 */
#include "compiler/read/config_keys.h"
#include "models/decoder/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Experts of the layer that have tensors of their own: one more than the last that has any. */
static int count_experts(Compile *c, const Decoder *d, int l)
{
	const char *head = arena_printf(&c->scratch, "%s.", d_part(c, d, l, NAME_EXPERTS));
	const size_t k = strlen(head);
	int n = 0;
	for (int i = 0; i < c->model.tensors.n; i++) {
		const char *name = c->model.tensors.at[i].name;
		char *end;
		if (strncmp(name, head, k) != 0 || name[k] < '0' || name[k] > '9')
			continue;
		const long e = strtol(name + k, &end, 10);
		n = *end == '.' && e >= n && e < INT32_MAX ? (int)e + 1 : n;
	}
	return n;
}

/* A tensor of all experts of the layer. */
static const char *of_experts(Compile *c, const Decoder *d, int l, TensorRole role)
{
	return arena_printf(&c->arena, "%s.%s", d_part(c, d, l, NAME_EXPERTS), d->names[role]);
}

/* Is a layer's experts' weight one tensor? Says where the checkpoint has another number of experts, or both forms. */
static bool is_fused(Compile *c, const Decoder *d, int l)
{
	const Config *cf = &c->model.config;
	static const char *const tails[] = {"", "_scale_inv", "_blocks", "_scales"};
	const StTensor *one = NULL; /* any of them, where another is missing */
	const TensorRole roles[] = {d->names[NAME_EXPERTS_GATE] ? NAME_EXPERTS_GATE : NAME_EXPERTS_GATE_UP,
		NAME_EXPERTS_DOWN};
	for (int i = 0; i < (d->spec.act == ACT_CLAMPED ? 8 : 4) && !one; i++)
		one = g_find_tensor(c, arena_printf(&c->scratch, "%s%s", of_experts(c, d, l, roles[i % 2]), tails[i / 2]));
	const int n = count_experts(c, d, l);
	if (one && n)
		fail_at(&c->diags, A0602, (Loc){c->model.shards.at[one->shard].path, 0, 0},
			"tensor %s is there, and %d expert%s of the layer with tensors of %s own", one->name, n, n > 1 ? "s" : "",
			n > 1 ? "their" : "its");
	else if (n && n != d->spec.n_experts)
		fail_at(&c->diags, A0602, cf->at_experts, "%s = %d: the checkpoint has %d of layer %d (%s)",
			key_of_reader(cf->family, READER_EXPERTS)->name, d->spec.n_experts, n, l, d_part(c, d, l, NAME_EXPERTS));
	return one || d->names[NAME_EXPERTS_GATE] || c->cmd.random_weights || d->spec.act == ACT_CLAMPED;
}

/* Matrices [E, sum of rows, cols] of the modules of each expert. */
static Product products(Compile *c, const Decoder *d, int l, int n, const TensorRole *roles, const char *name,
	int64_t rows, int64_t cols)
{
	const int experts = d->spec.n_experts;
	Piece *pieces = ARENA_ARRAY(&c->scratch, Piece, n * experts);
	for (int e = 0; e < experts; e++)
		for (int i = 0; i < n; i++)
			pieces[e * n + i] = (Piece){arena_printf(&c->arena, "%s.%d.%s", d_part(c, d, l, NAME_EXPERTS), e,
				d->names[roles[i]]), rows, 0, rows, NULL};
	const char *all = arena_printf(&c->arena, "%s.%s", d_part(c, d, l, NAME_EXPERTS), name);
	Product out = {.name = all, .n_pieces = n * experts, .pieces = pieces, .cols = cols, .experts = experts};
	g_products_of(c, 1, &out);
	return out;
}

/* Is a tensor [E, cols, rows], of a family where it may be? One that is neither this nor [E, rows, cols] is said to be
 * wrong by what reads it. */
static bool is_turned(Compile *c, const Decoder *d, const char *name, int64_t rows, int64_t cols)
{
	if (d->spec.act == ACT_CLAMPED) /* always */
		return true;
	const StTensor *t = d->spec.may_be_turned ? g_find_tensor(c, name) : NULL;
	if (!t || t->n_dims != 3)
		return false;
	if (rows == cols && t->shape[1] == rows && t->shape[2] == rows)
		fail_at(&c->diags, A0602, (Loc){c->model.shards.at[t->shard].path, 0, 0}, "tensor %s has matrices of %lld rows "
			"and as many columns: whether they are transposed cannot be seen", t->name, (long long)rows);
	return t->shape[1] == cols && t->shape[2] == rows;
}

static Product fused_product(Compile *c, const Decoder *d, int l, TensorRole role, int64_t rows, int64_t cols)
{
	const int64_t all = d->spec.n_experts * rows;
	Piece piece = {of_experts(c, d, l, role), all, 0, all, NULL};
	Product out = {.name = piece.module, .n_pieces = 1, .pieces = &piece, .cols = cols, .experts = d->spec.n_experts,
		.is_fused = true, .is_turned = is_turned(c, d, piece.module, rows, cols)};
	g_products_of(c, 1, &out);
	return out;
}

/* Of two tensors of all experts, gate and up: the rows of an expert's gate, then those of its up. With --random-weights
 * one tensor. */
static Product gate_and_up(Compile *c, const Decoder *d, int l, int64_t rows, int64_t cols)
{
	const int experts = d->spec.n_experts;
	if (!d->names[NAME_EXPERTS_GATE] || c->cmd.random_weights)
		return fused_product(c, d, l, NAME_EXPERTS_GATE_UP, 2 * rows, cols);
	const char *names[] = {of_experts(c, d, l, NAME_EXPERTS_GATE), of_experts(c, d, l, NAME_EXPERTS_UP)};
	Piece *pieces = ARENA_ARRAY(&c->scratch, Piece, 2 * experts);
	for (int i = 0; i < 2 * experts; i++)
		pieces[i] = (Piece){names[i % 2], experts * rows, i / 2 * rows, rows, NULL};
	Product out = {.name = of_experts(c, d, l, NAME_EXPERTS_GATE_UP), .n_pieces = 2 * experts, .pieces = pieces,
		.cols = cols, .experts = experts, .is_fused = true};
	g_products_of(c, 1, &out);
	return out;
}

/* Scores of experts. A router may read the stream itself, normalised and times a tensor over the root of its size. */
static int scores(Compile *c, const Decoder *d, int l, int n, int x, const Product *router, int bias)
{
	const int hidden = c->model.config.hidden_dim;
	int logits = d_act(c, l, "router", DT_f32, d->spec.n_experts);
	if (!d->names[NAME_ROUTER_SCALE]) {
		g_linear(c, l, BOTH, router, n, bias, logits);
		return logits;
	}
	int scale = g_weight(c, d_part(c, d, l, NAME_ROUTER_SCALE), 1, hidden, 0);
	int plain = d_act(c, l, "router.plain", DT_f32, d->spec.n_experts);
	Attrs attrs = d->attrs;
	attrs.norm_one = 0;
	attrs.factor = (float)(1 / sqrt(hidden));
	int y = d_act(c, l, "router.norm", DT_bf16, hidden);
	g_op(c, OP_rmsnorm, l, BOTH, &attrs, (int[]){x, scale, y});
	g_linear(c, l, BOTH, router, y, bias, plain);
	g_op(c, OP_scale, l, BOTH, &attrs, (int[]){plain, logits});
	return logits;
}

/* What experts are chosen by besides the router's sigmoids, or is added to what a softmax is of; -1 = there is none. */
static int router_bias(Compile *c, const Decoder *d, int l)
{
	return d->names[NAME_ROUTER_BIAS] ? g_weight(c, d_part(c, d, l, NAME_ROUTER_BIAS), 1, d->spec.n_experts, 0) : -1;
}

static int bias_of_experts(Compile *c, const Decoder *d, int l, TensorRole role, int64_t rows)
{
	return g_weight(c, arena_printf(&c->scratch, "%s_bias", of_experts(c, d, l, role)), 2, d->spec.n_experts, rows);
}

/* What a row's experts make of it. */
static int apply_experts(Compile *c, const Decoder *d, int l, const Attrs *attrs, const Product *gate_up,
	const Product *down, int n, int expert, int share)
{
	const int hidden = c->model.config.hidden_dim;
	int y = d_act(c, l, "experts", DT_bf16, hidden);
	if (d->spec.act != ACT_CLAMPED) {
		const OpKind kind = d->spec.act == ACT_GELU_TANH ? OP_experts_gelu
			: d->spec.gate_limit > 0 ? OP_experts_limited : OP_experts;
		g_op(c, kind, l, BOTH, attrs, (int[]){n, expert, share,
			gate_up->w, gate_up->scale, gate_up->row_scale, down->w, down->scale, down->row_scale, y});
		return y;
	}
	const int up_bias = bias_of_experts(c, d, l, NAME_EXPERTS_GATE_UP, 2 * (int64_t)d->spec.ffn_dim);
	const int down_bias = bias_of_experts(c, d, l, NAME_EXPERTS_DOWN, hidden);
	if (gate_up->row_scale >= 0 || down->row_scale >= 0)
		fail_at(&c->diags, A0603, c->model.config.at_experts, "%s: scales of rows or tensors are not implemented for "
			"clamped experts", d_part(c, d, l, NAME_EXPERTS));
	g_op(c, OP_experts_clamped, l, BOTH, attrs, (int[]){n, expert, share, gate_up->w, gate_up->scale, up_bias, down->w,
		down->scale, down_bias, y});
	return y;
}

static int chosen_experts(Compile *c, const Decoder *d, int l, int n, int x)
{
	const Config *cf = &c->model.config;
	const int hidden = cf->hidden_dim, width = d->spec.ffn_dim;
	Product router, gate_up, down;
	d_products(c, d, l, 1, (const TensorRole[]){NAME_ROUTER}, (int64_t[]){d->spec.n_experts}, hidden, &router);
	if (is_fused(c, d, l)) {
		gate_up = gate_and_up(c, d, l, width, hidden);
		down = fused_product(c, d, l, NAME_EXPERTS_DOWN, hidden, width);
	} else {
		gate_up = products(c, d, l, 2, (const TensorRole[]){NAME_EXPERT_GATE, NAME_EXPERT_UP}, "gate_up", width,
			hidden);
		down = products(c, d, l, 1, (const TensorRole[]){NAME_EXPERT_DOWN}, "down", hidden, width);
	}
	if (gate_up.scale >= 0 && down.scale >= 0 && (gate_up.block_n != down.block_n || gate_up.block_k != down.block_k))
		fail_at(&c->diags, A0603, cf->at_experts, "%s have blocks of %d x %d elements in gate_up, of %d x %d in down",
			d_part(c, d, l, NAME_EXPERTS), gate_up.block_n, gate_up.block_k, down.block_n, down.block_k);
	Attrs attrs = d->attrs;
	attrs.block_n = gate_up.scale >= 0 ? gate_up.block_n : down.block_n;
	attrs.block_k = gate_up.scale >= 0 ? gate_up.block_k : down.block_k;
	const bool by_sigmoid = d->spec.router == ROUTER_SIGMOID;
	int logits = scores(c, d, l, n, x, &router, by_sigmoid ? -1 : router_bias(c, d, l));
	int expert = d_act(c, l, "expert", DT_i32, d->spec.n_active);
	int share = d_act(c, l, "share", DT_f32, d->spec.n_active);
	if (by_sigmoid)
		g_op(c, OP_route_sigmoid, l, BOTH, &d->attrs, (int[]){logits, router_bias(c, d, l), expert, share});
	else
		g_op(c, OP_route, l, BOTH, &d->attrs, (int[]){logits, expert, share});
	if (d->spec.share_input) { /* of one expert: its share of all of them is 1 */
		int input = d_act(c, l, "experts.input", DT_bf16, hidden), all = d_act(c, l, "share.all", DT_f32, 1);
		int again = d_act(c, l, "expert.all", DT_i32, 1);
		Attrs one = d->attrs;
		one.norm_topk = 1;
		one.share_eps = 0;
		g_op(c, OP_scale_rows, l, BOTH, NULL, (int[]){n, share, input});
		g_op(c, OP_route_sigmoid, l, BOTH, &one, (int[]){logits, router_bias(c, d, l), again, all});
		n = input;
		share = all;
	}
	if (d->names[NAME_SHARE_SCALE]) {
		int scaled = d_act(c, l, "share.scaled", DT_f32, d->spec.n_active);
		g_op(c, OP_scale_shares, l, BOTH, NULL, (int[]){share, expert,
			g_weight(c, d_part(c, d, l, NAME_SHARE_SCALE), 1, d->spec.n_experts, 0), scaled});
		share = scaled;
	}
	attrs.gate_limit = (float)d->spec.gate_limit;
	return apply_experts(c, d, l, &attrs, &gate_up, &down, n, expert, share);
}

static int shared_expert(Compile *c, const Decoder *d, int l, int n)
{
	const int hidden = c->model.config.hidden_dim, width = d->spec.shared_dim;
	Product w[2], w_down, w_gate;
	const bool has_share = d->spec.shared_gate;
	d_products(c, d, l, 2, (const TensorRole[]){NAME_SHARED_GATE, NAME_SHARED_UP},
		(int64_t[]){width, width}, hidden, w);
	d_products(c, d, l, 1, (const TensorRole[]){NAME_SHARED_DOWN}, (int64_t[]){hidden}, width, &w_down);
	if (has_share)
		d_products(c, d, l, 1, (const TensorRole[]){NAME_SHARED_SHARE}, (int64_t[]){1}, hidden, &w_gate);
	int gate = d_linear(c, l, n, &w[0], -1, "shared.gate", width);
	int up = d_linear(c, l, n, &w[1], -1, "shared.up", width);
	int h = d_act(c, l, "shared.h", DT_bf16, width);
	d_gate(c, d, l, gate, up, h);
	int y = d_linear(c, l, h, &w_down, -1, "shared.down", hidden);
	if (!has_share)
		return y;
	int share = d_linear(c, l, n, &w_gate, -1, "shared.share", 1), gated = d_act(c, l, "shared", DT_bf16, hidden);
	g_op(c, OP_sigmoid_gate, l, BOTH, NULL, (int[]){y, share, gated});
	return gated;
}

int d_experts(Compile *c, const Decoder *d, int l, int n, int x)
{
	int y = chosen_experts(c, d, l, n, x);
	return d->spec.shared_dim ? d_add(c, l, y, shared_expert(c, d, l, n), "mlp") : y;
}
