// wgmma_slim.cuh - tiles of w x^T for up to 64 rows of x, small enough that launches overlap (sm_90a only).
//
// Such a product is bound by reading w. Rows of w are the rows of the tensor core's tile and rows of x its columns, of
// which there are 16, 32 or 64: nothing is multiplied that is not there, sums take few registers, and a block takes a
// half or a third of a multiprocessor. So the blocks of the next launches come to it while those of this one end, and
// memory brings their first weights meanwhile: requests for weights go out before inputs_ready.
//
// A tile is 128 rows of w, of each of PARTS_ matrices. SPLIT blocks, a cluster, may divide the columns (k) of one: each
// leaves its sums in its own shared memory, and then each adds the runs, in order, for some of the rows of x. One warp
// requests, two warpgroups multiply, each 64 rows of each matrix. Between them is a ring of stages of 128 bytes of each
// row; of codes the scales of x lie beside it.
//
// Contracts share wgmma_slim_contract.cuh.
#pragma once
#include "shared/arrive.cuh"
#include "shared/quant.cuh"
#include "products/wgmma_few.cuh"

// The columns of a tile: rows of x, used or not. Shared memory of a block of which a multiprocessor has so many.
FORMULA(slim_rows(int rows), rows <= 16 ? 16 : rows <= 32 ? 32 : 64)
FORMULA(slim_smem(int blocks), (233472 / blocks - 1024) / 16 * 16)

#define WGMMA_8(j) WGMMA_4(j), WGMMA_4(j + 1)
#define WGMMA_8_NAMES "%0, %1, %2, %3, %4, %5, %6, %7"

// warpgroup level: c += 64 rows of w, 16 columns, times 16 rows of x; of codes c (+)=, 32 columns
__device__ __forceinline__ void wgmma(float (&c)[2][4], u64 w, u64 x)
{
	asm volatile(WGMMA_TEXT("16") WGMMA_8_NAMES "}, %8, %9, 1, 1, 1, 0, 0;" : WGMMA_8(0) : "l"(w), "l"(x));
}

#define SLIM_CODES_TEXT(n) "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 {"
template <bool ADD_> __device__ __forceinline__ void wgmma_slim_codes(float (&c)[2][4], u64 w, u64 x)
{
	asm volatile(SLIM_CODES_TEXT("16") WGMMA_8_NAMES "}, %8, %9, %10, 1, 1;" : WGMMA_8(0)
		: "l"(w), "l"(x), "n"(int(ADD_)));
}

template <bool ADD_> __device__ __forceinline__ void wgmma_slim_codes(float (&c)[4][4], u64 w, u64 x)
{
	asm volatile(SLIM_CODES_TEXT("32") WGMMA_16_NAMES "}, %16, %17, %18, 1, 1;" : WGMMA_16(0)
		: "l"(w), "l"(x), "n"(int(ADD_)));
}

template <bool ADD_> __device__ __forceinline__ void wgmma_slim_codes(float (&c)[8][4], u64 w, u64 x)
{
	asm volatile(SLIM_CODES_TEXT("64") WGMMA_32_NAMES "}, %32, %33, %34, 1, 1;" : WGMMA_32(0)
		: "l"(w), "l"(x), "n"(int(ADD_)));
}

__device__ __forceinline__ void slim_put(u32 to, float x)
{
	asm volatile("st.shared.f32 [%0], %1;" :: "r"(to), "f"(x) : "memory");
}

__device__ __forceinline__ float2 slim_pair(u32 from)
{
	float2 v;
	asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
	return v;
}

