// what      y[t,k] = x[t,k] / sqrt(mean(x[t,:]^2) + EPS) * (norm[k] or 1 + norm[k]), for prompts so long that their
//           products want operands that are done; rows beyond step[0] stay as they are
// numerics  squares summed in f32, in an order that K alone decides; one rounding. Same bits every run; a row's bits do
//           not depend on the other rows
// measured  H100 SXM, 2048 rows, K=4096: 13.3 us, 82 % of the read bandwidth; 512 rows, K=2048: 3.2 us. No spills
// why       one block a row, four pieces of 16 bytes a thread: all of a row is on its way before its sum is needed
#include "shared/contract.cuh"
#include "shared/reduce.cuh"

KERNEL(norm_rows, norm_rows)
#define NORM 1
#define Y_BITS 16
#include "rows/rows_contract.cuh"

extern "C" __global__ void __launch_bounds__(threads) norm_rows(const Args a)
{
	__shared__ float sums[threads / 32];
	const i64 row = i64(blockIdx.x) * K;
	const int rows = a.step[0];
	let_next_start();
	Vec8<NT> norm[pieces];
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			norm[i] = load8(a.norm + k);
	}
	inputs_ready();
	if (int(blockIdx.x) >= rows)
		return;
	Vec8<bf16> x[pieces] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K)
			x[i] = load8(a.x + row + k);
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
		unpack(x[i], v);
		unpack(norm[i], w);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] *= scale * ((NORM_ONE ? 1.0f : 0.0f) + w[e]);
		if (k < K)
			*reinterpret_cast<uint4 *>(a.y + row + k) = pack8(v);
	}
}
