// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n]
// numerics  bf16(x * norm) times w, accumulated in f32; 1 / rms and the bias in f32; one rounding. The order of
//           additions depends on K and WARPS: same bits every run, whatever the rows beside
// measured  H100 SXM, one row of 16-bit weights: 91 % of the read bound at 6144 x 4096, 67 % at 3072 x 2048; no spills
// why       the norm is recomputed by every block: it is 4 KB from L2 behind a stream of weights, and a kernel of
//           its own would cost a launch and a round trip
#include "shared/contract.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_norm, norm_linear)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(N, 3072)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(BIAS)
DTYPES(WT, f16, f32)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(WARPS, 4, 8)
TUNE(PER_WARP, 1, 2)
REQUIRE(ROWS <= 8)
REQUIRE(PER_WARP == 2 || ROWS <= 4)
REQUIRE(K % 8 == 0)
ORDER(gemv)
ORDER(squares, WARPS)
GRID(ceil_div(N, WARPS * PER_WARP), 1, 1)
BLOCK(32 * WARPS)
SMEM(ROWS * min(K, 16384 / ROWS / 2048 * 2048) * 2)
READS(N * K * WT_BYTES + K * NT_BYTES + ROWS * K * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(WT, w, "N, K");
	IN_IF(BIAS, BT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

static_assert(ROWS <= 8, "above 8 rows the products belong on the tensor cores: use gemm_norm");

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
