// gemv.cuh - y = x w^T for a few rows of x: the weights are streamed once, everything else is hidden behind them.
//
// For weights in f16 and f32, whose digits the products keep; bf16 weights go through stream.cuh.
//
// A block of WARPS warps owns WARPS * L rows of w. x stands in shared memory as bf16, in chunks of K so that any
// K fits. Each warp streams its L rows with 16-byte loads, one batch ahead of the arithmetic; the first batch
// leaves before x is even read, since weights depend on nobody.
//
// A norm in front costs one pass: what is staged is bf16(x * norm), the sum of squares is gathered on the way
// and 1 / rms multiplies the f32 sums at the end.
#pragma once
#include "shared/reduce.cuh"

// Elements of a row staged at a time: all rows of a chunk take at most 32 KiB. A chunk is a multiple of 8 elements a
// thread, so which thread adds what does not depend on the number of rows.
FORMULA(gemv_chunk(int rows, int k), min(k, 16384 / rows / 2048 * 2048))

// block level: xs[t, 0..n/8) = elements k0.. of row(t), times the norm weights when there are any.
//   row(t)  const bf16 *, NULL = a row of zeros
//   ss[t]   gains this thread's part of the sum of squares
template <int THREADS, int ROWS_, int CHUNK, bool NORM, bool ONE, class NT_, class Row>
__device__ __forceinline__ void gemv_stage(uint4 *xs, Row row, const NT_ *norm, int k0, int n, float (&ss)[ROWS_])
{
	for (int v = threadIdx.x; v < n / 8; v += THREADS) {
		float w[8];
		if constexpr (NORM)
			unpack(load8(norm + k0 + v * 8), w);
#pragma unroll
		for (int t = 0; t < ROWS_; t++) {
			const bf16 *p = row(t);
			Vec8<bf16> raw = { make_uint4(0, 0, 0, 0) };
			if (p)
				raw = load8(p + k0 + v * 8);
			if constexpr (NORM) {
				float x[8];
				unpack(raw, x);
#pragma unroll
				for (int i = 0; i < 8; i++) {
					ss[t] = fmaf(x[i], x[i], ss[t]);
					x[i] *= ONE ? 1.0f + w[i] : w[i];
				}
				raw.raw[0] = pack8(x);
			}
			xs[t * (CHUNK / 8) + v] = raw.raw[0];
		}
	}
}

// warp level: one batch of U * 32 vectors of L rows of w. Lanes past the end read vector 0 and get zeros.
template <int L, int U, bool EXACT, class W>
__device__ __forceinline__ void gemv_load(Vec8<W> (&v)[L][U], const W *const (&w)[L], int k0, int first, int n_vecs)
{
	const int lane = threadIdx.x % 32;
#pragma unroll
	for (int u = 0; u < U; u++) {
		const int i = first + u * 32 + lane;
		const bool inside = EXACT || i < n_vecs;
#pragma unroll
		for (int l = 0; l < L; l++) {
			v[l][u] = load8_once(w[l] + k0 + (inside ? i : 0) * 8);
			if constexpr (!EXACT)
				if (!inside)
#pragma unroll
					for (int j = 0; j < int(sizeof(W) / 2); j++)
						v[l][u].raw[j] = make_uint4(0, 0, 0, 0);
		}
	}
}

// warp level: acc[t][l] += the batch's products, this lane's share
template <int ROWS_, int L, int U, int CHUNK, bool EXACT, class W>
__device__ __forceinline__ void gemv_batch(const Vec8<W> (&v)[L][U], const uint4 *xs, int first, int n_vecs,
	float (&acc)[ROWS_][L])
{
	const int lane = threadIdx.x % 32;
#pragma unroll
	for (int u = 0; u < U; u++) {
		const int i = first + u * 32 + lane;
		float w[L][8];
#pragma unroll
		for (int l = 0; l < L; l++)
			unpack(v[l][u], w[l]);
#pragma unroll
		for (int t = 0; t < ROWS_; t++) {
			float x[8];
			unpack(Vec8<bf16> { xs[t * (CHUNK / 8) + (EXACT || i < n_vecs ? i : 0)] }, x);
#pragma unroll
			for (int l = 0; l < L; l++)
#pragma unroll
				for (int j = 0; j < 8; j++)
					acc[t][l] = fmaf(w[l][j], x[j], acc[t][l]);
		}
	}
}

