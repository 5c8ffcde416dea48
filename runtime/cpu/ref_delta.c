/* ref_delta.c - layers that keep a state of fixed size instead of keys and values: Gated DeltaNet.
 *
 * A slot's state is kept from the last of its rows in a step to the first in the next: a prompt may be read in
 * pieces of any length, or row by row, and the state goes through the same numbers. Rows of one slot are in order of
 * position. Slots are zeroed when they are taken (zero_slots). A state of bf16 is rounded where a step ends, so then it
 * does matter where a prompt is cut.
 *
 * Yang, Kautz, Hatamizadeh, "Gated Delta Networks: improving Mamba2 with delta rule", arXiv 2412.06464.
 */
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

static double silu(double x) { return x / (1 + exp(-x)); }

/* A row after those in `window` [TAPS, cols], the oldest first, which then holds it too. */
static void convolve(const RefCall *c, const float *x, float *window, float *y)
{
	const int64_t cols = ref_dim(c, "x", 1), taps = c->attrs.n_taps;
	for (int64_t i = 0; i < cols; i++) {
		double sum = 0;
		for (int64_t j = 0; j <= taps; j++) {
			float w;
			ref_convert(ref_arg(c, "w"), i * (taps + 1) + j, 1, &w);
			sum += (double)w * (j < taps ? window[j * cols + i] : x[i]);
		}
		y[i] = (float)silu(sum);
	}
	if (taps) {
		memmove(window, window + cols, (size_t)((taps - 1) * cols) * sizeof *window);
		memcpy(window + (taps - 1) * cols, x, (size_t)cols * sizeof *window);
	}
}

void ref_causal_conv(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++) {
		float *y = ref_floats(c, "y") + t * cols;
		const int slot = ref_row_slot(c, t);
		if (slot < 0)
			memset(y, 0, (size_t)cols * sizeof *y);
		else
			convolve(c, ref_floats(c, "x") + t * cols, ref_floats(c, "conv") + slot * ref_dim(c, "conv", 1), y);
	}
}

/* What a value head does with a row. */
typedef struct Step {
	const float *q, *k, *v; /* [DK], [DK], [DV]; q and k as they come */
	double q_scale, k_scale;
	double decay, rate;     /* e^g and beta */
} Step;

static void advance(const Step *s, int64_t dk, int64_t dv, float *state, float *o)
{
	for (int64_t j = 0; j < dv; j++) {
		double held = 0, out = 0;
		for (int64_t i = 0; i < dk; i++)
			held += (double)s->k[i] * s->k_scale * (double)state[i * dv + j] * s->decay;
		const double change = s->rate * (s->v[j] - held);
		for (int64_t i = 0; i < dk; i++) {
			const double next = (double)state[i * dv + j] * s->decay + (double)s->k[i] * s->k_scale * change;
			state[i * dv + j] = (float)next;
			out += (double)s->q[i] * s->q_scale * (double)state[i * dv + j];
		}
		o[j] = (float)out;
	}
}

static double per_head(const RefCall *c, const char *name, int64_t h)
{
	float value;
	ref_convert(ref_arg(c, name), h, 1, &value);
	return value;
}

static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

/* Row t of value head h, whose state goes on. */
static void advance_row(const RefCall *c, int64_t h, int64_t t, float *state, float *o)
{
	const Attrs *a = &c->attrs;
	const int64_t nk = a->n_k_heads, nv = a->n_v_heads, dk = a->k_dim, dv = a->v_dim, head = h / (nv / nk);
	const float *qkv = ref_floats(c, "qkv") + t * (2 * nk * dk + nv * dv);
	Step s = {.q = qkv + head * dk, .k = qkv + (nk + head) * dk, .v = qkv + 2 * nk * dk + h * dv};
	s.q_scale = 1 / sqrt((ref_dot(s.q, s.q, dk) + 1e-6) * (double)dk);
	s.k_scale = 1 / sqrt(ref_dot(s.k, s.k, dk) + 1e-6);
	s.decay = exp(-exp(per_head(c, "a_log", h)) *
		softplus((double)ref_floats(c, "a")[t * nv + h] + per_head(c, "dt_bias", h)));
	s.rate = 1 / (1 + exp(-(double)ref_floats(c, "b")[t * nv + h]));
	advance(&s, dk, dv, state, o);
}

