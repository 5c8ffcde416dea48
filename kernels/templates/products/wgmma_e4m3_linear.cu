// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], rows in bf16, w codes of e4m3 with scales of 128 x 128 blocks, of
//           rows, or both; at its best for 17 to 256 rows; rows beyond step[0] stay as they are
// numerics  e4m3 is bf16 exactly; bf16 products summed in the tensor core over 128 columns, in ascending k, and these
//           sums, times the scale of their block, in f32, in order, SPLIT runs of columns apart, which are then added
//           in order; scale of the row, bias; one rounding. Same bits every run; a row's bits do not depend on the
//           other rows
// measured  H200 SXM, K=5120, N=16384: 32 rows 26.6 us, 71 % of the read bandwidth; 64 rows 30.3; 128 rows 40.1; 256
//           rows 76.3, 563 TFLOP/s; K=4096, N=6144: 13.2, 14.6, 19.6, 31.0 us. No spills
// tiles     64 WARPGROUPS rows of w by 32, 64 or 128 rows of x. Where tiles are few, SPLIT blocks divide the columns of
//           one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       stream_linear reads x again for each few rows of w; here a tile has all rows, and w passes once through
//           registers, from which wgmma takes its first operand
#include "shared/contract.cuh"
#include "products/wgmma_e4m3.cuh"

KERNEL(wgmma_e4m3_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#include "products/wgmma_e4m3_contract.cuh"
#include "products/codes_write.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_e4m3_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	using P = ByteProducts<ST, K, N, bm(), WARPGROUPS, SPLIT, 1>;
	const P operands = { &a.x_map, { &a.w_map }, { W_SCALE ? a.w_scale : nullptr } };
	write_products(rings, a, operands);
}
