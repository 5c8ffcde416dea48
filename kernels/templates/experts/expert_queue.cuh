// expert_queue.cuh - experts that some rows chose, one after the other through rings that never run dry.
//
// A block puts the pairs of row and expert in order by expert itself, in shared memory, which takes it a microsecond or
// two: a tile is up to 8 pairs of one expert, and the tiles of the expert that all rows go to come first, since their
// weights can be asked for before other launches' results may be read. A warp's ring of turns (stream.cuh) runs on from
// one product to the next: when it has read a turn, it asks for the next one of its queue, whosever it is, and when it
// has used a step of x, for that step of the next product's. So neither the memory nor the tensor cores wait for the
// end of a product. Tiles of 16 pairs cost more registers than the weights that they save, up to 256 rows.
//
// A pair's number is t * shares + j: of row t the j-th share, the last one that of the expert all rows go to.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "experts/experts.cuh"
#include "products/stream.cuh"

// Tiles of experts, at most, and what the lists take of shared memory.
FORMULA(queue_tiles(int pairs, int experts), min(pairs, experts + pairs / 8))
FORMULA(queue_bytes(int pairs, int experts), align(queue_tiles(pairs, experts) * 4 + experts * 4 + 4 + pairs * 2, 16))

// Up to so many pairs of one expert; is_shared: rows from `first` on.
struct QueueTile { int expert, first, count; bool is_shared; };

// In shared memory, queue_bytes(). ROWS_: of a block
template <int ROWS_, int TOPK_, bool SHARED_, int EXPERTS_, int THREADS_> struct ExpertQueue {
	static constexpr int tile_pairs = 8;
	static constexpr int shares = TOPK_ + SHARED_, most_pairs = ROWS_ * TOPK_, each = ceil_div(most_pairs, THREADS_);
	static constexpr int most_tiles = queue_tiles(most_pairs, EXPERTS_);
	static_assert(most_pairs <= 4096 && EXPERTS_ < 65536, "a tile is one word: 16, 12, 4 bits");
	u32 *tile;            // [most_tiles] its expert, where among the pairs it begins, how many it has
	i32 *before;          // [EXPERTS_ + 1] tiles and pairs of lower experts, in 16 bits each
	unsigned short *pair; // [most_pairs] their numbers
	int rows, shared_tiles;

	__device__ __forceinline__ ExpertQueue(uint4 *memory, int in_use)
		: tile(reinterpret_cast<u32 *>(memory)), before(reinterpret_cast<i32 *>(tile + most_tiles)),
		  pair(reinterpret_cast<unsigned short *>(before + EXPERTS_ + 1)), rows(in_use),
		  shared_tiles(SHARED_ ? ceil_div(in_use, tile_pairs) : 0) {}

	static __device__ __forceinline__ unsigned short number_of(int p)
	{
		return static_cast<unsigned short>(p / TOPK_ * shares + p % TOPK_);
	}

	// block level, before make
	__device__ __forceinline__ void clear() const
	{
		for (int e = threadIdx.x; e < EXPERTS_; e += THREADS_)
			before[e] = 0; // first it counts an expert's own
		__syncthreads();
	}

	// block level: `expert` are the rows' choices. ALIKE_: all blocks agree on which pairs are in which of an expert's
	// tiles, as they must if they share them; else chance decides
	template <bool ALIKE_> __device__ __forceinline__ void make(const i32 *expert) const
	{
		constexpr int own = ceil_div(EXPERTS_, 32);
		int mine[each], place[each]; // of a pair among those of its expert
#pragma unroll
		for (int i = 0; i < each; i++) {
			const int p = i * THREADS_ + int(threadIdx.x);
			mine[i] = p < rows * TOPK_ ? expert[p] : -1;
		}
#pragma unroll
		for (int i = 0; i < each; i++)
			place[i] = mine[i] >= 0 ? atomicAdd(&before[mine[i]], 1) : 0;
		__syncthreads();
		if (threadIdx.x < 32) {
			const int first = int(threadIdx.x) * own;
			int size[own], sum = 0;
#pragma unroll
			for (int i = 0; i < own; i++) {
				const int n = first + i < EXPERTS_ ? before[first + i] : 0;
				size[i] = ceil_div(n, tile_pairs) << 16 | n;
				sum += size[i];
			}
			int end = sum;
#pragma unroll
			for (int m = 1; m < 32; m *= 2) {
				const int lower = __shfl_up_sync(~0u, end, m);
				end += int(threadIdx.x) >= m ? lower : 0;
			}
			if (threadIdx.x == 31)
				before[EXPERTS_] = end;
			end -= sum;
#pragma unroll
			for (int i = 0; i < own; i++) {
				if (first + i < EXPERTS_)
					before[first + i] = end;
				end += size[i];
			}
		}
		__syncthreads();
		bool has_several = false; // tiles
#pragma unroll
		for (int i = 0; i < each; i++) {
			if (mine[i] < 0)
				continue;
			const int lower = before[mine[i]], first = lower & 0xffff, at = first + place[i];
			const int end = before[mine[i] + 1] & 0xffff;
			pair[at] = number_of(i * THREADS_ + int(threadIdx.x));
			if (place[i] % tile_pairs == 0)
				tile[(lower >> 16) + place[i] / tile_pairs] =
					u32(mine[i]) << 16 | u32(at) << 4 | u32(min(end - at, tile_pairs));
			has_several |= end - first > tile_pairs;
		}
		if (!__syncthreads_or(ALIKE_ && has_several))
			return;
#pragma unroll
		for (int i = 0; i < each; i++) { // in ascending order
			const int first = mine[i] < 0 ? 0 : before[mine[i]] & 0xffff;
			const int end = mine[i] < 0 ? 0 : before[mine[i] + 1] & 0xffff;
			place[i] = first;
			for (int k = first; k < end; k++)
				place[i] += pair[k] < number_of(i * THREADS_ + int(threadIdx.x));
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < each; i++)
			if (mine[i] >= 0)
				pair[place[i]] = number_of(i * THREADS_ + int(threadIdx.x));
		__syncthreads();
	}

	// once they are made
	__device__ __forceinline__ int tiles() const { return shared_tiles + (before[EXPERTS_] >> 16); }

	// thread level: tile i; those of the expert all rows go to are known before the others are made
	__device__ __forceinline__ QueueTile at(int i) const
	{
		if (SHARED_ && i < shared_tiles)
			return { EXPERTS_, i * tile_pairs, min(rows - i * tile_pairs, tile_pairs), true };
		const u32 t = tile[i - shared_tiles];
		return { int(t >> 16), int(t >> 4 & 0xfff), int(t & 15), false };
	}
	__device__ __forceinline__ int pair_of(const QueueTile &t, int i) const
	{
		return SHARED_ && t.is_shared ? (t.first + i) * shares + TOPK_ : pair[t.first + i];
	}
};

