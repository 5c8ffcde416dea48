// peers.cuh - how the blocks of one launch on several cards give each other what they have (grid level).
//
// Every rank has an arena that the others map (artifacts/peers.h: the same numbers). A collective is one launch of the
// same grid on each rank, and block b needs of the others what their blocks b show:
//
//   1. all ranks count collectives in their own memory: `epoch`. Its lowest bit says which of two slots is taken
//   2. a block writes its part into the slot of its own arena, then the epoch into its flag in each other arena
//   3. it waits until all flags of the block in its own arena have that epoch, then reads the parts of all ranks
//
// Why two slots do: a rank that writes to the slot of collective n + 2 has ended n + 1, in which it saw flags that the
// others wrote after they had ended n; so nobody reads the slot of n any more. This needs writes behind inputs_ready.
// A flag has one writer and only grows, so it is compared by difference and never cleared.
//
// Everything crosses cards: releases and acquires are of system scope. A wait ends when the host says so (abort): what
// is read then means nothing, and the session is over.
#pragma once
#include "shared/arrive.cuh"
#include "shared/types.cuh"

constexpr int PEER_RANKS = 0, PEER_RANK = 1, PEER_EPOCH = 2, PEER_ARRIVED = 3, PEER_FAULT = 4, PEER_ABORT = 6,
	PEER_ARENAS = 8, PEER_FLAGS = 64, PEER_BLOCKS = 64, PEER_PUSHED = 1024, PEER_PIECE = 16384, PEER_MOST = 8,
	PEER_SLOTS = PEER_PUSHED + 2 * PEER_MOST * PEER_PIECE;

__device__ __forceinline__ u32 load_acquire_sys(const i32 *p)
{
	u32 x;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
	return x;
}

__device__ __forceinline__ u32 load_relaxed_sys(const i32 *p)
{
	u32 x;
	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
	return x;
}

__device__ __forceinline__ void store_release_sys(i32 *p, u32 x)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

// Bytes that another card may have written: past caches that do not see it.
__device__ __forceinline__ uint4 load16_sys(const void *p)
{
	uint4 v;
	asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
	return v;
}

__device__ __forceinline__ void store16_sys(void *p, uint4 v)
{
	asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
		:: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// PER elements of T in a row: 16 bytes, or one of f32.
template <class T, int PER> struct Unit;
template <> struct Unit<bf16, 8> {
	static __device__ __forceinline__ void unpack(uint4 raw, float (&v)[8]) { ::unpack(Vec8<bf16>{ { raw } }, v); }
	static __device__ __forceinline__ uint4 pack(const float (&v)[8]) { return pack8(v); }
	static __device__ __forceinline__ uint4 load(const void *p) { return *static_cast<const uint4 *>(p); }
	static __device__ __forceinline__ uint4 load_peer(const void *p) { return load16_sys(p); }
	static __device__ __forceinline__ void store(void *p, uint4 raw) { *static_cast<uint4 *>(p) = raw; }
};
template <> struct Unit<f32, 4> {
	static __device__ __forceinline__ void unpack(uint4 raw, float (&v)[4])
	{
		v[0] = __uint_as_float(raw.x);
		v[1] = __uint_as_float(raw.y);
		v[2] = __uint_as_float(raw.z);
		v[3] = __uint_as_float(raw.w);
	}
	static __device__ __forceinline__ uint4 pack(const float (&v)[4])
	{
		return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
	}
	static __device__ __forceinline__ uint4 load(const void *p) { return *static_cast<const uint4 *>(p); }
	static __device__ __forceinline__ uint4 load_peer(const void *p) { return load16_sys(p); }
	static __device__ __forceinline__ void store(void *p, uint4 raw) { *static_cast<uint4 *>(p) = raw; }
};
template <> struct Unit<f32, 1> {
	static __device__ __forceinline__ void unpack(u32 raw, float (&v)[1]) { v[0] = __uint_as_float(raw); }
	static __device__ __forceinline__ u32 pack(const float (&v)[1]) { return __float_as_uint(v[0]); }
	static __device__ __forceinline__ u32 load(const void *p) { return *static_cast<const u32 *>(p); }
	static __device__ __forceinline__ u32 load_peer(const void *p)
	{
		return load_relaxed_sys(static_cast<const i32 *>(p));
	}
	static __device__ __forceinline__ void store(void *p, u32 raw) { *static_cast<u32 *>(p) = raw; }
};

// One collective, as a block sees it.
struct Peers {
	i32 *own;
	int n, rank; // n 1: alone
	u32 epoch;

	__device__ __forceinline__ i32 *arena(int r) const
	{
		return reinterpret_cast<i32 *const *>(own + PEER_ARENAS)[r];
	}
	// Where rank `to` finds what rank `from` has sent it.
	__device__ __forceinline__ i32 *pushed(int to, int from) const
	{
		return arena(to) + PEER_PUSHED + i64(int(epoch & 1) * PEER_MOST + from) * PEER_PIECE;
	}
	// The slot of rank r, of `words` words.
	__device__ __forceinline__ i32 *slot(int r, int words) const
	{
		return arena(r) + PEER_SLOTS + i64(epoch & 1) * words;
	}
};

// All threads, behind inputs_ready. The last block to have read the epoch counts it up by as many as the launch takes,
// which the next one finds; what is returned is of the first of them.
__device__ __forceinline__ Peers peers_begin(i32 *own, int blocks, int epochs = 1)
{
	__shared__ u32 epoch;
	if (threadIdx.x == 0)
		epoch = u32(own[PEER_EPOCH]) + 1;
	__syncthreads();
	const Peers p = { own, max(own[PEER_RANKS], 1), own[PEER_RANK], epoch };
	if (threadIdx.x == 0 && last_to_arrive(own + PEER_ARRIVED, blocks))
		own[PEER_EPOCH] = i32(p.epoch) + epochs - 1;
	return p;
}

// All threads, behind the block's writes to its own slot: tells the others, and waits for theirs.
__device__ __forceinline__ void peers_meet(const Peers &p, int block)
{
	const int r = threadIdx.x;
	__syncthreads();
	if (r < p.n && r != p.rank) {
		store_release_sys(p.arena(r) + PEER_FLAGS + block * PEER_MOST + p.rank, p.epoch);
		const i32 *flag = p.own + PEER_FLAGS + block * PEER_MOST + r;
		const i32 *abort = *reinterpret_cast<const i32 *const *>(p.own + PEER_ABORT);
		for (int turn = 1; int(load_acquire_sys(flag) - p.epoch) < 0; turn++)
			if (turn % 64 == 0 && load_relaxed_sys(abort)) {
				p.own[PEER_FAULT] = 1;
				break;
			}
	}
	__syncthreads();
}
