/* numbers.h - what the codes of narrow number formats are worth, exactly, as f32.
 *
 *   f16    1 sign, 5 exponent, 10 fraction bits; bias 15; infinities and NaN
 *   bf16   the upper half of an f32
 *   e4m3   1, 4, 3; bias 7; subnormals m * 2^-9; no infinities; 0x7f and 0xff are NaN, so that the largest is 448
 *   e2m1   1, 2, 1 in four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; two in a byte, the first in
 *          the low half
 *   e8m0   a power of two, 2^(b - 127), without sign and zero; 0xff is NaN
 *   u4     0 to 15; two in a byte, the first in the low half
 *   f32z   a scale and a zero: the low five bits of an f32 are an integer, the zero of the codes of u4 that the scale
 *          is for; as f32 it is the scale, whose own low five bits are 0. All of f16 and bf16 have such an f32
 *
 * Every value of each of them is an f32; the least, 2^-127 of e8m0, a subnormal one.
 */
#ifndef ATLAS_NUMBERS_H
#define ATLAS_NUMBERS_H

#include "artifacts/plan.h"

/* How many elements share a scale. */
enum {
	NVFP4_GROUP = 16, /* e2m1 with scales in e4m3: of weights, of rows, of a head's keys and values */
	MXFP4_GROUP = 32, /* e2m1 with scales in e8m0 */
	FP8_BLOCK = 128   /* e4m3: columns of a row; both sides of a weight's blocks where the checkpoint names none */
};

/* Elements [first, first + n) of an array of any float dtype, as f32; `from` is the array's start and need not be
 * aligned. */
void numbers_convert(Dtype dtype, const void *from, int64_t first, int64_t n, float *out);

/* The code of e4m3 or e2m1 whose value is nearest to x: of two that are as near, the even one. Beyond the largest value
 * it is that one's, with x's sign, infinities too. NaN: 0x7f in e4m3, the largest in e2m1, which has none. */
uint8_t numbers_code(Dtype dtype, float x);
/* What that code is worth. Or, as a float, the nearest bf16; beyond the largest it is infinity, and NaN stays NaN. */
float numbers_rounded(Dtype dtype, float x);

/* An f32z of a scale whose low five bits are 0, and of a zero from 0 to 31; and its zero. */
uint32_t numbers_zeroed(float scale, unsigned zero);
unsigned numbers_zero(uint32_t zeroed);

#endif
