// wgmma_experts.cuh - products of codes by codes, rows in the order of experts, on the machinery of wgmma_fp8.cuh
// (sm_90a only).
//
// Rows of x come as gather_codes leaves them: those of expert 0, then those of expert 1 and so on, and after all pairs,
// at PAIRS_, the rows themselves, for the expert that all rows go to. A tile is up to 128 rows of one expert: 128 are
// fetched and multiplied, and those of the next expert among them are not stored. How many tiles an expert has is known
// on the device alone, so each block counts them first; then blocks take one tile after the other, an expert's
// columns first, so that its weights are asked of memory once.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "experts/experts.cuh"
#include "products/wgmma_fp8.cuh"

// block level, before a __syncthreads: ends[e] = the tiles of experts 0 to e; the shared expert comes last
template <int EXPERTS_, bool SHARED_>
__device__ __forceinline__ void count_expert_tiles(const i32 *first, int rows, int (&ends)[EXPERTS_ + SHARED_])
{
	constexpr int each = ceil_div(EXPERTS_, 32);
	const int lane = threadIdx.x;
	if (lane >= 32)
		return;
	int own[each], tiles = 0;
#pragma unroll
	for (int i = 0; i < each; i++) {
		const int e = min(lane * each + i, EXPERTS_ - 1);
		own[i] = lane * each + i < EXPERTS_ ? ceil_div(first[e + 1] - first[e], 128) : 0;
		tiles += own[i];
	}
	int end = tiles;
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		const int before = __shfl_up_sync(~0u, end, m);
		end += lane >= m ? before : 0;
	}
	int at = end - tiles;
#pragma unroll
	for (int i = 0; i < each; i++) {
		at += own[i];
		if (lane * each + i < EXPERTS_)
			ends[lane * each + i] = at;
	}
	if (SHARED_ && lane == 31)
		ends[EXPERTS_] = end + ceil_div(rows, 128);
}

// The tiles that a block makes, in order. PAIRS_: of all rows in the order of experts; COLUMNS_: of N_, a tile's
template <int EXPERTS_, bool SHARED_, int PAIRS_, int COLUMNS_, int N_> struct GroupedTiles {
	static constexpr int across = ceil_div(N_, COLUMNS_), count = EXPERTS_ + SHARED_;
	const int (&ends)[count];
	const i32 *first;
	int rows, next;
	int expert, row, stop, column; // stop: where the expert's rows end

	__device__ GroupedTiles(const int (&all)[count], const i32 *firsts, int used)
		: ends(all), first(firsts), rows(used), next(blockIdx.x), expert(0), row(0), stop(0), column(0) {}
	__device__ bool take()
	{
		const int tile = next / across;
		if (tile >= ends[count - 1])
			return false;
		int low = 0, high = count - 1;
		while (low < high) {
			const int mid = (low + high) / 2;
			if (ends[mid] > tile)
				high = mid;
			else
				low = mid + 1;
		}
		expert = low;
		const bool is_shared = SHARED_ && low == EXPERTS_;
		row = (is_shared ? PAIRS_ : first[low]) + (tile - (low > 0 ? ends[low - 1] : 0)) * 128;
		stop = is_shared ? PAIRS_ + rows : first[low + 1];
		column = next % across * COLUMNS_;
		next += gridDim.x;
		return true;
	}
	__device__ bool is_shared() const { return SHARED_ && expert == EXPERTS_; }
};

// A matrix of experts, and the one of the shared expert, each with the scales of its blocks, if it has any.
template <class ST_, class SST_> struct ExpertMatrix {
	const TensorMap *w, *shared; // shared NULL: there is none
	const ST_ *scale;
	const SST_ *shared_scale;
};

// block level, all 384 threads: the tiles of a launch. A matrix has PARTS_ pieces of N_ rows and K_ columns, each with
// blocks of scales of its own: a tile has 256 / PARTS_ rows of each, N_ rows apart. SIZE_ is what x_scale has of rows.
// finish(acc, tile, t0): a warpgroup's sums, of 64 rows from t0 on
template <int PARTS_, int K_, int N_, int SIZE_, bool HAS_BLOCKS_, bool SHARED_BLOCKS_, class Tiles_, class ST_,
	class SST_, class Finish>
