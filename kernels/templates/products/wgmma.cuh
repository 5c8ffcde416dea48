// wgmma.cuh - tiles of x w^T for many rows: the copy engine fetches, wgmma multiplies (sm_90a only).
//
// A tile is 128 rows of x by BN rows of w. A block makes one tile after another: there are about as many blocks as
// multiprocessors, and while the results of one tile are stored the operands of the next are on their way. One thread
// requests, two warpgroups multiply, each 64 rows by all BN; between them is a ring of stages, each 64 columns of both
// operands, with a barrier for "full" and one for "free". Requests for weights go out before inputs_ready.
//
// L2 bandwidth is what a tile of this size is short of. So blocks may work in pairs (CLUSTER = 2) on two tiles one
// below the other: each fetches half of the w rows that both need and sends it to both. Tiles are taken in groups of 16
// in the direction of rows, so that what runs at one time is nearly square and shares its operands in the L2 cache.
//
// A residual comes by the same ring, behind the last columns of its tile, in pieces of 64 columns.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "shared/hopper.cuh"

// Shared memory: to the next multiple of 1024, as many stages as there is room for, and their barriers.
FORMULA(wgmma_stages(int bn), 230400 / ((128 + bn) * 128))
FORMULA(wgmma_smem(int bn), 1024 + wgmma_stages(bn) * ((128 + bn) * 128) + 1024)

// Blocks' tiles of `columns` columns of y, those that a last cluster has too many included.
FORMULA(wgmma_pieces(int rows, int n, int columns, int cluster),
	cluster * ceil_div(ceil_div(rows, 128), cluster) * ceil_div(n, columns))

template <int BN_> struct WideTile {
	static constexpr int bm = 128, bk = 64, piece_bytes = bm * bk * 2;
	static constexpr int stage_bytes = (bm + BN_) * bk * 2, stages = wgmma_stages(BN_);
	static constexpr int smem_bytes = 1024 + stages * stage_bytes + 1024;
	static_assert(stages * 16 <= 1024 && smem_bytes == wgmma_smem(BN_), "the ring and its barriers fit");
	static_assert(BN_ == 64 || BN_ == 128 || BN_ == 192 || BN_ == 256, "the shapes of wgmma spelled out below");
};

// Tensor core instructions --------------------------------------------------------------------------------------
//
// Accumulators of m64nNk16, in each warp of the warpgroup 16 rows, with g = lane / 4 and q = lane % 4: acc[j][0..3]
// are (g, 8j + 2q), (g, 8j + 2q + 1), (g + 8, 8j + 2q), (g + 8, 8j + 2q + 1), as mma.sync has them.

#define WGMMA_4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define WGMMA_16(j) WGMMA_4(j), WGMMA_4(j + 1), WGMMA_4(j + 2), WGMMA_4(j + 3)
#define WGMMA_32(j) WGMMA_16(j), WGMMA_16(j + 4)
#define WGMMA_64(j) WGMMA_32(j), WGMMA_32(j + 8)
#define WGMMA_16_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_32_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_64_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_96_NAMES WGMMA_64_NAMES ", " \
	"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_128_NAMES WGMMA_96_NAMES ", " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_TEXT(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {"

// warpgroup level: c += 64 rows of x, 16 columns, times as many rows of w as c has columns
__device__ __forceinline__ void wgmma(float (&c)[8][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("64") WGMMA_32_NAMES "}, %32, %33, 1, 1, 1, 0, 0;" : WGMMA_32(0) : "l"(x), "l"(w));
}

__device__ __forceinline__ void wgmma(float (&c)[16][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("128") WGMMA_64_NAMES "}, %64, %65, 1, 1, 1, 0, 0;" : WGMMA_64(0) : "l"(x), "l"(w));
}

__device__ __forceinline__ void wgmma(float (&c)[24][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("192") WGMMA_96_NAMES "}, %96, %97, 1, 1, 1, 0, 0;"
		: WGMMA_64(0), WGMMA_32(16) : "l"(x), "l"(w));
}

__device__ __forceinline__ void wgmma(float (&c)[32][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("256") WGMMA_128_NAMES "}, %128, %129, 1, 1, 1, 0, 0;"
		: WGMMA_64(0), WGMMA_64(16) : "l"(x), "l"(w));
}

