// what      y[t,j,:] = (down of row t's j-th expert) h of that pair, codes of e4m3 with scales: h one of each row and
//           128 columns, down of each 128 x 128 block, of each row, or both; for long prompts, whose rows of h are in
//           order by expert. Rows that are not in use stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in ascending order; then scales of rows; one rounding. Same bits every run; a row's bits do
//           not depend on the other rows
// tiles     up to 128 rows of one expert x 256 columns of y, a stage of 128 columns (wgmma_experts.cuh)
// bytes     READS is what memory delivers: each expert once, rows from the L2 cache
// why       a row's experts are in different tiles: their sum, in the row's own order, is sum_experts'
#include "experts/wgmma_experts_down.cuh"

KERNEL(wgmma_experts_down, experts_down_fp8)
DIM(SHARES, 8)
REQUIRE(SHARES == TOPK)
READS(min(EXPERTS, ROWS * TOPK) * (N * K + ROW_SCALE * K * 4 + SCALE * ceil_div(K, 128) * ceil_div(N, 128) * ST_BYTES)
	+ ROWS * SHARES * (N + ceil_div(N, 128) * 4 + 4))
struct Args {
	TENSOR_MAP(h, h_map, 128, 128);
	TENSOR_MAP(down, down_map, 256, 128);
	IN(i32, step, "4");
	IN(e4m3, h, "ROWS * SHARES, N");
	IN(f32, h_scale, "ceil_div(N, 128), ROWS * SHARES");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, down, "EXPERTS, K, N");
	IN_IF(SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, down_row_scale, "EXPERTS, K");
	OUT(bf16, y, "ROWS, SHARES, K");
};

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_experts_down(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const ExpertMatrix<ST, ST> m = { &a.down_map, nullptr, a.down_scale, nullptr };
	experts_down<ROWS, K, EXPERTS, N, TOPK, false, SCALE != 0, false>(a, ring, m, a.down_row_scale, nullptr);
}
