// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for batches and prompts; rows beyond step[0]
//           stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// measured  H100 SXM: 191 TFLOP/s at 512 rows of 2048 x 8192, 30 % of what mma.sync can do; no spills
// codes     e4m3, e2m1 and u4 become bf16 exactly, e2m1 with the scale of its group, u4 less its zero; scales of blocks
//           and of groups of u4 multiply the f32 sums of their columns, those of rows the end. k is then added in
//           another fixed order (gemm_codes.cuh)
// tiles     a tile is admitted when at least 88 blocks are left to keep a large GPU busy (BN = 64 always is), and
//           when the next larger BM would leave fewer: larger tiles ask less of the L2 cache
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       mma.sync serves sm_80 to sm_121 with one text; tiles of rows that the step does not use are never started
#include "shared/contract.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_residual, linear_residual)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 16)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(K % 8 == 0)
REQUIRE(WT_BITS >= 16 || K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !W_SCALE && !W_ROW_SCALE)
REQUIRE(WT_BITS != 8 || !W_SCALE || BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
REQUIRE(WT_BITS != 4 || W_SCALE && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))))
PREFER(ROWS >= 9)
REQUIRE(BM == 16 || ROWS > BM / 2)
REQUIRE(BN == 64 || ceil_div(ROWS, BM) * ceil_div(N, BN) >= 88)
REQUIRE(BM == 128 || ROWS <= BM || ceil_div(ROWS, 2 * BM) * ceil_div(N, 64) < 88)
ORDER(gemm)
GRID(ceil_div(ROWS, BM), ceil_div(N, BN), 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * ((WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144) + 256))
READS(ceil_div(ROWS, BM) * (N * K * WT_BITS / 8
	+ W_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8 + W_ROW_SCALE * N * 4)
	+ ceil_div(N, BN) * ROWS * K * 2 + ROWS * N * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_residual(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	using T = Tile<BM, BN>;
	using C = Codes<WT, W_SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, false, false, C>(
		ring,
		[&](int r) {
			const bool exists = ROWS % BM == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const bool exists = N % BN == 0 || n0 + r < N;
			return Row<WT> { a.w + (exists ? i64(n0 + r) * row_units<WT, K> : 0), exists };
		},
		[&](int r) { return scale_row<C, N, K, BN>(a.w_scale, n0 + r); },
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int t = t0 + r, n = n0 + c;
		if (t >= ROWS || n >= N)
			return;
		const bool both = n + 1 < N;
		const i64 at = i64(t) * N + n;
		if constexpr (C::bits < 16) {
			lo *= s;
			hi *= s;
		}
		if constexpr (W_ROW_SCALE) {
			lo *= a.w_row_scale[n];
			hi *= a.w_row_scale[both ? n + 1 : n];
		}
		lo += to_f32(a.residual[at]);
		hi += both ? to_f32(a.residual[at + 1]) : 0.0f;
		if constexpr (BIAS) {
			lo += to_f32(a.bias[n]);
			hi += both ? to_f32(a.bias[n + 1]) : 0.0f;
		}
		store_pair(a.z + at, lo, hi, both, N % 2 == 0);
	});
}
