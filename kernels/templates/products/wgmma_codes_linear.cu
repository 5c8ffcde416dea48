// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], w codes of e2m1 or u4 in groups; for more than 32 rows; rows
//           beyond step[0] stay as they are
// numerics  e2m1 times the scale of its group, and u4 less its zero, are bf16 exactly; bf16 products accumulated in f32
//           in ascending k, of u4 over at most 64 columns of a group, whose sums times its scale are added in f32, in
//           order; SPLIT runs of columns apart, then added in order; scale of the row, bias; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, NVFP4: 2048 rows, K=4096, N=6144 719 TFLOP/s; 128 rows 20 us. INT4 with groups of 128: 468
//           TFLOP/s, 23 us. No spills
// tiles     64 WARPGROUPS x BM. BM = 256 decodes a code for twice as many rows; u4 has at most 128, and up to 64 rows
//           have a tile of their own. Blocks in pairs (CLUSTER) share rows of x; where tiles are few, SPLIT blocks
//           divide the columns of one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       wgmma alone has the full rate of sm_90a, and takes what must pass through registers only as its first
//           operand: so w is that, and rows of x stand where others have columns (wgmma_codes.cuh)
#include "shared/contract.cuh"
#include "products/wgmma_codes.cuh"

KERNEL(wgmma_codes_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#include "products/wgmma_codes_contract.cuh"
#include "products/codes_write.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_codes_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	using P = CodeProducts<WT, ST, BLOCK_K, K, N, BM, WARPGROUPS, CLUSTER, SPLIT, 1>;
	const P operands = { &a.x_map, { &a.w_map }, { a.w_scale } };
	write_products(rings, a, operands);
}
