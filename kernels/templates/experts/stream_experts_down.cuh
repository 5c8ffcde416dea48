// stream_experts_down.cuh - experts on the way down whose rows are streamed as they come, stream_experts_down*.cu: the
// rest of the contract, and the kernel.
//
// A warp is an expert's: the experts of a row are streamed side by side and meet once, in shared memory, so that
// neither a second pass nor an atomic sum is needed. It has few turns, which it asks for all at once. Of more than 8
// rows a block has 16 columns of all, or of as many as have room: its warps take one expert after another, for 8 of the
//           rows that
// chose it at a time, and leave the terms of all sums side by side.
#pragma once
// 3: two turns, of each of two warps an expert, in whole numbers (stream_whole.cuh), but for the shared expert
TUNE(DEPTH, 2, 4, 6, 3)
FORMULA(depth(), DEPTH == 3 ? 2 : DEPTH) FORMULA(warps_each(), DEPTH == 3 ? 2 : 1)
FORMULA(threads(), ROWS <= 8 ? 32 * (TOPK * warps_each() + SHARED) : 512)
REQUIRE(ROWS <= 256 && EXPERTS <= 1024 && TOPK + SHARED <= 16)
FORMULA(takes_whole(), ROWS <= 8 && WT_BITS == 4)
REQUIRE(DEPTH == 3 ? takes_whole() : ROWS <= 2 && WT_BITS < 16 ? DEPTH >= 4 : DEPTH == 2)
PREFER(takes_whole() == (DEPTH == 3))
REQUIRE(N % 8 == 0 && N * WT_BITS % 128 == 0)
REQUIRE(!SHARED || (WIDTH - TOPK * N) % 8 == 0 && (WIDTH - TOPK * N) * SWT_BITS % 128 == 0)
REQUIRE(WIDTH % 8 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(N, 128, BLOCK_K))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || stream_takes_blocks(WIDTH - TOPK * N, 128, SHARED_BLOCK_K))
FORMULA(has_queue(), WT_BITS == 8 || WT_BITS == 4 && RESIDUAL && !BIASED) // queue_experts_down.cu
PREFER(ROWS <= 8 || !has_queue())
ORDER(stream, warps_each(), 1024 / WT_BITS, DEPTH == 3 ? 3 : 2)
FORMULA(group_bytes(), stream_group_bytes(WT_BITS, N, 1024 / WT_BITS, BLOCK_K, ST_BITS))
FORMULA(shared_group_bytes(),
	stream_group_bytes(SWT_BITS, WIDTH - TOPK * N, 1024 / SWT_BITS, SHARED_BLOCK_K, SST_BITS))
GRID(ceil_div(K, 16), ROWS <= 8 ? ROWS : ceil_div(ROWS, min(ROWS,
	(SMEM_MAX >= 160000 ? 73728 : 18432) / (512 * (TOPK + SHARED)) * 8)), 1)
BLOCK(threads())
SMEM(ROWS <= 8 ? TOPK * warps_each() * (depth() * 16 * (128 + group_bytes())
		+ (DEPTH == 3 ? stream_whole_bytes(1024 / WT_BITS) / 8
			: (WT_BITS < 16) * (2048 / WT_BITS * ceil_div(N, 1024 / WT_BITS) + 512)))
	+ SHARED * (depth() * 16 * (128 + shared_group_bytes())
		+ (SWT_BITS < 16) * (2048 / SWT_BITS * ceil_div(WIDTH - TOPK * N, 1024 / SWT_BITS) + 512))
	: 256 * depth() * max(128 + group_bytes(),
		SHARED * (128 + shared_group_bytes()))
	+ min(ROWS, (SMEM_MAX >= 160000 ? 73728 : 18432) / (512 * (TOPK + SHARED)) * 8) * (64 * (TOPK + SHARED) + 8 * TOPK)
	+ 4 * EXPERTS + 4)
READS(min(EXPERTS, ROWS * TOPK) * (each_bytes() + bias_bytes()) + SHARED * shared_bytes()
	+ ROWS * (WIDTH * 2 + RESIDUAL * K * 2 + (1 + BIASED) * TOPK * 4))

using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using SharedScales = typename TypeIf<SHARED_SCALE != 0, BlockScales<SST, SHARED_BLOCK_N, SHARED_BLOCK_K>,
	NoScales>::Type;
