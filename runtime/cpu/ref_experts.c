/* ref_experts.c - rows that choose their experts, and what the experts make of them.
 *
 * The router's probabilities are a softmax in float64 over the float32 logits, so a choice is decided by these alone;
 * equal ones go to the lowest id. An expert is a SwiGLU of three products. Its codes are converted a row at a time,
 * which is all the scratch there is besides the hidden row.
 */
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static void gate_row(const RefCall *c, double of(double x))
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), gates = ref_dim(c, "gate", 1);
	const float *x = ref_floats(c, "x"), *gate = ref_floats(c, "gate");
	float *y = ref_floats(c, "y");
	for (int64_t t = 0; t < rows; t++)
		for (int64_t n = 0; n < cols; n++)
			y[t * cols + n] = (float)(x[t * cols + n] * of((double)gate[t * gates + n / (cols / gates)]));
}

void ref_sigmoid_gate(const RefCall *c) { gate_row(c, sigmoid); }
void ref_softplus_gate(const RefCall *c) { gate_row(c, softplus); }

/* Is id among the first n? */
static bool is_taken(const int32_t *ids, int n, int id)
{
	for (int i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static void route_row(const Attrs *a, const float *logits, int n_experts, int32_t *expert, float *share)
{
	double largest = -INFINITY, all = 0, chosen = 0;
	for (int e = 0; e < n_experts; e++)
		largest = fmax(largest, (double)logits[e]);
	for (int e = 0; e < n_experts; e++)
		all += exp((double)logits[e] - largest);
	for (int j = 0; j < a->n_active; j++) {
		int best = -1;
		for (int e = 0; e < n_experts; e++)
			if (!is_taken(expert, j, e) && (best < 0 || logits[e] > logits[best]))
				best = e;
		expert[j] = best;
		chosen += exp((double)logits[best] - largest);
	}
	for (int j = 0; j < a->n_active; j++)
		share[j] = (float)(exp((double)logits[expert[j]] - largest) / (a->norm_topk ? chosen : all));
}

void ref_route(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "logits", 0), experts = ref_dim(c, "logits", 1), active = c->attrs.n_active;
	for (int64_t t = 0; t < rows; t++)
		route_row(&c->attrs, ref_floats(c, "logits") + t * experts, (int)experts, ref_ints(c, "expert") + t * active,
			ref_floats(c, "share") + t * active);
}

/* What an expert is chosen by: never what it is worth. */
static double score_of(const float *logits, const RefOperand *bias, int e)
{
	float more = 0;
	if (bias->data)
		ref_convert(bias, e, 1, &more);
	return sigmoid((double)logits[e]) + (double)more;
}

/* Is the group among the best: fewer than `most` have a larger sum of two, or the same and a lower number? */
static bool is_open(const double *sums, int n, int most, int group)
{
	int before = 0;
	for (int g = 0; g < n; g++)
		before += sums[g] > sums[group] || (sums[g] == sums[group] && g < group);
	return before < most;
}

static void route_by_sigmoid(const Attrs *a, const float *logits, const RefOperand *bias, int n, int32_t *expert,
	float *share)
{
	double sums[REF_MAX_GROUPS], chosen = (double)a->share_eps;
	const int of = n / a->n_groups; /* experts of a group */
	for (int g = 0; g < a->n_groups; g++) {
		double first = -INFINITY, second = -INFINITY;
		for (int e = g * of; e < (g + 1) * of; e++) {
			const double score = score_of(logits, bias, e);
			second = fmax(second, fmin(first, score));
			first = fmax(first, score);
		}
		sums[g] = of > 1 ? first + second : first;
	}
	for (int j = 0; j < a->n_active; j++) {
		int best = -1;
		for (int e = 0; e < n; e++)
			if (is_open(sums, a->n_groups, a->top_groups, e / of) && !is_taken(expert, j, e) &&
					(best < 0 || score_of(logits, bias, e) > score_of(logits, bias, best)))
				best = e;
		expert[j] = best;
		chosen += sigmoid((double)logits[best]);
	}
	for (int j = 0; j < a->n_active; j++)
		share[j] = (float)(sigmoid((double)logits[expert[j]]) / (a->norm_topk ? chosen : 1) * (double)a->share_scale);
}

void ref_route_sigmoid(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "logits", 0), experts = ref_dim(c, "logits", 1), active = c->attrs.n_active;
	for (int64_t t = 0; t < rows; t++)
		route_by_sigmoid(&c->attrs, ref_floats(c, "logits") + t * experts, ref_arg(c, "bias"), (int)experts,
			ref_ints(c, "expert") + t * active, ref_floats(c, "share") + t * active);
}

