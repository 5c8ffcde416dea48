// what      h[i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), all codes of e4m3 with
//           scales: x one of each row and 128 columns, gate and up of each 128 x 128 block, of each row, or both;
//           y_scale[i / 128, t] = the largest |h[i]| of its 128 columns / 448, y[t,i] = h[i] / y_scale in e4m3, what
//           the next product reads; for long prompts; rows beyond step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in ascending order; then scales of rows, biases, silu, product and quotient in f32; h is
//           never rounded to bf16. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, 2048 rows, K=4096, N=14336: 458 us, 1,050 TFLOP/s. No spills
// tiles     128 rows x 128 columns of h, a stage of 128 columns. Blocks in pairs (CLUSTER) share each tile of weights
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       the two halves of a tile are 128 rows of gate and the same of up: both halves of an output stand in one
//           thread's accumulators, and the 128 columns that share a scale of y in the four lanes of a row
#include "shared/contract.cuh"
#include "products/wgmma_fp8.cuh"

KERNEL(wgmma_fp8_swiglu, linear_swiglu_fp8)
#define MATRICES 2
#define RESIDUAL 0
#include "products/wgmma_fp8_contract.cuh"

// what two accumulators of one matrix, columns n and n + 1, are in full
template <bool HAS_SCALE_, bool HAS_BIAS_, int N_>
__device__ __forceinline__ float2 finished(float a, float b, const float *scale, const BT *bias, int n)
{
	float2 v = make_float2(a, b);
	if constexpr (HAS_SCALE_) {
		const float2 s = bias_pair<N_>(scale, n);
		v = make_float2(v.x * s.x, v.y * s.y);
	}
	if constexpr (HAS_BIAS_) {
		const float2 s = bias_pair<N_>(bias, n);
		v = make_float2(v.x + s.x, v.y + s.y);
	}
	return v;
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_fp8_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const Products<2> operands = { &a.x_map, { &a.gate_map, &a.up_map }, nullptr };
	const CodeScales<ST> scales[2] = { { a.gate_scale, a.gate_row_scale }, { a.up_scale, a.up_row_scale } };
	wgmma_code_products<256, K, N, CLUSTER, ROWS, GATE_SCALE != 0>(ring, rows, operands, a.x_scale, scales,
		[&](auto &, int, auto &acc, int t0, int n0) {
			float largest[2] = {};
#pragma unroll
			for (int j = 0; j < 16; j++)
#pragma unroll
				for (int i = 0; i < 2; i++) {
					const int n = n0 + j * 8 + threadIdx.x % 4 * 2;
					const float2 gate = finished<GATE_ROW_SCALE, GATE_BIAS, N>(acc[j][2 * i], acc[j][2 * i + 1],
						a.gate_row_scale, a.gate_bias, n);
					const float2 up = finished<UP_ROW_SCALE, UP_BIAS, N>(acc[16 + j][2 * i], acc[16 + j][2 * i + 1],
						a.up_row_scale, a.up_bias, n);
					acc[j][2 * i] = __fdividef(gate.x, 1.0f + __expf(-gate.x)) * up.x;
					acc[j][2 * i + 1] = __fdividef(gate.y, 1.0f + __expf(-gate.y)) * up.y;
					largest[i] = fmaxf(largest[i], fmaxf(fabsf(acc[j][2 * i]), fabsf(acc[j][2 * i + 1])));
				}
			store_codes<N, ROWS>(a.y, a.y_scale, rows, t0, n0, acc, largest);
		});
}
