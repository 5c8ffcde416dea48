// attend.cuh - softmax(q k^T) v of some rows of q, a run of keys at a time, with a running maximum (warp level).
//
// Maxima live in the log2 domain: m = SCALE * log2(e) * q.k (SCALE is positive), so that a probability is one fused
// multiply-add and one exp2 away from its product. A warp holds M_ fragments of 16 rows; row g of one has
// index 0 in the pairs below, row g + 8 has index 1 (see mma.cuh). Keys and values leave shared memory once for all M_.
#pragma once
#include "shared/mma.cuh"

// thread level: 2^x to 2 units in the last place, results below 2^-126 are 0
__device__ __forceinline__ float exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// What a row sees, as one number: REACH positions, its own the last of them; 0 = all up to its own; below 0, those of
// its own of chunks of -REACH positions.
constexpr int reach_of(int window, int chunked) { return chunked ? -window : window; }

// thread level: the first position that a row at position `last` sees, where it does not see all
template <int REACH_> __device__ __forceinline__ int first_seen(int last)
{
	if constexpr (REACH_ < 0)
		return last - last % -REACH_;
	return last + 1 - REACH_;
}

// thread level: does a row that stands at position `last` not see position p?
template <int REACH_> __device__ __forceinline__ bool is_hidden(int p, int last)
{
	if constexpr (REACH_ < 0)
		return p > last || p < first_seen<REACH_>(last);
	return p > last || (REACH_ > 0 && p <= last - REACH_);
}

// Of heads of that many elements, the columns of values that a warp has: all, or half of them where registers hold no
// more.
constexpr int value_columns(int hdim) { return hdim > 256 ? hdim / 2 : hdim; }

// The state of a warp's 16 * M_ rows of q.
template <int HDIM_, int M_> struct Attention {
	static constexpr int values = value_columns(HDIM_);
	static_assert(HDIM_ % 16 == 0 && values * M_ <= 256,
		"a head is a whole number of mma steps and fits the registers");
	static constexpr bool q_in_registers = HDIM_ * M_ <= 128; // else fragments of q are read again for every run
	u32 q[q_in_registers ? HDIM_ / 16 : 1][M_][4];
	float o[M_][values / 8][4]; // unnormalised
	float m[M_][2], l[M_][2];  // running maximum; this lane's share of the running sum
};

template <int HDIM_, int M_>
__device__ __forceinline__ void attention_start(Attention<HDIM_, M_> &s, u32 q_tile, int row0)
{
	if constexpr (Attention<HDIM_, M_>::q_in_registers)
#pragma unroll
		for (int d = 0; d < HDIM_ / 16; d++)
#pragma unroll
			for (int t = 0; t < M_; t++)
				load_a(s.q[d][t], q_tile, tile_stride(HDIM_), row0 + t * 16, d * 16);
#pragma unroll
	for (int t = 0; t < M_; t++) {
#pragma unroll
		for (int d = 0; d < value_columns(HDIM_) / 8; d++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				s.o[t][d][i] = 0.0f;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			s.m[t][i] = minus_infinity();
			s.l[t][i] = 0.0f;
		}
	}
}

// Products of 16 rows become probabilities, in place; maximum, sum and output follow.
template <int KEYS_, int HDIM_, int M_>
__device__ __forceinline__ void attention_softmax(Attention<HDIM_, M_> &s, int t, float (&p)[KEYS_ / 8][4],
	float scale_log2)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = p[0][2 * i];
#pragma unroll
		for (int j = 0; j < KEYS_ / 8; j++)
			top = fmaxf(top, fmaxf(p[j][2 * i], p[j][2 * i + 1]));
		top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
		top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
		top = fmaxf(top * scale_log2, s.m[t][i]);
		const float base = top == minus_infinity() ? 0.0f : top; // nothing seen yet: -inf - 0, not -inf - -inf
		const float shrink = exp2_fast(s.m[t][i] - base);
		s.m[t][i] = top;
		float sum = 0.0f;
