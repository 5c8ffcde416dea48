// ring.cuh - the end of a sampled token: the slot goes on or ends, and the host is told.
//
// A slot's ring lies in memory of the host. An entry is one aligned store of 16 bytes: it crosses the bus as one write,
// and a host that sees its position sees the rest of it. Nobody waits for it and nothing follows it.
#pragma once

constexpr int RING_ENTRIES = 64, RING_WORDS = 4;

// thread level, one thread a slot: `token` was drawn for `position`; 0 <= token unless done is 3 (not numbers).
__device__ __forceinline__ void end_step(i32 *slot_token, i32 *slot_len, i32 *ring, int slot, int position, int token,
	int done, float logprob)
{
	slot_token[slot] = done ? -1 : token;
	slot_len[slot] = position;
	i32 *const entry = ring + (slot * RING_ENTRIES + position % RING_ENTRIES) * RING_WORDS;
	asm volatile("st.relaxed.sys.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(entry), "r"(position), "r"(token), "r"(done),
		"r"(__float_as_uint(logprob)) : "memory");
}
