/* session_top.c - the most probable tokens besides each one that was drawn.
 *
 * After a step its logits are where the device left them, with penalties and without bias: the rows of events whose
 * sequence asked are read, and the largest of each are chosen here. Steps in which no sequence asks cost nothing.
 * Two log probabilities differ by as much as their logits, so that of the drawn token, for which the device has added
 * up the row, gives all others.
 */
#include "artifacts/seconds.h"
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>

enum { AT_ONCE = 32 }; /* logits that are passed over together when none of them is large enough */

AtlasStatus session_open_tops(AtlasSession *s)
{
	const size_t events = (size_t)s->graph->slots * PLAN_MAX_VERIFY;
	Tops *t = &s->tops;
	if (t->of)
		return ATLAS_OK;
	t->of = calloc(events, sizeof *t->of);
	t->logits = malloc(sizeof *t->logits * (size_t)s->graph->vocab);
	t->n_drawable = plan_drawable(s->plan);
	if (t->of && t->logits)
		return ATLAS_OK;
	session_free_tops(s);
	return error_set(&s->error, ATLAS_NO_MEMORY, "no memory for the alternatives of %zu events", events);
}

void session_free_tops(AtlasSession *s)
{
	free(s->tops.of);
	free(s->tops.logits);
	s->tops = (Tops){0};
}

void session_want_top(AtlasSession *s, int event, int row, int n)
{
	if (!s->tops.of)
		return;
	s->tops.of[event].n_wanted = n;
	s->tops.of[event].n = 0;
	s->tops.of[event].row = row;
}

/* The n largest of `count` logits, above -inf, largest first and the lowest id among equals; returns how many. */
static int choose(const float *logits, int count, int n, AtlasTop *top)
{
	float least = -INFINITY;
	int made = 0;
	for (int first = 0; first < count; first += AT_ONCE) {
		const int end = first + AT_ONCE < count ? first + AT_ONCE : count;
		int any = 0;
		if (end == first + AT_ONCE)
			for (int v = 0; v < AT_ONCE; v++)
				any |= logits[first + v] > least;
		for (int v = first; v < end && (any || end < first + AT_ONCE); v++) {
			if (!(logits[v] > least))
				continue;
			int at = made < n ? made++ : n - 1;
			for (; at > 0 && top[at - 1].logprob < logits[v]; at--)
				top[at] = top[at - 1];
			top[at] = (AtlasTop){v, logits[v]};
			least = made == n ? top[n - 1].logprob : least;
		}
	}
	return made;
}

int atlas_score_top(const AtlasPlan *plan, const float *logits, int32_t token, float *logprob, AtlasTop *top, int cap)
{
	if (!plan || !logits || !logprob || (!top && cap > 0) || token < 0 || token >= plan->artifact.graph.vocab)
		return 0;
	const int count = plan_drawable(plan), n = cap > 0 ? choose(logits, count, cap, top) : 0;
	float largest = -INFINITY;
	double sum = 0;
	for (int v = 0; v < count; v++)
		largest = logits[v] > largest ? logits[v] : largest;
	for (int v = 0; v < count; v++)
		sum += expf(logits[v] - largest);
	const double all = largest + log(sum);
	for (int k = 0; k < n; k++)
		top[k].logprob = (float)(top[k].logprob - all);
	*logprob = (float)(logits[token] - all);
	return n;
}

AtlasStatus session_read_tops(AtlasSession *s, PhaseKind phase, const AtlasEvent *events, int n)
{
	const int64_t vocab = s->graph->vocab;
	Device *d = s->device;
	float *logits = s->tops.logits;
	for (int i = 0; s->tops.of && i < n; i++) {
		TopOf *t = &s->tops.of[i];
		if (t->n_wanted == 0)
			continue;
		const double began = seconds_now();
		const AtlasStatus status = d->ops->read(d, logits_name(phase), t->row * vocab, vocab, logits);
		d->waited += seconds_now() - began;
		if (status != ATLAS_OK)
			return session_failed(s, status);
		t->n = choose(logits, s->tops.n_drawable, t->n_wanted, t->top);
		for (int k = 0; k < t->n; k++) {
			const double l = events[i].logprob + ((double)t->top[k].logprob - logits[events[i].token]);
			t->top[k].logprob = l < 0 ? (float)l : 0;
		}
	}
	s->tops.n_events = n;
	return ATLAS_OK;
}

AtlasStatus atlas_event_top(const AtlasSession *session, int i, const AtlasTop **top, int *n)
{
	if (top)
		*top = NULL;
	if (n)
		*n = 0;
	if (!session || !top || !n || i < 0 || i >= session->tops.n_events)
		return ATLAS_ARGUMENT;
	if (session->tops.of) {
		*top = session->tops.of[i].top;
		*n = session->tops.of[i].n;
	}
	return ATLAS_OK;
}
