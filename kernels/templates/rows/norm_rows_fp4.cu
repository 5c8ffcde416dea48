// what      n[k] = x[t,k] / sqrt(mean(x[t,:]^2) + EPS) * (norm[k] or 1 + norm[k]), as codes of e2m1 with a scale of
//           e4m3 for each 16 columns and one of f32 a row, for products of codes by codes: y_row_scale[t] = the largest
//           |n| / 2688; y_block[t, k / 16] = the largest |n| of its 16 columns / y_row_scale / 6; y = n / (block * row
//           scale); rows beyond step[0] stay as they are
// numerics  squares summed in f32, in an order that K alone decides; the normed row is never rounded to bf16; codes and
//           blocks rounded to nearest even. Same bits every run; a row's bits do not depend on the other rows
// measured  not yet
// why       two levels need no calibration: whatever the size of a row, its blocks use the whole range of e4m3
#include "shared/contract.cuh"
#include "shared/quant_fp4.cuh"

KERNEL(norm_rows_fp4, norm_rows_fp4)
#define NORM 1
#define Y_BITS 4
#include "rows/rows_contract.cuh"

extern "C" __global__ void __launch_bounds__(threads) norm_rows_fp4(const Args a)
{
	__shared__ float scratch[threads / 32];
	const int row = blockIdx.x;
	let_next_start();
	Vec8<NT> norm[pieces] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			norm[i] = load8(a.norm + k);
	}
	inputs_ready();
	if (row >= a.step[0])
		return;
	float v[pieces][8] = {}, squares = 0.0f;
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			unpack(load8(a.x + i64(row) * K + k), v[i]);
#pragma unroll
		for (int e = 0; e < 8; e++)
			squares = fmaf(v[i][e], v[i][e], squares);
	}
	const float scale = rsqrtf(block_sum<threads / 32>(squares, scratch) / K + float(EPS));
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		float w[8];
		unpack(norm[i], w);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[i][e] *= scale * ((NORM_ONE ? 1.0f : 0.0f) + w[e]);
	}
	fp4_row<K, threads / 32>(v, row, scratch, a.y, a.y_block, a.y_row_scale);
}
