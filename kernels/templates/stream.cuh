// stream.cuh - y = x w^T for 1 to 64 rows of x on the tensor cores: the weights are streamed once, past all else.
//
// The operands change places: sixteen rows of w are the A operand of mma.m16n8k16, eight rows of x its B operand. One
// row of x wastes arithmetic, which is free here, and no bandwidth. The order of k inside a product is ours to choose
// as long as both operands agree: a lane takes 8 neighbouring elements of a row of w (16 bytes), which are its part of
// two products, and the same 8 of a row of x. So no fragment needs a shuffle, and x comes straight from the caches,
// some steps ahead.
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
// SPLIT_ warps, a group, share K in turns of COLS_ columns and own 16 * TILES_ rows of w. Their sums meet in shared
// memory and are added in the order of the warps: the bits of a row depend on the kernel alone, not on its place among
// the rows nor on what the others hold.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "mma.cuh"

constexpr int stream_warps = 8;
constexpr int stream_ahead = 2;

// Blocks that one multiprocessor is to hold: with many rows, x and the sums take the registers.
constexpr int stream_blocks(int rows, int tiles)
{
	return rows <= 8 && tiles <= 2 ? 3 : ceil_div(rows, 8) * tiles <= 8 ? 2 : 1;
}

// The sizes of a product. A turn is COLS_ columns of the group's rows of w, a step 32 of them.
template <int ROWS_, int K_, int SPLIT_, int TILES_, int COLS_, int DEPTH_> struct Stream {
	static constexpr int rows = ROWS_, k = K_, split = SPLIT_, tiles = TILES_, cols = COLS_, depth = DEPTH_;
	static constexpr int groups = stream_warps / SPLIT_, n_tiles = ceil_div(ROWS_, 8);
	static constexpr int row_bytes = COLS_ * 2, w_bytes = TILES_ * 16 * row_bytes;
	static constexpr int most_steps = ceil_div(ceil_div(K_, COLS_), SPLIT_) * (COLS_ / 32); // of a warp
	// of x in registers, ahead of the products
	static constexpr int x_steps = n_tiles == 1 ? (most_steps <= 8 ? 8 : 4) : n_tiles == 2 ? 4 : n_tiles <= 4 ? 2 : 1;
	static constexpr int column = 16 * TILES_ + 4; // floats from row to row of x in the sums: no bank conflicts
	static constexpr int sums_bytes = (n_tiles * 8 * column + n_tiles * 8) * 4;
	static constexpr int norm_at = n_tiles * 8 * column; // in floats: the sums of squares, behind the sums
	static_assert(K_ % 8 == 0, "rows are read 8 elements at a time");
	static_assert(DEPTH_ >= stream_ahead, "what is under way has a place");
	static_assert(sums_bytes <= DEPTH_ * w_bytes, "the sums take the ring's place");
};

// Sixteen rows of w: where they start, an address that exists, and how many there are.
struct StreamTile {
	const bf16 *first;
	int rows;
};

// rows n0... of w [n, k]
__device__ __forceinline__ StreamTile stream_tile(const bf16 *w, int k, int n0, int n)
{
	return { w + (n0 < n ? i64(n0) * k : 0), n - n0 };
}

// The sums of a group of warps, once the block has met.
template <class S> struct StreamSums {
	const float *first; // of the group's first warp
	int stride;         // floats from warp to warp
	__device__ __forceinline__ float at(int t, int row) const
	{
		float sum = 0.0f;
#pragma unroll
		for (int i = 0; i < S::split; i++)
			sum += first[i * stride + t * S::column + row];
		return sum;
	}
	// what multiplies the sums of row t of x when a norm stands in front
	__device__ __forceinline__ float inverse_rms(int t, float eps) const
	{
		return rsqrtf(at(0, S::norm_at + t) / S::k + eps);
	}
};

