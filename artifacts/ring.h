/* ring.h - an entry of a slot's ring, whole or not at all.
 *
 * The device writes an entry's four words while the host reads them, and nothing promises that they arrive together. So
 * the third word says what the other three are: below `done` (8 bits) are 24 bits of a hash of them, the seal. An
 * entry whose seal does not fit is one of which a part is still to come. Of two entries mixed, one in 2^24 fits.
 *
 *   words   [4]: position, token, seal << 8 | done, bits of the f32 log probability
 *
 * kernels/templates/sampling/ring.cuh writes the same.
 */
#ifndef ATLAS_RING_H
#define ATLAS_RING_H

#include "artifacts/plan.h"

#include <string.h>

typedef struct RingEntry {
	int32_t position, token;
	int done;      /* 0 to 255 */
	float logprob;
} RingEntry;

/* The hash, of which the upper 24 bits are the seal. */
static inline uint32_t ring_hash(uint32_t position, uint32_t token, uint32_t logprob)
{
	uint32_t h = position * 0x9E3779B1u + token * 0x85EBCA77u + logprob * 0xC2B2AE3Du;
	h ^= h >> 15;
	return h * 0x27D4EB2Fu;
}

static inline void ring_write(int32_t *words, RingEntry e)
{
	uint32_t logprob;
	memcpy(&logprob, &e.logprob, sizeof logprob);
	uint32_t hash = ring_hash((uint32_t)e.position, (uint32_t)e.token, logprob);
	words[0] = e.position;
	words[1] = e.token;
	words[2] = (int32_t)((hash & ~0xffu) | (uint32_t)e.done);
	words[3] = (int32_t)logprob;
}

/* True when the words are one entry. Each is read once: they may change meanwhile. `e` is filled in any case. */
static inline bool ring_read(const int32_t *words, RingEntry *e)
{
	uint32_t w[PLAN_RING_WORDS];
	for (int i = 0; i < PLAN_RING_WORDS; i++)
		w[i] = (uint32_t)__atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
	*e = (RingEntry){.position = (int32_t)w[0], .token = (int32_t)w[1], .done = (int)(w[2] & 0xff)};
	memcpy(&e->logprob, &w[3], sizeof e->logprob);
	return (w[2] ^ ring_hash(w[0], w[1], w[3])) < 0x100;
}

#endif