// What a launch multiplies, and its form. COLUMNS_ are the elements of a row in a stage, 128 bytes: 128 are codes.
template <int ROWS_, int K_, int N_, int SPLIT_, int BLOCKS_, int PARTS_, int COLUMNS_>
struct SlimProducts {
	static constexpr int rows = ROWS_, split = SPLIT_, parts = PARTS_, columns = COLUMNS_;
	static constexpr int nx = slim_rows(ROWS_), sums = nx / 8; // fragments of eight rows of x
	static constexpr int piece_bytes = 128 * 128, stage_bytes = PARTS_ * piece_bytes + nx * 128;
	static constexpr int scale_bytes = COLUMNS_ == 128 ? nx * 4 : 0; // of a stage, behind all stages
	static constexpr int stages = (slim_smem(BLOCKS_) - 1024 - 16) / (stage_bytes + scale_bytes + 16);
	static constexpr int steps = ceil_div(K_, COLUMNS_);
	// sums of a tile, where the ring was: a row of them for each row of x, which starts four banks further on
	static constexpr int stride = PARTS_ * 128 + 4, sum_bytes = nx * stride * 4;
	// and then what the cluster's other blocks send of the rows of x that are this one's
	static constexpr int line_bytes = PARTS_ * 512, source_bytes = ceil_div(nx, SPLIT_) * line_bytes;
	static constexpr int sent_at = ceil_div(sum_bytes, 128) * 128, sent_bytes = (SPLIT_ - 1) * source_bytes;
	static constexpr int mine = ceil_div(ceil_div(nx, SPLIT_), 16); // eight columns of y, that a thread finishes
	// partial sums of codes of both matrices at once, where there are registers for them
	static constexpr int held = PARTS_ == 2 && nx == 64 && BLOCKS_ > 1 ? 1 : PARTS_;
	static constexpr int smem_bytes = 1023 + stages * (stage_bytes + scale_bytes + 16) + 16;
	static_assert(stages >= 2 && stages * stage_bytes >= sent_at + sent_bytes, "a ring, and then sums");
	static_assert(steps >= SPLIT_, "each block has a run of columns");
	static_assert(ROWS_ <= 64 && K_ % 8 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");

	const TensorMap *x, *w[PARTS_];
	const float *x_scale;

	static __device__ int rank() { return SPLIT_ == 1 ? 0 : int(blockIdx.x) % SPLIT_; }
	static __device__ int first() { return rank() * steps / SPLIT_; }
	static __device__ int last() { return (rank() + 1) * steps / SPLIT_; }
	static __device__ int column() { return int(blockIdx.x) / SPLIT_ * 128; } // of y, the first of the tile
};

// A place in the ring: both sides go round alike.
template <class P> struct SlimRing {
	u32 base;
	int slot = 0;
	u32 turn = 0;

	__device__ u32 stage() const { return base + slot * P::stage_bytes; }
	__device__ u32 scales() const { return base + P::stages * P::stage_bytes + slot * P::scale_bytes; }
	__device__ u32 full() const { return base + P::stages * (P::stage_bytes + P::scale_bytes) + slot * 16; }
	__device__ u32 free() const { return full() + 8; }
	// of the cluster: all blocks are done with their rings; all sums have come
	__device__ u32 done() const { return base + P::stages * (P::stage_bytes + P::scale_bytes + 16); }
	__device__ u32 sent() const { return done() + 8; }
	__device__ void advance()
	{
		slot = slot + 1 == P::stages ? 0 : slot + 1;
		turn ^= slot == 0;
	}
	// operands in the stage: 64 rows of w of a matrix, all rows of x
	__device__ u64 w(int part, int group) const
	{
		return tile_descriptor(stage() + part * P::piece_bytes + group * (64 * 128));
	}
	__device__ u64 x() const { return tile_descriptor(stage() + P::parts * P::piece_bytes); }
};

// one warp: all requests of the block
template <class P> __device__ __forceinline__ void slim_request(SlimRing<P> ring, const P &p)
{
	const int first = P::first(), last = P::last(), early = min(last, first + P::stages), lane = threadIdx.x % 32;
	auto fill_w = [&](int step) {
		barrier_expect(ring.full(), P::stage_bytes);
#pragma unroll
		for (int i = 0; i < P::parts; i++)
			copy_box(ring.stage() + i * P::piece_bytes, *p.w[i], P::column(), step * P::columns, ring.full());
	};
	SlimRing<P> start = ring;
	if (lane == 0)
		for (int step = first; step < early; step++, ring.advance())
			fill_w(step);
	ring = start;
	inputs_ready(); // weights are on their way before what the launch before computes
	for (int step = first; step < last; step++, ring.advance()) {
		if (step >= early)
			barrier_wait(ring.free(), ring.turn ^ 1);
		if (lane == 0) {
			if (step >= early)
				fill_w(step);
			copy_box(ring.stage() + P::parts * P::piece_bytes, *p.x, 0, step * P::columns, ring.full());
		}
		if constexpr (P::scale_bytes > 0) {
#pragma unroll
			for (int t = 0; t < P::nx; t += 32)
				if (P::nx >= 32 || lane < P::nx)
					copy_few_async<4>(ring.scales() + (t + lane) * 4,
						p.x_scale + i64(step) * P::rows + min(t + lane, P::rows - 1), true);
			asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(ring.full()) : "memory");
		}
	}
}

