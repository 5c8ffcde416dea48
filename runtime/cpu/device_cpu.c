/* device_cpu.c - the reference device: executes the graph itself, op by op, in float32.
 *
 * It knows nothing of plans for GPUs. A step is the list of graph ops of its phase, in order, each
 * handed to ref_op with the step's own row count. Every tensor has a place of its own for the whole
 * life of the device, in one block taken at opening; weights are used where they are mapped. The
 * cache is paged as the graph says, in float32. Nothing is fused, nothing is rounded to bf16 but a
 * state of Gated DeltaNet that is asked for in it: what a GPU yields is measured against this.
 *
 * Where several ranks run the graph, this is all of them: each has tensors of its own, and op after op is executed on
 * rank 0, then 1, ..., so that collectives find what all ranks gave. The session writes to rank 0 and reads from it.
 */
#include "artifacts/memory.h"
#include "artifacts/ranks.h"
#include "artifacts/rolling.h"
#include "artifacts/seconds.h"
#include "runtime/cpu/cpu_weights.h"
#include "runtime/cpu/pool.h"
#include "runtime/cpu/ref_check.h"
#include "runtime/cpu/ref_ops.h"
#include "runtime/device.h"
#include "runtime/plan_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PREFILL_ROWS = 64, /* of a step: enough to share each converted stretch of weights */
	ALIGN = 64, /* of tensors, bytes */
	MANY = 32768, /* elements of an op's operands that make threads worth while */
};

#define CHANGED "a file of the plan was written to, or cut, after it was opened"

typedef struct CpuDevice {
	Device base;
	const Graph *graph;
	const Ranks *ranks;
	int rank, n_all; struct CpuDevice *all[PLAN_MAX_RANKS]; /* of rank 0: those of all ranks, itself the first */
	int most_rows; /* of any step, and outs */
	RefOperand *tensors; /* [graph.n_tensors], with shapes of the largest step */
	Pool *pool; /* this, made and weights are rank 0's */
	char *memory; /* all tensors but weights */
	const PlanFiles *files; /* that they are mapped from; NULL = memory */
	const uint8_t **weights; /* [graph.n_weights] where the bytes of each are */
	uint8_t *made; /* weights that were made, NULL = none were */
	char *paged; /* [graph->n_tensors] 1: it has pages of the pool */
	Rolling rolling;
	RefOperand *page_table, *counts, *masks, *masks_later, *slot_draft, *slot_token;
	float *snapshots; /* [graph->snapshots, snapshot_floats] */
	size_t snapshot_floats;
	uint8_t *gathered; /* weights of one tensor, or of a rank's part of it, that lie apart where they are mapped */
	size_t gathered_bytes;
	char *scratch; /* one piece a thread */
	size_t scratch_bytes; /* of one piece */
} CpuDevice;

/* Size of dim i of a tensor in a step of that many rows and outs. */
static int64_t dim_of(const Tensor *t, int i, int64_t rows, int64_t outs)
{
	return t->shape[i] == DIM_ROWS ? rows : t->shape[i] == DIM_OUTS ? outs : t->shape[i];
}

static RefOperand operand(const CpuDevice *d, int tensor, int64_t rows, int64_t outs)
{
	if (tensor < 0)
		return (RefOperand){0};
	RefOperand r = d->tensors[tensor];
	for (int i = 0; i < r.n_dims; i++)
		r.shape[i] = dim_of(&d->graph->tensors[tensor], i, rows, outs);
	return r;
}

static RefCall call_of(const CpuDevice *d, const GraphOp *op, int64_t rows, int64_t outs)
{
	RefCall c = {.op = op->kind, .attrs = op->attrs};
	for (int i = 0; i < op_table[op->kind].n_operands; i++)
		c.operand[i] = operand(d, op->operands[i], rows, outs);
	return c;
}

/* Steps ------------------------------------------------------------ */

typedef struct Job {
	const CpuDevice *d;
	RefCall call;
} Job;

static void run_part(void *ctx, int part, int parts)
{
	const Job *job = ctx;
	RefCall c = job->call;
	c.part = part;
	c.parts = parts;
	c.scratch = job->d->scratch + (size_t)part * job->d->scratch_bytes;
	ref_op(&c);
}

