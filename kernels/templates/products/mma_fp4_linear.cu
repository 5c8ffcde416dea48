// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], x and w codes of e2m1, both with scales of
//           e4m3 for each 16 columns and of f32 for each row; for long prompts; rows beyond step[0] stay as they are
// numerics  products of codes and their scales summed in the tensor core, in ascending k; then scales of rows,
//           bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  never run: no card with it was there. Its machine code was looked at, its numbers were not
// tiles     BM x 128: BM = 64 is for launches that would leave multiprocessors without a tile
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       sm_120a and sm_121a multiply codes of e2m1 at four times the rate of bf16, and only by this instruction
#include "shared/contract.cuh"
#include "products/mma_fp4.cuh"

KERNEL(mma_fp4_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#include "products/mma_fp4_contract.cuh"

extern "C" __global__ void __launch_bounds__(256) mma_fp4_linear(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * 128;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {};
	fp4_products<BM, 128, K>(
		ring, [&](int r) { return code_row<ROWS, K / 2>(a.x, t0 + r); },
		[&](int r) { return code_row<N, K / 2>(a.w, n0 + r); },
		[&](int r) { return code_row<ROWS, K / 16>(a.x_block, t0 + r); },
		[&](int r) { return code_row<N, K / 16>(a.w_scale, n0 + r); }, acc);
	store_products<BM, 128, ROWS, N, W_ROW_SCALE, false, BIAS>(acc, t0, n0, a,
		[&](int t) { return a.x_row_scale[t]; }, a.y);
}
