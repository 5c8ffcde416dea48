// what      v[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]); for up to 64 rows; rows
//           beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k, SPLIT runs of columns apart, which are then added in
//           order; biases, silu and product in f32; one rounding. Same bits every run; a row's bits do not depend on
//           the other rows
// measured  H200 SXM, 32 rows, K=4096, N=14336: 64.0 us, 80 % of the read bandwidth
// tiles     128 rows of w of each matrix by 16, 32 or 64 of x, a stage of 64 columns. Where tiles are few, SPLIT blocks
//           divide the columns of one
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       blocks of BLOCKS launches share a multiprocessor: as one launch ends, the weights of the next are under way
#include "shared/contract.cuh"
#include "products/wgmma_slim.cuh"

KERNEL(wgmma_slim_swiglu, linear_swiglu)
#define MATRICES 2
#define RESIDUAL 0
#define SCALES 0
#include "products/wgmma_slim_contract.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(288, BLOCKS)
wgmma_slim_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map }, nullptr };
	slim_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { slim_multiply<P>(stages, group, acc); },
		[](int, int, int) {},
		[&](int, int t, int n, float (&v)[2][8]) {
			slim_complete<N>(v[0], n, nullptr, GATE_BIAS ? a.gate_bias : nullptr);
			slim_complete<N>(v[1], n, nullptr, UP_BIAS ? a.up_bias : nullptr);
			float y[8];
#pragma unroll
			for (int i = 0; i < 8; i++)
				y[i] = __fdividef(v[0][i], 1.0f + __expf(-v[0][i])) * v[1][i];
			slim_store<N>(a.y, rows, t, n, y);
		});
}
