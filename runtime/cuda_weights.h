/* cuda_weights.h - copies weights from mapped files to the device. */
#ifndef ATLAS_CUDA_WEIGHTS_H
#define ATLAS_CUDA_WEIGHTS_H

#include "runtime/driver.h"

typedef struct WeightRoad { /* nothing is owned */
	const Driver *cu;
	CuStream stream;
	CuPtr arena;        /* of the weights, on the device */
	uint8_t *stage[2];  /* pinned, stage_bytes each */
	CuEvent staged[2];
	int64_t stage_bytes;
	int threads;        /* that fill a stage; the caller is one of them. At least 1 */
	const Artifact *compare; /* with whose leaves each stage is compared before it is sent; NULL = not at all. Then
								stage_bytes is a multiple of TREE_LEAF_BYTES */
	const struct RandomTables *random; /* for weights that are made here; NULL = there are none */
	uint64_t seed;      /* of these */
	const struct PlanFiles *files; /* that bytes are mapped from, and by which they are read; NULL = memory */
	const uint8_t *unhashed; /* but for the weight whose bytes these are; NULL = all of them */
} WeightRoad;

/* Copies bytes [g->n_weights] of each weight to its offset in the arena, or makes them where they are to be made
 * (Weight.made); done when it returns. On failure *call names
 * the driver's function, or is NULL where bytes are not those that were compiled, and *about the weight. Fewer threads
 * than asked for may take part: the result is the same. */
CuResult cuda_load_weights(const WeightRoad *road, const Graph *g, const uint8_t *const *bytes, const char **call,
	const char **about);

/* The same of a rank's parts, to their places in its own arena (Ranks.places). Nothing is compared. */
CuResult cuda_load_parts(const WeightRoad *road, const Artifact *a, int rank, const uint8_t *const *bytes,
	const char **call, const char **about);

#endif
