// arrive.cuh - how the blocks of a launch make one result of their parts (grid level).
//
// Blocks of one launch may run in any order, so none can wait for another. Each writes its part, then counts itself
// in; the one that finds all others there takes the parts and completes the result. The counter lies in state that is
// zero before the first launch, and wraps to zero with the last arrival: every launch finds it as it was.
#pragma once
#include "shared/types.cuh"

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

// The first arrival where no memory is handed over: barriers alone, which barrier_init_done has fenced. The other
// waits for a fence of the whole card.
__device__ __forceinline__ void team_started() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }

__device__ __forceinline__ void team_meet()
{
	team_arrive();
	team_wait();
}

// The same place of shared memory in the block of that rank; stores to such a place, loads from it.
__device__ __forceinline__ u32 at_rank(const void *mine, int rank)
{
	u32 there;
	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there)
		: "r"(static_cast<u32>(__cvta_generic_to_shared(mine))), "r"(rank));
	return there;
}

__device__ __forceinline__ void store_at_rank(u32 to, float4 v)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
		: "memory");
}

__device__ __forceinline__ void store2_at_rank(u32 to, float x, float y)
{
	asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ u64 load2_of_rank(u32 from)
{
	u64 x;
	asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(x) : "r"(from) : "memory");
	return x;
}

__device__ __forceinline__ uint4 load4_of_rank(u32 from)
{
	uint4 v;
	asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
	return v;
}
