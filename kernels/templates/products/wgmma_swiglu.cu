// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), for more than 32 rows;
//           rows beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; biases, silu and product in f32; one rounding. Same bits
//           every run; a row's bits do not depend on the other rows
// measured  H100 SXM, 512 rows, K=2048, N=8192: 53 us, 648 TFLOP/s, where the vendor's bare product has 631; 2048 rows,
//           K=4096, N=14336: 633 TFLOP/s at the end of a long run, when power is short; wgmma_linear has 705 there
//           after a rest and the vendor 678. 128 rows 86 us, 90 % of the read bandwidth. No spills
// tiles     128 x BN. BN = 256 asks least of the L2 cache; narrower tiles are for launches that would leave
//           multiprocessors without one. Blocks in pairs (CLUSTER) share each tile of w: 10 % faster on many tiles
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       a tile of w is as many rows of gate as of up: then both halves of an output stand in one thread's
//           accumulators and no value crosses threads
#include "shared/contract.cuh"
#include "products/wgmma.cuh"

KERNEL(wgmma_swiglu, linear_swiglu)
#define MATRICES 2
#define RESIDUAL 0
#include "products/wgmma_contract.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const Products<2> operands = { &a.x_map, { &a.gate_map, &a.up_map }, nullptr };
	wgmma_products<BN, K, N, CLUSTER>(ring, rows, operands, [&](const auto &acc, int t0, int n0) {
		store_tile<N, BN / 16>(a.y + i64(t0) * N + n0, rows - t0, N - n0, [&](int i, int j) {
			const int n = n0 + j * 8 + threadIdx.x % 4 * 2;
			float2 gate = make_float2(acc[j][2 * i], acc[j][2 * i + 1]);
			float2 up = make_float2(acc[BN / 16 + j][2 * i], acc[BN / 16 + j][2 * i + 1]);
			if constexpr (GATE_BIAS) {
				const float2 b = bias_pair<N>(a.gate_bias, n);
				gate = make_float2(gate.x + b.x, gate.y + b.y);
			}
			if constexpr (UP_BIAS) {
				const float2 b = bias_pair<N>(a.up_bias, n);
				up = make_float2(up.x + b.x, up.y + b.y);
			}
			return pack_bf16(gate.x / (1.0f + __expf(-gate.x)) * up.x, gate.y / (1.0f + __expf(-gate.y)) * up.y);
		});
	});
}
