/* rank_device.c - every call of rank 0's session becomes a record that the other ranks replay.
 *
 * Slots, pages, sampling, time and cancelling are rank 0's alone; the others have no queue and no choice. What a call
 * reads of the host goes along: inputs of a step, entries of a page table, masks. What comes back, tokens and logits,
 * is equal on all ranks, so rank 0 takes its own.
 */
#include "runtime/ranks/rank_device.h"
#include "runtime/cuda.h"

#include <stdlib.h>
#include <string.h>

typedef enum RecordKind {
	LAUNCH, TRACE, PUT_PAGES, PUT_MASK, COPY_PAGES, CLONE_PAGE, NOTE_PROMPT, KEEP_STATES, COLLECTIVES, MEASURE, CLOSE
} RecordKind;

typedef struct Ranked {
	Device base;
	Device *inner;
	RankGroup *group;
	const Graph *graph;
} Ranked;

/* Pages that rank 0 has set aside: the bytes of this rank's. */
typedef struct Aside { struct Aside *next; uint64_t key; uint8_t *bytes; } Aside;

static int64_t most_data(const Artifact *a, Device *d)
{
	int64_t most = cuda_io_bytes(d);
	const int64_t others[] = {4 * (int64_t)a->graph.max_pages, 4 * (int64_t)mask_words(&a->graph),
		4 * (int64_t)a->graph.pages, 4 * (int64_t)a->graph.max_context};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		most = others[i] > most ? others[i] : most;
	return most;
}

/* Rank 0 ---------------------------------------------------------------------------------------------------- */

static AtlasStatus lost(Ranked *r) { return group_check(r->group, &r->base.error); }

/* What the session sees of the device, after a call of it. A rank that was lost is what went wrong, whatever the
 * device says. */
static AtlasStatus seen(Ranked *r, AtlasStatus s)
{
	r->base.bucket = r->inner->bucket;
	if (s != ATLAS_OK)
		r->base.error = r->inner->error;
	if (s != ATLAS_OK && s != ATLAS_STOPPED && s != ATLAS_ARGUMENT && s != ATLAS_UNSUPPORTED)
		group_fail(r->group, &r->base.error);
	const AtlasStatus other = lost(r);
	return other != ATLAS_OK ? other : s;
}

/* Of n numbers and of bytes; NULL after a loss. */
static RankRecord *record(Ranked *r, RecordKind kind, const int *args, int n, const void *data, int64_t bytes)
{
	RankRecord *to = group_next(r->group);
	if (!to)
		return NULL;
	to->kind = (int)kind;
	memset(to->args, 0, sizeof to->args);
	memcpy(to->args, args, sizeof *args * (size_t)n);
	to->key = 0;
	to->bytes = bytes;
	if (bytes)
		memcpy(to->data, data, (size_t)bytes);
	return to;
}

static bool post(Ranked *r, RecordKind kind, const int *args, int n, const void *data, int64_t bytes)
{
	if (!record(r, kind, args, n, data, bytes))
		return false;
	group_post(r->group);
	return true;
}
#define POST(r, kind, data, bytes, ...) \
	post(r, kind, (int[]){__VA_ARGS__}, (int)(sizeof (int[]){__VA_ARGS__} / sizeof(int)), data, bytes)

static bool post_step(Ranked *r, RecordKind kind, const StepSize *s, int n)
{
	int64_t from = 0, bytes = 0;
	const uint8_t *image = s->is_same ? NULL : cuda_image(r->inner, s, &from, &bytes);
	return POST(r, kind, image ? image + from : NULL, bytes, (int)s->phase, s->rows, s->outs, s->segs, s->each,
		s->flags, s->is_same, n, (int)from, (int)s->part);
}

static AtlasStatus ranked_launch(Device *d, const StepSize *size, int n)
{
	Ranked *r = (Ranked *)d;
	return post_step(r, LAUNCH, size, n) ? seen(r, r->inner->ops->launch(r->inner, size, n)) : lost(r);
}

static AtlasStatus ranked_wait(Device *d)
{
	Ranked *r = (Ranked *)d;
	return seen(r, r->inner->ops->wait(r->inner));
}

static AtlasStatus ranked_look(Device *d, bool *is_busy)
{
	Ranked *r = (Ranked *)d;
	return seen(r, r->inner->ops->look(r->inner, is_busy));
}

static AtlasStatus ranked_trace(Device *d, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	Ranked *r = (Ranked *)d;
	return post_step(r, TRACE, size, 1) ? seen(r, r->inner->ops->trace(r->inner, size, fn, ctx)) : lost(r);
}

static AtlasStatus ranked_read(Device *d, const char *tensor, int64_t first, int64_t n, float *dst)
{
	Ranked *r = (Ranked *)d;
	return seen(r, r->inner->ops->read(r->inner, tensor, first, n, dst));
}

