/* calls.c - requests that are being answered, and the line that each leaves in the log (server.h). */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "runtime/serve/apis.h"
#include "runtime/serve/server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* Log ------------------------------------------------------------ */

/* A reader of stderr that sleeps must not stop the server: a line for which there is no room is lost. */
static void write_line(Server *s)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (out_end(&s->log) && poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
		(void)!write(STDERR_FILENO, s->log.at, s->log.n);
}

static void put_time(FILE *out)
{
	struct timespec t;
	struct tm utc;
	char text[32];
	clock_gettime(CLOCK_REALTIME, &t);
	gmtime_r(&t.tv_sec, &utc);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
	fprintf(out, "%s.%03ldZ", text, t.tv_nsec / 1000000);
}

void log_request(Server *s, const char *id, const char *route, int status, double began, const char *more)
{
	FILE *out = out_begin(&s->log);
	const double ms = 1e3 * (seconds_now() - began);
	if (status)
		metrics_answer(&s->metrics, route, status);
	if (s->options->log == SERVE_LOG_OFF)
		return;
	if (s->options->log == SERVE_LOG_TEXT) {
		put_time(out);
		fprintf(out, " %s %d %.1f ms %s%s\n", route, status, ms, id, more);
	} else {
		fputs("{\"time\":\"", out);
		put_time(out);
		fputs("\",\"event\":\"request\",", out);
		json_fields(out, "id", id, "route", route, NULL);
		fprintf(out, ",\"status\":%d,\"ms\":%.3f%s}\n", status, ms, more);
	}
	write_line(s);
}

void log_event(Server *s, const char *event, const char *text)
{
	FILE *out = out_begin(&s->log);
	if (s->options->log == SERVE_LOG_JSON) {
		fputs("{\"time\":\"", out);
		put_time(out);
		fputs("\",", out);
		json_fields(out, "event", event, "text", text, NULL);
		fputs("}\n", out);
	} else {
		fprintf(out, "atlas serve: %s: %s\n", event, text);
	}
	write_line(s);
}

/* Calls ------------------------------------------------------------ */

void call_put_random(char *id, const char *prefix)
{
	uint8_t random[12] = {0};
	(void)!getrandom(random, sizeof random, 0);
	hex_text(random, sizeof random, stpcpy(id, prefix));
}

/* The client's own x-request-id where it is short and plain, else one of ours. */
static void put_id(const HttpReader *r, char id[72])
{
	const char *given = r->request.request_id;
	const size_t n = given ? strlen(given) : 0;
	bool is_plain = n > 0 && n <= 64;
	for (size_t i = 0; i < n && is_plain; i++)
		is_plain = given[i] > ' ' && given[i] < 0x7f && given[i] != '"' && given[i] != '\\';
	if (is_plain) {
		memcpy(id, given, n + 1);
		return;
	}
	call_put_random(id, "req-");
}

/* path: "POST /v1/messages", or without the method. Clients of Messages look for the id under a name of their own. */
static const char *fields_of(const Server *s, const char *id, const char *path, char *room, size_t n)
{
	const char *origin = s->options->origin;
	const bool is_messages = path && strstr(path, "/v1/messages");
	snprintf(room, n, "x-request-id: %s\r\n%s%s%s%s%s%s", id, is_messages ? "request-id: " : "",
		is_messages ? id : "", is_messages ? "\r\n" : "", origin ? "Access-Control-Allow-Origin: " : "",
		origin ? origin : "", origin ? "\r\nVary: Origin\r\n" : "");
	return room;
}

static void put_route(const HttpReader *r, char *route, size_t n)
{
	snprintf(route, n, "%s %s", r->request.method ? r->request.method : "-", r->request.path ? r->request.path : "-");
}

Call *call_open(Server *s, Conn *conn, HttpReader *r, size_t bytes)
{
	Call *c = calloc(1, bytes);
	if (!c) {
		ApiError e;
		api_refuse(&e, 500, NULL, "no memory");
		answer_error_now(s, conn, r, &e);
		return NULL;
	}
	c->s = s;
	c->conn = conn;
	c->began = seconds_now();
	put_id(r, c->id);
	put_route(r, c->route, sizeof c->route);
	c->put_error = api_error_form(r->request.path);
	c->body = http_take_body(r, &c->n_body);
	c->next = s->calls;
	if (s->calls)
		s->calls->before = c;
	s->calls = c;
	conn_set_answer(conn, c);
	return c;
}

const char *call_fields(const Call *c, char *room, size_t n) { return fields_of(c->s, c->id, c->route, room, n); }

static const char *error_fields(const ApiError *e, char *room, size_t n)
{
	char retry[40] = "";
	if (e->retry_after_s)
		snprintf(retry, sizeof retry, "Retry-After: %d\r\n", e->retry_after_s);
	snprintf(room, n, "%s%s%s%s%s", retry, e->status == 401 ? "WWW-Authenticate: Bearer\r\n"
		: e->status == 500 ? "x-should-retry: false\r\n" : "", e->allow ? "Allow: " : "", e->allow ? e->allow : "",
		e->allow ? "\r\n" : "");
	return room;
}

void call_answer(Call *c, int status, const char *type, const void *body, size_t n)
{
	char room[480], more[80], fields[560];
	Conn *conn = c->conn;
	snprintf(
		fields, sizeof fields, "%s%s", call_fields(c, room, sizeof room), error_fields(&c->error, more, sizeof more));
	c->conn = NULL;
	if (conn)
		conn_answer(conn, status, type, fields, body, n);
}

void call_answer_error(Call *c)
{
	c->put_error(&c->error, out_begin(&c->s->out));
	out_end(&c->s->out);
	call_answer(c, c->error.status, "application/json", c->s->out.at, c->s->out.n);
}

void call_free(Call *c)
{
	if (c->before)
		c->before->next = c->next;
	else
		c->s->calls = c->next;
	if (c->next)
		c->next->before = c->before;
	free(c->body);
	free(c->text);
	free(c);
}

/* Probes come every few seconds and say nothing new. */
static bool is_probe(const char *path)
{
	return path && (strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0 || strcmp(path, "/metrics") == 0);
}

void answer_with(Server *s, Conn *conn, const HttpReader *r, int status, const char *type, const char *more,
	const void *body, size_t n)
{
	char room[480], id[72], route[96], fields[848];
	put_id(r, id);
	put_route(r, route, sizeof route);
	if (is_probe(r->request.path))
		metrics_answer(&s->metrics, r->request.path, status);
	else
		log_request(s, id, route, status, seconds_now(), "");
	snprintf(fields, sizeof fields, "%s%s", fields_of(s, id, r->request.path, room, sizeof room), more);
	conn_answer(conn, status, type, fields, body, n);
}

void answer_now(Server *s, Conn *conn, const HttpReader *r, int status, const char *type, const void *body, size_t n)
{
	answer_with(s, conn, r, status, type, "", body, n);
}

void answer_error_now(Server *s, Conn *conn, const HttpReader *r, const ApiError *e)
{
	char more[80];
	api_error_form(r->request.path)(e, out_begin(&s->out));
	out_end(&s->out);
	answer_with(s, conn, r, e->status, "application/json", error_fields(e, more, sizeof more), s->out.at, s->out.n);
}
