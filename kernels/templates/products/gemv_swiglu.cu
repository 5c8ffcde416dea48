// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i])
// numerics  bf16(x * norm) times w, accumulated in f32; norm, biases, silu and product in f32; one rounding.
//           Same bits every run, whatever the rows beside
// measured  H100 SXM, one row of 16-bit weights: 98 % of the read bound at 14336 x 4096, 93 % at 8192 x 2048; no spills
// why       a warp holds row i of gate and of up, so the product needs neither a second kernel nor a layout of its own
#include "shared/contract.cuh"
#include "products/gemv.cuh"

KERNEL(gemv_swiglu, norm_swiglu)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(N, 8192)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
DTYPES(WT, f16, f32)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(WARPS, 4, 8)
TUNE(PER_WARP, 1, 2)
REQUIRE(ROWS <= 8)
REQUIRE(K % 8 == 0)
ORDER(gemv)
ORDER(squares, WARPS)
GRID(ceil_div(N, WARPS * PER_WARP), 1, 1)
BLOCK(32 * WARPS)
SMEM(ROWS * min(K, 16384 / ROWS / 2048 * 2048) * 2)
READS(2 * N * K * WT_BYTES + K * NT_BYTES + ROWS * K * 2 + (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(4 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
	OUT(bf16, y, "ROWS, N");
};

static_assert(ROWS <= 8, "above 8 rows the products belong on the tensor cores: use gemm_swiglu");

extern "C" __global__ void __launch_bounds__(32 * WARPS) gemv_swiglu(const Args a)
{
	let_next_start();
	DYNAMIC_SMEM(xs);
	const int lane = threadIdx.x % 32, n0 = (blockIdx.x * WARPS + threadIdx.x / 32) * PER_WARP;
	const WT *w[2 * PER_WARP]; // gate rows, then up rows
#pragma unroll
	for (int l = 0; l < PER_WARP; l++) {
		w[l] = a.gate + i64(min(n0 + l, N - 1)) * K;
		w[PER_WARP + l] = a.up + i64(min(n0 + l, N - 1)) * K;
	}
	const int t = lane / PER_WARP, n = n0 + lane % PER_WARP;
	const bool mine = t < ROWS && n < N;
	float gate_bias = 0.0f, up_bias = 0.0f;
	if (mine) {
		if constexpr (GATE_BIAS)
			gate_bias = to_f32(a.gate_bias[n]);
		if constexpr (UP_BIAS)
			up_bias = to_f32(a.up_bias[n]);
	}
	float acc[ROWS][2 * PER_WARP], ss[ROWS], gate[ROWS][PER_WARP], up[ROWS][PER_WARP];
	if (!gemv<WARPS, ROWS, K, 2 * PER_WARP, true, NORM_ONE != 0>(
		xs, [&](int r) { return a.x + i64(r) * K; }, a.norm, w, acc, ss, [&] { return a.step[0] > 0; }))
		return;
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int l = 0; l < PER_WARP; l++) {
			gate[r][l] = acc[r][l];
			up[r][l] = acc[r][PER_WARP + l];
		}
	const float g_sum = gemv_mine(gate), u_sum = gemv_mine(up);
	if (mine) {
		const float scale = gemv_inverse_rms(ss, t, K, float(EPS));
		const float g = fmaf(g_sum, scale, gate_bias), u = fmaf(u_sum, scale, up_bias);
		store(a.y + i64(t) * N + n, g / (1.0f + __expf(-g)) * u);
	}
}