void ref_scale_shares(const RefCall *c)
{
	const int64_t n = ref_dim(c, "share", 0) * ref_dim(c, "share", 1), n_experts = ref_dim(c, "w", 0);
	for (int64_t i = 0; i < n; i++) {
		const int64_t e = ref_ints(c, "expert")[i];
		float w = 0; /* of a row that a lying graph made */
		if (e >= 0 && e < n_experts)
			ref_convert(ref_arg(c, "w"), e, 1, &w);
		ref_floats(c, "y")[i] = ref_floats(c, "share")[i] * w;
	}
}

/* Matrices [E, n, k] of experts with their scales. */
typedef struct Matrices {
	RefOperand w, scale, row_scale; /* data NULL = absent */
	int64_t n, k;                   /* of one expert */
	int64_t piece, block_n, block_k; /* rows of a piece that has blocks of its own: gate and up are two */
	double limit;                   /* GATE_LIMIT, else infinity */
	bool is_gelu;                   /* what gates is gelu, else silu */
} Matrices;

/* One matrix [n, k] becomes matrices [1, n, k]. */
static RefOperand as_matrices(const RefOperand *x)
{
	RefOperand y = *x;
	if (y.n_dims == 2)
		y = (RefOperand){x->data, x->dtype, 3, {1, x->shape[0], x->shape[1]}, false};
	return y;
}

/* The operand w with its scales; of the shared expert the size of blocks is its own. */
static Matrices matrices(const RefCall *c, const char *w, int pieces)
{
	char scale[48], row_scale[48];
	const RefOperand x = as_matrices(ref_arg(c, w));
	const bool is_shared = strncmp(w, "shared", 6) == 0;
	snprintf(scale, sizeof scale, "%s_scale", w);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", w);
	const bool may_be_by_row = op_operand(c->op, row_scale) >= 0;
	return (Matrices){x, as_matrices(ref_arg(c, scale)), may_be_by_row ? *ref_arg(c, row_scale) : (RefOperand){0},
		x.shape[1], x.shape[2],
		x.shape[1] / pieces, is_shared ? c->attrs.shared_block_n : c->attrs.block_n,
		is_shared ? c->attrs.shared_block_k : c->attrs.block_k,
		op_has_attr(c->op, "GATE_LIMIT") ? (double)c->attrs.gate_limit : INFINITY,
		c->op == OP_experts_gelu || c->op == OP_experts_up_gelu};
}

static float element_at(const RefOperand *from, int64_t i)
{
	float value;
	ref_convert(from, i, 1, &value);
	return value;
}

/* Row n of expert e times x [k]; `room` [k] for the row. */
static double product(const Matrices *m, int64_t e, int64_t n, const float *x, float *room)
{
	ref_convert(&m->w, (e * m->n + n) * m->k, m->k, room);
	if (m->scale.data) {
		const int64_t in_piece = (m->piece - 1) / m->block_n + 1;
		const int64_t row = n / m->piece * in_piece + n % m->piece / m->block_n;
		for (int64_t from = 0; from < m->k; from += m->block_k) {
			const int64_t to = from + m->block_k < m->k ? from + m->block_k : m->k;
			const float scale =
				element_at(&m->scale, (e * m->scale.shape[1] + row) * m->scale.shape[2] + from / m->block_k);
			for (int64_t k = from; k < to; k++)
				room[k] *= scale;
		}
	}
	if (m->row_scale.data) {
		const float scale = element_at(&m->row_scale, e * m->n + n);
		for (int64_t k = 0; k < m->k; k++)
			room[k] *= scale;
	}
	return ref_dot(x, room, m->k);
}

