// stream_experts_up.cuh - experts on the way up whose rows are streamed as they come, stream_experts_up*.cu: included
// after the contract, whose Args it reads.
//
// Nothing is sorted: of up to 8 rows each pair of row and expert is a slice of the grid, which streams the expert's
// rows as if there were no other. Of more rows a slice finds all pairs of its expert, which is the first pair's or, of
// many, the slice's own, and streams its rows once for 8 of them; a slice without any ends. Which rows those are is
// known only when the launch before is done.
#pragma once

// block level: out(t, n, act(gate, up)) of the rows of an expert from n0 on, N_ of gate and as many of up
template <class S, int N_, bool BY_ROW, class Scale, class XRow, class Act, class Out>
__device__ __forceinline__ void gated(uint4 *ring, const typename S::W *w, const Scale *scales, const float *by_row,
	int n0, bool some, XRow x_row, Act act, Out out)
{
	constexpr int half = 8 * S::tiles; // rows of gate, then as many of up, of a group of warps
	if constexpr (S::groups > 1)
		n0 += int(threadIdx.x) / (32 * S::split) * half;
	const auto *const up = w + i64(N_) * S::pitch / int(sizeof(typename S::W));
	const Scale *const up_scales = scales + ceil_div(N_, S::block_n) * S::scale_pitch;
	float gate_scale = 1.0f, up_scale = 1.0f;
	if constexpr (BY_ROW) {
		const int n = min(n0 + stream_row<S, half>(), N_ - 1);
		gate_scale = by_row[n];
		up_scale = by_row[N_ + n];
	}
	StreamSums<S> sums;
	if (!stream<S, N_ % (S::groups * half) == 0, false, void>(ring, [&](int m) {
			const bool first = m < S::tiles / 2;
			return stream_tile<S>(first ? w : up, first ? scales : up_scales, n0 + m % (S::tiles / 2) * 16, N_);
		}, x_row, static_cast<const void *>(nullptr), some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		if (n0 + row >= N_)
			return;
		out(t, n0 + row, act(sums.at(t, row) * gate_scale, sums.at(t, half + row) * up_scale));
	});
}

// block level: the pairs in use, numbers t * TOPK + j, of an expert, all in `list`; how many there are. first_of: not
// -1: the block is that pair's, and has none if a lower one is of the same expert.
__device__ __forceinline__ int pairs_of(const i32 *expert, int e, int in_use, int first_of, unsigned short *list)
{
	__shared__ int count;
	bool is_own[ceil_div(ROWS * TOPK, 256)], is_lower = false;
#pragma unroll
	for (int i = 0; i < ceil_div(ROWS * TOPK, 256); i++) {
		const int p = i * 256 + int(threadIdx.x);
		is_own[i] = p < in_use && expert[p] == e;
		is_lower |= is_own[i] && p < first_of;
	}
	if (threadIdx.x == 0)
		count = 0;
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ceil_div(ROWS * TOPK, 256); i++)
		if (is_own[i])
			list[atomicAdd(&count, 1)] = static_cast<unsigned short>(i * 256 + int(threadIdx.x));
	return __syncthreads_or(is_lower) ? 0 : count;
}

// block level: parts of h of `width` columns, `n_shares` shares a row, of the pairs of a slice of the grid, which of up
// to 8 rows is a pair, else all pairs of an expert; up(e, x_row, out) streams the rows from n0 on that the block has of
// expert e, for rows x_row(t), and leaves out(t, n, value). rows: in use
template <int width, int n_shares, class Up>
__device__ __forceinline__ void up_of_pairs(const Args &a, int rows, int pair, int n0, Up up)
{
	if constexpr (ROWS <= 8) {
		const int t = pair / TOPK, j = pair % TOPK;
		inputs_ready();
		if (t >= rows || n0 >= width)
			return;
		const int e = a.expert[pair];
		const float share = a.share[t * n_shares + j];
		up(e, [&](int) { return a.n + i64(t) * K; },
			[&](int, int n, float y) { store(a.h + i64(t) * WIDTH + j * width + n, y * share); });
	} else {
		__shared__ unsigned short list[ROWS * TOPK];
		constexpr bool is_first_pairs = ROWS * TOPK <= EXPERTS;
		const int in_use = min(rows, ROWS) * TOPK;
		inputs_ready();
		if (n0 >= width || (is_first_pairs && pair >= in_use))
			return;
		const int e = is_first_pairs ? a.expert[pair] : pair;
		const int count = pairs_of(a.expert, e, in_use, is_first_pairs ? pair : -1, list);
		for (int first = 0; first < count; first += 8) {
			if (first)
				__syncthreads(); // the sums before are read
			up(e, [&](int t) { return first + t < count ? a.n + i64(list[first + t] / TOPK) * K : nullptr; },
				[&](int t, int n, float y) {
					if (first + t >= count)
						return;
					const int row = list[first + t] / TOPK, j = list[first + t] % TOPK;
					store(a.h + i64(row) * WIDTH + j * width + n, y * a.share[row * n_shares + j]);
				});
		}
	}
}
