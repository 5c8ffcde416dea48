// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], x and w codes of e4m3 with scales: x one of each
//           row and 128 columns, w of each 128 x 128 block, of each row, or both; for long prompts; rows beyond step[0]
//           stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order; then scales of rows, residual, bias; one rounding. Same bits every run; a
//           row's bits do not depend on the other rows
// measured  H200 SXM: 8192 cubed 1,140 TFLOP/s; 4096 rows, K=2048, N=7168 1,010; 2048 rows, N=4096 1,050 at K=4096 and
//           1,130 at K=14336. BN = 128 reaches three quarters of that. No spills
// tiles     128 x BN, a stage of 128 columns. BN = 256 asks least of the L2 cache and of shared memory; BN = 128 is for
//           launches that would leave multiprocessors without a tile. Blocks in pairs (CLUSTER) share each tile of w
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       the residual comes through the ring of the operands, so that its latency hides behind the last products
#include "shared/contract.cuh"
#include "products/wgmma_fp8.cuh"

KERNEL(wgmma_fp8_residual, linear_residual)
#define MATRICES 1
#define RESIDUAL 1
#include "products/wgmma_fp8_contract.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_fp8_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const Products<1> operands = { &a.x_map, { &a.w_map }, &a.residual_map };
	const CodeScales<ST> scales[1] = { { a.w_scale, a.w_row_scale } };
	wgmma_code_products<BN, K, N, CLUSTER, ROWS, W_SCALE != 0>(ring, rows, operands, a.x_scale, scales,
		[&](auto &stages, int group, auto &acc, int t0, int n0) {
			if constexpr (W_ROW_SCALE)
				scale_columns<N>(acc, a.w_row_scale, n0);
			wgmma_add_residual<BN, CLUSTER>(stages, group, acc);
			store_tile<N, BN / 8>(a.z + i64(t0) * N + n0, rows - t0, N - n0, [&](int i, int j) {
				float2 bias = {};
				if constexpr (BIAS)
					bias = bias_pair<N>(a.bias, n0 + j * 8 + threadIdx.x % 4 * 2);
				return pack_bf16(acc[j][2 * i] + bias.x, acc[j][2 * i + 1] + bias.y);
			});
		});
}
