// wgmma_codes.cuh - tiles of x w^T for many rows where w are codes of e2m1 or u4 in groups, on wgmma (sm_90a only).
//
// wgmma takes its first operand from registers, and codes have to pass through them. So the product is made the other
// way round, w x^T: a warpgroup decodes 64 rows of w, 16 columns at a time, exactly, to bf16 in fragments and
// multiplies them by up to 256 rows of x, which lie in shared memory as the copy engine brought them. A code is decoded
// once for all rows of a tile; while the tensor cores multiply a step of 64 columns the warpgroup decodes the next one,
// and there are two warpgroups; three where half as many rows of x leave less time for that, and registers.
//
// A tile is 64 WARPGROUPS rows of w by BM rows of x. One thread requests x, in stages of 64 columns, another the codes,
// in stages of 256 columns (128 bytes a row); weights are on their way before inputs_ready. Blocks may work in pairs
// (CLUSTER = 2) on two tiles of the same rows of x: each fetches half of them and sends it to both. Where there are
// fewer tiles than multiprocessors SPLIT blocks may divide the columns of one: each sums its run of stages, and then
// each adds the runs, in order, for its part of the rows, and finishes them.
//
// Fragments: of a row's 16 columns lane q of four needs codes 2q, 2q + 1, 2q + 8 and 2q + 9, which is byte q of each of
// two words. The four lanes of a row load all of its words, and each takes its byte of every one.
//
// A tile of two parts (gate and up) has in each warp eight rows of one and the same eight of the other: both sums of a
// column stand in one thread.
//
// Scales of groups of e2m1 multiply the codes as they are decoded. Those of u4 multiply sums in f32, of at most 64
// columns, which have registers of their own; so its tiles are of 128 rows of x at most. Scales are read a stage ahead.
// Those of rows are the caller's.
#pragma once
#include "shared/arrive.cuh"
#include "products/stream_codes.cuh"
#include "products/wgmma.cuh"

// Shared memory: to the next multiple of 1024, both rings, and their barriers.
FORMULA(codes_rings_bytes(), 229376)
FORMULA(codes_smem(), 1024 + codes_rings_bytes() + 1024)

template <int BM_, int WARPGROUPS_, int BITS_ = 4> struct CodeTile {
	static constexpr int rows = 64 * WARPGROUPS_, warps = 4 * WARPGROUPS_, threads = 32 * warps; // of w; that multiply
	static constexpr int x_bytes = BM_ * 128, w_bytes = rows * 128;
	static constexpr int steps = 16 / BITS_; // stages of x for one of codes
	static constexpr int even = codes_rings_bytes() / (w_bytes + steps * x_bytes), w_stages = even < 4 ? 4 : even;
	static constexpr int x_stages = (codes_rings_bytes() - w_stages * w_bytes) / x_bytes;
	static constexpr int x_at = w_stages * w_bytes, barriers_at = x_at + x_stages * x_bytes;
	static constexpr int smem_bytes = 1024 + barriers_at + 1024;
	static_assert((w_stages + x_stages) * 16 <= 1024 && smem_bytes == codes_smem(),
		"the rings and their barriers fit");
	static_assert(BM_ == 32 || BM_ == 64 || BM_ == 128 || (BM_ == 256 && WARPGROUPS_ == 2),
		"the shapes of wgmma spelled out below");
	static_assert(WARPGROUPS_ >= 2 && WARPGROUPS_ <= 4, "the registers that move, below");
};

// warpgroup level: c (+)= 64 rows of w, 16 columns of them decoded, times as many rows of x as c has columns
#define WGMMA_FRAGMENT "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x), "n"(ADD_)
template <int ADD_> __device__ __forceinline__ void wgmma_decoded(float (&c)[4][4], const u32 (&w)[4], u64 x)
{
	asm volatile(WGMMA_TEXT("32") WGMMA_16_NAMES "}, {%16, %17, %18, %19}, %20, %21, 1, 1, 0;"
		: WGMMA_16(0) : WGMMA_FRAGMENT);
}

