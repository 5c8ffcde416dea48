/* engine.c - see engine.h. Each turn: take what was submitted and cancelled, start what fits, one step, one batch to
 * the loop. */
#include "runtime/serve/engine.h"
#include "artifacts/seconds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CANDIDATES = 16, MOST_OVERTAKEN = 8 }; /* of those that wait to start */

typedef struct Queue { Sequence *first, **end; } Queue;

struct Engine {
	EngineOptions options;
	pthread_t thread;
	/* shared, under the lock */
	pthread_mutex_t lock;
	pthread_cond_t more;
	Queue submitted;
	bool has_cancels, is_ending;
	bool is_open, has_room; /* the session may be woken; it has a free slot */
	/* the thread's */
	AtlasSession *session;
	int slots, step_tokens;
	int64_t n_started;
	double asked;         /* seconds in atlas_step since the step before */
	double idle, waited;  /* until the step before: of this thread without work, and of the session for its device */
	double counted;       /* when that was */
	double idle_now;      /* as `idle`, so far */
	Sequence **running; /* [slots] */
	AtlasEvent *events; /* [slots * step_tokens] of a step */
	Queue waiting;
	EngineBatch *batch; /* being filled; NULL = none */
	int cap, exit_code;
	char failure[512];
};

static void push(Queue *q, Sequence *s)
{
	s->next = NULL;
	*q->end = s;
	q->end = &s->next;
}

/* Batches ------------------------------------------------------------ */

/* Without memory for what it must report the engine can only wait for some. */
static void *must(void *(*allocate)(void *, size_t), void *old, size_t n)
{
	void *p;
	while (!(p = allocate(old, n)))
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	return p;
}

static EngineBatch *batch_of(Engine *e, int room)
{
	const int n = e->batch ? e->batch->n : 0;
	if (!e->batch || n + room > e->cap) {
		e->cap = (n + room) * 2 + 16;
		EngineBatch *b = must(realloc, e->batch, sizeof *b + sizeof b->events[0] * (size_t)e->cap);
		if (!e->batch)
			*b = (EngineBatch){.ctx = e->options.ctx};
		e->batch = b;
	}
	return e->batch;
}

static void report(Engine *e, EngineEvent event)
{
	EngineBatch *b = batch_of(e, 1);
	b->events[b->n++] = event;
}

static void refuse_for(Engine *e, Sequence *s, AtlasStatus status, const char *why)
{
	report(e, (EngineEvent){.sequence = s, .kind = ENGINE_REFUSED, .is_last = true, .status = status,
		.why = why ? strdup(why) : NULL});
}

static void refuse(Engine *e, Sequence *s, AtlasStatus status)
{
	refuse_for(e, s, status, e->session ? atlas_session_error(e->session) : NULL);
}

static void post(Engine *e)
{
	EngineBatch *b = e->batch;
	if (!b)
		return;
	AtlasSessionInfo *info = &b->session;
	info->struct_size = sizeof *info;
	b->is_open = atlas_session_info(e->session, info) == ATLAS_OK; /* not of NULL */
	if (b->is_open) {
		snprintf(b->target, sizeof b->target, "%s", info->target);
		snprintf(b->device, sizeof b->device, "%.120s, %.1f MiB", info->device_name,
			(double)info->device_bytes / 1048576);
	}
	b->exit_code = e->exit_code;
	memcpy(b->failure, e->failure, sizeof b->failure);
	b->job.done = e->options.batch;
	e->batch = NULL;
	mail_post(e->options.mail, &b->job);
}

/* Ends ------------------------------------------------------------ */

/* The session is of no use any more: everything ends, and so does what comes later. */
static void fail(Engine *e, AtlasStatus status)
{
	e->exit_code = atlas_status_exit_code(status);
	snprintf(e->failure, sizeof e->failure, "%s: %s", atlas_status_name(status), atlas_session_error(e->session));
	for (int i = 0; i < e->slots; i++)
		if (e->running[i])
			refuse(e, e->running[i], status);
	memset(e->running, 0, sizeof *e->running * (size_t)e->slots);
	batch_of(e, 0);
}

static void refuse_waiting(Engine *e)
{
	for (Sequence *s = e->waiting.first, *next; s; s = next) {
		next = s->next;
		refuse(e, s, ATLAS_DEVICE_FAULT);
	}
	e->waiting = (Queue){NULL, &e->waiting.first};
}

