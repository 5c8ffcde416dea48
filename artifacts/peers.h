/* peers.h - the memory that ranks show each other (ARENA_PEER): where in it what lies, in words of 32 bits.
 *
 * Each rank has one such arena, of the same layout, and maps those of the others. The words up to PEER_FLAGS are the
 * rank's own: the host writes them when a session opens, the kernels count the collectives in them. Flags and what is
 * pushed are written by the others. What follows PEER_SLOTS is written by the rank and read by the others: two slots of
 * equal size, which collectives take in turns; of a sum in two shots the others write to them too. An arena of zeros is
 * that of a rank alone.
 * kernels/templates/ranks/peers.cuh has the same numbers.
 */
#ifndef ATLAS_PEERS_H
#define ATLAS_PEERS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	PEER_RANKS = 0,   /* how many; 0 = alone */
	PEER_RANK = 1,
	PEER_EPOCH = 2,   /* collectives begun so far, modulo 2^32 */
	PEER_ARRIVED = 3, /* blocks of the launch at hand that have read it */
	PEER_FAULT = 4,   /* 1: a wait was given up */
	PEER_ABORT = 6,   /* address of a word of the host: not 0 = give up; two words */
	PEER_ARENAS = 8,  /* addresses of the arenas of ranks 0, 1, ... as this rank maps them, two words each */
	PEER_FLAGS = 64,  /* [PEER_BLOCKS][8] the epoch in which that rank has shown what that block reads */
	PEER_BLOCKS = 64, /* most of a launch */
	PEER_PUSHED = 1024, /* [2][8][PEER_PIECE] what each rank has sent here: words, each followed by the epoch */
	PEER_PIECE = 16384, /* twice the most that is sent, 32 KiB */
	PEER_SLOTS = PEER_PUSHED + 2 * 8 * PEER_PIECE,
};

/* Does this kernel of sum_peers add in two shots? Then it takes three epochs: parts are in the slot of the first, and
 * again in that of the last, which is passed over; what each rank has added is sent to the slot of the second. */
static inline bool peers_in_two_shots(const char *kernel) { return strcmp(kernel, "sum_peers_two") == 0; }

/* Words of an arena whose slots hold `bytes` each. */
static inline int64_t peer_words(int64_t bytes) { return PEER_SLOTS + 2 * ((bytes + 255) / 256 * 64); }

#endif
