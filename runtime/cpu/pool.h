/* pool.h - a few threads that run the parts of one job at a time; inside runtime/cpu only.
 *
 * The caller is the first worker. A job's parts are fixed, so which thread runs what never shows in a
 * result.
 */
#ifndef ATLAS_POOL_H
#define ATLAS_POOL_H

#include <stdbool.h>

typedef struct Pool Pool;
typedef void PoolFn(void *ctx, int part, int parts);

Pool *pool_open(int threads); /* 1 to 64 with the caller; NULL when the system refuses */
int pool_threads(const Pool *pool);
void pool_run(
	Pool *pool, PoolFn *fn, void *ctx); /* fn once for each part; returns when all are done */
void pool_close(Pool *pool); /* NULL is fine */

#endif
