// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]), for long
//           prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times w, accumulated in f32 in ascending k; norm, biases, silu and product in f32; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  tests/gpu/results: TFLOP/s at real shapes
// tiles     128 x BN; a grid of fewer than 60 blocks leaves most of the card idle and is left to gemm_swiglu, whose
//           tiles are smaller
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
REQUIRE(ceil_div(ROWS, 128) * ceil_div(N, BN / 2) >= 60)
REQUIRE(BN == 256 || 5 * ceil_div(ceil_div(ROWS, 128) * ceil_div(N, 64), 132) < 8 * ceil_div(ceil_div(ROWS, 128) * ceil_div(N, 128), 132))
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
	if (t0 >= a.step[0])
		return;
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

	const int row = t0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int j = 0; j < BN / 8; j += 2) {
			const int t = row + 8 * i, n = column + j * 4;
			if (t >= ROWS || n >= N)
				continue;
			const bool both = n + 1 < N;
			float y[2];
#pragma unroll
			for (int e = 0; e < 2; e++) {
				float gate = acc[j][2 * i + e] * scale[i], up = acc[j + 1][2 * i + e] * scale[i];
				const int at = both ? n + e : n;
				if constexpr (GATE_BIAS)
					gate += to_f32(a.gate_bias[at]);
				if constexpr (UP_BIAS)
					up += to_f32(a.up_bias[at]);
				y[e] = gate / (1.0f + __expf(-gate)) * up;
			}
			store_pair(a.y + i64(t) * N + n, y[0], y[1], both, N % 2 == 0);
		}
}