template <int ADD_> __device__ __forceinline__ void wgmma_decoded(float (&c)[8][4], const u32 (&w)[4], u64 x)
{
	asm volatile(WGMMA_TEXT("64") WGMMA_32_NAMES "}, {%32, %33, %34, %35}, %36, %37, 1, 1, 0;"
		: WGMMA_32(0) : WGMMA_FRAGMENT);
}

template <int ADD_> __device__ __forceinline__ void wgmma_decoded(float (&c)[16][4], const u32 (&w)[4], u64 x)
{
	asm volatile(WGMMA_TEXT("128") WGMMA_64_NAMES "}, {%64, %65, %66, %67}, %68, %69, 1, 1, 0;"
		: WGMMA_64(0) : WGMMA_FRAGMENT);
}

template <int ADD_> __device__ __forceinline__ void wgmma_decoded(float (&c)[32][4], const u32 (&w)[4], u64 x)
{
	asm volatile(WGMMA_TEXT("256") WGMMA_128_NAMES "}, {%128, %129, %130, %131}, %132, %133, 1, 1, 0;"
		: WGMMA_64(0), WGMMA_64(16) : WGMMA_FRAGMENT);
}

__device__ __forceinline__ uint4 load_shared_16(u32 from)
{
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
	return v;
}

// Places --------------------------------------------------------------------------------------------------------

// A place in a ring of STAGES_: both sides go round alike. The barriers of stage s are at 16 s: full, free.
template <int STAGES_> struct Place {
	u32 barriers;
	int slot = 0;
	u32 turn = 0;

	__device__ u32 full() const { return barriers + slot * 16; }
	__device__ u32 free() const { return full() + 8; }
	__device__ void advance()
	{
		slot = slot + 1 == STAGES_ ? 0 : slot + 1;
		turn ^= slot == 0;
	}
};

// The rings of a block.
template <class T> struct CodeRings {
	u32 base;
	Place<T::x_stages> x;
	Place<T::w_stages> w;

	__device__ u32 x_stage() const { return base + T::x_at + x.slot * T::x_bytes; }
	__device__ u32 w_stage() const { return base + w.slot * T::w_bytes; }
};

// The tiles of a launch that a block makes, in order: first row of x and of each part of w. Blocks of a cluster differ
// in their rows of w, or, SPLIT, in their columns. Rows of x go fastest, in groups of 2048.
template <int BM_, int COLUMNS_, int N_, int CLUSTER_, int SPLIT_> struct CodeTiles {
	static constexpr int across = ceil_div(ceil_div(N_, COLUMNS_), CLUSTER_), group = 2048 / BM_;
	int down, next, row, column;

	__device__ CodeTiles(int rows)
		: down(ceil_div(rows, BM_)), next(blockIdx.x / (CLUSTER_ * SPLIT_)), row(0), column(0) {}
	__device__ bool take()
	{
		if (next >= down * across)
			return false;
		const int first = next / (group * across) * group, high = min(group, down - first);
		const int within = next - first * across;
		row = (first + within % high) * BM_;
		column = (within / high * CLUSTER_ + int(blockIdx.x) % CLUSTER_) * COLUMNS_;
		next += gridDim.x / (CLUSTER_ * SPLIT_);
		return true;
	}
};

// What a launch multiplies, and its form. Scale_ has one scale of GROUP_ columns.
template <class W_, class Scale_, int GROUP_, int K_, int N_, int BM_, int WARPGROUPS_, int CLUSTER_, int SPLIT_,
	int PARTS_>