// The ring --------------------------------------------------------------------------------------------------------

// Where a block's stages and barriers lie, and the place of one side in the ring: both sides go round alike.
template <int BN_> struct Ring {
	u32 base;
	int slot = 0;
	u32 turn = 0; // how often round, modulo 2

	__device__ u32 stage() const { return base + slot * WideTile<BN_>::stage_bytes; }
	__device__ u32 full(int s) const { return base + WideTile<BN_>::stages * WideTile<BN_>::stage_bytes + s * 16; }
	__device__ u32 free(int s) const { return full(s) + 8; }
	__device__ void advance()
	{
		slot = slot + 1 == WideTile<BN_>::stages ? 0 : slot + 1;
		turn ^= slot == 0;
	}
};

// The tiles of a launch that a block makes, in order: first element of x and of each part of w. Blocks of a cluster
// differ in their row alone.
template <int COLUMNS_, int N_, int CLUSTER_> struct Tiles {
	static constexpr int across = ceil_div(N_, COLUMNS_), group = 16 / CLUSTER_;
	int down, next, row, column; // tiles in the direction of rows, counted in clusters

	__device__ Tiles(int rows) : down(ceil_div(rows, 128 * CLUSTER_)), next(blockIdx.x / CLUSTER_), row(0), column(0) {}
	__device__ bool take()
	{
		if (next >= down * across)
			return false;
		const int first = next / (group * across) * group, high = min(group, down - first);
		const int within = next - first * across;
		row = ((first + within % high) * CLUSTER_ + int(blockIdx.x) % CLUSTER_) * 128;
		column = within / high * COLUMNS_;
		next += gridDim.x / CLUSTER_;
		return true;
	}
};

// What a launch multiplies. A tile of w is PARTS_ times BN / PARTS_ rows, one part from each matrix.
template <int PARTS_> struct Products {
	const TensorMap *x, *w[PARTS_], *residual; // NULL without
};

// warp level: the stage of that barrier is free again, for all blocks that fill it
template <int CLUSTER_> __device__ __forceinline__ void wgmma_release(u32 barrier)
{
	const int lane = threadIdx.x % 32;
	__syncwarp();
	if constexpr (CLUSTER_ == 1) {
		if (lane == 0)
			barrier_arrive(barrier);
	} else if (lane < CLUSTER_) {
		barrier_arrive_at(barrier, lane);
	}
}

// one thread: all requests of the block. COLUMNS_ are the columns of a stage, of 128 bytes
template <int BN_, int K_, int N_, int CLUSTER_, int COLUMNS_ = 64, int PARTS_>
__device__ __forceinline__ void wgmma_request(Ring<BN_> ring, Tiles<BN_ / PARTS_, N_, CLUSTER_> tiles,
	const Products<PARTS_> &p)
{
	using T = WideTile<BN_>;
	constexpr int steps = ceil_div(K_, COLUMNS_), early = steps < T::stages ? steps : T::stages;
	constexpr int pieces = PARTS_ > CLUSTER_ ? PARTS_ : CLUSTER_, piece_rows = BN_ / pieces;
	const int rank = blockIdx.x % CLUSTER_;
	auto fill_w = [&](int step) { // the twins of this stage get the other pieces from the cluster's other block
#pragma unroll
		for (int i = 0; i < pieces / CLUSTER_; i++) {
			const int piece = i * CLUSTER_ + rank;
			const TensorMap *map = piece == 0 ? p.w[0] : p.w[PARTS_ - 1];
			const int row = tiles.column + (PARTS_ == 1 ? piece * piece_rows : 0);
			const u32 to = ring.stage() + T::piece_bytes + piece * piece_rows * 128;
			if constexpr (CLUSTER_ == 1)
				copy_box(to, *map, row, step * COLUMNS_, ring.full(ring.slot));
			else
				copy_box_to(to, *map, row, step * COLUMNS_, ring.full(ring.slot), (1 << CLUSTER_) - 1);
		}
	};
	bool more = tiles.take();
	Ring<BN_> ahead = ring;
	for (int step = 0; more && step < early; step++, ring.advance()) {
		barrier_expect(ring.full(ring.slot), T::stage_bytes);
		fill_w(step);
	}
	ring = ahead;
	inputs_ready(); // weights are on their way before what the launch before computes
	for (int done = early; more; more = tiles.take(), done = 0) {
		for (int step = 0; step < steps; step++, ring.advance()) {
			if (step >= done) {
				barrier_wait(ring.free(ring.slot), ring.turn ^ 1);
				barrier_expect(ring.full(ring.slot), T::stage_bytes);
				fill_w(step);
			}
			copy_box(ring.stage(), *p.x, tiles.row, step * COLUMNS_, ring.full(ring.slot));
		}
		for (int c = 0; p.residual && c < BN_; c += 128, ring.advance()) {
			barrier_wait(ring.free(ring.slot), ring.turn ^ 1);
			barrier_expect(ring.full(ring.slot), min(BN_ - c, 128) / 64 * T::piece_bytes);
			for (int i = 0; i < 2 && c + 64 * i < BN_; i++)
				copy_box(ring.stage() + i * T::piece_bytes, *p.residual, tiles.row, tiles.column + c + 64 * i,
					ring.full(ring.slot));
		}
	}
}

