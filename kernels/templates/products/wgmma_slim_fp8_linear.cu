// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each row and 128
//           columns, w of each 128 x 128 block, of each row, or both; for up to 64 rows; rows beyond step[0] stay as
//           they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; scales of rows, bias;
//           one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=5120, N=16384, one run: 16 rows 22.4 us, 81 % of the read bandwidth; 32 rows 23.1
// tiles     128 rows of w by 16, 32 or 64 of x, a stage of 128 columns. Where tiles are few, SPLIT blocks divide the
//           columns of one
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       blocks of BLOCKS launches share a multiprocessor: as one launch ends, the weights of the next are under way
#include "shared/contract.cuh"
#include "products/wgmma_slim.cuh"

KERNEL(wgmma_slim_fp8_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#define SCALES 1
#include "products/wgmma_slim_contract.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(288, BLOCKS)
wgmma_slim_fp8_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map }, a.x_scale };
	slim_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			const ST *const scales[] = { W_SCALE ? a.w_scale : nullptr };
			slim_multiply_codes<P, N>(stages, group, acc, scales);
		},
		[](int, int, int) {},
		[&](int, int t, int n, float (&v)[1][8]) {
			slim_complete<N>(v[0], n, W_ROW_SCALE ? a.w_row_scale : nullptr, BIAS ? a.bias : nullptr);
			slim_store<N>(a.y, rows, t, n, v[0]);
		});
}
