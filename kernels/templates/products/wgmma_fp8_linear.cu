// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each row and 128
//           columns, w of each 128 x 128 block, of each row, or both; for long prompts; rows beyond step[0] stay as
//           they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in ascending order; then scales of rows and bias; one rounding. Same bits every run; a
//           row's bits do not depend on the other rows
// measured  H200 SXM: 8192 cubed 1,110 TFLOP/s; 4096 rows, K=2048, N=7168 1,090; 2048 rows, K=4096, N=6144 1,080, where
//           wgmma_linear has 760 in bf16 on an H100. No spills, but 152 bytes with scales of both kinds and a bias
// tiles     128 x BN, a stage of 128 columns. BN = 256 asks least of the L2 cache and of shared memory; BN = 128 is for
//           launches that would leave multiprocessors without a tile. Blocks in pairs (CLUSTER) share each tile of w
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       a sum of a stage needs its own registers, so two halves of 128 columns are summed in turns (wgmma_fp8.cuh)
#include "shared/contract.cuh"
#include "products/wgmma_fp8.cuh"

KERNEL(wgmma_fp8_linear, linear_rows)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 256, 128)
TUNE(CLUSTER, 2, 1)
REQUIRE(K % 16 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS > 64)
REQUIRE(CLUSTER == 1 || ROWS > 128)
REQUIRE(!W_SCALE || BLOCK_N == 128 && BLOCK_K == 128)
ORDER(wgmma_fp8)
GRID(CLUSTER * min(SMS / CLUSTER, ceil_div(ceil_div(ROWS, 128), CLUSTER) * ceil_div(N, BN)), 1, 1)
BLOCK(384)
SMEM(230400 / ((128 + BN) * 128) * ((128 + BN) * 128) + 2048)
READS(N * K + W_SCALE * ceil_div(N, 128) * ceil_div(K, 128) * ST_BYTES + W_ROW_SCALE * N * 4
	+ ROWS * (K + ceil_div(K, 128) * 4) + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
PIECES(CLUSTER * ceil_div(ceil_div(ROWS, 128), CLUSTER) * ceil_div(N, BN))
RATE((BN == 256 ? 58 : 43)
	+ (CLUSTER == 2 ? 0 : ceil_div(ROWS, 128) * ceil_div(N, BN) <= SMS ? 1 : BN == 256 ? -5 : 0))
struct Args {
	TENSOR_MAP(x, x_map, 128, 128);
	TENSOR_MAP(w, w_map, BN / CLUSTER, 128);
	IN(i32, step, "4");
	IN(e4m3, x, "ROWS, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_fp8_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const Products<1> operands = { &a.x_map, { &a.w_map }, nullptr };
	const CodeScales<ST> scales[1] = { { a.w_scale, a.w_row_scale } };
	wgmma_code_products<BN, K, N, CLUSTER, ROWS, W_SCALE != 0>(ring, rows, operands, a.x_scale, scales,
		[&](auto &stages, int group, auto &acc, int t0, int n0) {
			if constexpr (W_ROW_SCALE)
				scale_columns<N>(acc, a.w_row_scale, n0);
			store_tile<N, BN / 8>(a.y + i64(t0) * N + n0, rows - t0, N - n0, [&](int i, int j) {
				float2 bias = {};
				if constexpr (BIAS)
					bias = bias_pair<N>(a.bias, n0 + j * 8 + threadIdx.x % 4 * 2);
				return pack_bf16(acc[j][2 * i] + bias.x, acc[j][2 * i + 1] + bias.y);
			});
		});
}
