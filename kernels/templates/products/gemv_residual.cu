// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n]
// numerics  f32 sums in an order that depends on K alone; one rounding. Same bits every run, whatever the rows beside
// measured  H100 SXM, one row of 16-bit weights: 93 % of the read bound at 4096 x 14336, 83 % at 2048 x 8192; no spills
// why       the residual is read as soon as it may be, beside the stream of weights, so that the tail waits for nothing
#include "shared/contract.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_residual, linear_residual)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 8192)
DIM(N, 2048)
FLAG(BIAS)
DTYPES(WT, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(WARPS, 4, 8)
TUNE(PER_WARP, 1, 2)
REQUIRE(ROWS <= 8)
REQUIRE(PER_WARP == 2 || ROWS <= 4)
REQUIRE(K % 8 == 0)
ORDER(gemv)
GRID(ceil_div(N, WARPS * PER_WARP), 1, 1)
BLOCK(32 * WARPS)
SMEM(ROWS * min(K, 16384 / ROWS / 2048 * 2048) * 2)
READS(N * K * WT_BYTES + ROWS * (K + N) * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

static_assert(ROWS <= 8, "above 8 rows the products belong on the tensor cores: use gemm_residual");

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