// What a warp asks for: turn after turn of products first, first + stride and so on below `end`. ring_of(i): the ring
// of product i, all at one place.
template <class Ring, class RingOf> struct QueueFill {
	RingOf ring_of;
	Ring ring;
	int product, stride, turn;
	__device__ __forceinline__ QueueFill(int first, int step, RingOf of)
		: ring_of(of), ring(of(first)), product(first), stride(step), turn(0) {}
	// warp level: the next turn into a slot, as one group of copies; an empty one behind the last
	__device__ __forceinline__ void fill(int slot, int end)
	{
		if (turn == ring.turns) {
			product += stride;
			turn = 0;
			if (product < end)
				ring = ring_of(product);
		}
		if (product < end)
			ring.fill(turn++, slot);
		else
			copy_commit();
	}
};

// A warp's rows of x, in lane l that of pair l / 4 and of those 8 behind one another; NULL is a row of zeros. What is
// read AHEAD_ steps ahead does not end with a product: behind its last steps come the first ones of the next.
template <class S, int AHEAD_> struct QueueRows {
	static constexpr int ahead_steps = S::most_steps < AHEAD_ ? S::most_steps : AHEAD_;
	const bf16 *x[S::n_tiles], *of_next[S::n_tiles];
	uint4 ahead[ahead_steps][S::n_tiles]; // this step and those that follow
};