/* Waking the threads takes some 10 us: not for an op that touches less than that. */
static bool is_worth_parts(const RefCall *c)
{
	int64_t elements = 0;
	for (int i = 0; i < op_table[c->op].n_operands; i++) {
		int64_t n = c->operand[i].data != NULL;
		for (int k = 0; k < c->operand[i].n_dims; k++)
			n *= c->operand[i].shape[k];
		elements += n;
	}
	return op_table[c->op].traits & OP_PARTS && elements >= MANY;
}

/* On all ranks. */
static void run_op(CpuDevice *d, const GraphOp *op, const StepSize *size)
{
	const void *parts[PLAN_MAX_RANKS];
	for (int r = 0; r < d->n_all; r++)
		parts[r] = d->all[r]->tensors[op->operands[0]].data;
	for (int r = 0; r < d->n_all; r++) {
		Job job = {d->all[r], call_of(d->all[r], op, size->rows, size->outs)};
		if (is_collective(op->kind)) {
			job.call.ranks = parts;
			job.call.n_ranks = d->n_all;
		}
		if (is_worth_parts(&job.call))
			pool_run(d->pool, run_part, &job);
		else
			run_part(&job, 0, 1);
	}
}

static size_t bytes_of(const RefOperand *r)
{
	size_t bytes = 4;
	for (int k = 0; k < r->n_dims; k++)
		bytes *= (size_t)r->shape[k];
	return bytes;
}

/* What rank 0 has of a tensor that is whole becomes that of all. */
static void share(CpuDevice *d, int tensor)
{
	for (int r = 1; r < d->n_all; r++)
		memcpy(d->all[r]->tensors[tensor].data, d->tensors[tensor].data, bytes_of(&d->tensors[tensor]));
}

static bool is_rank(const Tensor *t) { return strcmp(t->name, "rank") == 0; }

static void share_inputs(CpuDevice *d)
{
	for (int t = 0; t < d->graph->n_tensors && d->n_all > 1; t++)
		if (d->graph->tensors[t].role == ROLE_INPUT && !is_rank(&d->graph->tensors[t]))
			share(d, t);
}

/* All ranks have drawn the same: they computed it each for itself. */
static AtlasStatus compare_tokens(CpuDevice *d)
{
	for (int r = 1; r < d->n_all; r++)
		if (memcmp(d->all[r]->slot_token->data, d->slot_token->data, bytes_of(d->slot_token)) != 0)
			return error_set(&d->base.error, ATLAS_DEVICE_FAULT, "rank %d has drawn other tokens than rank 0", r);
	return ATLAS_OK;
}

/* Index of the op after i that runs in the phase; n_ops when there is none. */
static int next_op(const Graph *g, int i, PhaseKind phase)
{
	do
		i++;
	while (i < g->n_ops && !(g->ops[i].phases & phase_bit(phase)));
	return i;
}

/* Calls fn with the op's result when the op is the last of its layer. */
static int show_layer(CpuDevice *d, int at, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	const Graph *g = d->graph;
	const GraphOp *op = &g->ops[at];
	int next = next_op(g, at, size->phase), layer = op->layer;
	if (layer < 0 || layer >= g->n_layers || (next < g->n_ops && g->ops[next].layer == layer))
		return 0;
	int out = op->operands[op_table[op->kind].n_operands - 1];
	const int stop = fn(ctx, layer, size->rows, (int)g->tensors[out].shape[1], d->tensors[out].data);
	share(d, out); /* fn may have changed it */
	return stop;
}

static AtlasStatus execute(CpuDevice *d, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	if (plan_files_changed(d->files)) /* weights are used where they are mapped */
		return error_set(&d->base.error, ATLAS_INTEGRITY, CHANGED);
	const Graph *g = d->graph;
	const StepLimits *max = &d->base.limits;
	const bool is_prompt = size->phase == PREFILL;
	const int most = size->phase == VERIFY ? max->decode_rows * g->verify_rows : max->decode_rows;
	if (size->flags & STEP_OUTS)
		return error_set(&d->base.error, ATLAS_ARGUMENT, "a step has at most as many outs as rows");
	if (size->rows > (is_prompt ? max->prefill_rows : most) || size->segs > g->slots ||
		size->outs > (is_prompt ? max->prefill_outs : most))
		return error_set(&d->base.error, ATLAS_ARGUMENT,
			"a step of %d rows and %d outs is too large", size->rows, size->outs);
	memcpy(d->base.io.step, (int32_t[]){size->rows, size->outs, size->segs, size->flags},
		4 * sizeof(int32_t));
	share_inputs(d);
	const int end = phase_ops(g, size->phase, size->each);
	for (int i = next_op(g, -1, size->phase); i < end; i = next_op(g, i, size->phase)) {
		run_op(d, &g->ops[i], size);
		if (fn && show_layer(d, i, size, fn, ctx) != 0)
			return ATLAS_STOPPED;
	}
	return compare_tokens(d);
}

