/* ref_ops.c - the ops that work on rows: norms, products, rope, element-wise; and the table of all.
 *
 * Every function reads like its formula in artifacts/ops.h. Speed is left to two facts. A product
 * of two float32 values is exact in float64, so only additions round and a compiler may fuse or
 * vectorise without changing a bit; and `linear`, where all the time goes, converts a stretch of
 * weights once for a tile of rows, so that raw bf16 weights are used in place.
 */
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

enum {
	LANES = 8, /* partial sums of a dot product */
	STRETCH = 512, /* elements of a weight row converted at a time; multiple of LANES */
	TILE = 16, /* rows that share a converted stretch */
	SCALES = 32, /* that are converted at a time */
};
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

const RefOperand *ref_arg(const RefCall *c, const char *name)
{
	return &c->operand[op_operand(c->op, name)];
}

/* Operands in other element types ------------------------------------------------------------ */

/* Of bf16, which is most of what is ever read, several at a time. Checkpoint files align nothing, hence the copies. */
void ref_convert(const RefOperand *from, int64_t first, int64_t n, float *out)
{
	int64_t i = 0;
	for (; from->dtype == DT_bf16 && i + LANES <= n; i += LANES) { /* upper halves of f32 */
		Halves h;
		memcpy(&h, (const char *)from->data + 2 * (first + i), sizeof h);
		Words w = __builtin_convertvector(h, Words) << 16;
		memcpy(out + i, &w, sizeof w);
	}
	numbers_convert(from->dtype, from->data, first + i, n - i, out + i);
}

/* Sums of products ------------------------------------------------------------ */

/* Adds the products of a[0..n) and b[0..n) to the lanes, element i to lane i % LANES. */
static void add_products(const float *a, const float *b, int64_t n, Doubles *lanes)
{
	Doubles sum = *lanes;
	int64_t whole = n - n % LANES;
	for (int64_t i = 0; i < whole; i += LANES) {
		Floats x, y;
		memcpy(&x, a + i, sizeof x);
		memcpy(&y, b + i, sizeof y);
		sum += __builtin_convertvector(x, Doubles) * __builtin_convertvector(y, Doubles);
	}
	for (int64_t i = whole; i < n; i++)
		sum[i - whole] += (double)a[i] * (double)b[i];
	*lanes = sum;
}

static double total(const Doubles *lanes)
{
	const Doubles s = *lanes;
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

double ref_dot(const float *a, const float *b, int64_t n)
{
	Doubles lanes = {0};
	add_products(a, b, n, &lanes);
	return total(&lanes);
}

/* x = (x - zero) * scale, of blocks that have one of each; the first one has `first` elements left. */
static void scale_blocks(float *x, int64_t n, int64_t first, int64_t block, const float *scale, const float *zero)
{
	for (int64_t i = 0, end = first; i < n; end += block, scale++, zero++) {
		const int64_t next = end < n ? end : n;
		for (; i + LANES <= next; i += LANES) {
			Floats some;
			memcpy(&some, x + i, sizeof some);
			some = (some - *zero) * *scale;
			memcpy(x + i, &some, sizeof some);
		}
		for (; i < next; i++)
			x[i] = (x[i] - *zero) * *scale;
	}
}

void ref_unpack(const RefCodes *x, int64_t row, int64_t scale_row, int64_t k, int64_t count, float *out)
{
	float scales[SCALES], zeros[SCALES] = {0};
	ref_convert(&x->w, row * x->cols + k, count, out);
	for (int64_t i = 0; x->scale.data && i < count;) {
		const int64_t block = (k + i) / x->block_k, last = (k + count - 1) / x->block_k;
		const int64_t n = last - block < SCALES ? last - block + 1 : SCALES, end = (block + n) * x->block_k - k;
		const int64_t at = scale_row * x->scale.shape[x->scale.n_dims - 1] + block;
		const int64_t some = (end < count ? end : count) - i;
		ref_convert(&x->scale, at, n, scales);
		for (int64_t z = 0; x->scale.dtype == DT_f32z && z < n; z++) {
			uint32_t both;
			memcpy(&both, (const char *)x->scale.data + 4 * (at + z), sizeof both);
			zeros[z] = (float)numbers_zero(both);
		}
		scale_blocks(out + i, some, (block + 1) * x->block_k - k - i, x->block_k, scales, zeros);
		i += some;
	}
	if (x->row_scale.data)
		scale_blocks(out, count, count, count, &(float){ref_element(&x->row_scale, row)}, &(float){0});
}

/* Output n of `count` rows: y[t,n] = sum_k x[t,k] w[n,k] + bias, count <= TILE. */
static void linear_tile(const float *x, const RefCodes *w, int64_t scale_row, double bias, int64_t n, int64_t count,
	float *y)
{
	int64_t outputs = w->w.shape[0], cols = w->cols;
	Doubles lanes[TILE] = {{0}};
	float weights[STRETCH];

	for (int64_t k = 0; k < cols; k += STRETCH) {
		int64_t length = cols - k < STRETCH ? cols - k : STRETCH;
		ref_unpack(w, n, scale_row, k, length, weights);
		for (int64_t t = 0; t < count; t++)
			add_products(x + t * cols + k, weights, length, &lanes[t]);
	}
	for (int64_t t = 0; t < count; t++)
		y[t * outputs + n] = (float)(total(&lanes[t]) + bias);
}

void ref_linear(const RefCall *c)
{
	const RefOperand *bias = ref_arg(c, "bias");
	const RefCodes w = {*ref_arg(c, "w"), *ref_arg(c, "w_scale"), *ref_arg(c, "w_row_scale"), ref_dim(c, "w", 1),
		c->attrs.block_k};
	int64_t rows = ref_dim(c, "x", 0), cols = w.cols, outputs = ref_dim(c, "w", 0);
	int64_t parts = c->parts ? c->parts : 1;
	const float *x = ref_floats(c, "x");
	float *y = ref_floats(c, "y");

	for (int64_t n = outputs * c->part / parts; n < outputs * (c->part + 1) / parts; n++) {
		double b = bias->data ? (double)ref_element(bias, n) : 0;
		const int64_t scale_row = w.scale.data ? n / c->attrs.block_n : 0;
		for (int64_t t = 0; t < rows; t += TILE)
			linear_tile(x + t * cols, &w, scale_row, b, n, rows - t < TILE ? rows - t : TILE, y + t * outputs);
	}
}

/* Rows ------------------------------------------------------------ */

static void embed(const RefCall *c, const int32_t *row_token)
{
	const RefOperand *table = ref_arg(c, "table");
	float *x = ref_floats(c, "x");
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);

	for (int64_t t = 0; t < rows; t++)
		ref_convert(table, row_token[t] * cols, cols, x + t * cols);
}

