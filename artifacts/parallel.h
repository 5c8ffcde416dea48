/* parallel.h - a loop whose rounds are done by several threads, and the caller.
 *
 * Items are taken in ascending order and each is done once; who does it never shows in a result. Where no thread can
 * be had the caller does the work.
 */
#ifndef ATLAS_PARALLEL_H
#define ATLAS_PARALLEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { PARALLEL_MOST = 16 }; /* threads besides the caller */

typedef void ParallelFn(void *ctx, int64_t item);

typedef struct Parallel { /* private; stays where it is between start and wait */
	ParallelFn *fn;
	void *ctx;
	int64_t n;
	_Atomic int64_t next;
	pthread_t threads[PARALLEL_MOST];
	int n_threads;
} Parallel;

/* Begins items 0..n-1 on as many threads as there are processors, or `most` if that is less, and returns. */
void parallel_start(Parallel *p, int64_t n, int most, ParallelFn *fn, void *ctx);
/* Helps until all are done. */
void parallel_wait(Parallel *p);
/* Both. */
void parallel_run(int64_t n, int most, ParallelFn *fn, void *ctx);

/* Memory of that many bytes for free(), NULL = there is none. All threads bring its pages in: who copies gigabytes into
 * fresh pages alone mostly waits for these. */
void *parallel_memory(int64_t bytes);

#endif
