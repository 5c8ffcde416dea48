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
#include "shared/mma.cuh"
#include "shared/reduce.cuh"
#include "products/stream_codes.cuh"
#include "products/stream_whole.cuh"

constexpr int stream_warps = 8;
constexpr int stream_ahead = 2;

// Few rows of x wait for codes of w in shared memory, as long as rings of two turns, 75776 bytes, have room too.
// What is kept for a row, and whether rows wait, of `split` warps that share k columns in turns of `cols`. It is what a
// row takes where all 8 share them; of fewer it is 8 / split times the columns: with split = 1 a row of e4m3 waits up
// to a K of 1152 where 9472 had room on sm_90a. N of experts is 512 or 768 in all shapes that were measured.
FORMULA(stream_row_bytes(int k, int cols, int split), 128 / split * cols * ceil_div(k, split * cols) + 4096)
FORMULA(stream_stages(int rows, int k, int bits, int cols, int split),
	bits < 16 && rows <= 4 && rows * stream_row_bytes(k, cols, split) + 75776 <= SMEM_MAX)
// What one row takes in whole numbers: four bytes an element, of a turn, in 8 warps.
FORMULA(stream_whole_bytes(int cols), 32 * cols)
// What scales of groups of codes take of a row of w in a turn: where rows of scales are no whole words, a word more.
FORMULA(stream_group_bytes(int bits, int k, int cols, int block_k, int scale_bits),
	bits == 4 ? cols / min(cols, max(block_k, 1)) * scale_bits / 8
		+ (ceil_div(k, max(block_k, 1)) * scale_bits / 8 % 4 != 0 ? 4 : 0) : 0)
// Scales of larger blocks, and of groups with zeros, are of whole steps, and blocks of whole turns or turns of whole
// blocks.
FORMULA(stream_takes_blocks(int k, int cols, int block_k),
	block_k >= k || cols % max(block_k, 1) == 0 && block_k % 32 == 0 || block_k % cols == 0)

// Blocks that one multiprocessor is to hold: with many rows, x and the sums take the registers. Codes of few rows take
// instructions, for which more warps stand ready.
constexpr int stream_blocks(int rows, int tiles, int bits, int chains = 1)
{
	return rows <= 8 && tiles == 1 && bits < 16 ? 4 : rows <= 8 && tiles <= 2 ? 3
		: ceil_div(rows, 8) * tiles * chains <= 8 ? 2 : 1;
}

// Chains of dependent products that hide their latency, when nothing else decides: one for the even products of a step
// and one for the odd ones, if rows and tiles alone make fewer than three.
constexpr int stream_chains(int rows, int tiles) { return ceil_div(rows, 8) * tiles <= 2 ? 2 : 1; }

template <bool IF_, class A, class B> struct TypeIf { using Type = A; };
template <class A, class B> struct TypeIf<false, A, B> { using Type = B; };

// How codes have block scales: of type Scale_, one for BLOCK_N_ rows and BLOCK_K_ columns. void: they have none.
template <class Scale_, int BLOCK_N_, int BLOCK_K_> struct BlockScales {
	using Scale = Scale_;
	static constexpr bool there = true;
	static constexpr int block_n = BLOCK_N_, block_k = BLOCK_K_, bytes = sizeof(Scale_);
};
struct NoScales {
	using Scale = void;
	static constexpr bool there = false;
	static constexpr int block_n = 1, block_k = 1, bytes = 1;
};

// The sizes of a product. A turn is as many columns of the group's rows of w as COLS_ bf16 have bytes, a step 32.
// AHEAD_ turns are under way at a time. CHAINS_ 2: even and odd products of a step add up apart, and meet at the end of
// what a scale is for. BY_STEPS_: a lane's squares add up apart in each step, so that they do so in one order whether
// rows of x wait in shared memory or not. WHOLE_: whole numbers are multiplied (stream_whole.cuh).
template <int ROWS_, int K_, int SPLIT_, int TILES_, int COLS_, int DEPTH_, class W_ = bf16, class Scales_ = NoScales,
	int AHEAD_ = stream_ahead, int CHAINS_ = stream_chains(ROWS_, TILES_), bool BY_STEPS_ = false, bool WHOLE_ = false>