void ref_embed(const RefCall *c) { embed(c, ref_ints(c, "row_token")); }
void ref_embed_next_token(const RefCall *c) { embed(c, ref_ints(c, "row_next")); }

static void norm(const Attrs *a, const float *x, const RefOperand *w, int64_t n, float *y)
{
	double scale = 1 / sqrt(ref_dot(x, x, n) / (double)n + (double)a->eps);
	for (int64_t k = 0; k < n; k++)
		y[k] = (float)(x[k] * scale * ((double)ref_element(w, k) + (a->norm_one ? 1 : 0)));
}

void ref_rmsnorm(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++)
		norm(&c->attrs, ref_floats(c, "x") + t * cols, ref_arg(c, "w"), cols,
			ref_floats(c, "y") + t * cols);
}

void ref_head_norm(const RefCall *c)
{
	int64_t hdim = c->attrs.head_dim, all = ref_dim(c, "x", 0) * ref_dim(c, "x", 1);
	for (int64_t i = 0; i < all; i += hdim)
		norm(&c->attrs, ref_floats(c, "x") + i, ref_arg(c, "w"), hdim, ref_floats(c, "y") + i);
}

/* The angle is the float32 product that checkpoints are trained with; its sine and cosine are then
 * exact to float32. At position 10^6 the product's rounding alone is 0.03 radians: it is part of
 * the meaning. */
static void turn(const RefCall *c, float position, const float *x, float *y)
{
	const RefOperand *inv_freq = ref_arg(c, "inv_freq");
	const bool neighbours = c->attrs.neighbours;
	const int half = c->attrs.rotary_dim / 2, step = neighbours ? 2 : 1, apart = neighbours ? 1 : half;

	for (int i = 0; i < half; i++) {
		float angle = position * ref_element(inv_freq, i);
		double cosine = (float)(cos((double)angle) * (double)c->attrs.rope_factor);
		double sine = (float)(sin((double)angle) * (double)c->attrs.rope_factor);
		const int first = i * step, second = first + apart;
		double a = x[first], b = x[second];
		y[first] = (float)(a * cosine - b * sine);
		y[second] = (float)(b * cosine + a * sine);
	}
	for (int i = 2 * half; i < c->attrs.head_dim; i++)
		y[i] = x[i];
}

/* Of each power of two in the head's size: sums and differences of neighbours, of elements two apart, and so on. */
void ref_rotate(float *x, int hdim)
{
	for (int at = 0, n; at < hdim; at += n) {
		for (n = 1; 2 * n <= hdim - at;)
			n *= 2;
		for (int step = 1; step < n; step *= 2)
			for (int first = at; first < at + n; first += 2 * step)
				for (int i = first; i < first + step; i++) {
					float a = x[i], b = x[i + step];
					x[i] = a + b;
					x[i + step] = a - b;
				}
		for (int i = at; i < at + n; i++)
			x[i] *= (float)(1 / sqrt(n));
	}
}

void ref_rope(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), hdim = c->attrs.head_dim;
	const int32_t *row_pos = ref_ints(c, "row_pos");

	for (int64_t t = 0; t < rows; t++)
		for (int64_t at = t * cols; at < (t + 1) * cols; at += hdim)
			turn(c, (float)row_pos[t], ref_floats(c, "x") + at, ref_floats(c, "y") + at);
	for (int64_t at = 0; c->attrs.rotate && at < rows * cols; at += hdim)
		ref_rotate(ref_floats(c, "y") + at, (int)hdim);
}

