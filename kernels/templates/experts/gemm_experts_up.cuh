// gemm_experts_up.cuh - what gemm_experts_up and gemm_experts_up_limited make of a tile: included after the contract,
// whose Args it reads.
#pragma once

__shared__ int pairs[BM]; // of the tile: t * shares + j, -1 = there is no such

// block level: a tile of h of an expert with N_ rows of gate and as many of up; a row has `shares` parts of h, which
// are gated(gate, up) times its share
template <class C, int N_, bool BY_ROW, int shares, class Gated>
__device__ __forceinline__ void gated_tile(const Args &a, uint4 *ring, const typename C::W *w,
	const typename C::Scale *scales, const float *by_row, int n0, Gated gated)
{
	using T = Tile<BM, BN>;
	constexpr int width = N / 2;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, false, false, C>(
		ring,
		[&](int r) {
			const int p = pairs[r];
			return Row<bf16> { a.n + (p < 0 ? 0 : i64(p / shares) * K), p >= 0 };
		},
		[&](int r) {
			const int n = n0 + r / 16 * 8 + r % 8;
			const bool exists = N_ % (BN / 2) == 0 || n < N_;
			const i64 row = exists ? n + r / 8 % 2 * N_ : 0;
			return Row<typename C::W> { w + row * row_units<typename C::W, K>, exists };
		},
		[&](int r) {
			const auto *own = scales + (r / 8 % 2 ? ceil_div(N_, C::block_n) * ceil_div(K, C::block_k) : 0);
			return scale_row<C, N_, K, BN / 2>(own, n0 + r / 16 * 8 + r % 8);
		},
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, c0 = n0 + warp / T::warps_m * (T::warp_n / 2);
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int p = pairs[m0 + m * 16 + g + 8 * i];
			if (p < 0)
				continue;
			const float share = a.share[p];
			bf16 *const to = a.h + i64(p / shares) * WIDTH + p % shares * width;
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				const int n = c0 + j * 4 + 2 * q;
				if (n >= N_)
					continue;
				const bool both = n + 1 < N_;
				float y[2];
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float gate = acc[m][j][2 * i + e] * scale[m][i], up = acc[m][j + 1][2 * i + e] * scale[m][i];
					if constexpr (BY_ROW) {
						gate *= by_row[both ? n + e : n];
						up *= by_row[N_ + (both ? n + e : n)];
					}
					y[e] = gated(gate, up) * share;
				}
				store_pair(to + n, y[0], y[1], both, WIDTH % 2 == 0 && width % 2 == 0);
			}
		}
}
