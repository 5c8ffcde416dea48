// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n], as stream_norm; beside it y_narrow[t,m] = sum_k
//           rmsnorm(x)[t,k] w_narrow[m,k], of few columns in bf16; w may be codes with scales
// numerics  of each as stream_norm: bf16(x * norm) times w, accumulated in f32; 1 / rms, scales of rows and the bias in
//           f32; one rounding. Same bits every run, whatever the rows beside
// why       a product of few columns has few blocks. As a launch of its own they find no room beside a wide one, start
//           when its blocks leave, and what reads both waits for them
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_norm_narrow, norm_linear_narrow)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define NARROW 1
#define LOGITS 0
#include "products/stream_contract.cuh"
REQUIRE(n_rows() <= 16)

using T = Stream<ROWS, K, 8, 1, 64, turns_narrow(), bf16, NoScales, stream_ahead, 2>;
static_assert(stream_bytes<T, StreamNorm>() <= bytes_narrow(), "the rings of those in front");

// block level: 16 columns of y_narrow
__device__ __forceinline__ void narrow_columns(const Args &a, uint4 *ring, bool some)
{
	const int m0 = blockIdx.x * 16;
	StreamSums<T> sums;
	if (!stream<T, M % 16 == 0, NORM_ONE != 0, NT>(
		ring, [&](int) { return stream_tile<T>(a.w_narrow, nullptr, m0, M); },
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<T, 16>([&](int, int t, int row) {
		if (m0 + row < M)
			store(a.y_narrow + i64(t) * M + m0 + row, sums.at(t, row) * sums.inverse_rms(t, float(EPS)));
	});
}

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_norm_narrow(const Args a)
{
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	if (int(blockIdx.x) < blocks_narrow()) {
		narrow_columns(a, ring, some);
		return;
	}
	const int n0 = (int(blockIdx.x) - blocks_narrow()) * 16 * TILES;
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
