/* rank_device.h - the devices of several ranks as one (rank 0), and what the others do. */
#ifndef ATLAS_RANK_DEVICE_H
#define ATLAS_RANK_DEVICE_H

#include "runtime/device.h"
#include "runtime/ranks/rank_group.h"

/* Rank 0: a device whose calls go to the other ranks first and then to `inner`. Takes inner, which is closed on failure
 * too. Returns when all ranks are open. */
AtlasStatus ranked_open(Device *inner, RankGroup *group, const Artifact *artifact, Device **device, AtlasError *error);

/* The device of this rank alone, for measurements; of one that is not ranked, itself. */
Device *ranked_inner(Device *device);

/* How many launches of the phase wait for other ranks. */
int phase_collectives(const Phase *p);
/* How long those take without the rest of a step, launch after launch, on a device that is idle: the mean of `reps`
 * times. ranked_: on all ranks at the same time; us is rank 0's. */
AtlasStatus cuda_collectives(Device *device, int phase, int reps, double *us);
AtlasStatus ranked_collectives(Device *device, int phase, int reps, double *us);

/* What measures another rank's launches: on its device, from its opening until it closes. */
typedef struct RankHooks {
	void *ctx;
	void (*begin)(void *ctx, Device *own);
	void (*measure)(void *ctx, int phase);
	void (*end)(void *ctx);
} RankHooks;
/* Calls that of the other ranks, which may then be slow: no rank is lost for that. -1: no phase any more. */
AtlasStatus ranked_measure(Device *device, int phase);

/* Another rank: does on its device what rank 0 does, until rank 0 closes; closes it. hooks: NULL = none. */
AtlasStatus ranked_follow(Device *own, RankGroup *group, const Artifact *artifact, const RankHooks *hooks,
	AtlasError *error);

#endif
