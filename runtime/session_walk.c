/* session_walk.c - scores and traces: tokens are read as a prompt is that is alone. */
#include "runtime/session_handle.h"

#include <stdlib.h>

typedef struct LayerRelay { SessionLayerFn *fn; void *ctx; int pos; } LayerRelay;

static int relay_layer(void *ctx, int layer, int rows, int cols, float *hidden)
{
	LayerRelay *r = ctx;
	return r->fn(r->ctx, layer, r->pos, rows, cols, hidden);
}

static AtlasStatus read_scores(AtlasSession *s, const StepSize *size, int pos, float *logits, AtlasLogitsFn *fn,
	void *ctx)
{
	Device *d = s->device;
	int64_t vocab = s->graph->vocab;
	AtlasStatus status = d->ops->read(d, logits_name(PREFILL), 0, size->outs * vocab, logits);
	if (status != ATLAS_OK)
		return session_failed(s, status);
	for (int i = 0; i < size->outs; i++)
		if (fn(ctx, pos + i, logits + i * vocab) != 0)
			return ATLAS_STOPPED;
	return ATLAS_OK;
}

/* One step, launch by launch. */
static AtlasStatus trace_chunk(AtlasSession *s, const StepSize *size, int pos, SessionLayerFn *layer, void *ctx)
{
	LayerRelay relay = {layer, ctx, pos};
	s->flight.has_inputs = false;
	AtlasStatus status = s->device->ops->trace(s->device, size, relay_layer, &relay);
	return status == ATLAS_OK || status == ATLAS_STOPPED ? status : session_failed(s, status);
}

/* Makes the rows from `first` on the outs of the step, `most` of them at most; returns the row after them. */
static int add_outs(StepIo *io, StepSize *size, int first, int most)
{
	size->outs = size->rows - first < most ? size->rows - first : most;
	for (int o = 0; o < size->outs; o++)
		io->out_row[o] = first + o;
	return first + size->outs;
}

/* As a prompt that is alone is read. At least one of the two callbacks is given. */
static AtlasStatus walk_chunks(AtlasSession *s, const int32_t *tokens, int n, int slot, SessionLayerFn *layer,
	AtlasLogitsFn *score, void *ctx)
{
	Device *d = s->device;
	const StepLimits *limits = &d->limits;
	const int most = limits->prefill_outs < limits->prefill_rows ? limits->prefill_outs : limits->prefill_rows;
	float *logits = score ? malloc(sizeof *logits * (size_t)most * (size_t)s->graph->vocab) : NULL;
	if (score && !logits)
		return error_set(&s->error, ATLAS_NO_MEMORY, "no memory for %d rows of logits", most);
	AtlasStatus status = ATLAS_OK;
	for (int pos = 0, count; pos < n && status == ATLAS_OK; pos += count) {
		StepSize size = {.phase = PREFILL, .flags = STEP_SCORE};
		count = session_whole_cells(s, n - pos, limits->prefill_rows);
		session_add_segment(&d->io, &size, slot, tokens, n, pos, count);
		int scored = score ? add_outs(&d->io, &size, 0, most) : count;
		status = layer ? trace_chunk(s, &size, pos, layer, ctx) : session_run(s, &size);
		if (score && status == ATLAS_OK)
			status = read_scores(s, &size, pos, logits, score, ctx);
		while (scored < count && status == ATLAS_OK) {
			const int first = scored;
			size.flags = STEP_SCORE | STEP_OUTS;
			scored = add_outs(&d->io, &size, first, most);
			status = session_run(s, &size);
			if (status == ATLAS_OK)
				status = read_scores(s, &size, pos + first, logits, score, ctx);
		}
	}
	free(logits);
	return status;
}

AtlasStatus session_walk(AtlasSession *s, const int32_t *tokens, int n, SessionLayerFn *layer, AtlasLogitsFn *score,
	void *ctx)
{
	AtlasSampling greedy;
	int slot;
	AtlasStatus status = session_check(s);
	if (status != ATLAS_OK)
		return status;
	if (!tokens || (!layer && !score))
		return error_set(&s->error, ATLAS_ARGUMENT, "tokens and the callback must not be NULL");
	status = session_check_tokens(s, tokens, n);
	atlas_sampling_init(s->plan, &greedy);
	if (status == ATLAS_OK)
		status = session_acquire(s, &(SlotClaim){.positions = n, .sampling = &greedy, .is_brief = true}, &slot);
	if (status != ATLAS_OK)
		return status;
	s->is_walking = true;
	status = walk_chunks(s, tokens, n, slot, layer, score, ctx);
	s->is_walking = false;
	session_free_slot(s, slot);
	return status;
}

AtlasStatus atlas_score(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx)
{
	return session_walk(session, tokens, n, NULL, fn, ctx);
}

typedef struct Reader { AtlasLayerFn *fn; void *ctx; } Reader;

static int only_read(void *ctx, int layer, int pos, int rows, int cols, float *hidden)
{
	const Reader *r = ctx;
	return r->fn(r->ctx, layer, pos, rows, cols, hidden);
}

AtlasStatus atlas_trace(AtlasSession *session, const int32_t *tokens, int n, AtlasLayerFn *fn, void *ctx)
{
	Reader reader = {fn, ctx};
	return session_walk(session, tokens, n, fn ? only_read : NULL, NULL, &reader);
}
