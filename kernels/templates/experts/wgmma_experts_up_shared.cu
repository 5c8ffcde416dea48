// what      wgmma_experts_up, and the same of the expert that all rows go to: rows ROWS * TOPK + t of x and h
// numerics  as wgmma_experts_up
// tiles     as wgmma_experts_up; those of the shared expert come last
// measured  H200, 256 experts of 1024 x 2048 and the shared one, 8 a row: 189 us at 2048 rows, 67 % of the read rate;
//           402 us at 8192, 770 TFLOP/s
// why       one launch, whose last tiles fill the multiprocessors that experts of few rows leave
#include "experts/wgmma_experts_up.cuh"

KERNEL(wgmma_experts_up_shared, experts_up_fp8)
DIM(SHARES, 9)
REQUIRE(SHARES == TOPK + 1)
ATTR_INT(SHARED_BLOCK_N, 128)
ATTR_INT(SHARED_BLOCK_K, 128)
FLAG(SHARED_SCALE)
FLAG(SHARED_ROW_SCALE)
DTYPES(SWT, e4m3)
DTYPES(SST, bf16, f32, e8m0)
REQUIRE(!SHARED_SCALE || SHARED_BLOCK_N == 128 && SHARED_BLOCK_K == 128)
READS((min(EXPERTS, ROWS * TOPK) + 1) * N * K + min(EXPERTS, ROWS * TOPK) * ROW_SCALE * N * 4 + SHARED_ROW_SCALE * N * 4
	+ (min(EXPERTS, ROWS * TOPK) * SCALE * ST_BYTES + SHARED_SCALE * SST_BYTES) * 2 * ceil_div(N / 2, 128)
		* ceil_div(K, 128)
	+ ROWS * SHARES * (K + ceil_div(K, 128) * 4 + 8))
struct Args {
	TENSOR_MAP(x, x_map, 128, 128);
	TENSOR_MAP(gate_up, gate_up_map, 128, 128);
	TENSOR_MAP(shared, shared_map, 128, 128);
	IN(i32, step, "4");
	IN(e4m3, x, "ROWS * SHARES, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS * SHARES");
	IN(f32, share, "ROWS, SHARES");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
	IN(SWT, shared, "N, K");
	IN_IF(SHARED_SCALE, SST, shared_scale, "2 * ceil_div(N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)");
	IN_IF(SHARED_ROW_SCALE, f32, shared_row_scale, "N");
	OUT(e4m3, h, "ROWS * SHARES, N / 2");
	OUT(f32, h_scale, "ceil_div(N / 2, 128), ROWS * SHARES");
};

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_experts_up_shared(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const ExpertMatrix<ST, SST> m = { &a.gate_up_map, &a.shared_map, a.gate_up_scale, a.shared_scale };
	experts_up<ROWS, K, EXPERTS, N, TOPK, true, SCALE != 0, SHARED_SCALE != 0>(a, ring, m, a.gate_up_row_scale,
		a.shared_row_scale);
}