struct Stream {
	using W = W_;
	using Scale = typename Scales_::Scale;
	static constexpr int bits = bits_of<W>;
	static constexpr int rows = ROWS_, k = K_, split = SPLIT_, tiles = TILES_, cols = COLS_ * 16 / bits, depth = DEPTH_;
	static constexpr int ahead = AHEAD_, chains = CHAINS_;
	static constexpr bool by_steps = BY_STEPS_, whole = WHOLE_;
	static constexpr int groups = stream_warps / SPLIT_, n_tiles = ceil_div(ROWS_, 8);
	static constexpr int row_bytes = COLS_ * 2, w_bytes = TILES_ * 16 * row_bytes, pitch = K_ * bits / 8;
	static constexpr int most_steps = ceil_div(ceil_div(K_, cols), SPLIT_) * (cols / 32); // of a warp
	// scales of groups multiply the codes, those of larger blocks, and with zeros, the sums of `period` columns
	static constexpr bool zeroed = same_type<Scale, f32z>::value && bits == 4, grouped = bits == 4 && !zeroed;
	static constexpr bool blocked = Scales_::there && !grouped;
	static constexpr int block_n = Scales_::block_n, block_k = Scales_::block_k;
	static constexpr int scale_bytes = Scales_::bytes, scale_pitch = ceil_div(K_, block_k);
	static constexpr int period = block_k >= K_ || block_k > cols ? cols : block_k;
	static constexpr int periods = most_steps * 32 / period; // of a warp
	static constexpr float unit = WHOLE_ ? 1.0f : CodeUnit<W, Scale>::value;
	// of x in registers, ahead of the products
	static constexpr int x_steps = n_tiles == 1 ? (most_steps <= 8 ? 8 : 4) : n_tiles == 2 ? 4 : n_tiles <= 4 ? 2 : 1;
	static constexpr int column = 16 * TILES_ + 4; // floats from row to row of x in the sums: no bank conflicts
	static constexpr int sums_bytes = (n_tiles * 8 * column + n_tiles * 8) * 4;
	static constexpr int norm_at = n_tiles * 8 * column; // in floats: the sums of squares, behind the sums
	static_assert(K_ * bits % 128 == 0, "rows are read 16 bytes at a time");
	static_assert(!grouped || (Scales_::there && block_n == 1 && (block_k == 16 || block_k == 32)),
		"groups of 16 or 32");
	static_assert(same_type<W_, u4>::value == zeroed && (!zeroed || block_n == 1), "u4 has zeros, and nothing else");
	static_assert(!blocked || (period % 32 == 0 && cols % period == 0 && (block_k >= K_ || block_k % period == 0)),
		"a scale is that of whole steps");
	static_assert(DEPTH_ >= AHEAD_, "what is under way has a place");
	static_assert(sums_bytes <= DEPTH_ * w_bytes, "the sums take the ring's place");
	static_assert(CHAINS_ == 1 || CHAINS_ == 2, "a step is two products");
	static_assert(!WHOLE_ || (ROWS_ <= 4 && grouped && cols % 256 == 0), "few rows, and groups");
};

// Sixteen rows of w: where they start, an address that exists, and how many there are.
template <class S> struct StreamTile {
	const char *first;
	int rows;
	const typename S::Scale *scales; // of all rows of w
	int n0;
};

// rows n0... of w [n, k] and its block scales, if any
template <class S>
__device__ __forceinline__ StreamTile<S> stream_tile(const typename S::W *w, const typename S::Scale *scales, int n0,
	int n)
{
	return { reinterpret_cast<const char *>(w) + (n0 < n ? i64(n0) * S::pitch : 0), n - n0, scales, n0 };
}

