// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], for up to 256 rows; rows beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k, SPLIT runs of columns apart, then added in order; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=4096, N=6144: 64 rows 15.2 us, 73 % of the read bandwidth; 128 rows 17.0; 256 rows 23.4, 551
//           TFLOP/s. No spills
// tiles     64 or 128 x BN. Where tiles are few, SPLIT blocks divide the columns of one
// bytes     READS is what memory delivers: blocks of one column of tiles share their operands in the L2 cache
// why       wgmma_linear takes a tile as one block does, which leaves most of the card idle where there are 32
#include "shared/contract.cuh"
#include "products/wgmma_few.cuh"

KERNEL(wgmma_few_linear, linear_rows)
#define MATRICES 1
#define RESIDUAL 0
#define SCALES 0
#include "products/wgmma_few_contract.cuh"

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_linear(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.w_map } };
	few_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { few_multiply<P>(stages, group, acc); }, [](int, int, int) {},
		[&](int, int t, int n, const float (&v)[4][2]) {
			few_store<N>(a.y, rows, t, n, v, nullptr, nullptr, BIAS ? a.bias : nullptr);
		});
}