// thread level: 8 elements of x times their norm weights; ss gains their squares. bf16 weights multiply in pairs:
// x * w + -0 is their product, rounded once.
template <bool ONE, class Norm>
__device__ __forceinline__ uint4 stream_norm(uint4 x, const Norm *norm, float &ss)
{
	float v[8];
	unpack(Vec8<bf16> { x }, v);
#pragma unroll
	for (int i = 0; i < 8; i++)
		ss = fmaf(v[i], v[i], ss);
	const Vec8<Norm> n = load8(norm);
	if constexpr (same_type<Norm, bf16>::value && !ONE) {
		u32 y[4] = { x.x, x.y, x.z, x.w };
		const u32 m[4] = { n.raw[0].x, n.raw[0].y, n.raw[0].z, n.raw[0].w };
#pragma unroll
		for (int i = 0; i < 4; i++)
			asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y[i]) : "r"(y[i]), "r"(m[i]), "r"(0x80008000u));
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

// A warp's ring of turns. A row of a turn has its 16-byte piece p at place p ^ 4 in odd rows, at p in even ones: then
// the two rows that eight lanes read together lie in different banks.
template <class S, bool FULL, class Norm> struct StreamRing {
	static constexpr bool norm_there = !same_type<Norm, void>::value, exact = S::k % S::cols == 0;
	static constexpr int row_pieces = S::cols / 8, copy_rows = 32 / row_pieces;
	static constexpr int norm_size = same_type<Norm, f32>::value ? 4 : norm_there ? 2 : 0;
	static constexpr int turn_bytes = S::w_bytes + S::cols * norm_size, warp_bytes = S::depth * turn_bytes;
	static constexpr int units = ceil_div(S::k, S::cols);
	char *mine;
	int turn, turns; // the warp's place in its group; how many turns it has
	const bf16 *from[S::tiles]; // this lane's piece of each tile's first rows
	int rows[S::tiles];
	const Norm *norm;

	template <class WTile> __device__ __forceinline__ StreamRing(uint4 *ring, WTile w_tile, const Norm *norm_weights)
	{
		const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = lane / row_pieces;
		mine = reinterpret_cast<char *>(ring) + warp * warp_bytes;
		turn = warp % S::split;
		turns = (units - turn + S::split - 1) / S::split;
		norm = norm_weights;
#pragma unroll
		for (int m = 0; m < S::tiles; m++) {
			const StreamTile tile = w_tile(m);
			from[m] = tile.first + (FULL || r < tile.rows ? r * S::k : 0) + lane % row_pieces * 8;
			rows[m] = tile.rows - r;
		}
	}

	__device__ __forceinline__ int column(int i) const { return S::cols * (turn + S::split * i); }

	// warp level: turn i of the warp into a slot, as one group of copies; past the last turn an empty group
	__device__ __forceinline__ void fill(int i, int slot) const
	{
		const int lane = threadIdx.x % 32;
		const u32 to = shared_address(mine) + slot * turn_bytes;
		if (i < turns) {
			const int k0 = column(i);
			const bool in_k = exact || k0 + lane % row_pieces * 8 < S::k;
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int r = 0; r < 16; r += copy_rows) {
					const bool inside = in_k && (FULL || r < rows[m]);
					const int at = m * 16 + r + lane / row_pieces, piece = lane % row_pieces ^ at % 2 * 4;
					copy_async(to + at * S::row_bytes + piece * 16, from[m] + (inside ? r * S::k + k0 : 0), inside);
				}
			if constexpr (norm_there) {
				constexpr int per_piece = 16 / norm_size;
				const int n = k0 + lane * per_piece;
				if (lane < S::cols / per_piece)
					copy_async(to + S::w_bytes + lane * 16, norm + (n < S::k ? n : 0), n < S::k);
			}
		}
		copy_commit();
	}
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

