/* fake_driver.h - a CUDA driver of host memory behind the runtime's function table.
 *
 * Work on a stream waits in a queue until somebody waits for it, as on a GPU: a copy reads its source when it runs,
 * not when it is asked for, and the source must be the same then. New memory is full of NaN. Every address is checked
 * against what was allocated; nothing may be given back while work on its way uses it.
 * Where `delays` is set, the work of a stream goes on in any call, by as many kernels, copies and words in mapped
 * memory as chance says, and no further: the host meets every state that a GPU may be in between two of its calls.
 * Where `places` is set, memory of device and host lies anywhere between 2^33 and 2^46, at a multiple of 256,
 * which is all that CUDA promises, and mostly not of 512.
 * Graphs run in an order that their edges allow: one that is as far from the order of building as possible, or with
 * delays any.
 */
#ifndef TESTS_FAKE_DRIVER_H
#define TESTS_FAKE_DRIVER_H

#include "runtime/driver.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct FakeQueue FakeQueue;

typedef struct FakeDriver {
	/* set by the test */
	int n_devices, cc_major, cc_minor, smem_optin, version;
	const char *name;   /* of the card; NULL = "Fake GPU" */
	size_t memory_bytes;
	bool is_eager;      /* work is done when it is asked for */
	int fail_at;        /* the call of this number (1 = first) fails; 0 = none */
	CuResult fail_with;
	const char *swapped; /* a function of this name turns out to be another; NULL = none */
	uint64_t places;    /* memory lies where chance says: the state of its generator. 0 = where `take` puts it */
	uint64_t delays;    /* the state of their generator. 0 = none: a query ends the oldest work, a wait all of it */
	FILE *log;          /* a line for each call; NULL = none */
	void *ctx;
	size_t (*param_bytes)(void *ctx, int kernel); /* kernels are numbered as they are looked up */
	void (*execute)(void *ctx, int kernel, const void *params);
	void (*ran)(void *ctx, const char *name, const CuKernelNode *node); /* each node that a graph ran; NULL = nobody */
	void *ran_ctx;
	void *(*take)(size_t n, size_t size); /* the driver's own memory and the device's: calloc and free */
	void (*give)(void *p);
	/* read by the test */
	int calls;
	int live;           /* objects and allocations not given back */
	int context_depth;  /* pushes without pops */
	int n_launches, n_allocations;
	int n_abandoned;    /* objects that ended with the context, not before it */
	const char *failed_call; /* format of the log line of the call that was made to fail */
	char broken[256];   /* the first use that a real driver would not forgive; "" = none */
	/* private */
	FakeQueue *queue;
} FakeDriver;

/* An H100-like device; fills the table. One fake driver at a time. Delays are those of the seed in the environment's
 * FAKE_CUDA_DELAYS, so that any test can be run with them. */
void fake_driver_start(FakeDriver *f, Driver *table);
void fake_driver_stop(FakeDriver *f); /* frees what the driver itself holds */
/* What a library does on the stream, of n bytes of params: a node where a capture is under way (true), else at once. */
bool fake_call_on_stream(void (*fn)(void *params), const void *params, size_t n);
uint64_t fake_delays(uint64_t seed); /* 0 = none */
bool fake_is_allocated(const void *at, size_t bytes); /* inside one device allocation */

#endif
