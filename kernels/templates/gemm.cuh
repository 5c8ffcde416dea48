// gemm.cuh - tiles of x w^T on the tensor cores, for many rows.
//
// A block computes BM rows of x against BN rows of w. Both stream through a ring of STAGES tiles of 64 columns,
// filled by cp.async STAGES - 1 ahead; a weight that is not bf16 goes through registers and is rounded on the way.
// Warp tiles are 32 x 64 (16 or 32 x 32 for short BM, where the weights' bandwidth is the bound, not the cores).
//
// A norm in front costs no pass of its own: as fragments of x leave shared memory they become bf16(x * norm), and
// each warp sums the squares of its rows on the way; 1 / rms multiplies the accumulators at the end.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
//
// Ring, one stage: x tile (BM rows), w tile (BN rows), 64 norm weights of up to 4 bytes. In contracts:
//   SMEM(STAGES * ((BM + BN) * 144 + 256))
//   BLOCK(32 * (BM / min(BM, 32)) * (BN / (BM >= 64 ? 64 : 32)))
#pragma once
#include "mma.cuh"

template <int BM_, int BN_, int STAGES_> struct Tile {
	static constexpr int bk = 64, stride = tile_stride(bk), norm_bytes = 256;
	static constexpr int warp_m = BM_ < 32 ? BM_ : 32, warp_n = BM_ >= 64 ? 64 : 32; // a warp's part
	static constexpr int warps_m = BM_ / warp_m, warps_n = BN_ / warp_n, threads = 32 * warps_m * warps_n;
	static constexpr int m_tiles = warp_m / 16, n_tiles = warp_n / 8; // mma tiles of a warp
	static constexpr int stage_bytes = (BM_ + BN_) * stride + norm_bytes;
	static_assert(BM_ % 16 == 0 && BM_ % warp_m == 0 && BN_ % warp_n == 0, "tiles are whole warp tiles");
	static_assert(STAGES_ >= 2, "one stage is filled while another is read");
};

// thread level: rows of x (r = 0..BM-1, NULL = zeros) into the ring
template <class T, int BM_, int K_, class Row>
__device__ __forceinline__ void gemm_fill_x(u32 tile, Row row, const bf16 *any, int k0)
{
	constexpr int pieces = BM_ * 8;
#pragma unroll
	for (int i = 0; i < (pieces + T::threads - 1) / T::threads; i++) {
		const int p = threadIdx.x + i * T::threads, r = p / 8, k = k0 + p % 8 * 8;
		if (pieces % T::threads && p >= pieces)
			break;
		const bf16 *src = row(r);
		const bool inside = src && (K_ % T::bk == 0 || k < K_);
		copy_async(tile + r * T::stride + p % 8 * 16, inside ? src + k : any, inside);
	}
}

// thread level: rows of w into the ring, by cp.async when they are bf16 already
template <class T, int BN_, int K_, class W, class Row>
__device__ __forceinline__ void gemm_fill_w(u32 tile, Row row, const W *any, int k0)
{
	constexpr int pieces = BN_ * 8;
#pragma unroll
	for (int i = 0; i < (pieces + T::threads - 1) / T::threads; i++) {
		const int p = threadIdx.x + i * T::threads, r = p / 8, k = k0 + p % 8 * 8;
		if (pieces % T::threads && p >= pieces)
			break;
		const W *src = row(r);
		const bool inside = src && (K_ % T::bk == 0 || k < K_);
		const u32 to = tile + r * T::stride + p % 8 * 16;
		if constexpr (same_type<W, bf16>::value) {
			copy_async(to, inside ? src + k : any, inside);
		} else {
			float v[8] = {};
			if (inside)
				unpack(load8_once(src + k), v);
			store_shared(to, pack8(v));
		}
	}
}

template <class T, int K_, class Norm> __device__ __forceinline__ void gemm_fill_norm(u32 to, const Norm *norm, int k0)
{
	constexpr int per_piece = 16 / int(sizeof(Norm));
	if (threadIdx.x < T::bk / per_piece) {
		const int k = k0 + int(threadIdx.x) * per_piece;
		copy_async(to + threadIdx.x * 16, k < K_ ? norm + k : norm, k < K_);
	}
}

// warp level: a fragment of x times the norm weights n[0..3] of its columns 2q, 2q + 1, 2q + 8, 2q + 9;
// ss gains the squares of rows g and g + 8
template <bool ONE>
__device__ __forceinline__ void gemm_norm_fragment(u32 (&a)[4], const float (&n)[4], float (&ss)[2])
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const float lo = low_bf16(a[i]), hi = high_bf16(a[i]);
		ss[i % 2] = fmaf(lo, lo, fmaf(hi, hi, ss[i % 2]));
		a[i] = pack_bf16(lo * n[i / 2 * 2], hi * n[i / 2 * 2 + 1]);
	}
}

