// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), for up to 64 rows; rows
//           beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; biases, silu and product in f32; one rounding. Same bits
//           every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=4096, N=14336: 64 rows 63.8 us, 80 % of the read bandwidth. No spills
// tiles     64 x BN, of which half are rows of gate and half of up
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       a tile of wgmma_swiglu is 128 rows of x: of 64 it multiplies and keeps in its ring as many that are not
//           there
#include "shared/contract.cuh"
#include "products/wgmma_few.cuh"

KERNEL(wgmma_few_swiglu, linear_swiglu)
#define MATRICES 2
#define RESIDUAL 0
#define SCALES 0
#include "products/wgmma_few_contract.cuh"

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_few_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map } };
	few_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { few_multiply<P>(stages, group, acc); }, [](int, int, int) {},
		[&](int, int t, int n, const float (&v)[8][2]) {
			float y[4][2];
#pragma unroll
			for (int j = 0; j < 4; j++) {
				const int column = n + (j - int(threadIdx.x) % 4) * 8 + threadIdx.x % 4 * 2;
				float2 gate = make_float2(v[j][0], v[j][1]), up = make_float2(v[4 + j][0], v[4 + j][1]);
				if constexpr (GATE_BIAS) {
					const float2 b = bias_pair<N>(a.gate_bias, column);
					gate = make_float2(gate.x + b.x, gate.y + b.y);
				}
				if constexpr (UP_BIAS) {
					const float2 b = bias_pair<N>(a.up_bias, column);
					up = make_float2(up.x + b.x, up.y + b.y);
				}
				y[j][0] = gate.x / (1.0f + __expf(-gate.x)) * up.x;
				y[j][1] = gate.y / (1.0f + __expf(-gate.y)) * up.y;
			}
			few_store<N>(a.y, rows, t, n, y, nullptr, nullptr, static_cast<const bf16 *>(nullptr));
		});
}
