// what      logits[o,v] = sum_k rmsnorm(x[out_row[o],:])[k] w[v,k], in f32; idle outs (-1): 0
// numerics  bf16(x * norm) times w, accumulated in f32; not rounded. Same bits every run, whatever the rows beside
// measured  H100 SXM, one out, 16-bit weights: the read bound itself at 128256 x 2048 (3.1 TB/s); no spills
// why       a step that wants no logits (a chunk in the middle of a prompt) leaves before the first weight is read
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_logits, norm_logits)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(OUTS, 1)
DIM(K, 2048)
DIM(V, 128256)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(N_VALID, 128256)
DTYPES(WT, f16, f32)
DTYPES(NT, bf16, f16, f32)
TUNE(WARPS, 4, 8)
TUNE(PER_WARP, 1, 2)
REQUIRE(OUTS <= 8)
REQUIRE(PER_WARP == 2 || OUTS <= 4)
REQUIRE(K % 8 == 0)
ORDER(gemv)
ORDER(squares, WARPS)
ORDER(parts, WARPS * PER_WARP)
GRID(ceil_div(V, WARPS * PER_WARP), 1, 1)
BLOCK(32 * WARPS)
SMEM(OUTS * min(K, 16384 / OUTS / 2048 * 2048) * 2)
READS(V * K * WT_BYTES + K * NT_BYTES + OUTS * (K * 2 + 4))
WRITES(OUTS * (V * 4 + ceil_div(V, WARPS * PER_WARP) * 12))
FLOPS(2 * OUTS * V * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(i32, out_row, "OUTS");
	IN(NT, norm, "K");
	IN(WT, w, "V, K");
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, WARPS * PER_WARP), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, WARPS * PER_WARP)");
};

static_assert(OUTS <= 8, "above 8 outs the products belong on the tensor cores: use gemm_logits");

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
	const float logit = gemv_mine(acc) * gemv_inverse_rms(ss, o, K, float(EPS));
	if (o < OUTS && v < V)
		a.logits[i64(o) * V + v] = logit;
	if (o < OUTS)
		part[o][v % IDS] = logit;
	__syncthreads();
	for (int out = threadIdx.x / 32; out < OUTS; out += WARPS)
		best_of_part<IDS>(blockIdx.x * IDS, N_VALID, [&](int i) { return part[out][i]; },
			a.best + (i64(out) * PARTS + blockIdx.x) * 2, a.best_id + i64(out) * PARTS + blockIdx.x);
}