// block level: acc += x w^T over all of K; scale[m][i] = 1 / rms of row g + 8 i of m16 tile m, or 1 without a norm.
//   x_row(r)  row r of the block's BM, NULL = zeros      w_row(r)  row r of its BN, NULL = zeros
//   any_x, any_w   valid addresses of 16 bytes, read by nobody
template <int BM_, int BN_, int STAGES_, int K_, bool NORM, bool ONE, class W, class Norm, class XRow, class WRow>
__device__ __forceinline__ void gemm(uint4 *ring, XRow x_row, const bf16 *any_x, WRow w_row, const W *any_w,
	const Norm *norm, float eps, float (&acc)[Tile<BM_, BN_, STAGES_>::m_tiles][Tile<BM_, BN_, STAGES_>::n_tiles][4],
	float (&scale)[Tile<BM_, BN_, STAGES_>::m_tiles][2])
{
	using T = Tile<BM_, BN_, STAGES_>;
	static_assert(K_ % 8 == 0, "rows are read 16 bytes at a time");
	constexpr int steps = (K_ + T::bk - 1) / T::bk, w_at = BM_ * T::stride, norm_at = w_at + BN_ * T::stride;
	const u32 base = shared_address(ring);
	const int warp = threadIdx.x / 32, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
	float ss[T::m_tiles][2] = {};

	auto fill = [&](int step) {
		if (step < steps) {
			const u32 stage = base + step % STAGES_ * T::stage_bytes;
			gemm_fill_x<T, BM_, K_>(stage, x_row, any_x, step * T::bk);
			gemm_fill_w<T, BN_, K_>(stage + w_at, w_row, any_w, step * T::bk);
			if constexpr (NORM)
				gemm_fill_norm<T, K_>(stage + norm_at, norm, step * T::bk);
		}
		copy_commit();
	};
	for (int s = 0; s < STAGES_ - 1; s++)
		fill(s);
	for (int step = 0; step < steps; step++) {
		copy_wait<STAGES_ - 2>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the stage filled next
		fill(step + STAGES_ - 1);
		const u32 stage = base + step % STAGES_ * T::stage_bytes;
		const Norm *ns = reinterpret_cast<const Norm *>(reinterpret_cast<const char *>(ring)
			+ step % STAGES_ * T::stage_bytes + norm_at);
#pragma unroll
		for (int kk = 0; kk < T::bk; kk += 16) {
			u32 a[T::m_tiles][4];
			float n[4];
			if constexpr (NORM)
#pragma unroll
				for (int i = 0; i < 4; i++)
					n[i] = (ONE ? 1.0f : 0.0f) + to_f32(ns[kk + i / 2 * 8 + 2 * q + i % 2]);
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++) {
				load_a(a[m], stage, T::stride, m0 + m * 16, kk);
				if constexpr (NORM)
					gemm_norm_fragment<ONE>(a[m], n, ss[m]);
			}
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				u32 b[4];
				load_b(b, stage + w_at, T::stride, n0 + j * 8, kk);
#pragma unroll
				for (int m = 0; m < T::m_tiles; m++) {
					mma(acc[m][j], a[m], b[0], b[1]);
					mma(acc[m][j + 1], a[m], b[2], b[3]);
				}
			}
		}
	}
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float s = ss[m][i];
			s += __shfl_xor_sync(~0u, s, 1);
			s += __shfl_xor_sync(~0u, s, 2);
			scale[m][i] = NORM ? rsqrtf(s / K_ + eps) : 1.0f;
		}
}

// warp level: calls f(row, column, value of column, value of column + 1, scale of the row) for every pair of sums,
// row and column counted in the block's tile
template <int BM_, int BN_, int STAGES_, class F>
__device__ __forceinline__ void gemm_each(const float (&acc)[Tile<BM_, BN_, STAGES_>::m_tiles][Tile<BM_, BN_, STAGES_>::n_tiles][4],
	const float (&scale)[Tile<BM_, BN_, STAGES_>::m_tiles][2], F f)
{
	using T = Tile<BM_, BN_, STAGES_>;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++)
				f(m0 + m * 16 + g + 8 * i, n0 + j * 8 + 2 * q, acc[m][j][2 * i], acc[m][j][2 * i + 1], scale[m][i]);
}

// Stores two neighbours of a row, one when the second is past the end.
__device__ __forceinline__ void store_pair(bf16 *p, float lo, float hi, bool both, bool aligned)
{
	if (both && aligned) {
		*reinterpret_cast<u32 *>(p) = pack_bf16(lo, hi);
	} else {
		store(p, lo);
		if (both)
			store(p + 1, hi);
	}
}