/* Those that are marked, or all. */
static void cancel_some(Engine *e, bool all)
{
	Queue kept = {NULL, &kept.first};
	for (int i = 0; i < e->slots; i++) {
		Sequence *s = e->running[i];
		if (!s || !(all || s->is_cancelled))
			continue;
		atlas_cancel(e->session, i);
		e->running[i] = NULL;
		report(e, (EngineEvent){.sequence = s, .kind = ENGINE_CANCELLED, .is_last = true});
	}
	for (Sequence *s = e->waiting.first, *next; s; s = next) {
		next = s->next;
		if (all || s->is_cancelled)
			report(e, (EngineEvent){.sequence = s, .kind = ENGINE_CANCELLED, .is_last = true});
		else
			push(&kept, s);
	}
	e->waiting = kept;
	if (!kept.first)
		e->waiting.end = &e->waiting.first;
}

/* Steps ------------------------------------------------------------ */

/* AtlasLogitsFn: the scores of position pos say how probable the token after it was. */
static int take_score(void *ctx, int pos, const float *logits)
{
	Sequence *s = ctx;
	if (pos + 1 < s->request.n_tokens) {
		PromptScore *to = &s->scores[pos + 1];
		to->n_top = atlas_score_top(
			s->plan, logits, s->request.tokens[pos + 1], &to->logprob, to->top, s->n_score_tops);
	}
	return 0;
}

/* Its prompt has scores: now it is read once more, to be answered, unless no answer was asked for. */
static void scored(Engine *e, Sequence *s)
{
	s->is_scored = true;
	report(e, (EngineEvent){.sequence = s, .kind = ENGINE_SCORED, .is_last = s->request.max_new == 0});
	if (s->request.max_new == 0)
		return;
	s->next = e->waiting.first;
	e->waiting.first = s;
	if (!s->next)
		e->waiting.end = &s->next;
}

/* It cannot go on by its structure; why NULL: its states do not fit. */
static void end_unmasked(Engine *e, Sequence *s, AtlasStatus status, const char *why)
{
	refuse_for(e, s, status, why ? why
		: "the structure that was asked for is too ambiguous, or there is no memory for its states");
	atlas_cancel(e->session, s->slot);
	e->running[s->slot] = NULL;
}

/* Which tokens the next one may be. Where that is not known, the sequence ends. */
static bool give_mask(Engine *e, Sequence *s)
{
	int n;
	const uint32_t *words = guide_mask(s->guide, &n);
	s->needs_mask = false;
	const AtlasStatus status = words ? atlas_mask(e->session, s->slot, words, n) : ATLAS_UNSUPPORTED;
	if (status == ATLAS_OK)
		return true;
	end_unmasked(e, s, status, words ? atlas_session_error(e->session) : NULL);
	return false;
}

static bool open_guide(Engine *e, Sequence *s)
{
	int32_t ends[ATLAS_MAX_STOP_TOKENS * 2];
	AtlasPlanInfo plan = {.struct_size = sizeof plan};
	int n = 0;
	atlas_plan_info(e->options.plan, &plan);
	for (int i = 0; i < plan.n_stop_tokens && n < ATLAS_MAX_STOP_TOKENS && !s->request.ignore_stops; i++)
		ends[n++] = plan.stop_tokens[i];
	for (int i = 0; i < s->request.n_stop_tokens; i++)
		ends[n++] = s->request.stop_tokens[i];
	s->guide = guide_open(&s->guided, ends, n);
	if (s->guide)
		return give_mask(e, s);
	end_unmasked(e, s, ATLAS_NO_MEMORY, "no memory for the structure that was asked for");
	return false;
}

/* A token of a sequence with a structure, which may end with it. The batch may move. */
static void guide(Engine *e, Sequence *s, EngineEvent *token)
{
	if (!guide_push(s->guide, token->token)) {
		end_unmasked(e, s, ATLAS_UNSUPPORTED, NULL);
		return;
	}
	s->needs_mask = !guide_is_over(s->guide);
	if (s->needs_mask)
		return;
	token->is_last = token->is_whole = true;
	atlas_cancel(e->session, s->slot);
	e->running[s->slot] = NULL;
}

/* AtlasMasksFn */
static int masks_after(void *ctx, int slot, const int32_t *drafts, int n, uint32_t *words)
{
	(void)slot;
	return guide_masks_after(((Sequence *)ctx)->guide, drafts, n, words);
}

static AtlasStatus start_one(Engine *e, Sequence *s)
{
	s->request.masks_after = masks_after;
	s->request.masks_ctx = s;
	if (!s->scores || s->is_scored)
		return atlas_request_start(e->session, &s->request, &s->slot);
	s->plan = e->options.plan;
	return atlas_score_start(e->session, s->request.tokens, s->request.n_tokens, take_score, s, &s->slot);
}