using S = Stream<ROWS <= 8 ? 1 : 8, N, warps_each(), 1, 64, depth(), WT, Scales, depth(), 2, false, DEPTH == 3>;
using T = Stream<ROWS <= 8 ? 1 : 8, SHARED ? WIDTH - TOPK * N : 32, 1, 1, 64, depth(), SWT,
	typename TypeIf<SHARED != 0, SharedScales, NoScales>::Type, depth()>;

// thread level: what expert e's bias adds to column n for pair t * TOPK + j
__device__ __forceinline__ float bias_of(const Args &a, int e, int n, i64 pair)
{
#if BIASED
	return a.share[pair] * to_f32(a.down_bias[i64(e) * K + min(n, K - 1)]);
#else
	return 0.0f;
#endif
}

__device__ __forceinline__ float residual_at(const Args &a, i64 i)
{
#if RESIDUAL
	return to_f32(a.residual[i]);
#else
	return 0.0f;
#endif
}

// warp level: 16 columns of z by one expert, into `place`, as values, BIASED with `bias` added; false when there is
// nothing to do
template <class S, bool BY_ROW, class Scale>
__device__ __forceinline__ bool part(uint4 *place, const typename S::W *w, const Scale *scales, const float *by_row,
	int n0, bool some, const bf16 *x, float bias)
{
	constexpr bool full = K % (16 * S::tiles) == 0;
	constexpr int ring = StreamRing<S, full, void>::warp_bytes / 16;
	const int lane = threadIdx.x % 32;
	float scale = S::unit;
	if constexpr (BY_ROW)
		scale *= by_row[min(n0 + lane, K - 1)];
	StreamSums<S> sums;
	const auto tile = [&](int m) { return stream_tile<S>(w, scales, n0 + m * 16, K); };
	const auto row = [&](int) { return x; };
	const void *const no_norm = nullptr;
	if constexpr (S::whole) {
		if (!stream_whole<S, full, false, void>(place, place + ring, tile, row, no_norm, some, [] {}, sums))
			return false;
	} else if (!stream_at<S, full, false, void>(place, place + ring, tile, row, no_norm, some, [] {}, sums)) {
		return false;
	}
	float *const value = reinterpret_cast<float *>(place) + lane; // that is where the sums are
	if (lane < 16 * S::tiles)
		*value = BIASED ? fmaf(*value, scale, bias) : *value * scale;
	return true;
}

