/* parallel.c - threads that live as long as one loop: starting one takes some 30 us, and loops take milliseconds. */
#include "artifacts/parallel.h"

#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, PIECE = 1 << 21 /* bytes, of what a thread brings in at a time */ };

static void work(Parallel *p)
{
	for (int64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n;)
		p->fn(p->ctx, i);
}

static void *work_in_thread(void *p)
{
	work(p);
	return NULL;
}

void parallel_start(Parallel *p, int64_t n, int most, ParallelFn *fn, void *ctx)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	p->fn = fn;
	p->ctx = ctx;
	p->n = n;
	atomic_init(&p->next, 0);
	most = most < PARALLEL_MOST ? most : PARALLEL_MOST;
	most = most < processors ? most : (int)processors;
	for (p->n_threads = 0; p->n_threads < most; p->n_threads++)
		if (pthread_create(&p->threads[p->n_threads], NULL, work_in_thread, p) != 0)
			break;
}

void parallel_wait(Parallel *p)
{
	work(p);
	for (int i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	p->n_threads = 0;
}

void parallel_run(int64_t n, int most, ParallelFn *fn, void *ctx)
{
	Parallel p;
	parallel_start(&p, n, most, fn, ctx);
	parallel_wait(&p);
}

static void touch(void *memory, int64_t item)
{
	for (int64_t at = 0; at < PIECE; at += PAGE)
		((volatile char *)memory)[item * PIECE + at] = 0;
}

void *parallel_memory(int64_t bytes)
{
	const int64_t pieces = bytes / PIECE + 1;
	void *memory = malloc((size_t)(pieces * PIECE));
	if (!memory)
		return NULL;
	parallel_run(pieces, PARALLEL_MOST, touch, memory);
	return memory;
}