static AtlasStatus ranked_put_pages(Device *d, int slot, int first, int n)
{
	Ranked *r = (Ranked *)d;
	const int32_t *row = r->base.io.new_pages + (int64_t)slot * r->graph->max_pages + first;
	return POST(r, PUT_PAGES, row, 4 * (int64_t)n, slot, first, n)
		? seen(r, r->inner->ops->put_pages(r->inner, slot, first, n)) : lost(r);
}

static AtlasStatus ranked_put_mask(Device *d, int slot, int row, const uint32_t *words)
{
	Ranked *r = (Ranked *)d;
	return POST(r, PUT_MASK, words, words ? 4 * (int64_t)mask_words(r->graph) : 0, slot, row)
		? seen(r, r->inner->ops->put_mask(r->inner, slot, row, words)) : lost(r);
}

static AtlasStatus ranked_read_drafts(Device *d, int32_t *drafts)
{
	Ranked *r = (Ranked *)d;
	return seen(r, r->inner->ops->read_drafts(r->inner, drafts));
}

static AtlasStatus ranked_copy_pages(Device *d, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	Ranked *r = (Ranked *)d;
	RankRecord *to = record(r, COPY_PAGES, (int[]){n, is_back}, 2, pages, 4 * (int64_t)n);
	if (!to)
		return lost(r);
	to->key = (uint64_t)(uintptr_t)bytes;
	group_post(r->group);
	return seen(r, r->inner->ops->copy_pages(r->inner, pages, n, bytes, is_back));
}

static AtlasStatus ranked_clone_page(Device *d, int32_t from, int32_t to)
{
	Ranked *r = (Ranked *)d;
	return POST(r, CLONE_PAGE, NULL, 0, from, to) ? seen(r, r->inner->ops->clone_page(r->inner, from, to)) : lost(r);
}

static AtlasStatus ranked_note_prompt(Device *d, int slot, const int32_t *tokens, int n)
{
	Ranked *r = (Ranked *)d;
	return POST(r, NOTE_PROMPT, tokens, 4 * (int64_t)n, slot, n)
		? seen(r, r->inner->ops->note_prompt(r->inner, slot, tokens, n)) : lost(r);
}

static AtlasStatus ranked_keep_states(Device *d, int slot, int position, int snapshot, bool is_back)
{
	Ranked *r = (Ranked *)d;
	return POST(r, KEEP_STATES, NULL, 0, slot, position, snapshot, is_back)
		? seen(r, r->inner->ops->keep_states(r->inner, slot, position, snapshot, is_back)) : lost(r);
}

static void ranked_close(Device *d)
{
	Ranked *r = (Ranked *)d;
	if (POST(r, CLOSE, NULL, 0, 0)) {
		r->inner->ops->wait(r->inner);
		group_barrier(r->group, NULL);
		group_is_over(r->group); /* the others end; this process may go on */
	}
	r->inner->ops->close(r->inner);
	free(r);
}

static const DeviceOps ranked_ops = {"cuda", ranked_launch, ranked_wait, ranked_look, ranked_trace, ranked_read,
	ranked_put_pages, ranked_put_mask, ranked_read_drafts, ranked_copy_pages, ranked_clone_page, ranked_note_prompt,
	ranked_keep_states, ranked_close};

AtlasStatus ranked_collectives(Device *d, int phase, int reps, double *us)
{
	Ranked *r = (Ranked *)d;
	if (d->ops != &ranked_ops)
		return cuda_collectives(d, phase, reps, us);
	return POST(r, COLLECTIVES, NULL, 0, phase, reps) ? seen(r, cuda_collectives(r->inner, phase, reps, us)) : lost(r);
}

AtlasStatus ranked_measure(Device *d, int phase)
{
	Ranked *r = (Ranked *)d;
	if (d->ops != &ranked_ops)
		return ATLAS_OK;
	group_be_patient(r->group);
	return POST(r, MEASURE, NULL, 0, phase) ? ATLAS_OK : lost(r);
}

Device *ranked_inner(Device *d) { return d->ops == &ranked_ops ? ((Ranked *)d)->inner : d; }

AtlasStatus ranked_open(Device *inner, RankGroup *group, const Artifact *artifact, Device **device, AtlasError *error)
{
	Ranked *r = calloc(1, sizeof *r);
	AtlasStatus s = r ? group_open_ring(group, most_data(artifact, inner), error)
		: error_set(error, ATLAS_NO_MEMORY, "no memory for the device");
	s = s == ATLAS_OK ? group_barrier(group, error) : s;
	if (s != ATLAS_OK) {
		free(r);
		inner->ops->close(inner);
		return s;
	}
	group_opened(group);
	*r = (Ranked){.base = *inner, .inner = inner, .group = group, .graph = &artifact->graph};
	r->base.ops = &ranked_ops;
	*device = &r->base;
	return ATLAS_OK;
}

/* The other ranks --------------------------------------------------------------------------------------------- */

static int no_layer(void *ctx, int layer, int rows, int cols, float *hidden)
{
	(void)ctx, (void)layer, (void)rows, (void)cols, (void)hidden;
	return 0;
}

