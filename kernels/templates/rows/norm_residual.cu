// what      z[t,k] = residual[t,k] + x[t,k] / sqrt(mean(x[t,:]^2) + EPS) * (norm[k] or 1 + norm[k]), with factor times
//           factor[0]; rows beyond step[0] stay as they are
// numerics  squares summed in f32, in an order that K alone decides; norm, sum and factor in f32; one rounding. Same
//           bits every run; a row's bits do not depend on the other rows
// measured  H200, alone and with a cold cache: 5.7 us at one row of 5376, 22.1 us at 2048 rows, 64 % of the read rate
// why       as norm_rows; what is added is on its way by the time the sum of squares is known
#include "shared/contract.cuh"
#include "shared/reduce.cuh"

KERNEL(norm_residual, norm_residual)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
ATTR_FLOAT(EPS, 1e-6f) ATTR_INT(NORM_ONE, 0)
FLAG(FACTOR)
DTYPES(NT, bf16, f16, f32)
DTYPES(FT, bf16, f16, f32)
REQUIRE(K % 8 == 0)
ORDER(norm)
FORMULA(row_threads(), K < 8192 * 2 ? ceil_div(K, 256 * 2) * 32 : 1024)
GRID(ROWS, 1, 1)
BLOCK(row_threads())
SMEM(0)
READS(ROWS * K * 4 + K * NT_BYTES + FACTOR * FT_BYTES)
WRITES(ROWS * K * 2)
FLOPS(6 * ROWS * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(bf16, residual, "ROWS, K");
	IN_IF(FACTOR, FT, factor, "1");
	OUT(bf16, z, "ROWS, K");
};

constexpr int threads = row_threads(), pieces = ceil_div(K / 8, threads);

extern "C" __global__ void __launch_bounds__(threads) norm_residual(const Args a)
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
	float factor = 1.0f;
	if constexpr (FACTOR)
		factor = to_f32(a.factor[0]);
	inputs_ready();
	if (int(blockIdx.x) >= rows)
		return;
	Vec8<bf16> x[pieces] = {}, residual[pieces] = {};
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = (i * threads + int(threadIdx.x)) * 8;
		if (k < K) {
			x[i] = load8(a.x + row + k);
			residual[i] = load8(a.residual + row + k);
		}
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
		float v[8], w[8], r[8];
		unpack(x[i], v);
		unpack(norm[i], w);
		unpack(residual[i], r);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] = factor * fmaf(v[e], scale * ((NORM_ONE ? 1.0f : 0.0f) + w[e]), r[e]);
		if (k < K)
			*reinterpret_cast<uint4 *>(a.z + row + k) = pack8(v);
	}
}