// Of many rows a block has 16 columns of as many as its memory has room for. What its warps take in turns are tiles: up
// to 8 of its pairs of row and expert, t * TOPK + j, that have one expert. In shared memory: a ring for each warp, what
// of all sums has come, and the lists.
template <class S, class T> struct ManyRows {
	static constexpr int shares = TOPK + SHARED, threads = 512;
	static constexpr int room = (SMEM_MAX >= 160000 ? 73728 : 18432) / (512 * shares) * 8;
	static constexpr int most_rows = ROWS < room ? ROWS : room, most_pairs = most_rows * TOPK;
	static constexpr int pairs_each = ceil_div(most_pairs, threads);
	static constexpr int ring = max_of(StreamRing<S, K % 16 == 0, void>::warp_bytes,
		SHARED ? StreamRing<T, K % 16 == 0, void>::warp_bytes : 0) / 16;
	uint4 *rings;  // [threads / 32][ring]
	float *term;   // [most_rows][shares][16]
	i32 *pair;     // [most_pairs] in order by expert
	u32 *tile;     // [most_pairs] at most: its expert, where among the pairs it begins, how many it has; 16, 12, 4 bits
	i32 *before;   // [EXPERTS + 1] tiles and pairs of lower experts, in 16 bits each
	int rows;      // in use

	__device__ __forceinline__ ManyRows(uint4 *memory, int in_use) : rings(memory), rows(in_use)
	{
		term = reinterpret_cast<float *>(memory + threads / 32 * ring);
		pair = reinterpret_cast<i32 *>(term + most_rows * shares * 16);
		tile = reinterpret_cast<u32 *>(pair + most_pairs);
		before = reinterpret_cast<i32 *>(tile + most_pairs);
	}

	// block level: the lists; `expert` are the rows' choices
	__device__ __forceinline__ void share_out(const i32 *expert) const
	{
		constexpr int own = ceil_div(EXPERTS, 32);
		int place[pairs_each]; // of a pair among those of its expert
		for (int e = threadIdx.x; e < EXPERTS; e += threads)
			before[e] = 0; // first it counts an expert's own
		__syncthreads();
#pragma unroll
		for (int i = 0; i < pairs_each; i++) {
			const int p = i * threads + int(threadIdx.x);
			place[i] = p < rows * TOPK ? atomicAdd(&before[expert[p]], 1) : 0;
		}
		__syncthreads();
		if (threadIdx.x < 32) {
			const auto size = [&](int e) { return e < EXPERTS ? (before[e] + 7) / 8 << 16 | before[e] : 0; };
			const int first = int(threadIdx.x) * own;
			int sum = 0;
			for (int e = first; e < first + own; e++)
				sum += size(e);
			int end = sum;
#pragma unroll
			for (int m = 1; m < 32; m *= 2) {
				const int lower = __shfl_up_sync(~0u, end, m);
				end += int(threadIdx.x) >= m ? lower : 0;
			}
			if (threadIdx.x == 31)
				before[EXPERTS] = end;
			end -= sum;
			for (int e = first; e < min(first + own, EXPERTS); e++) {
				const int mine = size(e);
				before[e] = end;
				end += mine;
			}
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < pairs_each; i++) {
			const int p = i * threads + int(threadIdx.x);
			if (p >= rows * TOPK)
				continue;
			const int e = expert[p], lower = before[e], at = (lower & 0xffff) + place[i];
			pair[at] = p;
			if (place[i] % 8 == 0)
				tile[(lower >> 16) + place[i] / 8] =
					u32(e) << 16 | u32(at) << 4 | u32(min((before[e + 1] & 0xffff) - at, 8));
		}
		__syncthreads();
	}

	// warp level: 16 columns of up to 8 rows by one expert; term_of(t): where those of row t go; bias(t, n): what is
	// added to its column n, BIASED
	template <class U, bool BY_ROW, class Scale, class XRow, class TermOf, class Bias>
	__device__ __forceinline__ void terms(const typename U::W *w, const Scale *scales, const float *by_row, int n0,
		int count, XRow x_row, TermOf term_of, Bias bias) const
	{
		uint4 *const place = rings + threadIdx.x / 32 * ring;
		const int lane = threadIdx.x % 32;
		float scale = U::unit;
		if constexpr (BY_ROW)
			scale *= by_row[min(n0 + lane % 16, K - 1)];
		StreamSums<U> sums;
		stream_at<U, K % 16 == 0, false, void>(place, place, [&](int m) {
				return stream_tile<U>(w, scales, n0 + m * 16, K);
			}, [&](int t) { return t < count ? x_row(t) : nullptr; }, static_cast<const void *>(nullptr), true, [] {},
			sums);
		for (int t = lane / 16; t < count; t += 2)
			term_of(t)[lane % 16] = BIASED
				? fmaf(sums.first[t * U::column + lane % 16], scale, bias(t, n0 + lane % 16))
				: sums.first[t * U::column + lane % 16] * scale;
		__syncwarp();
	}
};

