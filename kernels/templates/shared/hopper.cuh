// hopper.cuh - what sm_90a has between memory and its tensor cores: barriers in shared memory, the copy engine, wgmma
// descriptors, registers that move between warpgroups.
//
// A barrier is eight bytes of shared memory. It completes a phase when its count of arrivals has come and all bytes
// announced to it have landed; phases alternate between parity 0 and 1, and waiting for parity 1 of a fresh barrier
// returns at once. So a ring of tiles has two barriers a slot, `full` and `empty`; the n-th use of a slot waits for
// parity n % 2 of `full` as a reader and for parity 1 - n % 2 of `empty` as the writer.
//
// Tiles that wgmma reads are rows of 128 bytes, eight rows an atom of 1024 bytes, in which the 16-byte piece p of row r
// lies at place p ^ (r % 8): the 128-byte swizzle, as the copy engine writes it.
#pragma once
#include "shared/mma.cuh"

// Barriers (thread level) ---------------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

// after the inits, before the __syncthreads that announces them: the copy engine sees them too
__device__ __forceinline__ void barrier_init_done()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// arrives, and announces bytes that copies will bring
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity)
{
	asm volatile("{\n"
		".reg .pred done;\n"
		"again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		"@done bra over;\n"
		"bra again;\n"
		"over:\n"
		"}" :: "r"(barrier), "r"(parity) : "memory");
}

// arrives at the same barrier of another block: the one of that rank in the cluster. Says that this thread has read,
// not that its writes can be seen there: a fence of the whole cluster would take a microsecond
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 rank)
{
	asm volatile("{\n"
		".reg .b32 there;\n"
		"mapa.shared::cluster.u32 there, %0, %1;\n"
		"mbarrier.arrive.shared::cluster.b64 _, [there];\n"
		"}" :: "r"(barrier), "r"(rank) : "memory");
}

// 16 bytes to a place of shared memory of another block of the cluster; they count towards a barrier there. Who waits
// for it sees them: no fence of the whole card, as a barrier of the cluster has that hands memory over
__device__ __forceinline__ void send_at_rank(u32 to, uint4 v, u32 barrier)
{
	asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
		:: "r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}

// Hardware barriers of the block, 0 being that of __syncthreads (warp level: `threads` counts those who arrive and
// those who wait).
__device__ __forceinline__ void named_arrive(int id, int threads)
{
	asm volatile("barrier.cta.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_wait(int id, int threads)
{
	asm volatile("barrier.cta.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// The copy engine (thread level) --------------------------------------------------------------------------------

// one box of a tensor map, its first element at (row, column), to shared memory; elements outside become zeros, and
// all bytes of the box count towards the barrier
__device__ __forceinline__ void copy_box(u32 to, const TensorMap &map, int row, int column, u32 barrier)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
		"[%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

// The same to that place of every block of the cluster whose bit is set in `blocks`, for the same barrier of each. The
// blocks of a cluster lay out their shared memory alike.
__device__ __forceinline__ void copy_box_to(u32 to, const TensorMap &map, int row, int column, u32 barrier, u32 blocks)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
		"[%0], [%1, {%2, %3}], [%4], %5;" :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier),
		"h"(static_cast<unsigned short>(blocks)) : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap &map)
{
	asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

// shared memory that this thread wrote becomes visible to wgmma and to the copy engine, once a barrier has passed
__device__ __forceinline__ void fence_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// every thread of every block of the cluster
__device__ __forceinline__ void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// four bytes (thread level)
__device__ __forceinline__ u32 load_shared(u32 from)
{
	u32 x;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
	return x;
}

// 16 bytes (thread level)
__device__ __forceinline__ uint4 load_shared_four(u32 from)
{
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from)
		: "memory");
	return v;
}

// Registers (warpgroup level): the block starts with equal shares, which the launch bounds set
template <int COUNT_> __device__ __forceinline__ void registers_up()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT_));
}

template <int COUNT_> __device__ __forceinline__ void registers_down()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT_));
}

// Products (warpgroup level) ------------------------------------------------------------------------------------

// what this thread wrote to accumulators and fragments is seen by the products that follow
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

// Registers that products under way still touch stay theirs until here: values are neither moved up nor replaced.
template <int A_, int B_> __device__ __forceinline__ void hold(float (&r)[A_][B_])
{
#pragma unroll
	for (int i = 0; i < A_; i++)
#pragma unroll
		for (int j = 0; j < B_; j++)
			asm volatile("" : "+f"(r[i][j]) :: "memory");
}

template <int A_, int B_> __device__ __forceinline__ void hold(u32 (&r)[A_][B_])
{
#pragma unroll
	for (int i = 0; i < A_; i++)
#pragma unroll
		for (int j = 0; j < B_; j++)
			asm volatile("" : "+r"(r[i][j]) :: "memory");
}

// The descriptor of a tile at `address` (a multiple of 1024 bytes) in the 128-byte swizzle, 1024 bytes from eight rows
// to the next eight.
//   the 64 columns of a row are the products' k: sixteen columns on, the descriptor is 2 more (it counts 16 bytes)
//   the rows are k, read through "transposed": sixteen rows on it is 128 more; `chunk` bytes lie between one tile of
//   64 columns and the next
__device__ __forceinline__ u64 tile_descriptor(u32 address, u32 chunk = 16)
{
	return u64(1) << 62 | u64(1024 / 16) << 32 | u64(chunk / 16) << 16 | (address & 0x3ffff) >> 4;
}
