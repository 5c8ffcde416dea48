// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each
//           row and 128 columns, w of blocks, of rows, or both; for long prompts; rows beyond step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order; then scales of rows, residual, bias; one rounding. Same bits every run; a row's
//           bits do not depend on the other rows
// measured  not on a card of its own; correct on an H100, where mma.sync turns codes into f16 on the way and
//           wgmma_fp8_residual is several times faster
// tiles     BM x 128: BM = 64 is for launches that would leave multiprocessors without a tile
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       sm_89 and sm_12x multiply codes of e4m3 at twice the rate of bf16, and only by mma.sync
#include "shared/contract.cuh"
#include "products/mma_codes.cuh"

KERNEL(mma_fp8_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#include "products/mma_fp8_contract.cuh"

extern "C" __global__ void __launch_bounds__(256) mma_fp8_residual(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * 128;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {};
	e4m3_products<BM, 128, K>(
		ring, [&](int r) { return code_row<ROWS, K>(a.x, t0 + r); },
		[&](int r) { return code_row<N, K>(a.w, n0 + r); },
		[&](int r, int step) { return a.x_scale[i64(step) * ROWS + min(t0 + r, ROWS - 1)]; },
		[&](int c, int step) {
			return W_SCALE ? block_scale<N, K, BLOCK_N, BLOCK_K>(a.w_scale, n0 + c, step) : 1.0f;
		},
		acc);
	store_products<BM, 128, ROWS, N, W_ROW_SCALE, true, BIAS>(acc, t0, n0, a,
		[](int) { return 1.0f; }, a.z);
}