// block level: the sums of L rows of w (pointers to their first elements) with ROWS_ rows of x. On return every
// lane holds acc complete, and ss holds the block's sums of squares when NORM. ready() is called once other launches'
// results may be read; when it says no, to all threads alike, nothing is done and gemv says no too.
template <int WARPS_, int ROWS_, int K_, int L, bool NORM, bool ONE, class W, class NT_, class Row, class Ready>
__device__ __forceinline__ bool gemv(uint4 *xs, Row row, const NT_ *norm, const W *const (&w)[L],
	float (&acc)[ROWS_][L], float (&ss)[ROWS_], Ready ready)
{
	static_assert(K_ % 8 == 0, "rows are read 8 elements at a time");
	constexpr int THREADS = WARPS_ * 32, CHUNK = gemv_chunk(ROWS_, K_), CHUNKS = (K_ + CHUNK - 1) / CHUNK;
	constexpr int WIDE = L * int(sizeof(W) / 2), U = WIDE >= 8 ? 1 : 8 / WIDE; // 8 loads of 16 bytes in flight
	constexpr bool EXACT = CHUNK % (256 * U) == 0 && K_ % CHUNK % (256 * U) == 0;
	__shared__ float partial[ROWS_][WARPS_];
	Vec8<W> next[L][U];
	gemv_load<L, U, EXACT>(next, w, 0, 0, CHUNK / 8);
	inputs_ready();
	if (!ready())
		return false;
#pragma unroll
	for (int t = 0; t < ROWS_; t++) {
		ss[t] = 0.0f;
#pragma unroll
		for (int l = 0; l < L; l++)
			acc[t][l] = 0.0f;
	}
	for (int c = 0; c < CHUNKS; c++) {
		const int k0 = c * CHUNK, n_vecs = (CHUNKS == 1 || c + 1 < CHUNKS ? CHUNK : K_ - k0) / 8;
		if (c)
			__syncthreads();
		gemv_stage<THREADS, ROWS_, CHUNK, NORM, ONE>(xs, row, norm, k0, n_vecs * 8, ss);
		__syncthreads();
		for (int first = 0; first < n_vecs; first += U * 32) {
			Vec8<W> now[L][U];
#pragma unroll
			for (int l = 0; l < L; l++)
#pragma unroll
				for (int u = 0; u < U; u++)
					now[l][u] = next[l][u];
			if (first + U * 32 < n_vecs)
				gemv_load<L, U, EXACT>(next, w, k0, first + U * 32, n_vecs);
			else if (c + 1 < CHUNKS)
				gemv_load<L, U, EXACT>(next, w, k0 + CHUNK, 0, (c + 2 < CHUNKS ? CHUNK : K_ - k0 - CHUNK) / 8);
			gemv_batch<ROWS_, L, U, CHUNK, EXACT>(now, xs, first, n_vecs, acc);
		}
	}
#pragma unroll
	for (int t = 0; t < ROWS_; t++) {
#pragma unroll
		for (int l = 0; l < L; l++)
			acc[t][l] = warp_sum(acc[t][l]);
		if constexpr (NORM) {
			ss[t] = warp_sum(ss[t]);
			if (threadIdx.x % 32 == 0)
				partial[t][threadIdx.x / 32] = ss[t];
		}
	}
	if constexpr (NORM) {
		__syncthreads();
#pragma unroll
		for (int t = 0; t < ROWS_; t++) {
			ss[t] = 0.0f;
#pragma unroll
			for (int i = 0; i < WARPS_; i++)
				ss[t] += partial[t][i];
		}
	}
	return true;
}

// thread level: the value of acc that this lane stores: row lane / L, column lane % L
template <int ROWS_, int L> __device__ __forceinline__ float gemv_mine(const float (&acc)[ROWS_][L])
{
	static_assert(ROWS_ * L <= 32, "each sum is stored by one lane");
	float mine = 0.0f;
#pragma unroll
	for (int t = 0; t < ROWS_; t++)
#pragma unroll
		for (int l = 0; l < L; l++)
			if (threadIdx.x % 32 == t * L + l)
				mine = acc[t][l];
	return mine;
}

// What multiplies the sums of row t when a norm stands in front.
template <int ROWS_>
__device__ __forceinline__ float gemv_inverse_rms(const float (&ss)[ROWS_], int t, int k, float eps)
{
	float mine = 0.0f;
#pragma unroll
	for (int i = 0; i < ROWS_; i++)
		if (t == i)
			mine = ss[i];
	return rsqrtf(mine / k + eps);
}
