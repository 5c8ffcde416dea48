/* random_weights.c - weights of --random-weights: made up where they are needed, never stored by who can make them.
 *
 * A hash of 64 bits gives four elements: twelve bits of each pick one of 4096 equally likely values, those of a sum of
 * four bytes, which is nearly normal (within 3.45 standard deviations). Their table is made by counting, so that
 * nothing but exact arithmetic and roots is involved. One core of 2023 makes 3.5 GB/s of bf16, 1.6 of e4m3, 6 of e2m1.
 *
 * Matrices have standard deviation 1 / sqrt(columns), so that every product keeps the size of its input and logits
 * are of order one; norms are 1 with a deviation of 0.1, biases have one of 0.02. Nothing is zero everywhere: a
 * multiplier fed with zeros takes less power, and a benchmark of it says nothing.
 *
 * Quantised matrices have the same deviation. Codes of e4m3 are those of normal numbers that just fit, codes of e2m1
 * and u4 all sixteen as often, as about what a writer makes of blocks whose largest value is 6, or 8 steps. Block
 * scales, and scales of rows where each has its own, are drawn around what the deviation asks for: one that is read in
 * the wrong place shows.
 */
#include "artifacts/random_weights.h"
#include "artifacts/numbers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS = 4 * 255 + 1, LEVELS = RANDOM_LEVELS, GROUP = 4 /* elements of one hash */ };

static uint64_t mix(uint64_t z) /* splitmix64's finish */
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

static uint64_t key_of(const char *name, uint64_t seed)
{
	uint64_t h = 0xCBF29CE484222325u; /* FNV-1a */
	for (const char *p = name; *p; p++)
		h = (h ^ (unsigned char)*p) * 0x100000001B3u;
	return mix(h ^ mix(seed + 0x9E3779B97F4A7C15u));
}

/* Nearest, ties to even. The values here are neither subnormal nor large. */
static uint16_t narrow(Dtype dtype, float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	if (dtype == DT_bf16)
		return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
	uint32_t sign = bits >> 16 & 0x8000, rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
	return (uint16_t)(rounded < 113u << 23 ? sign : sign | ((rounded >> 13) - (112u << 10)));
}

typedef struct Shape { float mean, deviation; } Shape;

static Shape shape_of(const Weight *w)
{
	if (w->n_dims > 1)
		return (Shape){0, 1 / sqrtf((float)w->shape[w->n_dims - 1])};
	return strstr(w->name, "norm") ? (Shape){1, 0.1f} : (Shape){0, 0.02f};
}

/* Level i of LEVELS: the sum of four bytes that a share (i + 1/2) / LEVELS of all 2^32 fours does not pass. */
static void fill_levels(int sum[LEVELS])
{
	uint64_t ways[5][SUMS] = {{1}}, below = 0; /* [n]: in which n bytes have a sum */
	for (int n = 1; n <= 4; n++)
		for (int s = 0; s < SUMS; s++) /* of the sums of n - 1 bytes, those from s - 255 to s */
			ways[n][s] = (s ? ways[n][s - 1] : 0) + ways[n - 1][s] - (s > 255 ? ways[n - 1][s - 256] : 0);
	for (int i = 0, s = 0; i < LEVELS; i++) {
		uint64_t share = (uint64_t)(2 * i + 1) << 19;
		while (below + ways[4][s] <= share)
			below += ways[4][s++];
		sum[i] = s;
	}
}

static uint64_t hash_of(uint64_t key, int64_t element)
{
	return mix(key + (uint64_t)(element / GROUP) * 0x9E3779B97F4A7C15u);
}

static unsigned level_of(uint64_t hash, int64_t element) { return hash >> (element % GROUP * 16) & (LEVELS - 1); }

static void fill_narrow(const uint16_t *value, uint64_t key, int64_t i, int64_t end, uint8_t *dst)
{
	for (; i < end && i % GROUP; i++, dst += sizeof *value)
		memcpy(dst, &value[level_of(hash_of(key, i), i)], sizeof *value);
	for (; i + GROUP <= end; i += GROUP, dst += GROUP * sizeof *value) {
		uint64_t hash = hash_of(key, i), four = value[hash & (LEVELS - 1)];
		four |= (uint64_t)value[hash >> 16 & (LEVELS - 1)] << 16;
		four |= (uint64_t)value[hash >> 32 & (LEVELS - 1)] << 32;
		four |= (uint64_t)value[hash >> 48 & (LEVELS - 1)] << 48;
		memcpy(dst, &four, sizeof four);
	}
	for (; i < end; i++, dst += sizeof *value)
		memcpy(dst, &value[level_of(hash_of(key, i), i)], sizeof *value);
}

