// stream_ring.cuh - the sizes of a streamed product (stream.cuh), and a warp's ring: rows of w, weights of a norm and
// scales, on their way into shared memory.
#pragma once
#include "shared/mma.cuh"
#include "shared/reduce.cuh"
#include "products/stream_codes.cuh"

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
