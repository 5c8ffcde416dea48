// what      y[t,j,:] = (down of row t's j-th expert) h[t, part j] + share[t,j] times its bias, pairs of row and expert
//           in order by expert. Rows in no pair stay as they are
// numerics  h times bf16(w), accumulated in f32 in ascending k, to which the bias is added; one rounding. Same bits
//           every run; a row's bits do not depend on the other rows
// codes     e2m1 become bf16 exactly, with the scale of their group (gemm_codes.cuh)
// tiles     as in gemm_experts_up
// bytes     READS is what tiles ask for if pairs are spread evenly
// measured  not yet: no GPU has run it
// why       a row's experts are in different tiles: their sum, in the row's own order, is sum_terms'
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_experts_down_biased, experts_down_biased)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
DIM(K, 2880)
DIM(EXPERTS, 32)
DIM(N, 2880)
DIM(WIDTH, 11520)
DIM(SHARES, 4)
ATTR_INT(TOPK, 4)
ATTR_INT(BLOCK_N, 1)
ATTR_INT(BLOCK_K, 32)
FLAG(SCALE)
DTYPES(WT, bf16, f16, f32, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(EXPERTS <= 1024 && TOPK <= EXPERTS && SHARES == TOPK && WIDTH == TOPK * N)
REQUIRE(BM == (ROWS * TOPK <= 16 * EXPERTS ? 16 : ROWS * TOPK <= 40 * EXPERTS ? 32
	: ROWS * TOPK <= 128 * EXPERTS ? 64 : 128))
REQUIRE(N % 8 == 0 && (WT_BITS >= 16 || N * WT_BITS % 128 == 0))
REQUIRE(WT_BITS != 4 ? !SCALE : SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
ORDER(gemm)
GRID((ROWS * TOPK + min(EXPERTS, ROWS * TOPK) * (BM - 1)) / BM * ceil_div(K, BN), 1, 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * ((WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144) + 256))
READS(max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, BM))
		* (N * K * WT_BITS / 8 + SCALE * K * ceil_div(N, max(BLOCK_K, 1)) * ST_BITS / 8 + K * BT_BYTES)
	+ ROWS * (WIDTH * ceil_div(K, BN) * 2 + TOPK * 8))
WRITES(ROWS * SHARES * K * 2)
FLOPS(2 * ROWS * WIDTH * K)
struct Args {
	IN(bf16, h, "ROWS, WIDTH");
	IN(f32, share, "ROWS, TOPK");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, down, "EXPERTS, K, N");
	IN_IF(SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)");
	IN(BT, down_bias, "EXPERTS, K");
	OUT(bf16, y, "ROWS, SHARES, K");
};

__shared__ int pairs[BM]; // of the tile: t * TOPK + j, -1 = there is no such

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_down_biased(const Args a)
{
	using C = Codes<WT, SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	using T = Tile<BM, BN>;
	constexpr int across = ceil_div(K, BN);
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const ExpertTile tile = expert_tile<EXPERTS, BM>(a.first, int(blockIdx.x) / across);
	const int n0 = int(blockIdx.x) % across * BN, e = tile.expert;
	if (e < 0)
		return;
	for (int r = threadIdx.x; r < BM; r += T::threads)
		pairs[r] = r < tile.count ? a.pair[tile.start + r] : -1;
	__syncthreads();
	const WT *const w = matrix_at<WT, K, N>(a.down, e);
	const ST *const scales = scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, e);
	const BT *const bias = a.down_bias + i64(e) * K;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, N, false, false, C>(
		ring,
		[&](int r) {
			const int p = pairs[r];
			return Row<bf16> { a.h + (p < 0 ? 0 : i64(p) * N), p >= 0 };
		},
		[&](int r) {
			const bool exists = K % BN == 0 || n0 + r < K;
			return Row<WT> { w + (exists ? i64(n0 + r) * row_units<WT, N> : 0), exists };
		},
		[&](int r) { return scale_row<C, K, N, BN>(scales, n0 + r); },
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int p = pairs[r], n = n0 + c;
		if (p < 0 || n >= K)
			return;
		const bool both = n + 1 < K;
		const float share = a.share[p];
		if constexpr (C::bits < 16) {
			lo *= s;
			hi *= s;
		}
		lo = fmaf(share, to_f32(bias[n]), lo);
		hi = fmaf(share, to_f32(bias[both ? n + 1 : n]), hi);
		store_pair(a.y + i64(p) * K + n, lo, hi, both, K % 2 == 0);
	});
}
