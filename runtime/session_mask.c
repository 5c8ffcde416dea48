/* session_mask.c - sequences whose every token waits for a mask of the caller's, by which the device draws it. */
#include "runtime/session_handle.h"

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
	status = session->device->ops->put_mask(session->device, slot, words);
	if (status != ATLAS_OK)
		return session_failed(session, status);
	q->awaits_mask = q->leaves_mask = false;
	session->flight.is_closed = true; /* the next one is with it */
	return ATLAS_OK;
}