typedef struct Slice { int64_t part, parts; } Slice; /* of columns */

static Slice whole(void) { return (Slice){0, 1}; }
static Slice slice_of(const RefCall *c) { return (Slice){c->part, c->parts ? c->parts : 1}; }
static int64_t first_of(Slice s, int64_t n) { return n * s.part / s.parts; }
static int64_t end_of(Slice s, int64_t n) { return n * (s.part + 1) / s.parts; }

/* h[n] = factor * (silu(gate x) * (up x)) of expert e, or with gelu, either within the limit; `room` [k] for a row. */
static void gated(const Matrices *up, int64_t e, const float *x, double factor, Slice s, float *room, float *h)
{
	for (int64_t n = first_of(s, up->piece); n < end_of(s, up->piece); n++) {
		const double gate = (float)product(up, e, n, x, room), other = (float)product(up, e, up->piece + n, x, room);
		h[n] = (float)(factor * (ref_within(up->is_gelu ? ref_gelu(gate) : gate * sigmoid(gate), -INFINITY, up->limit) *
			ref_within(other, -up->limit, up->limit)));
	}
}

/* h[n] = factor * ((up + 1) * gate * sigmoid(GATE_SLOPE gate)) of expert e, whose rows of gate and up alternate. */
static void clamped(const RefCall *c, const Matrices *up, int64_t e, const float *x, double factor, Slice s,
	float *room, float *h)
{
	const RefOperand *bias = ref_arg(c, "gate_up_bias");
	const double limit = (double)c->attrs.gate_limit, slope = (double)c->attrs.gate_slope;
	for (int64_t n = first_of(s, up->n / 2); n < end_of(s, up->n / 2); n++) {
		const int64_t row = 2 * n, at = e * up->n + row;
		const double own = (float)product(up, e, row, x, room) + element_at(bias, at);
		const double other = (float)product(up, e, row + 1, x, room) + element_at(bias, at + 1);
		const double gate = ref_within(own, -INFINITY, limit);
		h[n] = (float)(factor * ((ref_within(other, -limit, limit) + 1) * gate * sigmoid(slope * gate)));
	}
}

/* Rows part, part + parts, ... */
static void of_experts(const RefCall *c, bool is_clamped)
{
	const Matrices up = matrices(c, "gate_up", is_clamped ? 1 : 2), down = matrices(c, "down", 1);
	const RefOperand *bias = is_clamped ? ref_arg(c, "down_bias") : NULL;
	const int64_t rows = ref_dim(c, "x", 0), active = c->attrs.n_active, n_experts = up.w.shape[0];
	/* sums in float64; then floats: a row of either matrix, the hidden row */
	double *sum = ref_take(c, (sizeof(double) + sizeof(float)) * (size_t)up.k + 2 * sizeof(float) * (size_t)down.k);
	float *room = (float *)(sum + up.k), *hidden = room + (up.k > down.k ? up.k : down.k);
	for (int64_t t = c->part; t < rows && sum; t += c->parts ? c->parts : 1) {
		const float *x = ref_floats(c, "x") + t * up.k;
		float *y = ref_floats(c, "y") + t * up.k;
		for (int64_t i = 0; i < up.k; i++)
			sum[i] = 0;
		for (int64_t j = 0; j < active; j++) {
			const int64_t e = ref_ints(c, "expert")[t * active + j];
			if (e < 0 || e >= n_experts) /* of a row that a lying graph made */
				continue;
			if (is_clamped)
				clamped(c, &up, e, x, 1, whole(), room, hidden);
			else
				gated(&up, e, x, 1, whole(), room, hidden);
			for (int64_t i = 0; i < up.k; i++) {
				const float more = bias ? element_at(bias, e * up.k + i) : 0;
				const double share = (double)ref_floats(c, "share")[t * active + j];
				sum[i] += share * ((float)product(&down, e, i, hidden, room) + more);
			}
		}
		for (int64_t i = 0; i < up.k; i++)
			y[i] = (float)sum[i];
	}
}

void ref_experts(const RefCall *c) { of_experts(c, false); }
void ref_experts_clamped(const RefCall *c) { of_experts(c, true); }
void ref_experts_limited(const RefCall *c) { ref_experts(c); }
void ref_experts_gelu(const RefCall *c) { ref_experts(c); }

