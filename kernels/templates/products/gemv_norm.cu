// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n]
// numerics  bf16(x * norm) times w, accumulated in f32; 1 / rms and the bias in f32; one rounding. The order of
//           additions depends on K and WARPS: same bits every run, whatever the rows beside
// measured  H100 SXM, one row of 16-bit weights: 91 % of the read bound at 6144 x 4096, 67 % at 3072 x 2048; no spills
// why       the norm is recomputed by every block: it is 4 KB from L2 behind a stream of weights, and a kernel of
//           its own would cost a launch and a round trip
#include "shared/contract.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_norm, norm_linear)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define LOGITS 0
#include "products/gemv_contract.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) gemv_norm(const Args a)
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
	float bias = 0.0f;
	if constexpr (BIAS)
		if (mine)
			bias = to_f32(a.bias[n]);
	float acc[ROWS][PER_WARP], ss[ROWS];
	if (!gemv<WARPS, ROWS, K, PER_WARP, true, NORM_ONE != 0>(
		xs, [&](int r) { return a.x + i64(r) * K; }, a.norm, w, acc, ss, [&] { return a.step[0] > 0; }))
		return;
	const float sum = gemv_mine(acc);
	if (mine)
		store(a.y + i64(t) * N + n, fmaf(sum, gemv_inverse_rms(ss, t, K, float(EPS)), bias));
}
