// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]), for long
//           prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times w, accumulated in f32 in ascending k; norm, biases, silu and product in f32; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, 2048 rows, K=4096, N=14336: 535 TFLOP/s, where gemm_swiglu has 263 and a bare product of the
//           vendor's library 770; 128 rows, K=2048, N=8192: 32 us for 44. No spills
// tiles     128 x BN. BN = 256 asks less of the L2 cache and is 1.25 times as fast for each output; BN = 128 is
//           admitted where smaller tiles fill the 132 multiprocessors that much better (8448 is 132 * 64)
// bytes     READS is what memory delivers: blocks that share a tile of w are neighbours in the grid and find it in
//           the L2 cache, where x stays
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators and no value crosses threads. sm_90a alone has wgmma; gemm_swiglu serves the rest
#include "contract.cuh"
#include "wgmma.cuh"

KERNEL(wgmma_swiglu, norm_swiglu)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 8192)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
DTYPES(WT, bf16)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 256, 128)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS > 64)
REQUIRE(BN == 256 || 5 * ceil_div(ceil_div(ROWS, 128) * N, 8448) < 8 * ceil_div(ceil_div(ROWS, 128) * N, 16896))
GRID(ceil_div(ROWS, 128), ceil_div(N, BN / 2), 1)
BLOCK(256)
SMEM((BN == 256 ? 4 : 6) * ((128 + BN) * 128 + 256) + 1024)
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

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_swiglu(const Args a)
{
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * 128, n0 = blockIdx.y * (BN / 2);
	if (t0 >= a.step[0]) {
		inputs_ready();
		return;
	}
	float acc[BN / 8][4] = {}, scale[2];
	wgmma_gemm<BN, K, true, NORM_ONE != 0>(
		ring,
		[&](int r) {
			const bool exists = ROWS % 128 == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const int n = n0 + r / 16 * 8 + r % 8;
			const bool exists = N % (BN / 2) == 0 || n < N;
			return Row<WT> { (r / 8 % 2 ? a.up : a.gate) + (exists ? i64(n) * K : 0), exists };
		},
		a.norm, float(EPS), acc, scale);
	u32 y[2][BN / 16];
#pragma unroll
	for (int j = 0; j < BN / 16; j++) {
		const int n = n0 + j * 8 + threadIdx.x % 4 * 2;
		float gate_bias[2] = {}, up_bias[2] = {};
#pragma unroll
		for (int e = 0; e < 2; e++) {
			if constexpr (GATE_BIAS)
				gate_bias[e] = bias_at<N>(a.gate_bias, n + e);
			if constexpr (UP_BIAS)
				up_bias[e] = bias_at<N>(a.up_bias, n + e);
		}
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float h[2];
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float gate = acc[2 * j][2 * i + e] * scale[i] + gate_bias[e];
				const float up = acc[2 * j + 1][2 * i + e] * scale[i] + up_bias[e];
				h[e] = gate / (1.0f + __expf(-gate)) * up;
			}
			y[i][j] = pack_bf16(h[0], h[1]);
		}
	}
	store_tile<N>(a.y + i64(t0) * N + n0, ROWS - t0, N - n0, y);
}
