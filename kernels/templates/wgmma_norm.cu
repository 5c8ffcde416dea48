// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n], for long prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times w, accumulated in f32 in ascending k; 1 / rms and the bias in f32; one rounding.
//           Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, 2048 rows, K=4096, N=6144: 566 TFLOP/s, where gemm_norm has 250 and a bare product of the
//           vendor's library 757; 128 rows, K=2048, N=3072: 21 us for 22. No spills
// tiles     128 x BN. BN = 256 asks less of the L2 cache and is 1.25 times as fast for each output; BN = 128 is
//           admitted where smaller tiles fill the 132 multiprocessors that much better (16896 is 132 * 128)
// bytes     READS is what memory delivers: blocks that share a tile of w are neighbours in the grid and find it in
//           the L2 cache, where x stays
// why       wgmma is the only way to the full rate of sm_90a, and sm_90a alone has it; gemm_norm serves the rest
#include "contract.cuh"
#include "wgmma.cuh"

KERNEL(wgmma_norm, norm_linear)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(BIAS)
DTYPES(WT, bf16)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 256, 128)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS > 64)
REQUIRE(BN == 256 || 5 * ceil_div(ceil_div(ROWS, 128) * N, 16896) < 8 * ceil_div(ceil_div(ROWS, 128) * N, 33792))
GRID(ceil_div(ROWS, 128), ceil_div(N, BN), 1)
BLOCK(256)
SMEM((BN == 256 ? 4 : 6) * ((128 + BN) * 128 + 256) + 1024)
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

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_norm(const Args a)
{
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * 128, n0 = blockIdx.y * BN;
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
			const bool exists = N % BN == 0 || n0 + r < N;
			return Row<WT> { a.w + (exists ? i64(n0 + r) * K : 0), exists };
		},
		a.norm, float(EPS), acc, scale);
	u32 y[2][BN / 8];
#pragma unroll
	for (int j = 0; j < BN / 8; j++) {
		const int n = n0 + j * 8 + threadIdx.x % 4 * 2;
		float lo = 0.0f, hi = 0.0f;
		if constexpr (BIAS) {
			lo = bias_at<N>(a.bias, n);
			hi = bias_at<N>(a.bias, n + 1);
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			y[i][j] = pack_bf16(acc[j][2 * i] * scale[i] + lo, acc[j][2 * i + 1] * scale[i] + hi);
	}
	store_tile<N>(a.y + i64(t0) * N + n0, ROWS - t0, N - n0, y);
}
