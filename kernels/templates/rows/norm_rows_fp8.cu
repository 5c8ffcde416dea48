// what      n[k] = x[t,k] / sqrt(mean(x[t,:]^2) + EPS) * (norm[k] or 1 + norm[k]); y_scale[k / 128, t] = the largest
//           |n[k]| of its 128 columns / 448, y[t,k] = n[k] / y_scale in e4m3: norm_rows for products of codes; rows
//           beyond step[0] stay as they are
// numerics  squares summed in f32, in an order that K alone decides; the normed row is never rounded to bf16; codes
//           rounded to nearest even. Same bits every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=5120: 8192 rows 41.3 us, 67 % of the read bandwidth; 16 rows 1.6
// why       16 lanes have 128 columns between them, so that no more than the sum of squares crosses warps
#include "shared/contract.cuh"
#include "shared/quant.cuh"
#include "shared/reduce.cuh"

KERNEL(norm_rows_fp8, norm_rows_fp8)
#define NORM 1
#define Y_BITS 8
#include "rows/rows_contract.cuh"

extern "C" __global__ void __launch_bounds__(threads, 1600 / threads) norm_rows_fp8(const Args a)
{
	__shared__ float sums[threads / 32];
	const int row = blockIdx.x, rows = a.step[0];
	let_next_start();
	Vec8<NT> norm[pieces] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			norm[i] = load8(a.norm + k);
	}
	inputs_ready();
	if (row >= rows)
		return;
	Vec8<bf16> x[pieces] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			x[i] = load8(a.x + i64(row) * K + k);
	}
	float squares = 0.0f;
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		float v[8];
		unpack(x[i], v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			squares = fmaf(v[e], v[e], squares);
	}
	const float scale = rsqrtf(block_sum<threads / 32>(squares, sums) / K + float(EPS));
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		float v[8], w[8];
		uint2 codes;
		unpack(x[i], v);
		unpack(norm[i], w);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] *= scale * ((NORM_ONE ? 1.0f : 0.0f) + w[e]);
		const float of_codes = code_columns_of(v, codes);
		if (k >= K)
			continue;
		*reinterpret_cast<uint2 *>(a.y + i64(row) * K + k) = codes;
		if (k % code_columns == 0)
			a.y_scale[i64(k / code_columns) * ROWS + row] = of_codes;
	}
}
