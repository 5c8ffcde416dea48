/* ref_attention.c - paged keys and values, and attention over them.
 *
 * Position p of slot s stands in page page_table[s, p / PAGE], line p % PAGE. A row sees the
 * positions up to its own. The split form, which GPUs use for decode, is here as well: each of
 * SPLITS runs of pages gives an unnormalised sum with its maximum, and the merge weighs them.
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

/* Positions first..end-1 of a slot under one query head: the maximum of the scaled scores, the sum
 * of exp(score - maximum), and in `sums` the values weighted by these exponentials. */
typedef struct Softmax {
	double max, sum;
} Softmax;
static Softmax attend(
	const RefCall *c, const float *q, int slot, int h, int64_t first, int64_t end, double *sums)
{
	int hdim = c->attrs.head_dim, kv_head = h / (c->attrs.n_heads / c->attrs.n_kv_heads);
	double *scores = sums + hdim;
	Softmax s = {-INFINITY, 0};

	for (int64_t p = first; p < end; p++) {
		scores[p - first] = (double)c->attrs.scale *
			ref_dot(q, ref_kv(c, 0, slot, p, kv_head), hdim);
		s.max = fmax(s.max, scores[p - first]);
	}
	for (int d = 0; d < hdim; d++)
		sums[d] = 0;
	for (int64_t p = first; p < end; p++) {
		const float *v = ref_kv(c, 1, slot, p, kv_head);
		double weight = exp(scores[p - first] - s.max);
		s.sum += weight;
		for (int d = 0; d < hdim; d++)
			sums[d] += weight * v[d];
	}
	return s;
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
			Softmax s = attend(c, ref_floats(c, "q") + at, slot, h, 0, end, sums);
			for (int d = 0; d < hdim; d++)
				o[d] = (float)(sums[d] / s.sum);
		}
}

/* Run i covers pages i * per to (i + 1) * per - 1 of those the row sees, per = ceil(pages /
 * SPLITS). */
void ref_attention_split(const RefCall *c)
{
	int64_t rows = ref_dim(c, "part", 0), splits = ref_dim(c, "part", 2);
	int n_heads = c->attrs.n_heads, hdim = c->attrs.head_dim, page = c->attrs.page;
	double *sums = c->scratch;

	for (int64_t i = 0; i < rows * n_heads * splits; i++) {
		int64_t t = i / splits / n_heads, h = i / splits % n_heads, run = i % splits;
		float *part = ref_floats(c, "part") + i * hdim, *ml = ref_floats(c, "part_ml") + i * 2;
		int slot = slot_of(c, t);
		int64_t length = slot < 0 ? 0 : ref_ints(c, "row_pos")[t] + 1,
				pages = (length + page - 1) / page;
		int64_t per = (pages + splits - 1) / splits * page, first = run * per;
		int64_t end = first + per < length ? first + per : length;

		memset(part, 0, (size_t)hdim * sizeof *part);
		ml[0] = -INFINITY;
		ml[1] = 0;
		if (first >= end)
			continue;
		const float *q = ref_floats(c, "q") + (t * n_heads + h) * hdim;
		Softmax s = attend(c, q, slot, (int)h, first, end, sums);
		for (int d = 0; d < hdim; d++)
			part[d] = (float)sums[d];
		ml[0] = (float)(s.max *
			1.4426950408889634); /* log2(e): exponentials are powers of two there */
		ml[1] = (float)s.sum;
	}
}

void ref_attention_merge(const RefCall *c)
{
	int64_t heads = ref_dim(c, "part", 0) * ref_dim(c, "part", 1), splits = ref_dim(c, "part", 2);
	int hdim = c->attrs.head_dim;

	for (int64_t i = 0; i < heads; i++) {
		const float *part = ref_floats(c, "part") + i * splits * hdim;
		const float *ml = ref_floats(c, "part_ml") + i * splits * 2;
		float *o = ref_floats(c, "o") + i * hdim;
		double max = -INFINITY, sum = 0;
		for (int64_t run = 0; run < splits; run++)
			max = fmax(max, ml[2 * run]);
		for (int64_t run = 0; run < splits; run++)
			sum += max > -INFINITY ? ml[2 * run + 1] * exp2(ml[2 * run] - max) : 0;
		for (int d = 0; d < hdim; d++) {
			double value = 0;
			for (int64_t run = 0; run < splits && sum > 0; run++)
				value += part[run * hdim + d] * exp2(ml[2 * run] - max);
			o[d] = sum > 0 ? (float)(value / sum) : 0;
		}
	}
}
