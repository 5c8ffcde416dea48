// wgmma_few.cuh - tiles of x w^T for up to 256 rows, where there are fewer of them than multiprocessors (sm_90a only).
//
// Such a product is bound by reading w, and a multiprocessor alone draws little more than its share of the card's
// rate. So SPLIT blocks, a cluster, divide the columns (k) of one tile: each sums its run of stages, sends the others
// their parts of the tile, and then each adds the runs, in order, for its own part and finishes it. No sum goes through
// memory, and no block waits for one of another cluster.
//
// A tile is BM rows of x by BN rows of w; BM is 64 or, of more rows, 128. One thread requests, two warpgroups
// multiply, of 128 rows each 64, of 64 rows each half of the rows of w (of each part). Between them is a ring of
// stages of 128 bytes of each row, as deep as shared memory allows. Requests for weights go out before inputs_ready.
//
// Contracts share wgmma_few_contract.cuh.
#pragma once
#include "shared/arrive.cuh"
#include "products/wgmma.cuh"

// warpgroup level: c += 64 rows of x, 16 columns, times 32 rows of w
__device__ __forceinline__ void wgmma(float (&c)[4][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("32") WGMMA_16_NAMES "}, %16, %17, 1, 1, 1, 0, 0;" : WGMMA_16(0) : "l"(x), "l"(w));
}

