// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n]; for up to 64 rows; rows beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k, SPLIT runs of columns apart, which are then added in
//           order; bias; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, 32 rows, K=4096, N=6144: 16.7 us, 66 % of the read bandwidth
// tiles     128 rows of w by 16, 32 or 64 of x, a stage of 64 columns. Where tiles are few, SPLIT blocks divide the
//           columns of one
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       blocks of BLOCKS launches share a multiprocessor: as one launch ends, the weights of the next are under way
#include "shared/contract.cuh"
#include "products/wgmma_slim.cuh"

KERNEL(wgmma_slim_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#define SCALES 0
#include "products/wgmma_slim_contract.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(288, BLOCKS)
wgmma_slim_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map }, nullptr };
	slim_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { slim_multiply<P>(stages, group, acc); },
		[](int, int, int) {},
		[&](int, int t, int n, float (&v)[1][8]) {
			slim_complete<N>(v[0], n, nullptr, BIAS ? a.bias : nullptr);
			slim_store<N>(a.y, rows, t, n, v[0]);
		});
}
