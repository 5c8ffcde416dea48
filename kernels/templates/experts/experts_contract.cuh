// experts_contract.cuh - contract fragment: products of bf16 rows by the experts that they chose, *_experts_up.cu and
// *_experts_down.cu, with the expert that all rows go to.
//
// UP: 1 is gate and up, N rows of both, 0 down, N columns. LISTED: 1 where pairs of row and expert stand in order by
// expert (group_rows.cu), 0 where each row names its own. ALIKE: 1 where the shared expert is one more of the others'
// width and format; else its weights are SWT. WT, and SWT with it, are the template's, whose blocks of scales are too.
// BIASED: 1 where an expert's columns have biases, of type BT, which count by its share; only down has them.
// RESIDUAL: 1 where what down makes is added to something; not defined: 1.
PARAM(UP, 0, 1)
PARAM(LISTED, 0, 1)
PARAM(ALIKE, 0, 1)
PARAM(BIASED, 0, 1)
#ifndef RESIDUAL
#define RESIDUAL 1
#endif
PARAM(RESIDUAL, 0, 1)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
ATTR_INT(TOPK, 8)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
ATTR_INT(SHARED_BLOCK_N, 128) ATTR_INT(SHARED_BLOCK_K, 128)
FLAG(SCALE) FLAG(ROW_SCALE) FLAG(SHARED) FLAG(SHARED_SCALE) FLAG(SHARED_ROW_SCALE)
DTYPES(ST, bf16, f32, e4m3, e8m0)
FORMULA(n_parts(), UP ? 2 : 1)
FORMULA(width_of_shared(), WIDTH - TOPK * N / n_parts())
REQUIRE(TOPK <= EXPERTS && N % n_parts() == 0)
REQUIRE(WT_BITS < 16 || !SCALE && !ROW_SCALE)
REQUIRE(WT_BITS != 4 || SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
REQUIRE(SHARED ? width_of_shared() > 0 : width_of_shared() == 0 && !SHARED_SCALE && !SHARED_ROW_SCALE)
#if ALIKE
REQUIRE(!SHARED || width_of_shared() == N / n_parts() && SHARED_SCALE == SCALE && SHARED_ROW_SCALE == ROW_SCALE)
REQUIRE(!SHARED_SCALE || SHARED_BLOCK_N == BLOCK_N && SHARED_BLOCK_K == BLOCK_K)
FORMULA(shared_bits(), WT_BITS) FORMULA(shared_scale_bits(), ST_BITS)
#else
DTYPES(SST, bf16, f32, e4m3, e8m0)
REQUIRE(SWT_BITS < 16 || !SHARED_SCALE && !SHARED_ROW_SCALE)
REQUIRE(SWT_BITS != 4 || SHARED_SCALE && SST_BITS == 8 && SHARED_BLOCK_N == 1
	&& (SHARED_BLOCK_K == 16 || SHARED_BLOCK_K == 32))
FORMULA(shared_bits(), SWT_BITS) FORMULA(shared_scale_bits(), SST_BITS)
#endif
// Bytes of one expert's weights with their scales, and of the shared one's.
#if UP
FORMULA(expert_bytes(int width, int bits, int row_scale, int scale, int block_n, int block_k, int scale_bits),
	2 * width * (K * bits / 8 + row_scale * 4)
		+ scale * 2 * ceil_div(width, max(block_n, 1)) * ceil_div(K, max(block_k, 1)) * scale_bits / 8)
WRITES(ROWS * WIDTH * 2)
#else
FORMULA(expert_bytes(int width, int bits, int row_scale, int scale, int block_n, int block_k, int scale_bits),
	K * (width * bits / 8 + row_scale * 4)
		+ scale * ceil_div(K, max(block_n, 1)) * ceil_div(width, max(block_k, 1)) * scale_bits / 8)
WRITES(ROWS * (LISTED ? TOPK + SHARED : 1) * K * 2)
#endif
FORMULA(each_bytes(), expert_bytes(N / n_parts(), WT_BITS, ROW_SCALE, SCALE, BLOCK_N, BLOCK_K, ST_BITS))
FORMULA(shared_bytes(), expert_bytes(width_of_shared(), shared_bits(), SHARED_ROW_SCALE, SHARED_SCALE, SHARED_BLOCK_N,
	SHARED_BLOCK_K, shared_scale_bits()))
FLOPS(2 * n_parts() * ROWS * WIDTH * K)
struct Args {
	IN(i32, step, "4");
#if UP
	IN(bf16, n, "ROWS, K");
#else
	IN(bf16, h, "ROWS, WIDTH");
#endif
#if LISTED
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
#else
	IN(i32, expert, "ROWS, TOPK");
#endif
#if UP
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
#if ALIKE
	IN_IF(SHARED, WT, shared, "2 * WIDTH - TOPK * N, K");
	IN_IF(SHARED_SCALE, ST, shared_scale,
		"2 * ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)");
#else
	IN_IF(SHARED, SWT, shared, "2 * WIDTH - TOPK * N, K");
	IN_IF(SHARED_SCALE, SST, shared_scale,
		"2 * ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)");
#endif
	IN_IF(SHARED_ROW_SCALE, f32, shared_row_scale, "2 * WIDTH - TOPK * N");
	IN(f32, share, "ROWS, TOPK + SHARED");
	OUT(bf16, h, "ROWS, WIDTH");
#else
	IN(WT, down, "EXPERTS, K, N");
	IN_IF(SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, down_row_scale, "EXPERTS, K");
#if ALIKE
	IN_IF(SHARED, WT, shared_down, "K, WIDTH - TOPK * N");
	IN_IF(SHARED_SCALE, ST, shared_down_scale,
		"ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)");
#else
	IN_IF(SHARED, SWT, shared_down, "K, WIDTH - TOPK * N");
	IN_IF(SHARED_SCALE, SST, shared_down_scale,
		"ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)");
#endif
	IN_IF(SHARED_ROW_SCALE, f32, shared_down_row_scale, "K");
#if LISTED
	OUT(bf16, y, "ROWS, TOPK + SHARED, K");
#else
#if RESIDUAL
	IN(bf16, residual, "ROWS, K");
#endif
	OUT(bf16, z, "ROWS, K");
#endif
#if BIASED
	IN(f32, share, "ROWS, TOPK");
	IN(BT, down_bias, "EXPERTS, K");
#endif
#endif
};
