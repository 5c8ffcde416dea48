// columns.cuh - Gated DeltaNet by chunks of rows: a warp has 16 columns of the state and of what has columns like it,
// transposed, as products take and give them.
#pragma once
#include "delta/chunk.cuh"

// What a warp keeps: 16 columns of the state, transposed.
using State = float[DK / 8][4];
using Rows = float[CHUNK / 8][4];

// f(row of the state, column, its place in a fragment), for this thread's elements
template <class F> __device__ __forceinline__ void each(int v0, F f)
{
	const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int n = 0; n < DK / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			f(n * 8 + quad * 2 + e % 2, v0 + g + e / 2 * 8, n, e);
}