struct CodeProducts {
	using Tile = CodeTile<BM_, WARPGROUPS_>;
	using Scale = Scale_;
	static constexpr int bits = 4, group = GROUP_, k = K_, n = N_;
	static constexpr int bm = BM_, cluster = CLUSTER_, split = SPLIT_, parts = PARTS_;
	static constexpr int columns = Tile::rows / PARTS_;        // of y in a tile
	static constexpr int stages = ceil_div(K_, 256);           // of codes
	static constexpr int row_scales = ceil_div(K_, GROUP_);
	static constexpr bool zeroed = same_type<W_, u4>::value;
	// words of scales that a row has in a stage: of e2m1 one for each 64 columns, of u4 one for each run in one group
	static constexpr int words = !zeroed ? 4 : GROUP_ >= K_ || GROUP_ % 256 == 0 ? 1 : GROUP_ % 128 == 0 ? 2
		: GROUP_ % 64 == 0 ? 4 : 8;
	static constexpr float unit = CodeUnit<W_, Scale_>::value; // sums times this are the values
	using Tiles = CodeTiles<BM_, columns, N_, CLUSTER_, SPLIT_>;
	static_assert(zeroed == same_type<Scale_, f32z>::value, "u4 has zeros, and nothing else");
	static_assert(zeroed ? GROUP_ >= K_ || GROUP_ % 32 == 0 : GROUP_ == 16 || GROUP_ == 32, "codes in groups");
	static_assert(!zeroed || (BM_ <= 128 && WARPGROUPS_ == 2), "sums of a group have registers of their own");
	static_assert(K_ % 32 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");
	static_assert(CLUSTER_ == 1 || SPLIT_ == 1, "a cluster shares rows of x or divides columns");
	static_assert(stages >= SPLIT_, "each block has a run of columns");

	const TensorMap *x, *w[PARTS_];
	const Scale_ *scale[PARTS_];

	// the run of stages of this block
	static __device__ int first() { return SPLIT_ == 1 ? 0 : int(blockIdx.x) % SPLIT_ * stages / SPLIT_; }
	static __device__ int last() { return SPLIT_ == 1 ? stages : (int(blockIdx.x) % SPLIT_ + 1) * stages / SPLIT_; }
};

// one thread: all requests for x. What lies outside the matrix becomes zeros, and a stage of codes has four steps
template <class P>
__device__ __forceinline__ void codes_request_x(CodeRings<typename P::Tile> ring, typename P::Tiles tiles, const P &p)
{
	using T = typename P::Tile;
	constexpr int rows = P::bm / P::cluster;
	const int rank = blockIdx.x % P::cluster;
	inputs_ready();
	while (tiles.take())
		for (int step = P::first() * T::steps; step < P::last() * T::steps; step++, ring.x.advance()) {
			barrier_wait(ring.x.free(), ring.x.turn ^ 1);
			barrier_expect(ring.x.full(), T::x_bytes);
			const u32 to = ring.x_stage() + rank * rows * 128;
			if constexpr (P::cluster == 1)
				copy_box(to, *p.x, tiles.row, step * 64, ring.x.full());
			else
				copy_box_to(to, *p.x, tiles.row + rank * rows, step * 64, ring.x.full(), (1 << P::cluster) - 1);
		}
}

// one thread: all requests for codes, whose columns the copy engine counts in bytes
template <class P>
__device__ __forceinline__ void codes_request_w(CodeRings<typename P::Tile> ring, typename P::Tiles tiles, const P &p)
{
	using T = typename P::Tile;
	while (tiles.take())
		for (int stage = P::first(); stage < P::last(); stage++, ring.w.advance()) {
			barrier_wait(ring.w.free(), ring.w.turn ^ 1);
			barrier_expect(ring.w.full(), T::w_bytes);
#pragma unroll
			for (int i = 0; i < P::parts; i++)
				copy_box(ring.w_stage() + i * P::columns * 128, *p.w[i], tiles.column, stage * 128, ring.w.full());
		}
}

// Decoding (thread level) -----------------------------------------------------------------------------------------

// The scales of a row's stage of 256 columns. Of e2m1 a word has those of 64 columns, in order from byte 0 on.
template <class P>
__device__ __forceinline__ void stage_scales(const typename P::Scale *row, int stage, u32 (&word)[P::words])
{
	if constexpr (P::zeroed) {
#pragma unroll
		for (int i = 0; i < P::words; i++) {
			const int column = stage * 256 + i * (256 / P::words);
			word[i] = __ldg(&row[min(column / P::group, P::row_scales - 1)].bits);
		}
		return;
	}
	constexpr int step_bytes = 64 / P::group;
	const unsigned char *at = reinterpret_cast<const unsigned char *>(row) + stage * (4 * step_bytes);
	if constexpr (P::k % 256 == 0 && step_bytes == 4) {
		const uint4 v = __ldg(reinterpret_cast<const uint4 *>(at));
		word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
	} else if constexpr (P::k % 256 == 0) {
		const uint2 v = __ldg(reinterpret_cast<const uint2 *>(at));
		word[0] = v.x, word[1] = v.x >> 16, word[2] = v.y, word[3] = v.y >> 16;
	} else {
		const int left = P::row_scales - stage * (4 * step_bytes); // zeros behind a row's end: so are its codes
#pragma unroll
		for (int i = 0; i < 4; i++) {
			word[i] = 0;
#pragma unroll
			for (int b = 0; b < step_bytes; b++)
				if (i * step_bytes + b < left)
					word[i] |= u32(__ldg(at + i * step_bytes + b)) << 8 * b;
		}
	}
}

// A row's fragments of a step: codes 2q and 2q + 1, and 2q + 8 and 2q + 9, of each 16 of its 64 columns; e2m1 times
// their scales, u4 less their zeros.
template <class P>
__device__ __forceinline__ void decode_row(u32 stage, int row, int step, const u32 (&scales)[P::words], u32 (&low)[4],
	u32 (&high)[4])
{
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const uint4 first = load_shared_16(stage + row * 128 + ((2 * step) ^ g) * 16);
	const uint4 second = load_shared_16(stage + row * 128 + ((2 * step + 1) ^ g) * 16);
	const u32 words[8] = { first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w };
	if constexpr (P::zeroed) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const u32 zero = u4_zero(f32z { scales[(step * 4 + i) * P::words / 16] });
			const u32 codes = __byte_perm(words[2 * i], words[2 * i + 1], q | (q + 4) << 4), seconds = codes >> 4;
			low[i] = u4_less(__byte_perm(codes, seconds, 0x0400), zero);
			high[i] = u4_less(__byte_perm(codes, seconds, 0x0501), zero);
		}
	} else {
		u32 pair[2];
		stream_scales<typename P::Scale>(scales[step], pair);
#pragma unroll
		for (int i = 0; i < 8; i++) {
			// one multiplication puts the exponents and fractions of a byte's codes where a pair has them
			const u32 both = __byte_perm(words[i], 0, 0x4440 | q) * 0x00040040u;
			u32 y = (both << 6 & 0x80008000u) | (both & 0x01c001c0u);
			if constexpr (same_type<typename P::Scale, e8m0>::value)
				y = multiply_bf16(y, pair_of_two_to(126));
			(i % 2 ? high : low)[i / 2] = multiply_bf16(y, stream_scale(pair, i / 2 * 16 / P::group));
		}
	}
}

