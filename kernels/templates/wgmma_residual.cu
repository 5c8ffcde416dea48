// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for long prompts; rows beyond step[0] stay as they
//           are
// numerics  bf16 products accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// measured  H100 SXM, 2048 rows, K=14336, N=4096: 688 TFLOP/s, where gemm_residual has 300 and a bare product of the
//           vendor's library 713; 128 rows, K=2048, N=2048: 15 us for 17. No spills
// tiles     128 x BN. BN = 256 asks less of the L2 cache and is 1.25 times as fast for each output; BN = 128 is
//           admitted where smaller tiles fill the 132 multiprocessors that much better (16896 is 132 * 128)
// bytes     READS is what memory delivers: blocks that share a tile of w are neighbours in the grid and find it in
//           the L2 cache, where x stays
// why       wgmma is the only way to the full rate of sm_90a, and sm_90a alone has it; gemm_residual serves the rest
#include "contract.cuh"
#include "wgmma.cuh"

KERNEL(wgmma_residual, linear_residual)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
FLAG(BIAS)
DTYPES(WT, bf16)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 256, 128)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS > 64)
REQUIRE(BN == 256 || 5 * ceil_div(ceil_div(ROWS, 128) * N, 16896) < 8 * ceil_div(ceil_div(ROWS, 128) * N, 33792))
GRID(ceil_div(ROWS, 128), ceil_div(N, BN), 1)
BLOCK(256)
SMEM((BN == 256 ? 4 : 6) * ((128 + BN) * 128 + 256) + 1024)
READS(N * K * WT_BYTES + ROWS * K * 2 + ROWS * N * 2 + BIAS * N * BT_BYTES)
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

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_residual(const Args a)
{
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * 128, n0 = blockIdx.y * BN;
	if (t0 >= a.step[0]) {
		inputs_ready();
		return;
	}
	float acc[BN / 8][4] = {}, scale[2];
	wgmma_gemm<BN, K, false, false>(
		ring,
		[&](int r) {
			const bool exists = ROWS % 128 == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const bool exists = N % BN == 0 || n0 + r < N;
			return Row<WT> { a.w + (exists ? i64(n0 + r) * K : 0), exists };
		},
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	u32 z[2][BN / 8];
	load_tile<N>(z, a.residual + i64(t0) * N + n0, ROWS - t0, N - n0);
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
			z[i][j] = pack_bf16(acc[j][2 * i] + low_bf16(z[i][j]) + lo, acc[j][2 * i + 1] + high_bf16(z[i][j]) + hi);
	}
	store_tile<N>(a.z + i64(t0) * N + n0, ROWS - t0, N - n0, z);
}
