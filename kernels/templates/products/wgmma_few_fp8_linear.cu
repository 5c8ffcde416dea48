// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each
//           row and 128 columns, w of each 128 x 128 block, of each row, or both; for up to 256 rows; rows beyond
//           step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; then scales of rows,
//           bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  not yet
// tiles     64 or 128 x BN, a stage of 128 columns. Where tiles are few, SPLIT blocks divide the columns of one
// bytes     READS is what memory delivers: blocks of one column of tiles share their operands in the L2 cache
// why       as wgmma_few_linear
#include "shared/contract.cuh"
#include "products/wgmma_few_fp8.cuh"

KERNEL(wgmma_few_fp8_linear, linear_rows)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
DIM(ROWS, 128)
DIM(K, 4096)
DIM(N, 6144)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 128, 64)
TUNE(SPLIT, 1, 2, 3, 4)
REQUIRE(K % 16 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS <= 256)
REQUIRE(!W_SCALE || BLOCK_N == 128 && BLOCK_K == 128)
REQUIRE(K > 128 * (SPLIT - 1))
REQUIRE(SPLIT == 1 || SPLIT * ceil_div(ROWS, ROWS <= 64 ? 64 : 128) * ceil_div(N, BN) <= SMS)
ORDER(wgmma_few_fp8, SPLIT)
GRID(SPLIT * ceil_div(ROWS, ROWS <= 64 ? 64 : 128) * ceil_div(N, BN), 1, 1)
BLOCK(384)
SMEM(231424)
READS(N * K + W_SCALE * ceil_div(N, 128) * ceil_div(K, 128) * ST_BYTES + W_ROW_SCALE * N * 4
	+ ROWS * (K + ceil_div(K, 128) * 4) + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
RATE(BN == 128 ? 43 : 30)
struct Args {
	TENSOR_MAP(x, x_map, ROWS <= 64 ? 64 : 128, 128);
	TENSOR_MAP(w, w_map, ROWS <= 64 ? BN / 2 : BN, 128);
	IN(i32, step, "4");
	IN(e4m3, x, "ROWS, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_fp8_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	using P = FewProducts<ROWS, K, N, BN, SPLIT, 1, 128>;
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map } };
	few_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			few_multiply_codes<P, ROWS, N>(stages, group, acc, a.x_scale, W_SCALE ? a.w_scale : nullptr);
		}, [](int, int, int) {},
		[&](int, int t, int n, const float (&v)[4][2]) {
			few_store<N>(a.y, rows, t, n, v, W_ROW_SCALE ? a.w_row_scale : nullptr, nullptr, BIAS ? a.bias : nullptr);
		});
}
