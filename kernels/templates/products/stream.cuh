// stream.cuh - y = x w^T for 1 to 64 rows of x on the tensor cores: the weights, bf16 or codes of e4m3, e2m1 or u4 with
// scales, are streamed once, past all else.
//
// The operands change places: sixteen rows of w are the A operand of mma.m16n8k16, eight rows of x its B operand. One
// row of x wastes arithmetic, which is free here, and no bandwidth. The order of k inside a product is ours to choose
// as long as both operands agree: a lane takes 8 neighbouring elements of a row of w (16, 8 or 4 bytes), which are its
// part of two products, and the same 8 of a row of x. So no fragment needs a shuffle, codes lie as the checkpoint has
// them, and x comes straight from the caches, some steps ahead.
//
// Weights go through a ring in shared memory, one for each warp, by cp.async: a warp copies what it reads itself, so no
// barrier of the block stands in the stream, and whole runs of 128 bytes and more of a row, which is what the memory
// likes. The ring is filled before inputs_ready(), since weights depend on nobody: while the launches before this one
// end, the memory never rests. But only `stream_ahead` turns are under way at a time: more gain nothing, they wait in
// line, and behind them whatever the others are in a hurry for.
//
// A norm in front costs no pass of its own: x becomes bf16(x * norm) on the way, each warp sums the squares of its
// part, and 1 / rms multiplies the sums at the end.
//
// Codes become bf16 on the way to the product, without rounding (stream_codes.cuh). The scales of groups of e2m1 codes
// multiply the codes; those of larger blocks of e4m3 codes, and of groups of u4, whose zeros the codes lose first,
// multiply sums in f32 that are kept apart, of a turn or, where that is shorter, of the block's columns in it; what is
// one for a row of w is left to the caller. At few rows of x, where instructions are what codes cost, each warp norms
// its columns of x before it starts, all lanes at it, and keeps them in shared memory.
//
// SPLIT_ warps, a group, share K in turns of COLS_ columns and own 16 * TILES_ rows of w. Their sums meet in shared
// memory and are added in the order of the warps: the bits of a row depend on the kernel alone, not on its place among
// the rows nor on what the others hold.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "products/stream_ring.cuh"
#include "products/stream_whole.cuh"

// Few rows of x: each warp norms its columns once, all lanes at it, and leaves them in shared memory as their products
// take them. Not STAGED_: nothing.
template <class S, bool ONE, class Norm, class Ring, bool STAGED_> struct StreamStage {
	static constexpr int turn_steps = S::cols / 32, pieces = S::most_steps * 4, each = ceil_div(pieces, 32);
	static constexpr int pitch = pieces + 8 * 4; // as many steps may be read too far
	static constexpr int place = S::rows * pitch; // of a warp
	static_assert(S::x_steps <= 8, "reading ahead has a place");
	using Weights = typename TypeIf<Ring::norm_there, Vec8<Norm>, int>::Type;
	uint4 *mine; // [rows][pitch]: of 8 columns, four a step
	Weights norm[each];

	static __device__ __forceinline__ int column(const Ring &ring, int piece)
	{
		const int step = piece / 4, k = ring.column(step / turn_steps) + step % turn_steps * 32 + piece % 4 * 8;
		return step < ring.turns * turn_steps ? k : S::k;
	}

	// before other launches' results may be read: the norm's weights
	__device__ __forceinline__ StreamStage(uint4 *memory, const Ring &ring)
	{
		mine = memory;
		if constexpr (Ring::norm_there)
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int k = column(ring, threadIdx.x % 32 + 32 * i);
				norm[i] = Weights();
				if (k < S::k)
					norm[i] = load8(ring.norm + k);
			}
	}

	// warp level: all rows; ss: of row g, its sum of squares in lane 4g, zero elsewhere; BY_STEPS_: parts in four lanes
	template <class XRow> __device__ __forceinline__ void fill(const Ring &ring, XRow x_row, float &ss)
	{
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int t = 0; t < S::rows; t++) {
			const bf16 *const x = x_row(t);
			float sum = 0.0f, total = 0.0f;
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int piece = lane + 32 * i, k = column(ring, piece);
				uint4 v = make_uint4(0, 0, 0, 0);
				if (x && k < S::k)
					v = *reinterpret_cast<const uint4 *>(x + k);
				if constexpr (Ring::norm_there)
					v = stream_norm<ONE>(v, norm[i], sum);
				if (pieces % 32 == 0 || piece < pieces)
					mine[t * pitch + piece] = stream_pair<S::bits>(v);
				if constexpr (Ring::norm_there && S::by_steps)
					total += stream_eighths(sum);
			}
			if constexpr (Ring::norm_there && S::by_steps) {
				ss = lane / 4 == t ? total : ss;
			} else if constexpr (Ring::norm_there) {
				sum = warp_sum(sum);
				ss = lane == 4 * t ? sum : ss;
			}
		}
		__syncwarp();
	}

	__device__ __forceinline__ uint4 read(int step) const
	{
		const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
		return g < S::rows ? mine[g * pitch + step * 4 + q] : make_uint4(0, 0, 0, 0);
	}
};
template <class S, bool ONE, class Norm, class Ring> struct StreamStage<S, ONE, Norm, Ring, false> {
	static constexpr int place = 0;
	__device__ __forceinline__ StreamStage(uint4 *, const Ring &) {}
	template <class XRow> __device__ __forceinline__ void fill(const Ring &, XRow, float &) {}
};

