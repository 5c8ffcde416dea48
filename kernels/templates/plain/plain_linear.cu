// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n], in f32 or bf16; w may be codes with scales
// numerics  f32 sums in an order that depends on K alone; one rounding. Same bits every run; batch-invariant
// measured  not yet
// why       the op alone with a result in f32: the scores of a router, the logits that something changes before they
//           are drawn from. A warp has a column of up to 8 rows, 16 bytes of it a lane, and reads each weight once;
//           products in bf16 have templates of their own (linear_rows)
#include "shared/contract.cuh"
#include "plain/plain_codes.cuh"
#include "shared/reduce.cuh"

KERNEL(plain_linear, linear)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
DIM(N, 128)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(BT, bf16, f16, f32)
DTYPES(YT, f32, bf16)
REQUIRE(K % 8 == 0)
REQUIRE(!W_SCALE || BLOCK_K >= K || BLOCK_K % 8 == 0 && BLOCK_K > 0)
REQUIRE(ceil_div(ROWS, 8) <= 65535)
ORDER(plain)
GRID(ceil_div(N, 8), ceil_div(ROWS, 8), 1)
BLOCK(256)
SMEM(0)
READS(ceil_div(ROWS, 8) * (N * K * WT_BITS / 8
	+ W_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8 + W_ROW_SCALE * N * 4)
	+ ROWS * K * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * YT_BYTES)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	OUT(YT, y, "ROWS, N");
};

constexpr int MINE = ROWS < 8 ? ROWS : 8; // rows of a warp

extern "C" __global__ void __launch_bounds__(256) plain_linear(const Args a)
{
	let_next_start();
	const int n = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, t0 = blockIdx.y * 8;
	inputs_ready();
	if (n >= N)
		return;
	float sum[MINE] = {};
#pragma unroll 4
	for (int k = lane * 8; k < K; k += 256) {
		float w[8];
		elements8(a.w, i64(n) * K + k, w);
		if constexpr (W_SCALE) {
			const ST block = a.w_scale[i64(n / BLOCK_N) * ceil_div(K, BLOCK_K) + k / BLOCK_K];
			const float scale = scale_of(block), zero = zero_of(block);
#pragma unroll
			for (int e = 0; e < 8; e++)
				w[e] = (w[e] - zero) * scale;
		}
#pragma unroll
		for (int r = 0; r < MINE; r++) {
			float x[8];
			unpack(load8(a.x + i64(min(t0 + r, ROWS - 1)) * K + k), x);
#pragma unroll
			for (int e = 0; e < 8; e++)
				sum[r] = fmaf(x[e], w[e], sum[r]);
		}
	}
	float row_scale = 1.0f, bias = 0.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[n];
	if constexpr (BIAS)
		bias = to_f32(a.bias[n]);
#pragma unroll
	for (int r = 0; r < MINE; r++) {
		const float all = warp_sum(sum[r]);
		if (lane == 0 && t0 + r < ROWS)
			store(a.y + i64(t0 + r) * N + n, fmaf(all, row_scale, bias));
	}
}
