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
	return sigmoid((double)logits[e]) + (double)(bias->data ? ref_element(bias, e) : 0);
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
		ref_floats(c, "y")[i] = ref_floats(c, "share")[i] * /* 0: of a row that a lying graph made */
			(e >= 0 && e < n_experts ? ref_element(ref_arg(c, "w"), e) : 0);
	}
}

/* Matrices [E, n, k] of experts with their scales. */
typedef struct Matrices {
	RefCodes codes;
	int64_t n, k;           /* of one expert */
	int64_t piece, block_n; /* rows of a piece that has blocks of its own: gate and up are two */
	int64_t apart;          /* rows from one of gate to that of up */
	RefOperand bias;        /* of gate and up that alternate, data NULL = they do not */
	double limit, slope;    /* GATE_LIMIT, else infinity; GATE_SLOPE */
	bool is_gelu;           /* what gates is gelu, else silu */
} Matrices;

/* One matrix [n, k] becomes matrices [1, n, k]. */
static RefOperand as_matrices(const RefOperand *x)
{
	return x->n_dims == 2 ? (RefOperand){x->data, x->dtype, 3, {1, x->shape[0], x->shape[1]}, false} : *x;
}

static RefOperand optional(const RefCall *c, const char *name)
{
	return op_operand(c->op, name) >= 0 ? *ref_arg(c, name) : (RefOperand){0};
}

/* The operand w with its scales, data NULL = there is none; of the shared expert the size of blocks is its own. */
static Matrices matrices(const RefCall *c, const char *w, int pieces)
{
	char scale[48], row_scale[48];
	const RefOperand given = optional(c, w), x = as_matrices(&given);
	const bool is_shared = strncmp(w, "shared", 6) == 0;
	snprintf(scale, sizeof scale, "%s_scale", w);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", w);
	const RefOperand scales = optional(c, scale);
	return (Matrices){{x, as_matrices(&scales), optional(c, row_scale), x.shape[2],
						  is_shared ? c->attrs.shared_block_k : c->attrs.block_k},
		x.shape[1], x.shape[2], x.shape[1] / pieces, is_shared ? c->attrs.shared_block_n : c->attrs.block_n,
		pieces == 2 ? x.shape[1] / 2 : 1, optional(c, "gate_up_bias"),
		op_has_attr(c->op, "GATE_LIMIT") ? (double)c->attrs.gate_limit : INFINITY, (double)c->attrs.gate_slope,
		c->op == OP_experts_gelu || c->op == OP_experts_up_gelu};
}

/* Row n of expert e; room [k]. */
static void unpack(const Matrices *m, int64_t e, int64_t n, float *room)
{
	const int64_t of_piece = m->codes.scale.data ? (m->piece - 1) / m->block_n + 1 : 0;
	const int64_t row = of_piece ? n / m->piece * of_piece + n % m->piece / m->block_n : 0;
	ref_unpack(&m->codes, e * m->n + n, e * m->codes.scale.shape[1] + row, 0, m->k, room);
}

typedef struct Slice { int64_t part, parts; } Slice; /* of columns */

static const Slice whole = {0, 1};
static Slice slice_of(const RefCall *c) { return (Slice){c->part, c->parts ? c->parts : 1}; }
static int64_t first_of(Slice s, int64_t n) { return n * s.part / s.parts; }
static int64_t end_of(Slice s, int64_t n) { return n * (s.part + 1) / s.parts; }

/* A row that goes through expert e, the place of what comes of it, and its number among the pairs. */
typedef struct Routed { const float *x; float *y; double factor; int64_t e, pair; } Routed;

static bool is_next(const Routed *r, int64_t i) { return i == 0 || r[i].e != r[i - 1].e; }

/* silu(gate) * other, or with gelu, either within the limit; or (other + 1) * gate * sigmoid(slope * gate). */
static double gated(const Matrices *up, int64_t at, float gate, float other)
{
	if (up->bias.data) {
		const double own = gate + ref_element(&up->bias, at), more = other + ref_element(&up->bias, at + up->apart);
		const double within = ref_within(own, -INFINITY, up->limit);
		return (ref_within(more, -up->limit, up->limit) + 1) * within * sigmoid(up->slope * within);
	}
	const double x = gate, acted = up->is_gelu ? ref_gelu(x) : x * sigmoid(x);
	return ref_within(acted, -INFINITY, up->limit) * ref_within(other, -up->limit, up->limit);
}

