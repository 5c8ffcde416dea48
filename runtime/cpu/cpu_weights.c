#include "runtime/cpu/cpu_weights.h"
#include "artifacts/parallel.h"
#include "artifacts/random_weights.h"

#include <stdlib.h>
#include <unistd.h>

enum { UNIT = 4096 /* bytes: whole elements of every dtype */ };

typedef struct Making { const DeviceConfig *config; const Weight *of; uint8_t *to; } Making;

static void make_part(void *ctx, int part, int parts)
{
	const Making *m = ctx;
	const int64_t units = (m->of->bytes + UNIT - 1) / UNIT;
	const int64_t first = units * part / parts * UNIT, next = units * (part + 1) / parts * UNIT;
	const int64_t end = next < m->of->bytes ? next : m->of->bytes;
	if (end > first)
		random_bytes(m->config->random, m->of, m->config->seed, first, m->to + first, (size_t)(end - first));
}

AtlasStatus cpu_make_weights(const DeviceConfig *config, Pool *pool, const uint8_t **weights, uint8_t **made,
	AtlasError *error)
{
	const Graph *g = &config->artifact->graph;
	int64_t from = g->weight_arena_bytes;
	*made = NULL;
	for (int i = 0; i < g->n_weights; i++)
		if (g->weights[i].made && g->weights[i].offset < from)
			from = g->weights[i].offset;
	const int64_t bytes = g->weight_arena_bytes - from;
	const int64_t host = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	if (bytes > 0 && (bytes > host || !(*made = parallel_memory(bytes))))
		return error_set(error, ATLAS_NO_MEMORY, "the plan's weights are made at open: %.1f GiB, the host has %.1f",
			(double)bytes / 0x1p30, (double)host / 0x1p30);
	for (int i = 0; i < g->n_weights; i++)
		if (g->weights[i].made) {
			Making m = {config, &g->weights[i], *made + (g->weights[i].offset - from)};
			pool_run(pool, make_part, &m);
			weights[i] = m.to;
		}
	return ATLAS_OK;
}