/* The drafts before a verify step: a row for each slot of it. The rows of the verify step are restored afterwards. */
static AtlasStatus execute_draft(CpuDevice *d, const StepSize *verify)
{
	const int per_slot = verify->each;
	int32_t *row_slot = d->base.io.row_slot;
	const StepSize size = {.phase = DRAFT, .rows = verify->rows / per_slot, .outs = verify->rows / per_slot,
		.each = per_slot};
	for (int i = 0; i < size.rows; i++)
		row_slot[i] = row_slot[i * per_slot];
	const AtlasStatus status = execute(d, &size, NULL, NULL);
	for (int t = verify->rows; t-- > 0;)
		row_slot[t] = row_slot[t / per_slot];
	return status;
}

/* A step is done when launch returns. */
static AtlasStatus cpu_launch(Device *base, const StepSize *size, int n)
{
	CpuDevice *d = (CpuDevice *)base;
	const double began = seconds_now();
	AtlasStatus status = ATLAS_OK;
	for (int i = 0; i < n && status == ATLAS_OK; i++) {
		if (size->phase == VERIFY && size->each > 1 && head_drafts(d->graph) && size->part != STEP_REST)
			status = execute_draft(d, size);
		if (status == ATLAS_OK && size->part != STEP_DRAFTS)
			status = execute(d, size, NULL, NULL);
	}
	base->bucket = size->phase == PREFILL ? base->limits.prefill_rows
		: base->limits.decode_rows * (size->phase == VERIFY ? size->each : 1);
	base->waited += seconds_now() - began;
	return status;
}

static AtlasStatus cpu_wait(Device *base)
{
	(void)base;
	return ATLAS_OK;
}

static AtlasStatus cpu_look(Device *base, bool *is_busy)
{
	(void)base;
	*is_busy = false;
	return ATLAS_OK;
}

static AtlasStatus cpu_trace(Device *base, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	return execute((CpuDevice *)base, size, fn, ctx);
}

static AtlasStatus cpu_read(Device *base, const char *name, int64_t first, int64_t n, float *dst)
{
	CpuDevice *d = (CpuDevice *)base;
	for (int i = 0; i < d->graph->n_tensors; i++) {
		if (strcmp(d->graph->tensors[i].name, name) != 0)
			continue;
		const RefOperand *r = &d->tensors[i];
		int64_t all = 1;
		for (int k = 0; k < r->n_dims; k++)
			all *= r->shape[k];
		if (first < 0 || n < 0 || first > all - n)
			return error_set(
				&base->error, ATLAS_ARGUMENT, "tensor %s has %lld elements", name, (long long)all);
		ref_convert(r, first, n, dst);
		return ATLAS_OK;
	}
	return error_set(&base->error, ATLAS_ARGUMENT, "there is no tensor %s", name);
}

static AtlasStatus cpu_put_pages(Device *base, int slot, int first, int n)
{
	CpuDevice *d = (CpuDevice *)base;
	const size_t at = (size_t)slot * (size_t)d->graph->max_pages + (size_t)first;
	for (int r = 0; r < d->n_all; r++)
		memcpy((int32_t *)d->all[r]->page_table->data + at, base->io.new_pages + at, sizeof(int32_t) * (size_t)n);
	return ATLAS_OK;
}

static AtlasStatus cpu_put_mask(Device *base, int slot, int row, const uint32_t *words)
{
	CpuDevice *d = (CpuDevice *)base;
	const size_t n = (size_t)mask_words(d->graph), drafts = (size_t)d->graph->verify_rows - 1;
	const size_t at = row ? (size_t)slot * drafts + (size_t)row - 1 : (size_t)slot;
	for (int r = 0; r < d->n_all; r++) {
		uint32_t *to = (uint32_t *)(row ? d->all[r]->masks_later : d->all[r]->masks)->data + at * n;
		for (size_t i = 0; i < n; i++)
			to[i] = words ? words[i] : 0;
	}
	return ATLAS_OK;
}

