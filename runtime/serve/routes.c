/* routes.c - which request goes where, and who may make it (server.h). */
#include "runtime/serve/server.h"

#include <assert.h>
#include <string.h>

static void models(Server *s, Conn *conn, HttpReader *r) { about_models(s, conn, r, NULL); }

static const struct Route {
	const char *method, *path;
	bool is_open; /* without a key */
	void (*answer)(Server *s, Conn *conn, HttpReader *r);
	const char *absent; /* instead of an answer: why there is none */
} routes[] = {
	{"POST", "/v1/chat/completions", false, generation_start, NULL},
	{"POST", "/v1/completions", false, generation_start, NULL},
	{"GET", "/v1/models", false, models, NULL},
	{"GET", "/v1/plan", false, about_plan, NULL},
	{"POST", "/tokenize", false, tokens_encode, NULL},
	{"POST", "/detokenize", false, tokens_decode, NULL},
	{"GET", "/metrics", false, about_metrics, NULL},
	{"GET", "/health", true, about_health, NULL},
	{"GET", "/ready", true, about_ready, NULL},
	{"GET", "/", true, about_page, NULL},
	{"POST", "/v1/embeddings", false, NULL, "a plan of a language model computes no embeddings"},
	{"POST", "/v1/responses", false, generation_start, NULL},
	{"POST", "/v1/messages", false, generation_start, NULL},
	{"POST", "/v1/messages/count_tokens", false, tokens_count, NULL},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };
static_assert((int)N_ROUTES <= (int)METRICS_ROUTES, "each route has a row in the metrics");
static const char one_model[] = "/v1/models/";

/* What a browser asks before it sends a request of another origin. */
static void preflight(Server *s, Conn *conn, HttpReader *r)
{
	char fields[600];
	log_request(s, "-", "OPTIONS", 204, seconds_now(), "");
	snprintf(fields, sizeof fields, "Access-Control-Allow-Origin: %.200s\r\nVary: Origin\r\n"
		"Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Max-Age: 600\r\n"
		"Access-Control-Allow-Headers: authorization, content-type, x-api-key, x-request-id, "
		"anthropic-version, anthropic-beta\r\n", s->options->origin);
	(void)r;
	conn_answer(conn, 204, "text/plain", fields, "", 0);
}

static bool is_method(const char *asked, const char *method)
{
	return strcmp(asked, method) == 0 || (strcmp(asked, "HEAD") == 0 && strcmp(method, "GET") == 0);
}

static void not_found(Server *s, Conn *conn, HttpReader *r, const struct Route *other, const char *reason)
{
	ApiError e;
	if (reason)
		api_refuse(&e, 404, NULL, "%s", reason);
	else if (other)
		api_refuse(&e, 405, NULL, "%.200s takes %s", r->request.path, other->method);
	else
		api_refuse(&e, 404, NULL, "there is no %.20s %.200s",
			is_method(r->request.method, "GET") ? "GET" : r->request.method, r->request.path);
	e.code = other && !reason ? NULL : "unknown_url";
	e.allow = !other || reason ? NULL : strcmp(other->method, "GET") == 0 ? "GET, HEAD" : other->method;
	answer_error_now(s, conn, r, &e);
}

void route_names(Metrics *m)
{
	for (m->n_routes = 0; m->n_routes < N_ROUTES; m->n_routes++)
		m->routes[m->n_routes] = routes[m->n_routes].path;
}

void route_request(void *server, Conn *conn, HttpReader *r)
{
	Server *s = server;
	const HttpRequest *q = &r->request;
	const struct Route *route = NULL, *other = NULL;
	ApiError e;
	for (int i = 0; i < N_ROUTES && !route; i++)
		if (strcmp(q->path, routes[i].path) == 0) {
			other = &routes[i];
			if (is_method(q->method, other->method))
				route = other;
		}
	if (!guard_check_names(&s->guard, q, &e)) {
		answer_error_now(s, conn, r, &e);
		return;
	}
	if (strcmp(q->method, "OPTIONS") == 0 && q->origin && s->options->origin) {
		preflight(s, conn, r);
		return;
	}
	if (!(route && route->is_open) && !guard_check_key(&s->guard, q, &e)) {
		answer_error_now(s, conn, r, &e);
		return;
	}
	if (!route && strncmp(q->path, one_model, strlen(one_model)) == 0 && is_method(q->method, "GET")) {
		char id[400]; /* may hold / as it is, or escaped */
		snprintf(id, sizeof id, "%s", q->path + strlen(one_model));
		about_models(s, conn, r, http_unescape(id) ? id : "");
		return;
	}
	if (route && route->answer)
		route->answer(s, conn, r);
	else
		not_found(s, conn, r, other, route ? route->absent : NULL);
}
