// what      logits[o,v] = cap?(sum_k rmsnorm(x[out_row[o],:])[k] w[v,k]), in f32; idle outs (-1): 0
// numerics  bf16(x * norm) times w, accumulated in f32; not rounded. Same bits every run, whatever the rows beside
// measured  H100 SXM, one out, 16-bit weights: the read bound itself at 128256 x 2048 (3.1 TB/s); no spills
// why       a step that wants no logits (a chunk in the middle of a prompt) leaves before the first weight is read
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_logits, norm_logits)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define LOGITS 1
#include "products/gemv_contract.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) gemv_logits(const Args a)
{
	let_next_start();
	DYNAMIC_SMEM(xs);
	const int lane = threadIdx.x % 32, n0 = (blockIdx.x * WARPS + threadIdx.x / 32) * PER_WARP;
	const WT *w[PER_WARP];
#pragma unroll
	for (int l = 0; l < PER_WARP; l++)
		w[l] = a.w + i64(min(n0 + l, V - 1)) * K;
	float acc[OUTS][PER_WARP], ss[OUTS];
	if (!gemv<WARPS, OUTS, K, PER_WARP, true, NORM_ONE != 0>(
		xs,
		[&](int o) {
			const int r = a.out_row[o];
			return r < 0 || r >= ROWS ? nullptr : a.x + i64(r) * K;
		},
		a.norm, w, acc, ss, [&] { return a.step[1] > 0; }))
		return;
	constexpr int IDS = WARPS * PER_WARP, PARTS = (V + IDS - 1) / IDS;
	__shared__ float part[OUTS][IDS];
	const int o = lane / PER_WARP, v = n0 + lane % PER_WARP;
	const float logit = soft_cap(gemv_mine(acc) * gemv_inverse_rms(ss, o, K, float(EPS)), float(CAP));
	if (o < OUTS && v < V)
		a.logits[i64(o) * V + v] = logit;
	if (o < OUTS)
		part[o][v % IDS] = logit;
	__syncthreads();
	for (int out = threadIdx.x / 32; out < OUTS; out += WARPS)
		best_of_part<IDS>(blockIdx.x * IDS, N_VALID, [&](int i) { return part[out][i]; },
			a.best + (i64(out) * PARTS + blockIdx.x) * 2, a.best_id + i64(out) * PARTS + blockIdx.x);
}
