// what      x as codes of e2m1 with a scale of e4m3 for each 16 columns and one of f32 a row, for products of codes by
//           codes: y_row_scale[t] = the largest |x[t,:]| / 2688; y_block[t, k / 16] = the largest |x| of its 16
//           columns / y_row_scale / 6; y = x / (block * row scale); rows beyond step[0] stay as they are
// numerics  quotients in f32; codes and blocks rounded to nearest even. Same bits every run; a row's bits do not depend
//           on the other rows
// measured  not yet
// why       two levels need no calibration: whatever the size of a row, its blocks use the whole range of e4m3
#include "shared/contract.cuh"
#include "shared/quant_fp4.cuh"

KERNEL(quant_rows_fp4, quant_rows_fp4)
#define NORM 0
#define Y_BITS 4
#include "rows/rows_contract.cuh"

extern "C" __global__ void __launch_bounds__(threads) quant_rows_fp4(const Args a)
{
	__shared__ float scratch[threads / 32];
	let_next_start();
	inputs_ready();
	const int row = blockIdx.x;
	if (row >= a.step[0])
		return;
	float v[pieces][8] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			unpack(load8(a.x + i64(row) * K + k), v[i]);
	}
	fp4_row<K, threads / 32>(v, row, scratch, a.y, a.y_block, a.y_row_scale);
}