__device__ __forceinline__ void wgmma_expert_products(Ring<256> &ring, int group, Tiles_ tiles, const TensorMap &x,
	const float *x_scale, const ExpertMatrix<ST_, SST_> &m, Finish finish)
{
	using T = WideTile<256>;
	static_assert(K_ % 16 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");
	static_assert(PARTS_ == 1 || N_ % 128 == 0, "a tile's parts are of one expert");
	constexpr int steps = ceil_div(K_, code_columns), blocks = ceil_div(N_, 128), part_rows = 256 / PARTS_;
	if (group == 0) {
		registers_down<40>();
		if (threadIdx.x != 0)
			return;
		while (tiles.take()) {
			const TensorMap *w = tiles.is_shared() ? m.shared : m.w;
			const int from = (tiles.is_shared() ? 0 : tiles.expert * (PARTS_ * N_)) + tiles.column;
			for (int step = 0; step < steps; step++, ring.advance()) {
				const u32 full = ring.full(ring.slot);
				barrier_wait(ring.free(ring.slot), ring.turn ^ 1);
				barrier_expect(full, T::stage_bytes);
				copy_box(ring.stage(), x, tiles.row, step * code_columns, full);
#pragma unroll
				for (int p = 0; p < PARTS_; p++)
					copy_box(ring.stage() + T::piece_bytes + p * part_rows * 128, *w, from + p * N_,
						step * code_columns, full);
			}
		}
		return;
	}
	registers_up<232>();
	while (tiles.take()) {
		const int row = tiles.row + (group - 1) * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
		const float *xs[2] = { x_scale + min(row, SIZE_ - 1), x_scale + min(row + 8, SIZE_ - 1) };
		auto scales = [&](int step) {
			StageScales<2> s = { { xs[0][i64(step) * SIZE_], xs[1][i64(step) * SIZE_] }, { 1.0f, 1.0f } };
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const int block = PARTS_ == 1 ? min(tiles.column / 128 + h, blocks - 1)
					: h * blocks + tiles.column / 128;
				if (tiles.is_shared()) {
					if constexpr (SHARED_BLOCKS_)
						s.w[h] = to_f32(m.shared_scale[i64(block) * steps + step]);
				} else if constexpr (HAS_BLOCKS_) {
					s.w[h] = to_f32(m.scale[(i64(tiles.expert) * (PARTS_ * blocks) + block) * steps + step]);
				}
			}
			return s;
		};
		float acc[32][4];
		wgmma_multiply_codes<256, K_, 1>(ring, group - 1, acc, scales);
		finish(acc, tiles, tiles.row + (group - 1) * 64);
	}
}

// Where row i in the order of experts comes from: its number among the shares of all rows.
template <int PAIRS_, int TOPK_, bool SHARED_> __device__ __forceinline__ int share_of(const i32 *pair, int i)
{
	if (SHARED_ && i >= PAIRS_)
		return (i - PAIRS_) * (TOPK_ + 1) + TOPK_;
	const int p = pair[i];
	return p / TOPK_ * (TOPK_ + SHARED_) + p % TOPK_;
}

// Results -------------------------------------------------------------------------------------------------------

// warpgroup level: acc[0..15] = factor * silu(gate) * up of 64 rows, and the largest magnitudes of this thread's rows g
// and g + 8, of each of which factor has one. gate and up are the halves of acc
__device__ __forceinline__ void gate_halves(float (&acc)[32][4], const float (&factor)[2], float (&largest)[2])
{
#pragma unroll
	for (int j = 0; j < 16; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float gate = acc[j][i], up = acc[16 + j][i];
			acc[j][i] = factor[i / 2] * (__fdividef(gate, 1.0f + __expf(-gate)) * up);
			largest[i / 2] = fmaxf(largest[i / 2], fabsf(acc[j][i]));
		}
}

// warpgroup level: 64 rows of 256 columns from n0 on; line(i) is the row of a matrix of N_ columns that row g + 8 i
// goes to, NULL where it is not in use
template <int N_, class Line>
__device__ __forceinline__ void store_rows(const float (&acc)[32][4], int n0, Line line)
{
	static_assert(N_ % 8 == 0, "lanes store 16 bytes");
	const int q = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		bf16 *to = line(i);
#pragma unroll
		for (int j = 0; j < 32; j += 4) {
			u32 w[4];
#pragma unroll
			for (int k = 0; k < 4; k++)
				w[k] = pack_bf16(acc[j + k][2 * i], acc[j + k][2 * i + 1]);
			quad_transpose(w);
			const int n = n0 + (j + q) * 8;
			if (to && n < N_)
				*reinterpret_cast<uint4 *>(to + n) = make_uint4(w[0], w[1], w[2], w[3]);
		}
	}
}
