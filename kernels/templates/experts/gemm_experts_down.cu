// what      y[t,j,:] = (down of row t's j-th expert) h[t, part j], the shared expert's last; for batches and prompts,
//           whose pairs of row and expert stand in order by expert. Rows beyond step[0] stay as they are
// numerics  h times bf16(w), accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// codes     e4m3 and e2m1 become bf16 exactly, e2m1 with the scale of its group; scales of blocks multiply the f32
//           sums of their columns, those of rows the end (gemm_codes.cuh)
// tiles     as in gemm_experts_up
// bytes     READS is what tiles ask for if pairs are spread evenly
// measured  H100 SXM, 128 experts of 2048 x 768, 8 a row, 2048 rows: FP8 121 TFLOP/s, bf16 151; 32 rows of FP8 82 % of
//           the read rate
// why       a row's experts are in different tiles: their sum, in the row's own order, is sum_experts'
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_experts_down, experts_down_rows)
#define UP 0
#define LISTED 1
#define ALIKE 0
#define BIASED 0
DIM(ROWS, 512)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 512)
DIM(WIDTH, 4096)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1)
DTYPES(SWT, bf16, f16, f32, e4m3, e2m1)
#include "experts/experts_contract.cuh"
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(EXPERTS <= 1024)
REQUIRE(BM == (ROWS * TOPK <= 16 * EXPERTS ? 16 : ROWS * TOPK <= 40 * EXPERTS ? 32
	: ROWS * TOPK <= 128 * EXPERTS ? 64 : 128))
REQUIRE(N % 8 == 0 && WIDTH % 8 == 0 && (WT_BITS >= 16 || N * WT_BITS % 128 == 0))
REQUIRE(SWT_BITS >= 16 || (WIDTH - TOPK * N) * SWT_BITS % 128 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K >= N || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || SHARED_BLOCK_K >= WIDTH - TOPK * N
	|| SHARED_BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
ORDER(gemm)
GRID(((ROWS * TOPK + min(EXPERTS, ROWS * TOPK) * (BM - 1)) / BM + SHARED * ceil_div(ROWS, BM)) * ceil_div(K, BN), 1, 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * (max(WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144,
	SHARED * (SWT_BITS < 16 ? BM * 128 + BN * 8 * SWT_BITS : (BM + BN) * 144)) + 256))
READS(max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, BM)) * each_bytes()
	+ SHARED * ceil_div(ROWS, BM) * shared_bytes() + ROWS * WIDTH * ceil_div(K, BN) * 2 + ROWS * TOPK * 4)

__shared__ int pairs[BM]; // of the tile: t * (TOPK + SHARED) + j, -1 = there is no such

// block level: a tile of y of an expert whose rows have N_ columns
template <class C, int N_, bool BY_ROW>
__device__ __forceinline__ void down_tile(const Args &a, uint4 *ring, const typename C::W *w,
	const typename C::Scale *scales, const float *by_row, int n0)
{
	using T = Tile<BM, BN>;
	constexpr int shares = TOPK + SHARED;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, N_, false, false, C>(
		ring,
		[&](int r) {
			const int p = pairs[r];
			return Row<bf16> { a.h + (p < 0 ? 0 : i64(p / shares) * WIDTH + p % shares * N), p >= 0 };
		},
		[&](int r) {
			const bool exists = K % BN == 0 || n0 + r < K;
			return Row<typename C::W> { w + (exists ? i64(n0 + r) * row_units<typename C::W, N_> : 0), exists };
		},
		[&](int r) { return scale_row<C, K, N_, BN>(scales, n0 + r); },
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int p = pairs[r], n = n0 + c;
		if (p < 0 || n >= K)
			return;
		const bool both = n + 1 < K;
		if constexpr (C::bits < 16) {
			lo *= s;
			hi *= s;
		}
		if constexpr (BY_ROW) {
			lo *= by_row[n];
			hi *= by_row[both ? n + 1 : n];
		}
		store_pair(a.y + i64(p) * K + n, lo, hi, both, K % 2 == 0);
	});
}

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_down(const Args a)
{
	using C = Codes<WT, SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	constexpr int shares = TOPK + SHARED, across = ceil_div(K, BN);
	constexpr int shared_blocks = SHARED * ceil_div(ROWS, BM) * across;
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int rows = min(a.step[0], ROWS), n0 = blockIdx.x % across * BN;
	if constexpr (SHARED) {
		using D = Codes<SWT, SHARED_SCALE != 0, SST, SHARED_BLOCK_N, SHARED_BLOCK_K>;
		if (int(blockIdx.x) < shared_blocks) {
			const int t0 = blockIdx.x / across * BM;
			if (t0 >= rows)
				return;
			for (int r = threadIdx.x; r < BM; r += Tile<BM, BN>::threads)
				pairs[r] = t0 + r < rows ? (t0 + r) * shares + TOPK : -1;
			__syncthreads();
			down_tile<D, WIDTH - TOPK * N, SHARED_ROW_SCALE != 0>(a, ring, a.shared_down, a.shared_down_scale,
				a.shared_down_row_scale, n0);
			return;
		}
	}
	const ExpertTile tile = expert_tile<EXPERTS, BM>(a.first, (int(blockIdx.x) - shared_blocks) / across);
	if (tile.expert < 0)
		return;
	for (int r = threadIdx.x; r < BM; r += Tile<BM, BN>::threads) {
		const int p = r < tile.count ? a.pair[tile.start + r] : -1;
		pairs[r] = p < 0 ? -1 : p / TOPK * shares + p % TOPK;
	}
	__syncthreads();
	const int e = tile.expert;
	down_tile<C, N, ROW_SCALE != 0>(a, ring, matrix_at<WT, K, N>(a.down, e),
		scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, e), ROW_SCALE ? a.down_row_scale + i64(e) * K : nullptr, n0);
}
