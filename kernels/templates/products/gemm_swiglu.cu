// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]), for
//           batches and prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times bf16(w), accumulated in f32 in ascending k; norm, biases, silu and product in f32;
//           one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM: 251 TFLOP/s at 2048 rows of 14336 x 4096, 40 % of what mma.sync can do; no spills
// codes     e4m3, e2m1 and u4 become bf16 exactly, e2m1 with the scale of its group, u4 less its zero; scales of blocks
//           and of groups of u4 multiply the f32 sums of their columns, those of rows the end. k is then added in
//           another fixed order (gemm_codes.cuh)
// tiles     a tile is admitted when at least 88 blocks are left to keep a large GPU busy (BN = 64 always is), and
//           when the next larger BM would leave fewer: larger tiles ask less of the L2 cache
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators and no value crosses threads
#include "shared/contract.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_swiglu, norm_swiglu)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 16)
DIM(K, 2048)
DIM(N, 8192)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(GATE_SCALE)
FLAG(GATE_ROW_SCALE)
FLAG(UP_SCALE)
FLAG(UP_ROW_SCALE)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(K % 8 == 0)
REQUIRE(WT_BITS >= 16 || K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !GATE_SCALE && !GATE_ROW_SCALE)
REQUIRE(WT_BITS != 8 || !GATE_SCALE || BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
REQUIRE(WT_BITS != 4 || GATE_SCALE && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))))
REQUIRE(GATE_SCALE == UP_SCALE && GATE_ROW_SCALE == UP_ROW_SCALE)
PREFER(ROWS >= 9)
REQUIRE(BM == 16 || ROWS > BM / 2)
REQUIRE(BN == 64 || ceil_div(ROWS, BM) * ceil_div(N, BN / 2) >= 88)
REQUIRE(BM == 128 || ROWS <= BM || ceil_div(ROWS, 2 * BM) * ceil_div(N, 32) < 88)
ORDER(gemm)
GRID(ceil_div(ROWS, BM), ceil_div(N, BN / 2), 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * ((WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144) + 256))
READS(ceil_div(ROWS, BM) * 2 * (N * K * WT_BITS / 8
	+ GATE_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8 + GATE_ROW_SCALE * N * 4)
	+ K * NT_BYTES + ceil_div(N, BN / 2) * ROWS * K * 2
	+ (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(4 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN_IF(GATE_SCALE, ST, gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(GATE_ROW_SCALE, f32, gate_row_scale, "N");
	IN_IF(UP_SCALE, ST, up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(UP_ROW_SCALE, f32, up_row_scale, "N");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_swiglu(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	using T = Tile<BM, BN>;
	using C = Codes<WT, GATE_SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * (BN / 2);
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, true, NORM_ONE != 0, C>(
		ring,
		[&](int r) {
			const bool exists = ROWS % BM == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const int n = n0 + r / 16 * 8 + r % 8;
			const bool exists = N % (BN / 2) == 0 || n < N;
			return Row<WT> { (r / 8 % 2 ? a.up : a.gate) + (exists ? i64(n) * row_units<WT, K> : 0), exists };
		},
		[&](int r) {
			return scale_row<C, N, K, BN / 2>(r / 8 % 2 ? a.up_scale : a.gate_scale, n0 + r / 16 * 8 + r % 8);
		},
		a.norm, float(EPS), acc, scale);

	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = t0 + warp % T::warps_m * T::warp_m, c0 = n0 + warp / T::warps_m * (T::warp_n / 2);
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				const int t = m0 + m * 16 + g + 8 * i, n = c0 + j * 4 + 2 * q;
				if (t >= ROWS || n >= N)
					continue;
				const bool both = n + 1 < N;
				float y[2];
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float gate = acc[m][j][2 * i + e] * scale[m][i], up = acc[m][j + 1][2 * i + e] * scale[m][i];
					const int at = both ? n + e : n;
					if constexpr (GATE_ROW_SCALE && UP_ROW_SCALE) {
						gate *= a.gate_row_scale[at];
						up *= a.up_row_scale[at];
					}
					if constexpr (GATE_BIAS)
						gate += to_f32(a.gate_bias[at]);
					if constexpr (UP_BIAS)
						up += to_f32(a.up_bias[at]);
					y[e] = gate / (1.0f + __expf(-gate)) * up;
				}
				store_pair(a.y + i64(t) * N + n, y[0], y[1], both, N % 2 == 0);
			}
}