/* The fused ops of experts, which are parts of that one ------------------------------------------------------ */

void ref_group_rows(const RefCall *c)
{
	const int64_t pairs = ref_dim(c, "pair", 0), active = c->attrs.n_active, in_use = ref_ints(c, "step")[0] * active;
	const int64_t n_experts = ref_dim(c, "first", 0) - 1;
	const int32_t *expert = ref_ints(c, "expert");
	int32_t *pair = ref_ints(c, "pair"), n = 0;
	for (int64_t e = 0; e < n_experts; e++) {
		ref_ints(c, "first")[e] = n;
		for (int64_t p = 0; p < pairs && p < in_use; p++)
			if (expert[p] == e)
				pair[n++] = (int32_t)p;
	}
	ref_ints(c, "first")[n_experts] = n;
	while (n < pairs)
		pair[n++] = -1;
}

void ref_group_own(const RefCall *c) { ref_group_rows(c); }

/* The expert of pair p, or -1 when the row is in no use: from `expert`, or by the place of p in the order. */
static int64_t expert_of(const RefCall *c, int64_t p, int64_t n_experts)
{
	if (op_operand(c->op, "expert") >= 0 && ref_has(c, "expert")) {
		const int64_t e = ref_ints(c, "expert")[p];
		return e < n_experts && p / c->attrs.n_active < ref_ints(c, "step")[0] ? e : -1;
	}
	const int32_t *first = ref_ints(c, "first"), *pair = ref_ints(c, "pair");
	for (int64_t e = 0; e < n_experts; e++)
		for (int64_t i = first[e]; i < first[e + 1]; i++)
			if (pair[i] == p)
				return e;
	return -1;
}

/* A row of the widest matrix. */
static float *take_row(const RefCall *c)
{
	int64_t most = 1;
	for (int i = 0; i < op_table[c->op].n_operands; i++)
		if (c->operand[i].n_dims && c->operand[i].shape[c->operand[i].n_dims - 1] > most)
			most = c->operand[i].shape[c->operand[i].n_dims - 1];
	return ref_take(c, sizeof(float) * (size_t)most);
}

void ref_experts_up(const RefCall *c)
{
	const Matrices up = matrices(c, "gate_up", 2);
	const Matrices shared = op_operand(c->op, "shared") < 0 ? (Matrices){.n = 0} : matrices(c, "shared", 2);
	const int64_t rows = ref_dim(c, "n", 0), active = c->attrs.n_active, width = ref_dim(c, "h", 1);
	const int64_t shares = ref_dim(c, "share", 1);
	float *room = take_row(c);
	for (int64_t t = 0; t < rows && room; t++) {
		const float *x = ref_floats(c, "n") + t * up.k, *share = ref_floats(c, "share") + t * shares;
		float *h = ref_floats(c, "h") + t * width;
		for (int64_t j = 0; j < active; j++) {
			const int64_t e = expert_of(c, t * active + j, up.w.shape[0]);
			if (e >= 0)
				gated(&up, e, x, (double)share[j], slice_of(c), room, h + j * up.piece);
		}
		if (shared.w.data && t < ref_ints(c, "step")[0])
			gated(&shared, 0, x, (double)share[active], slice_of(c), room, h + active * up.piece);
	}
}

void ref_experts_up_limited(const RefCall *c) { ref_experts_up(c); }
void ref_experts_up_gelu(const RefCall *c) { ref_experts_up(c); }

void ref_experts_up_clamped(const RefCall *c)
{
	const Matrices up = matrices(c, "gate_up", 1);
	const int64_t active = c->attrs.n_active, pairs = ref_dim(c, "n", 0) * active, width = ref_dim(c, "h", 1);
	float *room = take_row(c);
	for (int64_t p = 0; p < pairs && room; p++) {
		const int64_t e = expert_of(c, p, up.w.shape[0]), t = p / active;
		if (e >= 0)
			clamped(c, &up, e, ref_floats(c, "n") + t * up.k, (double)ref_floats(c, "share")[p], slice_of(c), room,
				ref_floats(c, "h") + t * width + p % active * (up.n / 2));
	}
}