// one warpgroup, number `group` of two: acc = its 64 rows of the tile
template <int BN_, int K_, int CLUSTER_>
__device__ __forceinline__ void wgmma_multiply(Ring<BN_> &ring, int group, float (&acc)[BN_ / 8][4])
{
	using T = WideTile<BN_>;
	constexpr int steps = ceil_div(K_, T::bk);
	auto start = [&] {
		barrier_wait(ring.full(ring.slot), ring.turn);
		const u64 x = tile_descriptor(ring.stage() + group * (64 * 128));
		const u64 w = tile_descriptor(ring.stage() + T::piece_bytes);
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < T::bk / 16; i++)
			wgmma(acc, x + 2 * i, w + 2 * i);
		wgmma_commit();
	};
#pragma unroll
	for (int j = 0; j < BN_ / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	start();
	for (int step = 1; step < steps; step++) {
		const int before = ring.slot;
		ring.advance();
		start();
		wgmma_wait<1>();
		wgmma_release<CLUSTER_>(ring.free(before));
	}
	wgmma_wait<0>();
	hold(acc);
	wgmma_release<CLUSTER_>(ring.free(ring.slot));
	ring.advance();
}

// the same: adds the tile's residual
template <int BN_, int CLUSTER_>
__device__ __forceinline__ void wgmma_add_residual(Ring<BN_> &ring, int group, float (&acc)[BN_ / 8][4])
{
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, row = group * 64 + threadIdx.x % 128 / 32 * 16 + g;
#pragma unroll
	for (int p = 0; p < BN_ / 64; p++) {
		if (p % 2 == 0)
			barrier_wait(ring.full(ring.slot), ring.turn);
		const u32 piece = ring.stage() + p % 2 * WideTile<BN_>::piece_bytes;
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const u32 pair = load_shared(piece + (row + 8 * i) * 128 + (j ^ g) * 16 + q * 4);
				acc[p * 8 + j][2 * i] += low_bf16(pair);
				acc[p * 8 + j][2 * i + 1] += high_bf16(pair);
			}
		if (p % 2 == 1 || p == BN_ / 64 - 1) {
			wgmma_release<CLUSTER_>(ring.free(ring.slot));
			ring.advance();
		}
	}
}

// block level, all 384 threads: the ring, its barriers and the maps are ready, in all blocks of the cluster, and the
// next launch may start. The warpgroup this thread is in: 0 requests, 1 and 2 multiply
template <int BN_, int CLUSTER_, int PARTS_>
__device__ __forceinline__ int wgmma_open(uint4 *dynamic, const Products<PARTS_> &p, Ring<BN_> &ring)
{
	using T = WideTile<BN_>;
	ring.base = (shared_address(dynamic) + 1023) / 1024 * 1024;
	const int group = __shfl_sync(~0u, int(threadIdx.x / 128), 0);
	if (threadIdx.x == 0) {
		prefetch_map(*p.x);
		for (int i = 0; i < PARTS_; i++)
			prefetch_map(*p.w[i]);
		for (int s = 0; s < T::stages; s++) {
			barrier_init(ring.full(s), 1);
			barrier_init(ring.free(s), 8 * CLUSTER_); // warps
		}
		barrier_init_done();
	}
	if constexpr (CLUSTER_ == 1)
		__syncthreads();
	else
		cluster_sync();
	let_next_start();
	return group;
}

