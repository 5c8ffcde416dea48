// attend_team.cuh - one tile of rows by several blocks of a cluster, each with a part of the keys (sm_90a only).
//
// A team's runs of keys go around: the first few to its first block, the next few to the second, and so on. So which
// block has a key depends on the key's position alone, and a row's bits do not depend on the rows beside it. A history
// of no more runs than one turn has is its first block's, and is not merged: what nobody else adds to keeps its bits.
#pragma once
#include "attention/attend_wgmma.cuh"

constexpr int team_turn = 4; // runs

// how many of `runs` the block of that rank has
template <int TEAM_> __device__ __forceinline__ int team_runs(int runs, int rank)
{
	if constexpr (TEAM_ == 1)
		return runs;
	constexpr int around = team_turn * TEAM_;
	return runs / around * team_turn + min(max(runs % around - rank * team_turn, 0), team_turn);
}

// its k-th run; with one block that is the k-th of all
template <int TEAM_> __device__ __forceinline__ int team_run(int k, int rank)
{
	if constexpr (TEAM_ == 1)
		return k;
	return k / team_turn * TEAM_ * team_turn + rank * team_turn + k % team_turn;
}

// from that place in the shared memory of the cluster's block of that rank (thread level)
__device__ __forceinline__ float4 load4_from(u32 place, u32 rank)
{
	float4 v;
	asm volatile("{\n"
		".reg .b32 there;\n"
		"mapa.shared::cluster.u32 there, %4, %5;\n"
		"ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
		"}" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(place), "r"(rank) : "memory");
	return v;
}

__device__ __forceinline__ float2 load2_from(u32 place, u32 rank)
{
	float2 v;
	asm volatile("{\n"
		".reg .b32 there;\n"
		"mapa.shared::cluster.u32 there, %2, %3;\n"
		"ld.shared::cluster.v2.f32 {%0, %1}, [there];\n"
		"}" : "=f"(v.x), "=f"(v.y) : "r"(place), "r"(rank) : "memory");
	return v;
}

__device__ __forceinline__ void store2_shared(u32 to, float x, float y)
{
	asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(x), "f"(y) : "memory");
}

// A share lies in shared memory as rows of f32 [HDIM], then a maximum and a sum for each row.
constexpr int team_row_bytes(int hdim) { return hdim * 4 + 32; } // rows of a fragment fall into different banks
constexpr int team_share_bytes(int rows, int hdim) { return rows * (team_row_bytes(hdim) + 8); }

// Cluster level: the blocks' shares of a tile become its result. Each leaves what its runs made at `base` of its shared
// memory, which nothing else needs any more, and sums a part of the rows over all of them, in the order of ranks.
//   group   of the warpgroups that compute, with 64 rows each: all but the block's first
//   rows    how many of the tile's rows exist
//   all(row, m, l)  makes of a row's sum of weights l, relative to its maximum m, the sum of all
//   put(row, column, v)  takes four columns of a row
template <int TEAM_, int GROUPS_, int KEYS_, int HDIM_, class All, class Put>
__device__ __forceinline__ void team_merge(WideAttention<KEYS_, HDIM_> &a, u32 base, int group, int rank,
	int rows, All all, Put put)
{
	constexpr int stride = team_row_bytes(HDIM_), part = GROUPS_ * 64 / TEAM_, pieces = HDIM_ / 4;
	static_assert(GROUPS_ * 64 % TEAM_ == 0, "each block sums as many rows");
	const u32 sums_at = base + GROUPS_ * 64 * stride;
	const int quad = threadIdx.x % 4, mine = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const float l = row_sum(a.l[i]);
		const int row = mine + 8 * i;
		if (quad == 0)
			store2_shared(sums_at + row * 8, a.m[i], l);
#pragma unroll
		for (int d = 0; d < HDIM_ / 8; d++)
			store2_shared(base + row * stride + (d * 8 + quad * 2) * 4, a.o[d][2 * i], a.o[d][2 * i + 1]);
	}
	cluster_sync();
	for (int i = threadIdx.x - 128; i < part * pieces; i += GROUPS_ * 128) {
		const int row = rank * part + i / pieces, column = i % pieces * 4;
		if (row >= rows)
			break;
		float2 sums[TEAM_]; // maximum, sum
		float4 o[TEAM_], out = {};
#pragma unroll
		for (int r = 0; r < TEAM_; r++) {
			sums[r] = load2_from(sums_at + row * 8, r);
			o[r] = load4_from(base + row * stride + column * 4, r);
		}
		float top = sums[0].x, l = 0.0f;
#pragma unroll
		for (int r = 1; r < TEAM_; r++)
			top = fmaxf(top, sums[r].x);
#pragma unroll
		for (int r = 0; r < TEAM_; r++) {
			const float weight = exp2_fast(sums[r].x - top);
			l = fmaf(sums[r].y, weight, l);
			out.x = fmaf(o[r].x, weight, out.x);
			out.y = fmaf(o[r].y, weight, out.y);
			out.z = fmaf(o[r].z, weight, out.z);
			out.w = fmaf(o[r].w, weight, out.w);
		}
		l = all(row, top, l);
		const float scale = l > 0.0f ? 1.0f / l : 0.0f;
		put(row, column, make_float4(out.x * scale, out.y * scale, out.z * scale, out.w * scale));
	}
	cluster_sync(); // nobody leaves while another reads
}
