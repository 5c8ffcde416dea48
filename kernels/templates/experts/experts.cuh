// experts.cuh - what the kernels of experts share: where an expert's matrix lies, and which tile of rows a block has.
//
// A weight [E, N_, K_] is as many matrices, one behind the other, and so are its scales; the shared expert is a matrix
// of the same kind, alone. Rows of gate come before those of up, each with blocks of scales of their own.
//
// Many rows are put in order by expert (group_rows): a tile is up to BM of the pairs of one expert. How many tiles an
// expert has is known on the device alone, so the grid is as large as it may ever need to be.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "shared/types.cuh"

constexpr int max_of(int a, int b) { return a > b ? a : b; }

// Elements of e2m1 stand two in a unit of the pointer.
template <class W, int N_, int K_> __device__ __forceinline__ const W *matrix_at(const W *w, int e)
{
	return w + i64(e) * (i64(N_) * K_ * bits_of<W> / 8 / int(sizeof(W)));
}

// The scales of a matrix of HALVES_ pieces of N_ rows; of one that has none an address that nobody reads.
template <int HALVES_, int N_, int K_, int BLOCK_N_, int BLOCK_K_, class Scale>
__device__ __forceinline__ const Scale *scales_at(const Scale *scales, int e)
{
	constexpr i64 each = BLOCK_N_ > 0 && BLOCK_K_ > 0
		? i64(HALVES_) * ceil_div(N_, max_of(BLOCK_N_, 1)) * ceil_div(K_, max_of(BLOCK_K_, 1)) : 0;
	return scales ? scales + e * each : scales;
}

// Tile number `tile` of those of all experts, in their order; expert is -1 past the last one.
struct ExpertTile { int expert, start, count; };

// warp level: every lane gets it. first [EXPERTS_ + 1]
template <int EXPERTS_, int BM_> __device__ __forceinline__ ExpertTile expert_tile(const i32 *first, int tile)
{
	constexpr int each = ceil_div(EXPERTS_, 32);
	const int lane = threadIdx.x % 32;
	int start[each + 1], tiles = 0;
#pragma unroll
	for (int i = 0; i <= each; i++)
		start[i] = first[min(lane * each + i, EXPERTS_)];
#pragma unroll
	for (int i = 0; i < each; i++)
		tiles += (start[i + 1] - start[i] + BM_ - 1) / BM_;
	int end = tiles;
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		const int before = __shfl_up_sync(~0u, end, m);
		end += lane >= m ? before : 0;
	}
	int left = tile - (end - tiles); // tiles of this lane's experts before it
	ExpertTile found = { -1, 0, 0 };
#pragma unroll
	for (int i = 0; i < each; i++) {
		const int own = (start[i + 1] - start[i] + BM_ - 1) / BM_;
		if (left >= 0 && left < own) {
			found.expert = lane * each + i;
			found.start = start[i] + left * BM_;
			found.count = min(BM_, start[i + 1] - found.start);
		}
		left -= own;
	}
	const u32 has = __ballot_sync(~0u, found.expert >= 0);
	const int owner = has ? __ffs(int(has)) - 1 : 0;
	return { __shfl_sync(~0u, found.expert, owner), __shfl_sync(~0u, found.start, owner),
		__shfl_sync(~0u, found.count, owner) };
}
