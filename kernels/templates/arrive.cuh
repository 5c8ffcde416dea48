// arrive.cuh - which of the blocks that share a result is the last to finish its part (grid level).
//
// Blocks of one launch may run in any order, so none can wait for another. Each writes its part, then counts itself
// in; the one that finds all others there takes the parts and completes the result. The counter lies in state that is
// zero before the first launch, and wraps to zero with the last arrival: every launch finds it as it was.
#pragma once
#include "types.cuh"

// One thread of a block, behind a barrier that follows the block's writes. True for the last of n to arrive: behind
// another barrier its block may read what all of them wrote, past L1 (__ldcg), which may hold older bytes.
__device__ __forceinline__ bool last_to_arrive(i32 *count, int n)
{
	u32 before;
	asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(count), "r"(n - 1) : "memory");
	return before == u32(n - 1);
}