// Products ------------------------------------------------------------------------------------------------------

// One warpgroup's place in the rings and in w: rows[0] and rows[1] of the tile are this thread's.
template <class P> struct CodeReader {
	using T = typename P::Tile;
	CodeRings<T> &ring;
	int rows[2];
	const typename P::Scale *scale[2];
	u32 now[2][P::words], next[2][P::words];

	__device__ __forceinline__ CodeReader(CodeRings<T> &rings, int group, int column, const P &p) : ring(rings)
	{
		const int g = threadIdx.x % 32 / 4, warp = threadIdx.x % 128 / 32;
		const int row = P::parts == 1 ? group * 64 + warp * 16 + g : group * 32 + warp * 8 + g;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int within = P::parts == 1 ? row + 8 * i : row, n = min(column + within, P::n - 1);
			rows[i] = P::parts == 1 ? within : within + P::columns * i;
			scale[i] = p.scale[P::parts == 1 ? 0 : i] + i64(n) * P::row_scales;
			stage_scales<P>(scale[i], P::first(), next[i]);
		}
	}

	// the codes of a stage are there; the scales of the next are asked for
	__device__ __forceinline__ void open(int stage)
	{
#pragma unroll
		for (int i = 0; i < 2; i++) {
#pragma unroll
			for (int j = 0; j < P::words; j++)
				now[i][j] = next[i][j];
			stage_scales<P>(scale[i], min(stage + 1, P::last() - 1), next[i]);
		}
		barrier_wait(ring.w.full(), ring.w.turn);
	}

	// the fragments of four products: of 64 rows and 16 columns each
	__device__ __forceinline__ void decode(int step, u32 (&w)[4][4])
	{
		u32 fragment[4][4]; // by row and half, of each 16 columns
#pragma unroll
		for (int i = 0; i < 2; i++)
			decode_row<P>(ring.w_stage(), rows[i], step, now[i], fragment[i], fragment[2 + i]);
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				w[i][j] = fragment[j][i];
	}

	// what comes behind that step
	__device__ __forceinline__ void decode_next(int stage, int step, u32 (&w)[4][4])
	{
		if (step + 1 < T::steps) {
			decode(step + 1, w);
			return;
		}
		wgmma_release<1>(ring.w.free());
		ring.w.advance();
		if (stage + 1 < P::last()) {
			open(stage + 1);
			decode(0, w);
		}
	}
};

