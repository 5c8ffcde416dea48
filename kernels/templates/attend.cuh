// attend.cuh - softmax(q k^T) v of 16 rows of q, a run of keys at a time, with a running maximum (warp level).
//
// Maxima live in the log2 domain: m = SCALE * log2(e) * q.k (SCALE is positive), so that a probability is one fused
// multiply-add and one exp2 away from its product. Row g of the fragment's 16 has index 0 in the pairs below, row
// g + 8 has index 1 (see mma.cuh).
#pragma once
#include "mma.cuh"

// thread level: 2^x to 2 units in the last place, results below 2^-126 are 0
__device__ __forceinline__ float exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

template <int HDIM_> struct Attention {
	static_assert(HDIM_ % 16 == 0 && HDIM_ <= 256, "a head is a whole number of mma steps and fits the registers");
	static constexpr bool q_in_registers = HDIM_ <= 128;
	u32 q[q_in_registers ? HDIM_ / 16 : 1][4];
	float o[HDIM_ / 8][4]; // unnormalised
	float m[2], l[2];      // running maximum; this lane's share of the running sum
};

template <int HDIM_> __device__ __forceinline__ void attention_start(Attention<HDIM_> &s, u32 q_tile, int row0)
{
	if constexpr (Attention<HDIM_>::q_in_registers)
#pragma unroll
		for (int d = 0; d < HDIM_ / 16; d++)
			load_a(s.q[d], q_tile, tile_stride(HDIM_), row0, d * 16);
#pragma unroll
	for (int d = 0; d < HDIM_ / 8; d++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			s.o[d][i] = 0.0f;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		s.m[i] = minus_infinity();
		s.l[i] = 0.0f;
	}
}

// KEYS_ keys, the first at position p0; row i sees positions up to last[i]. `masked` may be false when all rows see
// all keys. k, v: addresses of the first key's row in its tile.
template <int KEYS_, int HDIM_>
__device__ __forceinline__ void attention_step(Attention<HDIM_> &s, u32 q_tile, int row0, u32 k, u32 v, int p0,
	const int (&last)[2], bool masked, float scale_log2)
{
	constexpr int stride = tile_stride(HDIM_);
	float p[KEYS_ / 8][4] = {};
#pragma unroll
	for (int d = 0; d < HDIM_ / 16; d++) {
		u32 q_now[4];
		if constexpr (Attention<HDIM_>::q_in_registers)
#pragma unroll
			for (int i = 0; i < 4; i++)
				q_now[i] = s.q[d][i];
		else
			load_a(q_now, q_tile, stride, row0, d * 16);
#pragma unroll
		for (int j = 0; j < KEYS_ / 16; j++) {
			u32 b[4];
			load_b(b, k, stride, j * 16, d * 16);
			mma(p[2 * j], q_now, b[0], b[1]);
			mma(p[2 * j + 1], q_now, b[2], b[3]);
		}
	}
	if (masked) {
		const int column = p0 + threadIdx.x % 4 * 2;
#pragma unroll
		for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				if (column + j * 8 + i % 2 > last[i / 2])
					p[j][i] = minus_infinity();
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = p[0][2 * i];
#pragma unroll
		for (int j = 0; j < KEYS_ / 8; j++)
			top = fmaxf(top, fmaxf(p[j][2 * i], p[j][2 * i + 1]));
		top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
		top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
		top = fmaxf(top * scale_log2, s.m[i]);
		const float base = top == minus_infinity() ? 0.0f : top; // nothing seen yet: -inf - 0, not -inf - -inf
		const float shrink = exp2_fast(s.m[i] - base);
		s.m[i] = top;
		float sum = 0.0f;
#pragma unroll
		for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
			for (int e = 2 * i; e < 2 * i + 2; e++) {
				p[j][e] = exp2_fast(fmaf(p[j][e], scale_log2, -base));
				sum += p[j][e];
			}
		s.l[i] = fmaf(s.l[i], shrink, sum);
#pragma unroll
		for (int d = 0; d < HDIM_ / 8; d++) {
			s.o[d][2 * i] *= shrink;
			s.o[d][2 * i + 1] *= shrink;
		}
	}
#pragma unroll
	for (int j = 0; j < KEYS_ / 16; j++) {
		const u32 a[4] = { pack_bf16(p[2 * j][0], p[2 * j][1]), pack_bf16(p[2 * j][2], p[2 * j][3]),
			pack_bf16(p[2 * j + 1][0], p[2 * j + 1][1]), pack_bf16(p[2 * j + 1][2], p[2 * j + 1][3]) };
#pragma unroll
		for (int d = 0; d < HDIM_ / 16; d++) {
			u32 b[4];
			load_b_transposed(b, v, stride, j * 16, d * 16);
			mma(s.o[2 * d], a, b[0], b[1]);
			mma(s.o[2 * d + 1], a, b[2], b[3]);
		}
	}
}

// Completes l: afterwards every lane of a row has the row's sum.
template <int HDIM_> __device__ __forceinline__ void attention_finish(Attention<HDIM_> &s)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		s.l[i] += __shfl_xor_sync(~0u, s.l[i], 1);
		s.l[i] += __shfl_xor_sync(~0u, s.l[i], 2);
	}
}