void ref_add(const RefCall *c)
{
	const float *x = ref_floats(c, "x"), *y = ref_floats(c, "y");
	float *z = ref_floats(c, "z");
	int64_t n = ref_dim(c, "z", 0) * ref_dim(c, "z", 1);
	for (int64_t i = 0; i < n; i++)
		z[i] = x[i] + y[i];
}

void ref_swiglu(const RefCall *c)
{
	const float *gate = ref_floats(c, "gate"), *up = ref_floats(c, "up");
	float *y = ref_floats(c, "y");
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)(gate[i] / (1 + exp(-(double)gate[i])) * up[i]);
}

double ref_gelu(double x)
{
	const double root = 0.79788456080286535588; /* of 2 / pi */
	return x / 2 * (1 + tanh(root * (x + 0.044715 * x * x * x)));
}

void ref_swiglu_limited(const RefCall *c)
{
	const float *gate = ref_floats(c, "gate"), *up = ref_floats(c, "up");
	float *y = ref_floats(c, "y");
	const double limit = (double)c->attrs.gate_limit;
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)(ref_within(gate[i] / (1 + exp(-(double)gate[i])), -INFINITY, limit) *
			ref_within((double)up[i], -limit, limit));
}

void ref_scale_rows(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t i = 0; i < rows * cols; i++)
		ref_floats(c, "y")[i] = ref_floats(c, "share")[i / cols] * ref_floats(c, "x")[i];
}

void ref_relu_squared(const RefCall *c)
{
	const float *x = ref_floats(c, "x");
	float *y = ref_floats(c, "y");
	const int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] < 0 ? 0 : x[i] * x[i]; /* NaN stays NaN */
}

void ref_geglu(const RefCall *c)
{
	const float *gate = ref_floats(c, "gate"), *up = ref_floats(c, "up");
	float *y = ref_floats(c, "y");
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)(ref_gelu((double)gate[i]) * up[i]);
}

void ref_scale(const RefCall *c)
{
	const float *x = ref_floats(c, "x");
	float *y = ref_floats(c, "y");
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = c->attrs.factor * x[i];
}

void ref_scale_by(const RefCall *c)
{
	const float *x = ref_floats(c, "x"), factor = ref_element(ref_arg(c, "w"), 0);
	float *y = ref_floats(c, "y");
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = factor * x[i];
}

void ref_columns(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "y", 0), n = ref_dim(c, "y", 1), of = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++)
		memcpy(ref_floats(c, "y") + t * n, ref_floats(c, "x") + t * of + c->attrs.first, (size_t)n * sizeof(float));
}

void ref_soft_cap(const RefCall *c)
{
	const float *x = ref_floats(c, "x");
	float *y = ref_floats(c, "y");
	int64_t n = ref_dim(c, "y", 0) * ref_dim(c, "y", 1);
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)((double)c->attrs.cap * tanh((double)x[i] / (double)c->attrs.cap));
}

void ref_gather(const RefCall *c)
{
	const int32_t *out_row = ref_ints(c, "out_row");
	int64_t outs = ref_dim(c, "y", 0), cols = ref_dim(c, "y", 1);
	for (int64_t o = 0; o < outs; o++) {
		float *y = ref_floats(c, "y") + o * cols;
		if (out_row[o] < 0)
			memset(y, 0, (size_t)cols * sizeof *y);
		else
			memcpy(y, ref_floats(c, "x") + out_row[o] * cols, (size_t)cols * sizeof *y);
	}
}

void ref_read_probe(const RefCall *c)
{
	const int64_t parts = ref_dim(c, "part", 0), words = ref_dim(c, "x", 0) / parts;
	for (int64_t p = 0; p < parts; p++) {
		int32_t all = 0;
		for (int64_t i = 0; i < words; i++)
			all ^= ref_ints(c, "x")[p * words + i];
		ref_ints(c, "part")[p] = all;
	}
}

/* All ------------------------------------------------------------ */

static RefFn *const functions[OP_COUNT] = {
#define OP(name, ...) [OP_##name] = ref_##name,
#include "artifacts/ops.h"
#undef OP
};

void *ref_take(const RefCall *c, size_t bytes)
{
	void *at = c->room->runs && bytes ? (char *)c->scratch + c->room->used : NULL;
	c->room->used += (bytes + 15) / 16 * 16;
	return at;
}

size_t ref_scratch_bytes(const RefCall *call)
{
	RefRoom room = {0, false};
	RefCall c = *call;
	c.room = &room;
	if (op_table[c.op].traits & (OP_FUSED | OP_SCRATCH))
		functions[c.op](&c);
	return room.used;
}

void ref_op(const RefCall *call)
{
	RefRoom room = {0, true};
	RefCall c = *call;
	c.room = &room;
	if (c.part == 0 || op_table[c.op].traits & OP_PARTS)
		functions[c.op](&c);
}
