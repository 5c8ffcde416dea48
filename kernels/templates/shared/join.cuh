// join.cuh - what a drafting head reads: an embedded token and a row of the position before it, each normed, side by
// side (block level).
#pragma once
#include "shared/reduce.cuh"

// A row of H_ elements in the registers of a block of THREADS_ threads, pieces of eight.
template <int H_, int THREADS_> struct BlockRow {
	static_assert(H_ % 8 == 0, "rows are read and written 8 elements at a time");
	static constexpr int pieces = (H_ / 8 + THREADS_ - 1) / THREADS_;
	float x[pieces][8];

	static __device__ __forceinline__ int column(int piece) { return (piece * THREADS_ + int(threadIdx.x)) * 8; }

	template <class T> __device__ __forceinline__ void load(const T *from)
	{
#pragma unroll
		for (int i = 0; i < pieces; i++)
			if (column(i) < H_)
				unpack(load8(from + column(i)), x[i]);
			else
				for (int e = 0; e < 8; e++)
					x[i][e] = 0.0f;
	}

	__device__ __forceinline__ void clear()
	{
#pragma unroll
		for (int i = 0; i < pieces; i++)
			for (int e = 0; e < 8; e++)
				x[i][e] = 0.0f;
	}

	__device__ __forceinline__ void store_to(bf16 *to) const
	{
#pragma unroll
		for (int i = 0; i < pieces; i++)
			if (column(i) < H_)
				*reinterpret_cast<uint4 *>(to + column(i)) = pack8(x[i]);
	}

	// Its rmsnorm, in place, by w or 1 + w. scratch: a float a warp.
	template <bool ONE_, class T> __device__ __forceinline__ void norm(const T *w, float eps, float *scratch)
	{
		float squares = 0.0f;
#pragma unroll
		for (int i = 0; i < pieces; i++)
#pragma unroll
			for (int e = 0; e < 8; e++)
				squares = fmaf(x[i][e], x[i][e], squares);
		const float scale = rsqrtf(block_sum<THREADS_ / 32>(squares, scratch) / H_ + eps);
#pragma unroll
		for (int i = 0; i < pieces; i++) {
			float v[8];
			if (column(i) < H_)
				unpack(load8(w + column(i)), v);
#pragma unroll
			for (int e = 0; e < 8; e++)
				x[i][e] = column(i) < H_ ? x[i][e] * scale * ((ONE_ ? 1.0f : 0.0f) + v[e]) : 0.0f;
		}
	}
};
