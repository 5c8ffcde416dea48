// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n]
// numerics  f32 sums in an order that depends on K alone; one rounding. Same bits every run, whatever the rows beside
// measured  H100 SXM, one row of 16-bit weights: 93 % of the read bound at 4096 x 14336, 83 % at 2048 x 8192; no spills
// why       the residual is read as soon as it may be, beside the stream of weights, so that the tail waits for nothing
#include "shared/contract.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_residual, linear_residual)
#define MATRICES 1
#define NORM 0
#define RESIDUAL 1
#define LOGITS 0
#include "products/gemv_contract.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) gemv_residual(const Args a)
{
	let_next_start();
	DYNAMIC_SMEM(xs);
	const int lane = threadIdx.x % 32, n0 = (blockIdx.x * WARPS + threadIdx.x / 32) * PER_WARP;
	const WT *w[PER_WARP];
#pragma unroll
	for (int l = 0; l < PER_WARP; l++)
		w[l] = a.w + i64(min(n0 + l, N - 1)) * K;
	const int t = lane / PER_WARP, n = n0 + lane % PER_WARP;
	const bool mine = t < ROWS && n < N;
	float rest = 0.0f;
	if constexpr (BIAS)
		if (mine)
			rest = to_f32(a.bias[n]);
	float acc[ROWS][PER_WARP], ss[ROWS];
	if (!gemv<WARPS, ROWS, K, PER_WARP, false, false>(
		xs, [&](int r) { return a.x + i64(r) * K; }, static_cast<const bf16 *>(nullptr), w, acc, ss, [&] {
			if (mine)
				rest += to_f32(a.residual[i64(t) * N + n]);
			return a.step[0] > 0;
		}))
		return;
	const float sum = gemv_mine(acc);
	if (mine)
		store(a.z + i64(t) * N + n, sum + rest);
}
