/* session_mask.c - sequences whose every token waits for a mask of the caller's, by which the device draws it.
 *
 * A row of a verify step draws by the mask that follows the drafts before it, so the caller is asked for these when the
 * drafts are known: n-grams before the step, those of a head when they were read back, for which the step is launched
 * in two parts. The row after the last that has a mask has an empty one: it draws nothing, and ends the step's tokens.
 * That of a draft that the text does not take has none: its row cannot draw the draft.
 */
#include "artifacts/seconds.h"
#include "runtime/session_handle.h"

#include <string.h>

/* A bit of a token that can be drawn. */
static bool has_token(const AtlasSession *s, const uint32_t *words)
{
	const int n = plan_drawable(s->plan);
	uint32_t any = 0;
	for (int i = 0; i < n / 32; i++)
		any |= words[i];
	return any || (n % 32 && words[n / 32] & (((uint32_t)1 << n % 32) - 1));
}

AtlasStatus atlas_mask(AtlasSession *session, int slot, const uint32_t *words, int n_words)
{
	AtlasStatus status = session_check(session);
	if (status != ATLAS_OK)
		return status;
	AtlasError *e = &session->error;
	const int expected = mask_words(session->graph);
	if (!words || n_words != expected)
		return error_set(e, ATLAS_ARGUMENT, "words [%d]: %d expected", words ? n_words : 0, expected);
	if (slot < 0 || slot >= session->graph->slots || !session->slots[slot].is_masked)
		return error_set(e, ATLAS_ARGUMENT, "slot %d holds no sequence with masks", slot);
	Sequence *q = &session->slots[slot];
	if (!q->awaits_mask)
		return error_set(e, ATLAS_ARGUMENT, "slot %d: its next token has a mask", slot);
	if (!has_token(session, words))
		return error_set(e, ATLAS_ARGUMENT, "words: the mask leaves no token that can be drawn");
	status = q->leaves_mask ? session_wait(session) : ATLAS_OK;
	if (status != ATLAS_OK)
		return status;
	status = session->device->ops->put_mask(session->device, slot, 0, words);
	if (status != ATLAS_OK)
		return session_failed(session, status);
	q->awaits_mask = q->leaves_mask = false;
	session->flight.is_closed = true; /* the next one is with it */
	return ATLAS_OK;
}

bool session_has_masked(const AtlasSession *s, bool *takes_drafts)
{
	bool is_masked = *takes_drafts = false;
	for (int i = 0; i < s->flight.n; i++) {
		const Sequence *q = s->flight.slots[i] < 0 ? NULL : &s->slots[s->flight.slots[i]];
		is_masked |= q && q->is_masked;
		*takes_drafts |= q && q->is_masked && q->masks_after;
	}
	return is_masked;
}

/* How many of the drafts [n] the sequence's text takes; their masks are in s->words. */
static int masks_of(AtlasSession *s, int slot, const int32_t *drafts, int n)
{
	const Sequence *q = &s->slots[slot];
	if (!q->masks_after || !drafts || (s->ngrams && !s->ngrams[slot].has_drafts))
		return 0;
	memset(s->words, 0, sizeof *s->words * (size_t)n * (size_t)mask_words(s->graph));
	s->is_walking = true;
	const int made = q->masks_after(q->masks_ctx, slot, drafts, n, s->words);
	s->is_walking = false;
	return made < 0 ? 0 : made < n ? made : n;
}

AtlasStatus session_mask_drafts(AtlasSession *s, const int32_t *drafts, int each)
{
	Device *d = s->device;
	AtlasStatus status = ATLAS_OK;
	for (int i = 0; i < s->flight.n; i++) {
		const int slot = s->flight.slots[i], stride = s->graph->verify_rows - 1;
		Sequence *q = slot < 0 ? NULL : &s->slots[slot];
		if (!q || !q->is_masked)
			continue;
		const int n = masks_of(s, slot, drafts ? drafts + slot * stride : NULL, each - 1);
		for (int k = 0; k < n && status == ATLAS_OK; k++)
			status = d->ops->put_mask(d, slot, k + 1, s->words + (size_t)k * (size_t)mask_words(s->graph));
		for (int k = n; k < q->n_later && status == ATLAS_OK; k++)
			status = d->ops->put_mask(d, slot, k + 1, NULL);
		q->n_later = n;
	}
	return status == ATLAS_OK ? ATLAS_OK : session_failed(s, status);
}

AtlasStatus session_mask_head(AtlasSession *s, StepSize *size)
{
	int32_t *drafts = (int32_t *)s->words + (size_t)(s->graph->verify_rows - 1) * (size_t)mask_words(s->graph);
	size->part = STEP_DRAFTS;
	AtlasStatus status = s->device->ops->launch(s->device, size, 1);
	const double began = seconds_now();
	status = status == ATLAS_OK ? s->device->ops->read_drafts(s->device, drafts) : status;
	s->device->waited += seconds_now() - began;
	if (status != ATLAS_OK)
		return session_failed(s, status);
	size->part = STEP_REST;
	size->is_same = true;
	return session_mask_drafts(s, drafts, size->each);
}
