/* cuda_weights.c - through two pinned buffers: one is filled from the mapped file while the other is copied.
 *
 * A single thread copies from the page cache at 5 to 10 GB/s, a fifth of what the bus takes; so several fill one buffer
 * together, by calls that read the file: page faults of the mapping would cost more than the copy, and a file that is
 * cut meanwhile is an error, no signal. Weights that are made at open are made in the buffers, so that no more than
 * these is ever on the host.
 */
#include "runtime/cuda_weights.h"
#include "artifacts/random_weights.h"
#include "artifacts/ranks.h"
#include "artifacts/tree.h"
#include "runtime/cpu/pool.h"
#include "runtime/plan_file.h"

#include <stdatomic.h>
#include <string.h>

enum {
	PAGE = 4096,
	WORTH_THREADS = 1 << 20, /* least bytes of a piece for which waking them pays */
};

/* What a stage is filled with: bytes at, at + n of a weight, or of a rank's part of a tensor. */
typedef struct Piece {
	uint8_t *to;
	int64_t at, n;
	const WeightRoad *road;
	const Graph *g;
	const uint8_t *const *bytes; /* of all weights */
	const Artifact *compare; /* NULL = not at all */
	int weight;
	const Ranks *ranks;      /* of a part: NULL = a weight */
	int rank;
	const Tensor *tensor;
	const Cut *cut;          /* NULL = it is whole */
	atomic_bool differs;
} Piece;

/* Bytes [at, at + n) of a weight. */
static bool copy_weight(const Piece *p, int weight, int64_t at, int64_t n, uint8_t *to)
{
	const Weight *w = &p->g->weights[weight];
	if (!w->made)
		return plan_files_copy(p->road->files, p->bytes[weight] + at, to, (size_t)n);
	random_bytes(p->road->random, w, p->road->seed, at, to, (size_t)n);
	return true;
}

/* Bytes [at, at + n) of a tensor as it is in the file, whose weights follow each other. */
static bool copy_whole(const Piece *p, int64_t at, int64_t n, uint8_t *to)
{
	bool good = true;
	int w = p->tensor->weight;
	for (; at >= p->g->weights[w].bytes; w++)
		at -= p->g->weights[w].bytes;
	for (; n > 0 && good; w++, at = 0) {
		const int64_t left = p->g->weights[w].bytes - at, part = n < left ? n : left;
		good = copy_weight(p, w, at, part, to);
		to += part;
		n -= part;
	}
	return good;
}

/* Bytes [at, at + n) of the rank's part. Runs repeat, so the range in which `at` lies is found by division. */
static bool copy_of_part(const Piece *p, int64_t at, int64_t n, uint8_t *to)
{
	if (!p->cut)
		return copy_whole(p, at, n, to);
	int64_t round = 0;
	for (int k = 0; k < p->cut->n_runs; k++)
		round += ranks_range(p->ranks, p->tensor, p->cut, p->rank, k).bytes;
	int64_t i = at / round * p->cut->n_runs;
	bool good = true;
	at %= round;
	for (; n > 0 && good; i++) {
		const CutRange r = ranks_range(p->ranks, p->tensor, p->cut, p->rank, i);
		if (at >= r.bytes) {
			at -= r.bytes;
			continue;
		}
		const int64_t part = n < r.bytes - at ? n : r.bytes - at;
		good = copy_whole(p, r.from + at, part, to);
		to += part;
		n -= part;
		at = 0;
	}
	return good;
}

static void copy_part(void *ctx, int part, int parts)
{
	Piece *p = ctx;
	int64_t unit = p->compare ? TREE_LEAF_BYTES : PAGE;
	int64_t share = (p->n + parts * unit - 1) / (parts * unit) * unit, first = share * part; /* n / parts, rounded up */
	int64_t n = p->n - first < share ? p->n - first : share;
	if (n <= 0)
		return;
	const bool is_copied = p->ranks ? copy_of_part(p, p->at + first, n, p->to + first)
		: copy_weight(p, p->weight, p->at + first, n, p->to + first);
	/* What was copied is compared, not the file, which may change meanwhile. */
	if (!is_copied || (p->compare && !artifact_leaves_hold(p->compare, p->weight, p->at + first, p->to + first, n)))
		atomic_store(&p->differs, true);
}

