/* cuda_start.c - start a GPU in a thread of its own, while its plan is opened.
 *
 * The thread finds the driver and holds the device's primary context, no more. A session on it goes through every step
 * of opening as without it, finds what takes long done, and is the one to report what is wrong.
 */
#include "runtime/cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct AtlasDevice {
	pthread_t thread;
	bool is_running; /* the thread was not joined */
	int index;
	Driver cu;
	bool has_driver, has_context;
	CuDevice device;
};

static void *start(void *at)
{
	AtlasDevice *d = at;
	CuContext context;
	int count;
	d->has_driver = driver_open(&d->cu, NULL) == ATLAS_OK;
	d->has_context = d->has_driver && d->cu.Init(0) == CU_SUCCESS && d->cu.DeviceGetCount(&count) == CU_SUCCESS &&
		d->index >= 0 && d->index < count && d->cu.DeviceGet(&d->device, d->index) == CU_SUCCESS &&
		d->cu.DevicePrimaryCtxRetain(&context, d->device) == CU_SUCCESS;
	return NULL;
}

AtlasDevice *atlas_device_start(int index)
{
	AtlasDevice *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->index = index;
	if (pthread_create(&d->thread, NULL, start, d) != 0) {
		free(d);
		return NULL;
	}
	d->is_running = true;
	return d;
}

static void join(AtlasDevice *d)
{
	if (d->is_running)
		pthread_join(d->thread, NULL);
	d->is_running = false;
}

const Driver *cuda_started(AtlasDevice *d)
{
	join(d);
	return d->has_driver ? &d->cu : NULL;
}

/* A target with a letter (sm_90a) runs on exactly its capability, another one on all later minors. */
const TargetPlan *cuda_find_target(const Artifact *a, int major, int minor)
{
	const TargetPlan *best = NULL;
	int best_rank = -1;
	for (int i = 0; i < a->n_targets; i++) {
		const TargetPlan *t = &a->targets[i];
		bool is_exact = t->target[strlen(t->target) - 1] == 'a';
		if (t->cc_major != major || (is_exact ? t->cc_minor != minor : t->cc_minor > minor))
			continue;
		int rank = is_exact ? 100 : t->cc_minor;
		if (rank > best_rank) {
			best = t;
			best_rank = rank;
		}
	}
	return best;
}

const TargetPlan *cuda_would_run(const Driver *cu, const Artifact *a, int index, char name[256])
{
	CuDevice device;
	int count, major, minor;
	const bool is_there = cu->Init(0) == CU_SUCCESS && cu->DeviceGetCount(&count) == CU_SUCCESS && index >= 0 &&
		index < count && cu->DeviceGet(&device, index) == CU_SUCCESS &&
		cu->DeviceGetName(name, 256, device) == CU_SUCCESS &&
		cu->DeviceGetAttribute(&major, CU_ATTR_CC_MAJOR, device) == CU_SUCCESS &&
		cu->DeviceGetAttribute(&minor, CU_ATTR_CC_MINOR, device) == CU_SUCCESS;
	return is_there ? cuda_find_target(a, major, minor) : NULL;
}

void atlas_device_end(AtlasDevice *d)
{
	if (!d)
		return;
	join(d);
	if (d->has_context)
		d->cu.DevicePrimaryCtxRelease(d->device);
	free(d);
}