static AtlasStatus cpu_read_drafts(Device *base, int32_t *drafts)
{
	const RefOperand *from = ((CpuDevice *)base)->slot_draft;
	memcpy(drafts, from->data, sizeof *drafts * (size_t)(from->shape[0] * from->shape[1]));
	return ATLAS_OK;
}

/* Bytes of a page of a tensor that has pages. */
static size_t bytes_of_page(const RefOperand *r)
{
	size_t bytes = 4;
	for (int k = 1; k < r->n_dims; k++)
		bytes *= (size_t)r->shape[k];
	return bytes;
}

static AtlasStatus cpu_copy_pages(Device *base, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	CpuDevice *d = (CpuDevice *)base;
	for (int i = 0; i < n; i++)
		for (int k = 0; k < d->n_all * d->graph->n_tensors; k++) {
			const int t = k % d->graph->n_tensors;
			const RefOperand *x = &d->all[k / d->graph->n_tensors]->tensors[t];
			if (!d->paged[t])
				continue;
			const size_t size = bytes_of_page(x);
			uint8_t *page = (uint8_t *)x->data + (size_t)pages[i] * size;
			memcpy(is_back ? page : bytes, is_back ? bytes : page, size);
			bytes += size;
		}
	return ATLAS_OK;
}

static AtlasStatus cpu_clone_page(Device *base, int32_t from, int32_t to)
{
	CpuDevice *d = (CpuDevice *)base;
	for (int k = 0; k < d->n_all * d->graph->n_tensors; k++) {
		const int t = k % d->graph->n_tensors;
		const RefOperand *x = &d->all[k / d->graph->n_tensors]->tensors[t];
		const size_t size = d->paged[t] ? bytes_of_page(x) : 0;
		uint8_t *pages = x->data;
		if (size)
			memcpy(pages + (size_t)to * size, pages + (size_t)from * size, size);
	}
	return ATLAS_OK;
}

static AtlasStatus cpu_note_prompt(Device *base, int slot, const int32_t *tokens, int n)
{
	CpuDevice *d = (CpuDevice *)base;
	for (int i = 0; i < n * d->n_all; i++) {
		int32_t *counts = (int32_t *)d->all[i / n]->counts->data + (int64_t)slot * d->graph->vocab;
		counts[tokens[i % n]] |= PLAN_IN_PROMPT;
	}
	return ATLAS_OK;
}

/* Of a snapshot, those of one of the caches that roll. */
static size_t window_floats(const CpuDevice *d, int tensor)
{
	const int pages = rolling_kept(d->rolling.window, d->rolling.page);
	return (size_t)pages * bytes_of_page(&d->tensors[tensor]) / sizeof(float);
}

/* What op i clears when a slot is acquired; NULL: it is another op. */
static const RefOperand *state_of(const CpuDevice *d, int i)
{
	const int tensor = cleared_tensor(d->graph, i);
	return tensor < 0 ? NULL : &d->tensors[tensor];
}

static void copy_floats(float *mine, float *kept, size_t n, bool is_back)
{
	memcpy(is_back ? mine : kept, is_back ? kept : mine, n * sizeof *mine);
}

/* The pages of the slot in one of the caches that roll. */
static void keep_window(const CpuDevice *d, int tensor, int slot, int position, float *kept, bool is_back)
{
	const RollingSpan span = rolling_span(&d->rolling, position);
	const size_t n = bytes_of_page(&d->tensors[tensor]) / sizeof *kept;
	float *mine = (float *)d->tensors[tensor].data + (size_t)slot * (size_t)d->rolling.pages * n;
	copy_floats(mine + (size_t)span.at * n, kept, (size_t)span.whole * n, is_back);
	copy_floats(mine, kept + (size_t)span.whole * n, (size_t)(span.n - span.whole) * n, is_back);
}

static void keep_states(const CpuDevice *d, int slot, int position, int snapshot, bool is_back)
{
	float *kept = d->snapshots + (size_t)snapshot * d->snapshot_floats;
	int caches[2];
	for (int i = 0; i < d->graph->n_ops; i++) {
		const RefOperand *state = state_of(d, i);
		const size_t n = state ? (size_t)state->shape[1] : 0;
		if (state)
			copy_floats((float *)state->data + (size_t)slot * n, kept, n, is_back);
		kept += n;
		for (int k = rolling_caches(d->graph, i, caches); k-- > 0;) {
			keep_window(d, caches[k], slot, position, kept, is_back);
			kept += window_floats(d, caches[k]);
		}
	}
}

