// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for up to 256 rows; rows beyond step[0] stay as
//           they are
// numerics  bf16 products accumulated in f32 in ascending k, SPLIT runs of columns apart, then added in order; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=14336, N=4096: 64 rows 30.9 us, 84 % of the read bandwidth; 128 rows 34.1; 256 rows 48.5, 620
//           TFLOP/s; K=4096: 10.6, 12.8, 16.6 us. No spills
// tiles     64 or 128 x BN. Where tiles are few, SPLIT blocks divide the columns of one
// bytes     READS is what memory delivers: blocks of one column of tiles share their operands in the L2 cache
// why       as wgmma_few_linear; the residual is on its way while the sums are made
#include "shared/contract.cuh"
#include "products/wgmma_few.cuh"

KERNEL(wgmma_few_residual, linear_residual)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 128)
DIM(K, 14336)
DIM(N, 4096)
FLAG(BIAS)
DTYPES(WT, bf16)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 128, 64)
TUNE(SPLIT, 1, 2, 3, 4)
REQUIRE(K % 8 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS <= 256)
PREFER(ROWS > 32)
REQUIRE(K >= 64 * SPLIT)
REQUIRE(SPLIT == 1 || SPLIT * ceil_div(ROWS, ROWS <= 64 ? 64 : 128) * ceil_div(N, BN) <= SMS)
ORDER(wgmma_few, SPLIT)
GRID(SPLIT * ceil_div(ROWS, ROWS <= 64 ? 64 : 128) * ceil_div(N, BN), 1, 1)
BLOCK(384)
SMEM(231424)
READS(N * K * WT_BYTES + ROWS * K * 2 + ROWS * N * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
RATE(BN == 128 ? 65 : 50)
struct Args {
	TENSOR_MAP(x, x_map, ROWS <= 64 ? 64 : 128, 64);
	TENSOR_MAP(w, w_map, ROWS <= 64 ? BN / 2 : BN, 64);
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	using P = FewProducts<ROWS, K, N, BN, SPLIT>;
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map } };
	uint4 residual[P::mine];
	few_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { few_multiply<P>(stages, group, acc); },
		[&](int k, int t, int n) { residual[k] = few_load<N>(a.residual, rows, t, n); },
		[&](int k, int t, int n, const float (&v)[4][2]) {
			few_store<N>(a.z, rows, t, n, v, nullptr, &residual[k], BIAS ? a.bias : nullptr);
		});
}
