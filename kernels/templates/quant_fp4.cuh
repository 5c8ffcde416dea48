// quant_fp4.cuh - rows as codes of e2m1 with a scale for each 16 columns and one a row (artifacts/ops.h), and how they
// are made: a thread has eight columns of each of its pieces, and a block the row.
#pragma once
#include "codes.cuh"
#include "reduce.cuh"

constexpr int fp4_columns = 16; // that share a scale

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

// two lanes, eight columns each: the code of the scale of their 16, in both, and the codes of this lane's
__device__ __forceinline__ u32 fp4_block(const float (&v)[8], float row_scale, u32 &codes)
{
	u32 largest = 0; // as bits: NaN is above all numbers
#pragma unroll
	for (int e = 0; e < 8; e++)
		largest = max(largest, __float_as_uint(v[e]) & 0x7fffffffu);
	largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
	const u32 block = max(to_e4m3(__uint_as_float(largest) / row_scale / 6.0f), 1u); // 2^-9 is code 1
	const float step = e4m3_to_f32(block) * row_scale;
	codes = 0;
#pragma unroll
	for (int e = 0; e < 8; e++)
		codes |= to_e2m1(v[e] / step) << (4 * e);
	return block;
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
		const u32 block = fp4_block(v[i], scale, codes);
		if (k >= K_)
			continue;
		*reinterpret_cast<u32 *>(y + (i64(t) * K_ + k) / 2) = codes;
		if (k % fp4_columns == 0)
			blocks[i64(t) * ceil_div(K_, fp4_columns) + k / fp4_columns].bits = static_cast<unsigned char>(block);
	}
}