static AtlasStatus cpu_keep_states(Device *base, int slot, int position, int snapshot, bool is_back)
{
	const CpuDevice *d = (CpuDevice *)base;
	for (int r = 0; r < d->n_all; r++)
		keep_states(d->all[r], slot, position, snapshot, is_back);
	return ATLAS_OK;
}

/* Room for the snapshots of the states and windows. */
static bool take_snapshots(CpuDevice *d)
{
	int caches[2];
	for (int i = 0; i < d->graph->n_ops; i++) {
		d->snapshot_floats += state_of(d, i) ? (size_t)state_of(d, i)->shape[1] : 0;
		for (int k = rolling_caches(d->graph, i, caches); k-- > 0;)
			d->snapshot_floats += window_floats(d, caches[k]);
	}
	d->snapshots = calloc((size_t)d->graph->snapshots * d->snapshot_floats + 1, sizeof *d->snapshots);
	return d->snapshots;
}

static void close_rank(CpuDevice *d)
{
	free(d->memory);
	free(d->gathered);
	free(d->scratch);
	free(d->tensors);
	free(d->paged);
	free(d->snapshots);
	free(d);
}

static void cpu_close(Device *base)
{
	CpuDevice *d = (CpuDevice *)base;
	for (int r = 1; r < d->n_all; r++)
		close_rank(d->all[r]);
	pool_close(d->pool);
	free(d->made);
	free(d->weights);
	close_rank(d);
}

/* Opening ------------------------------------------------------------ */

/* Shapes of all tensors in the largest step, and the bytes of those that are not weights. */
static bool size_tensors(CpuDevice *d, size_t *total)
{
	const int64_t rows = d->most_rows, outs = d->most_rows;

	*total = 0;
	for (int i = 0; i < d->graph->n_tensors; i++) {
		const Tensor *t = &d->graph->tensors[i];
		RefOperand *r = &d->tensors[i];
		size_t bytes = 4;
		*r = (RefOperand){.dtype = t->dtype, .n_dims = t->n_dims};
		for (int k = 0; k < t->n_dims; k++) {
			r->shape[k] = dim_of(t, k, rows, outs);
			if (__builtin_mul_overflow(bytes, (size_t)r->shape[k], &bytes))
				return false;
		}
		if (t->role == ROLE_WEIGHT)
			continue;
		r->dtype = t->dtype == DT_i32 ? DT_i32 : DT_f32;
		r->is_bf16 = t->dtype == DT_bf16;
		if (__builtin_add_overflow(*total, bytes + ALIGN, total))
			return false;
		*total = *total / ALIGN * ALIGN;
	}
	return true;
}

/* Do the weights of a tensor lie one after the other, as in an embedded arena? */
static bool lies_together(const Graph *g, const Tensor *t, const uint8_t *const *weights)
{
	for (int i = t->weight + 1; i < t->weight + t->n_weights; i++)
		if (weights[i] != weights[i - 1] + g->weights[i - 1].bytes)
			return false;
	return true;
}

/* Where a rank's part of a weight is mapped; NULL: it lies apart there. */
static const uint8_t *place_of(const CpuDevice *d, int tensor, const uint8_t *const *weights)
{
	const Tensor *t = &d->graph->tensors[tensor];
	const Cut *c = ranks_cut(d->ranks, tensor);
	if (!lies_together(d->graph, t, weights) || (c && ranks_n_ranges(t, c) > 1))
		return NULL;
	return weights[t->weight] + (c ? ranks_range(d->ranks, t, c, d->rank, 0).from : 0);
}

/* A range of the bytes that a tensor's weights have one after the other. */
static bool copy_range(const CpuDevice *d, const Tensor *t, const uint8_t *const *weights, CutRange r, uint8_t *to)
{
	for (int i = t->weight; i < t->weight + t->n_weights && r.bytes > 0; i++) {
		const int64_t all = d->graph->weights[i].bytes, n = r.from + r.bytes < all ? r.bytes : all - r.from;
		if (n > 0) {
			if (!plan_files_copy(d->files, weights[i] + r.from, to, (size_t)n))
				return false;
			to += n;
			r.from += n;
			r.bytes -= n;
		}
		r.from -= all;
	}
	return true;
}

