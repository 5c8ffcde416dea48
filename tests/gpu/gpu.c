/* gpu.c - the device under test, through the runtime's own table of driver functions. */
#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPLAYS = 9 };

bool gpu_ok(Gpu *g, CuResult rc, const char *call)
{
	if (rc == CU_SUCCESS)
		return true;
	snprintf(g->why, sizeof g->why, "%s: %s", call, driver_error(&g->driver, rc));
	g->dead |= rc >= 700 && rc < 800; /* sticky: the context is lost */
	return false;
}

bool gpu_open(Gpu *g, int64_t memory_bytes)
{
	int major = 0, minor = 0;
	*g = (Gpu){.memory_bytes = memory_bytes};
	AtlasError error = {0};
	if (driver_open(&g->driver, &error) != ATLAS_OK) {
		snprintf(g->why, sizeof g->why, "no CUDA driver");
		return false;
	}
	Driver *d = &g->driver;
	if (!gpu_ok(g, d->Init(0), "cuInit") || !gpu_ok(g, d->DeviceGet(&g->device, 0), "cuDeviceGet") ||
		!gpu_ok(g, d->DevicePrimaryCtxRetain(&g->context, g->device), "cuDevicePrimaryCtxRetain") ||
		!gpu_ok(g, d->CtxPushCurrent(g->context), "cuCtxPushCurrent") ||
		!gpu_ok(g, d->StreamCreate(&g->stream, DRIVER_STREAM_NON_BLOCKING), "cuStreamCreate") ||
		!gpu_ok(g, d->MemAlloc(&g->memory, (size_t)memory_bytes), "cuMemAlloc"))
		return false;
	d->DeviceGetName(g->name, sizeof g->name, g->device);
	d->DeviceGetAttribute(&major, CU_ATTR_CC_MAJOR, g->device);
	d->DeviceGetAttribute(&minor, CU_ATTR_CC_MINOR, g->device);
	for (int i = 0; i < n_target_table; i++)
		if (target_table[i].cc_major == major && (target_table[i].is_exact ? target_table[i].cc_minor == minor
				: target_table[i].cc_minor <= minor))
			g->target = &target_table[i];
	if (!g->target)
		snprintf(g->why, sizeof g->why, "no target for compute capability %d.%d", major, minor);
	return g->target != NULL;
}

void gpu_close(Gpu *g)
{
	Driver *d = &g->driver;
	if (g->memory)
		d->MemFree(g->memory);
	if (g->stream)
		d->StreamDestroy(g->stream);
	if (g->context) {
		CuContext popped;
		d->CtxPopCurrent(&popped);
		d->DevicePrimaryCtxRelease(g->device);
	}
}

bool gpu_load(Gpu *g, const Cubin *cubin, const char *entry, int smem, GpuKernel *out)
{
	Driver *d = &g->driver;
	*out = (GpuKernel){0};
	return gpu_ok(g, d->LibraryLoadData(&out->library, cubin->bytes, NULL, NULL, 0, NULL, NULL, 0),
			"cuLibraryLoadData") &&
		gpu_ok(g, d->LibraryGetKernel(&out->kernel, out->library, entry), "cuLibraryGetKernel") &&
		gpu_ok(g, d->KernelSetAttribute(CU_KERNEL_MAX_DYNAMIC_SMEM, smem, out->kernel, g->device),
			"cuKernelSetAttribute");
}

void gpu_unload(Gpu *g, GpuKernel *k)
{
	if (k->library)
		g->driver.LibraryUnload(k->library);
	*k = (GpuKernel){0};
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static bool build(Gpu *g, const GpuLaunches *l, CuGraph *graph, CuGraphExec *exec)
{
	Driver *d = &g->driver;
	CuGraphNode last = NULL;
	if (!gpu_ok(g, d->GraphCreate(graph, 0), "cuGraphCreate"))
		return false;
	for (int i = 0; i < l->n; i++) {
		void *params[1] = {l->params[i]};
		CuKernelNode node = {.grid = {(unsigned)l->grid[0], (unsigned)l->grid[1], (unsigned)l->grid[2]},
			.block = {(unsigned)l->block, 1, 1}, .smem_bytes = (unsigned)l->smem, .params = params, .kern = l->kernel};
		CuGraphNode added;
		CuGraphEdge edge = {.from_port = CU_KERNEL_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};
		bool plain = last && !l->overlaps;
		if (!gpu_ok(g, d->GraphAddKernelNode(&added, *graph, plain ? &last : NULL, plain, &node),
				"cuGraphAddKernelNode"))
			return false;
		if (last && l->overlaps && !gpu_ok(g, d->GraphAddDependencies(*graph, &last, &added, &edge, 1),
				"cuGraphAddDependencies"))
			return false;
		last = added;
	}
	return gpu_ok(g, d->GraphInstantiateWithFlags(exec, *graph, 0), "cuGraphInstantiate") &&
		gpu_ok(g, d->GraphUpload(*exec, g->stream), "cuGraphUpload");
}

double gpu_time(Gpu *g, const GpuLaunches *l)
{
	Driver *d = &g->driver;
	CuGraph graph = NULL;
	CuGraphExec exec = NULL;
	double seconds[REPLAYS], median = -1;
	bool ok = build(g, l, &graph, &exec);
	for (int i = 0; ok && i < REPLAYS + 2; i++) {
		double start = now();
		ok = gpu_ok(g, d->GraphLaunch(exec, g->stream), "cuGraphLaunch") &&
			gpu_ok(g, d->StreamSynchronize(g->stream), "cuStreamSynchronize");
		if (i >= 2)
			seconds[i - 2] = now() - start;
	}
	if (ok) {
		qsort(seconds, REPLAYS, sizeof seconds[0], by_size);
		median = seconds[REPLAYS / 2];
	}
	if (exec)
		d->GraphExecDestroy(exec);
	if (graph)
		d->GraphDestroy(graph);
	return median;
}