// What a launch multiplies, and its form. A tile of w is PARTS_ times BN_ / PARTS_ rows, one part from each matrix.
// COLUMNS_ are the elements of a row in a stage, 128 bytes.
template <int ROWS_, int K_, int N_, int BN_, int SPLIT_, int PARTS_ = 1, int COLUMNS_ = 64> struct FewProducts {
	static constexpr int bm = ROWS_ <= 64 ? 64 : 128, split = SPLIT_, parts = PARTS_, columns = COLUMNS_;
	static constexpr int x_bytes = bm * 128, stage_bytes = x_bytes + BN_ * 128, stages = 229376 / stage_bytes;
	// pieces of w in a stage, in order: of each warpgroup where they divide its rows, and of each part
	static constexpr int sharers = bm == 64 ? 2 : 1, pieces = sharers * PARTS_, piece_rows = BN_ / pieces;
	static constexpr int sums = BN_ / sharers / 8;      // fragments of eight columns that a warpgroup makes
	static constexpr int units = piece_rows / 16;       // eight rows by 32 columns of y a warp: what one rank finishes
	static constexpr int mine = ceil_div(units, SPLIT_); // of these a rank has at most so many
	// of shared memory: the ring with its barriers or, after it, sums of this rank's units, and what aligns them
	// of which other ranks send theirs behind this one's own
	static constexpr int unit_bytes = 2 * PARTS_ * 256 * 16, sent_bytes = (SPLIT_ - 1) * mine * unit_bytes;
	static constexpr int ring_bytes = stages * (stage_bytes + 16) + 16;
	static constexpr int smem_bytes = 1023 + ring_bytes;
	static constexpr int down = ceil_div(ROWS_, bm), steps = ceil_div(K_, COLUMNS_);
	static_assert(BN_ == 64 || BN_ == 128 || BN_ == 256, "the shapes of wgmma spelled out");
	static_assert(piece_rows % 32 == 0, "a warp stores 32 columns of 16 rows, one unit of eight rows after the other");
	static_assert(COLUMNS_ == 64 || BN_ / PARTS_ <= 128, "a stage of codes has one scale of each matrix");
	static_assert(steps >= SPLIT_, "each block has a run of columns");
	static_assert(mine * unit_bytes + sent_bytes <= stages * stage_bytes, "sums lie where the ring was");
	static_assert(K_ % 8 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");

	const TensorMap *x, *w[PARTS_];

	static __device__ int rank() { return SPLIT_ == 1 ? 0 : int(blockIdx.x) % SPLIT_; }
	static __device__ int first() { return rank() * steps / SPLIT_; }
	static __device__ int last() { return (rank() + 1) * steps / SPLIT_; }
	// of the tile: its first row, and first column of y; and the same of a warpgroup's part
	static __device__ int row() { return int(blockIdx.x) / SPLIT_ % down * bm; }
	static __device__ int column() { return int(blockIdx.x) / SPLIT_ / down * (BN_ / PARTS_); }
	static __device__ int row_of(int group) { return row() + (sharers == 2 ? 0 : group * 64); }
	static __device__ int column_of(int group) { return column() + (sharers == 2 ? group * piece_rows : 0); }
};

// A place in the ring: both sides go round alike.
template <class P> struct FewRing {
	u32 base;
	int slot = 0;
	u32 turn = 0;

	__device__ u32 stage() const { return base + slot * P::stage_bytes; }
	__device__ u32 full() const { return base + P::stages * P::stage_bytes + slot * 16; }
	__device__ u32 free() const { return full() + 8; }
	// of the cluster: all blocks are done with their rings; the sums of the others have come
	__device__ u32 done() const { return base + P::stages * (P::stage_bytes + 16); }
	__device__ u32 sent() const { return done() + 8; }
	__device__ void advance()
	{
		slot = slot + 1 == P::stages ? 0 : slot + 1;
		turn ^= slot == 0;
	}
	// a warpgroup's operands in the stage
	__device__ u64 x(int group) const { return tile_descriptor(stage() + (P::sharers == 2 ? 0 : group * (64 * 128))); }
	__device__ u64 w(int group) const
	{
		return tile_descriptor(stage() + P::x_bytes + (P::sharers == 2 ? group * (P::sums * 8 * 128) : 0));
	}
};

// one thread: all requests of the block
template <class P> __device__ __forceinline__ void few_request(FewRing<P> ring, const P &p)
{
	const int first = P::first(), last = P::last(), early = min(last, first + P::stages);
	auto fill_w = [&](int step) {
		barrier_expect(ring.full(), P::stage_bytes);
#pragma unroll
		for (int i = 0; i < P::pieces; i++)
			copy_box(ring.stage() + P::x_bytes + i * P::piece_rows * 128, *p.w[i % P::parts],
				P::column() + i / P::parts * P::piece_rows, step * P::columns, ring.full());
	};
	FewRing<P> start = ring;
	for (int step = first; step < early; step++, ring.advance())
		fill_w(step);
	ring = start;
	inputs_ready(); // weights are on their way before what the launch before computes
	for (int step = first; step < last; step++, ring.advance()) {
		if (step >= early) {
			barrier_wait(ring.free(), ring.turn ^ 1);
			fill_w(step);
		}
		copy_box(ring.stage(), *p.x, P::row(), step * P::columns, ring.full());
	}
}

// one warpgroup, number `group` of two: acc = its part of the tile, over the block's run of columns
template <class P>
__device__ __forceinline__ void few_multiply(FewRing<P> &ring, int group, float (&acc)[P::sums][4])
{
#pragma unroll
	for (int j = 0; j < P::sums; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	auto start = [&] {
		barrier_wait(ring.full(), ring.turn);
		const u64 x = ring.x(group), w = ring.w(group);
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < 4; i++)
			wgmma(acc, x + 2 * i, w + 2 * i);
		wgmma_commit();
	};
	start();
	for (int step = P::first() + 1; step < P::last(); step++) {
		const u32 before = ring.free();
		ring.advance();
		start();
		wgmma_wait<1>();
		wgmma_release<1>(before);
	}
	wgmma_wait<0>();
	hold(acc);
}

// block level, all 384 threads: the tile of this block's cluster, of a launch of which `rows` rows are in use.
// multiply(ring, group, acc) leaves a warpgroup's part of the sums of a run; load(k, row, column) asks for what is
// added to columns `column` to `column` + 7 of y, as the k-th of this thread's; finish(k, row, column, v) takes the
// sums of the 32 columns of which these are, as fragments have them (few_store). Calls let_next_start and
// inputs_ready.
template <class P, class Multiply, class Load, class Finish>
__device__ __forceinline__ void few_products(uint4 *dynamic, int rows, const P &p, Multiply multiply, Load load,
	Finish finish)
{
	FewRing<P> ring;
	ring.base = (shared_address(dynamic) + 1023) / 1024 * 1024;
	const int group = __shfl_sync(~0u, int(threadIdx.x / 128), 0) - 1;
	if (threadIdx.x == 0) {
		prefetch_map(*p.x);
		for (int i = 0; i < P::parts; i++)
			prefetch_map(*p.w[i]);
		FewRing<P> each = ring;
		for (int s = 0; s < P::stages; s++, each.advance()) {
			barrier_init(each.full(), 1);
			barrier_init(each.free(), 8); // warps
		}
		if constexpr (P::split > 1) {
			barrier_init(ring.done(), P::split);
			barrier_init(ring.sent(), 1);
		}
		barrier_init_done();
	}
	__syncthreads();
	let_next_start();
	if constexpr (P::split > 1)
		team_started();
	if (P::row() >= rows) { // in all blocks of the cluster
		inputs_ready();
		return;
	}
	if (group < 0) {
		registers_down<40>();
		if (threadIdx.x == 0)
			few_request(ring, p);
		if constexpr (P::split > 1)
			team_wait();
	} else {
		registers_up<232>();
		inputs_ready(); // what is added is not fetched by the thread that waits for x
		const int thread = threadIdx.x - 128, rank = P::rank();
		const int row = P::row_of(group) + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
		const int column = P::column_of(group) + threadIdx.x % 4 * 8;
		auto each_unit = [&](auto f) { // of this rank: f(k-th, unit, row, column)
#pragma unroll
			for (int k = 0; k < P::mine; k++) {
				const int unit = rank + k * P::split;
				if (unit < P::units)
					f(k, unit, row + unit % 2 * 8, column + unit / 2 * 32);
			}
		};
		each_unit([&](int k, int, int t, int n) { load(k, t, n); });
		float acc[P::sums][4];
		multiply(ring, group, acc);
		auto sum = [&](int unit, int f) -> float (&)[4] { // fragment f of a unit: four of each part
			return acc[f / 4 * (P::sums / P::parts) + unit / 2 * 4 + f % 4];
		};
		if constexpr (P::split == 1) {
			each_unit([&](int k, int unit, int t, int n) {
				float v[4 * P::parts][2];
#pragma unroll
				for (int f = 0; f < 4 * P::parts; f++)
#pragma unroll
					for (int e = 0; e < 2; e++)
						v[f][e] = sum(unit, f)[unit % 2 * 2 + e];
				finish(k, t, n, v);
			});
		} else {
			constexpr int words = 2 * P::parts; // of 16 bytes, that a thread has of a unit
			// units of rank r lie there: its own, then those that rank 0 sends, rank 1, and so on
			auto place = [&](int from, int to, int k) {
				const int source = from == to ? 0 : from < to ? from + 1 : from;
				return ring.base + ((source * P::mine + k) * words * 256 + thread) * 16;
			};
			named_wait(1, 256); // nothing is read from the ring any more
			team_wait();        // all blocks have started
			const int own = (P::units + P::split - 1 - rank) / P::split; // units
			if (thread == 0)
				barrier_expect(ring.sent(), own * P::unit_bytes * (P::split - 1));
			__syncwarp();
			if (thread < P::split)
				barrier_arrive_at(ring.done(), thread);
			barrier_wait(ring.done(), 0);
#pragma unroll
			for (int unit = 0; unit < P::units; unit++) {
				const int owner = unit % P::split;
				const u32 at = place(rank, owner, unit / P::split);
				const u32 there = at_rank(dynamic, owner) - shared_address(dynamic);
#pragma unroll
				for (int h = 0; h < words; h++) {
					const float (&a)[4] = sum(unit, 2 * h), (&b)[4] = sum(unit, 2 * h + 1);
					const int i = unit % 2 * 2;
					const uint4 v = make_uint4(__float_as_uint(a[i]), __float_as_uint(a[i + 1]), __float_as_uint(b[i]),
						__float_as_uint(b[i + 1]));
					if (owner == rank)
						store_shared(at + h * 256 * 16, v);
					else
						send_at_rank(there + at + h * 256 * 16, v, there + ring.sent());
				}
			}
			barrier_wait(ring.sent(), 0);
			each_unit([&](int k, int, int t, int n) {
				float v[4 * P::parts][2] = {};
#pragma unroll
				for (int r = 0; r < P::split; r++)
#pragma unroll
					for (int h = 0; h < words; h++) {
						const uint4 s = load_shared_four(place(r, rank, k) + h * 256 * 16);
						v[2 * h][0] += __uint_as_float(s.x);
						v[2 * h][1] += __uint_as_float(s.y);
						v[2 * h + 1][0] += __uint_as_float(s.z);
						v[2 * h + 1][1] += __uint_as_float(s.w);
					}
				finish(k, t, n, v);
			});
		}
	}
}

// Results -------------------------------------------------------------------------------------------------------

// warp level: eight rows by 32 columns of a matrix of N_ columns, of which `rows` rows are in use: v[j] are columns
// 8j + 2q and 8j + 2q + 1 of row g, lane q of it stores columns n to n + 7. They are sums times `row_scale`, of rows
// of w, plus `more`, columns n to n + 7 of the same row, plus bias; each NULL where there is none
template <int N_, class B>
__device__ __forceinline__ void few_store(bf16 *y, int rows, int t, int n, const float (&v)[4][2],
	const float *row_scale, const uint4 *more, const B *bias)
{
	const int q = threadIdx.x % 4;
	u32 w[4], added[4] = {};
	if (more) {
		added[0] = more->x, added[1] = more->y, added[2] = more->z, added[3] = more->w;
		quad_transpose(added);
	}
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const int column = n + (j - q) * 8 + q * 2;
		const float2 scale = row_scale ? bias_pair<N_>(row_scale, column) : make_float2(1.0f, 1.0f);
		const float2 b = bias ? bias_pair<N_>(bias, column) : make_float2(0.0f, 0.0f);
		w[j] = pack_bf16(v[j][0] * scale.x + low_bf16(added[j]) + b.x, v[j][1] * scale.y + high_bf16(added[j]) + b.y);
	}
	quad_transpose(w);
	if (t < rows && n < N_)
		*reinterpret_cast<uint4 *>(y + i64(t) * N_ + n) = make_uint4(w[0], w[1], w[2], w[3]);
}

// thread level: columns n to n + 7 of row t of such a matrix, past L1: another launch wrote them
template <int N_> __device__ __forceinline__ uint4 few_load(const bf16 *x, int rows, int t, int n)
{
	return t < rows && n < N_ ? __ldcg(reinterpret_cast<const uint4 *>(x + i64(t) * N_ + n)) : make_uint4(0, 0, 0, 0);
}
