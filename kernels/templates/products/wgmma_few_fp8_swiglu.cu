// what      v[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), as codes y of e4m3 with a
//           scale for each row and 128 columns; x, gate and up codes with scales; for up to 64 rows; rows beyond
//           step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order, SPLIT runs of columns apart, which are then added in order; scales of rows,
//           biases, silu and product in f32; the scale is the largest magnitude / 448. Same bits every run; a row's
//           bits do not depend on the other rows
// measured  H200 SXM, 64 rows, K=5120, N=17408: 56.0 us, 70 % of the read bandwidth; K=4096, N=14336: 32.8,
//           78 %. No spills
// tiles     64 x 256, of which half are rows of gate and half of up: 128 columns of y, which have one scale a row.
//           SPLIT = 2 is for numbers of tiles that leave the last round of blocks nearly empty
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       as wgmma_few_swiglu
#include "shared/contract.cuh"
#include "products/wgmma_few_fp8.cuh"

KERNEL(wgmma_few_fp8_swiglu, linear_swiglu_fp8)
#define MATRICES 2
#define RESIDUAL 0
#define SCALES 1
#include "products/wgmma_few_contract.cuh"

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

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(384, 1)
wgmma_few_fp8_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	__shared__ float tops[2][64]; // the largest of a row in each warpgroup's columns
	constexpr int halves = SPLIT == 1 ? 2 : 1; // eight rows of a warp, of which each rank of two has one
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map } };
	float y[P::mine][4][2], largest[halves] = {};
	few_products(ring, rows, operands,
		[&](auto &stages, int group, auto &acc) {
			const ST *const scales[] = { GATE_SCALE ? a.gate_scale : nullptr, UP_SCALE ? a.up_scale : nullptr };
			few_multiply_codes<P, ROWS, N>(stages, group, acc, a.x_scale, scales);
		}, [](int, int, int) {},
		[&](int k, int t, int n, const float (&v)[8][2]) {
			const int q = threadIdx.x % 4, group = threadIdx.x / 128 - 1, half = k % halves;
#pragma unroll
			for (int j = 0; j < 4; j++) {
				const int column = n + (j - q) * 8 + q * 2;
				const float2 gate = finished<GATE_ROW_SCALE, GATE_BIAS, N>(v[j][0], v[j][1], a.gate_row_scale,
					a.gate_bias, column);
				const float2 up = finished<UP_ROW_SCALE, UP_BIAS, N>(v[4 + j][0], v[4 + j][1], a.up_row_scale,
					a.up_bias, column);
				y[k][j][0] = __fdividef(gate.x, 1.0f + __expf(-gate.x)) * up.x;
				y[k][j][1] = __fdividef(gate.y, 1.0f + __expf(-gate.y)) * up.y;
				largest[half] = fmaxf(largest[half], fmaxf(fabsf(y[k][j][0]), fabsf(y[k][j][1])));
			}
			if (k < P::mine - 1)
				return;
			// all of this block's rows are there, of the 64 columns of each warpgroup
			const int last = (halves == 2 ? 8 : 0), row = t - P::row() - last; // of the first half
#pragma unroll
			for (int h = 0; h < halves; h++) {
				largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 1));
				largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 2));
				if (q == 0)
					tops[group][row + 8 * h] = largest[h];
			}
			named_wait(2, 256);
#pragma unroll
			for (int i = 0; i < P::mine; i++) {
				const int h = i % halves, of = row + 8 * h, first = n - (P::mine - 1 - i) / halves * 32;
				const float scale = code_scale(fmaxf(tops[0][of], tops[1][of])), inverse = 1.0f / scale;
				u32 w[4];
#pragma unroll
				for (int j = 0; j < 4; j++)
					w[j] = pack_e4m3(y[i][j][0] * inverse, y[i][j][1] * inverse, 0.0f, 0.0f);
				quad_transpose(w);
				if (P::row() + of >= rows)
					continue;
				if (first < N)
					*reinterpret_cast<uint2 *>(a.y + i64(P::row() + of) * N + first) = make_uint2(
						__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410));
				if (group == 0 && q == 0 && i < halves)
					a.y_scale[i64(P::column() / 128) * ROWS + P::row() + of] = scale;
			}
		});
}