template <class S, class Ring>
__device__ __forceinline__ void queue_read(const Ring &ring, const bf16 *const (&x)[S::n_tiles], int step,
	uint4 (&to)[S::n_tiles])
{
	constexpr int turn_steps = S::cols / 32;
	const int k = ring.column(step / turn_steps) + step % turn_steps * 32 + threadIdx.x % 4 * 8;
#pragma unroll
	for (int j = 0; j < S::n_tiles; j++) {
		to[j] = make_uint4(0, 0, 0, 0);
		if (x[j] && step < ring.turns * turn_steps && (Ring::exact || k < S::k))
			to[j] = *reinterpret_cast<const uint4 *>(x[j] + k);
	}
}

// thread level: the rows of a product. x_row(i): row i, or NULL
template <class S, class XRow> __device__ __forceinline__ void queue_rows(XRow x_row, const bf16 *(&x)[S::n_tiles])
{
#pragma unroll
	for (int j = 0; j < S::n_tiles; j++)
		x[j] = x_row(j * 8 + int(threadIdx.x) % 32 / 4);
}

// The sums of a product: apart where scales are of blocks, else in chains that are still to be added.
template <class S> struct QueueSums {
	static constexpr int chains = S::blocked ? 1 : S::chains;
	float at[chains][S::tiles][S::n_tiles][4];
	__device__ __forceinline__ float sum(int m, int j, int i) const
	{
		return chains == 2 ? at[0][m][j][i] + at[chains - 1][m][j][i] : at[0][m][j][i];
	}
};

// warp level: a product, whose turns begin in `slot`; refill(slot) when one is read. Its first steps of x are there,
// afterwards those of the next
template <class S, class Ring, class Rows, class Refill>
__device__ __forceinline__ void queue_multiply(const Ring &ring, int &slot, Rows &rows, Refill refill,
	QueueSums<S> &sums)
{
	constexpr int n_tiles = S::n_tiles, chains = S::chains, turn_steps = S::cols / 32, ahead = Rows::ahead_steps;
	constexpr int unroll = S::bits == 4 && ahead < 4 ? 4 : ahead;
	static_assert(unroll % ahead == 0, "steps of x come round");
	static_assert(!S::grouped || unroll % 4 == 0, "scales of groups are of four steps");
	const int g = threadIdx.x % 32 / 4, steps = S::split == 1 ? S::most_steps : ring.turns * turn_steps;
	float acc[chains][S::tiles][n_tiles][4] = {};
	float total[S::blocked ? S::tiles : 1][S::blocked ? n_tiles : 1][4] = {};
	u32 scales[S::tiles][2][2];     // of groups, in four steps
	const f32z no_zeros[S::tiles][2] = {};
#pragma unroll (S::split == 1 && S::most_steps <= 16 ? 2 : 1)
	for (int first = 0; first < steps; first += unroll) {
#pragma unroll
		for (int s = 0; s < unroll; s++) {
			if ((S::bits == 16 || turn_steps % unroll) && first + s >= steps)
				break;
			const int step = unroll >= turn_steps ? s % turn_steps : (first + s) % turn_steps; // of its turn
			uint4 (&x_now)[n_tiles] = rows.ahead[s % ahead];
			if (step == 0) {
				copy_wait<S::depth - 1>();
				__syncwarp();
			}
			const char *const at = ring.mine + slot * Ring::turn_bytes, *const weights = ring.weights(at, step);
			if constexpr (S::bits < 16)
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
					stream_add<S, chains>(ring, (first + s) / turn_steps, step, no_zeros, acc, total);
			if (S::most_steps > ahead && first + s + ahead < steps)
				queue_read<S>(ring, rows.x, first + s + ahead, x_now);
			else
				queue_read<S>(ring, rows.of_next, s % ahead, x_now);
			if (step == turn_steps - 1) {
				__syncwarp(); // the slot is read by all
				refill(slot);
				slot = slot + 1 == S::depth ? 0 : slot + 1;
			}
		}
	}
#pragma unroll
	for (int m = 0; m < S::tiles; m++)
#pragma unroll
		for (int j = 0; j < n_tiles; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				if constexpr (S::blocked)
					sums.at[0][m][j][i] = total[m][j][i];
				else
#pragma unroll
					for (int c = 0; c < chains; c++)
						sums.at[c][m][j][i] = acc[c][m][j][i];
}
