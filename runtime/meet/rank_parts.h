/* rank_parts.h - the operands of a collective on all ranks, for the reference function of its op. */
#ifndef ATLAS_RANK_PARTS_H
#define ATLAS_RANK_PARTS_H

#include "runtime/device.h"

typedef struct RankParts {
	int n;                         /* ranks; 0 = alone */
	const void *of[PLAN_MAX_RANKS]; /* as RefCall.ranks */
	float *floats[PLAN_MAX_RANKS];
} RankParts;

/* While a step halts after sum_peers or gather_peers: the first n elements of each rank's part; own [n] are this one's.
 * rank_parts_free, after a failure too. */
AtlasStatus rank_parts(Device *device, const Phase *p, const Launch *l, const float *own, int64_t n, RankParts *out);
void rank_parts_free(RankParts *parts);

#endif
