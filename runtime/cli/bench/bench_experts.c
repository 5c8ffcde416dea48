/* bench_experts.c - how many experts a step really reads.
 *
 * A step reads the weights of each expert that some of its rows chose, once; how many these are only the routing knows.
 * So right before and right after the measured steps of a row, outside of its time, a few steps of the very same
 * sequences halt after each launch that routes, and the ids that it wrote are counted: on a GPU by the halts of atlas
 * verify, on the reference device, where each tensor has a place of its own, after the step. Kernels, inputs and
 * tokens are those of any other step. Rows in use alone count. Prompts are looked at in one more of the same length.
 */
#include "runtime/cli/bench/bench.h"
#include "artifacts/op_table.h"
#include "runtime/cuda.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 1 << 16 };

static int out_named_expert(OpKind op)
{
	const int k = op_operand(op, "expert");
	return k >= 0 && op_table[op].operands[k].role == OPERAND_OUT ? k : -1;
}

/* Does this graph have experts, and if so how many a layer and a row? */
bool bench_has_experts(const Graph *g, int *of, int *each)
{
	*of = *each = 0;
	for (int i = 0; i < g->n_ops; i++) {
		const int k = out_named_expert(g->ops[i].kind), logits = op_operand(g->ops[i].kind, "logits");
		if (k < 0 || logits < 0)
			continue;
		*of = (int)g->tensors[g->ops[i].operands[logits]].shape[1];
		*each = (int)g->tensors[g->ops[i].operands[k]].shape[1];
	}
	return *of > 0;
}

static void count(Experts *e, bool is_head, const int32_t *ids, int64_t n)
{
	static const uint64_t one = 1;
	uint64_t seen[MOST_EXPERTS / 64] = {0};
	int64_t distinct = 0;
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] < 0 || ids[i] >= MOST_EXPERTS || seen[ids[i] / 64] >> ids[i] % 64 & 1)
			continue;
		seen[ids[i] / 64] |= one << ids[i] % 64;
		distinct++;
	}
	e->distinct[is_head] += (double)distinct;
	e->layers[is_head]++;
}

/* On a GPU ------------------------------------------------------------------------------------------------ */

typedef struct Look { Bench *b; Experts *experts; } Look;

static AtlasStatus look(void *ctx, const Phase *p, const Launch *l, const int32_t *step, bool is_after)
{
	const Look *at = ctx;
	const int k = is_after ? out_named_expert(l->op) : -1;
	if (p->kind > VERIFY || k < 0)
		return ATLAS_OK;
	for (int i = 0; i < l->n_args; i++) {
		const Buf *buf = l->args[i].operand == k && l->args[i].buf >= 0 ? &p->bufs[l->args[i].buf] : NULL;
		if (!buf)
			continue;
		int32_t *ids = malloc((size_t)buf->bytes);
		if (!ids)
			return ATLAS_NO_MEMORY;
		const AtlasStatus s = cuda_read_bytes(session_device(at->b->session), buf, (uint8_t *)ids);
		if (s == ATLAS_OK)
			count(at->experts, l->layer >= at->b->graph->n_layers, ids, step[0] * buf->shape[1]);
		free(ids);
		return s;
	}
	return ATLAS_OK;
}

/* On the reference device --------------------------------------------------------------------------------- */

/* What the step before left; rows: of it, and of its drafts. */
static void read_routes(Bench *b, Experts *e, int phases, int rows, int head_rows)
{
	Device *d = session_device(b->session);
	for (int i = 0; i < b->graph->n_ops; i++) {
		const GraphOp *op = &b->graph->ops[i];
		const int k = out_named_expert(op->kind);
		if (k < 0 || !(op->phases & phases))
			continue;
		const Tensor *t = &b->graph->tensors[op->operands[k]];
		const bool is_head = op->layer >= b->graph->n_layers;
		const int64_t n = (is_head ? head_rows : rows) * t->shape[1];
		float *values = malloc(sizeof *values * (size_t)n);
		int32_t *ids = malloc(sizeof *ids * (size_t)n);
		if (values && ids && d->ops->read(d, t->name, 0, n, values) == ATLAS_OK) {
			for (int64_t v = 0; v < n; v++)
				ids[v] = (int32_t)values[v];
			count(e, is_head, ids, n);
		}
		free(values);
		free(ids);
	}
}

/* Samples --------------------------------------------------------------------------------------------------- */

int bench_sample_tokens(const Bench *b, const BenchRow *row)
{
	int of, each;
	if (!bench_has_experts(b->graph, &of, &each))
		return 0;
	const int most = bench_rows_each(b, row);
	return (BENCH_SAMPLED + session_device(b->session)->limits.ahead) * most;
}

/* Halting steps from here on; NULL phase: none. */
static void halt(Bench *b, Look *at, const Phase *p)
{
	cuda_halt(session_device(b->session), p ? look : NULL, p ? at : NULL, p ? (int)(p - b->target->phases) : -1);
}

int bench_sample_flight(Bench *b, BenchRow *row, bool *ended)
{
	const bool drafts = row->kind == ROW_SPECULATE;
	const int each = bench_rows_each(b, row), rows = row->batch * each, tokens = bench_sample_tokens(b, row);
	const Phase *p = phase_for(b->target, drafts ? VERIFY : DECODE, rows, rows, drafts ? each : 0);
	Look at = {b, &row->experts};
	int code = 0;
	*ended = false;
	if (!tokens || (b->target && !p))
		return 0;
	if (p) {
		halt(b, &at, p);
		code = bench_steps(b, row->batch, tokens, ended);
		halt(b, NULL, NULL);
		return code;
	}
	for (int i = 0; i < BENCH_SAMPLED && !code && !*ended; i++) {
		code = bench_steps(b, row->batch, 1, ended);
		read_routes(b, &row->experts, PHASE_DECODE | PHASE_VERIFY | PHASE_DRAFT, rows, row->batch);
	}
	return code;
}

int bench_sample_prompt(Bench *b, BenchRow *row)
{
	int of, each;
	bool ended;
	const Phase *p = phase_for(b->target, PREFILL, b->device.prefill_rows, 1, 0);
	Look at = {b, &row->experts};
	if (!bench_has_experts(b->graph, &of, &each) || !p)
		return 0;
	int code = bench_start(b, 1, row->tokens, 1);
	halt(b, &at, p);
	if (!code)
		code = bench_steps(b, 1, 1, &ended);
	halt(b, NULL, NULL);
	return code;
}

double bench_experts(const Bench *b, const Experts *e, bool is_head, int rows)
{
	int of, each;
	if (!bench_has_experts(b->graph, &of, &each))
		return 0;
	if (e->layers[is_head])
		return e->distinct[is_head] / (double)e->layers[is_head];
	return (double)rows * each < of ? rows * each : of;
}
