/* gpu.h - the device under test: one context, one stream, one block of memory. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "compiler/kernels/kernels.h"
#include "runtime/driver.h"

typedef struct Gpu {
	Driver driver;
	CuContext context;
	CuStream stream;
	CuDevice device;
	CuPtr memory;
	int64_t memory_bytes;
	const Target *target;
	char name[96], why[256];
	bool dead; /* a launch faulted: nothing more can run in this process */
} Gpu;

bool gpu_open(Gpu *g, int64_t memory_bytes);
void gpu_close(Gpu *g);
/* Records the failure and returns false unless rc is success. */
bool gpu_ok(Gpu *g, CuResult rc, const char *call);

typedef struct GpuKernel { CuLibrary library; CuKernel kernel; } GpuKernel;
bool gpu_load(Gpu *g, const Cubin *cubin, const char *entry, int smem, GpuKernel *out);
void gpu_unload(Gpu *g, GpuKernel *k);

/* Seconds that `n` launches take one after another: one graph, replayed; params[i] is the argument struct of
 * launch i. With `overlaps` each may start while the one before ends, as in a plan. The median of several replays;
 * negative on failure. */
typedef struct GpuLaunches { CuKernel kernel; int grid[3], block, smem, n; bool overlaps; void **params; } GpuLaunches;
double gpu_time(Gpu *g, const GpuLaunches *l);

#endif