#pragma unroll
		for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
			for (int e = 2 * i; e < 2 * i + 2; e++) {
				p[j][e] = exp2_fast(fmaf(p[j][e], scale_log2, -base));
				sum += p[j][e];
			}
		s.l[t][i] = fmaf(s.l[t][i], shrink, sum);
#pragma unroll
		for (int d = 0; d < value_columns(HDIM_) / 8; d++) {
			s.o[t][d][2 * i] *= shrink;
			s.o[t][d][2 * i + 1] *= shrink;
		}
	}
}

// KEYS_ keys, the first at position p0; row i of m16 tile t sees positions up to last[t][i], of these what REACH_
// (0: all). `masked` may be false when all rows see all keys. k, v: addresses of the first key's row in its tile, and
// of the first of the warp's columns of values in a tile whose rows have V_WIDTH_ columns.
template <int KEYS_, int REACH_, int V_WIDTH_, int HDIM_, int M_>
__device__ __forceinline__ void attention_step(Attention<HDIM_, M_> &s, u32 q_tile, int row0, u32 k, u32 v, int p0,
	const int (&last)[M_][2], bool masked, float scale_log2)
{
	constexpr int stride = tile_stride(HDIM_), v_stride = tile_stride(V_WIDTH_);
	float p[M_][KEYS_ / 8][4] = {};
#pragma unroll
	for (int d = 0; d < HDIM_ / 16; d++) {
		u32 q_now[M_][4];
#pragma unroll
		for (int t = 0; t < M_; t++)
			if constexpr (Attention<HDIM_, M_>::q_in_registers)
#pragma unroll
				for (int i = 0; i < 4; i++)
					q_now[t][i] = s.q[d][t][i];
			else
				load_a(q_now[t], q_tile, stride, row0 + t * 16, d * 16);
#pragma unroll
		for (int j = 0; j < KEYS_ / 16; j++) {
			u32 b[4];
			load_b(b, k, stride, j * 16, d * 16);
#pragma unroll
			for (int t = 0; t < M_; t++) {
				mma(p[t][2 * j], q_now[t], b[0], b[1]);
				mma(p[t][2 * j + 1], q_now[t], b[2], b[3]);
			}
		}
	}
	if (masked) {
		const int column = p0 + threadIdx.x % 4 * 2;
#pragma unroll
		for (int t = 0; t < M_; t++)
#pragma unroll
			for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (is_hidden<REACH_>(column + j * 8 + i % 2, last[t][i / 2]))
						p[t][j][i] = minus_infinity();
	}
#pragma unroll
	for (int t = 0; t < M_; t++)
		attention_softmax<KEYS_>(s, t, p[t], scale_log2);
#pragma unroll
	for (int j = 0; j < KEYS_ / 16; j++) {
		u32 a[M_][4];
#pragma unroll
		for (int t = 0; t < M_; t++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				a[t][i] = pack_bf16(p[t][2 * j + i / 2][i % 2 * 2], p[t][2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
		for (int d = 0; d < value_columns(HDIM_) / 16; d++) {
			u32 b[4];
			load_b_transposed(b, v, v_stride, j * 16, d * 16);
#pragma unroll
			for (int t = 0; t < M_; t++) {
				mma(s.o[t][2 * d], a[t], b[0], b[1]);
				mma(s.o[t][2 * d + 1], a[t], b[2], b[3]);
			}
		}
	}
}

// Completes l: afterwards every lane of a row has the row's sum.
template <int HDIM_, int M_> __device__ __forceinline__ void attention_finish(Attention<HDIM_, M_> &s)
{
#pragma unroll
	for (int t = 0; t < M_; t++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			s.l[t][i] += __shfl_xor_sync(~0u, s.l[t][i], 1);
			s.l[t][i] += __shfl_xor_sync(~0u, s.l[t][i], 2);
		}
}

// thread level: a sum of weights, relative to the maximum m, with that of a head's sink: a score that has no value
template <class T> __device__ __forceinline__ float add_sink(float l, float m, const T *sinks, int head)
{
	return l + exp2_fast(fmaf(to_f32(sinks[head]), 1.4426950408889634f, -m));
}