static void fill_wide(const float *value, uint64_t key, int64_t i, int64_t end, uint8_t *dst)
{
	for (; i < end; i++, dst += sizeof *value)
		memcpy(dst, &value[level_of(hash_of(key, i), i)], sizeof *value);
}

static void fill_numbers(const RandomTables *t, const Weight *w, uint64_t key, int64_t first, int64_t end, void *dst)
{
	const float sum_deviation = 147.79953f; /* of four bytes: sqrt(4 (256^2 - 1) / 12) */
	const Shape shape = shape_of(w);
	float wide[LEVELS];
	uint16_t half[LEVELS];
	for (int i = 0; i < LEVELS; i++) {
		wide[i] = shape.mean + (float)(t->level[i] - SUMS / 2) * (shape.deviation / sum_deviation);
		half[i] = w->dtype == DT_f32 ? 0 : narrow(w->dtype, wide[i]);
	}
	if (w->dtype == DT_f32)
		fill_wide(wide, key, first, end, dst);
	else
		fill_narrow(half, key, first, end, dst);
}

/* Quantised ------------------------------------------------------------------------------------------ */

enum { NIBBLES = 16 /* of a hash */, FIRST_SCALE = 0x6f /* of e4m3: from there on 16 codes, 120 to 448 */ };

/* From 0 to 1, of each element another. */
static double share_of(uint64_t key, int64_t i)
{
	return (double)(mix(key + (uint64_t)i * 0x9E3779B97F4A7C15u) >> 40) * 0x1p-24;
}

/* Codes of the levels, the largest of which has the largest code. Returns their root mean square. */
static double fill_codes(const int level[LEVELS], uint8_t code[LEVELS])
{
	double squares = 0;
	for (int i = 0; i < LEVELS; i++) {
		float value;
		code[i] = numbers_code(DT_e4m3,
			(float)(level[i] - SUMS / 2) * (448.0f / (float)(level[LEVELS - 1] - SUMS / 2)));
		numbers_convert(DT_e4m3, &code[i], 0, 1, &value);
		squares += (double)value * (double)value / LEVELS;
	}
	return sqrt(squares);
}

void random_tables(RandomTables *t)
{
	fill_levels(t->level);
	t->code_rms = fill_codes(t->level, t->code);
}

/* Root mean square of 16 codes that come equally often. */
static double rms_of(Dtype dtype, uint8_t first_code)
{
	double squares = 0;
	for (unsigned i = 0; i < 16; i++) {
		float value;
		uint8_t code = (uint8_t)(first_code + i);
		numbers_convert(dtype, &code, 0, 1, &value);
		squares += (double)value * (double)value / 16;
	}
	return sqrt(squares);
}

static void fill_e4m3(uint64_t key, int64_t i, int64_t end, const uint8_t code[LEVELS], uint8_t *dst)
{
	for (; i < end && i % GROUP; i++)
		*dst++ = code[level_of(hash_of(key, i), i)];
	for (; i + GROUP <= end; i += GROUP, dst += GROUP) {
		const uint64_t hash = hash_of(key, i);
		for (int k = 0; k < GROUP; k++)
			dst[k] = code[hash >> 16 * k & (LEVELS - 1)];
	}
	for (; i < end; i++)
		*dst++ = code[level_of(hash_of(key, i), i)];
}

/* Bytes [at, at + n), two elements each. */
static void fill_nibbles(uint64_t key, int64_t at, size_t n, uint8_t *dst)
{
	enum { BYTES = NIBBLES / 2 };
	while (n) {
		const uint64_t hash = mix(key + (uint64_t)(at / BYTES) * 0x9E3779B97F4A7C15u);
		const int64_t skip = at % BYTES;
		if (skip == 0 && n >= BYTES) {
			memcpy(dst, &hash, BYTES); /* little-endian, as all there is here */
			dst += BYTES, n -= BYTES, at += BYTES;
			continue;
		}
		for (int64_t k = skip; k < BYTES && n; k++, n--, at++)
			*dst++ = (uint8_t)(hash >> 8 * k);
	}
}

/* Elements [i, end) of block scales in e4m3 or e8m0, whose root mean square shall be `unit`. */
static void fill_narrow_scales(Dtype dtype, uint64_t key, int64_t i, int64_t end, double unit, uint8_t *dst)
{
	int exponent; /* the power of two below unit, and the one above it as often as makes the mean right */
	const double m = 2 * frexp(unit, &exponent), upper = (m * m - 1) / 3;
	for (; i < end; i++)
		*dst++ = dtype == DT_e4m3 ? (uint8_t)(FIRST_SCALE + (int)(16 * share_of(key, i)))
			: (uint8_t)(127 + exponent - 1 + (share_of(key, i) < upper));
}

