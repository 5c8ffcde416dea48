// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for long prompts; rows beyond step[0] stay as they
//           are
// numerics  bf16 products accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// measured  tests/gpu/results: TFLOP/s at real shapes
// tiles     128 x BN; a grid of fewer than 60 blocks leaves most of the card idle and is left to gemm_residual,
//           whose tiles are smaller
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
REQUIRE(ceil_div(ROWS, 128) * ceil_div(N, BN) >= 60)
REQUIRE(BN == 256 || 5 * ceil_div(ceil_div(ROWS, 128) * ceil_div(N, 128), 132) < 8 * ceil_div(ceil_div(ROWS, 128) * ceil_div(N, 256), 132))
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
	if (t0 >= a.step[0])
		return;
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
	wgmma_each(acc, [&](int r, int, int c, float lo, float hi) {
		const int t = t0 + r, n = n0 + c;
		if (t >= ROWS || n >= N)
			return;
		const bool both = n + 1 < N;
		const i64 at = i64(t) * N + n;
		lo += to_f32(a.residual[at]);
		hi += both ? to_f32(a.residual[at + 1]) : 0.0f;
		if constexpr (BIAS) {
			lo += to_f32(a.bias[n]);
			hi += both ? to_f32(a.bias[n + 1]) : 0.0f;
		}
		store_pair(a.z + at, lo, hi, both, N % 2 == 0);
	});
}
