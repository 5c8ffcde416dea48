// gemm.cuh - tiles of x w^T on the tensor cores, for many rows.
//
// A block computes BM rows of x against BN rows of w. Both stream through a ring of tiles of 64 columns, filled by
// cp.async all but one stage ahead; a weight that is not bf16 goes through registers and is rounded on the way.
// Warp tiles are as large as registers allow: at 32 x 64 reading fragments already takes all of shared memory's
// rate, at 64 x 64 two thirds. Short BM are bound by the weights' bandwidth and take more, smaller warps.
//
// A norm in front costs no pass of its own: as fragments of x leave shared memory they become bf16(x * norm), and
// each warp sums the squares of its rows on the way; 1 / rms multiplies the accumulators at the end.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
//
// Ring, one stage: x tile (BM rows), w tile (BN rows), 64 norm weights of up to 4 bytes.
#pragma once
#include "shared/mma.cuh"

// For contracts, of a tile of bm rows of x by bn of w, of which an element has `bits`.
FORMULA(gemm_threads(int bm, int bn),
	32 * (bm / min(bm, bm == 128 ? 64 : 32)) * (bn / (bm < 64 || (bm == 128 && bn == 64) ? 32 : 64)))
FORMULA(gemm_ring(int bm, int bn, int bits),
	(bm <= 32 ? (bn == 64 ? 8 : 4) : 3) * ((bits < 16 ? bm * 128 + bn * 8 * bits : (bm + bn) * 144) + 256))

template <int BM_, int BN_> struct Tile {
	// small tiles are few bytes each and often few blocks: a deep ring keeps enough of them under way
	static constexpr int stages = BM_ <= 32 ? (BN_ == 64 ? 8 : 4) : 3;
	static constexpr int bk = 64, stride = tile_stride(bk), norm_bytes = 256;
	static constexpr int warp_m = BM_ == 128 ? 64 : BM_ < 32 ? BM_ : 32; // a warp's part
	static constexpr int warp_n = BM_ < 64 || (BM_ == 128 && BN_ == 64) ? 32 : 64;
	static constexpr int warps_m = BM_ / warp_m, warps_n = BN_ / warp_n, threads = 32 * warps_m * warps_n;
	static constexpr int m_tiles = warp_m / 16, n_tiles = warp_n / 8; // mma tiles of a warp
	static constexpr int stage_bytes = (BM_ + BN_) * stride + norm_bytes;
	static_assert(BM_ % 16 == 0 && BM_ % warp_m == 0 && BN_ % warp_n == 0, "tiles are whole warp tiles");
};

// A row of an operand: where it starts, and whether it exists. One that does not reads as zeros; its address must
// be that of some element all the same.
template <class E> struct Row {
	const E *start;
	bool exists;
};

// thread level: ROWS_ rows of an operand into the ring, by cp.async when they are bf16 already. A thread keeps its
// column and goes down in equal steps, so that addresses differ by constants.
template <class T, int ROWS_, int K_, class E, class Rows>
__device__ __forceinline__ void gemm_fill(u32 tile, Rows row, int k0)
{
	constexpr int step = T::threads / 8, count = (ROWS_ + step - 1) / step;
	const int r0 = threadIdx.x / 8, piece = threadIdx.x % 8;
	const bool in_k = K_ % T::bk == 0 || k0 + piece * 8 < K_;
	const int k = in_k ? k0 + piece * 8 : 0;
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int r = r0 + i * step;
		if (ROWS_ % step && r >= ROWS_)
			break;
		const Row<E> src = row(r);
		const bool inside = src.exists && in_k;
		const u32 to = tile + r * T::stride + piece * 16;
		if constexpr (same_type<E, bf16>::value) {
			copy_async(to, src.start + k, inside);
		} else {
			float v[8] = {};
			if (inside)
				unpack(load8_once(src.start + k), v);
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

// warp level: a fragment of x times the norm weights of its columns: n[0], n[1] and GAP_ further; ss gains the squares
// of rows g and g + 8. bf16 weights multiply in pairs: x * w + -0 is their product, rounded once.
template <bool ONE, int GAP_, class Norm>
__device__ __forceinline__ void gemm_norm_fragment(u32 (&a)[4], const Norm *n, float (&ss)[2])
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const float lo = low_bf16(a[i]), hi = high_bf16(a[i]);
		ss[i % 2] = fmaf(lo, lo, fmaf(hi, hi, ss[i % 2]));
		if constexpr (same_type<Norm, bf16>::value && !ONE) {
			const u32 pair = *reinterpret_cast<const u32 *>(n + i / 2 * GAP_);
			asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(a[i]) : "r"(a[i]), "r"(pair), "r"(0x80008000u));
		} else {
			a[i] = pack_bf16(lo * ((ONE ? 1.0f : 0.0f) + to_f32(n[i / 2 * GAP_])),
				hi * ((ONE ? 1.0f : 0.0f) + to_f32(n[i / 2 * GAP_ + 1])));
		}
	}
}

