/* serve.h - atlas serve: a plan over HTTP. docs/serve.md is its manual.
 *
 * Threads: one event loop (HTTP, streams, deadlines, /health, /ready, /metrics: never waits for a model), one engine
 * (owns the session: engine.h), workers (JSON, templates, tokenization: workers.h). What they share are sequences and
 * jobs that pass from one to the next.
 */
#ifndef ATLAS_SERVE_H
#define ATLAS_SERVE_H

#include "runtime/atlas.h"

#include <stdbool.h>
#include <stdint.h>

enum { SERVE_MAX_NAMES = 16 };
typedef enum ServeLog { SERVE_LOG_JSON, SERVE_LOG_TEXT, SERVE_LOG_OFF } ServeLog;

typedef struct ServeOptions { /* all texts live until serve_run returns */
	const AtlasPlan *plan;
	const char *host, *port;      /* of TCP */
	const char *socket_path;      /* a Unix socket instead; NULL = TCP */
	const char *takeover_path;    /* of the Unix socket at which listening sockets are taken and offered; NULL = none */
	const char *names[SERVE_MAX_NAMES]; int n_names; /* of the model, at least one */
	const char *key_file;         /* NULL = no keys */
	const char *hosts[SERVE_MAX_NAMES]; int n_hosts; /* that Host may name besides this machine's loopback */
	const char *origin;           /* NULL = none */
	const char *tool_format;      /* of tool_formats.h, or "none"; NULL = that of the chat template */
	const char *certificate; /* what /v1/plan says of PLAN.cert: "" = it holds, else why not; NULL = there is none */
	const char *receipt_sha256;   /* 64 digits; NULL = none */
	int max_queue, max_connections, n_workers;
	int64_t max_body, max_pending; /* bytes: of a request, and of a stream that its peer has not taken */
	double max_wait_s, drain_s, head_s, body_s, idle_s, stall_s, ping_s;
	ServeLog log;
	int (*open_session)(void *ctx, AtlasSession **session); /* in the engine's thread; 0 or an exit code, printed */
	/* 0, or an exit code and why the session cannot go on, as is known without asking it; NULL = always 0 */
	int (*look)(void *ctx, char *why, size_t n);
	void *open_ctx; /* of both */
} ServeOptions;

/* Serves until SIGTERM or SIGINT, which must be blocked in the caller's thread; the second of them ends the process at
 * once. Returns an exit code; failures are printed. */
int serve_run(const ServeOptions *options);

/* Is it an address or name of the loopback alone? */
bool serve_is_loopback(const char *host);

#endif