/* Who starts next: of the first that wait the one of whose prompt most tokens are kept, before others need their pages.
 * Of equals the first, so that a long prompt is not always overtaken by short ones; and none goes before one that was
 * overtaken often enough. */
static Sequence **next_start(Engine *e)
{
	Sequence **best = &e->waiting.first, **at = best;
	int most = -1;
	for (int i = 0; i < CANDIDATES && *at; i++, at = &(*at)->next) {
		const bool is_read = (*at)->scores && !(*at)->is_scored; /* all of it */
		const int kept = is_read ? 0 : atlas_kept_tokens(e->session, &(*at)->request);
		if (kept > most) {
			most = kept;
			best = at;
		}
		if ((*at)->overtaken == MOST_OVERTAKEN)
			break;
	}
	return best;
}

static void take_out(Engine *e, Sequence **at)
{
	for (Sequence *s = e->waiting.first; s != *at; s = s->next)
		s->overtaken++;
	if (!(*at = (*at)->next))
		e->waiting.end = at;
}

static void start_some(Engine *e)
{
	while (e->waiting.first && !e->exit_code && atlas_active(e->session) < e->slots) {
		Sequence **at = next_start(e), *s = *at;
		const AtlasStatus status = start_one(e, s);
		if ((status == ATLAS_NO_SLOT || status == ATLAS_NO_PAGES) && atlas_active(e->session) > 0)
			return;
		take_out(e, at);
		const bool is_its_own = status == ATLAS_OK || status == ATLAS_NO_PAGES || status == ATLAS_CONTEXT ||
			status == ATLAS_TOKEN || status == ATLAS_ARGUMENT || status == ATLAS_UNSUPPORTED ||
			status == ATLAS_NO_MEMORY;
		if (status == ATLAS_OK) {
			e->running[s->slot] = s;
			s->number = e->n_started++;
			if (!s->is_scored)
				report(e, (EngineEvent){.sequence = s, .kind = ENGINE_STARTED});
			if (s->guided.grammar && (!s->scores || s->is_scored))
				open_guide(e, s);
			continue;
		}
		refuse(e, s, status);
		if (!is_its_own)
			fail(e, status);
	}
}

static void copy_top(Engine *e, int i, EngineEvent *to)
{
	const AtlasTop *top;
	int n;
	if (atlas_event_top(e->session, i, &top, &n) != ATLAS_OK || !n)
		return;
	to->top = must(realloc, NULL, sizeof *top * (size_t)n);
	memcpy(to->top, top, sizeof *top * (size_t)n);
	to->n_top = n;
}

/* The host has no memory for what is set aside: the youngest ends, so that the others go on. */
static bool end_youngest(Engine *e)
{
	Sequence *last = NULL;
	for (int i = 0; i < e->slots; i++)
		if (e->running[i] && (!last || e->running[i]->number > last->number))
			last = e->running[i];
	if (!last)
		return false;
	refuse(e, last, ATLAS_NO_MEMORY);
	atlas_cancel(e->session, last->slot);
	e->running[last->slot] = NULL;
	return true;
}

/* What the step was, if there was one: a session that is woken hands out none. */
static void count_step(Engine *e, EngineBatch *b)
{
	AtlasSessionInfo info = {.struct_size = sizeof info};
	const double now = seconds_now();
	atlas_session_info(e->session, &info);
	if (!info.step_phase)
		return;
	b->has_step = true;
	b->seconds = e->asked;
	b->own_seconds = now - e->counted - (e->idle_now - e->idle) - (info.device_seconds - e->waited);
	e->asked = 0;
	e->counted = now;
	e->idle = e->idle_now;
	e->waited = info.device_seconds;
}

static void step(Engine *e)
{
	int n;
	const double began = seconds_now();
	const AtlasStatus status = atlas_step(e->session, e->events, e->slots * e->step_tokens, &n);
	e->asked += seconds_now() - began;
	if (status == ATLAS_NO_MEMORY && end_youngest(e))
		return;
	if (status != ATLAS_OK) {
		fail(e, status);
		return;
	}
	EngineBatch *b = batch_of(e, n);
	for (int i = 0; i < n; i++) {
		const AtlasEvent *from = &e->events[i];
		Sequence *s = e->running[from->slot];
		if (!s)
			continue;
		if (s->scores && !s->is_scored) {
			e->running[from->slot] = NULL;
			scored(e, s);
			b = e->batch;
			continue;
		}
		EngineEvent *to = &b->events[b->n++];
		*to = (EngineEvent){.sequence = s, .kind = ENGINE_TOKEN, .is_last = from->finish != ATLAS_RUNNING,
			.token = from->token, .logprob = from->logprob, .finish = from->finish,
			.reused = atlas_reused_tokens(e->session, from->slot)};
		if (s->request.top_logprobs)
			copy_top(e, i, to);
		if (from->finish != ATLAS_RUNNING) {
			e->running[from->slot] = NULL;
			to->is_whole = s->guide && from->finish == ATLAS_LENGTH && guide_push(s->guide, from->token) &&
				guide_is_over(s->guide);
		} else if (s->guide) {
			guide(e, s, to);
			b = batch_of(e, n - i);
		}
	}
	for (int i = 0; i < e->slots; i++) /* batches may move when one is refused */
		if (e->running[i] && e->running[i]->needs_mask)
			give_mask(e, e->running[i]);
	count_step(e, e->batch);
}

