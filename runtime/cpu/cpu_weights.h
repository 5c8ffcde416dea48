/* cpu_weights.h - weights that are made when a session opens, for the reference device. */
#ifndef ATLAS_CPU_WEIGHTS_H
#define ATLAS_CPU_WEIGHTS_H

#include "runtime/cpu/pool.h"
#include "runtime/device.h"

/* Makes them all in one block, placed as in the plan's arena of weights, and puts their addresses where `weights`
 * [graph.n_weights] has NULL. *made is the block, to be freed; NULL where there are none, or on failure.
 *   ATLAS_NO_MEMORY  they do not fit in the memory of the host */
AtlasStatus cpu_make_weights(const DeviceConfig *config, Pool *pool, const uint8_t **weights, uint8_t **made,
	AtlasError *error);

#endif