/* y [k]: what expert e makes of its part of a row of h. */
static void brought_down(const Matrices *down, int64_t e, const float *h, Slice s, float *room, float *y)
{
	for (int64_t i = first_of(s, down->n); i < end_of(s, down->n); i++)
		y[i] = (float)product(down, e, i, h, room);
}

void ref_experts_down_rows(const RefCall *c)
{
	const Matrices down = matrices(c, "down", 1), shared = matrices(c, "shared_down", 1);
	const int64_t rows = ref_dim(c, "h", 0), width = ref_dim(c, "h", 1), active = c->attrs.n_active;
	const int64_t shares = ref_dim(c, "y", 1);
	float *room = take_row(c);
	for (int64_t t = 0; t < rows && room; t++) {
		const float *h = ref_floats(c, "h") + t * width;
		float *y = ref_floats(c, "y") + t * shares * down.n;
		for (int64_t j = 0; j < active; j++) {
			const int64_t e = expert_of(c, t * active + j, down.w.shape[0]);
			if (e >= 0)
				brought_down(&down, e, h + j * down.k, slice_of(c), room, y + j * down.n);
		}
		if (shared.w.data && t < ref_ints(c, "step")[0])
			brought_down(&shared, 0, h + active * down.k, slice_of(c), room, y + active * down.n);
	}
}

void ref_experts_down_biased(const RefCall *c)
{
	const Matrices down = matrices(c, "down", 1);
	const int64_t pairs = ref_dim(c, "pair", 0);
	float *room = take_row(c);
	for (int64_t p = 0; p < pairs && room; p++) {
		const int64_t e = expert_of(c, p, down.w.shape[0]);
		float *y = ref_floats(c, "y") + p * down.n;
		if (e < 0)
			continue;
		brought_down(&down, e, ref_floats(c, "h") + p * down.k, slice_of(c), room, y);
		for (int64_t i = first_of(slice_of(c), down.n); i < end_of(slice_of(c), down.n); i++)
			y[i] += ref_floats(c, "share")[p] * element_at(ref_arg(c, "down_bias"), e * down.n + i);
	}
}

void ref_experts_down(const RefCall *c)
{
	const Matrices down = matrices(c, "down", 1), shared = matrices(c, "shared_down", 1);
	const int64_t rows = ref_dim(c, "h", 0), width = ref_dim(c, "h", 1), active = c->attrs.n_active;
	const Slice s = slice_of(c);
	float *room = take_row(c);
	for (int64_t t = 0; room && t < rows && t < ref_ints(c, "step")[0]; t++) {
		const float *h = ref_floats(c, "h") + t * width;
		for (int64_t i = first_of(s, down.n); i < end_of(s, down.n); i++) {
			double sum = 0;
			for (int64_t j = 0; j < active; j++) {
				const int64_t e = expert_of(c, t * active + j, down.w.shape[0]);
				sum += e < 0 ? 0 : (double)(float)product(&down, e, i, h + j * down.k, room);
				if (e >= 0 && ref_has(c, "down_bias"))
					sum += (double)ref_floats(c, "share")[t * active + j] *
						element_at(ref_arg(c, "down_bias"), e * down.n + i);
			}
			if (shared.w.data)
				sum += (double)(float)product(&shared, 0, i, h + active * down.k, room);
			if (ref_has(c, "residual"))
				sum += (double)ref_floats(c, "residual")[t * down.n + i];
			ref_floats(c, "z")[t * down.n + i] = (float)sum;
		}
	}
}

/* Rows in the order of experts: of pairs, then each row for the expert that all rows go to. */

void ref_gather_codes(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), k = ref_dim(c, "x", 1), all = ref_dim(c, "y", 0);
	const int64_t pairs = rows * c->attrs.n_active;
	for (int64_t i = 0; i < all; i++) {
		const int64_t pair = i < pairs ? ref_ints(c, "pair")[i] : -1;
		const int64_t t = i < pairs ? (pair < 0 ? rows : pair / c->attrs.n_active) : i - pairs;
		if (t < ref_ints(c, "step")[0])
			ref_codes_of(ref_floats(c, "x") + t * k, k, ref_floats(c, "y") + i * k, ref_floats(c, "y_scale") + i, all);
	}
}

