/* requant.c - quantises weights while they are written, where [quant] or speculate.head of MODEL.toml asks for it.
 *
 * A product's weight [rows, cols] in BF16, F16 or F32 becomes codes, block scales and row scales, as products.c lays
 * them out. The source is read in bands of whole rows, as many as a block has, and nothing larger than a band is ever
 * held, but for INT4, which other tools have quantised (int4.c). The formats that have a value for the whole tensor
 * (FP8 by tensor, NVFP4) need its largest magnitude first, so that the source is read once more for it; and once for
 * each of the tensors that are made.
 *
 *   FP8      scale = largest magnitude of the block, row or tensor / 448, in f32; 1 where all are zero
 *   NVFP4    step = largest of the tensor / (6 * 448); block scale = e4m3(largest of the block / 6 / step), at
 *            least 2^-9
 *   MXFP4    scale = 2^(floor(log2(largest of the block)) - 2): what exceeds 6 of these is cut to 6
 *
 * Where [quant] asks for bf16 it is the other way round: decode.c.
 *
 * Matrices of numbers that a checkpoint has transposed are turned, one at a time.
 *
 * Of a head that drafts some ids alone, the rows of these are taken; if in no format, as they are.
 *
 * A code is the one nearest to x / scale, ties to even, the quotient rounded once to f32. So equal files give equal
 * bytes on every machine.
 */
#include "artifacts/numbers.h"
#include "compiler/graph/decode.h"
#include "compiler/graph/int4.h"

#include <math.h>
#include <string.h>

enum { BAND_ROWS = 128, STRIPE = 64 };

struct Requant {
	Arena arena;                 /* of the buffers below */
	const MadeProduct *product;  /* whose band is there, NULL = none */
	int64_t band;
	bool has_codes;              /* not only the scales */
	float top;                   /* largest magnitude of the product's tensor, where its format needs it */
	uint8_t *raw, *codes, *scales;
	int whole;                   /* weight that is there whole in `codes`, of INT4 */
	float *x, *row_scales;
	Decoder *decoder;            /* of products that are decoded instead */
};

static int64_t band_rows(const MadeProduct *p) { return p->block_n > 1 ? p->block_n : BAND_ROWS; }
static int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Requant *requant_new(Arena *a)
{
	Requant *r = arena_alloc(a, sizeof *r);
	*r = (Requant){.decoder = decoder_new(a)};
	return r;
}

void requant_release(Requant *r)
{
	arena_release(&r->arena);
	decoder_release(r->decoder);
	*r = (Requant){.decoder = r->decoder};
}

static float largest(const float *x, int64_t rows, int64_t stride, int64_t cols)
{
	float top = 0;
	for (int64_t n = 0; n < rows; n++)
		for (int64_t k = 0; k < cols; k++)
			top = fmaxf(top, fabsf(x[n * stride + k]));
	return top;
}

/* Where row n of the product begins in its source. */
static int64_t source_at(const MadeProduct *p, int64_t n)
{
	return dtype_span(p->source.dtype, (p->ids ? p->ids[n] : n) * p->cols);
}

/* Bytes [at, at + n) of a product whose rows are the source's as they are. */
static bool copy_rows(const MadeProduct *p, int64_t at, uint8_t *to, size_t n, const SourceReader *source)
{
	const int64_t row_bytes = dtype_span(p->source.dtype, p->cols);
	while (n) {
		const int64_t skip = at % row_bytes, left = row_bytes - skip;
		const size_t part = (int64_t)n < left ? n : (size_t)left;
		if (!source->read(source->ctx, &p->source, source_at(p, at / row_bytes) + skip, to, part))
			return false;
		to += part;
		at += (int64_t)part;
		n -= part;
	}
	return true;
}

/* A matrix [cols, rows] of elements of that size as [rows, cols]. */
static void turn(const uint8_t *from, uint8_t *to, int64_t rows, int64_t cols, int64_t size)
{
	for (int64_t first = 0; first < cols; first += STRIPE)
		for (int64_t n = 0; n < rows; n++)
			for (int64_t k = first; k < first + STRIPE && k < cols; k++)
				memcpy(to + (n * cols + k) * size, from + (k * rows + n) * size, (size_t)size);
}

