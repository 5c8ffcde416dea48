// what      h[t,:] = for each of row t's experts share * (u + 1) * g * sigmoid(GATE_SLOPE g), where g and u are rows 2n
//           and 2n + 1 of gate_up n[t] + bias, g at most GATE_LIMIT and u at most as large; weights may be codes with
//           scales
// numerics  n times w, whose codes are decoded exactly, accumulated in f32; bias, clamps, products and the share in
//           f32; one rounding. Same bits every run, whatever the rows beside
// measured  H200, MXFP4 5760 x 2880, 4 of 32 experts, alone and with a cold cache: 19.4 us at one row, 40 % of the
//           read rate, in whole numbers; 22.5 in blocks of one group of warps, 25 in bf16
// why       as stream_experts_up. Rows of gate and of up alternate in the checkpoint and stay so: they are streamed as
//           they lie, and both halves of an output meet in shared memory
#include "shared/contract.cuh"

KERNEL(stream_experts_up_clamped, experts_up_clamped)
ATTR_FLOAT(GATE_SLOPE, 1.702f)
ATTR_FLOAT(GATE_LIMIT, 7.0f)
#define CLAMPED 1
#include "experts/stream_gated_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(1, tiles(), bits_of<WT>))
stream_experts_up_clamped(const Args a)
{
	constexpr int each = 8 * tiles(); // outputs of a group of warps
	DYNAMIC_SMEM(ring);
	__shared__ BT biases[groups() * each * 2];
	let_next_start();
	const int n0 = blockIdx.x * each * groups(), group = threadIdx.x / (32 * S::split);
	up_of_pairs<width, TOPK>(a, a.step[0], int(blockIdx.y), n0, [&](int e, auto x_row, auto out) {
		const WT *const w = matrix_at<WT, N, K>(a.gate_up, e);
		const ST *const scales = scales_at<1, N, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e);
		if (const int i = threadIdx.x; i < groups() * each) // on their way with the first weights
			copy_few_async<2 * BT_BYTES>(shared_address(biases + 2 * i),
				a.gate_up_bias + i64(e) * N + 2 * min(n0 + i, width - 1), true);
		StreamSums<S> sums;
		if (!stream<S, width % (groups() * each) == 0, false, void>(ring, [&](int m) {
				return stream_tile<S>(w, scales, 2 * (n0 + group * each) + m * 16, N);
			}, x_row, static_cast<const void *>(nullptr), true, [] {}, sums))
			return;
		stream_each<S, each>([&](int, int t, int row) {
			const int i = group * each + row;
			if (n0 + i >= width)
				return;
			const float gate = sums.at(t, 2 * row) + to_f32(biases[2 * i]);
			const float up = sums.at(t, 2 * row + 1) + to_f32(biases[2 * i + 1]);
			const float g = gate > GATE_LIMIT ? GATE_LIMIT : gate; // a NaN stays one
			out(t, n0 + i, (within(up, -GATE_LIMIT, GATE_LIMIT) + 1.0f) * g * sigmoid(GATE_SLOPE * g));
		});
	});
}
