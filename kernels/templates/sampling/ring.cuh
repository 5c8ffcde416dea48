// ring.cuh - the end of a sampled token: the slot goes on or ends, and the host is told.
//
// A slot's ring lies in memory of the host, which looks at it while entries come. One is a single store of 16 bytes,
// but no memory model promises that its words arrive together: the third holds a seal over the others
// (artifacts/ring.h), by which the host knows that it has all of them. Nobody waits for it and nothing follows it.
#pragma once

constexpr int RING_ENTRIES = 64, RING_WORDS = 4;

// thread level, one thread a slot: `token` was drawn for `position`; 0 <= token unless done is 3 (not numbers).
__device__ __forceinline__ void end_step(i32 *slot_token, i32 *slot_len, i32 *ring, int slot, int position, int token,
	int done, float logprob)
{
	slot_token[slot] = done ? -1 : token;
	slot_len[slot] = position;
	i32 *const entry = ring + (slot * RING_ENTRIES + position % RING_ENTRIES) * RING_WORDS;
	const u32 bits = __float_as_uint(logprob);
	u32 hash = u32(position) * 0x9E3779B1u + u32(token) * 0x85EBCA77u + bits * 0xC2B2AE3Du;
	hash ^= hash >> 15;
	hash *= 0x27D4EB2Fu;
	asm volatile("st.relaxed.sys.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(entry), "r"(position), "r"(token),
		"r"((hash & ~0xffu) | u32(done)), "r"(bits) : "memory");
}
