/* ref_experts.c - rows that choose their experts, and what the experts make of them.
 *
 * The router's probabilities are a softmax in float64 over the float32 logits, so a choice is decided by these alone;
 * equal ones go to the lowest id. An expert is a SwiGLU of three products. Its codes are converted a row at a time,
 * which is all the scratch there is, beside the hidden row.
 */
#include "runtime/cpu/ref_call.h"

#include <math.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void ref_sigmoid_gate(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), gates = ref_dim(c, "gate", 1);
	const float *x = ref_floats(c, "x"), *gate = ref_floats(c, "gate");
	float *y = ref_floats(c, "y");
	for (int64_t t = 0; t < rows; t++)
		for (int64_t n = 0; n < cols; n++)
			y[t * cols + n] = (float)(x[t * cols + n] * sigmoid((double)gate[t * gates + n / (cols / gates)]));
}

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

/* Matrices [E, n, k] of experts with their scales. */
typedef struct Matrices {
	RefOperand w, scale, row_scale; /* data NULL = absent */
	int64_t n, k;                   /* of one expert */
	int64_t piece, block_n, block_k; /* rows of a piece that has blocks of its own: gate and up are two */
} Matrices;

static Matrices matrices(const RefCall *c, const char *w, const char *scale, const char *row_scale, int pieces)
{
	const RefOperand *x = ref_arg(c, w);
	return (Matrices){*x, *ref_arg(c, scale), *ref_arg(c, row_scale), x->shape[1], x->shape[2], x->shape[1] / pieces,
		c->attrs.block_n, c->attrs.block_k};
}

static float scale_at(const RefOperand *from, int64_t i)
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
		for (int64_t k = 0; k < m->k; k++)
			room[k] *= scale_at(&m->scale, (e * m->scale.shape[1] + row) * m->scale.shape[2] + k / m->block_k);
	}
	for (int64_t k = 0; m->row_scale.data && k < m->k; k++)
		room[k] *= scale_at(&m->row_scale, e * m->n + n);
	return ref_dot(x, room, m->k);
}

/* Floats: a row of either matrix, the hidden row; then the sums in float64. */
size_t ref_experts_scratch(const RefCall *c)
{
	const size_t k = (size_t)ref_dim(c, "x", 1), n = (size_t)ref_dim(c, "down", 2);
	return sizeof(double) * k + sizeof(float) * (k + 2 * n);
}

/* Rows part, part + parts, ... */
void ref_experts(const RefCall *c)
{
	const Matrices up = matrices(c, "gate_up", "gate_up_scale", "gate_up_row_scale", 2);
	const Matrices down = matrices(c, "down", "down_scale", "down_row_scale", 1);
	const int64_t rows = ref_dim(c, "x", 0), active = c->attrs.n_active, n_experts = up.w.shape[0];
	double *sum = c->scratch;
	float *room = (float *)(sum + up.k), *hidden = room + (up.k > down.k ? up.k : down.k);
	for (int64_t t = c->part; t < rows; t += c->parts ? c->parts : 1) {
		const float *x = ref_floats(c, "x") + t * up.k;
		float *y = ref_floats(c, "y") + t * up.k;
		for (int64_t i = 0; i < up.k; i++)
			sum[i] = 0;
		for (int64_t j = 0; j < active; j++) {
			const int64_t e = ref_ints(c, "expert")[t * active + j];
			if (e < 0 || e >= n_experts) /* of a row that a lying graph made */
				continue;
			for (int64_t n = 0; n < down.k; n++) {
				const double gate = (float)product(&up, e, n, x, room);
				hidden[n] = (float)(gate * sigmoid(gate) * (float)product(&up, e, down.k + n, x, room));
			}
			for (int64_t i = 0; i < up.k; i++)
				sum[i] += (double)ref_floats(c, "share")[t * active + j] * (float)product(&down, e, i, hidden, room);
		}
		for (int64_t i = 0; i < up.k; i++)
			y[i] = (float)sum[i];
	}
}