// warp level: 1 / rms of the rows whose squares these are sums of, a part in each lane
template <int BM_, int BN_, int K_, bool NORM>
__device__ __forceinline__ void gemm_scales(const float (&ss)[Tile<BM_, BN_>::m_tiles][2], float eps,
	float (&scale)[Tile<BM_, BN_>::m_tiles][2])
{
#pragma unroll
	for (int m = 0; m < Tile<BM_, BN_>::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float s = ss[m][i];
			s += __shfl_xor_sync(~0u, s, 1);
			s += __shfl_xor_sync(~0u, s, 2);
			scale[m][i] = NORM ? rsqrtf(s / K_ + eps) : 1.0f;
		}
}

// block level: acc += x w^T over all of K; scale[m][i] = 1 / rms of row g + 8 i of m16 tile m, or 1 without a norm.
//   x_row(r)  Row<bf16> of row r of the block's BM      w_row(r)  Row<W> of row r of its BN
template <int BM_, int BN_, int K_, bool NORM, bool ONE, class W, class Norm, class XRow, class WRow>
__device__ __forceinline__ void gemm(uint4 *ring, XRow x_row, WRow w_row, const Norm *norm, float eps,
	float (&acc)[Tile<BM_, BN_>::m_tiles][Tile<BM_, BN_>::n_tiles][4],
	float (&scale)[Tile<BM_, BN_>::m_tiles][2])
{
	using T = Tile<BM_, BN_>;
	static_assert(K_ % 8 == 0, "rows are read 16 bytes at a time");
	constexpr int steps = (K_ + T::bk - 1) / T::bk, w_at = BM_ * T::stride, norm_at = w_at + BN_ * T::stride;
	const u32 base = shared_address(ring);
	const int warp = threadIdx.x / 32;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
	float ss[T::m_tiles][2] = {};

	auto fill = [&](int step, int slot) {
		if (step < steps) {
			const u32 stage = base + slot * T::stage_bytes;
			gemm_fill<T, BM_, K_, bf16>(stage, x_row, step * T::bk);
			gemm_fill<T, BN_, K_, W>(stage + w_at, w_row, step * T::bk);
			if constexpr (NORM)
				gemm_fill_norm<T, K_>(stage + norm_at, norm, step * T::bk);
		}
		copy_commit();
	};
	for (int s = 0; s < T::stages - 1; s++)
		fill(s, s);
	u32 a[2][T::m_tiles][4], b[2][T::n_tiles / 2][4]; // this k16 and the next
	int slot = 0;
	for (int step = 0; step < steps; step++) {
		copy_wait<T::stages - 2>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the stage filled next
		fill(step + T::stages - 1, slot == 0 ? T::stages - 1 : slot - 1);
		const u32 stage = base + slot * T::stage_bytes;
		const Norm *weights =
			reinterpret_cast<const Norm *>(reinterpret_cast<const char *>(ring) + slot * T::stage_bytes + norm_at);
		auto fragments = [&](int kk) {
			const int to = kk / 16 % 2;
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++)
				load_a(a[to][m], stage, T::stride, m0 + m * 16, kk);
#pragma unroll
			for (int j = 0; j < T::n_tiles / 2; j++)
				load_b(b[to][j], stage + w_at, T::stride, n0 + j * 16, kk);
		};
		fragments(0);
#pragma unroll
		for (int kk = 0; kk < T::bk; kk += 16) {
			const int now = kk / 16 % 2;
			if (kk + 16 < T::bk)
				fragments(kk + 16);
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++) {
				if constexpr (NORM)
					gemm_norm_fragment<ONE, 8>(a[now][m], weights + kk + threadIdx.x % 4 * 2, ss[m]);
#pragma unroll
				for (int j = 0; j < T::n_tiles; j++)
					mma(acc[m][j], a[now][m], b[now][j / 2][j % 2 * 2], b[now][j / 2][j % 2 * 2 + 1]);
			}
		}
		slot = slot + 1 == T::stages ? 0 : slot + 1;
	}
	gemm_scales<BM_, BN_, K_, NORM>(ss, eps, scale);
}

// warp level: calls f(row, column, value of column, value of column + 1, scale of the row) for every pair of sums,
// row and column counted in the block's tile
template <int BM_, int BN_, class F>
__device__ __forceinline__ void gemm_each(
	const float (&acc)[Tile<BM_, BN_>::m_tiles][Tile<BM_, BN_>::n_tiles][4],
	const float (&scale)[Tile<BM_, BN_>::m_tiles][2], F f)
{
	using T = Tile<BM_, BN_>;
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
