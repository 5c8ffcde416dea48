/* random_weights.h - the bytes of weights that are made up (Weight.made), for the compiler that embeds them and for the
 * runtime that makes them when a session opens.
 *
 * A number depends on the seed, the weight's name and its place in the weight alone, so any piece of any weight can be
 * made at any time, by any thread, and the same bytes come out on every machine.
 */
#ifndef ATLAS_RANDOM_WEIGHTS_H
#define ATLAS_RANDOM_WEIGHTS_H

#include "artifacts/plan.h"

enum { RANDOM_LEVELS = 4096 };

typedef struct RandomTables { /* 24 KB; only read once they are filled */
	int level[RANDOM_LEVELS];    /* equally likely sums of four bytes */
	uint8_t code[RANDOM_LEVELS]; /* e4m3 of them */
	double code_rms;             /* root mean square of these codes' values */
} RandomTables;
void random_tables(RandomTables *t);

/* Bytes [at, at + n) of a weight that is made: whole elements of its dtype. */
void random_bytes(const RandomTables *t, const Weight *w, uint64_t seed, int64_t at, void *dst, size_t n);

/* Are dtype and columns of a weight that is made what its `made` allows? */
bool random_is_sound(const Weight *w);

/* Option weights.random_seed. False: it is missing, or no whole number below 2^64 as it is written. */
bool random_seed(const Artifact *a, uint64_t *seed);

#endif
