// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), rows in bf16, gate and up
//           codes of e4m3 with scales of 128 x 128 blocks, of rows, or both; at its best for 17 to 256 rows; rows
//           beyond step[0] stay as they are
// numerics  e4m3 is bf16 exactly; bf16 products summed in the tensor core over 128 columns, in ascending k, and these
//           sums, times the scale of their block, in f32, in order, SPLIT runs of columns apart, which are then added
//           in order; scales of rows, biases, silu and product in f32; one rounding. Same bits every run; a row's bits
//           do not depend on the other rows
// measured  H200 SXM, K=5120, N=17408: 32 rows 63.9 us, 62 % of the read bandwidth; 64 rows 74.0; 128 rows 120; 256
//           rows 204; K=4096, N=14336: 34.4, 43.7, 63.2, 125 us. No spills
// tiles     64 WARPGROUPS rows of w by 32, 64 or 128 rows of x. Where tiles are few, SPLIT blocks divide the columns of
//           one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       as wgmma_e4m3_linear; a warp's 16 rows of w are eight of gate and the same of up, as in wgmma_codes_swiglu
#include "shared/contract.cuh"
#include "products/wgmma_e4m3.cuh"

KERNEL(wgmma_e4m3_swiglu, linear_swiglu)
#define MATRICES 2
#define RESIDUAL 0
#include "products/wgmma_e4m3_contract.cuh"
#include "products/codes_write.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_e4m3_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	using P = ByteProducts<ST, K, N, bm(), WARPGROUPS, SPLIT, 2>;
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map },
		{ GATE_SCALE ? a.gate_scale : nullptr, UP_SCALE ? a.up_scale : nullptr } };
	write_products(rings, a, operands);
}