/* All pieces of a weight or a part, to its offset in the arena. *side: the stage that is next. */
static CuResult send(Piece *p, int64_t bytes, int64_t offset, Pool *pool, int *side, const char **call)
{
	const WeightRoad *r = p->road;
	CuResult result;
	for (p->at = 0; p->at < bytes; p->at += p->n, *side ^= 1) {
		const int64_t left = bytes - p->at;
		p->n = left < r->stage_bytes ? left : r->stage_bytes;
		p->to = r->stage[*side];
		*call = "cuEventSynchronize";
		if ((result = r->cu->EventSynchronize(r->staged[*side])) != CU_SUCCESS)
			return result;
		if (pool && p->n >= WORTH_THREADS)
			pool_run(pool, copy_part, p);
		else
			copy_part(p, 0, 1);
		if (atomic_load(&p->differs)) {
			*call = NULL;
			return CU_SUCCESS;
		}
		*call = "cuMemcpyHtoDAsync";
		if ((result = r->cu->MemcpyHtoDAsync(r->arena + (CuPtr)(offset + p->at), p->to, (size_t)p->n, r->stream)))
			return result;
		*call = "cuEventRecord";
		if ((result = r->cu->EventRecord(r->staged[*side], r->stream)) != CU_SUCCESS)
			return result;
	}
	return CU_SUCCESS;
}

static CuResult load(const WeightRoad *r, const Graph *g, const uint8_t *const *bytes, Pool *pool, const char **call,
	const char **about)
{
	int side = 0;
	for (int i = 0; i < g->n_weights; i++) {
		const Weight *w = &g->weights[i];
		const bool is_hashed = !w->made && bytes[i] != r->unhashed;
		Piece piece = {.road = r, .g = g, .bytes = bytes, .compare = is_hashed ? r->compare : NULL, .weight = i};
		*about = w->name;
		const CuResult result = send(&piece, w->bytes, w->offset, pool, &side, call);
		if (result != CU_SUCCESS || !*call)
			return result;
	}
	*call = "cuStreamSynchronize";
	*about = "weights";
	return r->cu->StreamSynchronize(r->stream);
}

static CuResult load_parts(const WeightRoad *r, const Artifact *a, const Graph *view, int rank,
	const uint8_t *const *bytes, Pool *pool, const char **call, const char **about)
{
	int side = 0;
	for (int i = 0; i < a->graph.n_tensors; i++) {
		const Tensor *t = &a->graph.tensors[i];
		if (t->role != ROLE_WEIGHT)
			continue;
		const Weight *w = &view->weights[view->tensors[i].weight];
		Piece piece = {.road = r, .g = &a->graph, .bytes = bytes, .ranks = &a->ranks, .rank = rank, .tensor = t,
			.cut = ranks_cut(&a->ranks, i)};
		*about = w->name;
		const CuResult result = send(&piece, w->bytes, w->offset, pool, &side, call);
		if (result != CU_SUCCESS || !*call)
			return result;
	}
	*call = "cuStreamSynchronize";
	*about = "weights";
	return r->cu->StreamSynchronize(r->stream);
}

static Pool *pool_for(const WeightRoad *road, const Graph *g)
{
	bool is_worth = false;
	for (int i = 0; i < g->n_weights; i++)
		is_worth |= g->weights[i].bytes >= WORTH_THREADS;
	return is_worth && road->threads > 1 ? pool_open(road->threads) : NULL;
}

CuResult cuda_load_weights(const WeightRoad *road, const Graph *g, const uint8_t *const *bytes, const char **call,
	const char **about)
{
	Pool *pool = pool_for(road, g);
	CuResult r = load(road, g, bytes, pool, call, about);
	pool_close(pool);
	return r;
}

CuResult cuda_load_parts(const WeightRoad *road, const Artifact *a, int rank, const uint8_t *const *bytes,
	const char **call, const char **about)
{
	Graph view;
	*call = *about = "";
	if (!ranks_view(&a->graph, &a->ranks, &view))
		return CU_OUT_OF_MEMORY;
	Pool *pool = pool_for(road, &view);
	CuResult r = load_parts(road, a, &view, rank, bytes, pool, call, about);
	pool_close(pool);
	ranks_view_free(&view);
	return r;
}