// warp level: the sums of the warp into shared memory, row of x after row of x, and the sums of squares behind them
template <class S, bool NORM, int CHAINS_>
__device__ __forceinline__ void stream_leave(float *out, const float (&acc)[CHAINS_][S::tiles][S::n_tiles][4],
	const float (&ss)[S::n_tiles])
{
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
	for (int j = 0; j < S::n_tiles; j++) {
#pragma unroll
		for (int m = 0; m < S::tiles; m++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				out[(j * 8 + 2 * q + i % 2) * S::column + m * 16 + g + i / 2 * 8] =
					CHAINS_ == 2 ? acc[0][m][j][i] + acc[CHAINS_ - 1][m][j][i] : acc[0][m][j][i];
		if constexpr (NORM) {
			float s = ss[j];
			s += __shfl_xor_sync(~0u, s, 1);
			s += __shfl_xor_sync(~0u, s, 2);
			if (q == 0)
				out[S::norm_at + j * 8 + g] = s;
		}
	}
}

// warp level: the sums of a period, times its scale, to the total; then the next one begins. `period`: the scales with
// zeros
template <class S, int CHAINS_, class Ring>
__device__ __forceinline__ void stream_add(const Ring &ring, int turn, int step, const f32z (&period)[S::tiles][2],
	float (&acc)[CHAINS_][S::tiles][S::n_tiles][4], float (&total)[S::tiles][S::n_tiles][4])
{
#pragma unroll
	for (int m = 0; m < S::tiles; m++) {
		float scale[2];
		if constexpr (S::zeroed) {
			scale[0] = to_f32(period[m][0]);
			scale[1] = to_f32(period[m][1]);
		} else {
			ring.block_scales(m, turn, step, scale);
		}
#pragma unroll
		for (int j = 0; j < S::n_tiles; j++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const float sum = CHAINS_ == 2 ? acc[0][m][j][i] + acc[CHAINS_ - 1][m][j][i] : acc[0][m][j][i];
				total[m][j][i] = fmaf(sum, scale[i / 2], total[m][j][i]);
				acc[0][m][j][i] = acc[CHAINS_ - 1][m][j][i] = 0.0f;
			}
	}
}

template <class S, bool ONE, class Norm, class Ring>
using StreamStageOf = typename TypeIf<S::whole, WholeStage<S, ONE, Norm, Ring>,
	StreamStage<S, ONE, Norm, Ring, Ring::staged>>::Type;

// block level: all sums of the block, by codes that become bf16. On return each thread may read those of its group of
// warps.
//   place, staged  where this warp's ring and what it keeps of x lie
//   w_tile(m)  StreamTile: the m-th 16 rows of the group; FULL says that all rows exist in every block
//   x_row(t)   const bf16 *: row t of x, or NULL for a row of zeros; called once other launches' results may be read
//   norm       its weights; Norm is void when there are none
//   some       false, to all threads alike: nothing is done, and stream says no too
//   ready()    is called when other launches' results may be read
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream_decoded(uint4 *place, uint4 *staged, WTile w_tile, XRow x_row, const Norm *norm,
	bool some, Ready ready, StreamSums<S> &sums)
{
	using Ring = StreamRing<S, FULL, Norm>;
	constexpr int n_tiles = S::n_tiles, chains = S::chains;
	constexpr int turn_steps = S::cols / 32, unroll = S::bits == 4 && S::x_steps < 4 ? 4 : S::x_steps;
	using Total = float[1][S::blocked ? S::tiles : 1][S::blocked ? n_tiles : 1][4];
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const Ring ring(place, w_tile, norm);
	const int steps = ring.turns * turn_steps;
	ring.begin();
	StreamStageOf<S, ONE, Norm, Ring> stage(staged, ring);
	inputs_ready();
	if (!some) {
		copy_wait<0>();
		return false;
	}
	ready();

	const bf16 *x[n_tiles];
#pragma unroll
	for (int j = 0; j < n_tiles; j++)
		x[j] = !Ring::staged && j * 8 + g < S::rows ? x_row(j * 8 + g) : nullptr;
	float acc[chains][S::tiles][n_tiles][4] = {}, ss[n_tiles] = {};
	uint4 b[S::x_steps][n_tiles]; // of x: this step and those that follow
	stage.fill(ring, x_row, ss[0]);
	const auto read_x = [&](int step, uint4 (&to)[n_tiles]) {
		if constexpr (Ring::staged) {
			to[0] = stage.read(step);
			return;
		}
		const int k = ring.column(step / turn_steps) + step % turn_steps * 32 + 8 * q;
#pragma unroll
		for (int j = 0; j < n_tiles; j++) {
			to[j] = make_uint4(0, 0, 0, 0);
			if (x[j] && step < steps && (Ring::exact || k < S::k))
				to[j] = *reinterpret_cast<const uint4 *>(x[j] + k);
		}
	};
#pragma unroll
	for (int s = 0; s < S::x_steps; s++)
		read_x(s, b[s]);
	int slot = 0, to_fill = S::ahead % S::depth;
	Total total = {};
	u32 scales[S::tiles][2][2]; // of groups, in four steps
	f32z period[S::tiles][2];   // with zeros, of the period
	for (int first = 0; first < steps; first += unroll) {
#pragma unroll
		for (int s = 0; s < unroll; s++) {
			if ((S::bits == 16 || turn_steps % unroll) && first + s >= steps)
				break;
			const int step = unroll >= turn_steps ? s % turn_steps : (first + s) % turn_steps; // of its turn
			uint4 (&x_now)[n_tiles] = b[s % S::x_steps];
			if (step == 0) {
				copy_wait<S::ahead - 1>();
				__syncwarp();
			}
			const char *const at = ring.mine + slot * Ring::turn_bytes, *const weights = ring.weights(at, step);
			if constexpr (Ring::norm_there && !Ring::staged)
#pragma unroll
				for (int j = 0; j < n_tiles; j++) {
					float of_step = 0.0f;
					x_now[j] = stream_norm<ONE>(x_now[j],
						load8(reinterpret_cast<const Norm *>(at + S::w_bytes) + 32 * step + 8 * q),
						S::by_steps ? of_step : ss[j]);
					if constexpr (S::by_steps)
						ss[j] += of_step;
				}
			if constexpr (S::bits < 16 && !Ring::staged)
#pragma unroll
				for (int j = 0; j < n_tiles; j++)
					x_now[j] = stream_pair<S::bits>(x_now[j]);
#pragma unroll
			for (int m = 0; m < S::tiles; m++) {
				u32 a[2][4];
#pragma unroll
				for (int h = 0; h < 2; h++) {
					u32 pair[4], scale = 0;
					if constexpr (S::grouped) {
						if (s % 4 == 0)
							stream_scales<typename S::Scale>(
								ring.group_scales(at, m, g + 8 * h, step), scales[m][h]);
						scale = stream_scale(scales[m][h], s % 4);
					}
					if constexpr (S::zeroed) {
						if (step * 32 % S::period == 0)
							period[m][h] = ring.zeroed_scale(at, m, g + 8 * h, step);
						scale = u4_zero(period[m][h]);
					}
					stream_decode<typename S::Scale>(ring.read(weights, m * 16 + 8 * h).at, scale, pair);
#pragma unroll
					for (int i = 0; i < 4; i++)
						a[i / 2][i % 2 * 2 + h] = pair[i];
				}
#pragma unroll
				for (int j = 0; j < n_tiles; j++) {
					mma(acc[0][m][j], a[0], x_now[j].x, x_now[j].y);
					mma(acc[chains - 1][m][j], a[1], x_now[j].z, x_now[j].w);
				}
			}
			if constexpr (S::blocked)
				if ((step + 1) * 32 % S::period == 0)
					stream_add<S, chains>(ring, (first + s) / turn_steps, step, period, acc, total[0]);
			if constexpr (S::most_steps > S::x_steps)
				read_x(first + s + S::x_steps, x_now);
			if (step == turn_steps - 1) {
				__syncwarp(); // the slot is read by all
				const int next = (first + s) / turn_steps + S::ahead;
				ring.fill(next < S::depth ? ring.turns : next, to_fill); // the first ones are there already
				to_fill = to_fill + 1 == S::depth ? 0 : to_fill + 1;
				slot = slot + 1 == S::depth ? 0 : slot + 1;
			}
		}
	}
	copy_wait<0>();
	__syncwarp();
	float *const out = reinterpret_cast<float *>(ring.mine);
	if constexpr (S::blocked)
		stream_leave<S, Ring::norm_there>(out, total, ss);
	else
		stream_leave<S, Ring::norm_there>(out, acc, ss);
	if constexpr (S::split > 1)
		__syncthreads();
	else
		__syncwarp();
	sums.first = out - ring.turn * (Ring::warp_bytes / 4);
	sums.stride = Ring::warp_bytes / 4;
	return true;
}

// block level: all sums of the block, where the rings of a group's warps lie behind one another.
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream_at(uint4 *place, uint4 *staged, WTile w_tile, XRow x_row, const Norm *norm,
	bool some, Ready ready, StreamSums<S> &sums)
{
	if constexpr (S::whole) {
		if (!stream_whole<S, FULL, ONE, Norm>(place, staged, w_tile, x_row, norm, some, ready, sums))
			return false;
		if constexpr (S::split > 1)
			__syncthreads();
		return true;
	} else
		return stream_decoded<S, FULL, ONE, Norm>(place, staged, w_tile, x_row, norm, some, ready, sums);
}

// Shared memory that all of it takes.
template <class S, class Norm> constexpr int stream_bytes()
{
	using Ring = StreamRing<S, true, Norm>;
	return stream_warps * (Ring::warp_bytes + StreamStageOf<S, false, Norm, Ring>::place * 16);
}

// The same with all rings at `memory`, one warp's behind the other, and behind them what is kept of x.
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream(uint4 *memory, WTile w_tile, XRow x_row, const Norm *norm, bool some,
	Ready ready, StreamSums<S> &sums)
{
	using Ring = StreamRing<S, FULL, Norm>;
	constexpr int ring = Ring::warp_bytes / 16, kept = StreamStageOf<S, ONE, Norm, Ring>::place;
	const int warp = threadIdx.x / 32;
	return stream_at<S, FULL, ONE, Norm>(memory + warp * ring, memory + stream_warps * ring + warp * kept, w_tile,
		x_row, norm, some, ready, sums);
}

// thread level: the row of w of all results that are this thread's
template <class S, int RESULTS_> __device__ __forceinline__ int stream_row()
{
	static_assert(S::split * 32 % RESULTS_ == 0, "a thread's results are of one row");
	return threadIdx.x % (S::split * 32) % RESULTS_;
}

// thread level: f(i, t, row) for every result that is this thread's, the i-th of them; RESULTS_ rows a row of x
template <class S, int RESULTS_, class F> __device__ __forceinline__ void stream_each(F f)
{
	constexpr int threads = S::split * 32, all = RESULTS_ * S::rows, count = ceil_div(all, threads);
	const int first = threadIdx.x % threads;
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int at = first + i * threads;
		if (all % threads == 0 || at < all)
			f(i, at / RESULTS_, at % RESULTS_);
	}
}
