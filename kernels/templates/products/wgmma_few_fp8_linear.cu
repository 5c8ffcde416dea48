// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each
//           row and 128 columns, w of each 128 x 128 block, of each row, or both; for up to 256 rows; rows beyond
//           step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; then scales of rows,
//           bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=5120, N=16384: 64 rows 21.9 us, 85 % of the read bandwidth; 128 rows 24.4; 256 rows 38.5, 1,115
//           TFLOP/s; K=4096, N=6144: 8.56, 9.94, 14.1 us. No spills
// tiles     64 or 128 x BN, a stage of 128 columns. Where tiles are few, SPLIT blocks divide the columns of one
// bytes     READS is what memory delivers: blocks of one column of tiles share their operands in the L2 cache
// why       as wgmma_few_linear
#include "shared/contract.cuh"
#include "products/wgmma_few_fp8.cuh"

KERNEL(wgmma_few_fp8_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#define SCALES 1
#include "products/wgmma_few_contract.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_fp8_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map } };
	few_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			const ST *const scales[] = { W_SCALE ? a.w_scale : nullptr };
			few_multiply_codes<P, ROWS, N>(stages, group, acc, a.x_scale, scales);
		}, [](int, int, int) {},
		[&](int, int t, int n, const float (&v)[4][2]) {
			few_store<N>(a.y, rows, t, n, v, W_ROW_SCALE ? a.w_row_scale : nullptr, nullptr, BIAS ? a.bias : nullptr);
		});
}
