// reduce.cuh - sums and maxima over a warp or a block, in an order that never changes.
#pragma once
#include "shared/types.cuh"

// warp level: every lane gets the result
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x += __shfl_xor_sync(~0u, x, m);
	return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, m));
	return x;
}

// block level: `scratch` holds one value a warp and is free again on return; every thread gets the result.
template <int WARPS_> __device__ __forceinline__ float block_sum(float x, float *scratch)
{
	x = warp_sum(x);
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = x;
	__syncthreads();
	float total = 0.0f;
#pragma unroll
	for (int i = 0; i < WARPS_; i++)
		total += scratch[i];
	__syncthreads();
	return total;
}
