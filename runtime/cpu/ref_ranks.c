/* ref_ranks.c - what ranks that run a graph together compute for each other (artifacts/ranks.h).
 *
 * A collective reads its first operand on all ranks: RefCall.ranks. Alone, it reads its own, as one rank of one.
 */
#include "artifacts/peers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

static int n_ranks(const RefCall *c) { return c->n_ranks ? c->n_ranks : 1; }

static const float *part_of(const RefCall *c, int rank) { return c->n_ranks ? c->ranks[rank] : ref_floats(c, "part"); }

void ref_sum_ranks(const RefCall *c)
{
	const int64_t cols = ref_dim(c, "part", 1), n = ref_dim(c, "part", 0) * cols;
	float *z = ref_floats(c, "z");
	for (int64_t i = 0; i < n; i++) {
		float sum = part_of(c, 0)[i], bias = 0;
		for (int r = 1; r < n_ranks(c); r++)
			sum += part_of(c, r)[i];
		if (ref_has(c, "bias"))
			ref_convert(ref_arg(c, "bias"), i % cols, 1, &bias);
		z[i] = sum + bias;
	}
}

void ref_gather_ranks(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "part", 0), cols = ref_dim(c, "part", 1), ranks = n_ranks(c);
	for (int64_t t = 0; t < rows; t++)
		for (int r = 0; r < ranks; r++)
			memcpy(ref_floats(c, "z") + (t * ranks + r) * cols, part_of(c, r) + t * cols, sizeof(float) * (size_t)cols);
}

void ref_sum_peers(const RefCall *c)
{
	const int64_t n = ref_dim(c, "part", 0) * ref_dim(c, "part", 1);
	ref_sum_ranks(c);
	for (int64_t i = 0; ref_has(c, "residual") && i < n; i++)
		ref_floats(c, "z")[i] += ref_floats(c, "residual")[i];
}

/* On several ranks NCCL has made the sum. */
void ref_sum_nccl(const RefCall *c)
{
	RefCall own = *c;
	const int64_t n = ref_dim(c, "part", 0) * ref_dim(c, "part", 1);
	if (!ref_ints(c, "peers")[PEER_RANKS])
		memcpy(ref_floats(c, "sum"), ref_floats(c, "part"), sizeof(float) * (size_t)n);
	own.ranks = (const void *[]){ref_floats(c, "sum")};
	own.n_ranks = 1;
	ref_sum_peers(&own);
}

/* One rank alone has nothing of the others: its part takes their places. */
void ref_gather_peers(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "part", 0), cols = ref_dim(c, "part", 1);
	if (c->n_ranks) {
		ref_gather_ranks(c);
		return;
	}
	for (int64_t t = 0; t < rows * c->attrs.n_ranks; t++)
		memcpy(ref_floats(c, "z") + t * cols, ref_floats(c, "part") + t / c->attrs.n_ranks * cols,
			sizeof(float) * (size_t)cols);
}

/* On several ranks NCCL has put their parts into all. */
void ref_gather_nccl(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "part", 0), n = rows * ref_dim(c, "part", 1);
	const float *of[PLAN_MAX_RANKS];
	RefCall own = *c;
	for (int r = 0; r < c->attrs.n_ranks; r++) {
		float *all = ref_floats(c, "all") + r * n;
		if (!ref_ints(c, "peers")[PEER_RANKS])
			memcpy(all, ref_floats(c, "part"), sizeof(float) * (size_t)n);
		of[r] = all;
	}
	own.ranks = (const void **)of;
	own.n_ranks = c->attrs.n_ranks;
	ref_gather_ranks(&own);
}

void ref_own_experts(const RefCall *c)
{
	const int64_t n = ref_dim(c, "expert", 0) * ref_dim(c, "expert", 1), first = (int64_t)*ref_ints(c, "rank") *
		c->attrs.n_own;
	for (int64_t i = 0; i < n; i++) {
		const int64_t e = ref_ints(c, "expert")[i] - first;
		ref_ints(c, "own")[i] = e >= 0 && e < c->attrs.n_own ? (int32_t)e : -1;
	}
}

void ref_mean_squares(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++) {
		const float *x = ref_floats(c, "x") + t * cols;
		ref_floats(c, "y")[t] = (float)(ref_dot(x, x, cols) / (double)cols);
	}
}

void ref_norm_mean(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++) {
		const double mean = (double)ref_floats(c, "m")[t] / c->attrs.n_ranks;
		const double root = sqrt(mean + (double)c->attrs.eps);
		for (int64_t k = 0; k < cols; k++) {
			float w;
			ref_convert(ref_arg(c, "w"), k, 1, &w);
			ref_floats(c, "y")[t * cols + k] = (float)((double)ref_floats(c, "x")[t * cols + k] / root *
				(c->attrs.norm_one + (double)w));
		}
	}
}