static bool open_session(Engine *e)
{
	AtlasPlanInfo plan = {.struct_size = sizeof plan};
	AtlasSessionInfo info = {.struct_size = sizeof info};
	e->exit_code = e->options.open_session(e->options.open_ctx, &e->session);
	if (e->exit_code) {
		snprintf(e->failure, sizeof e->failure, "the session could not be opened");
	} else {
		atlas_plan_info(e->options.plan, &plan);
		atlas_session_info(e->session, &info);
		e->slots = plan.slots;
		e->step_tokens = info.step_tokens;
		e->waited = info.device_seconds;
		e->counted = seconds_now();
		e->running = must(realloc, NULL, sizeof *e->running * (size_t)e->slots);
		memset(e->running, 0, sizeof *e->running * (size_t)e->slots);
		e->events = must(realloc, NULL, sizeof *e->events * (size_t)(e->slots * e->step_tokens));
	}
	batch_of(e, 0);
	post(e);
	return !e->exit_code;
}

static void *run(void *arg)
{
	Engine *e = arg;
	open_session(e);
	for (;;) {
		pthread_mutex_lock(&e->lock);
		const bool has_work = e->session && !e->exit_code && (atlas_active(e->session) > 0 || e->waiting.first);
		const double began = seconds_now();
		while (!has_work && !e->submitted.first && !e->has_cancels && !e->is_ending)
			pthread_cond_wait(&e->more, &e->lock);
		e->idle_now += seconds_now() - began;
		const bool ends = e->is_ending;
		e->is_open = e->session != NULL;
		e->has_room = e->session && atlas_active(e->session) < e->slots;
		if (e->submitted.first) {
			*e->waiting.end = e->submitted.first;
			e->waiting.end = e->submitted.end;
			e->submitted = (Queue){NULL, &e->submitted.first};
		}
		if (e->has_cancels || ends) /* under the lock, for the flags are set there */
			cancel_some(e, ends);
		e->has_cancels = false;
		pthread_mutex_unlock(&e->lock);
		if (ends) {
			post(e);
			return NULL;
		}
		if (!e->exit_code)
			start_some(e);
		if (!e->exit_code && atlas_active(e->session) > 0) {
			post(e); /* a start is to be known before the first step of a long prompt ends */
			step(e);
		}
		if (e->exit_code)
			refuse_waiting(e);
		post(e);
	}
}

Engine *engine_open(const EngineOptions *options)
{
	Engine *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->options = *options;
	e->submitted.end = &e->submitted.first;
	e->waiting.end = &e->waiting.first;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->more, NULL);
	if (pthread_create(&e->thread, NULL, run, e) == 0)
		return e;
	free(e);
	return NULL;
}

/* Under the lock. */
static void wake(Engine *e, bool ends_step)
{
	pthread_cond_signal(&e->more);
	if (e->is_open && ends_step)
		atlas_wake(e->session);
}

void engine_submit(Engine *e, Sequence *s)
{
	pthread_mutex_lock(&e->lock);
	s->is_cancelled = s->is_scored = false;
	s->overtaken = 0;
	push(&e->submitted, s);
	wake(e, e->has_room);
	pthread_mutex_unlock(&e->lock);
}

void engine_cancel(Engine *e, Sequence *s)
{
	pthread_mutex_lock(&e->lock);
	s->is_cancelled = e->has_cancels = true;
	wake(e, true);
	pthread_mutex_unlock(&e->lock);
}

void engine_close(Engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->is_ending = true;
	wake(e, true);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	atlas_session_close(e->session);
	pthread_cond_destroy(&e->more);
	pthread_mutex_destroy(&e->lock);
	free(e->running);
	free(e->events);
	free(e->batch);
	free(e);
}