/* y[n] = factor * what gate and up make of x, of rows in the order of experts: a row of weights is unpacked once for
 * all of an expert's; room [2 * k]. */
static void bring_up(const Matrices *up, const Routed *rows, int64_t n_rows, Slice s, float *room)
{
	for (int64_t n = first_of(s, up->n / 2); n < end_of(s, up->n / 2); n++)
		for (int64_t i = 0; i < n_rows; i++) {
			const int64_t row = up->apart == 1 && up->bias.data ? 2 * n : n;
			if (is_next(rows, i)) {
				unpack(up, rows[i].e, row, room);
				unpack(up, rows[i].e, row + up->apart, room + up->k);
			}
			const float gate = (float)ref_dot(rows[i].x, room, up->k);
			const float other = (float)ref_dot(rows[i].x, room + up->k, up->k);
			rows[i].y[n] = (float)(rows[i].factor * gated(up, rows[i].e * up->n + row, gate, other));
		}
}

/* y[n * step] of n rows: column n of what experts make of their parts of h. */
static void bring_down(const Matrices *down, const Routed *rows, int64_t n_rows, int64_t n, int64_t step, float *room)
{
	for (int64_t i = 0; i < n_rows; i++) {
		if (is_next(rows, i))
			unpack(down, rows[i].e, n, room);
		rows[i].y[n * step] = (float)ref_dot(rows[i].x, room, down->k);
	}
}

/* Rows part, part + parts, ... */
static void of_experts(const RefCall *c, bool is_clamped)
{
	const Matrices up = matrices(c, "gate_up", is_clamped ? 1 : 2), down = matrices(c, "down", 1);
	const RefOperand bias = optional(c, "down_bias");
	const int64_t rows = ref_dim(c, "x", 0), active = c->attrs.n_active, n_experts = up.codes.w.shape[0];
	const int64_t widest = 2 * up.k > down.k ? 2 * up.k : down.k;
	/* sums in float64; then floats: rows of weights, what an expert makes of a row, the hidden row */
	double *sum = ref_take(c, sizeof(double) * (size_t)up.k + sizeof(float) * (size_t)(widest + up.k + down.k));
	float *room = (float *)(sum + up.k), *made = room + widest, *hidden = made + up.k;
	for (int64_t t = c->part; t < rows && sum; t += c->parts ? c->parts : 1) {
		memset(sum, 0, sizeof *sum * (size_t)up.k);
		for (int64_t j = 0; j < active; j++) {
			const int64_t e = ref_ints(c, "expert")[t * active + j];
			const double share = (double)ref_floats(c, "share")[t * active + j];
			if (e < 0 || e >= n_experts) /* of a row that a lying graph made */
				continue;
			bring_up(&up, &(Routed){ref_floats(c, "x") + t * up.k, hidden, 1, e, 0}, 1, whole, room);
			for (int64_t i = 0; i < up.k; i++) {
				bring_down(&down, &(Routed){hidden, made, 1, e, 0}, 1, i, 1, room);
				sum[i] += share * (made[i] + (bias.data ? ref_element(&bias, e * up.k + i) : 0));
			}
		}
		for (int64_t i = 0; i < up.k; i++)
			ref_floats(c, "y")[t * up.k + i] = (float)sum[i];
	}
}

void ref_experts(const RefCall *c) { of_experts(c, false); }
void ref_experts_clamped(const RefCall *c) { of_experts(c, true); }
void ref_experts_limited(const RefCall *c) { of_experts(c, false); }
void ref_experts_gelu(const RefCall *c) { of_experts(c, false); }

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

/* The places of pairs in an array of their rows. */
typedef struct Places { float *at; int64_t per_row, per_pair; } Places;
static float *place(Places p, int64_t pair, int64_t active)
{
	return p.at + pair / active * p.per_row + pair % active * p.per_pair;
}

/* The pairs of rows in use in the order of experts, which are in `expert`, or in `pair` and `first`; of these, pairs
 * and places that there are none of are left out. */
