/* session_request.c - what a sequence is started with: checked, completed by the model's own, queued. */
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

AtlasStatus session_check_tokens(AtlasSession *s, const int32_t *tokens, int n)
{
	const Graph *g = s->graph;
	if (n < 1)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: at least one is needed", n);
	if (n > g->max_context)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: the context holds %d", n, g->max_context);
	for (int i = 0; i < n; i++)
		if (tokens[i] < 0 || tokens[i] >= g->vocab)
			return error_set(&s->error, ATLAS_TOKEN, "token %d is %d: the vocabulary has %d", i, tokens[i],
				g->vocab);
	return ATLAS_OK;
}

static AtlasStatus check_sampling(AtlasSession *s, const AtlasSampling *a)
{
	const struct { const char *name; float value; bool good; } rows[] = {
		{"temperature", a->temperature, a->temperature >= 0},
		{"top_p", a->top_p, a->top_p > 0 && a->top_p <= 1},
		{"min_p", a->min_p, a->min_p >= 0 && a->min_p <= 1},
		{"repetition_penalty", a->repetition_penalty, a->repetition_penalty >= 1e-3f && a->repetition_penalty <= 1e3f},
		{"presence_penalty", a->presence_penalty, fabsf(a->presence_penalty) <= 1e3f},
		{"frequency_penalty", a->frequency_penalty, fabsf(a->frequency_penalty) <= 1e3f},
		{"top_k", (float)a->top_k, a->top_k >= 0}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (!rows[i].good || !isfinite(rows[i].value))
			return error_set(&s->error, ATLAS_ARGUMENT, "%s = %g is out of range", rows[i].name,
				(double)rows[i].value);
	return ATLAS_OK;
}

AtlasStatus atlas_start(AtlasSession *session, const int32_t *tokens, int n, const AtlasSampling *sampling,
	int max_new, int *slot)
{
	AtlasSampling a;
	AtlasStatus s = session_check(session);
	if (s != ATLAS_OK)
		return s;
	int max_context = session->graph->max_context;
	atlas_sampling_init(session->plan, &a);
	if (!tokens || !slot)
		s = error_set(&session->error, ATLAS_ARGUMENT, "tokens and slot must not be NULL");
	if (s == ATLAS_OK && sampling && sampling->struct_size < sizeof sampling->struct_size)
		s = error_set(&session->error, ATLAS_ARGUMENT, "sampling.struct_size is not set");
	if (s == ATLAS_OK && sampling)
		memcpy(&a, sampling, sampling->struct_size < sizeof a ? sampling->struct_size : sizeof a);
	if (s == ATLAS_OK && max_new < 1)
		s = error_set(&session->error, ATLAS_ARGUMENT, "max_new = %d: at least 1 expected", max_new);
	if (s == ATLAS_OK)
		s = session_check_tokens(session, tokens, n);
	if (s == ATLAS_OK)
		s = check_sampling(session, &a);
	if (s != ATLAS_OK)
		return s;
	/* The last token of an answer is never read, so it needs no position. */
	if (max_new > max_context - n + 1)
		max_new = max_context - n + 1;
	int32_t *copy = malloc(sizeof *copy * (size_t)n);
	if (!copy)
		return error_set(&session->error, ATLAS_NO_MEMORY, "no memory for %d tokens", n);
	s = session_acquire(session, n + max_new - 1, &a, slot);
	if (s != ATLAS_OK) {
		free(copy);
		return s;
	}
	memcpy(copy, tokens, sizeof *copy * (size_t)n);
	Sequence *q = &session->slots[*slot];
	q->state = WAITING;
	q->ticket = session->next_ticket++;
	q->tokens = copy;
	q->n = n;
	q->max_new = max_new;
	return ATLAS_OK;
}