/* What is stored of a state. */
static void round_state(const RefCall *c, float *state, int64_t n)
{
	for (int64_t i = 0; i < n && ref_arg(c, "delta")->is_bf16; i++)
		state[i] = numbers_rounded(DT_bf16, state[i]);
}

/* Value heads part, part + parts, ... */
void ref_delta_rule(const RefCall *c)
{
	const Attrs *a = &c->attrs;
	const int64_t rows = ref_dim(c, "qkv", 0), nv = a->n_v_heads, dv = a->v_dim, n = a->k_dim * dv;
	for (int64_t h = c->part; h < nv; h += c->parts ? c->parts : 1)
		for (int64_t t = 0, first = 0; t < rows; t++) {
			float *o = ref_floats(c, "o") + (t * nv + h) * dv;
			const int slot = ref_row_slot(c, t);
			float *state = ref_floats(c, "delta") + (slot * nv + h) * n;
			if (slot < 0) {
				memset(o, 0, (size_t)dv * sizeof *o);
				continue;
			}
			if (t > 0 && ref_row_slot(c, t - 1) != slot)
				first = t;
			advance_row(c, h, t, state, o);
			if ((t + 1 - first) % PLAN_DELTA_CELL == 0 || t + 1 == rows || ref_row_slot(c, t + 1) != slot)
				round_state(c, state, n);
		}
}

/* Chunks ----------------------------------------------------------------------------------------------------
 *
 * The same rule for PLAN_DELTA_CELL rows of a segment at once (ops.h: delta_solve, delta_walk). */

enum { CELL = PLAN_DELTA_CELL };

typedef struct Chunk { int64_t head, first; int n; } Chunk;

/* f of each chunk of each segment, in order, of this part's value heads. */
static void each_chunk(const RefCall *c, void (*f)(const RefCall *c, const Chunk *x))
{
	const int32_t *seg = ref_ints(c, "seg");
	for (int64_t h = c->part; h < c->attrs.n_v_heads; h += c->parts ? c->parts : 1)
		for (int s = 0; s < ref_ints(c, "step")[2]; s++)
			for (int32_t t = 0; t < seg[4 * s + 1]; t += CELL) {
				const int32_t left = seg[4 * s + 1] - t;
				f(c, &(Chunk){h, seg[4 * s] + t, left < CELL ? left : CELL});
			}
}

/* q, k or v of row i; which: 0, 1, 2. */
static const float *row_of(const RefCall *c, const Chunk *x, int i, int which)
{
	const Attrs *a = &c->attrs;
	const int64_t nk = a->n_k_heads, key = x->head / (a->n_v_heads / nk);
	return ref_floats(c, "qkv") + (x->first + i) * ref_dim(c, "qkv", 1) +
		(which == 2 ? 2 * nk * a->k_dim + x->head * a->v_dim : (which * nk + key) * a->k_dim);
}

/* The place of n numbers of row i and the chunk's head. */
static float *of_row(const RefCall *c, const Chunk *x, int i, const char *name, int64_t n)
{
	return ref_floats(c, name) + ((x->first + i) * c->attrs.n_v_heads + x->head) * n;
}

