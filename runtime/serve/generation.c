/* generation.c - a request for text from its body to the last byte of its answer (generation.h).
 *
 *	worker: read the body, render, tokenize -> loop: admit or refuse -> engine: steps -> loop: text, chunks, the end
 *
 * An answer that is over, because it is whole or its peer went away, leaves at once; the Generation itself is freed
 * when neither worker nor engine has anything of it. */
#include "runtime/serve/generation.h"
#include "artifacts/json_put.h"
#include "runtime/serve/structure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_AHEAD = 256 }; /* tokens */

static const char event_stream[] = "text/event-stream; charset=utf-8";

/* Ends ------------------------------------------------------------ */

static void free_if_done(Generation *g)
{
	if (!g->is_over || g->is_in_worker || g->n_in_engine)
		return;
	for (int i = 0; i < g->n_choices; i++)
		choice_close(&g->choices[i]);
	free(g->choices);
	free(g->chunk_head);
	api_request_free(&g->request);
	call_free(&g->call);
}

/* The line in the log, once for each request. status 0: the peer was gone before it had one. */
static void note(Generation *g, int status, const char *finish)
{
	Server *s = g->call.s;
	char more[240];
	const double now = seconds_now();
	snprintf(more, sizeof more, ",\"finish\":\"%s\",\"stream\":%s,\"prompt_tokens\":%d,\"cached_tokens\":%d,"
		"\"completion_tokens\":%d,\"queue_ms\":%.3f,\"first_token_ms\":%.3f", finish,
		g->is_streaming ? "true" : "false", g->prompt_tokens, g->cached_tokens, generation_tokens(g),
		g->started > 0 ? 1e3 * (g->started - g->submitted) : 0,
		g->first_token > 0 ? 1e3 * (g->first_token - g->call.began) : 0);
	if (g->submitted > 0)
		histogram_add(&s->metrics.whole, now - g->call.began);
	log_request(s, g->call.id, g->call.route, status, g->call.began, more);
}

static void cancel_all(Generation *g)
{
	for (int i = 0; i < g->n_choices; i++)
		if (g->choices[i].is_in_engine)
			engine_cancel(g->call.s->engine, &g->choices[i].sequence);
}

static int overloaded(const Generation *g, int status) { return g->api->overloaded ? g->api->overloaded : status; }

/* The answer is an error: an event where the stream has begun, else a plain answer. */
static void fail(Generation *g, const ApiError *e, const char *finish)
{
	Server *s = g->call.s;
	Conn *conn = g->call.conn;
	if (g->is_over)
		return;
	g->is_over = true;
	g->call.error = *e;
	cancel_all(g);
	note(g, g->is_streaming ? 200 : e->status, finish);
	if (conn && g->is_streaming) {
		g->api->failure(g, e, out_begin(&s->out));
		out_end(&s->out);
		g->call.conn = NULL;
		conn_stream_add(conn, s->out.at, s->out.n);
		conn_keep_alive(conn, false);
		conn_stream_end(conn, true);
	} else if (conn) {
		call_answer_error(&g->call);
	}
}

static void gone(Call *call)
{
	Generation *g = (Generation *)call;
	if (g->is_over)
		return;
	g->is_over = true;
	call->s->metrics.cancelled[BY_CLIENT]++;
	note(g, 0, "client");
	cancel_all(g);
	free_if_done(g);
}

bool call_is_generation(const Call *c) { return c->gone == gone; }

void generation_cancel(Call *call, Cancelled why)
{
	Generation *g = (Generation *)call;
	ApiError e;
	if (g->is_over || g->is_in_worker)
		return;
	call->s->metrics.cancelled[why]++;
	if (why == BY_WAIT) {
		call->s->metrics.shed++;
		api_refuse(&e, overloaded(g, 429), NULL, "no slot became free in %g seconds", call->s->options->max_wait_s);
		e.retry_after_s = 1;
		fail(g, &e, "wait");
	} else {
		api_refuse(&e, 503, NULL, "the server ends");
		e.retry_after_s = 1;
		fail(g, &e, "drain");
	}
	free_if_done(g);
}

double generation_waits_since(const Call *call)
{
	const Generation *g = (const Generation *)call;
	return !g->is_in_worker && !g->is_over && !g->n_started ? g->submitted : 0;
}

/* Sending ------------------------------------------------------------ */