static bool copy_part(const CpuDevice *d, int tensor, const uint8_t *const *weights, uint8_t *to)
{
	const Tensor *t = &d->graph->tensors[tensor];
	const Cut *c = ranks_cut(d->ranks, tensor);
	if (!c)
		return copy_range(d, t, weights, (CutRange){0, ranks_tensor_bytes(t)}, to);
	for (int64_t i = 0, n = ranks_n_ranges(t, c); i < n; i++) {
		const CutRange r = ranks_range(d->ranks, t, c, d->rank, i);
		if (!copy_range(d, t, weights, r, to))
			return false;
		to += r.bytes;
	}
	return true;
}

/* Those that do not, or columns that are a rank's, are copied together: checkpoint files have experts in an order of
 * their own. */
static bool gather_weights(CpuDevice *d, const uint8_t *const *weights)
{
	const Graph *g = d->graph;
	for (bool copies = false;; copies = true) {
		size_t at = 0;
		for (int i = 0; i < g->n_tensors; i++) {
			const Tensor *t = &g->tensors[i];
			if (t->role != ROLE_WEIGHT || place_of(d, i, weights))
				continue;
			if (copies)
				d->tensors[i].data = d->gathered + at;
			if (copies && !copy_part(d, i, weights, d->gathered + at))
				return false;
			at += ((size_t)ranks_tensor_bytes(t) + ALIGN - 1) / ALIGN * ALIGN;
		}
		if (copies)
			return true;
		d->gathered = malloc(at + 1);
		d->gathered_bytes = at;
		if (!d->gathered)
			return false;
	}
}

static bool place_tensors(CpuDevice *d, const uint8_t *const *weights, size_t total)
{
	d->memory = calloc(1, total + 1); /* the cache of slots that are never used costs nothing */
	if (!d->memory)
		return false;
	size_t at = 0;
	for (int i = 0; i < d->graph->n_tensors; i++) {
		const Tensor *t = &d->graph->tensors[i];
		RefOperand *r = &d->tensors[i];
		if (t->role == ROLE_WEIGHT) {
			r->data = (void *)(uintptr_t)place_of(d, i, weights); /* only ever read; NULL: gathered below */
			continue;
		}
		r->data = d->memory + at;
		at = (at + bytes_of(r) + ALIGN) / ALIGN * ALIGN;
		if (is_rank(t))
			*(int32_t *)r->data = d->rank;
	}
	return gather_weights(d, weights);
}

/* The tensor of the step's interface with that name, of exactly that shape; NULL when there is
 * none. */
static void *io_tensor(const CpuDevice *d, const char *name, Dtype dtype, int64_t d0, int64_t d1)
{
	for (int i = 0; i < d->graph->n_tensors; i++) {
		const Tensor *t = &d->graph->tensors[i];
		if (strcmp(t->name, name) == 0)
			return t->dtype == dtype && (t->role == ROLE_INPUT || t->role == ROLE_OUTPUT) &&
					t->n_dims == (d1 ? 2 : 1) && t->shape[0] == d0 && (!d1 || t->shape[1] == d1)
				? d->tensors[i].data
				: NULL;
	}
	return NULL;
}

