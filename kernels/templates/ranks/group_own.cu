// what      group_rows of the experts that this rank has: pairs of experts below 0 are left out, so there are -1 behind
//           those of its own
// numerics  whole numbers: the same order every run
// measured  not separately: as group_rows
// why       as group_rows: a block is an expert's. How many pairs there are in all is known to the last expert's block,
//           which therefore fills what is behind them
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(group_own, group_own)
ARCH(80)
NUMERICS(exact)
DIM(ROWS, 512)
DIM(FIRSTS, 257)
ATTR_INT(TOPK, 8)
REQUIRE(FIRSTS >= 2)
ORDER(exact)
GRID(FIRSTS - 1, 1, 1)
BLOCK(256)
READS(ROWS * TOPK * 4)
WRITES(ROWS * TOPK * 4 + FIRSTS * 4)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, expert, "ROWS, TOPK");
	OUT(i32, pair, "ROWS * TOPK");
	OUT(i32, first, "FIRSTS");
};

// Four neighbouring ids, -1 past the end.
__device__ __forceinline__ uint4 four_ids(const i32 *expert, int p, int pairs)
{
	if (p + 4 <= pairs)
		return *reinterpret_cast<const uint4 *>(expert + p);
	return make_uint4(p < pairs ? expert[p] : -1, p + 1 < pairs ? expert[p + 1] : -1,
		p + 2 < pairs ? expert[p + 2] : -1, -1);
}

extern "C" __global__ void __launch_bounds__(256) group_own(const Args a)
{
	constexpr int warps = 8, runs = ceil_div(ROWS * TOPK, warps * 128), unroll = runs < 4 ? runs : 4;
	__shared__ int lower_of[warps], own_of[warps];
	let_next_start();
	inputs_ready();
	const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int pairs = min(a.step[0], ROWS) * TOPK, begin = warp * runs * 128 + lane * 4; // a warp has neighbours
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
	int start = 0, before = 0;
#pragma unroll
	for (int i = 0; i < warps; i++) {
		start += lower_of[i];
		before += i < warp ? own_of[i] : 0;
	}
	i32 *to = a.pair + start + before;
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
	if (threadIdx.x == 0)
		a.first[expert] = start;
	if (expert < FIRSTS - 2)
		return;
	int all = start;
#pragma unroll
	for (int i = 0; i < warps; i++)
		all += own_of[i];
	for (int p = all + int(threadIdx.x); p < ROWS * TOPK; p += 256)
		a.pair[p] = -1;
	if (threadIdx.x == 0)
		a.first[FIRSTS - 1] = all;
}