static void solve_chunk(const RefCall *c, const Chunk *x)
{
	const Attrs *a = &c->attrs;
	const int64_t nv = a->n_v_heads, dk = a->k_dim, behind = 2 * a->n_k_heads * dk + 2 * nv * a->v_dim;
	const bool has_ba = ref_has(c, "ba");
	double rate[CELL], sum[CELL], q_scale[CELL], k_scale[CELL], rows[CELL][CELL] = {{0}};
	for (int i = 0; i < x->n; i++) {
		const float *b = ref_floats(c, has_ba ? "ba" : "x") +
			(x->first + i) * ref_dim(c, has_ba ? "ba" : "x", 1) + (has_ba ? 0 : behind) + x->head;
		const float *q = row_of(c, x, i, 0), *k = row_of(c, x, i, 1);
		rate[i] = 1 / (1 + exp(-(double)b[0]));
		sum[i] = (i ? sum[i - 1] : 0) -
			exp(per_head(c, "a_log", x->head)) * softplus((double)b[nv] + per_head(c, "dt_bias", x->head));
		q_scale[i] = 1 / sqrt((ref_dot(q, q, dk) + 1e-6) * (double)dk);
		k_scale[i] = 1 / sqrt(ref_dot(k, k, dk) + 1e-6);
	}
	for (int i = 0; i < x->n; i++) {
		float *solved = of_row(c, x, i, "solved", CELL), *scores = of_row(c, x, i, "scores", CELL);
		float *f = of_row(c, x, i, "factors", 4);
		memset(solved, 0, CELL * sizeof *solved);
		memset(scores, 0, CELL * sizeof *scores);
		for (int j = 0; j <= i; j++) {
			const double decay = exp(sum[i] - sum[j]) * k_scale[j];
			const float *k = row_of(c, x, j, 1);
			const double of = ref_dot(row_of(c, x, i, 1), k, dk) * k_scale[i] * rate[i] * decay;
			scores[j] = (float)(ref_dot(row_of(c, x, i, 0), k, dk) * q_scale[i] * decay);
			for (int m = 0; j < i && m <= j; m++)
				rows[i][m] -= of * rows[j][m];
		}
		rows[i][i] = rate[i];
		for (int j = 0; j <= i; j++)
			solved[j] = (float)rows[i][j];
		f[0] = (float)(exp(sum[i]) * k_scale[i]);
		f[1] = (float)(exp(sum[i]) * q_scale[i]);
		f[2] = (float)k_scale[i];
		f[3] = (float)sum[i];
	}
}

void ref_delta_solve(const RefCall *c) { each_chunk(c, solve_chunk); }

/* Column d of a chunk's values: o without the norm, and the state that follows. */
static void walk_column(const RefCall *c, const Chunk *x, int64_t d, float *state)
{
	const int64_t dk = c->attrs.k_dim, dv = c->attrs.v_dim;
	const double last = of_row(c, x, x->n - 1, "factors", 4)[3];
	double asked[CELL], change[CELL], rest[CELL];
	for (int i = 0; i < x->n; i++) {
		const float *q = row_of(c, x, i, 0), *k = row_of(c, x, i, 1), *f = of_row(c, x, i, "factors", 4);
		const float *solved = of_row(c, x, i, "solved", CELL), *scores = of_row(c, x, i, "scores", CELL);
		double held = 0, o = 0;
		for (int64_t m = 0; m < dk; m++) {
			held += (double)k[m] * state[m * dv + d];
			o += (double)q[m] * state[m * dv + d];
		}
		asked[i] = row_of(c, x, i, 2)[d] - f[0] * held;
		change[i] = 0;
		for (int j = 0; j <= i; j++)
			change[i] += solved[j] * asked[j];
		o *= f[1];
		for (int j = 0; j <= i; j++)
			o += scores[j] * change[j];
		of_row(c, x, i, "y", dv)[d] = (float)o;
		rest[i] = f[2] * exp(last - f[3]) * change[i];
	}
	for (int64_t m = 0; m < dk; m++) {
		double next = exp(last) * state[m * dv + d];
		for (int i = 0; i < x->n; i++)
			next += row_of(c, x, i, 1)[m] * rest[i];
		state[m * dv + d] = (float)next;
	}
}

static void walk_chunk(const RefCall *c, const Chunk *x)
{
	const Attrs *a = &c->attrs;
	const int64_t dv = a->v_dim, n = a->k_dim * dv, z_at = ref_dim(c, "qkv", 1) + x->head * dv;
	float *state = ref_floats(c, "delta") + (ref_ints(c, "row_slot")[x->first] * a->n_v_heads + x->head) * n;
	for (int64_t d = 0; d < dv; d++)
		walk_column(c, x, d, state);
	round_state(c, state, n);
	for (int i = 0; i < x->n; i++) {
		float *y = of_row(c, x, i, "y", dv);
		const float *z = ref_floats(c, "x") + (x->first + i) * ref_dim(c, "x", 1) + z_at;
		const double scale = 1 / sqrt(ref_dot(y, y, dv) / (double)dv + (double)a->eps);
		for (int64_t d = 0; d < dv; d++)
			y[d] = (float)(y[d] * scale * per_head(c, "norm", d) * silu((double)z[d]));
	}
}

void ref_delta_walk(const RefCall *c) { each_chunk(c, walk_chunk); }

