// what      logits[o,v] = cap?(sum_k rmsnorm(x[out_row[o],:])[k] w[v,k]), in f32; idle outs (-1): 0. And the best of
//           each part of the vocabulary: a block's ids. w may be codes with scales
// numerics  bf16(x * norm) times w, accumulated in f32; not rounded. Same bits every run, whatever the rows beside
// measured  H100 SXM: the read rate itself at one out of 128256 x 2048, 98 % for 8 outs of 128256 x 4096, 95 % for 16,
//           91 % for 32; no spills
// codes     one row, H200, 8B head in FP8: 119 us with a ring of two turns, 150 to 174 with four
// why       a step that wants no logits (a chunk in the middle of a prompt) leaves before the first product
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/stream.cuh"

KERNEL(stream_logits, norm_logits)
#define MATRICES 1
#define NORM 1
#define RESIDUAL 0
#define LOGITS 1
#include "products/stream_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(OUTS, TILES, bits_of<WT>, CHAINS))
stream_logits(const Args a)
{
	let_next_start();
	const bool some = a.step[1] > 0;
	DYNAMIC_SMEM(ring);
	const int v0 = (blockIdx.x * S::groups + threadIdx.x / (32 * SPLIT)) * 16 * TILES;
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(v0 + stream_row<S, 16 * TILES>(), V - 1)];
	StreamSums<S> sums;
	if (!stream<S, V % (S::groups * 16 * TILES) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, v0 + m * 16, V); },
		[&](int o) {
			const int r = a.out_row[o];
			return r < 0 || r >= ROWS ? nullptr : a.x + i64(r) * K;
		},
		a.norm, some, [] {}, sums))
		return;
	constexpr int ids = S::groups * 16 * TILES, parts = (V + ids - 1) / ids;
	__shared__ float part[OUTS][ids];
	stream_each<S, 16 * TILES>([&](int, int o, int row) {
		float logit = sums.at(o, row) * sums.inverse_rms(o, float(EPS));
		if constexpr (W_ROW_SCALE)
			logit *= row_scale;
		logit = soft_cap(logit, float(CAP));
		if (v0 + row < V)
			a.logits[i64(o) * V + v0 + row] = logit;
		part[o][(v0 + row) % ids] = logit;
	});
	__syncthreads();
	for (int o = threadIdx.x / 32; o < OUTS; o += stream_warps)
		best_of_part<ids>(blockIdx.x * ids, N_VALID, [&](int i) { return part[o][i]; },
			a.best + (i64(o) * parts + blockIdx.x) * 2, a.best_id + i64(o) * parts + blockIdx.x);
}
