// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], rows in bf16, w codes of e4m3 with scales of
//           128 x 128 blocks, of rows, or both; at its best for 17 to 256 rows; rows beyond step[0] stay as
//           they are
// numerics  e4m3 is bf16 exactly; bf16 products summed in the tensor core over 128 columns, in ascending k, and these
//           sums, times the scale of their block, in f32, in order, SPLIT runs of columns apart, which are then added
//           in order; scale of the row, bias, residual; one rounding. Same bits every run; a row's bits do not depend
//           on the other rows
// measured  H200 SXM, K=17408, N=5120: 32 rows 32.0 us, 63 % of the read bandwidth; 64 rows 36.7; 128 rows 67.9;
//           K=6144, N=5120: 15.8, 17.5, 28.7 us; K=14336, N=4096: 26.6, 30.9, 40.8 us. No spills
// tiles     64 WARPGROUPS rows of w by 32, 64 or 128 rows of x. Where tiles are few, SPLIT blocks divide the columns of
//           one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       as wgmma_e4m3_linear; the residual is turned as in wgmma_codes_residual
#include "shared/contract.cuh"
#include "products/wgmma_e4m3.cuh"

KERNEL(wgmma_e4m3_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#include "products/wgmma_e4m3_contract.cuh"
#include "products/codes_write.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_e4m3_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	using P = ByteProducts<ST, K, N, bm(), WARPGROUPS, SPLIT, 1>;
	const P operands = { &a.x_map, { &a.w_map }, { W_SCALE ? a.w_scale : nullptr } };
	write_products(rings, a, operands);
}
