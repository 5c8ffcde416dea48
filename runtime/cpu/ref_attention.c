/* ref_attention.c - paged keys and values, and attention over them.
 *
 * Position p of slot s stands in page page_table[s, p / PAGE], line p % PAGE. A row sees the
 * positions up to its own.
 */
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

float *ref_kv(const RefCall *c, int which, int64_t slot, int64_t pos, int h)
{
	int64_t page = c->attrs.page, n_kv = c->attrs.n_kv_heads;
	int64_t pool_page = ref_ints(c, "page_table")[slot * ref_dim(c, "page_table", 1) + pos / page];
	int64_t line = ((pool_page * 2 + which) * n_kv + h) * page + pos % page;
	return ref_floats(c, "kv") + line * c->attrs.head_dim;
}

/* The slot of row t; -1 when the row is idle. */
static int slot_of(const RefCall *c, int64_t t)
{ return t < ref_ints(c, "step")[0] ? ref_ints(c, "row_slot")[t] : -1; }

void ref_kv_write(const RefCall *c)
{
	int64_t rows = ref_dim(c, "k", 0), hdim = c->attrs.head_dim;
	int n_kv = c->attrs.n_kv_heads;

	for (int64_t t = 0; t < rows; t++) {
		int slot = slot_of(c, t), pos = ref_ints(c, "row_pos")[t];
		for (int h = 0; slot >= 0 && h < n_kv; h++) {
			int64_t at = (t * n_kv + h) * hdim;
			memcpy(
				ref_kv(c, 0, slot, pos, h), ref_floats(c, "k") + at, (size_t)hdim * sizeof(float));
			memcpy(
				ref_kv(c, 1, slot, pos, h), ref_floats(c, "v") + at, (size_t)hdim * sizeof(float));
		}
	}
}

/* Positions 0..end-1 of a slot under one query head: in `sums` the values weighted by exp(score - largest score);
 * the weights' sum is returned. */
static double attend(const RefCall *c, const float *q, int slot, int h, int64_t end, double *sums)
{
	int hdim = c->attrs.head_dim, kv_head = h / (c->attrs.n_heads / c->attrs.n_kv_heads);
	double *scores = sums + hdim, max = -INFINITY, sum = 0;

	for (int64_t p = 0; p < end; p++) {
		scores[p] = (double)c->attrs.scale * ref_dot(q, ref_kv(c, 0, slot, p, kv_head), hdim);
		max = fmax(max, scores[p]);
	}
	for (int d = 0; d < hdim; d++)
		sums[d] = 0;
	for (int64_t p = 0; p < end; p++) {
		const float *v = ref_kv(c, 1, slot, p, kv_head);
		double weight = exp(scores[p] - max);
		sum += weight;
		for (int d = 0; d < hdim; d++)
			sums[d] += weight * v[d];
	}
	return sum;
}

void ref_attention(const RefCall *c)
{
	int64_t rows = ref_dim(c, "q", 0);
	int n_heads = c->attrs.n_heads, hdim = c->attrs.head_dim, parts = c->parts ? c->parts : 1;
	double *sums = c->scratch;

	for (int64_t t = 0; t < rows; t++)
		for (int h = n_heads * c->part / parts; h < n_heads * (c->part + 1) / parts; h++) {
			int64_t at = (t * n_heads + h) * hdim;
			float *o = ref_floats(c, "o") + at;
			int slot = slot_of(c, t);
			memset(o, 0, (size_t)hdim * sizeof *o);
			if (slot < 0)
				continue;
			int64_t end = ref_ints(c, "row_pos")[t] + 1;
			double sum = attend(c, ref_floats(c, "q") + at, slot, h, end, sums);
			for (int d = 0; d < hdim; d++)
				o[d] = (float)(sums[d] / sum);
		}
}
