/* decode.c - quantised weights as bf16, where [quant] asks for it.
 *
 * An element is its code times its scales, as products.c lists them (NVFP4_OVER divides by the last; INT4 is
 * (code - zero) * scale), and this number, rounded once to bf16, to the nearest, ties to even. The product is made in
 * double, which holds it exactly: codes and block scales have at most 4 significant bits, other scales 24. A quotient
 * of such numbers lies further from the middle of two bf16 than its own rounding, unless it is that middle. So what
 * bf16 can represent comes out exactly, and anything else as the one bf16 that is nearest to what the files mean.
 *
 * Rows are decoded in bands, as many as fit in BAND_BYTES, and a module in INT4 whole, whose layouts turn columns into
 * rows.
 */
#include "compiler/graph/decode.h"
#include "artifacts/numbers.h"
#include "compiler/graph/int4.h"

#include <math.h>
#include <string.h>

enum { BAND_BYTES = 1 << 20 };

struct Decoder {
	Arena arena;                 /* of the band */
	const MadeProduct *product;  /* whose band is there, NULL = none */
	int64_t first, n;            /* its rows */
	uint16_t *rows;
	Arena whole;                 /* of the module in INT4 that was read last */
	const MadeProduct *int4;     /* NULL = none */
	const uint8_t *codes, *scales;
};

Decoder *decoder_new(Arena *a) { return memset(arena_alloc(a, sizeof(Decoder)), 0, sizeof(Decoder)); }

void decoder_release(Decoder *d)
{
	arena_release(&d->arena);
	arena_release(&d->whole);
	*d = (Decoder){.product = NULL};
}

/* Nearest, ties to even; infinity beyond what bf16 has. */
static uint16_t to_bf16(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	const unsigned sign = bits >> 48 & 0x8000, exponent = bits >> 52 & 0x7ff;
	if (exponent > 1023 - 127 && exponent < 1023 + 127) { /* normal in bf16 too, also when it rounds up */
		const uint64_t kept = (bits & 0x7fffffffffffffff) + 0x0fffffffffff + (bits >> 45 & 1);
		return (uint16_t)(sign | ((kept >> 45) - ((1023 - 127) << 7)));
	}
	float narrow; /* subnormal: a multiple of 2^-133; or next to the largest */
	const double step = exponent > 1023 ? 0x1p120 : 0x1p-133;
	uint32_t wide;
	narrow = (float)(nearbyint(x / step) * step);
	memcpy(&wide, &narrow, sizeof wide);
	return (uint16_t)(wide >> 16);
}

/* Graph -------------------------------------------------------------------------------------------------------- */

static Weight weight_of(Compile *c, StTensor *t, Dtype dtype)
{
	t->used_by++;
	return g_stored(c, t, dtype);
}

bool decode_see(Compile *c, const Module *s, int64_t first, int64_t n, DecodedPiece *piece)
{
	if (s->is_turned && s->format == FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, loc_of(c, s->codes), "tensor %s: [quant] asks for bf16, which is not "
			"implemented for %s that is transposed", s->codes->name, s->codes->dtype_text);
	*piece = (DecodedPiece){.format = s->format, .first = first, .n = n, .rows = s->rows, .cols = s->cols,
		.block_n = s->block_n, .block_k = s->block_k, .second = 1,
		.codes = weight_of(c, s->codes, s->format == FORMAT_PLAIN ? s->codes->dtype : format_info[s->format].codes)};
	if (s->format == FORMAT_INT4)
		piece->int4 = memcpy(arena_alloc(&c->arena, sizeof(MadeProduct)), &c->made.at[s->made], sizeof(MadeProduct));
	if (s->scale)
		piece->scale = weight_of(c, s->scale, module_scale_dtype(s->scale));
	if (!s->second)
		return true;
	s->second->used_by++;
	const float *value = module_scales(c, s->second);
	piece->second = value ? *value : 1;
	return value != NULL;
}

/* Bytes -------------------------------------------------------------------------------------------------------- */

static bool read_span(const SourceReader *source, const Weight *w, int64_t first, int64_t n, void *to)
{
	return source->read(source->ctx, w, dtype_span(w->dtype, first), to, (size_t)dtype_span(w->dtype, n));
}

/* Elements [first, first + n) of a tensor as f32, or NULL after having said why not. */
static float *read_floats(Arena *a, const SourceReader *source, const Weight *w, int64_t first, int64_t n, void **raw)
{
	float *x = ARENA_ARRAY(a, float, n + 1);
	*raw = arena_alloc(a, (size_t)dtype_span(w->dtype, n) + 1);
	if (!read_span(source, w, first, n, *raw))
		return NULL;
	numbers_convert(w->dtype, *raw, 0, n, x);
	return x;
}

static bool fail_element(Compile *c, const Weight *w, int64_t i, double value, const char *expected)
{
	return fail_at(&c->diags, A0606, weight_loc(c, w), "tensor %s: element %lld is %g: expected %s", w->name,
		(long long)i, value, expected);
}