/* NULL, or the name of an input or output that the graph lacks. */
static const char *bind_io(CpuDevice *d)
{
	const Graph *g = d->graph;
	StepIo *io = &d->base.io;
	const struct {
		const char *name;
		void *place; /* of the pointer in io */
		Dtype dtype;
		int64_t d0, d1;
	} table[] = {
		{"step", &io->step, DT_i32, 4, 0},
		{"row_token", &io->row_token, DT_i32, DIM_ROWS, 0},
		{"row_slot", &io->row_slot, DT_i32, DIM_ROWS, 0},
		{"row_pos", &io->row_pos, DT_i32, DIM_ROWS, 0},
		{"row_next", &io->row_next, DT_i32, DIM_ROWS, 0},
		{"slot_draft", &io->slot_draft, DT_i32, g->slots, g->verify_rows - 1},
		{"out_row", &io->out_row, DT_i32, DIM_OUTS, 0},
		{"seg", &io->seg, DT_i32, g->slots, 4},
		{"acquire", &io->acquire, DT_i32, g->slots, 0},
		{"new_sampling", &io->new_sampling, DT_f32, g->slots, 8},
		{"new_limits", &io->new_limits, DT_i32, g->slots, 8},
		{"new_pages", &io->new_pages, DT_i32, g->slots, g->max_pages},
		{"new_rules", &io->new_rules, DT_i32, PLAN_RULES * PLAN_RULE_WORDS, 0},
		{"ring", &io->ring, DT_i32, g->slots, PLAN_RING_ENTRIES * PLAN_RING_WORDS},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		void *data = io_tensor(d, table[i].name, table[i].dtype, table[i].d0, table[i].d1);
		if ((table[i].place == &io->row_next && !head_drafts(g)) ||
			(table[i].place == &io->slot_draft && !g->ngram_max))
			continue;
		if (!data)
			return table[i].name;
		memcpy(table[i].place, &data, sizeof data);
	}
	io->n_out_rows = d->base.limits.prefill_outs;
	return NULL;
}

/* Which tensors have pages of the pool: those that are operands whose shape begins with PAGES, of ops that look pages
 * up in its table. */
static bool find_pages(CpuDevice *d)
{
	const Graph *g = d->graph;
	d->paged = calloc((size_t)g->n_tensors + 1, 1);
	if (!d->paged)
		return false;
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < op_table[g->ops[i].kind].n_operands && !op_is_rolling(g, i); k++)
			if (g->ops[i].operands[k] >= 0 && strncmp(operand_shape(g->ops[i].kind, k), "PAGES,", 6) == 0)
				d->paged[g->ops[i].operands[k]] = 1;
	for (int t = 0; t < g->n_tensors; t++) {
		if (d->paged[t])
			d->base.page_bytes += (int64_t)bytes_of_page(&d->tensors[t]);
		if (strcmp(g->tensors[t].name, "page_table") == 0)
			d->page_table = &d->tensors[t];
		if (strcmp(g->tensors[t].name, "counts") == 0)
			d->counts = &d->tensors[t];
		if (strcmp(g->tensors[t].name, "masks") == 0)
			d->masks = &d->tensors[t];
		if (strcmp(g->tensors[t].name, "masks_later") == 0)
			d->masks_later = &d->tensors[t];
		if (strcmp(g->tensors[t].name, "slot_draft") == 0)
			d->slot_draft = &d->tensors[t];
		if (strcmp(g->tensors[t].name, "slot_token") == 0)
			d->slot_token = &d->tensors[t];
	}
	return true;
}

static bool take_scratch(CpuDevice *d)
{
	for (int i = 0; i < d->graph->n_ops; i++) {
		RefCall c = call_of(d, &d->graph->ops[i], d->most_rows, d->most_rows);
		size_t bytes = ref_scratch_bytes(&c);
		if (bytes > d->scratch_bytes)
			d->scratch_bytes = bytes;
	}
	d->scratch_bytes = (d->scratch_bytes + ALIGN) / ALIGN * ALIGN;
	d->scratch = aligned_alloc(ALIGN, d->scratch_bytes * (size_t)pool_threads(d->pool));
	return d->scratch;
}

/* What each rank has. */
static AtlasStatus fill_rank(CpuDevice *d, AtlasError *error)
{
	const Graph *g = d->graph;
	size_t total;
	d->tensors = calloc((size_t)g->n_tensors + 1, sizeof *d->tensors);
	if (!d->tensors || !size_tensors(d, &total))
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the graph's tensors in float32");
	if (!place_tensors(d, d->weights, total))
		return plan_files_changed(d->files) ? error_set(error, ATLAS_INTEGRITY, CHANGED) : error_set(error,
			ATLAS_NO_MEMORY,
			"%.1f GiB are not free for the graph's tensors in float32, %d pages of cache among them",
			(double)total / 0x1p30, g->pages);
	const char *missing = bind_io(d);
	if (missing)
		return error_set(error, ATLAS_MALFORMED, "the graph lacks tensor %s", missing);
	if (!take_snapshots(d))
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %d snapshots", g->snapshots);
	if (!find_pages(d) || !take_scratch(d))
		return error_set(error, ATLAS_NO_MEMORY, "the reference device cannot start its threads");
	const bool lacks_drafts = g->verify_rows && (!d->masks_later || !d->slot_draft);
	if (!d->page_table || !d->counts || !d->masks || !d->slot_token || lacks_drafts)
		return error_set(error, ATLAS_MALFORMED, "the graph lacks tensor %s",
			!d->page_table ? "page_table" : !d->counts ? "counts" : !d->masks ? "masks"
			: !d->slot_token ? "slot_token" : d->slot_draft ? "masks_later" : "slot_draft");
	d->base.bytes = (int64_t)(total + (size_t)g->snapshots * d->snapshot_floats * sizeof *d->snapshots +
		d->gathered_bytes + d->scratch_bytes * (size_t)pool_threads(d->pool));
	return ATLAS_OK;
}

