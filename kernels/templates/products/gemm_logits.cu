// what      logits[o,v] = cap?(sum_k rmsnorm(x[out_row[o],:])[k] w[v,k]), in f32, for many outs; idle outs (-1): 0;
//           outs beyond step[1] stay as they are
// numerics  bf16(x * norm) times bf16(w), accumulated in f32 in ascending k; not rounded. Same bits every run; an
//           out's bits do not depend on the others
// measured  H100 SXM, 16 outs: 85 % of the read bound at 128256 x 2048; no spills
// codes     e4m3, e2m1 and u4 become bf16 exactly, e2m1 with the scale of its group, u4 less its zero; scales of blocks
//           and of groups of u4 multiply the f32 sums of their columns, those of rows the end. k is then added in
//           another fixed order (gemm_codes.cuh)
// bytes     READS is what tiles ask for: weights once for each row of tiles, x once for each column of them
// why       rows are gathered as the x tile is filled, so no copy of them is made
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_logits, norm_logits)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define LOGITS 1
#include "products/gemm_contract.cuh"

extern "C" __global__ void __launch_bounds__(T::threads) gemm_logits(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int o0 = blockIdx.x * BM, v0 = blockIdx.y * BN;
	if (o0 >= a.step[1])
		return;
	__shared__ int rows[BM];
	for (int i = threadIdx.x; i < BM; i += T::threads)
		rows[i] = o0 + i < OUTS ? a.out_row[o0 + i] : -1;
	__syncthreads();
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm_weights<BM, BN, K, true, NORM_ONE != 0, C>(
		ring,
		[&](int r) {
			const int t = rows[r];
			const bool exists = t >= 0 && t < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t) * K : 0), exists };
		},
		[&](int r) {
			const bool exists = V % BN == 0 || v0 + r < V;
			return Row<WT> { a.w + (exists ? i64(v0 + r) * row_units<WT, K> : 0), exists };
		},
		[&](int r) { return scale_row<C, V, K, BN>(a.w_scale, v0 + r); },
		a.norm, float(EPS), acc, scale);
	if constexpr (W_ROW_SCALE) {
		const int c0 = v0 + threadIdx.x / 32 / T::warps_m * T::warp_n + threadIdx.x % 4 * 2;
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float row_scale = a.w_row_scale[min(c0 + j * 8 + e, V - 1)];
#pragma unroll
				for (int m = 0; m < T::m_tiles; m++) {
					acc[m][j][e] *= row_scale;
					acc[m][j][2 + e] *= row_scale;
				}
			}
	}
	if constexpr (float(CAP) > 0.0f)
#pragma unroll
		for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
#pragma unroll
				for (int j = 0; j < T::n_tiles; j++)
#pragma unroll
					for (int e = 2 * i; e < 2 * i + 2; e++)
						acc[m][j][e] = soft_cap(acc[m][j][e] * scale[m][i], float(CAP));
				scale[m][i] = 1.0f;
			}
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int o = o0 + r, v = v0 + c;
		if (o >= OUTS || v >= V)
			return;
		a.logits[i64(o) * V + v] = lo * s;
		if (v + 1 < V)
			a.logits[i64(o) * V + v + 1] = hi * s;
	});
	constexpr int PARTS = (V + BN - 1) / BN, STRIDE = BN + 8; // floats: rows of a fragment fall into different banks
	float *const part = reinterpret_cast<float *>(ring);
	__syncthreads(); // nobody reads the tiles any more
	gemm_each<BM, BN>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		*reinterpret_cast<float2 *>(part + r * STRIDE + c) = make_float2(lo * s, hi * s);
	});
	__syncthreads();
	for (int r = threadIdx.x / 32; r < BM && o0 + r < OUTS; r += T::threads / 32)
		best_of_part<BN>(v0, N_VALID, [&](int i) { return part[r * STRIDE + i]; },
			a.best + (i64(o0 + r) * PARTS + blockIdx.y) * 2, a.best_id + i64(o0 + r) * PARTS + blockIdx.y);
}