/* Versions ------------------------------------------------------------------------------------------------
 *
 * A verify step keeps the state after each row of a slot: version j of its row j, so that the last accepted is found
 * again by its number. The slot's version, which the first row reads, may be one that the step writes itself: it goes
 * through the scratch. */

/* The place of n elements from `at` on in version j of a slot; NULL when there is none. */
static float *version(const RefCall *c, const char *name, const char *later, int slot, int64_t j, int64_t at)
{
	const int64_t n = ref_dim(c, name, 1), more = ref_dim(c, later, 1);
	if (j == 0)
		return ref_floats(c, name) + slot * n + at;
	return j < 0 || j > more ? NULL : ref_floats(c, later) + ((int64_t)slot * more + j - 1) * n + at;
}

/* Puts n elements of the slot's version into `held` for its first row; returns which of the slot's rows t is. */
static int64_t begin_row(const RefCall *c, const char *name, const char *later, int64_t t, int slot, int64_t at,
	int64_t n, float *held)
{
	int64_t j = 0;
	while (j < t && ref_ints(c, "row_slot")[t - 1 - j] == slot)
		j++;
	if (j == 0) {
		const float *from = version(c, name, later, slot, ref_ints(c, "slot_version")[slot], at);
		memcpy(held, from ? from : version(c, name, later, slot, 0, at), (size_t)n * sizeof *held);
	}
	return j;
}

static void end_row(const RefCall *c, const char *name, const char *later, int64_t j, int slot, int64_t at, int64_t n,
	const float *held)
{
	float *to = version(c, name, later, slot, j, at);
	if (to)
		memcpy(to, held, (size_t)n * sizeof *held);
}

void ref_conv_verify(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), n = ref_dim(c, "conv", 1);
	float *held = ref_take(c, sizeof(float) * (size_t)n); /* a slot's version */
	for (int64_t t = 0; t < rows && held; t++) {
		float *y = ref_floats(c, "y") + t * cols;
		const int slot = ref_row_slot(c, t);
		if (slot < 0) {
			memset(y, 0, (size_t)cols * sizeof *y);
			continue;
		}
		const int64_t j = begin_row(c, "conv", "conv_later", t, slot, 0, n, held);
		convolve(c, ref_floats(c, "x") + t * cols, held, y);
		end_row(c, "conv", "conv_later", j, slot, 0, n, held);
	}
}

/* Value heads part, part + parts, ... */
void ref_delta_verify(const RefCall *c)
{
	const Attrs *a = &c->attrs;
	const int64_t rows = ref_dim(c, "qkv", 0), nv = a->n_v_heads, dv = a->v_dim, n = a->k_dim * dv;
	float *held = ref_take(c, sizeof(float) * (size_t)n);
	for (int64_t h = c->part; h < nv && held; h += c->parts ? c->parts : 1)
		for (int64_t t = 0; t < rows; t++) {
			float *o = ref_floats(c, "o") + (t * nv + h) * dv;
			const int slot = ref_row_slot(c, t);
			if (slot < 0) {
				memset(o, 0, (size_t)dv * sizeof *o);
				continue;
			}
			const int64_t j = begin_row(c, "delta", "delta_later", t, slot, h * n, n, held);
			advance_row(c, h, t, held, o);
			round_state(c, held, n);
			end_row(c, "delta", "delta_later", j, slot, h * n, n, held);
		}
}

void ref_gated_norm(const RefCall *c)
{
	const int64_t hdim = c->attrs.head_dim, all = ref_dim(c, "x", 0) * ref_dim(c, "x", 1);
	const float *x = ref_floats(c, "x"), *z = ref_floats(c, "z");
	float *y = ref_floats(c, "y");
	for (int64_t at = 0; at < all; at += hdim) {
		const double scale = 1 / sqrt(ref_dot(x + at, x + at, hdim) / (double)hdim + (double)c->attrs.eps);
		for (int64_t i = 0; i < hdim; i++)
			y[at + i] = (float)(x[at + i] * scale * per_head(c, "w", i) * silu((double)z[at + i]));
	}
}

void ref_zero_slots(const RefCall *c)
{
	const int64_t slots = ref_dim(c, "state", 0), n = ref_dim(c, "state", 1);
	for (int64_t s = 0; s < slots; s++)
		if (ref_ints(c, "acquire")[s] == 1)
			memset(ref_floats(c, "state") + s * n, 0, (size_t)n * sizeof(float));
}