/* The ranks after the first. */
static AtlasStatus open_others(CpuDevice *d, AtlasError *error)
{
	AtlasStatus status = ATLAS_OK;
	for (int r = 1; r < ranks_of(d->ranks) && status == ATLAS_OK; r++) {
		CpuDevice *other = calloc(1, sizeof *other);
		if (!other)
			return error_set(error, ATLAS_NO_MEMORY, "no memory for rank %d", r);
		*other = (CpuDevice){.base.limits = d->base.limits, .graph = d->graph, .ranks = d->ranks, .rank = r,
			.most_rows = d->most_rows, .rolling = d->rolling, .pool = d->pool, .files = d->files,
			.weights = d->weights};
		d->all[d->n_all++] = other;
		status = fill_rank(other, error);
		d->base.bytes += other->base.bytes;
		d->base.page_bytes += other->base.page_bytes;
	}
	return status;
}

static AtlasStatus fill(CpuDevice *d, const DeviceConfig *config, AtlasError *error)
{
	const Graph *g = d->graph;
	char why[256];
	if (!ref_check(g, why, sizeof why))
		return error_set(error, ATLAS_MALFORMED, "%s", why);
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	d->pool = pool_open(config->n_threads > 0 ? config->n_threads : (int)processors);
	if (!d->pool)
		return error_set(error, ATLAS_NO_MEMORY, "the reference device cannot start its threads");
	d->weights = malloc(sizeof *d->weights * (size_t)(g->n_weights + 1));
	if (!d->weights)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %d weights", g->n_weights);
	memcpy(d->weights, config->weights, sizeof *d->weights * (size_t)g->n_weights);
	AtlasStatus status = cpu_make_weights(config, d->pool, d->weights, &d->made, error);
	status = status == ATLAS_OK ? fill_rank(d, error) : status;
	return status == ATLAS_OK ? open_others(d, error) : status;
}

AtlasStatus cpu_open(const DeviceConfig *config, Device **device, AtlasError *error)
{
	static const DeviceOps ops = {"cpu", cpu_launch, cpu_wait, cpu_look, cpu_trace, cpu_read, cpu_put_pages,
		cpu_put_mask, cpu_read_drafts, cpu_copy_pages, cpu_clone_page, cpu_note_prompt, cpu_keep_states, cpu_close};
	*device = NULL;
	CpuDevice *d = calloc(1, sizeof *d);
	if (!d)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the reference device");
	d->graph = &config->artifact->graph;
	d->ranks = &config->artifact->ranks;
	d->all[d->n_all++] = d;
	d->files = config->files;
	int slots = d->graph->slots, most = slots * (d->graph->verify_rows ? d->graph->verify_rows : 1);
	int rows = PREFILL_ROWS > most ? PREFILL_ROWS : most;
	const int grid = d->graph->prompt_grid < d->graph->max_context ? d->graph->prompt_grid : d->graph->max_context;
	rows = (rows > grid ? rows : grid) + slots; /* a cell, and the answers of the other slots */
	d->rolling = rolling_of(d->graph);
	d->most_rows = rows;
	if (d->rolling.pages && rolling_rows(&d->rolling) < rows)
		rows = rolling_rows(&d->rolling); /* of one slot, at most */
	d->base = (Device){.ops = &ops,
		.target = "",
		.name = "reference device, float32",
		.limits = {.prefill_rows = rows, .prefill_outs = rows, .decode_rows = slots,
			.ahead = 1, .row = 1}};
	AtlasStatus status = fill(d, config, error);
	if (status != ATLAS_OK)
		cpu_close(&d->base);
	else
		*device = &d->base;
	return status;
}
