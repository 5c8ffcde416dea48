/* cuda_weights.c - through two pinned buffers: one is filled from the mapped file while the other is copied.
 *
 * A single thread copies from the page cache at 5 to 10 GB/s, a fifth of what the bus takes; so several fill one buffer
 * together, by calls that read the file: page faults of the mapping would cost more than the copy, and a file that is
 * cut meanwhile is an error, no signal. Weights that are made at open are made in the buffers, so that no more than
 * these is ever on the host.
 */
#include "runtime/cuda_weights.h"
#include "artifacts/random_weights.h"
#include "artifacts/tree.h"
#include "runtime/cpu/pool.h"
#include "runtime/plan_file.h"

#include <stdatomic.h>
#include <string.h>

enum {
	PAGE = 4096,
	WORTH_THREADS = 1 << 20, /* least bytes of a piece for which waking them pays */
};

typedef struct Piece {
	uint8_t *to;
	const uint8_t *from;
	int64_t n;
	const Artifact *compare; /* NULL = not at all */
	const WeightRoad *road;
	const Weight *of;
	int weight;
	int64_t at; /* in the weight */
	atomic_bool differs;
} Piece;

static void copy_part(void *ctx, int part, int parts)
{
	Piece *p = ctx;
	int64_t unit = p->compare ? TREE_LEAF_BYTES : PAGE;
	int64_t share = (p->n + parts * unit - 1) / (parts * unit) * unit, first = share * part; /* n / parts, rounded up */
	int64_t n = p->n - first < share ? p->n - first : share;
	if (n <= 0)
		return;
	if (p->of->made) {
		random_bytes(p->road->random, p->of, p->road->seed, p->at + first, p->to + first, (size_t)n);
		return;
	}
	const bool is_copied = plan_files_copy(p->road->files, p->from + first, p->to + first, (size_t)n);
	/* What was copied is compared, not the file, which may change meanwhile. */
	if (!is_copied || (p->compare && !artifact_leaves_hold(p->compare, p->weight, p->at + first, p->to + first, n)))
		atomic_store(&p->differs, true);
}

static CuResult load(const WeightRoad *r, const Graph *g, const uint8_t *const *bytes, Pool *pool, const char **call,
	const char **about)
{
	CuResult result;
	int side = 0;
	for (int i = 0; i < g->n_weights; i++) {
		const Weight *w = &g->weights[i];
		*about = w->name;
		for (int64_t at = 0; at < w->bytes; at += r->stage_bytes, side ^= 1) {
			int64_t left = w->bytes - at, n = left < r->stage_bytes ? left : r->stage_bytes;
			const bool is_hashed = !w->made && bytes[i] != r->unhashed;
			Piece piece = {r->stage[side], w->made ? NULL : bytes[i] + at, n, is_hashed ? r->compare : NULL, r, w, i,
				at, false};
			*call = "cuEventSynchronize";
			if ((result = r->cu->EventSynchronize(r->staged[side])) != CU_SUCCESS)
				return result;
			if (pool && n >= WORTH_THREADS)
				pool_run(pool, copy_part, &piece);
			else
				copy_part(&piece, 0, 1);
			if (atomic_load(&piece.differs)) {
				*call = NULL;
				return CU_SUCCESS;
			}
			*call = "cuMemcpyHtoDAsync";
			if ((result = r->cu->MemcpyHtoDAsync(r->arena + (CuPtr)(w->offset + at), piece.to, (size_t)n, r->stream)))
				return result;
			*call = "cuEventRecord";
			if ((result = r->cu->EventRecord(r->staged[side], r->stream)) != CU_SUCCESS)
				return result;
		}
	}
	*call = "cuStreamSynchronize";
	*about = "weights";
	return r->cu->StreamSynchronize(r->stream);
}

CuResult cuda_load_weights(const WeightRoad *road, const Graph *g, const uint8_t *const *bytes, const char **call,
	const char **about)
{
	bool is_worth = false;
	for (int i = 0; i < g->n_weights; i++)
		is_worth |= g->weights[i].bytes >= WORTH_THREADS;
	Pool *pool = is_worth && road->threads > 1 ? pool_open(road->threads) : NULL;
	CuResult r = load(road, g, bytes, pool, call, about);
	pool_close(pool);
	return r;
}
