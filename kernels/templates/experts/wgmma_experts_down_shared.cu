// what      wgmma_experts_down, and the same of the expert that all rows go to: y[t,TOPK,:], of row ROWS * TOPK + t
//           of h
// numerics  as wgmma_experts_down
// tiles     as wgmma_experts_down; those of the shared expert come last
// measured  H200, 256 experts of 2048 x 512 and the shared one, 8 a row: 120 us at 2048 rows, 64 % of the read rate;
//           268 us at 8192, 577 TFLOP/s, of which tiles that are not full cost a fifth
// why       one launch, whose last tiles fill the multiprocessors that experts of few rows leave
#include "experts/wgmma_experts_down.cuh"

KERNEL(wgmma_experts_down_shared, experts_down_fp8)
DIM(SHARES, 9)
REQUIRE(SHARES == TOPK + 1)
ATTR_INT(SHARED_BLOCK_N, 128)
ATTR_INT(SHARED_BLOCK_K, 128)
FLAG(SHARED_SCALE)
FLAG(SHARED_ROW_SCALE)
DTYPES(SWT, e4m3)
DTYPES(SST, bf16, f32, e8m0)
REQUIRE(!SHARED_SCALE || SHARED_BLOCK_N == 128 && SHARED_BLOCK_K == 128)
READS((min(EXPERTS, ROWS * TOPK) + 1) * N * K + min(EXPERTS, ROWS * TOPK) * ROW_SCALE * K * 4 + SHARED_ROW_SCALE * K * 4
	+ (min(EXPERTS, ROWS * TOPK) * SCALE * ST_BYTES + SHARED_SCALE * SST_BYTES) * ceil_div(K, 128) * ceil_div(N, 128)
	+ ROWS * SHARES * (N + ceil_div(N, 128) * 4 + 4))
struct Args {
	TENSOR_MAP(h, h_map, 128, 128);
	TENSOR_MAP(down, down_map, 256, 128);
	TENSOR_MAP(shared_down, shared_down_map, 256, 128);
	IN(i32, step, "4");
	IN(e4m3, h, "ROWS * SHARES, N");
	IN(f32, h_scale, "ceil_div(N, 128), ROWS * SHARES");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, down, "EXPERTS, K, N");
	IN_IF(SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, down_row_scale, "EXPERTS, K");
	IN(SWT, shared_down, "K, N");
	IN_IF(SHARED_SCALE, SST, shared_down_scale, "ceil_div(K, SHARED_BLOCK_N), ceil_div(N, SHARED_BLOCK_K)");
	IN_IF(SHARED_ROW_SCALE, f32, shared_down_row_scale, "K");
	OUT(bf16, y, "ROWS, SHARES, K");
};

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_experts_down_shared(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const ExpertMatrix<ST, SST> m = { &a.down_map, &a.shared_down_map, a.down_scale, a.shared_down_scale };
	experts_down<ROWS, K, EXPERTS, N, TOPK, true, SCALE != 0, SHARED_SCALE != 0>(a, ring, m, a.down_row_scale,
		a.shared_down_row_scale);
}