static void begin_stream(Generation *g)
{
	char room[480], fields[560];
	snprintf(fields, sizeof fields, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s",
		call_fields(&g->call, room, sizeof room));
	g->is_streaming = true;
	conn_stream_begin(g->call.conn, event_stream, fields);
}

/* What is in the server's room for answers. */
static void send(Generation *g)
{
	Server *s = g->call.s;
	if (!out_end(&s->out) || !s->out.n)
		return;
	conn_stream_add(g->call.conn, s->out.at, s->out.n);
	g->sent = seconds_now();
}

static void send_news(Generation *g, Choice *c)
{
	FILE *out = out_begin(&g->call.s->out);
	if (!g->is_streaming)
		begin_stream(g);
	answer_put_news(g, c, out);
	send(g);
}

void generation_ping(Call *call, double now)
{
	Generation *g = (Generation *)call;
	if (!g->is_streaming || g->is_over || !g->api->ping || now - g->sent < call->s->options->ping_s)
		return;
	g->api->ping(g, out_begin(&call->s->out));
	send(g);
}

static void finish_answer(Generation *g)
{
	Server *s = g->call.s;
	Conn *conn = g->call.conn;
	g->is_over = true;
	note(g, 200, g->choices[0].finish);
	if (g->request.stream) {
		g->call.conn = NULL;
		conn_stream_end(conn, true);
		return;
	}
	g->api->whole(g, out_begin(&s->out));
	out_end(&s->out);
	call_answer(&g->call, 200, "application/json", s->out.at, s->out.n);
}

/* A peer that takes no bytes holds a slot and memory: some tokens more, then it has lost its answer. */
static bool is_too_slow(Generation *g)
{
	const bool is_full = conn_pending(g->call.conn) > (size_t)g->call.s->options->max_pending;
	g->sent_ahead = is_full ? g->sent_ahead + 1 : 0;
	return g->sent_ahead > MOST_AHEAD;
}

/* Events ------------------------------------------------------------ */

/* The field that a member of AtlasRequest came from; the session's sentence begins with the member's name. */
static const char *field_of(const Generation *g, const char *why)
{
	static const struct { const char *member, *field; } members[] = {{"bias", "logit_bias"}, {"min_new", "min_tokens"},
		{"ignore_stops", "ignore_eos"}, {"stop_tokens", "stop_token_ids"}, {"max_new", "max_tokens"},
		{"top_logprobs", "top_logprobs"}};
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
		if (strstr(why, members[i].member))
			return members[i].field;
	return g->api->prompt;
}

static void on_refused(Generation *g, AtlasStatus status, const char *why)
{
	ApiError e;
	const char *text = why && *why ? why : atlas_status_text(status);
	if (status == ATLAS_CONTEXT || status == ATLAS_TOKEN || status == ATLAS_ARGUMENT || status == ATLAS_NO_PAGES ||
		status == ATLAS_UNSUPPORTED)
		api_refuse(&e, 400, field_of(g, text), "%s", text);
	else if (status == ATLAS_NO_MEMORY)
		api_refuse(&e, overloaded(g, 503), NULL, "%s", text);
	else
		api_refuse(&e, 503, NULL, "the model's session failed: %s", text);
	e.retry_after_s = e.status >= 503;
	g->call.s->metrics.finished[FINISH_ERROR]++;
	fail(g, &e, "error");
}

static void on_token(Generation *g, Choice *c, EngineEvent *event)
{
	Server *s = g->call.s;
	const double now = seconds_now();
	ApiError e;
	if (event->finish == ATLAS_FAILED) {
		api_refuse(&e, 500, NULL, "the model's scores were not numbers, or the request allows no token that can be "
			"drawn");
		s->metrics.finished[FINISH_ERROR]++;
		fail(g, &e, "error");
		return;
	}
	if (!choice_take_token(g, c, event)) {
		api_refuse(&e, 500, NULL, "no memory");
		fail(g, &e, "error");
		return;
	}
	if (c->n_tokens == 1 && c->index % g->request.n == 0)
		g->cached_tokens += event->reused;
	s->metrics.generation_tokens++;
	histogram_add(c->n_tokens > 1 ? &s->metrics.gap : &s->metrics.first_token,
		now - (c->n_tokens > 1 ? c->last_token : g->call.began));
	c->last_token = now;
	if (g->first_token <= 0)
		g->first_token = now;
	if (c->finish) {
		g->n_finished++;
		s->metrics.finished[strcmp(c->finish, "stop") == 0 ? FINISH_STOP : FINISH_LENGTH]++;
		if (!event->is_last)
			engine_cancel(s->engine, &c->sequence);
	}
	if (g->request.stream && is_too_slow(g)) {
		Conn *conn = g->call.conn;
		s->metrics.cancelled[BY_SLOW_CLIENT]++;
		g->is_over = true;
		g->call.conn = NULL;
		note(g, 200, "slow_client");
		cancel_all(g);
		conn_drop(conn);
		return;
	}
	if (g->request.stream)
		send_news(g, c);
	if (g->n_finished == g->n_choices)
		finish_answer(g);
}

