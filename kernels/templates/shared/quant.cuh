// quant.cuh - rows as codes of e4m3 with a scale for each 128 columns (artifacts/ops.h), and how they are made.
#pragma once
#include "shared/codes.cuh"

constexpr int code_columns = 128; // that share a scale

// The scale of columns whose largest magnitude that is. One so small that a product with its reciprocal would overflow
// counts as zero.
__device__ __forceinline__ float code_scale(float largest)
{
	const float scale = largest / 448.0f;
	return scale >= __uint_as_float(0x0d800000u) /* 2^-100 */ ? scale : 1.0f;
}

// x / s, when inverse is about 1 / s
__device__ __forceinline__ float quotient(float x, float s, float inverse)
{
	const float q = x * inverse;
	return fmaf(fmaf(-s, q, x), inverse, q);
}

// 16 lanes, eight columns each: their scale, in every lane, and the codes of this lane's
__device__ __forceinline__ float code_columns_of(const float (&v)[8], uint2 &codes)
{
	float largest = 0.0f;
#pragma unroll
	for (int e = 0; e < 8; e++)
		largest = fmaxf(largest, fabsf(v[e]));
#pragma unroll
	for (int m = 8; m; m >>= 1)
		largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, m));
	const float s = code_scale(largest), inverse = 1.0f / s;
	const float by = s < -minus_infinity() ? s : 0.0f; // of an infinite scale all quotients are 0, or no numbers
	float q[8];
#pragma unroll
	for (int e = 0; e < 8; e++)
		q[e] = quotient(v[e], by, inverse);
	codes.x = pack_e4m3(q[0], q[1], q[2], q[3]);
	codes.y = pack_e4m3(q[4], q[5], q[6], q[7]);
	return s;
}
