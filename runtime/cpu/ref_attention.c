/* ref_attention.c - paged keys and values, and attention over them.
 *
 * Position p of slot s is in page page_table[s, p / PAGE], line p % PAGE. A row sees the
 * positions up to its own, with WINDOW the last WINDOW of them, or those of its own chunk of WINDOW.
 * A sink is one score more, of a position whose value is
 * 0.
 *
 * A cache with kv_scale, or with kv_scale and kv_block, holds codes (ops.h). Here each is kept as the number that it
 * is worth, in f32 like everything else: what is written has been through the format, what is read is multiplied by its
 * scales.
 */
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

/* A key (which = 0) or value (1) of one position and kv head: HDIM floats, their scales. */
typedef struct Line {
	float *x;     /* HDIM */
	float *block; /* HDIM / NVFP4_GROUP; NULL where there are none */
	float scale;  /* 0 where there is none: the cache is kept as it comes */
} Line;

/* The cache of a call: its operands, found by name once and not for each line. */
typedef struct Cache {
	const int32_t *page_table; /* [slots, pages of a slot] */
	int64_t slot_pages, page, n_kv, hdim;
	float *kv, *block;         /* block NULL where there are none */
	const RefOperand *scale;   /* [2, n_kv]; its data NULL where there are none */
} Cache;

static Cache cache_of(const RefCall *c)
{
	return (Cache){.page_table = ref_ints(c, "page_table"), .slot_pages = ref_dim(c, "page_table", 1),
		.page = c->attrs.page, .n_kv = c->attrs.n_kv_heads, .hdim = c->attrs.head_dim, .kv = ref_floats(c, "kv"),
		.block = ref_floats(c, "kv_block"), .scale = ref_arg(c, "kv_scale")};
}

static Line line_of(const Cache *c, int which, int64_t slot, int64_t pos, int h)
{
	const int64_t pool_page = c->page_table[slot * c->slot_pages + pos / c->page];
	const int64_t line = ((pool_page * 2 + which) * c->n_kv + h) * c->page + pos % c->page;
	Line l = {c->kv + line * c->hdim, c->block ? c->block + line * (c->hdim / NVFP4_GROUP) : NULL, 0};
	if (c->scale->data)
		ref_convert(c->scale, which * c->n_kv + h, 1, &l.scale);
	return l;
}

static void write_line(const Line *to, const float *x, int hdim)
{
	if (to->scale == 0)
		memcpy(to->x, x, (size_t)hdim * sizeof *x);
	for (int i = 0; i < hdim && to->scale != 0; i++) {
		if (to->block && i % NVFP4_GROUP == 0)
			to->block[i / NVFP4_GROUP] = ref_group_scale(x + i, NVFP4_GROUP, to->scale);
		to->x[i] = to->block ? numbers_rounded(DT_e2m1, x[i] / (to->block[i / NVFP4_GROUP] * to->scale))
			: numbers_rounded(DT_e4m3, x[i] / to->scale);
	}
}

/* The line as it is meant, in `room` (HDIM) where it has scales. */
static const float *read_line(const Line *from, int hdim, float *room)
{
	if (from->scale == 0)
		return from->x;
	for (int i = 0; i < hdim; i++)
		room[i] = (from->block ? from->x[i] * from->block[i / NVFP4_GROUP] : from->x[i]) * from->scale;
	return room;
}

void ref_kv_write(const RefCall *c)
{
	const Cache cache = cache_of(c);
	const int32_t *row_pos = ref_ints(c, "row_pos");
	const float *keys = ref_floats(c, "k"), *values = ref_floats(c, "v");
	int64_t rows = ref_dim(c, "k", 0);
	int n_kv = c->attrs.n_kv_heads, hdim = c->attrs.head_dim;

	for (int64_t t = 0; t < rows; t++) {
		int slot = ref_row_slot(c, t), pos = row_pos[t];
		for (int h = 0; slot >= 0 && h < n_kv; h++) {
			int64_t at = (t * n_kv + h) * hdim;
			Line k = line_of(&cache, 0, slot, pos, h), v = line_of(&cache, 1, slot, pos, h);
			write_line(&k, keys + at, hdim);
			write_line(&v, values + at, hdim);
		}
	}
}

static float sink_of(const RefCall *c, int h)
{
	float sink = -INFINITY;
	if (ref_has(c, "sinks"))
		ref_convert(ref_arg(c, "sinks"), h, 1, &sink);
	return sink;
}

/* Positions begin..end-1 of a slot under query head h: in `sums` the values weighted by exp(score - largest score);
 * the weights' sum is returned. */
static double attend(const RefCall *c, const Cache *cache, const float *q, int slot, int h, int64_t begin, int64_t end,
	double *sums)
{
	int hdim = c->attrs.head_dim, kv_head = h / (c->attrs.n_heads / c->attrs.n_kv_heads);
	double *scores = sums + hdim, sink = (double)sink_of(c, h), max = sink, sum;
	float *room = (float *)(scores + cache->slot_pages * cache->page);

	for (int64_t p = begin; p < end; p++) {
		Line k = line_of(cache, 0, slot, p, kv_head);
		scores[p] = (double)c->attrs.scale * ref_dot(q, read_line(&k, hdim, room), hdim);
		max = fmax(max, scores[p]);
	}
	for (int d = 0; d < hdim; d++)
		sums[d] = 0;
	sum = sink > -INFINITY ? exp(sink - max) : 0;
	for (int64_t p = begin; p < end; p++) {
		Line line = line_of(cache, 1, slot, p, kv_head);
		const float *v = read_line(&line, hdim, room);
		double weight = exp(scores[p] - max);
		sum += weight;
		for (int d = 0; d < hdim; d++)
			sums[d] += weight * v[d];
	}
	return sum;
}

void ref_attention(const RefCall *c)
{
	const Cache cache = cache_of(c);
	const int32_t *row_pos = ref_ints(c, "row_pos");
	const float *queries = ref_floats(c, "q");
	float *outputs = ref_floats(c, "o");
	int64_t rows = ref_dim(c, "q", 0);
	int n_heads = c->attrs.n_heads, hdim = c->attrs.head_dim, parts = c->parts ? c->parts : 1;
	const int64_t window = c->attrs.window;
	/* one head's sums, scores of all positions of a slot, one key or value */
	double *sums = ref_take(c, sizeof(double) * (size_t)(hdim + cache.slot_pages * cache.page) +
		sizeof(float) * (size_t)hdim);

	for (int64_t t = 0; t < rows && sums; t++)
		for (int h = n_heads * c->part / parts; h < n_heads * (c->part + 1) / parts; h++) {
			int64_t at = (t * n_heads + h) * hdim;
			float *o = outputs + at;
			int slot = ref_row_slot(c, t);
			memset(o, 0, (size_t)hdim * sizeof *o);
			if (slot < 0)
				continue;
			int64_t end = row_pos[t] + 1, begin = window && window < end ? end - window : 0;
			if (window && c->attrs.chunked)
				begin = row_pos[t] / window * window;
			double sum = attend(c, &cache, queries + at, slot, h, begin, end, sums);
			for (int d = 0; d < hdim; d++)
				o[d] = (float)(sums[d] / sum);
		}
}
