/* session_mask.c - sequences whose every token waits for a mask of the caller's.
 *
 * A device that knows masks gets them with its inputs. For one that does not, a GPU today, the host draws: each token
 * is a row of a step of prompts, as in a mixed step, whose logits the host reads and draws from as the reference device
 * does. What the device itself draws there is dropped; it ends nothing, for it is given no stop tokens, rules or
 * penalties.
 */
#include "runtime/cpu/ref_call.h"
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

AtlasStatus session_check_masked(AtlasSession *s, const AtlasRequest *r, const AtlasSampling *a)
{
	if (!r->masked || s->device->io.masks)
		return ATLAS_OK;
	if (a->repetition_penalty != 1 || a->presence_penalty != 0 || a->frequency_penalty != 0)
		return error_set(&s->error, ATLAS_UNSUPPORTED, "masked = 1 with penalties: device %s draws without masks, and "
			"the host has no counts of tokens", s->device->ops->kind);
	return ATLAS_OK;
}

AtlasStatus session_draw_by_host(AtlasSession *s, SlotClaim *claim, HostDraw **host)
{
	static const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	const size_t rules = sizeof *claim->rules * (size_t)claim->n_rules * PLAN_RULE_WORDS;
	HostDraw *h = malloc(sizeof *h + rules);
	uint32_t *mask = malloc(sizeof *mask * (size_t)(mask_words(s->graph) + 1));
	if (!s->host_logits) {
		const size_t vocab = (size_t)s->graph->vocab;
		free(s->host_scores);
		free(s->host_counts);
		s->host_scores = malloc(2 * sizeof *s->host_scores * vocab);
		s->host_counts = calloc(vocab, sizeof *s->host_counts);
		if (s->host_scores && s->host_counts)
			s->host_logits = malloc(sizeof *s->host_logits * vocab);
	}
	if (!h || !mask || !s->host_logits) {
		free(h);
		free(mask);
		return error_set(&s->error, ATLAS_NO_MEMORY, "no memory for a mask");
	}
	*h = (HostDraw){.sampling = *claim->sampling, .ignores_stops = claim->ignores_stops, .n_rules = claim->n_rules,
		.mask = mask};
	if (rules)
		memcpy(h->rules, claim->rules, rules);
	claim->sampling = &greedy;
	claim->ignores_stops = true;
	claim->n_rules = 0;
	*host = h;
	return ATLAS_OK;
}

void session_free_host(HostDraw *host)
{
	if (host)
		free(host->mask);
	free(host);
}

bool session_is_by_host(const AtlasSession *s, const Sequence *q)
{
	return q->host && !q->awaits_mask && session_has_pages(s, q);
}

bool session_has_by_host(const AtlasSession *s) { return s->n_by_host > 0; }

/* Does the token end the sequence? */
static bool is_end(const AtlasSession *s, const HostDraw *h, int32_t token)
{
	bool found = false;
	for (int i = 0; i < s->graph->n_stop_tokens && !h->ignores_stops; i++)
		found |= s->graph->stop_tokens[i] == token;
	for (int i = 0; i < h->n_rules; i++)
		found |= h->rules[i * PLAN_RULE_WORDS + 3] && h->rules[i * PLAN_RULE_WORDS] == token;
	return found;
}

AtlasStatus session_draw_masked(AtlasSession *s, const Sequence *q, int row, AtlasEvent *e)
{
	const HostDraw *h = q->host;
	const AtlasSampling *a = &h->sampling;
	const int64_t vocab = s->graph->vocab;
	const float coldest = 1e-30f; /* as session_pages.c */
	const float sampling[8] = {a->temperature < coldest ? 0 : a->temperature, a->top_p, a->min_p, 1};
	const int32_t limits[8] = {a->top_k, (int32_t)(uint32_t)a->seed, (int32_t)(uint32_t)(a->seed >> 32), 0, 0, 0, 0,
		h->n_rules};
	const AtlasStatus status =
		s->device->ops->read(s->device, logits_name(PREFILL), row * vocab, vocab, s->host_logits);
	if (status != ATLAS_OK)
		return session_failed(s, status);
	const DrawOf d = {.counts = s->host_counts, .sampling = sampling, .limits = limits, .rules = h->rules,
		.mask = h->mask, .n = plan_drawable(s->plan), .position = q->n + q->made};
	e->token = ref_draw_token(&d, s->host_logits, s->host_scores, &e->logprob);
	e->finish = e->token < 0 ? ATLAS_FAILED : is_end(s, h, e->token) ? ATLAS_STOP : e->finish;
	return ATLAS_OK;
}

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
	const AtlasStatus status = session_check(session);
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
	uint32_t *to = q->host ? q->host->mask : session->device->io.masks + (size_t)slot * (size_t)expected;
	memcpy(to, words, sizeof *words * (size_t)expected);
	q->awaits_mask = false;
	session->flight.is_closed = true; /* the next one is with it */
	return ATLAS_OK;
}
