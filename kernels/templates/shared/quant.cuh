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
	const float s = code_scale(largest);
	codes.x = pack_e4m3(v[0] / s, v[1] / s, v[2] / s, v[3] / s);
	codes.y = pack_e4m3(v[4] / s, v[5] / s, v[6] / s, v[7] / s);
	return s;
}