// The sums of a group of warps, once the block has met.
template <class S> struct StreamSums {
	const float *first; // of the group's first warp
	int stride;         // floats from warp to warp
	__device__ __forceinline__ float add(int place) const
	{
		float sum = 0.0f;
#pragma unroll
		for (int i = 0; i < S::split; i++)
			sum += first[i * stride + place];
		return sum;
	}
	__device__ __forceinline__ float at(int t, int row) const
	{
		const float sum = add(t * S::column + row);
		return S::unit == 1.0f ? sum : sum * S::unit;
	}
	// what multiplies the sums of row t of x when a norm stands in front
	__device__ __forceinline__ float inverse_rms(int t, float eps) const
	{
		return rsqrtf(add(S::norm_at + t) / S::k + eps);
	}
};

// thread level: 8 elements of x times their norm weights; ss gains their squares. bf16 weights multiply in pairs.
template <bool ONE, class Norm>
__device__ __forceinline__ uint4 stream_norm(uint4 x, const Vec8<Norm> &n, float &ss)
{
	float v[8];
	unpack(Vec8<bf16> { x }, v);
#pragma unroll
	for (int i = 0; i < 8; i++)
		ss = fmaf(v[i], v[i], ss);
	if constexpr (same_type<Norm, bf16>::value && !ONE) {
		u32 y[4] = { x.x, x.y, x.z, x.w };
		const u32 m[4] = { n.raw[0].x, n.raw[0].y, n.raw[0].z, n.raw[0].w };
#pragma unroll
		for (int i = 0; i < 4; i++)
			y[i] = multiply_bf16(y[i], m[i]);
		return make_uint4(y[0], y[1], y[2], y[3]);
	} else {
		float m[8];
		unpack(n, m);
#pragma unroll
		for (int i = 0; i < 8; i++)
			v[i] *= ONE ? 1.0f + m[i] : m[i];
		return pack8(v);
	}
}

// warp level: sums of 8 steps, of which a lane has one, in each of four lanes; none are left
__device__ __forceinline__ float stream_eighths(float &sum)
{
	float total = 0.0f;
#pragma unroll
	for (int step = 0; step < 8; step++)
		total += __shfl_sync(~0u, sum, step * 4 + threadIdx.x % 4);
	sum = 0.0f;
	return total;
}