static void fill_wide_scales(bool is_one, uint64_t key, int64_t i, int64_t end, double unit, uint8_t *dst)
{
	const double spread = sqrt(0.75 * 0.75 + 0.75 * 0.5 + 0.25 / 3); /* root mean square of 0.75 to 1.25 */
	for (; i < end; i++, dst += sizeof(float)) {
		float value = (float)(is_one ? unit : unit / spread * (0.75 + 0.5 * share_of(key, i)));
		memcpy(dst, &value, sizeof value);
	}
}

/* Of f32z: such that are f16, each with the zero that makes codes symmetric. */
static void fill_zeroed_scales(uint64_t key, int64_t i, int64_t end, double unit, uint8_t *dst)
{
	for (; i < end; i++, dst += sizeof(uint32_t)) {
		float value;
		uint32_t bits;
		fill_wide_scales(false, key, i, i + 1, unit, (uint8_t *)&value);
		memcpy(&bits, &value, sizeof bits);
		bits &= ~(uint32_t)0x1fff;
		memcpy(&value, &bits, sizeof value);
		bits = numbers_zeroed(value, 8);
		memcpy(dst, &bits, sizeof bits);
	}
}

/* Of scales: what a code of 1 shall mean, so that the product's elements have their deviation. */
static double unit_of(const RandomTables *t, const Weight *w)
{
	const double deviation = w->made_cols > 0 ? 1 / sqrt((double)w->made_cols) : 1;
	switch (w->made) {
	case MADE_U4_SCALES: return deviation / sqrt(21.5); /* of -8 to 7 */
	case MADE_E2M1_SCALES: return deviation / rms_of(DT_e2m1, 0);
	case MADE_E2M1_SCALE: return deviation / rms_of(DT_e2m1, 0) / rms_of(DT_e4m3, FIRST_SCALE);
	default: return deviation / t->code_rms;
	}
}

void random_bytes(const RandomTables *t, const Weight *w, uint64_t seed, int64_t at, void *dst, size_t n)
{
	const uint64_t key = key_of(w->name, seed);
	const int64_t i = dtype_count(w->dtype, at), end = i + dtype_count(w->dtype, (int64_t)n);
	switch (w->made) {
	case MADE_NUMBERS:
		fill_numbers(t, w, key, i, end, dst);
		break;
	case MADE_CODES:
		if (w->dtype == DT_e4m3)
			fill_e4m3(key, i, end, t->code, dst);
		else
			fill_nibbles(key, at, n, dst);
		break;
	case MADE_U4_SCALES:
		fill_zeroed_scales(key, i, end, unit_of(t, w), dst);
		break;
	case MADE_E2M1_SCALES:
		fill_narrow_scales(w->dtype, key, i, end, unit_of(t, w), dst);
		break;
	default:
		fill_wide_scales(w->made != MADE_E4M3_SCALES, key, i, end, unit_of(t, w), dst);
	}
}

bool random_is_sound(const Weight *w)
{
	const bool has_cols = w->made_cols > 0 && w->made_cols <= INT32_MAX;
	switch (w->made) {
	case MADE_NUMBERS:
		return (w->dtype == DT_bf16 || w->dtype == DT_f16 || w->dtype == DT_f32) && w->made_cols == 0;
	case MADE_CODES:
		return (w->dtype == DT_e4m3 || w->dtype == DT_e2m1 || w->dtype == DT_u4) && w->made_cols == 0;
	case MADE_E4M3_SCALES:
	case MADE_E4M3_SCALE:
	case MADE_E2M1_SCALE:
		return w->dtype == DT_f32 && has_cols;
	case MADE_E2M1_SCALES:
		return w->dtype == DT_e4m3 ? w->made_cols == 0 : w->dtype == DT_e8m0 && has_cols;
	case MADE_U4_SCALES:
		return w->dtype == DT_f32z && has_cols;
	default:
		return false;
	}
}

bool random_seed(const Artifact *a, uint64_t *seed)
{
	const char *text = artifact_option(a, "weights.random_seed");
	char *end, again[24];
	if (!text || !*text || strlen(text) >= sizeof again)
		return false;
	errno = 0;
	*seed = strtoull(text, &end, 10);
	snprintf(again, sizeof again, "%llu", (unsigned long long)*seed);
	return !errno && !*end && strcmp(text, again) == 0;
}
