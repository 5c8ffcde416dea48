/* random_weights.c - weights of --random-weights: made up while they are written, never stored.
 *
 * A number depends on the seed, the tensor's name and its place in the tensor alone, so any piece of any tensor can
 * be made at any time, and the same plan comes out on every machine. A hash of 64 bits gives four elements: twelve bits
 * of each pick one of 4096 equally likely values, those of a sum of four bytes, which is nearly normal (within 3.45
 * standard deviations). Their table is made by counting, so that nothing but exact arithmetic and roots is involved.
 *
 * Matrices have standard deviation 1 / sqrt(columns), so that every product keeps the size of its input and logits
 * are of order one; norms are 1 with a deviation of 0.1, biases have one of 0.02. Nothing is zero everywhere: a
 * multiplier fed with zeros takes less power, and a benchmark of it says nothing.
 */
#include "compiler/ir.h"

#include <math.h>
#include <string.h>

enum { SUMS = 4 * 255 + 1, LEVELS = 4096, GROUP = 4 /* elements of one hash */ };

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

void random_weight(const Weight *w, uint64_t seed, int64_t at, void *dst, size_t n)
{
	const float sum_deviation = 147.79953f; /* of four bytes: sqrt(4 (256^2 - 1) / 12) */
	const Shape shape = shape_of(w);
	const int size = dtype_bytes(w->dtype);
	const int64_t first = at / size, end = first + (int64_t)n / size;
	int sum[LEVELS];
	float wide[LEVELS];
	uint16_t half[LEVELS];
	fill_levels(sum);
	for (int i = 0; i < LEVELS; i++) {
		wide[i] = shape.mean + (float)(sum[i] - SUMS / 2) * (shape.deviation / sum_deviation);
		half[i] = w->dtype == DT_f32 ? 0 : narrow(w->dtype, wide[i]);
	}
	if (w->dtype == DT_f32)
		fill_wide(wide, key_of(w->name, seed), first, end, dst);
	else
		fill_narrow(half, key_of(w->name, seed), first, end, dst);
}
