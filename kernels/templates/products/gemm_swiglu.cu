// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]), for
//           batches and prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times bf16(w), accumulated in f32 in ascending k; norm, biases, silu and product in f32;
//           one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM: 251 TFLOP/s at 2048 rows of 14336 x 4096, 40 % of what mma.sync can do; no spills
// codes     e4m3, e2m1 and u4 become bf16 exactly, e2m1 with the scale of its group, u4 less its zero; scales of blocks
//           and of groups of u4 multiply the f32 sums of their columns, those of rows the end. k is then added in
//           another fixed order (gemm_codes.cuh)
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators and no value crosses threads
#include "shared/contract.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_swiglu, norm_swiglu)
#define MATRICES 2
#define NORM 1
#define RESIDUAL 0
#define LOGITS 0
#include "products/gemm_contract.cuh"

extern "C" __global__ void __launch_bounds__(T::threads) gemm_swiglu(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * (BN / 2);
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, true, NORM_ONE != 0, C>(
		ring,
		[&](int r) {
			const bool exists = ROWS % BM == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const int n = n0 + r / 16 * 8 + r % 8;
			const bool exists = N % (BN / 2) == 0 || n < N;
			return Row<WT> { (r / 8 % 2 ? a.up : a.gate) + (exists ? i64(n) * row_units<WT, K> : 0), exists };
		},
		[&](int r) {
			return scale_row<C, N, K, BN / 2>(r / 8 % 2 ? a.up_scale : a.gate_scale, n0 + r / 16 * 8 + r % 8);
		},
		a.norm, float(EPS), acc, scale);

	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = t0 + warp % T::warps_m * T::warp_m, c0 = n0 + warp / T::warps_m * (T::warp_n / 2);
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j += 2) {
				const int t = m0 + m * 16 + g + 8 * i, n = c0 + j * 4 + 2 * q;
				if (t >= ROWS || n >= N)
					continue;
				const bool both = n + 1 < N;
				float y[2];
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float gate = acc[m][j][2 * i + e] * scale[m][i], up = acc[m][j + 1][2 * i + e] * scale[m][i];
					const int at = both ? n + e : n;
					if constexpr (GATE_ROW_SCALE && UP_ROW_SCALE) {
						gate *= a.gate_row_scale[at];
						up *= a.up_row_scale[at];
					}
					if constexpr (GATE_BIAS)
						gate += to_f32(a.gate_bias[at]);
					if constexpr (UP_BIAS)
						up += to_f32(a.up_bias[at]);
					y[e] = gate / (1.0f + __expf(-gate)) * up;
				}
				store_pair(a.y + i64(t) * N + n, y[0], y[1], both, N % 2 == 0);
			}
}