/* The prompt has its scores; with max_tokens 0 they are all that was asked for. */
static void on_scored(Generation *g, Choice *c, bool is_last)
{
	ApiError e;
	if (!choice_take_scores(c)) {
		api_refuse(&e, 500, NULL, "no memory");
		fail(g, &e, "error");
		return;
	}
	if (is_last) {
		c->finish = "length";
		g->n_finished++;
		g->call.s->metrics.finished[FINISH_LENGTH]++;
	}
	if (g->request.stream) {
		c->code_points = count_code_points(c->prompt->text, c->prompt->n_bytes);
		send_news(g, c);
	}
	if (g->n_finished == g->n_choices)
		finish_answer(g);
}

static void on_started(Generation *g, Choice *c)
{
	Server *s = g->call.s;
	c->is_started = true;
	s->metrics.waiting--;
	s->metrics.running++;
	if (g->n_started++ == 0) {
		g->started = seconds_now();
		histogram_add(&s->metrics.queue, g->started - g->submitted);
	}
	if (!g->is_over && g->request.stream && !c->sequence.scores)
		send_news(g, c);
}

static void take_event(EngineEvent *event)
{
	Generation *g = event->sequence->owner;
	Choice *c = &g->choices[event->sequence->choice];
	Server *s = g->call.s;
	if (event->is_last) {
		c->is_in_engine = false;
		g->n_in_engine--;
		if (c->is_started)
			s->metrics.running--;
		else
			s->metrics.waiting--;
	}
	if (event->kind == ENGINE_STARTED)
		on_started(g, c);
	else if (event->kind == ENGINE_SCORED && !g->is_over)
		on_scored(g, c, event->is_last);
	else if (event->kind == ENGINE_TOKEN && !g->is_over && !c->finish)
		on_token(g, c, event);
	else if (event->kind == ENGINE_REFUSED && !g->is_over && !c->finish)
		on_refused(g, event->status, event->why);
	free(event->why);
	free(event->top);
	free_if_done(g);
}

/* Of the processor, that this thread has used. */
static double thread_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void generation_batch(Job *job)
{
	EngineBatch *b = (EngineBatch *)job;
	Server *s = b->ctx;
	if (b->is_open)
		s->metrics.session = b->session;
	for (int i = 0; i < b->n; i++)
		take_event(&b->events[i]);
	if (b->has_step) {
		const double used = thread_seconds();
		metrics_step(&s->metrics, b->seconds);
		histogram_add(&s->metrics.host_engine, b->own_seconds);
		histogram_add(&s->metrics.host_loop, used - s->used);
		s->used = used;
	}
}

/* Beginnings ------------------------------------------------------------ */

static void compile(Job *job)
{
	Generation *g = (Generation *)job;
	structure_compile(&g->call.s->limits, &g->request, &g->call.error);
}

/* While a worker has it, the loop looks at nothing that is written here. */
static void work(Job *job)
{
	Generation *g = (Generation *)job;
	const bool good = api_read_request(
		&g->call.s->limits, g->api->read, g->call.body, g->call.n_body, &g->request, &g->call.error);
	free(g->call.body);
	g->call.body = NULL;
	if (good && g->request.wanted)
		job->long_work = compile;
}

/* Room for the scores of the prompt; the first token has none. */
static bool make_scores(Sequence *q, int n_tops)
{
	q->scores = calloc((size_t)q->request.n_tokens, sizeof *q->scores);
	q->n_score_tops = n_tops;
	if (q->scores)
		q->scores[0].logprob = NAN;
	return q->scores != NULL;
}

static bool make_chunk_head(Generation *g)
{
	size_t n;
	FILE *out = open_memstream(&g->chunk_head, &n);
	if (!out)
		return false;
	g->api->head(g, out);
	return fclose(out) == 0;
}

