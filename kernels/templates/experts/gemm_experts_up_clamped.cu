// what      h[t,:] = for each of row t's experts share * (u + 1) * g * sigmoid(GATE_SLOPE g), where g and u are rows 2n
//           and 2n + 1 of gate_up n[t] + bias, g at most GATE_LIMIT and u at most as large; pairs of row and expert
//           stand in order by expert. Rows in no pair stay as they are
// numerics  n times bf16(w), accumulated in f32 in ascending k; bias, clamps, products and the share in f32; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// codes     e2m1 become bf16 exactly, with the scale of their group (gemm_codes.cuh)
// tiles     as in gemm_experts_up
// bytes     READS is what tiles ask for if pairs are spread evenly
// measured  not yet: no GPU has run it
// why       rows of gate and of up alternate in the checkpoint and stay as they are: the w tile takes eight even rows,
//           the eight odd ones between them and so on, then both halves of an output stand in one thread's accumulators
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/gemm_codes.cuh"
#include "shared/activation.cuh"

KERNEL(gemm_experts_up_clamped, experts_up_clamped)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
DIM(K, 2880)
DIM(EXPERTS, 32)
DIM(N, 5760)
DIM(WIDTH, 11520)
ATTR_INT(TOPK, 4)
ATTR_INT(BLOCK_N, 1)
ATTR_INT(BLOCK_K, 32)
ATTR_FLOAT(GATE_SLOPE, 1.702f)
ATTR_FLOAT(GATE_LIMIT, 7.0f)
FLAG(SCALE)
DTYPES(WT, bf16, f16, f32, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(EXPERTS <= 1024 && TOPK <= EXPERTS && N % 2 == 0 && WIDTH == TOPK * N / 2)
REQUIRE(BM == (ROWS * TOPK <= 16 * EXPERTS ? 16 : ROWS * TOPK <= 40 * EXPERTS ? 32
	: ROWS * TOPK <= 128 * EXPERTS ? 64 : 128))
REQUIRE(K % 8 == 0 && (WT_BITS >= 16 || K * WT_BITS % 128 == 0))
REQUIRE(WT_BITS != 4 ? !SCALE : SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
ORDER(gemm)
GRID((ROWS * TOPK + min(EXPERTS, ROWS * TOPK) * (BM - 1)) / BM * ceil_div(N, BN), 1, 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * ((WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144) + 256))
READS(max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, BM))
		* (N * K * WT_BITS / 8 + SCALE * N * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8 + N * BT_BYTES)
	+ ROWS * TOPK * (ceil_div(N, BN) * K * 2 + 8))
WRITES(ROWS * WIDTH * 2)
FLOPS(2 * ROWS * TOPK * N * K)
struct Args {
	IN(bf16, n, "ROWS, K");
	IN(f32, share, "ROWS, TOPK");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN(BT, gate_up_bias, "EXPERTS, N");
	OUT(bf16, h, "ROWS, WIDTH");
};

constexpr int width = N / 2;

__shared__ int pairs[BM]; // of the tile: t * TOPK + j, -1 = there is no such

// Row r of the w tile is this row of gate_up: eight of gate from n0 on, then as many of up.
__device__ __forceinline__ int row_of(int n0, int r) { return 2 * (n0 + r / 16 * 8 + r % 8) + r / 8 % 2; }

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_up_clamped(const Args a)
{
	using C = Codes<WT, SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	using T = Tile<BM, BN>;
	constexpr int across = ceil_div(N, BN);
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const ExpertTile tile = expert_tile<EXPERTS, BM>(a.first, int(blockIdx.x) / across);
	const int n0 = int(blockIdx.x) % across * (BN / 2), e = tile.expert;
	if (e < 0)
		return;
	for (int r = threadIdx.x; r < BM; r += T::threads)
		pairs[r] = r < tile.count ? a.pair[tile.start + r] : -1;
	__syncthreads();
	const WT *const w = matrix_at<WT, N, K>(a.gate_up, e);
	const ST *const scales = scales_at<1, N, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e);
	const BT *const bias = a.gate_up_bias + i64(e) * N;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, false, false, C>(
		ring,
		[&](int r) {
			const int p = pairs[r];
			return Row<bf16> { a.n + (p < 0 ? 0 : i64(p / TOPK) * K), p >= 0 };
		},
		[&](int r) {
			const int row = row_of(n0, r);
			const bool exists = N % BN == 0 || row < N;
			return Row<WT> { w + (exists ? row : 0) * row_units<WT, K>, exists };
		},
		[&](int r) { return scale_row<C, N, K, BN>(scales, row_of(n0, r)); },
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
			bf16 *const to = a.h + i64(p) * width;
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				const int n = c0 + j * 4 + 2 * q;
				if (n >= width)
					continue;
				const bool both = n + 1 < width;
				float y[2];
#pragma unroll
				for (int k = 0; k < 2; k++) {
					const int at = 2 * (both ? n + k : n);
					const float gate = fmaf(acc[m][j][2 * i + k], scale[m][i], to_f32(bias[at]));
					const float up = fmaf(acc[m][j + 1][2 * i + k], scale[m][i], to_f32(bias[at + 1]));
					const float g = gate > GATE_LIMIT ? GATE_LIMIT : gate; // a NaN stays one
					y[k] = (within(up, -GATE_LIMIT, GATE_LIMIT) + 1.0f) * g * sigmoid(GATE_SLOPE * g) * share;
				}
				store_pair(to + n, y[0], y[1], both, width % 2 == 0);
			}
		}
}
