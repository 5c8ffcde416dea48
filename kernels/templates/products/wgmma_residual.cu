// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for more than 32 rows; rows beyond step[0] stay as
//           they are
// numerics  bf16 products accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// measured  H100 SXM, 2048 rows: K=4096, N=4096 724 TFLOP/s where the vendor's bare product has 675; K=14336, N=4096
//           768 for 695; 512 rows, K=2048, N=2048 11.8 us for 11.6. No spills
// tiles     128 x BN. BN = 256 asks least of the L2 cache; narrower tiles are for launches that would leave
//           multiprocessors without one (H200, 128 rows, K=14336, N=4096: BN = 64 38.2 us, 128 66.4, 256 130). Blocks
//           in pairs (CLUSTER) share each tile of w: 10 % faster on many tiles
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       the residual comes through the ring of the operands, so that its latency hides behind the last products;
//           gemm_residual serves other targets and weights
#include "shared/contract.cuh"
#include "products/wgmma.cuh"

KERNEL(wgmma_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#include "products/wgmma_contract.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const Products<1> operands = { &a.x_map, { &a.w_map }, &a.residual_map };
	wgmma_products<BN, K, N, CLUSTER>(ring, rows, operands, [&](const auto &acc, int t0, int n0) {
		store_tile<N, BN / 8>(a.z + i64(t0) * N + n0, rows - t0, N - n0, [&](int i, int j) {
			float2 bias = {};
			if constexpr (BIAS)
				bias = bias_pair<N>(a.bias, n0 + j * 8 + threadIdx.x % 4 * 2);
			return pack_bf16(acc[j][2 * i] + bias.x, acc[j][2 * i + 1] + bias.y);
		});
	});
}
