/* numbers.c - narrow number formats as f32: by rebuilding the bits, or from the list of a format's few values. */
#include "artifacts/numbers.h"

#include <math.h>
#include <string.h>

enum { ZERO_MASK = 31 }; /* of f32z */

static float from_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static float from_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
	if (exponent == 31) /* infinity, NaN */
		return from_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) /* zero and subnormal: fraction units of 2^-24 */
		return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
	return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Weights are unpacked element by element wherever the reference device multiplies, hence lists: of e4m3 the value of
 * each code, of e2m1 the two values of each byte, the lower half first, in bf16. */
#define EIGHT(unit) (unit) * 8, (unit) * 9, (unit) * 10, (unit) * 11, (unit) * 12, (unit) * 13, (unit) * 14, (unit) * 15
#define HALF(sign, last) (sign) * 0.0f, (sign) * 0x1p-9f, (sign) * 0x2p-9f, (sign) * 0x3p-9f, (sign) * 0x4p-9f, \
	(sign) * 0x5p-9f, (sign) * 0x6p-9f, (sign) * 0x7p-9f, EIGHT((sign) * 0x1p-9f), EIGHT((sign) * 0x1p-8f), \
	EIGHT((sign) * 0x1p-7f), EIGHT((sign) * 0x1p-6f), EIGHT((sign) * 0x1p-5f), EIGHT((sign) * 0x1p-4f), \
	EIGHT((sign) * 0x1p-3f), EIGHT((sign) * 0x1p-2f), EIGHT((sign) * 0x1p-1f), EIGHT((sign) * 1.0f), \
	EIGHT((sign) * 2.0f), EIGHT((sign) * 4.0f), EIGHT((sign) * 8.0f), EIGHT((sign) * 16.0f), (sign) * 256, \
	(sign) * 288, (sign) * 320, (sign) * 352, (sign) * 384, (sign) * 416, (sign) * 448, last
static const float e4m3_values[256] = {HALF(1.0f, NAN), HALF(-1.0f, -NAN)};

#define BESIDE(high) {0, high}, {0x3f00, high}, {0x3f80, high}, {0x3fc0, high}, {0x4000, high}, {0x4040, high}, \
	{0x4080, high}, {0x40c0, high}, {0x8000, high}, {0xbf00, high}, {0xbf80, high}, {0xbfc0, high}, {0xc000, high}, \
	{0xc040, high}, {0xc080, high}, {0xc0c0, high}
static const uint16_t e2m1_pairs[256][2] = {BESIDE(0), BESIDE(0x3f00), BESIDE(0x3f80), BESIDE(0x3fc0), BESIDE(0x4000),
	BESIDE(0x4040), BESIDE(0x4080), BESIDE(0x40c0), BESIDE(0x8000), BESIDE(0xbf00), BESIDE(0xbf80), BESIDE(0xbfc0),
	BESIDE(0xc000), BESIDE(0xc040), BESIDE(0xc080), BESIDE(0xc0c0)};

/* Elements first..first + n: a half byte, whole ones, a half one. */
static void from_e2m1(const uint8_t *bytes, int64_t first, int64_t n, float *out)
{
	const int64_t end = first + n;
	int64_t i = first;
	if (i < end && i % 2)
		*out++ = from_bits((uint32_t)e2m1_pairs[bytes[i++ / 2]][1] << 16);
	for (; i + 1 < end; i += 2, out += 2) {
		const uint16_t *pair = e2m1_pairs[bytes[i / 2]];
		out[0] = from_bits((uint32_t)pair[0] << 16);
		out[1] = from_bits((uint32_t)pair[1] << 16);
	}
	if (i < end)
		*out = from_bits((uint32_t)e2m1_pairs[bytes[i / 2]][0] << 16);
}

static float from_e8m0(uint8_t b)
{
	if (b == 0xff)
		return from_bits(0x7fc00000);
	return b == 0 ? 0x1p-127f : from_bits((uint32_t)b << 23);
}

static uint32_t to_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static uint8_t to_e4m3(float x)
{
	const uint32_t bits = to_bits(x), sign = bits >> 24 & 0x80, a = bits & 0x7fffffff;
	if (a > 0x7f800000)
		return 0x7f;
	if (a >= to_bits(464)) /* half way from 448 to what the code of NaN would be worth */
		return (uint8_t)(sign | 0x7e);
	if (a < to_bits(0x1p-6f)) /* units of 2^-9: added to this, what is below them is rounded away */
		return (uint8_t)(sign | (to_bits(from_bits(a) + 0x1p14f) & 15));
	return (uint8_t)(sign | (((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120 << 3)));
}

static uint8_t to_e2m1(float x)
{
	const uint32_t bits = to_bits(x), a = bits & 0x7fffffff;
	const float v = from_bits(a);
	if (a > 0x7f800000)
		return 7;
	unsigned code = (v > 0.25f) + (v >= 0.75f) + (v > 1.25f) + (v >= 1.75f) + (v > 2.5f) + (v >= 3.5f) + (v > 5);
	return (uint8_t)(bits >> 28 & 8) | (uint8_t)code;
}

uint8_t numbers_code(Dtype dtype, float x)
{
	return dtype == DT_e4m3 ? to_e4m3(x) : to_e2m1(x);
}

static void from_halves(Dtype dtype, const uint8_t *from, int64_t n, float *out)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t h; /* checkpoint files align nothing, hence the copies */
		memcpy(&h, from + 2 * i, sizeof h);
		out[i] = dtype == DT_bf16 ? from_bits((uint32_t)h << 16) : from_half(h);
	}
}

void numbers_convert(Dtype dtype, const void *from, int64_t first, int64_t n, float *out)
{
	const uint8_t *bytes = from;
	switch (dtype) {
	case DT_f32:
		memcpy(out, bytes + 4 * first, (size_t)n * sizeof *out);
		return;
	case DT_bf16:
	case DT_f16:
		from_halves(dtype, bytes + 2 * first, n, out);
		return;
	case DT_e4m3:
		for (int64_t i = 0; i < n; i++)
			out[i] = e4m3_values[bytes[first + i]];
		return;
	case DT_e2m1:
		from_e2m1(bytes, first, n, out);
		return;
	case DT_e8m0:
		for (int64_t i = 0; i < n; i++)
			out[i] = from_e8m0(bytes[first + i]);
		return;
	case DT_u4:
		for (int64_t i = first; i < first + n; i++)
			out[i - first] = (float)(bytes[i / 2] >> (i % 2 * 4) & 15);
		return;
	case DT_f32z:
		for (int64_t i = 0; i < n; i++) {
			uint32_t zeroed;
			memcpy(&zeroed, bytes + 4 * (first + i), sizeof zeroed);
			out[i] = from_bits(zeroed & ~(uint32_t)ZERO_MASK);
		}
		return;
	case DT_i32:
		for (int64_t i = 0; i < n; i++) {
			int32_t whole;
			memcpy(&whole, bytes + 4 * (first + i), sizeof whole);
			out[i] = (float)whole;
		}
		return;
	case DT_COUNT:
		return;
	}
}

uint32_t numbers_zeroed(float scale, unsigned zero) { return to_bits(scale) | (zero & ZERO_MASK); }
unsigned numbers_zero(uint32_t zeroed) { return zeroed & ZERO_MASK; }

float numbers_rounded(Dtype dtype, float x)
{
	const uint32_t bits = to_bits(x);
	if (dtype == DT_bf16)
		return isnan(x) ? x : from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
	const uint8_t code = numbers_code(dtype, x);
	numbers_convert(dtype, &code, 0, 1, &x);
	return x;
}
