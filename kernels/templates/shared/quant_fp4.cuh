// quant_fp4.cuh - rows as codes of e2m1 with a scale for each 16 columns and one a row (artifacts/ops.h), and how they
// are made: a thread has eight columns of each of its pieces, and a block the row.
#pragma once
#include "shared/codes.cuh"
#include "shared/reduce.cuh"

// block level: the largest number of all threads; `scratch` holds one value a warp and is free again on return
template <int WARPS_> __device__ __forceinline__ float block_max(float x, float *scratch)
{
	x = warp_max(x);
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = x;
	__syncthreads();
	float largest = scratch[0];
#pragma unroll
	for (int i = 1; i < WARPS_; i++)
		largest = fmaxf(largest, scratch[i]);
	__syncthreads();
	return largest;
}

// The scale of a row whose largest magnitude that is. One so small that its reciprocal overflows counts as zero.
__device__ __forceinline__ float fp4_row_scale(float largest)
{
	const float scale = largest / 2688.0f; // 6 * 448
	return scale >= __uint_as_float(0x0d800000u) /* 2^-100 */ ? scale : 1.0f;
}

// block level: row t of K_ columns, of which piece i of this thread are columns 8 (i * threads + threadIdx.x) and after
template <int K_, int WARPS_, int PIECES_>
__device__ __forceinline__ void fp4_row(const float (&v)[PIECES_][8], int t, float *scratch, e2m1 *y, e4m3 *blocks,
	float *row_scale)
{
	float largest = 0.0f;
#pragma unroll
	for (int i = 0; i < PIECES_; i++)
#pragma unroll
		for (int e = 0; e < 8; e++)
			largest = fmaxf(largest, fabsf(v[i][e]));
	const float scale = fp4_row_scale(block_max<WARPS_>(largest, scratch));
	if (threadIdx.x == 0)
		row_scale[t] = scale;
#pragma unroll
	for (int i = 0; i < PIECES_; i++) {
		const int k = (i * WARPS_ * 32 + int(threadIdx.x)) * 8;
		u32 codes;
		const u32 block = e2m1_group(v[i], scale, codes);
		if (k >= K_)
			continue;
		*reinterpret_cast<u32 *>(y + (i64(t) * K_ + k) / 2) = codes;
		if (k % NVFP4_GROUP == 0)
			blocks[i64(t) * ceil_div(K_, NVFP4_GROUP) + k / NVFP4_GROUP].bits = static_cast<unsigned char>(block);
	}
}
