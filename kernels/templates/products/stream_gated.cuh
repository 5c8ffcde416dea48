// stream_gated.cuh - act(gate x, up x) of few rows, whose weights are streamed, stream_*glu.cu: included after the
// contract, whose Args it reads.
//
// A group of warps holds rows of gate and the same rows of up, so the product needs neither a second kernel nor a
// layout of its own.
#pragma once

#if NORM
constexpr bool norm_one = NORM_ONE != 0;
__device__ __forceinline__ const StreamNorm *norm_of(const Args &a) { return a.norm; }
__device__ __forceinline__ float scale_of(const StreamSums<S> &sums, int t) { return sums.inverse_rms(t, float(EPS)); }
#else
constexpr bool norm_one = false;
__device__ __forceinline__ const StreamNorm *norm_of(const Args &) { return nullptr; }
__device__ __forceinline__ float scale_of(const StreamSums<S> &, int) { return 1.0f; }
#endif

// block level: the whole kernel
template <class Act> __device__ __forceinline__ void stream_gated(const Args &a, Act act)
{
	constexpr int half = 8 * TILES; // rows of gate, then as many of up
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = (blockIdx.x * S::groups + threadIdx.x / (32 * SPLIT)) * half;
	float gate_row_scale = 1.0f, up_row_scale = 1.0f;
	if constexpr (GATE_ROW_SCALE && UP_ROW_SCALE) {
		const int n = min(n0 + stream_row<S, half>(), N - 1);
		gate_row_scale = a.gate_row_scale[n];
		up_row_scale = a.up_row_scale[n];
	}
	StreamSums<S> sums;
	if (!stream<S, N % (S::groups * half) == 0, norm_one, StreamNorm>(
		ring, [&](int m) {
			const bool first = m < TILES / 2;
			const int n = n0 + m % (TILES / 2) * 16;
			return stream_tile<S>(first ? a.gate : a.up, first ? a.gate_scale : a.up_scale, n, N);
		},
		[&](int t) { return a.x + i64(t) * K; }, norm_of(a), some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		const float scale = scale_of(sums, t);
		float gate = sums.at(t, row) * scale, up = sums.at(t, half + row) * scale;
		if constexpr (GATE_ROW_SCALE)
			gate *= gate_row_scale;
		if constexpr (UP_ROW_SCALE)
			up *= up_row_scale;
		if constexpr (GATE_BIAS)
			gate += to_f32(a.gate_bias[n]);
		if constexpr (UP_BIAS)
			up += to_f32(a.up_bias[n]);
		store(a.y + i64(t) * N + n, act(gate, up));
	});
}
