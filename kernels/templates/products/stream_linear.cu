// what      y[t,n] = sum_k x[t,k] w[n,k] + bias[n]; w may be codes with scales
// numerics  x times w, accumulated in f32; one rounding. The order of additions depends on K, COLS and CHAINS alone: a
//           row has the same bits every run and, with these, in every bucket
// measured  H100 SXM, in a chain of its own kind, 2048 x 4096 in FP8: 4.0 us for one row, 4.6 for three
// why       for products without a norm of their own in front of them: of a drafting head, which reads two rows that
//           were normed apart, side by side
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_linear, linear_rows)
#define MATRICES 1
#define NORM 0
#define RESIDUAL 0
#define LOGITS 0
#include "products/stream_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_linear(const Args a)
{
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n0 + stream_row<S, 16 * TILES>(), N - 1)];
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, false, void>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, static_cast<const void *>(nullptr), some, [] {}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float bias = 0.0f;
		if constexpr (BIAS)
			bias = to_f32(a.bias[n]);
		const float sum = sums.at(t, row);
		store(a.y + i64(t) * N + n, W_ROW_SCALE ? fmaf(sum, row_scale, bias) : sum + bias);
	});
}
