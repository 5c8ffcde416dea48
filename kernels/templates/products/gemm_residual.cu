// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], for batches and prompts; rows beyond step[0]
//           stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; one rounding. Same bits every run; a row's bits do not
//           depend on the other rows
// measured  H100 SXM: 191 TFLOP/s at 512 rows of 2048 x 8192, 30 % of what mma.sync can do; no spills
// codes     e4m3, e2m1 and u4 become bf16 exactly, e2m1 with the scale of its group, u4 less its zero; scales of blocks
//           and of groups of u4 multiply the f32 sums of their columns, those of rows the end. k is then added in
//           another fixed order (gemm_codes.cuh)
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       mma.sync serves sm_80 to sm_121 with one text; tiles of rows that the step does not use are never started
#include "shared/contract.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_residual, linear_residual)
#define MATRICES 1
#define NORM 0
#define RESIDUAL 1
#define LOGITS 0
#include "products/gemm_contract.cuh"

extern "C" __global__ void __launch_bounds__(T::threads) gemm_residual(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
	if (t0 >= a.step[0])
		return;
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, false, false, C>(
		ring,
		[&](int r) {
			const bool exists = ROWS % BM == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const bool exists = N % BN == 0 || n0 + r < N;
			return Row<WT> { a.w + (exists ? i64(n0 + r) * row_units<WT, K> : 0), exists };
		},
		[&](int r) { return scale_row<C, N, K, BN>(a.w_scale, n0 + r); },
		static_cast<const bf16 *>(nullptr), 0.0f, acc, scale);
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int t = t0 + r, n = n0 + c;
		if (t >= ROWS || n >= N)
			return;
		const bool both = n + 1 < N;
		const i64 at = i64(t) * N + n;
		if constexpr (C::bits < 16) {
			lo *= s;
			hi *= s;
		}
		if constexpr (W_ROW_SCALE) {
			lo *= a.w_row_scale[n];
			hi *= a.w_row_scale[both ? n + 1 : n];
		}
		lo += to_f32(a.residual[at]);
		hi += both ? to_f32(a.residual[at + 1]) : 0.0f;
		if constexpr (BIAS) {
			lo += to_f32(a.bias[n]);
			hi += both ? to_f32(a.bias[n + 1]) : 0.0f;
		}
		store_pair(a.z + at, lo, hi, both, N % 2 == 0);
	});
}
