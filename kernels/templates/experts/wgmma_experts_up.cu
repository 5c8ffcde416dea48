// what      h[i,:] = share * (silu(gate x[i]) * (up x[i])) of the expert of row i, all codes of e4m3 with scales: x one
//           of each row and 128 columns, gate and up of each 128 x 128 block, of each row, or both; h_scale[n / 128, i]
//           = the largest |h| of its 128 columns / 448; for long prompts, whose rows are in order by expert, as
//           gather_codes leaves them. Rows that are not in use stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in ascending order; then scales of rows, silu, products and quotient in f32; h is never
//           rounded to bf16. Same bits every run; a row's bits do not depend on the other rows
// tiles     up to 128 rows of one expert x 128 columns of h, a stage of 128 columns (wgmma_experts.cuh)
// bytes     READS is what memory delivers: each expert once, rows from the L2 cache
// why       rows of codes ask half of the L2 cache and twice the rate of the tensor cores of what bf16 does
#include "experts/wgmma_experts_up.cuh"

KERNEL(wgmma_experts_up, experts_up_fp8)
DIM(SHARES, 8)
REQUIRE(SHARES == TOPK)
READS(min(EXPERTS, ROWS * TOPK) * (N * K + ROW_SCALE * N * 4
		+ SCALE * 2 * ceil_div(N / 2, 128) * ceil_div(K, 128) * ST_BYTES)
	+ ROWS * SHARES * (K + ceil_div(K, 128) * 4 + 8))
struct Args {
	TENSOR_MAP(x, x_map, 128, 128);
	TENSOR_MAP(gate_up, gate_up_map, 128, 128);
	IN(i32, step, "4");
	IN(e4m3, x, "ROWS * SHARES, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS * SHARES");
	IN(f32, share, "ROWS, SHARES");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
	OUT(e4m3, h, "ROWS * SHARES, N / 2");
	OUT(f32, h_scale, "ceil_div(N / 2, 128), ROWS * SHARES");
};

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_experts_up(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const ExpertMatrix<ST, ST> m = { &a.gate_up_map, nullptr, a.gate_up_scale, nullptr };
	experts_up<ROWS, K, EXPERTS, N, TOPK, false, SCALE != 0, false>(a, ring, m, a.gate_up_row_scale, nullptr);
}
