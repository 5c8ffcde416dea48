/* session_pages.c - slots and KV pages.
 *
 * A sequence is a slot, the KV pages of its whole life, and a prompt of which some rows were read. Pages are
 * taken at the start, so that no sequence runs out of memory in its middle.
 */
#include "runtime/session_handle.h"

#include <stdlib.h>
#include <string.h>

enum { IGNORES_STOPS = 1 << 16 }; /* in limits[7] */

void session_free_slot(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	for (int i = q->n_pages; i-- > 0;)
		s->free_pages[s->n_free_pages++] = q->pages[i];
	free(q->tokens);
	*q = (Sequence){.pages = q->pages};
}

AtlasStatus session_acquire(AtlasSession *s, const SlotClaim *claim, int *slot)
{
	const AtlasSampling *a = claim->sampling;
	const Graph *g = s->graph;
	StepIo *io = &s->device->io;
	int n_pages = (claim->positions + s->step_tokens - 1 + g->page - 1) / g->page, i = 0;
	while (i < g->slots && s->slots[i].state != FREE)
		i++;
	if (i == g->slots)
		return error_set(&s->error, ATLAS_NO_SLOT, "all %d slots are taken", g->slots);
	if (n_pages > s->n_free_pages)
		return error_set(&s->error, ATLAS_NO_PAGES, "%d pages are needed, %d of %d are free", n_pages,
			s->n_free_pages, g->pages);
	Sequence *q = &s->slots[i];
	int32_t *row = io->new_pages + (size_t)i * (size_t)g->max_pages;
	memset(row, 0, sizeof *row * (size_t)g->max_pages);
	for (q->n_pages = 0; q->n_pages < n_pages; q->n_pages++)
		row[q->n_pages] = q->pages[q->n_pages] = s->free_pages[--s->n_free_pages];
	const float coldest = 1e-30f; /* below it a score over the temperature may be no number */
	const float sampling[8] = {a->temperature < coldest ? 0 : a->temperature, a->top_p, a->min_p, a->repetition_penalty,
		a->presence_penalty, a->frequency_penalty};
	const int32_t limits[8] = {a->top_k, (int32_t)(uint32_t)a->seed, (int32_t)(uint32_t)(a->seed >> 32),
		claim->positions, s->shares[0], s->shares[1], s->shares[2], claim->ignores_stops ? IGNORES_STOPS : 0};
	memcpy(io->new_sampling + i * 8, sampling, sizeof sampling);
	memcpy(io->new_limits + i * 8, limits, sizeof limits);
	memset(io->acquire, 0, sizeof *io->acquire * (size_t)g->slots);
	io->acquire[i] = 1;
	AtlasStatus status = session_run(s, &(StepSize){.phase = ACQUIRE});
	if (status != ATLAS_OK) {
		session_free_slot(s, i);
		return status;
	}
	/* No step that runs now can write there: the slot's last sequence has ended. */
	memset(io->ring + i * PLAN_RING_ENTRIES * PLAN_RING_WORDS, 0,
		sizeof *io->ring * PLAN_RING_ENTRIES * PLAN_RING_WORDS);
	*slot = i;
	return ATLAS_OK;
}