/* The inputs may be those of a step that is still under way here. */
static AtlasStatus replay_step(Device *d, const RankRecord *from)
{
	const int *a = from->args;
	const StepSize size = {.phase = (PhaseKind)a[0], .rows = a[1], .outs = a[2], .segs = a[3], .each = a[4],
		.flags = a[5], .is_same = a[6], .part = (StepPart)a[9]};
	AtlasStatus s = ATLAS_OK;
	if (from->bytes) {
		s = d->ops->wait(d);
		cuda_put_image(d, from->data, a[8], from->bytes);
	}
	if (s != ATLAS_OK)
		return s;
	return from->kind == LAUNCH ? d->ops->launch(d, &size, a[7]) : d->ops->trace(d, &size, no_layer, NULL);
}

static AtlasStatus replay_copy(Device *d, const RankRecord *from, Aside **list)
{
	const int n = from->args[0];
	Aside **at = list;
	while (*at && (*at)->key != from->key)
		at = &(*at)->next;
	Aside *x = *at;
	if (!from->args[1]) {
		uint8_t *bytes = realloc(x ? x->bytes : NULL, (size_t)n * (size_t)d->page_bytes + 1);
		if (!x && bytes && (x = calloc(1, sizeof *x))) {
			*x = (Aside){.next = *list, .key = from->key};
			*list = x;
		}
		if (!bytes || !x) {
			free(x ? NULL : bytes);
			return error_set(&d->error, ATLAS_NO_MEMORY, "no memory for %d pages that are set aside", n);
		}
		x->bytes = bytes;
	}
	if (!x)
		return error_set(&d->error, ATLAS_MALFORMED, "pages come back that were not set aside");
	const AtlasStatus s = d->ops->copy_pages(d, (const int32_t *)(const void *)from->data, n, x->bytes, from->args[1]);
	if (from->args[1]) {
		*at = x->next;
		free(x->bytes);
		free(x);
	}
	return s;
}

static AtlasStatus replay(Device *d, const RankRecord *from, const Graph *g, Aside **list)
{
	const int *a = from->args;
	AtlasStatus s;
	switch ((RecordKind)from->kind) {
	case LAUNCH:
	case TRACE:
		return replay_step(d, from);
	case PUT_PAGES:
		memcpy(d->io.new_pages + (int64_t)a[0] * g->max_pages + a[1], from->data, (size_t)from->bytes);
		return d->ops->put_pages(d, a[0], a[1], a[2]);
	case PUT_MASK:
		s = d->ops->wait(d);
		return s == ATLAS_OK
			? d->ops->put_mask(d, a[0], a[1], from->bytes ? (const uint32_t *)(const void *)from->data : NULL) : s;
	case COPY_PAGES:
		return replay_copy(d, from, list);
	case CLONE_PAGE:
		return d->ops->clone_page(d, a[0], a[1]);
	case NOTE_PROMPT:
		return d->ops->note_prompt(d, a[0], (const int32_t *)(const void *)from->data, a[1]);
	case KEEP_STATES:
		return d->ops->keep_states(d, a[0], a[1], a[2], a[3]);
	case COLLECTIVES:
		return cuda_collectives(d, a[0], a[1], &(double){0});
	default:
		return d->ops->wait(d);
	}
}

static AtlasStatus follow(Device *d, RankGroup *group, const Graph *g, const RankHooks *hooks, AtlasError *error)
{
	Aside *list = NULL;
	AtlasStatus s = ATLAS_OK;
	bool is_over = false;
	while (s == ATLAS_OK && !is_over) {
		const RankRecord *from = group_take(group);
		bool is_busy;
		if (!from && group_check(group, error) != ATLAS_OK)
			break;
		if (!from) {
			s = d->ops->look(d, &is_busy); /* a fault shows here while rank 0 waits for what it was to give */
			continue;
		}
		is_over = from->kind == CLOSE;
		if (is_over)
			group_is_over(group);
		if (from->kind == MEASURE && hooks)
			hooks->measure(hooks->ctx, from->args[0]);
		else
			s = replay(d, from, g, &list);
		group_done(group);
	}
	while (list) {
		Aside *x = list;
		list = x->next;
		free(x->bytes);
		free(x);
	}
	if (s != ATLAS_OK)
		return error_set(error, s, "%s", d->error.text);
	if (!is_over)
		return group_check(group, error);
	group_barrier(group, NULL); /* of arenas that others map; who ends meanwhile is not missed any more */
	return ATLAS_OK;
}

AtlasStatus ranked_follow(Device *own, RankGroup *group, const Artifact *artifact, const RankHooks *hooks,
	AtlasError *error)
{
	AtlasStatus s = group_open_ring(group, most_data(artifact, own), error);
	s = s == ATLAS_OK ? group_barrier(group, error) : s;
	if (hooks)
		hooks->begin(hooks->ctx, own);
	s = s == ATLAS_OK ? follow(own, group, &artifact->graph, hooks, error) : s;
	if (hooks)
		hooks->end(hooks->ctx);
	if (s != ATLAS_OK && error)
		group_fail(group, error);
	own->ops->close(own);
	return s;
}