static int64_t route_pairs(const RefCall *c, Places x, Places y, Places factor, int64_t n_pairs, int64_t n_experts,
	Routed *routed)
{
	const int64_t active = c->attrs.n_active;
	const RefOperand expert = optional(c, "expert"), pairs = optional(c, "pair"), firsts = optional(c, "first");
	const int32_t *of = expert.data, *first = firsts.data, *pair = pairs.data;
	int64_t n = 0;
	for (int64_t e = 0; e < n_experts; e++)
		for (int64_t i = of ? 0 : first[e]; i < (of ? n_pairs : first[e + 1]) && i < n_pairs && n < n_pairs; i++) {
			const int64_t p = i < 0 ? -1 : of ? i : pair[i];
			if (p >= 0 && p < n_pairs && (!of || (of[p] == e && p / active < ref_ints(c, "step")[0])))
				routed[n++] = (Routed){place(x, p, active), place(y, p, active),
					factor.at ? (double)*place(factor, p, active) : 1, e, p};
		}
	return n;
}

/* Rows in use that all go through one expert. */
static int64_t route_all(const RefCall *c, Places x, Places y, Places factor, int64_t rows, Routed *routed)
{
	int64_t t = 0;
	for (; t < rows && t < ref_ints(c, "step")[0]; t++)
		routed[t] = (Routed){x.at + t * x.per_row, y.at + t * y.per_row,
			factor.at ? (double)factor.at[t * factor.per_row] : 1, 0, t};
	return t;
}

/* Two rows of the widest matrix. */
static float *take_row(const RefCall *c)
{
	int64_t most = 1;
	for (int i = 0; i < op_table[c->op].n_operands; i++)
		if (c->operand[i].n_dims && c->operand[i].shape[c->operand[i].n_dims - 1] > most)
			most = c->operand[i].shape[c->operand[i].n_dims - 1];
	return ref_take(c, 2 * sizeof(float) * (size_t)most);
}

static void up_of(const RefCall *c, int pieces)
{
	const Matrices up = matrices(c, "gate_up", pieces), shared = matrices(c, "shared", 2);
	const int64_t rows = ref_dim(c, "n", 0), active = c->attrs.n_active, shares = ref_dim(c, "share", 1);
	const Places x = {ref_floats(c, "n"), up.k, 0}, y = {ref_floats(c, "h"), ref_dim(c, "h", 1), up.n / 2};
	const Places factor = {ref_floats(c, "share"), shares, 1};
	float *room = take_row(c);
	Routed *routed = ref_take(c, sizeof *routed * (size_t)(rows * active));
	if (!room)
		return;
	bring_up(&up, routed, route_pairs(c, x, y, factor, rows * active, up.codes.w.shape[0], routed), slice_of(c), room);
	const Places rest = {y.at + active * y.per_pair, y.per_row, 0}, last = {factor.at + active, shares, 0};
	if (shared.codes.w.data)
		bring_up(&shared, routed, route_all(c, x, rest, last, rows, routed), slice_of(c), room);
}

void ref_experts_up(const RefCall *c) { up_of(c, 2); }
void ref_experts_up_limited(const RefCall *c) { up_of(c, 2); }
void ref_experts_up_gelu(const RefCall *c) { up_of(c, 2); }
void ref_experts_up_clamped(const RefCall *c) { up_of(c, 1); }

/* y[t, share, :] of each pair, and of the shared expert the last. */
static void down_of(const RefCall *c, int64_t rows)
{
	const Matrices down = matrices(c, "down", 1), shared = matrices(c, "shared_down", 1);
	const int64_t active = c->attrs.n_active, pairs = rows * active, width = ref_dim(c, "h", 1);
	const Slice s = slice_of(c);
	const Places h = {ref_floats(c, "h"), width, down.k}, none = {NULL, 0, 0};
	const Places y = {ref_floats(c, "y"), ref_dim(c, "y", 1) * down.n, down.n};
	const RefOperand bias = optional(c, "down_bias");
	float *room = take_row(c);
	Routed *routed = ref_take(c, sizeof *routed * (size_t)pairs);
	if (!room)
		return;
	const int64_t n = route_pairs(c, h, y, none, pairs, down.codes.w.shape[0], routed);
	for (int64_t i = first_of(s, down.n); i < end_of(s, down.n); i++) {
		bring_down(&down, routed, n, i, 1, room);
		for (int64_t r = 0; bias.data && r < n; r++)
			routed[r].y[i] += ref_floats(c, "share")[routed[r].pair] * ref_element(&bias, routed[r].e * down.n + i);
	}
	const Places rest = {h.at + active * down.k, width, 0}, last = {y.at + active * down.n, y.per_row, 0};
	const int64_t n_rows = shared.codes.w.data ? route_all(c, rest, last, none, rows, routed) : 0;
	for (int64_t i = first_of(s, down.n); i < end_of(s, down.n); i++)
		bring_down(&shared, routed, n_rows, i, 1, room);
}

