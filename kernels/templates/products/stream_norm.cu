// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n]; w may be codes with scales
// numerics  bf16(x * norm) times w, whose codes are decoded exactly, accumulated in f32; 1 / rms, scales of rows and
//           the bias in f32; one rounding. The order of additions depends on K, COLS, CHAINS and SQUARES (of codes also
//           on whether rows of x wait in shared memory, if SQUARES is 0): with these, a row has the same bits in every
//           bucket
// measured  H100 SXM, in a chain of its own kind: 76 % of the read rate at one row of 3072 x 2048, 94 % at 6144 x 4096;
//           at 6144 x 4096 90 % for 8 rows, 84 % for 16, 75 % for 32; no spills
// codes     one row, H200, 8B qkv: FP8 8.1 us, NVFP4 8.2 us with a ring of two turns and two tiles; deeper ones 9.7 to
//           12.8, since decoding wants warps more than bytes under way
// why       the norm is recomputed by every warp: it is a few KB from the caches behind a stream of weights, and a
//           kernel of its own would cost a launch and a round trip
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_norm, norm_linear)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define LOGITS 0
#include "products/stream_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_norm(const Args a)
{
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n0 + stream_row<S, 16 * TILES>(), N - 1)];
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float bias = 0.0f;
		if constexpr (BIAS)
			bias = to_f32(a.bias[n]);
		float scale = sums.inverse_rms(t, float(EPS));
		if constexpr (W_ROW_SCALE)
			scale *= row_scale;
		store(a.y + i64(t) * N + n, fmaf(sums.at(t, row), scale, bias));
	});
}