/* Bytes [at, at + n) of a product whose rows are columns of the source; one matrix is there at a time, in r->codes. */
static bool copy_turned(Requant *r, const MadeProduct *p, int64_t at, uint8_t *to, size_t n, const SourceReader *source)
{
	const int64_t rows = p->rows / p->turned, size = dtype_bytes(p->source.dtype), bytes = rows * p->cols * size;
	while (n) {
		const int64_t matrix = at / bytes, skip = at % bytes;
		const size_t part = (int64_t)n < bytes - skip ? n : (size_t)(bytes - skip);
		if (r->product != p || r->band != matrix) {
			requant_release(r);
			r->raw = arena_alloc(&r->arena, (size_t)bytes);
			r->codes = arena_alloc(&r->arena, (size_t)bytes);
			if (!source->read(source->ctx, &p->source, matrix * bytes, r->raw, (size_t)bytes))
				return false;
			turn(r->raw, r->codes, rows, p->cols, size);
			r->product = p;
			r->band = matrix;
		}
		memcpy(to, r->codes + skip, part);
		to += part;
		at += (int64_t)part;
		n -= part;
	}
	return true;
}

/* Rows [first, first + n) of the product as f32, into r->x. False after having said why not. */
static bool read_rows(Compile *c, Requant *r, const MadeProduct *p, int64_t first, int64_t n,
	const SourceReader *source)
{
	const Dtype dtype = p->source.dtype;
	const int64_t count = n * p->cols;
	for (int64_t i = 0, run; i < n; i += run) { /* as many at once as follow each other in the source */
		for (run = 1; i + run < n && (!p->ids || p->ids[first + i + run] == p->ids[first + i] + run);)
			run++;
		if (!source->read(source->ctx, &p->source, source_at(p, first + i), r->raw + dtype_span(dtype, i * p->cols),
			(size_t)dtype_span(dtype, run * p->cols)))
			return false;
	}
	numbers_convert(dtype, r->raw, 0, count, r->x);
	for (int64_t i = 0; i < count; i++)
		if (!isfinite(r->x[i]))
			return fail_at(&c->diags, A0606, weight_loc(c, &p->source), "tensor %s: element %lld is %g, which has no "
				"code: it cannot be quantized", p->source.name,
				(long long)((p->ids ? p->ids[first + i / p->cols] : first + i / p->cols) * p->cols + i % p->cols),
				(double)r->x[i]);
	return true;
}

/* Rooms for a product's bands, and what its format asks about the tensor. */
static bool begin(Compile *c, Requant *r, const MadeProduct *p, const SourceReader *source)
{
	requant_release(r);
	const int64_t rows = band_rows(p), count = rows * p->cols;
	r->raw = arena_alloc(&r->arena, (size_t)dtype_span(p->source.dtype, count));
	r->x = ARENA_ARRAY(&r->arena, float, count);
	r->codes = arena_alloc(&r->arena, (size_t)count);
	r->scales = arena_alloc(&r->arena, (size_t)count * sizeof(float));
	r->row_scales = ARENA_ARRAY(&r->arena, float, rows);
	for (int64_t n = 0; n < p->rows && (p->format == FORMAT_FP8_TENSOR || p->format == FORMAT_NVFP4); n += rows) {
		int64_t here = p->rows - n < rows ? p->rows - n : rows;
		if (!read_rows(c, r, p, n, here, source))
			return false;
		r->top = fmaxf(r->top, largest(r->x, here, p->cols, p->cols));
	}
	r->product = p;
	r->band = -1;
	return true;
}

/* top / divisor as a scale: a positive number also where nothing is to be scaled. */
static float scale_of(float top, float divisor) { return top > 0 ? fmaxf(top / divisor, 0x1p-126f) : 1; }

/* Stores what scales block `block` of the band, whose first row is `row`; returns it as one number. */
static double store_scale(Requant *r, const MadeProduct *p, int64_t block, int64_t row, float top)
{
	const float step = scale_of(r->top, p->format == FORMAT_NVFP4 ? 6 * 448 : 448);
	float value = scale_of(top, 448);
	switch (p->format) {
	case FORMAT_FP8_BLOCK:
		memcpy(r->scales + block * (int64_t)sizeof value, &value, sizeof value);
		return (double)value;
	case FORMAT_FP8_CHANNEL:
		return (double)(r->row_scales[row] = value);
	case FORMAT_FP8_TENSOR:
		return (double)(r->row_scales[row] = step);
	case FORMAT_NVFP4: {
		uint8_t code = numbers_code(DT_e4m3, (float)((double)top / 6 / (double)step));
		r->scales[block] = code ? code : 1;
		numbers_convert(DT_e4m3, r->scales, block, 1, &value);
		r->row_scales[row] = step;
		return (double)value * (double)step;
	}
	default: { /* MXFP4 */
		int exponent = -127;
		if (top > 0)
			(void)frexpf(top, &exponent); /* top = m 2^exponent with m from 1/2 to 1 */
		exponent = exponent - 1 - 2;
		r->scales[block] = (uint8_t)(exponent < -127 ? 0 : exponent + 127);
		return ldexp(1, r->scales[block] - 127);
	}
	}
}

