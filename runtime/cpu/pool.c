/* pool.c - a barrier before each job and one after it. */
#include "runtime/cpu/pool.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_THREADS = 64 };

typedef struct Worker {
	Pool *pool;
	int part;
	pthread_t thread;
} Worker;

struct Pool {
	pthread_mutex_t lock;
	pthread_cond_t begin, end;
	unsigned job; /* counts jobs; a worker runs each number once */
	int running; /* workers still busy with it */
	bool closing;
	PoolFn *fn;
	void *ctx;
	int threads, started; /* the caller is part 0 and has no Worker */
	Worker workers[MAX_THREADS];
};

static void *work(void *arg)
{
	Worker *w = arg;
	Pool *p = w->pool;
	unsigned done = 0;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (p->job == done && !p->closing)
			pthread_cond_wait(&p->begin, &p->lock);
		if (p->closing)
			break;
		done = p->job;
		pthread_mutex_unlock(&p->lock);
		p->fn(p->ctx, w->part, p->threads);
		pthread_mutex_lock(&p->lock);
		if (--p->running == 0)
			pthread_cond_signal(&p->end);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

Pool *pool_open(int threads)
{
	Pool *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->begin, NULL);
	pthread_cond_init(&p->end, NULL);
	for (int i = 1; i < p->threads; i++) {
		Worker *w = &p->workers[i];
		*w = (Worker){.pool = p, .part = i};
		if (pthread_create(&w->thread, NULL, work, w) != 0) {
			pool_close(p);
			return NULL;
		}
		p->started = i;
	}
	return p;
}

int pool_threads(const Pool *p) { return p->threads; }

void pool_run(Pool *p, PoolFn *fn, void *ctx)
{
	pthread_mutex_lock(&p->lock);
	p->fn = fn;
	p->ctx = ctx;
	p->running = p->threads - 1;
	p->job++;
	pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);
	fn(ctx, 0, p->threads);
	pthread_mutex_lock(&p->lock);
	while (p->running > 0)
		pthread_cond_wait(&p->end, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void pool_close(Pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);
	for (int i = 1; i <= p->started; i++)
		pthread_join(p->workers[i].thread, NULL);
	pthread_cond_destroy(&p->begin);
	pthread_cond_destroy(&p->end);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