// A warp's ring of turns: rows of w, the norm's weights, scales of groups. A row of a turn has its 16-byte piece p at
// place p ^ twist(row): then the rows that lanes read together, a step of each, lie in different banks.
template <class S, bool FULL, class Norm> struct StreamRing {
	static constexpr bool norm_there = !same_type<Norm, void>::value, exact = S::k % S::cols == 0;
	static constexpr int row_pieces = S::row_bytes / 16, copy_rows = 32 / row_pieces;
	// else rows of x are read and normed as they are used
	static constexpr bool staged = stream_stages(S::rows, S::k, S::bits, S::cols, S::split);
	static constexpr int norm_size = staged || !norm_there ? 0 : same_type<Norm, f32>::value ? 4 : 2;
	// scales of a row's groups in a turn come in pieces of so many bytes; 0: in the words that they are in
	static constexpr int row_scales = S::zeroed ? S::cols / S::period * S::scale_bytes
		: S::grouped ? S::cols / S::block_k : 0;
	static constexpr int scale_pitch = S::scale_pitch * S::scale_bytes;
	static constexpr int scale_piece = !row_scales ? 0 : row_scales % 16 == 0 && scale_pitch % 16 == 0 ? 16
		: row_scales % 8 == 0 && scale_pitch % 8 == 0 ? 8 : scale_pitch % 4 == 0 ? 4 : 0;
	static constexpr int scales_at = S::w_bytes + S::cols * norm_size;
	static constexpr int row_place = row_scales + (row_scales && !scale_piece ? 4 : 0); // of a row's scales
	static constexpr int turn_bytes = scales_at + S::tiles * 16 * row_place, warp_bytes = S::depth * turn_bytes;
	static_assert(!S::grouped
		|| row_place == stream_group_bytes(S::bits, S::k, S::cols, S::block_k, 8 * S::scale_bytes),
		"what contracts count");
	static constexpr int units = ceil_div(S::k, S::cols);
	// block scales wait in registers: lane i has that of the warp's i-th period
	static constexpr bool waiting = S::blocked && S::periods <= 32 && S::block_n % 16 == 0;
	char *mine;
	int turn, turns; // the warp's place in its group; how many turns it has
	const char *from[S::tiles]; // this lane's piece of each tile's first rows
	int rows[S::tiles];
	const Norm *norm;
	StreamTile<S> tile[S::tiles];
	float block_scale[S::tiles];

	static __device__ __forceinline__ int twist(int row) { return row % (32 / S::bits) * (S::bits / 4); }

	template <class WTile> __device__ __forceinline__ StreamRing(uint4 *place, WTile w_tile, const Norm *norm_weights)
	{
		const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = lane / row_pieces;
		mine = reinterpret_cast<char *>(place);
		turn = warp % S::split;
		turns = (units - turn + S::split - 1) / S::split;
		norm = norm_weights;
#pragma unroll
		for (int m = 0; m < S::tiles; m++) {
			tile[m] = w_tile(m);
			from[m] = tile[m].first + (FULL || r < tile[m].rows ? r * S::pitch : 0) + lane % row_pieces * 16;
			rows[m] = tile[m].rows - r;
			const int k = column(lane * S::period / S::cols) + lane * S::period % S::cols;
			if constexpr (waiting)
				block_scale[m] = read_block_scale(m, 0, k);
		}
	}

	__device__ __forceinline__ int column(int i) const { return S::cols * (turn + S::split * i); }

	// thread level: the scale of a row of a tile at column k
	__device__ __forceinline__ float read_block_scale(int m, int row, int k) const
	{
		const int n = tile[m].n0 + row;
		return k < S::k && row < tile[m].rows ? to_f32(tile[m].scales[n / S::block_n * S::scale_pitch + k / S::block_k])
			: 0.0f;
	}

	// warp level: the scales of rows g and g + 8 of a tile in the period that ends with a step of turn i
	__device__ __forceinline__ void block_scales(int m, int i, int step, float (&scale)[2]) const
	{
		if constexpr (waiting) {
			scale[0] = __shfl_sync(~0u, block_scale[m], i * (S::cols / S::period) + step * 32 / S::period);
			scale[1] = scale[0];
		} else {
			const int g = threadIdx.x % 32 / 4, k = column(i) + step * 32 / S::period * S::period;
			scale[0] = read_block_scale(m, g, k);
			scale[1] = read_block_scale(m, g + 8, k);
		}
	}

	// thread level: how many bytes before the scales of a row of a tile its first word begins
	__device__ __forceinline__ int scale_shift(int m, int row) const
	{
		return (int(reinterpret_cast<size_t>(tile[m].scales)) + (tile[m].n0 + row) * S::scale_pitch) & 3;
	}

	// thread level: the scales of this lane's groups in four steps of a turn from `step` on, of a row of a tile
	__device__ __forceinline__ u32 group_scales(const char *slot, int m, int row, int step) const
	{
		constexpr int in_step = 32 / S::block_k;
		const int half = threadIdx.x % 4 / 2; // of a step
		u32 bytes[2] = {};
		const char *const at = slot + scales_at + (m * 16 + row) * row_place + step * in_step;
		if constexpr (scale_piece) {
			if constexpr (in_step == 2) {
				const uint2 v = *reinterpret_cast<const uint2 *>(at);
				bytes[0] = v.x;
				bytes[1] = v.y;
			} else {
				bytes[0] = *reinterpret_cast<const u32 *>(at);
			}
		} else {
			const u32 *const words = reinterpret_cast<const u32 *>(at);
			const int bits = scale_shift(m, row) * 8;
#pragma unroll
			for (int j = 0; j < in_step; j++)
				bytes[j] = __funnelshift_r(words[j], words[j + 1], bits);
		}
		return in_step == 2 ? __byte_perm(bytes[0], bytes[1], half ? 0x7531 : 0x6420) : bytes[0];
	}

	// thread level: the scale and the zero of a row of a tile in the period of a turn that `step` is in
	__device__ __forceinline__ f32z zeroed_scale(const char *slot, int m, int row, int step) const
	{
		const char *const at = slot + scales_at + (m * 16 + row) * row_place;
		return *reinterpret_cast<const f32z *>(at + step * 32 / S::period * S::scale_bytes);
	}

	// warp level: turn i of the warp into a slot, as one group of copies; past the last turn an empty group
	__device__ __forceinline__ void fill(int i, int slot) const
	{
		const int lane = threadIdx.x % 32;
		const u32 to = shared_address(mine) + slot * turn_bytes;
		if (i < turns) {
			const int k0 = column(i);
			const bool in_k = exact || k0 + lane % row_pieces * (128 / S::bits) < S::k;
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int r = 0; r < 16; r += copy_rows) {
					const bool inside = in_k && (FULL || r < rows[m]);
					const int at = m * 16 + r + lane / row_pieces, piece = lane % row_pieces ^ twist(at);
					copy_async(to + at * S::row_bytes + piece * 16,
						from[m] + (inside ? r * S::pitch + k0 / 8 * S::bits : 0), inside);
				}
			if constexpr (norm_size != 0) {
				constexpr int per_piece = 16 / norm_size, pieces = S::cols / per_piece;
#pragma unroll
				for (int first = 0; first < pieces; first += 32) {
					const int n = k0 + (first + lane) * per_piece;
					if (pieces % 32 == 0 || first + lane < pieces)
						copy_async(to + S::w_bytes + (first + lane) * 16, norm + (n < S::k ? n : 0), n < S::k);
				}
			}
			if constexpr (scale_piece != 0)
				fill_scales(to + scales_at, k0 / S::block_k * S::scale_bytes);
			else if constexpr (row_scales != 0)
				fill_scale_words(to + scales_at, k0 / S::block_k);
		}
		copy_commit();
	}

	// warp level: the first turns, before other launches' results may be read
	__device__ __forceinline__ void begin() const
	{
#pragma unroll
		for (int i = 0; i < S::depth; i++) {
			if (i >= S::ahead)
				copy_wait<S::ahead - 1>();
			fill(i, i);
		}
	}

	// thread level: this lane's 8 elements of a step in the first row it takes, and those of a row so far behind it
	struct Weights { u32 at[S::bits / 4]; };
	__device__ __forceinline__ const char *weights(const char *slot, int step) const
	{
		const int g = threadIdx.x % 32 / 4, byte = step * 4 * S::bits + threadIdx.x % 4 * S::bits;
		return slot + g * S::row_bytes + ((byte / 16) ^ twist(g)) * 16 + byte % 16;
	}
	__device__ __forceinline__ Weights read(const char *first, int row) const
	{
		const char *const at = first + row * S::row_bytes;
		if constexpr (S::bits == 16) {
			const uint4 v = *reinterpret_cast<const uint4 *>(at);
			return { { v.x, v.y, v.z, v.w } };
		} else if constexpr (S::bits == 8) {
			const uint2 v = *reinterpret_cast<const uint2 *>(at);
			return { { v.x, v.y } };
		} else {
			return { { *reinterpret_cast<const u32 *>(at) } };
		}
	}

	__device__ __forceinline__ void fill_scales(u32 to, int first) const
	{
		constexpr int in_row = row_scales / scale_piece, pieces = 16 * in_row;
#pragma unroll
		for (int m = 0; m < S::tiles; m++)
#pragma unroll
			for (int p = 0; p < pieces; p += 32) {
				const int at = p + threadIdx.x % 32, row = at / in_row, column = first + at % in_row * scale_piece;
				const bool inside = (FULL || row < tile[m].rows) && (exact || column < scale_pitch);
				const auto *there = reinterpret_cast<const char *>(tile[m].scales)
					+ (inside ? i64(tile[m].n0 + row) * scale_pitch + column : 0);
				if (pieces % 32 && at >= pieces)
					break;
				if constexpr (scale_piece == 16)
					copy_async(to + (m * pieces + at) * scale_piece, there, inside);
				else
					copy_few_async<scale_piece>(to + (m * pieces + at) * scale_piece, there, inside);
			}
	}

	// the same of words, whose bytes beyond a row, which may be beyond all scales, become zeros
	__device__ __forceinline__ void fill_scale_words(u32 to, int first) const
	{
		constexpr int in_row = row_place / 4, words = 16 * in_row;
#pragma unroll
		for (int m = 0; m < S::tiles; m++)
#pragma unroll
			for (int w = 0; w < words; w += 32) {
				const int at = w + threadIdx.x % 32, row = at / in_row, shift = scale_shift(m, row);
				const int column = first + at % in_row * 4 - shift;
				const bool inside = (FULL || row < tile[m].rows) && column < scale_pitch;
				const auto *there = reinterpret_cast<const char *>(tile[m].scales)
					+ (inside ? i64(tile[m].n0 + row) * scale_pitch + column : -scale_shift(m, -tile[m].n0));
				if (words % 32 && at >= words)
					break;
				copy_word_async(to + (m * words + at) * 4, there, inside ? min(scale_pitch - column, 4) : 0);
			}
	}
};

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

