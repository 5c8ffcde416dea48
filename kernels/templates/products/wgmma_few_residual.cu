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
#define MATRICES 1
#define RESIDUAL 1
#define SCALES 0
#include "products/wgmma_few_contract.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
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
