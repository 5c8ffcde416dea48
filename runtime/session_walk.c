/* session_walk.c - scores and traces: tokens are read as a prompt is that is alone, in one call or among others. */
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Rows of logits that a step leaves. */
static int outs_of(const AtlasSession *s)
{
	const StepLimits *limits = &s->device->limits;
	return limits->prefill_outs < limits->prefill_rows ? limits->prefill_outs : limits->prefill_rows;
}

static AtlasStatus make_logits(AtlasSession *s, float **logits)
{
	*logits = malloc(sizeof **logits * (size_t)outs_of(s) * (size_t)s->graph->vocab);
	return *logits ? ATLAS_OK
		: error_set(&s->error, ATLAS_NO_MEMORY, "no memory for %d rows of logits", outs_of(s));
}

typedef struct Walk {
	const int32_t *tokens; int n; /* of the slot's sequence */
	int slot;
	SessionLayerFn *layer; AtlasLogitsFn *score; void *ctx; /* at least one of the two */
	float *logits; /* for `score` */
} Walk;

/* Tokens [pos, pos + count) in one step, whose logits are made as many at a time as there is room for. */
static AtlasStatus walk_chunk(AtlasSession *s, const Walk *w, int pos, int count)
{
	StepIo *io = &s->device->io;
	StepSize size = {.phase = PREFILL, .flags = STEP_SCORE};
	session_add_segment(io, &size, w->slot, w->tokens, w->n, pos, count);
	int scored = w->score ? add_outs(io, &size, 0, outs_of(s)) : count;
	s->is_walking = true; /* callbacks ask the session for nothing */
	AtlasStatus status = w->layer ? trace_chunk(s, &size, pos, w->layer, w->ctx) : session_run(s, &size);
	if (w->score && status == ATLAS_OK)
		status = read_scores(s, &size, pos, w->logits, w->score, w->ctx);
	while (scored < count && status == ATLAS_OK) {
		const int first = scored;
		size.flags = STEP_SCORE | STEP_OUTS;
		scored = add_outs(io, &size, first, outs_of(s));
		status = session_run(s, &size);
		if (status == ATLAS_OK)
			status = read_scores(s, &size, pos + first, w->logits, w->score, w->ctx);
	}
	s->is_walking = false;
	return status;
}

/* As a prompt that is alone is read. */
static AtlasStatus walk_chunks(AtlasSession *s, Walk *w)
{
	AtlasStatus status = w->score ? make_logits(s, &w->logits) : ATLAS_OK;
	for (int pos = 0, count; pos < w->n && status == ATLAS_OK; pos += count) {
		count = session_whole_cells(s, w->n - pos, s->device->limits.prefill_rows);
		status = walk_chunk(s, w, pos, count);
	}
	free(w->logits);
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
	Walk w = {.tokens = tokens, .n = n, .slot = slot, .layer = layer, .score = score, .ctx = ctx};
	status = session_begin_slots(s);
	if (status == ATLAS_OK)
		status = walk_chunks(s, &w);
	session_free_slot(s, slot);
	return status;
}

AtlasStatus atlas_score(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx)
{
	return session_walk(session, tokens, n, NULL, fn, ctx);
}

AtlasStatus atlas_score_start(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx,
	int *slot)
{
	AtlasSampling greedy;
	float *logits = NULL;
	AtlasStatus status = session_check(session);
	if (status != ATLAS_OK)
		return status;
	if (!tokens || !fn || !slot)
		return error_set(&session->error, ATLAS_ARGUMENT, "tokens, the callback and slot must not be NULL");
	atlas_sampling_init(session->plan, &greedy);
	status = session_check_tokens(session, tokens, n);
	status = status == ATLAS_OK ? make_logits(session, &logits) : status;
	if (status == ATLAS_OK)
		status = session_queue(session, &(SlotClaim){.positions = n, .sampling = &greedy}, tokens, n, slot);
	if (status != ATLAS_OK) {
		free(logits);
		return status;
	}
	Sequence *q = &session->slots[*slot];
	q->score = fn;
	q->score_ctx = ctx;
	q->logits = logits;
	return ATLAS_OK;
}

AtlasStatus session_step_scores(AtlasSession *s, int slot, AtlasEvent *events, int *n)
{
	Sequence *q = &s->slots[slot];
	const int grid = s->graph->prompt_grid, rows = s->device->limits.prefill_rows;
	const bool is_short = session_takes_turns(s) && session_n_running(s) && grid < rows;
	const int count = session_whole_cells(s, q->n - q->read, is_short ? grid : rows);
	const Walk w = {.tokens = q->tokens, .n = q->n, .slot = slot, .score = q->score, .ctx = q->score_ctx,
		.logits = q->logits};
	const AtlasStatus status = walk_chunk(s, &w, q->read, count);
	if (status != ATLAS_OK && status != ATLAS_STOPPED)
		return status;
	s->last = (StepSize){.phase = PREFILL, .rows = count};
	s->last_bucket = s->device->bucket;
	q->read += count;
	if (q->read < q->n && status == ATLAS_OK)
		return ATLAS_OK;
	events[(*n)++] = (AtlasEvent){.slot = slot, .token = -1, .logprob = NAN,
		.finish = status == ATLAS_OK ? ATLAS_LENGTH : ATLAS_STOP};
	session_free_slot(s, slot);
	return ATLAS_OK;
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