/* Row i of them: the expert it goes to, n_experts for the one of all rows, and its number among the shares of all rows;
 * -1 when it is in no use. */
static int64_t expert_at(const RefCall *c, int64_t i, int64_t n_experts, int64_t rows, int64_t shares, int64_t *share)
{
	const int64_t active = c->attrs.n_active, again = i - rows * active;
	const int32_t *first = ref_ints(c, "first"), pair = again < 0 ? ref_ints(c, "pair")[i] : 0;
	*share = again < 0 ? pair / active * shares + pair % active : again * shares + active;
	if (again >= 0)
		return again < ref_ints(c, "step")[0] ? n_experts : -1;
	for (int64_t e = 0; e < n_experts; e++)
		if (i >= first[e] && i < first[e + 1])
			return e;
	return -1;
}

void ref_experts_up_fp8(const RefCall *c)
{
	const Matrices up = matrices(c, "gate_up", 2), shared = matrices(c, "shared", 2);
	const int64_t all = ref_dim(c, "x", 0), rows = ref_dim(c, "share", 0), shares = ref_dim(c, "share", 1);
	float *x = ref_take(c, sizeof(float) * (size_t)(2 * up.k + up.piece));
	for (int64_t i = 0; i < all && x; i++) {
		float *const room = x + up.k, *const h = room + up.k;
		int64_t share;
		const int64_t e = expert_at(c, i, up.w.shape[0], rows, shares, &share);
		if (e < 0)
			continue;
		const bool is_shared = e == up.w.shape[0];
		ref_values_of(ref_floats(c, "x") + i * up.k, up.k, ref_floats(c, "x_scale") + i, all, x);
		gated(is_shared ? &shared : &up, is_shared ? 0 : e, x, (double)ref_floats(c, "share")[share], whole(), room, h);
		ref_codes_of(h, up.piece, ref_floats(c, "h") + i * up.piece, ref_floats(c, "h_scale") + i, all);
	}
}

void ref_experts_down_fp8(const RefCall *c)
{
	const Matrices down = matrices(c, "down", 1), shared = matrices(c, "shared_down", 1);
	const int64_t all = ref_dim(c, "h", 0), rows = ref_dim(c, "y", 0), shares = ref_dim(c, "y", 1);
	float *h = ref_take(c, sizeof(float) * (size_t)(2 * down.k));
	for (int64_t i = 0; i < all && h; i++) {
		float *const room = h + down.k;
		int64_t share;
		const int64_t e = expert_at(c, i, down.w.shape[0], rows, shares, &share);
		if (e < 0)
			continue;
		const bool is_shared = e == down.w.shape[0];
		ref_values_of(ref_floats(c, "h") + i * down.k, down.k, ref_floats(c, "h_scale") + i, all, h);
		brought_down(is_shared ? &shared : &down, is_shared ? 0 : e, h, whole(), room,
			ref_floats(c, "y") + share * down.n);
	}
}

/* residual, expert: NULL = there is none; all terms are there. */
static void sum_terms(const RefCall *c, const float *residual, const int32_t *expert)
{
	const int64_t rows = ref_dim(c, "y", 0), shares = ref_dim(c, "y", 1), k = ref_dim(c, "y", 2);
	for (int64_t t = 0; t < rows; t++)
		for (int64_t i = 0; i < k; i++) {
			double sum = 0;
			for (int64_t j = 0; j < shares; j++)
				sum += expert && expert[t * shares + j] < 0 ? 0 : (double)ref_floats(c, "y")[(t * shares + j) * k + i];
			ref_floats(c, "z")[t * k + i] = (float)((residual ? (double)residual[t * k + i] : 0) + sum);
		}
}

void ref_sum_experts(const RefCall *c) { sum_terms(c, ref_floats(c, "residual"), NULL); }
void ref_sum_terms(const RefCall *c) { sum_terms(c, NULL, NULL); }
void ref_sum_own(const RefCall *c) { sum_terms(c, NULL, ref_ints(c, "expert")); }