// Few rows of x in whole numbers, a turn at a time; that of the next turn is on its way meanwhile. Several rows are
// those that are not NULL, in front.
template <class S, bool ONE, class Norm, class Ring> struct WholeStage {
	static constexpr int each = S::cols / 256, pitch = S::cols / 4, place = S::rows * pitch; // of 8 columns, in a lane
	using Weights = typename TypeIf<Ring::norm_there, Vec8<Norm>, int>::Type;
	uint4 *mine; // [rows][cols / 8][2]: four digits of the first four elements and of the others
	const bf16 *row[S::rows];
	int count;
	uint4 x[S::rows][each];
	Weights norm[each];

	// before other launches' results may be read: the norm's weights
	__device__ __forceinline__ WholeStage(uint4 *memory, const Ring &ring) : mine(memory) { read_norm(ring, 0); }

	// when they may
	template <class XRow> __device__ __forceinline__ void take(XRow x_row)
	{
		count = S::rows == 1;
#pragma unroll
		for (int t = 0; t < S::rows; t++) {
			row[t] = x_row(t);
			if constexpr (S::rows > 1)
				count += row[t] != nullptr;
		}
	}
	__device__ __forceinline__ bool has(int t) const { return S::rows == 1 || t < count; }

	__device__ __forceinline__ void read_norm(const Ring &ring, int turn)
	{
		if constexpr (Ring::norm_there)
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int k = ring.column(turn) + (threadIdx.x % 32 + 32 * i) * 8;
				norm[i] = Weights();
				if (turn < ring.turns && (Ring::exact || k < S::k))
					norm[i] = load8(ring.norm + k);
			}
	}
	__device__ __forceinline__ void read(const Ring &ring, int turn)
	{
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int k = ring.column(turn) + (threadIdx.x % 32 + 32 * i) * 8;
				x[t][i] = make_uint4(0, 0, 0, 0);
				if (row[t] && turn < ring.turns && (Ring::exact || k < S::k))
					x[t][i] = *reinterpret_cast<const uint4 *>(row[t] + k);
			}
	}

	// warp level: what was read of a row into its place; what sums with it are to be multiplied by. A lane's squares
	// add up
	__device__ __forceinline__ float fill(int t, float &squares)
	{
		u32 largest = 0; // of the magnitudes, as f32
#pragma unroll
		for (int i = 0; i < each; i++) {
			if constexpr (Ring::norm_there) {
				float sum = S::by_steps ? 0.0f : squares;
				x[t][i] = stream_norm<ONE>(x[t][i], norm[i], sum);
				squares = S::by_steps ? squares + stream_eighths(sum) : sum;
			}
			largest = max(largest, whole_largest(x[t][i]));
		}
#pragma unroll
		for (int m = 16; m; m /= 2)
			largest = max(largest, __shfl_xor_sync(~0u, largest, m));
		const float factor = __uint_as_float(whole_exponent(largest) << 23);
#pragma unroll
		for (int i = 0; i < each; i++) {
			u32 digit[4][2];
			whole_digits(x[t][i], factor, digit);
#pragma unroll
			for (int j = 0; j < 2; j++)
				mine[t * pitch + 2 * (int(threadIdx.x % 32) + 32 * i) + j] =
					make_uint4(digit[2 * j][0], digit[2 * j][1], digit[2 * j + 1][0], digit[2 * j + 1][1]);
		}
		return whole_factor(largest);
	}
};

