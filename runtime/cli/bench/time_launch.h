/* time_launch.h - how long launches take on the GPU of an open device: the clock of `atlas bench` and `atlas tune`.
 *
 * A timer works next to a session, between its steps, on the device's own stream and on the plan's own buffers: they
 * hold what the last step left, so that a launch timed there finds real numbers and legal indices. A time is the
 * median of several graph launches between two events, that of the launches alone: the host has queued all of it while
 * the GPU still reads the probe arena, which also empties the L2 cache. Every time holds the share of the events and of
 * the graph's start; TimerBounds.launch_us, the time of a launch that does next to nothing, says how much that is
 * (H100: 4.6 us).
 *
 * Not thread-safe, as the session is not. A failure leaves a sentence in timer_error. Clocks are what a single launch
 * sees: a product that runs for a second on end may be slower, since the card then reaches its limit of power.
 */
#ifndef ATLAS_TIME_LAUNCH_H
#define ATLAS_TIME_LAUNCH_H

#include "runtime/cuda.h"

typedef struct LaunchTimer LaunchTimer;

/* Takes the probe arena of the plan (about 1 GiB) on the device and fills it with random numbers. `device` must outlive
 * the timer. *timer is NULL on failure and error says why.
 *   ATLAS_UNSUPPORTED    the device is no GPU, or the plan has no probe phase
 *   ATLAS_DEVICE_MEMORY  the arena does not fit next to the session */
AtlasStatus timer_open(Device *device, LaunchTimer **timer, AtlasError *error);
void timer_close(LaunchTimer *timer); /* NULL is fine */
const AtlasError *timer_error(const LaunchTimer *timer);
const CudaView *timer_view(const LaunchTimer *timer);

/* The function of a kernel of the plan's cubins; loaded on first use, given back by timer_close. */
AtlasStatus timer_kernel(LaunchTimer *timer, const Kernel *k, CuKernel *kernel);

/* Device memory that timer_close gives back: for operands that the plan has no buffer for. 256-byte aligned, not
 * filled. */
AtlasStatus timer_memory(LaunchTimer *timer, int64_t bytes, CuPtr *at);
/* Copies host bytes there, and waits for it. */
AtlasStatus timer_write(LaunchTimer *timer, CuPtr to, const void *from, int64_t bytes);

typedef struct TimedLaunch {
	CuKernel kernel;
	int grid[3], block[3], smem_bytes;
	int overlaps;  /* 1: it may start before the launch in front of it is done (a programmatic edge) */
	ArgImage args;
} TimedLaunch;

/* A launch of the plan, on the session's buffers (on the probe arena for phase PROBE). overlaps is 0. */
AtlasStatus timer_launch(LaunchTimer *timer, const Phase *p, const Launch *l, TimedLaunch *out);

/* Queues one launch on the stream, to bring the buffers to where the next launch expects them. Does not wait. */
AtlasStatus timer_run(LaunchTimer *timer, const TimedLaunch *l);

typedef struct LaunchTime {
	double us;               /* median */
	double low_us, high_us;  /* quartiles */
	int reps;
} LaunchTime;

/* n >= 1 launches, each after the one before, as one graph; `reps` >= 1 runs of it after two that do not count.
 * is_cold: the L2 cache holds nothing of theirs when the first one starts; else what the run before left.
 * *out is the time of the whole graph. Launches must bear being repeated. */
AtlasStatus timer_measure(LaunchTimer *timer, const TimedLaunch *launches, int n, int reps, bool is_cold,
	LaunchTime *out);

/* What this GPU does at best, by the plan's probe phase: the bounds of a run. Takes about 50 ms. */
typedef struct TimerBounds {
	double read_gbps;    /* 10^9 bytes/s of a kernel that does nothing but read 1 GiB */
	double gemm_tflops;  /* of the plan's own kernel for a product of 8192 x 8192 x 8192 in bf16 */
	double fp8_tflops;   /* the same of codes of e4m3 by codes of e4m3; 0 = the plan has no such products */
	double fp4_tflops;   /* of e2m1 by e2m1 */
	double launch_us;    /* of a launch that reads 32 KiB with one block */
} TimerBounds;
AtlasStatus timer_bounds(LaunchTimer *timer, TimerBounds *out);

#endif