// one warpgroup, number `group` of two: acc = its part of the tile, over the block's run of columns
template <class P>
__device__ __forceinline__ void slim_multiply(SlimRing<P> &ring, int group, float (&acc)[P::parts][P::sums][4])
{
#pragma unroll
	for (int m = 0; m < P::parts; m++)
		hold(acc[m]); // zeros that are there before the first product
	auto start = [&] {
		barrier_wait(ring.full(), ring.turn);
		const u64 x = ring.x();
		wgmma_begin();
#pragma unroll
		for (int m = 0; m < P::parts; m++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				wgmma(acc[m], ring.w(m, group) + 2 * i, x + 2 * i);
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
#pragma unroll
	for (int m = 0; m < P::parts; m++)
		hold(acc[m]);
}

// The same of codes, scaled: the tensor cores sum a stage, which is one block of scales along k, alone, and then each
// sum is added, times its two scales. w_scale, NULL without, has one for each 128 rows and stage of each matrix
template <class P, int N_, class ST_>
__device__ __forceinline__ void slim_multiply_codes(SlimRing<P> &ring, int group, float (&acc)[P::parts][P::sums][4],
	const ST_ *const (&w_scale)[P::parts])
{
	static_assert(P::columns == code_columns, "a stage has one scale of each row of x");
	const int lane = threadIdx.x % 32;
	const i64 block = i64(min(P::column(), N_ - 1) / 128) * P::steps;
	float part[P::held][P::sums][4] = {};
	// of eight stages, that of stage l % 8 in lane l: a load a stage would be waited for
	float next[P::parts], now[P::parts];
	auto load = [&](int first) {
#pragma unroll
		for (int m = 0; m < P::parts; m++)
			next[m] = w_scale[m] ? to_f32(w_scale[m][block + min(first + lane % 8, P::last() - 1)]) : 1.0f;
	};
	auto multiply = [&](float (&c)[P::sums][4], u64 w, u64 x) {
		wgmma_slim_codes<false>(c, w, x);
#pragma unroll
		for (int i = 1; i < 4; i++)
			wgmma_slim_codes<true>(c, w + 2 * i, x + 2 * i);
	};
	auto add = [&](float (&to)[P::sums][4], const float (&c)[P::sums][4], float scale, u32 scales) {
#pragma unroll
		for (int j = 0; j < P::sums; j++) {
			const float2 s = slim_pair(scales + j * 32);
			const float x[2] = { s.x * scale, s.y * scale };
#pragma unroll
			for (int i = 0; i < 4; i++)
				to[j][i] = fmaf(c[j][i], x[i % 2], to[j][i]);
		}
	};
	load(P::first());
	for (int step = P::first(); step < P::last(); step++, ring.advance()) {
		const int u = (step - P::first()) % 8;
		if (u == 0) {
#pragma unroll
			for (int m = 0; m < P::parts; m++)
				now[m] = next[m];
			load(step + 8);
		}
		barrier_wait(ring.full(), ring.turn);
		const u64 x = ring.x();
		const u32 scales = ring.scales() + lane % 4 * 8;
		float of_w[P::parts];
#pragma unroll
		for (int m = 0; m < P::parts; m++)
			of_w[m] = __shfl_sync(~0u, now[m], u);
#pragma unroll
		for (int m = 0; m < P::parts; m += P::held) {
			wgmma_begin();
#pragma unroll
			for (int h = 0; h < P::held; h++)
				multiply(part[h], ring.w(m + h, group), x);
			wgmma_commit();
			wgmma_wait<0>();
#pragma unroll
			for (int h = 0; h < P::held; h++) {
				hold(part[h]);
				add(acc[m + h], part[h], of_w[m + h], scales);
			}
		}
		wgmma_release<1>(ring.free());
	}
}

// Both warpgroups: of the sums that lie in shared memory those of other blocks' rows of x go there, and theirs of this
// one's come. A barrier of the cluster that hands memory over would wait for a fence of the whole card, twice; what is
// sent carries its own barrier.
template <class P> __device__ __forceinline__ void slim_exchange(const SlimRing<P> &ring, const void *dynamic, int rank)
{
	team_wait(); // all blocks have started
	if (threadIdx.x == 0)
		barrier_expect(ring.sent(), (P::nx + P::split - 1 - rank) / P::split * P::line_bytes * (P::split - 1));
	__syncwarp();
	if (threadIdx.x < P::split)
		barrier_arrive_at(ring.done(), threadIdx.x);
	named_wait(1, 256); // the sums are there
	barrier_wait(ring.done(), 0);
	constexpr int pieces = P::line_bytes / 16;
	const u32 base = ring.base - shared_address(dynamic);
#pragma unroll
	for (int i = 0; i < ceil_div(P::nx * pieces, 256); i++) {
		const int piece = (i * 256 + threadIdx.x) % pieces, t = (i * 256 + threadIdx.x) / pieces, owner = t % P::split;
		if (owner == rank || t >= P::nx)
			continue;
		const u32 there = at_rank(dynamic, owner);
		send_at_rank(there + base + P::sent_at + (rank < owner ? rank : rank - 1) * P::source_bytes
			+ t / P::split * P::line_bytes + piece * 16, load_shared_four(ring.base + (t * P::stride + piece * 4) * 4),
			there + (ring.sent() - shared_address(dynamic)));
	}
	barrier_wait(ring.sent(), 0);
}

// block level, all 288 threads: the tile of this block's cluster, of a launch of which `rows` rows are in use.
// multiply(ring, group, acc) adds a warpgroup's part of the sums of a run; load(k, row, column) asks for what is added
// to columns `column` to `column` + 7 of y, as the k-th of this thread's; finish(k, row, column, v) takes the sums of
// these columns of each matrix: sixteen lanes have one row. Calls let_next_start and inputs_ready.
template <class P, class Multiply, class Load, class Finish>
__device__ __forceinline__ void slim_products(uint4 *dynamic, int rows, const P &p, Multiply multiply, Load load,
	Finish finish)
{
	SlimRing<P> ring;
	ring.base = (shared_address(dynamic) + 1023) / 1024 * 1024;
	const int group = __shfl_sync(~0u, int(threadIdx.x / 128), 0);
	if (threadIdx.x == 256) {
		prefetch_map(*p.x);
		for (int i = 0; i < P::parts; i++)
			prefetch_map(*p.w[i]);
		SlimRing<P> each = ring;
		for (int s = 0; s < P::stages; s++, each.advance()) {
			barrier_init(each.full(), 1 + (P::scale_bytes > 0 ? 32 : 0));
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
	if (rows == 0) { // in all blocks of the cluster
		inputs_ready();
		return;
	}
	if (group == 2) {
		slim_request(ring, p);
		if constexpr (P::split > 1)
			team_wait();
	} else {
		inputs_ready(); // what is added is not fetched by the warp that waits for x
		const int lane = threadIdx.x % 32, rank = P::rank();
		auto each_unit = [&](auto f) { // of this rank: f(k-th, row, column)
#pragma unroll
			for (int k = 0; k < P::mine; k++)
				f(k, rank + P::split * (int(threadIdx.x) / 16 + k * 16), int(threadIdx.x) % 16 * 8);
		};
		each_unit([&](int k, int t, int n) { load(k, t, P::column() + n); });
		float acc[P::parts][P::sums][4] = {};
		multiply(ring, group, acc);
		named_wait(1, 256); // nothing is read from the ring any more
		const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4; // of w
		const u32 sums = ring.base + (lane % 4 * 2 * P::stride + row) * 4;
#pragma unroll
		for (int m = 0; m < P::parts; m++)
#pragma unroll
			for (int j = 0; j < P::sums; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					slim_put(sums + ((j * 8 + i % 2) * P::stride + m * 128 + i / 2 * 8) * 4, acc[m][j][i]);
		if constexpr (P::split > 1)
			slim_exchange(ring, dynamic, rank);
		else
			named_wait(1, 256);
		each_unit([&](int k, int t, int n) {
			const u32 at = ring.base - shared_address(dynamic) + (min(t, P::nx - 1) * P::stride + n) * 4;
			const u32 sent = ring.base + P::sent_at + min(t, P::nx - 1) / P::split * P::line_bytes + n * 4;
			float v[P::parts][8] = {};
#pragma unroll
			for (int r = 0; r < P::split; r++)
#pragma unroll
				for (int m = 0; m < P::parts; m++)
#pragma unroll
					for (int h = 0; h < 2; h++) {
						const u32 from = at + (m * 128 + h * 4) * 4;
						const u32 theirs = sent + (r < rank ? r : r - 1) * P::source_bytes + (m * 128 + h * 4) * 4;
						const bool is_own = P::split == 1 || r == rank;
						const uint4 s = load_shared_four(is_own ? shared_address(dynamic) + from : theirs);
						v[m][4 * h] += __uint_as_float(s.x);
						v[m][4 * h + 1] += __uint_as_float(s.y);
						v[m][4 * h + 2] += __uint_as_float(s.z);
						v[m][4 * h + 3] += __uint_as_float(s.w);
					}
			finish(k, t, P::column() + n, v);
		});
	}
}

// Results -------------------------------------------------------------------------------------------------------

// thread level: v, columns n to n + 7 of a matrix of N_, times scales of rows of w, plus bias; each NULL where none is
template <int N_, class B>
__device__ __forceinline__ void slim_complete(float (&v)[8], int n, const float *row_scale, const B *bias)
{
	if (n >= N_)
		return;
#pragma unroll
	for (int i = 0; i < 8; i += 2) {
		if (row_scale) {
			const float2 s = bias_pair<N_>(row_scale, n + i);
			v[i] *= s.x;
			v[i + 1] *= s.y;
		}
		if (bias) {
			const float2 b = bias_pair<N_>(bias, n + i);
			v[i] += b.x;
			v[i + 1] += b.y;
		}
	}
}

// thread level: columns n to n + 7 of row t, of which `rows` rows are in use
template <int N_> __device__ __forceinline__ void slim_store(bf16 *y, int rows, int t, int n, const float (&v)[8])
{
	if (t < rows && n < N_)
		*reinterpret_cast<uint4 *>(y + i64(t) * N_ + n) = pack8(v);
}
