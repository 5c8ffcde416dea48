// arrive.cuh - how the blocks of a launch make one result of their parts (grid level).
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

// Blocks of one cluster can wait for each other, since they run at the same time, and write to each other's shared
// memory. Every thread of every block arrives and waits in turn (sm_90 and later).
__device__ __forceinline__ void team_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void team_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The same place of this shared memory in the first block of the cluster; and a store to such a place.
__device__ __forceinline__ u32 in_first(u32 address)
{
	u32 there;
	asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(address));
	return there;
}

__device__ __forceinline__ void store_in_team(u32 to, float4 v)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
		: "memory");
}
