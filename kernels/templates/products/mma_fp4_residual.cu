// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], x and w codes of e2m1, both with scales of
//           e4m3 for each 16 columns and of f32 for each row; for long prompts; rows beyond step[0] stay as they are
// numerics  products of codes and their scales summed in the tensor core, in ascending k; then scales of rows,
//           residual, bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  never run: no card with it was there. Its machine code was looked at, its numbers were not
// tiles     BM x 128: BM = 64 is for launches that would leave multiprocessors without a tile
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       sm_120a and sm_121a multiply codes of e2m1 at four times the rate of bf16, and only by this instruction
#include "shared/contract.cuh"
#include "products/mma_fp4.cuh"

KERNEL(mma_fp4_residual, linear_residual)
ARCH(120a, 121a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 1)
ATTR_INT(BLOCK_K, 16)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 128, 64)
REQUIRE(K % 64 == 0)
REQUIRE(ROWS > 64)
REQUIRE(BLOCK_N == 1 && BLOCK_K == 16)
REQUIRE(BM == 64 || ceil_div(ROWS, BM) * ceil_div(N, 128) >= 88)
ORDER(mma_fp4)
GRID(ceil_div(ROWS, BM), ceil_div(N, 128), 1)
BLOCK(256)
SMEM(98304 / ((BM + 128) * 144) * ((BM + 128) * 144))
READS(ceil_div(ROWS, BM) * N * (K / 2 + K / 16 + 4) + ceil_div(N, 128) * ROWS * (K / 2 + K / 16 + 4)
	+ ROWS * N * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(e2m1, x, "ROWS, K");
	IN(e4m3, x_block, "ROWS, ceil_div(K, 16)");
	IN(f32, x_row_scale, "ROWS");
	IN(e2m1, w, "N, K");
	IN(e4m3, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256) mma_fp4_residual(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	using T = Fp4Tile<BM, 128>;
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * 128;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {};
	fp4_products<BM, 128, K>(
		ring, [&](int r) { return code_row<ROWS, K / 2>(a.x, t0 + r); },
		[&](int r) { return code_row<N, K / 2>(a.w, n0 + r); },
		[&](int r) { return code_row<ROWS, K / 16>(a.x_block, t0 + r); },
		[&](int r) { return code_row<N, K / 16>(a.w_scale, n0 + r); }, acc);
	store_products<BM, 128, ROWS, N, W_ROW_SCALE, true, BIAS>(acc, t0, n0, a,
		[&](int t) { return a.x_row_scale[t]; }, a.z);
}
