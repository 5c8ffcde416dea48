// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), x, gate and up codes of
//           e2m1, all with scales of e4m3 for each 16 columns and of f32 for each row; for long prompts; rows
//           beyond step[0] stay as they are
// numerics  products of codes and their scales summed in the tensor core, in ascending k; then scales of rows, biases,
//           silu and product in f32; one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  never run: no card with it was there. Its machine code was looked at, its numbers were not
// tiles     BM x 64 columns of y: BM = 64 is for launches that would leave multiprocessors without a tile
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators. y becomes codes in a launch of its own, since its scale is that of a whole row
#include "shared/contract.cuh"
#include "products/mma_fp4.cuh"

KERNEL(mma_fp4_swiglu, linear_swiglu)
#define MATRICES 2
#define RESIDUAL 0
#include "products/mma_fp4_contract.cuh"

extern "C" __global__ void __launch_bounds__(256) mma_fp4_swiglu(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * 64;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {};
	auto row_of = [&](int r) { return n0 + r / 16 * 8 + r % 8; };
	fp4_products<BM, 128, K>(
		ring, [&](int r) { return code_row<ROWS, K / 2>(a.x, t0 + r); },
		[&](int r) { return code_row<N, K / 2>(r / 8 % 2 ? a.up : a.gate, row_of(r)); },
		[&](int r) { return code_row<ROWS, K / 16>(a.x_block, t0 + r); },
		[&](int r) { return code_row<N, K / 16>(r / 8 % 2 ? a.up_scale : a.gate_scale, row_of(r)); }, acc);

	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = t0 + warp % T::warps_m * T::warp_m, c0 = n0 + warp / T::warps_m * (T::warp_n / 2) + 2 * q;
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				const int t = m0 + m * 16 + g + 8 * i, n = c0 + j * 4;
				if (t >= ROWS || n >= N)
					continue;
				const bool both = n + 1 < N;
				const float row = a.x_row_scale[t];
				float y[2];
#pragma unroll
				for (int e = 0; e < 2; e++)
					y[e] = gated<GATE_ROW_SCALE, UP_ROW_SCALE, GATE_BIAS, UP_BIAS>(a, acc[m][j][2 * i + e] * row,
						acc[m][j + 1][2 * i + e] * row, both ? n + e : n);
				store_pair(a.y + i64(t) * N + n, y[0], y[1], both, N % 2 == 0);
			}
}
