// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n]; w may be codes with scales
// numerics  x times w, accumulated in f32; one rounding. The order of additions depends on K, COLS and CHAINS alone: a
//           row has the same bits every run and, with these, in every bucket
// measured  H100 SXM, in a chain of its own kind, one row: 72 % of the read rate at 2048 x 2048, 88 % at 2048 x 8192,
//           92 % at 4096 x 4096, 95 % at 4096 x 14336, which has 94 % for 8 rows, 91 % for 16, 84 % for 32; no spills
// codes     one row, H200: FP8 4096 x 4096 6.1 us, 4096 x 14336 16.1 us with a ring of four turns; NVFP4 5.7 and 16.0
//           with two turns of twice the columns; other depths cost 3 to 40 % more
// why       the residual is read as soon as it may be, beside the stream of weights, so that the tail waits for nothing
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_residual, linear_residual)
#define MATRICES 1
#define NORM 0
#define RESIDUAL 1
#define LOGITS 0
#include "products/stream_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_residual(const Args a)
{
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	constexpr int count = ceil_div(16 * TILES * ROWS, 256);
	constexpr bool early = count <= 4;
	float rest[early ? count : 1];
	const auto read_rest = [&](int t, int n) {
		float r = to_f32(a.residual[i64(t) * N + n]);
		if constexpr (BIAS)
			r += to_f32(a.bias[n]);
		return r;
	};
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n0 + stream_row<S, 16 * TILES>(), N - 1)];
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, false, void>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, static_cast<const void *>(nullptr), some, [&] {
			if constexpr (early)
				stream_each<S, 16 * TILES>([&](int i, int t, int row) {
					rest[i] = n0 + row < N ? read_rest(t, n0 + row) : 0.0f;
				});
		}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int i, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float r;
		if constexpr (early)
			r = rest[i];
		else
			r = read_rest(t, n);
		const float sum = sums.at(t, row);
		store(a.z + i64(t) * N + n, W_ROW_SCALE ? fmaf(sum, row_scale, r) : sum + r);
	});
}
