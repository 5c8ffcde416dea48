// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], w codes of e2m1 or u4 in groups; for more
//           than 32 rows; rows beyond step[0] stay as they are
// numerics  e2m1 times the scale of its group, and u4 less its zero, are bf16 exactly; bf16 products accumulated in f32
//           in ascending k, of u4 over at most 64 columns of a group, whose sums times its scale are added in f32, in
//           order; SPLIT runs of columns apart, then added in order; scale of the row, bias, residual; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, NVFP4: 2048 rows, K=14336, N=4096 735 TFLOP/s, K=4096 597; 128 rows 43 and 18 us. INT4 with
//           groups of 128: 437 and 421 TFLOP/s, 66 and 24 us. No spills
// tiles     64 WARPGROUPS x BM. BM = 256 decodes a code for twice as many rows; u4 has at most 128, and up to 64 rows
//           have a tile of their own. Blocks in pairs (CLUSTER) share rows of x; where tiles are few, SPLIT blocks
//           divide the columns of one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       sums stand turned round, so the residual is turned like them, eight rows by eight columns at a time; the
//           rest as in wgmma_codes_linear
#include "shared/contract.cuh"
#include "products/wgmma_codes.cuh"

KERNEL(wgmma_codes_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#include "products/wgmma_codes_contract.cuh"
#include "products/codes_write.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_codes_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	using P = CodeProducts<WT, ST, BLOCK_K, K, N, BM, WARPGROUPS, CLUSTER, SPLIT, 1>;
	const P operands = { &a.x_map, { &a.w_map }, { a.w_scale } };
	write_products(rings, a, operands);
}
