// stream_experts.cuh - an expert's two halves for few rows: gate and up with what stands behind them, and down.
//
// Both stream the expert's rows as stream.cuh has it. In the first a block's warps share an expert's columns, in the
// second each warp has an expert of its own, so that those of a row meet in shared memory.
#pragma once
#include "experts.cuh"
#include "stream.cuh"

// block level: out(t, n, value) of the rows of an expert from n0 on, N_ of gate and as many of up
template <class S, int N_, bool BY_ROW, class Scale, class XRow, class Out>
__device__ __forceinline__ void stream_gated(uint4 *ring, const typename S::W *w, const Scale *scales,
	const float *by_row, int n0, bool some, XRow x_row, Out out)
{
	constexpr int half = 8 * S::tiles; // rows of gate, then as many of up
	const auto *const up = w + i64(N_) * S::pitch / int(sizeof(typename S::W));
	const Scale *const up_scales = scales + ceil_div(N_, S::block_n) * S::scale_pitch;
	float gate_scale = 1.0f, up_scale = 1.0f;
	if constexpr (BY_ROW) {
		const int n = min(n0 + stream_row<S, half>(), N_ - 1);
		gate_scale = by_row[n];
		up_scale = by_row[N_ + n];
	}
	StreamSums<S> sums;
	if (!stream<S, N_ % half == 0, false, void>(ring, [&](int m) {
			const bool first = m < S::tiles / 2;
			return stream_tile<S>(first ? w : up, first ? scales : up_scales, n0 + m % (S::tiles / 2) * 16, N_);
		}, x_row, static_cast<const void *>(nullptr), some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		if (n0 + row >= N_)
			return;
		const float gate = sums.at(t, row) * gate_scale, y = sums.at(t, half + row) * up_scale;
		out(t, n0 + row, gate / (1.0f + __expf(-gate)) * y);
	});
}

// warp level: 16 * S::tiles of N_ columns of a row by one expert, into `place`, as values; false when there is nothing
// to do. ready: as of stream
template <class S, int N_, bool BY_ROW, class Scale, class Ready>
__device__ __forceinline__ bool stream_part(uint4 *place, const typename S::W *w, const Scale *scales,
	const float *by_row, int n0, bool some, const bf16 *x, Ready ready)
{
	constexpr bool full = N_ % (16 * S::tiles) == 0;
	constexpr int ring = StreamRing<S, full, void>::warp_bytes / 16;
	const int lane = threadIdx.x % 32;
	float scale = S::unit;
	if constexpr (BY_ROW)
		scale *= by_row[min(n0 + lane, N_ - 1)];
	StreamSums<S> sums;
	if (!stream_at<S, full, false, void>(place, place + ring,
		[&](int m) { return stream_tile<S>(w, scales, n0 + m * 16, N_); }, [&](int) { return x; },
		static_cast<const void *>(nullptr), some, ready, sums))
		return false;
	float *const value = reinterpret_cast<float *>(place) + lane; // that is where the sums are
	if (lane < 16 * S::tiles)
		*value *= scale;
	return true;
}

// What a warp of stream_part needs of shared memory, in pieces of 16 bytes.
template <class S, int N_> constexpr int stream_part_place()
{
	using Ring = StreamRing<S, N_ % (16 * S::tiles) == 0, void>;
	return Ring::warp_bytes / 16 + StreamStage<S, false, void, Ring, Ring::staged>::place;
}