// block level: all sums of the block. On return each thread may read those of its group of warps.
//   w_tile(m)  StreamTile: the m-th 16 rows of the group; FULL says that all rows exist in every block
//   x_row(t)   const bf16 *: row t of x, or NULL for a row of zeros; called once other launches' results may be read
//   norm       its weights; Norm is void when there are none
//   some       false, to all threads alike: nothing is done, and stream says no too
//   ready()    is called when other launches' results may be read
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream(uint4 *memory, WTile w_tile, XRow x_row, const Norm *norm, bool some,
	Ready ready, StreamSums<S> &sums)
{
	using Ring = StreamRing<S, FULL, Norm>;
	constexpr int n_tiles = S::n_tiles, chains = n_tiles * S::tiles <= 2 ? 2 : 1; // of dependent products
	constexpr int turn_steps = S::cols / 32;
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const Ring ring(memory, w_tile, norm);
	const int steps = ring.turns * turn_steps;
#pragma unroll
	for (int i = 0; i < S::depth; i++) {
		if (i >= stream_ahead)
			copy_wait<stream_ahead - 1>();
		ring.fill(i, i);
	}
	inputs_ready();
	if (!some) {
		copy_wait<0>();
		return false;
	}
	ready();

	const bf16 *x[n_tiles];
#pragma unroll
	for (int j = 0; j < n_tiles; j++)
		x[j] = j * 8 + g < S::rows ? x_row(j * 8 + g) : nullptr;
	float acc[chains][S::tiles][n_tiles][4] = {}, ss[n_tiles] = {};
	uint4 b[S::x_steps][n_tiles]; // of x: this step and those that follow
	const auto read_x = [&](int step, uint4 (&to)[n_tiles]) {
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
	int slot = 0, to_fill = stream_ahead % S::depth;
	for (int first = 0; first < steps; first += S::x_steps) {
#pragma unroll
		for (int s = 0; s < S::x_steps; s++) {
			if (first + s >= steps)
				break;
			const int step = S::x_steps >= turn_steps ? s % turn_steps : (first + s) % turn_steps; // of its turn
			if (step == 0) {
				copy_wait<stream_ahead - 1>();
				__syncwarp();
			}
			const char *at = ring.mine + slot * Ring::turn_bytes;
			if constexpr (Ring::norm_there)
#pragma unroll
				for (int j = 0; j < n_tiles; j++)
					b[s][j] = stream_norm<ONE>(b[s][j],
						reinterpret_cast<const Norm *>(at + S::w_bytes) + 32 * step + 8 * q, ss[j]);
#pragma unroll
			for (int m = 0; m < S::tiles; m++) {
				const char *row = at + (m * 16 + g) * S::row_bytes + ((4 * step + q) ^ g % 2 * 4) * 16;
				const uint4 lo = *reinterpret_cast<const uint4 *>(row);
				const uint4 hi = *reinterpret_cast<const uint4 *>(row + 8 * S::row_bytes);
				const u32 a[2][4] = { { lo.x, hi.x, lo.y, hi.y }, { lo.z, hi.z, lo.w, hi.w } };
#pragma unroll
				for (int j = 0; j < n_tiles; j++) {
					mma(acc[0][m][j], a[0], b[s][j].x, b[s][j].y);
					mma(acc[chains - 1][m][j], a[1], b[s][j].z, b[s][j].w);
				}
			}
			if constexpr (S::most_steps > S::x_steps)
				read_x(first + s + S::x_steps, b[s]);
			if (step == turn_steps - 1) {
				__syncwarp(); // the slot is read by all
				const int next = (first + s) / turn_steps + stream_ahead;
				ring.fill(next < S::depth ? ring.turns : next, to_fill); // the first ones are there already
				to_fill = to_fill + 1 == S::depth ? 0 : to_fill + 1;
				slot = slot + 1 == S::depth ? 0 : slot + 1;
			}
		}
	}
	copy_wait<0>();
	__syncwarp();
	float *const out = reinterpret_cast<float *>(ring.mine);
	stream_leave<S, Ring::norm_there>(out, acc, ss);
	if constexpr (S::split > 1)
		__syncthreads();
	else
		__syncwarp();
	sums.first = out - ring.turn * (Ring::warp_bytes / 4);
	sums.stride = Ring::warp_bytes / 4;
	return true;
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
