// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each
//           row and 128 columns, w of each 128 x 128 block, of each row, or both; for up to 256 rows; rows beyond
//           step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; then scales of rows,
//           residual, bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=17408, N=5120: 64 rows 29.2 us, 68 % of the read bandwidth; 128 rows 34.4; 256 rows 58.8;
//           K=6144, N=5120: 12.1, 14.7, 21.7 us; K=14336, N=4096: 19.8, 20.5, 31.4 us. No spills
// tiles     64 or 128 x BN, a stage of 128 columns. Where tiles are few, SPLIT blocks divide the columns of one
// bytes     READS is what memory delivers: blocks of one column of tiles share their operands in the L2 cache
// why       as wgmma_few_residual
#include "shared/contract.cuh"
#include "products/wgmma_few_fp8.cuh"

KERNEL(wgmma_few_fp8_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#define SCALES 1
#include "products/wgmma_few_contract.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_fp8_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map } };
	uint4 residual[P::mine];
	few_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			const ST *const scales[] = { W_SCALE ? a.w_scale : nullptr };
			few_multiply_codes<P, ROWS, N>(stages, group, acc, a.x_scale, scales);
		},
		[&](int k, int t, int n) { residual[k] = few_load<N>(a.residual, rows, t, n); },
		[&](int k, int t, int n, const float (&v)[4][2]) {
			few_store<N>(a.z, rows, t, n, v, W_ROW_SCALE ? a.w_row_scale : nullptr, &residual[k],
				BIAS ? a.bias : nullptr);
		});
}
