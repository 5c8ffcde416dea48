// group.cuh - the pairs of a row and an expert, by expert: what group_rows and group_own have alike.
//
// A block is an expert's. Contracts share group_contract.cuh.
#pragma once

// Four neighbouring ids, -1 past the end.
__device__ __forceinline__ uint4 four_ids(const i32 *expert, int p, int pairs)
{
	if (p + 4 <= pairs)
		return *reinterpret_cast<const uint4 *>(expert + p);
	return make_uint4(p < pairs ? expert[p] : -1, p + 1 < pairs ? expert[p + 1] : -1,
		p + 2 < pairs ? expert[p + 2] : -1, -1);
}

enum { GROUP_WARPS = 8 };
struct Grouped { int start; const int *own; }; // where the expert's pairs begin; how many each warp has of them

// block level: writes the block's pairs, of the first `pairs` ids. Ids below 0 are of no expert
__device__ __forceinline__ Grouped group_pairs(const Args &a, int expert, int pairs)
{
	constexpr int warps = GROUP_WARPS, runs = ceil_div(ROWS * TOPK, warps * 128), unroll = runs < 4 ? runs : 4;
	__shared__ int lower_of[warps], own_of[warps];
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, begin = warp * runs * 128 + lane * 4; // neighbours
	int lower = 0, own = 0;
#pragma unroll unroll
	for (int i = 0; i < runs; i++) {
		const uint4 v = four_ids(a.expert, begin + i * 128, pairs);
		const int ids[4] = { int(v.x), int(v.y), int(v.z), int(v.w) };
#pragma unroll
		for (int k = 0; k < 4; k++) {
			lower += u32(ids[k]) < u32(expert);
			own += ids[k] == expert;
		}
	}
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		lower += __shfl_xor_sync(~0u, lower, m);
		own += __shfl_xor_sync(~0u, own, m);
	}
	if (lane == 0) {
		lower_of[warp] = lower;
		own_of[warp] = own;
	}
	__syncthreads();
	Grouped g = { 0, own_of };
	int before = 0;
#pragma unroll
	for (int i = 0; i < warps; i++) {
		g.start += lower_of[i];
		before += i < warp ? own_of[i] : 0;
	}
	i32 *to = a.pair + g.start + before;
	const u32 lanes_before = (1u << lane) - 1;
	for (int i = 0; i < runs && own; i++) {
		const int p = begin + i * 128;
		const uint4 v = four_ids(a.expert, p, pairs);
		const int ids[4] = { int(v.x), int(v.y), int(v.z), int(v.w) };
		int at = 0, all = 0;
#pragma unroll
		for (int k = 0; k < 4; k++) {
			const u32 has = __ballot_sync(~0u, ids[k] == expert);
			at += __popc(has & lanes_before);
			all += __popc(has);
		}
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (ids[k] == expert)
				to[at++] = p + k;
		to += all;
	}
	return g;
}