static void store_codes(Requant *r, const MadeProduct *p, const float *x, int64_t at, int64_t n, double scale)
{
	if (p->format < FORMAT_NVFP4) {
		for (int64_t i = 0; i < n; i++)
			r->codes[at + i] = numbers_code(DT_e4m3, (float)((double)x[i] / scale));
		return;
	}
	for (int64_t i = 0; i < n; i += 2) { /* two a byte, the first in its low half; blocks are of even size */
		unsigned low = numbers_code(DT_e2m1, (float)((double)x[i] / scale));
		unsigned high = numbers_code(DT_e2m1, (float)((double)x[i + 1] / scale));
		r->codes[(at + i) / 2] = (uint8_t)(low | high << 4);
	}
}

static bool make_band(Compile *c, Requant *r, const MadeProduct *p, int64_t band, bool with_codes,
	const SourceReader *source)
{
	const int64_t first = band * band_rows(p), left = p->rows - first, rows = left < band_rows(p) ? left : band_rows(p);
	const int64_t block_n = p->block_n ? p->block_n : 1, block_k = p->block_k ? p->block_k : p->cols;
	r->band = -1;
	if (!read_rows(c, r, p, first, rows, source))
		return false;
	int64_t block = 0;
	for (int64_t n = 0; n < rows; n += block_n)
		for (int64_t k = 0; k < p->cols; k += block_k, block++) {
			const int64_t here_n = rows - n < block_n ? rows - n : block_n;
			const int64_t here_k = p->cols - k < block_k ? p->cols - k : block_k;
			const float *x = r->x + n * p->cols + k;
			double scale = store_scale(r, p, block, n, largest(x, here_n, p->cols, here_k));
			for (int64_t i = 0; i < here_n && with_codes; i++)
				store_codes(r, p, x + i * p->cols, (n + i) * p->cols + k, here_k, scale);
		}
	r->band = band;
	r->has_codes = with_codes;
	return true;
}

/* Codes or scales of INT4: their layout turns columns into rows, so that they are made at once. */
static bool copy_int4(Compile *c, Requant *r, const MadeProduct *p, int w, int64_t at, void *dst, size_t n,
	const SourceReader *source)
{
	if (r->product != p || r->whole != w) {
		requant_release(r);
		r->codes = w == p->codes ? int4_codes(&r->arena, p, source) : int4_scales(c, &r->arena, p, source);
		if (!r->codes)
			return false;
		r->product = p;
		r->whole = w;
	}
	memcpy(dst, r->codes + at, n);
	return true;
}

bool requant_bytes(Compile *c, Requant *r, const MadeProduct *p, int w, int64_t at, void *dst, size_t n,
	const SourceReader *source)
{
	if (p->n_pieces)
		return decode_bytes(c, r->decoder, p, at, dst, n, source);
	if (p->format == FORMAT_INT4)
		return copy_int4(c, r, p, w, at, dst, n, source);
	const Weight *made = &c->graph.weights[w];
	const bool is_codes = w == p->codes;
	const int64_t per_row = p->block_n && w == p->scale ? div_up(p->cols, p->block_k) : is_codes ? p->cols : 1;
	const int64_t rows_of_scale = p->block_n && w == p->scale ? p->block_n : 1;
	const int64_t band_bytes = dtype_span(made->dtype, div_up(band_rows(p), rows_of_scale) * per_row);
	if (p->turned)
		return copy_turned(r, p, at, dst, n, source);
	if (p->format == FORMAT_PLAIN)
		return copy_rows(p, at, dst, n, source);
	if (r->product != p && !begin(c, r, p, source))
		return false;
	const uint8_t *from = is_codes ? r->codes : w == p->scale ? r->scales : (const uint8_t *)r->row_scales;
	for (uint8_t *to = dst; n;) {
		const int64_t band = at / band_bytes, skip = at % band_bytes;
		if ((r->band != band || (is_codes && !r->has_codes)) && !make_band(c, r, p, band, is_codes, source))
			return false;
		const size_t part = (int64_t)n < band_bytes - skip ? n : (size_t)(band_bytes - skip);
		memcpy(to, from + skip, part);
		to += part;
		at += (int64_t)part;
		n -= part;
	}
	return true;
}
