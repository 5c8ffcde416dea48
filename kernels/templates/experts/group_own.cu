// what      group_rows of the experts that this rank has: pairs of experts below 0 are left out, so there are -1 behind
//           those of its own
// numerics  whole numbers: the same order every run
// measured  not separately: as group_rows
// why       as group_rows: a block is an expert's. How many pairs there are in all is known to the last expert's block,
//           which therefore fills what is behind them
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(group_own, group_own)
#include "experts/group_contract.cuh"
#include "experts/group.cuh"

extern "C" __global__ void __launch_bounds__(256) group_own(const Args a)
{
	let_next_start();
	inputs_ready();
	const int expert = blockIdx.x;
	const Grouped g = group_pairs(a, expert, min(a.step[0], ROWS) * TOPK);
	if (threadIdx.x == 0)
		a.first[expert] = g.start;
	if (expert < FIRSTS - 2)
		return;
	int all = g.start;
#pragma unroll
	for (int i = 0; i < GROUP_WARPS; i++)
		all += g.own[i];
	for (int p = all + int(threadIdx.x); p < ROWS * TOPK; p += 256)
		a.pair[p] = -1;
	if (threadIdx.x == 0)
		a.first[FIRSTS - 1] = all;
}
