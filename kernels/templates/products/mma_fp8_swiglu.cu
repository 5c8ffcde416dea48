// what      h[i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), all codes of e4m3 with
//           scales: x one of each row and 128 columns, gate and up of blocks, of rows, or both; y_scale[i / 128, t] =
//           the largest |h[i]| of its 128 columns / 448, y[t,i] = h[i] / y_scale in e4m3, what the next product reads;
//           for long prompts; rows beyond step[0] stay as they are
// numerics  products of codes summed in the tensor core over 128 columns, in ascending k, and these sums, times both
//           scales, in f32, in order; then scales of rows, biases, silu, product and quotient in f32; h is never
//           rounded to bf16. Same bits every run; a row's bits do not depend on the other rows
// measured  not on a card of its own; correct on an H100, where mma.sync turns codes into f16 on the way
// tiles     64 rows x 128 columns of h, so that a scale's columns are of one block
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators, and only the largest of a row crosses warps
#include "shared/contract.cuh"
#include "products/mma_codes.cuh"

KERNEL(mma_fp8_swiglu, linear_swiglu_fp8)
#define MATRICES 2
#define RESIDUAL 0
#include "products/mma_fp8_contract.cuh"

extern "C" __global__ void __launch_bounds__(256) mma_fp8_swiglu(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	__shared__ float largest[64][T::warps_n];
	const int t0 = blockIdx.x * 64, n0 = blockIdx.y * 128;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {};
	auto row_of = [&](int r) { return n0 + r / 16 * 8 + r % 8; };
	e4m3_products<64, 256, K>(
		ring, [&](int r) { return code_row<ROWS, K>(a.x, t0 + r); },
		[&](int r) { return code_row<N, K>(r / 8 % 2 ? a.up : a.gate, row_of(r)); },
		[&](int r, int step) { return a.x_scale[i64(step) * ROWS + min(t0 + r, ROWS - 1)]; },
		[&](int c, int step) {
			return GATE_SCALE
				? block_scale<N, K, BLOCK_N, BLOCK_K>(c / 8 % 2 ? a.up_scale : a.gate_scale, row_of(c), step)
				: 1.0f;
		},
		acc);

	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, part = warp / T::warps_m, c0 = n0 + part * (T::warp_n / 2) + 2 * q;
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float most = 0.0f;
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					const int n = c0 + j * 4 + e;
					float &h = acc[m][j][2 * i + e];
					h = n >= N ? 0.0f : gated<GATE_ROW_SCALE, UP_ROW_SCALE, GATE_BIAS, UP_BIAS>(a, h,
						acc[m][j + 1][2 * i + e], n);
					most = fmaxf(most, fabsf(h));
				}
			most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
			most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
			if (q == 0)
				largest[m0 + m * 16 + g + 8 * i][part] = most;
		}
	__syncthreads();
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int r = m0 + m * 16 + g + 8 * i, t = t0 + r;
			const float scale =
				code_scale(fmaxf(fmaxf(largest[r][0], largest[r][1]), fmaxf(largest[r][2], largest[r][3])));
			if (t >= ROWS)
				continue;
			if (part == 0 && q == 0)
				a.y_scale[i64(blockIdx.y) * ROWS + t] = scale;
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2)
				if (c0 + j * 4 < N)
					*reinterpret_cast<unsigned short *>(a.y + i64(t) * N + c0 + j * 4) = static_cast<unsigned short>(
						pack_e4m3(acc[m][j][2 * i] / scale, acc[m][j][2 * i + 1] / scale, 0.0f, 0.0f));
		}
}