// block level: 16 columns of the rows of a block
template <class S, class T> __device__ __forceinline__ void many_rows(const Args &a, uint4 *memory)
{
	using Many = ManyRows<S, T>;
	constexpr int threads = Many::threads, shares = Many::shares, count = ceil_div(Many::most_rows * 16, threads);
	__shared__ int next;
	const int n0 = blockIdx.x * 16, n = n0 + int(threadIdx.x) % 16;
	const i64 t0 = blockIdx.y * Many::most_rows;
	const Many many(memory, min(min(a.step[0], ROWS) - int(t0), Many::most_rows));
	inputs_ready();
	if (many.rows <= 0)
		return;
	float rest[count];
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int t = (i * threads + int(threadIdx.x)) / 16;
		rest[i] = t < many.rows && n < K ? residual_at(a, (t0 + t) * K + n) : 0.0f;
	}
	if (threadIdx.x == 0)
		next = 0;
	many.share_out(a.expert + t0 * TOPK);
	const int shared_tiles = SHARED * ceil_div(many.rows, 8), tiles = shared_tiles + (many.before[EXPERTS] >> 16);
	const bf16 *const h = a.h + t0 * WIDTH;
	for (;;) {
		const int taken = __shfl_sync(~0u, threadIdx.x % 32 == 0 ? atomicAdd(&next, 1) : 0, 0);
		if (taken >= tiles)
			break;
		if (SHARED && taken < shared_tiles) {
			const int first = taken * 8;
			many.template terms<T, SHARED_ROW_SCALE != 0>(a.shared_down, a.shared_down_scale, a.shared_down_row_scale,
				n0, min(many.rows - first, 8), [&](int t) { return h + i64(first + t) * WIDTH + TOPK * N; },
				[&](int t) { return many.term + ((first + t) * shares + TOPK) * 16; },
				[](int, int) { return 0.0f; });
			continue;
		}
		const u32 mine = many.tile[taken - shared_tiles];
		const int e = mine >> 16;
		const i32 *const pair = many.pair + (mine >> 4 & 0xfff);
		many.template terms<S, ROW_SCALE != 0>(matrix_at<WT, K, N>(a.down, e),
			scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, e), ROW_SCALE ? a.down_row_scale + i64(e) * K : nullptr,
			n0, mine & 15, [&](int t) { return h + i64(pair[t] / TOPK) * WIDTH + pair[t] % TOPK * N; },
			[&](int t) { return many.term + (pair[t] / TOPK * shares + pair[t] % TOPK) * 16; },
			[&](int t, int n) { return bias_of(a, e, n, t0 * TOPK + pair[t]); });
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int t = (i * threads + int(threadIdx.x)) / 16;
		if (t >= many.rows || n >= K)
			continue;
		float sum = 0.0f;
#pragma unroll
		for (int j = 0; j < shares; j++)
			sum += many.term[(t * shares + j) * 16 + n - n0];
		store(a.z + (t0 + t) * K + n, sum + rest[i]);
	}
}

// block level: 16 columns of one row; a warp is an expert's
template <class S, class T> __device__ __forceinline__ void one_row(const Args &a, uint4 *ring)
{
	constexpr bool full = K % 16 == 0;
	using Ring = StreamRing<S, full, void>;
	constexpr int place = Ring::warp_bytes / 16 + StreamStageOf<S, false, void, Ring>::place;
	constexpr int warps = TOPK * warps_each() + SHARED;
	const int warp = threadIdx.x / 32, j = warp / warps_each(), n0 = blockIdx.x * 16, t = blockIdx.y;
	const bool some = t < a.step[0];
	const bf16 *const x = a.h + i64(t) * WIDTH + j * N;
	if (SHARED && j == TOPK) {
		if (!part<T, SHARED_ROW_SCALE != 0>(ring + (warps - 1) * place, a.shared_down, a.shared_down_scale,
			a.shared_down_row_scale, n0, some, x, 0.0f))
			return;
	} else {
		inputs_ready();
		if (!some)
			return;
		const int e = a.expert[t * TOPK + j];
		const i64 pair = i64(t) * TOPK + j;
		part<S, ROW_SCALE != 0>(ring + warp * place, matrix_at<WT, K, N>(a.down, e),
			scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, e), ROW_SCALE ? a.down_row_scale + i64(e) * K : nullptr,
			n0, true, x, warp % warps_each() ? 0.0f : bias_of(a, e, n0 + int(threadIdx.x) % 16, pair));
	}
	const int n = n0 + threadIdx.x;
	const bool mine = threadIdx.x < 16 && n < K;
	const float rest = mine ? residual_at(a, i64(t) * K + n) : 0.0f;
	__syncthreads();
	if (!mine)
		return;
	float sum = 0.0f;
#pragma unroll
	for (int i = 0; i < warps; i++)
		sum += reinterpret_cast<const float *>(ring + i * place)[threadIdx.x];
	store(a.z + i64(t) * K + n, sum + rest);
}

// block level: the whole kernel
__device__ __forceinline__ void experts_down(const Args &a)
{
	DYNAMIC_SMEM(ring);
	let_next_start();
	if constexpr (ROWS > 8)
		many_rows<S, T>(a, ring);
	else
		one_row<S, T>(a, ring);
}