// block level, all 384 threads: the tiles of a launch of which `rows` rows are in use. finish(acc, row, column) takes
// the sums of a warpgroup: 64 rows of x from `row` on; acc[j + p * BN / 8 / PARTS][i] belong to row `column` and after
// of part p of w. Calls let_next_start and inputs_ready.
template <int BN_, int K_, int N_, int CLUSTER_, int PARTS_, class Finish>
__device__ __forceinline__ void wgmma_products(uint4 *dynamic, int rows, const Products<PARTS_> &p, Finish finish)
{
	static_assert(K_ % 8 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");
	Ring<BN_> ring;
	Tiles<BN_ / PARTS_, N_, CLUSTER_> tiles(rows);
	const int group = wgmma_open<BN_, CLUSTER_>(dynamic, p, ring);
	if (group == 0) {
		registers_down<40>();
		if (threadIdx.x == 0)
			wgmma_request<BN_, K_, N_, CLUSTER_>(ring, tiles, p);
	} else {
		registers_up<232>();
		while (tiles.take()) {
			float acc[BN_ / 8][4];
			wgmma_multiply<BN_, K_, CLUSTER_>(ring, group - 1, acc);
			if (p.residual)
				wgmma_add_residual<BN_, CLUSTER_>(ring, group - 1, acc);
			finish(acc, tiles.row + (group - 1) * 64, tiles.column);
		}
	}
	if constexpr (CLUSTER_ > 1)
		cluster_sync(); // the other block may still arrive at barriers of this one
}

// Results -------------------------------------------------------------------------------------------------------
//
// A thread's results of a tile lie as its accumulators do: v[i][j] holds columns 8j + 2q and 8j + 2q + 1 of row g + 8i
// of the warp's 16. In memory 16 bytes are eight columns of one row, so the four lanes of a row exchange words.

// warp level: word j of lane q and word q of lane j change places, within each four lanes
__device__ __forceinline__ void quad_transpose(u32 (&v)[4])
{
#pragma unroll
	for (int bit = 1; bit <= 2; bit *= 2) {
		const bool upper = threadIdx.x & bit;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			if (j & bit)
				continue;
			const u32 got = __shfl_xor_sync(~0u, upper ? v[j] : v[j + bit], bit);
			(upper ? v[j] : v[j + bit]) = got;
		}
	}
}

// warpgroup level: its 64 rows of a tile to a matrix of N_ columns. `at` is the first element; `rows` and `columns` are
// what the matrix has from there on. pair(i, j): columns 8j + 2q and 8j + 2q + 1 of row g + 8i, as two bf16
template <int N_, int TILES_, class Pair>
__device__ __forceinline__ void store_tile(bf16 *at, int rows, int columns, Pair pair)
{
	const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	static_assert(TILES_ % 4 == 0 && N_ % 8 == 0, "lanes exchange four words and store 16 bytes");
#pragma unroll
	for (int i = 0; i < 2; i++) {
		bf16 *line = at + i64(row + 8 * i) * N_ + q * 8;
#pragma unroll
		for (int j = 0; j < TILES_; j += 4) {
			u32 w[4] = { pair(i, j), pair(i, j + 1), pair(i, j + 2), pair(i, j + 3) };
			quad_transpose(w);
			if (row + 8 * i < rows && (j + q) * 8 < columns)
				*reinterpret_cast<uint4 *>(line + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
		}
	}
}

// Elements n and n + 1 of a bias of N_ elements, 0 past its end.
template <int N_, class B> __device__ __forceinline__ float2 bias_pair(const B *bias, int n)
{
	return make_float2(n < N_ ? to_f32(bias[n]) : 0.0f, n + 1 < N_ ? to_f32(bias[n + 1]) : 0.0f);
}