/* Rows [first, first + n) of a module whose tensors are ordered by rows. */
static bool decode_rows(Compile *c, Arena *a, const DecodedPiece *p, int64_t first, int64_t n, uint16_t *to,
	const SourceReader *source)
{
	const bool by_block = p->format == FORMAT_FP8_BLOCK || p->format >= FORMAT_NVFP4;
	const int64_t bn = by_block ? p->block_n : 1, bk = by_block ? p->block_k : p->cols, across = (p->cols - 1) / bk + 1;
	const int64_t top = first / bn, count = ((first + n - 1) / bn - top + 1) * across;
	void *raw;
	const float *codes = read_floats(a, source, &p->codes, first * p->cols, n * p->cols, &raw), *scales = NULL;
	if (!codes || (p->scale.file && !(scales = read_floats(a, source, &p->scale, top * across, count, &raw))))
		return false;
	const int64_t bad = scales ? first_bad_scale(p->scale.dtype, raw, count) : -1;
	if (bad >= 0)
		return fail_element(c, &p->scale, top * across + bad, (double)scales[bad], "a positive number");
	for (int64_t i = 0; i < n; i++) {
		const float *row = scales ? scales + ((first + i) / bn - top) * across : NULL;
		for (int64_t k = 0; k < p->cols; k++) {
			const double x = (double)codes[i * p->cols + k] * (row ? (double)row[k / bk] : 1);
			const double value = p->format == FORMAT_NVFP4_OVER ? x / (double)p->second : x * (double)p->second;
			const uint16_t bits = to_bf16(value);
			if (!isfinite(value) || (bits & 0x7fff) == 0x7f80)
				return fail_element(c, &p->codes, (first + i) * p->cols + k, value, "a number that bf16 has");
			*to++ = bits;
		}
	}
	return true;
}

static bool decode_int4(Compile *c, Decoder *d, const DecodedPiece *p, int64_t first, int64_t n, uint16_t *to,
	const SourceReader *source)
{
	const int64_t groups = p->cols / p->int4->block_k;
	if (!d->int4 || strcmp(d->int4->source.name, p->int4->source.name) != 0) {
		arena_release(&d->whole);
		d->int4 = NULL;
		d->codes = int4_codes(&d->whole, p->int4, source);
		d->scales = d->codes ? int4_scales(c, &d->whole, p->int4, source) : NULL;
		if (!d->scales)
			return false;
		d->int4 = p->int4;
	}
	for (int64_t row = first; row < first + n; row++)
		for (int64_t k = 0; k < p->cols; k++) {
			const int64_t at = row * p->cols + k;
			const int64_t group = row * groups + k / p->int4->block_k;
			uint32_t zeroed;
			float scale;
			memcpy(&zeroed, d->scales + 4 * group, sizeof zeroed);
			numbers_convert(DT_f32z, d->scales, group, 1, &scale);
			const int code = d->codes[at / 2] >> (at % 2 ? 4 : 0) & 15, zero = (int)numbers_zero(zeroed);
			*to++ = to_bf16((double)(code - zero) * (double)scale);
		}
	return true;
}

/* Rows from `first` on, as many as a band has, into d->rows. */
static bool decode_band(Compile *c, Decoder *d, const MadeProduct *p, int64_t first, const SourceReader *source)
{
	const int64_t fit = BAND_BYTES / (2 * p->cols) > 0 ? BAND_BYTES / (2 * p->cols) : 1;
	int64_t at = 0, done = 0;
	arena_release(&d->arena);
	d->product = NULL;
	d->first = first;
	d->n = p->rows - first < fit ? p->rows - first : fit;
	d->rows = ARENA_ARRAY(&d->arena, uint16_t, d->n * p->cols);
	for (int i = 0; i < p->n_pieces && done < d->n; at += p->pieces[i++].n) {
		const DecodedPiece *piece = &p->pieces[i];
		if (at + piece->n <= first + done)
			continue;
		const int64_t skip = first + done - at, left = piece->n - skip, n = left < d->n - done ? left : d->n - done;
		uint16_t *to = d->rows + done * p->cols;
		if (!(piece->int4 ? decode_int4(c, d, piece, piece->first + skip, n, to, source)
				: decode_rows(c, &d->arena, piece, piece->first + skip, n, to, source)))
			return false;
		done += n;
	}
	d->product = p;
	return true;
}

bool decode_bytes(Compile *c, Decoder *d, const MadeProduct *p, int64_t at, void *dst, size_t n,
	const SourceReader *source)
{
	const int64_t row_bytes = 2 * p->cols;
	for (uint8_t *to = dst; n;) {
		const int64_t row = at / row_bytes;
		if ((d->product != p || row < d->first || row >= d->first + d->n) && !decode_band(c, d, p, row, source))
			return false;
		const int64_t skip = at - d->first * row_bytes, left = d->n * row_bytes - skip;
		const size_t part = (int64_t)n < left ? n : (size_t)left;
		memcpy(to, (const uint8_t *)d->rows + skip, part);
		to += part;
		at += (int64_t)part;
		n -= part;
	}
	return true;
}
