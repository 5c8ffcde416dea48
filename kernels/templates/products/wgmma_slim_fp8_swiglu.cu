// what      v[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), as codes y of e4m3 with a
//           scale for each row and 128 columns; x, gate and up codes with scales; for up to 64 rows; rows beyond
//           step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; scales of rows,
//           biases, silu and product in f32; the scale is the largest magnitude / 448. Same bits every run; a row's
//           bits do not depend on the other rows
// measured  H200 SXM, K=5120, N=17408: 16 rows 55.8 us in a chain, 50.5 alone, 77 % of the read bandwidth; 32 rows 57.2
// tiles     128 rows of w of each matrix by 16, 32 or 64 of x, a stage of 128 columns. Where tiles are few, SPLIT
//           blocks divide the columns of one
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       blocks of BLOCKS launches share a multiprocessor: as one launch ends, the weights of the next are under way
#include "shared/contract.cuh"
#include "products/wgmma_slim.cuh"

KERNEL(wgmma_slim_fp8_swiglu, linear_swiglu_fp8)
#define MATRICES 2
#define RESIDUAL 0
#define SCALES 1
#include "products/wgmma_slim_contract.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(288, BLOCKS)
wgmma_slim_fp8_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map }, a.x_scale };
	slim_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			const ST *const scales[] = { GATE_SCALE ? a.gate_scale : nullptr, UP_SCALE ? a.up_scale : nullptr };
			slim_multiply_codes<P, N>(stages, group, acc, scales);
		},
		[](int, int, int) {},
		[&](int, int t, int n, float (&v)[2][8]) {
			slim_complete<N>(v[0], n, GATE_ROW_SCALE ? a.gate_row_scale : nullptr, GATE_BIAS ? a.gate_bias : nullptr);
			slim_complete<N>(v[1], n, UP_ROW_SCALE ? a.up_row_scale : nullptr, UP_BIAS ? a.up_bias : nullptr);
			float y[8];
#pragma unroll
			for (int i = 0; i < 8; i++)
				y[i] = __fdividef(v[0][i], 1.0f + __expf(-v[0][i])) * v[1][i];
			uint2 codes;
			const float scale = code_columns_of(y, codes);
			if (t >= rows)
				return;
			if (n < N)
				*reinterpret_cast<uint2 *>(a.y + i64(t) * N + n) = codes;
			if (n % 128 == 0)
				a.y_scale[i64(n / 128) * ROWS + t] = scale;
		});
}