// Of each row of x: rows g and g + 8 of each tile of w.
template <class S> struct WholeSums { float at[S::rows][S::tiles][2]; };

// warp level: the sums of a turn in `slot`. b: of groups of 16 zeros in all lanes whose column of the product has none
// of a lane's codes
template <class S, class Ring, class Stage>
__device__ __forceinline__ void whole_turn(const Ring &ring, const Stage &stage, const char *slot, u32 table,
	u32 (&b)[2][2], WholeSums<S> &total)
{
	constexpr int together = S::block_k / 16; // steps whose sums are of the same groups, a group of 16 or a step each
	constexpr int at_once = together == 2 ? 1 : S::tiles; // as many as have registers
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const uint2 *const digits = reinterpret_cast<const uint2 *>(stage.mine) + 4 * q + g % 4;
	const char *scales[S::tiles];
#pragma unroll
	for (int m = 0; m < S::tiles; m++)
		scales[m] = slot + Ring::scales_at + (m * 16 + g) * Ring::row_place
			+ (Ring::scale_piece ? 0 : ring.scale_shift(m, g)) + q / 2;
#pragma unroll
	for (int step = 0; step < S::cols / 32; step += together)
#pragma unroll
		for (int m0 = 0; m0 < S::tiles; m0 += at_once) {
			u32 a[together][at_once][2][4];
			float scale[at_once][2];
#pragma unroll
			for (int j = 0; j < together; j++) {
				const char *const weights = ring.weights(slot, step + j);
#pragma unroll
				for (int m = 0; m < at_once; m++)
#pragma unroll
					for (int h = 0; h < 2; h++)
						whole_decode(ring.read(weights, (m0 + m) * 16 + 8 * h).at[0], table, a[j][m][h]);
			}
#pragma unroll
			for (int m = 0; m < at_once; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					scale[m][h] = whole_scale(typename S::Scale(), *reinterpret_cast<const unsigned char *>(
						scales[m0 + m] + 8 * h * Ring::row_place + step * 32 / S::block_k));
#pragma unroll
			for (int t = 0; t < S::rows; t++) {
				if (!stage.has(t))
					break;
				if constexpr (together == 2) { // each step has four of the columns
					const uint2 v = digits[t * Stage::pitch * 2 + (step + g / 4) * 16];
					b[0][0] = g < 4 ? v.x : 0;
					b[0][1] = g < 4 ? v.y : 0;
					b[1][0] = g < 4 ? 0 : v.x;
					b[1][1] = g < 4 ? 0 : v.y;
				} else if (g / 4 == q / 2) {
					const uint2 v = digits[t * Stage::pitch * 2 + step * 16];
					b[(step + t) % 2][0] = v.x;
					b[(step + t) % 2][1] = v.y;
				}
#pragma unroll
				for (int m = 0; m < at_once; m++)
#pragma unroll
					for (int h = 0; h < 2; h++) {
						u32 sum[4] = { whole_zero, whole_zero, whole_zero, whole_zero };
#pragma unroll
						for (int j = 0; j < together; j++) {
							const u32 (&column)[2] = b[together == 2 ? j : (step + t) % 2];
							mma_whole(sum, a[j][m][h], column[0], column[1]);
						}
						float &of_row = total.at[t][m0 + m][h];
						of_row = fmaf(whole_sum(sum), scale[m][h], of_row);
					}
			}
		}
}

// warp level: all turns, the ring's first ones being under way: sums of rows g and g + 8 of each tile, in lane 4g.
// squares: of each row of x
template <class S, class Ring, class Stage>
__device__ __forceinline__ void whole_sums(const Ring &ring, Stage &stage, WholeSums<S> &sums,
	float (&squares)[S::rows])
{
	const float unit = whole_unit(typename S::Scale()), lowest = threadIdx.x % 2 ? 1.0f : 65536.0f; // digit's
	const u32 table = whole_table(shared_address(ring.mine) >> 31);
	u32 b[2][2] = {};
	int slot = 0, to_fill = S::ahead % S::depth;
	stage.read(ring, 0);
	for (int turn = 0; turn < ring.turns; turn++) {
		float factor[S::rows];
#pragma unroll
		for (int t = 0; t < S::rows; t++)
			if (stage.has(t))
				factor[t] = stage.fill(t, squares[t]) * lowest;
		__syncwarp();
		stage.read_norm(ring, turn + 1);
		stage.read(ring, turn + 1);
		copy_wait<S::ahead - 1>();
		__syncwarp();
		WholeSums<S> total = {};
		whole_turn<S>(ring, stage, ring.mine + slot * Ring::turn_bytes, table, b, total);
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					if (stage.has(t))
						sums.at[t][m][h] = fmaf(total.at[t][m][h] * unit, factor[t], sums.at[t][m][h]);
		__syncwarp(); // the slot is read by all
		const int next = turn + S::ahead;
		ring.fill(next < S::depth ? ring.turns : next, to_fill); // the first ones are there already
		to_fill = to_fill + 1 == S::depth ? 0 : to_fill + 1;
		slot = slot + 1 == S::depth ? 0 : slot + 1;
	}
	copy_wait<0>();
	__syncwarp();
#pragma unroll
	for (int t = 0; t < S::rows; t++)
#pragma unroll
		for (int m = 0; m < S::tiles; m++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float &sum = sums.at[t][m][h];
				sum += __shfl_xor_sync(~0u, sum, 1);
				sum += __shfl_xor_sync(~0u, sum, 2);
			}
}

// warp level: the same into the ring's place, and the sums of squares behind
template <class S, class Ring, class Stage, class XRow>
__device__ __forceinline__ void whole_products(const Ring &ring, Stage &stage, XRow x_row)
{
	WholeSums<S> sums = {};
	float squares[S::rows] = {};
	stage.take(x_row);
	whole_sums<S>(ring, stage, sums, squares);
	float *const out = reinterpret_cast<float *>(ring.mine);
	const int g = threadIdx.x % 32 / 4;
	if (threadIdx.x % 4 == 0)
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					out[t * S::column + m * 16 + 8 * h + g] = sums.at[t][m][h];
	if constexpr (Ring::norm_there)
#pragma unroll
		for (int t = 0; t < S::rows; t++) {
			float sum = squares[t];
			if constexpr (S::by_steps) {
				sum += __shfl_xor_sync(~0u, sum, 1);
				sum += __shfl_xor_sync(~0u, sum, 2);
			} else {
				sum = warp_sum(sum);
			}
			if (threadIdx.x % 32 == 0)
				out[S::norm_at + t] = sum;
		}
}

template <class S, bool ONE, class Norm, class Ring>
using StreamStageOf = typename TypeIf<S::whole, WholeStage<S, ONE, Norm, Ring>,
	StreamStage<S, ONE, Norm, Ring, Ring::staged>>::Type;

// block level: all sums of the block, by codes that become bf16. On return each thread may read those of its group of warps.
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

// block level: the same by whole numbers
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream_whole(uint4 *place, uint4 *staged, WTile w_tile, XRow x_row, const Norm *norm,
	bool some, Ready ready, StreamSums<S> &sums)
{
	using Ring = StreamRing<S, FULL, Norm>;
	const Ring ring(place, w_tile, norm);
	ring.begin();
	StreamStageOf<S, ONE, Norm, Ring> stage(staged, ring);
	inputs_ready();
	if (!some) {
		copy_wait<0>();
		return false;
	}
	ready();
	whole_products<S>(ring, stage, x_row);
	if constexpr (S::split > 1)
		__syncthreads();
	else
		__syncwarp();
	sums.first = reinterpret_cast<float *>(ring.mine) - ring.turn * (Ring::warp_bytes / 4);
	sums.stride = Ring::warp_bytes / 4;
	return true;
}

// block level: all sums of the block, where the rings of a group's warps lie behind one another.
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream_at(uint4 *place, uint4 *staged, WTile w_tile, XRow x_row, const Norm *norm,
	bool some, Ready ready, StreamSums<S> &sums)
{
	if constexpr (S::whole)
		return stream_whole<S, FULL, ONE, Norm>(place, staged, w_tile, x_row, norm, some, ready, sums);
	else
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
