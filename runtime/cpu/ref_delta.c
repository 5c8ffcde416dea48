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
