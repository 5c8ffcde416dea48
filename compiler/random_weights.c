/* random_weights.c - weights of --random-weights: made up while they are written, never stored.
 *
 * A number depends on the seed, the tensor's name and its place in the tensor alone, so any piece of any tensor can
 * be made at any time, and the same plan comes out on every machine. A hash of 64 bits gives two elements: four
 * bytes each, whose sum is nearly normal (range 3.45 standard deviations). Only exact arithmetic and roots follow.
 *
 * Matrices have standard deviation 1 / sqrt(columns), so that every product keeps the size of its input and logits
 * are of order one; norms are 1 with a deviation of 0.1, biases have one of 0.02. Nothing is zero everywhere: a
 * multiplier fed with zeros takes less power, and a benchmark of it says nothing.
 */
#include "compiler/ir.h"

#include <math.h>
#include <string.h>

enum { SUMS = 4 * 255 + 1, PAIR = 2 };

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

/* Sums of four bytes, of both halves of a hash. */
static void two_sums(uint64_t hash, unsigned sum[PAIR])
{
	uint64_t pairs = (hash & 0x00ff00ff00ff00ffu) + (hash >> 8 & 0x00ff00ff00ff00ffu);
	uint64_t fours = pairs + (pairs >> 16);
	sum[0] = fours & 0x7ff;
	sum[1] = fours >> 32 & 0x7ff;
}

static void fill_narrow(const uint16_t *value, uint64_t key, int64_t first, int64_t n, uint8_t *dst)
{
	unsigned sum[PAIR];
	for (int64_t i = first; i < first + n;) {
		two_sums(mix(key + (uint64_t)(i / PAIR) * 0x9E3779B97F4A7C15u), sum);
		for (int half = (int)(i % PAIR); half < PAIR && i < first + n; half++, i++, dst += sizeof *value)
			memcpy(dst, &value[sum[half]], sizeof *value);
	}
}

static void fill_wide(const float *value, uint64_t key, int64_t first, int64_t n, uint8_t *dst)
{
	unsigned sum[PAIR];
	for (int64_t i = first; i < first + n;) {
		two_sums(mix(key + (uint64_t)(i / PAIR) * 0x9E3779B97F4A7C15u), sum);
		for (int half = (int)(i % PAIR); half < PAIR && i < first + n; half++, i++, dst += sizeof *value)
			memcpy(dst, &value[sum[half]], sizeof *value);
	}
}

void random_weight(const Weight *w, uint64_t seed, int64_t at, void *dst, size_t n)
{
	const float sum_deviation = 147.79953f; /* of four bytes: sqrt(4 (256^2 - 1) / 12) */
	const Shape shape = shape_of(w);
	const int size = dtype_bytes(w->dtype);
	float wide[SUMS];
	uint16_t half[SUMS];
	for (int i = 0; i < SUMS; i++) {
		wide[i] = shape.mean + (float)(i - SUMS / 2) * (shape.deviation / sum_deviation);
		half[i] = w->dtype == DT_f32 ? 0 : narrow(w->dtype, wide[i]);
	}
	if (w->dtype == DT_f32)
		fill_wide(wide, key_of(w->name, seed), at / size, (int64_t)n / size, dst);
	else
		fill_narrow(half, key_of(w->name, seed), at / size, (int64_t)n / size, dst);
}