// one warpgroup, number `group` of them: acc = its 64 rows of the tile times all rows of x, in ascending k
template <class P>
__device__ __forceinline__ void codes_multiply(CodeRings<typename P::Tile> &ring, int group, int column, const P &p,
	float (&acc)[P::bm / 8][4])
{
	using T = typename P::Tile;
	CodeReader<P> codes(ring, group, column, p);
	u32 w[2][4][4];
#pragma unroll
	for (int j = 0; j < P::bm / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	codes.open(P::first());
	codes.decode(0, w[0]);
	u32 before = 0; // the barrier of the stage of x that products under way read
	for (int stage = P::first(); stage < P::last(); stage++) {
#pragma unroll
		for (int step = 0; step < T::steps; step++) {
			barrier_wait(ring.x.full(), ring.x.turn);
			const u64 x = tile_descriptor(ring.x_stage());
			wgmma_begin();
#pragma unroll
			for (int i = 0; i < 4; i++)
				wgmma_decoded<1>(acc, w[step % 2][i], x + 2 * i);
			wgmma_commit();
			wgmma_wait<1>();
			hold(w[(step + 1) % 2]);
			if (before)
				wgmma_release<P::cluster>(before);
			before = ring.x.free();
			ring.x.advance();
			codes.decode_next(stage, step, w[(step + 1) % 2]);
		}
	}
	wgmma_wait<0>();
	hold(acc);
	wgmma_release<P::cluster>(before);
}

// The same of u4: sums of columns of one group, at most 64, times its scale are added in f32.
template <class P>
__device__ __forceinline__ void zeroed_multiply(CodeRings<typename P::Tile> &ring, int group, int column, const P &p,
	float (&acc)[P::bm / 8][4])
{
	using T = typename P::Tile;
	constexpr int runs = P::words == 8 ? 2 : 1, products = 4 / runs; // of a step
	CodeReader<P> codes(ring, group, column, p);
	u32 w[2][4][4];
	float part[P::bm / 8][4] = {};
#pragma unroll
	for (int j = 0; j < P::bm / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	codes.open(P::first());
	codes.decode(0, w[0]);
	for (int stage = P::first(); stage < P::last(); stage++) {
#pragma unroll
		for (int step = 0; step < T::steps; step++) {
			barrier_wait(ring.x.full(), ring.x.turn);
			const u64 x = tile_descriptor(ring.x_stage());
			const u32 free = ring.x.free();
			float scale[runs][2];
#pragma unroll
			for (int r = 0; r < runs; r++)
#pragma unroll
				for (int i = 0; i < 2; i++)
					scale[r][i] = to_f32(f32z { codes.now[i][(step * runs + r) * P::words / (4 * runs)] });
#pragma unroll
			for (int r = 0; r < runs; r++) {
				wgmma_begin();
				wgmma_decoded<0>(part, w[step % 2][r * products], x + 2 * r * products);
#pragma unroll
				for (int i = 1; i < products; i++)
					wgmma_decoded<1>(part, w[step % 2][r * products + i], x + 2 * (r * products + i));
				wgmma_commit();
				if (r == runs - 1) {
					ring.x.advance();
					codes.decode_next(stage, step, w[(step + 1) % 2]);
				}
				wgmma_wait<0>();
				hold(part);
				hold(w[step % 2]);
				if (r == runs - 1)
					wgmma_release<P::cluster>(free);
#pragma unroll
				for (int j = 0; j < P::bm / 8; j++)
#pragma unroll
					for (int i = 0; i < 4; i++)
						acc[j][i] = fmaf(part[j][i], scale[r][i / 2], acc[j][i]);
			}
		}
	}
}

// The same of e4m3 (wgmma_e4m3.cuh).
template <class P>
__device__ __forceinline__ void bytes_multiply(CodeRings<typename P::Tile> &ring, int group, int column, const P &p,
	float (&acc)[P::bm / 8][4]);

// block level, all threads: the tiles of a launch of which `rows` rows are in use. finish(acc, t0, n0) takes a warp's
// sums: acc[j][0..1] are of column n0 + g of y and rows t0 + 8j + 2q and t0 + 8j + 2q + 1; acc[j][2..3] the same of
// column n0 + g + 8, or of the same one and the other part. Calls let_next_start and inputs_ready.
template <class P, class Finish>
__device__ __forceinline__ void codes_products(uint4 *dynamic, int rows, const P &p, Finish finish)
{
	using T = typename P::Tile;
	CodeRings<typename P::Tile> ring;
	ring.base = (shared_address(dynamic) + 1023) / 1024 * 1024;
	ring.w.barriers = ring.base + T::barriers_at;
	ring.x.barriers = ring.w.barriers + T::w_stages * 16;
	typename P::Tiles tiles(rows);
	const int group = __shfl_sync(~0u, int(threadIdx.x / 128), 0);
	if (threadIdx.x == 0) {
		prefetch_map(*p.x);
		for (int i = 0; i < P::parts; i++)
			prefetch_map(*p.w[i]);
		for (int s = 0; s < T::w_stages; s++) {
			barrier_init(ring.w.barriers + s * 16, 1);
			barrier_init(ring.w.barriers + s * 16 + 8, T::warps);
		}
		for (int s = 0; s < T::x_stages; s++) {
			barrier_init(ring.x.barriers + s * 16, 1);
			barrier_init(ring.x.barriers + s * 16 + 8, T::warps * P::cluster);
		}
		barrier_init_done();
	}
	if constexpr (P::cluster == 1)
		__syncthreads();
	else
		cluster_sync();
	let_next_start();
	constexpr int tiles_m = P::bm / 8, least = 2 * P::parts; // eights of rows; that are stored together
	constexpr int part = tiles_m % (P::split * least) ? least : tiles_m / P::split;
	constexpr int rounds = ceil_div(tiles_m, P::split * part);
	if (group == 0) {
		registers_down<T::warps == 8 ? 40 : T::warps == 12 ? 32 : 24>();
		if (threadIdx.x == 0)
			codes_request_x(ring, tiles, p);
		else if (threadIdx.x == 32)
			codes_request_w(ring, tiles, p);
		if constexpr (P::split > 1)
			if (tiles.take())
				cluster_sync();
	} else {
		registers_up<T::warps == 8 ? 232 : T::warps == 12 ? 160 : 112>();
		const int within = ((group - 1) * 4 + threadIdx.x % 128 / 32) * (16 / P::parts);
		while (tiles.take()) {
			float acc[tiles_m][4];
			if constexpr (P::bits == 8)
				bytes_multiply(ring, group - 1, tiles.column, p, acc);
			else if constexpr (P::zeroed)
				zeroed_multiply(ring, group - 1, tiles.column, p, acc);
			else
				codes_multiply(ring, group - 1, tiles.column, p, acc);
			inputs_ready(); // what is added to the sums is not fetched by the thread that waited for x
			if constexpr (P::split == 1) {
				finish(acc, tiles.row, tiles.column + within);
			} else {
				const int thread = threadIdx.x - 128, rank = blockIdx.x % P::split;
				named_wait(1, T::threads); // nothing is read from the rings any more
#pragma unroll
				for (int j = 0; j < tiles_m; j++)
					store_shared(ring.base + (j * T::threads + thread) * 16, make_uint4(__float_as_uint(acc[j][0]),
						__float_as_uint(acc[j][1]), __float_as_uint(acc[j][2]), __float_as_uint(acc[j][3])));
				cluster_sync();
#pragma unroll
				for (int round = 0; round < rounds; round++) {
					const int first = (round * P::split + rank) * part;
					if (rounds * P::split * part > tiles_m && first >= tiles_m)
						break;
					float sum[part][4] = {};
					const u32 mine = ring.base - shared_address(dynamic) + (first * T::threads + thread) * 16;
					for (int r = 0; r < P::split; r++) {
						const u32 from = at_rank(dynamic, r) + mine;
#pragma unroll
						for (int j = 0; j < part; j++) {
							const uint4 v = load4_of_rank(from + j * (T::threads * 16));
							const u32 bits[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
							for (int i = 0; i < 4; i++)
								sum[j][i] += __uint_as_float(bits[i]);
						}
					}
					finish(sum, tiles.row + first * 8, tiles.column + within);
				}
			}
		}
	}
	if constexpr (P::cluster * P::split > 1)
		cluster_sync(); // other blocks may still arrive at barriers of this one, or read its sums
}

// Results -------------------------------------------------------------------------------------------------------
//
// What a warp has of a tile are columns of y, eight at a time: movmatrix turns eight rows of eight, and then the four
// lanes of a row exchange words, so that each has 16 bytes of one row.

// warp level: a tile's sums, as finish has them, times the scales of their rows of w, plus bias; NULL without
template <class P, int TILES_, class B>
__device__ __forceinline__ void scale_sums(float (&acc)[TILES_][4], const float *row_scale, const B *bias, int n0)
{
	static_assert(P::parts == 1, "columns 8 apart");
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int n = min(n0 + 8 * i + int(threadIdx.x) % 32 / 4, P::n - 1);
		const float scale = row_scale ? P::unit * row_scale[n] : P::unit, more = bias ? to_f32(bias[n]) : 0.0f;
#pragma unroll
		for (int j = 0; j < TILES_; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				acc[j][2 * i + e] = fmaf(acc[j][2 * i + e], scale, more);
	}
}

// warp level: row i, columns 2j and 2j + 1, of eight rows in lane 4i + j, become column i, rows 2j and 2j + 1
__device__ __forceinline__ u32 turned(u32 pair)
{
	u32 y;
	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(pair));
	return y;
}

// warp level: TILES_ times eight rows by EIGHTS_ times eight columns of a matrix of N_ columns, at row t0 and column
// n0, of which `rows` rows are in use. pair(i, j): column 8i + g of rows 8j + 2q and 8j + 2q + 1, as two bf16. Where
// `more`, a matrix like it, is not NULL, add(i, j, v) comes before pair(i, j), v being such a pair of it
template <int N_, int TILES_, int EIGHTS_, class Add, class Pair>
__device__ __forceinline__ void store_columns(bf16 *y, const bf16 *more, int rows, int t0, int n0, Add add, Pair pair)
{
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	constexpr int tiles = 4 / EIGHTS_; // that four words are of
	static_assert(TILES_ % tiles == 0, "lanes exchange four words");
#pragma unroll
	for (int j = 0; j < TILES_; j += tiles) {
		const int t = t0 + (j + q / EIGHTS_) * 8 + g, n = n0 + q % EIGHTS_ * 8;
		const bool is_used = t < rows && n < N_;
		const i64 at = i64(t) * N_ + n;
		if (more) {
			const uint4 v = is_used ? __ldcg(reinterpret_cast<const uint4 *>(more + at)) : make_uint4(0, 0, 0, 0);
			u32 w[4] = { v.x, v.y, v.z, v.w };
			quad_transpose(w);
#pragma unroll
			for (int m = 0; m < 4; m++)
				add(m % EIGHTS_, j + m / EIGHTS_, turned(w[m]));
		}
		u32 w[4];
#pragma unroll
		for (int m = 0; m < 4; m++)
			w[m] = turned(pair(m % EIGHTS_, j + m / EIGHTS_));
		quad_transpose(w);
		if (is_used)
			*reinterpret_cast<uint4 *>(y + at) = make_uint4(w[0], w[1], w[2], w[3]);
	}
}
