// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]); gate and up
//           may be codes with scales
// numerics  bf16(x * norm) times w, whose codes are decoded exactly, accumulated in f32; norm, scales of rows, biases,
//           silu and product in f32; one rounding. Same bits every run, whatever the rows beside
// measured  H100 SXM, in a chain of its own kind: 94 % of the read rate at one row of 8192 x 2048, 99 % at
//           14336 x 4096, which has 98 % for 8 rows, 97 % for 16, 88 % for 32; no spills
// codes     one row, H200, 8B gate and up: FP8 29.4 us, NVFP4 27.3 us with a ring of two turns; 44 and 43 with four
// why       a group of warps holds rows of gate and the same rows of up, so the product needs neither a second kernel
//           nor a layout of its own
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_swiglu, norm_swiglu)
#define MATRICES 2
#define NORM 1
#define RESIDUAL 0
#define LOGITS 0
#include "products/stream_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_swiglu(const Args a)
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
	if (!stream<S, N % (S::groups * half) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) {
			const bool first = m < TILES / 2;
			const int n = n0 + m % (TILES / 2) * 16;
			return stream_tile<S>(first ? a.gate : a.up, first ? a.gate_scale : a.up_scale, n, N);
		},
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		const float scale = sums.inverse_rms(t, float(EPS));
		float gate = sums.at(t, row) * scale, up = sums.at(t, half + row) * scale;
		if constexpr (GATE_ROW_SCALE)
			gate *= gate_row_scale;
		if constexpr (UP_ROW_SCALE)
			up *= up_row_scale;
		if constexpr (GATE_BIAS)
			gate += to_f32(a.gate_bias[n]);
		if constexpr (UP_BIAS)
			up += to_f32(a.up_bias[n]);
		store(a.y + i64(t) * N + n, gate / (1.0f + __expf(-gate)) * up);
	});
}