static bool make_choices(Generation *g)
{
	const ApiRequest *r = &g->request;
	g->n_choices = r->n_prompts * r->n;
	g->choices = calloc((size_t)g->n_choices, sizeof *g->choices);
	for (int i = 0; g->choices && i < g->n_choices; i++) {
		Choice *c = &g->choices[i];
		c->index = i;
		c->prompt = &r->prompts[i / r->n];
		Sequence *q = &c->sequence;
		*q = (Sequence){.owner = g, .choice = i, .sampling = r->sampling, .request = {.struct_size = sizeof q->request,
			.tokens = c->prompt->tokens, .n_tokens = c->prompt->n, .sampling = &q->sampling, .max_new = r->max_new,
			.min_new = r->min_new, .ignore_stops = r->ignore_stops, .stop_tokens = r->stop_tokens,
			.n_stop_tokens = r->n_stop_tokens, .bias = r->bias, .n_bias = r->n_bias, .top_logprobs = r->top_logprobs,
			.pages_as_needed = 1, .n_tail = c->prompt->n_tail, .masked = r->grammar != NULL,
			.cache_salt = r->cache_salt}, .guided = r->guide};
		q->guided.closer = c->prompt->is_reasoning ? g->call.s->limits.reasoning->closer : NULL;
		q->sampling.seed += (uint64_t)(i % r->n);
		if (!choice_open(g, c))
			return false;
		if (r->echo && r->logprobs && !make_scores(q, r->top_logprobs))
			return false;
	}
	return g->choices && (!r->stream || !g->api->head || make_chunk_head(g));
}

/* May the request have a place? Refusals come before any work of the engine. */
static bool admit(Generation *g)
{
	Server *s = g->call.s;
	ApiError *e = &g->call.error;
	const int n = g->request.n_prompts * g->request.n;
	if (s->exit_code)
		api_refuse(e, 503, NULL, "the model's session failed");
	else if (s->state == DRAINING)
		api_refuse(e, 503, NULL, "the server ends");
	else if (s->state == LOADING)
		api_refuse(e, 503, NULL, "the model is being loaded: GET /ready says when it is");
	else if (n > s->options->max_queue + s->info.slots)
		return api_refuse(e, 400, "prompt",
			"the request asks for %d answers: this server takes %d", n, s->options->max_queue + s->info.slots);
	else if (s->metrics.waiting + n > s->options->max_queue + s->info.slots - s->metrics.running)
		s->metrics.shed++, api_refuse(e, overloaded(g, 429), NULL, "%lld answers wait for a slot already",
			(long long)s->metrics.waiting);
	else
		return true;
	e->retry_after_s = 1;
	return false;
}

static void done(Job *job)
{
	Generation *g = (Generation *)job;
	Server *s = g->call.s;
	g->is_in_worker = false;
	for (int i = 0; i < g->request.n_unknown; i++)
		metrics_unknown(&s->metrics, g->request.unknown[i]);
	if (g->is_over) { /* its peer went away meanwhile */
		free_if_done(g);
		return;
	}
	if (g->call.error.status || !admit(g) ||
		(!make_choices(g) && !api_refuse(&g->call.error, 500, NULL, "no memory"))) {
		const ApiError e = g->call.error;
		fail(g, &e, "refused");
		free_if_done(g);
		return;
	}
	for (int i = 0; i < g->request.n_prompts; i++)
		g->prompt_tokens += g->request.prompts[i].n;
	s->metrics.prompt_tokens += g->prompt_tokens;
	g->submitted = seconds_now();
	g->n_in_engine = g->n_choices;
	s->metrics.waiting += g->n_choices;
	for (int i = 0; i < g->n_choices; i++)
		g->choices[i].is_in_engine = true;
	for (int i = 0; i < g->n_choices; i++)
		engine_submit(s->engine, &g->choices[i].sequence);
}

void generation_start(Server *s, Conn *conn, HttpReader *r)
{
	Generation *g = (Generation *)call_open(s, conn, r, sizeof *g);
	if (!g)
		return;
	g->call.job.work = work;
	g->call.job.done = done;
	g->call.gone = gone;
	g->api = api_of_path(r->request.path);
	g->created = time(NULL);
	call_put_random(g->answer_id, g->api->answer_id);
	g->is_in_worker = true;
	workers_add(s->workers, &g->call.job);
}