void ref_experts_down_rows(const RefCall *c) { down_of(c, ref_dim(c, "h", 0)); }
void ref_experts_down_biased(const RefCall *c) { down_of(c, ref_dim(c, "pair", 0) / c->attrs.n_active); }

void ref_experts_down(const RefCall *c)
{
	const Matrices down = matrices(c, "down", 1), shared = matrices(c, "shared_down", 1);
	const int64_t rows = ref_dim(c, "h", 0), active = c->attrs.n_active, pairs = rows * active;
	const int64_t width = ref_dim(c, "h", 1);
	const Slice s = slice_of(c);
	const Places h = {ref_floats(c, "h"), width, down.k}, none = {NULL, 0, 0};
	float *room = take_row(c), *term = ref_take(c, sizeof *term * (size_t)(pairs + rows)); /* of pairs, then shared */
	Routed *routed = ref_take(c, sizeof *routed * (size_t)(pairs + rows));
	if (!room)
		return;
	const int64_t n = route_pairs(c, h, (Places){term, active, 1}, none, pairs, down.codes.w.shape[0], routed);
	const Places rest = {h.at + active * down.k, width, 0}, last = {term + pairs, 1, 0};
	const int64_t n_rows = shared.codes.w.data ? route_all(c, rest, last, none, rows, routed + n) : 0;
	memset(term, 0, sizeof *term * (size_t)(pairs + rows));
	for (int64_t i = first_of(s, down.n); i < end_of(s, down.n); i++) {
		bring_down(&down, routed, n, i, 0, room);
		bring_down(&shared, routed + n, n_rows, i, 0, room);
		for (int64_t t = 0; t < rows && t < ref_ints(c, "step")[0]; t++) {
			double sum = 0;
			for (int64_t p = t * active; p < (t + 1) * active; p++) {
				const int64_t e = ref_ints(c, "expert")[p];
				sum += (double)term[p];
				if (e >= 0 && e < down.codes.w.shape[0] && ref_has(c, "down_bias"))
					sum += (double)ref_floats(c, "share")[p] * ref_element(ref_arg(c, "down_bias"), e * down.n + i);
			}
			if (shared.codes.w.data)
				sum += (double)term[pairs + t];
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
	float *x = ref_take(c, sizeof(float) * (size_t)(3 * up.k + up.piece));
	for (int64_t i = 0; i < all && x; i++) {
		float *const room = x + up.k, *const h = room + 2 * up.k;
		int64_t share;
		const int64_t e = expert_at(c, i, up.codes.w.shape[0], rows, shares, &share);
		if (e < 0)
			continue;
		const bool is_shared = e == up.codes.w.shape[0];
		ref_values_of(ref_floats(c, "x") + i * up.k, up.k, ref_floats(c, "x_scale") + i, all, x);
		bring_up(is_shared ? &shared : &up,
			&(Routed){x, h, (double)ref_floats(c, "share")[share], is_shared ? 0 : e, 0}, 1, whole, room);
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
		const int64_t e = expert_at(c, i, down.codes.w.shape[0], rows, shares, &share);
		if (e < 0)
			continue;
		const bool is_shared = e == down.codes.w.shape[0];
		ref_values_of(ref_floats(c, "h") + i * down.k, down.k, ref_floats(c, "h_scale") + i, all, h);
		for (int64_t n = 0; n < down.n; n++)
			bring_down(is_shared ? &shared : &down,
				&(Routed){h, ref_floats(c, "y") + share * down.n, 1, is_shared ? 0 : e, 0}, 1, n, 1, room);
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
