/* server.h - what the files of the room share: the server, and a request that is being answered. */
#ifndef ATLAS_SERVER_H
#define ATLAS_SERVER_H

#include "artifacts/seconds.h"
#include "runtime/serve/api.h"
#include "runtime/serve/engine.h"
#include "runtime/serve/guard.h"
#include "runtime/serve/metrics.h"
#include "runtime/serve/net.h"
#include "runtime/serve/out.h"
#include "runtime/serve/serve.h"
#include "runtime/serve/takeover.h"
#include "runtime/serve/workers.h"

enum {
#define EXIT_CODE(name, value, meaning) name = (value),
#include "artifacts/exit_codes.h"
#undef EXIT_CODE
};

typedef struct Server Server;
typedef struct Call Call;

typedef enum ServerState {
	LOADING, READY,
	DRAINING, /* refuses requests, ends what it has, in drain_s */
	REPLACED  /* another server has its sockets: answers what still comes, and ends when all connections have */
} ServerState;

struct Server { /* the loop's thread alone, but for options, info, limits, which do not change */
	const ServeOptions *options;
	AtlasPlanInfo info;
	ApiLimits limits;
	Guard guard;
	Metrics metrics;
	Out out;              /* of answers and chunks */
	Out log;
	struct event_base *base;
	Net *net;
	Taken taken;          /* while LOADING: from the server whose place it takes */
	struct event *before; /* that server's end; NULL: there is none */
	Offer *offer;         /* to the next server; NULL = none */
	Mail *mail;
	Workers *workers;
	Engine *engine;
	ServerState state;
	int exit_code;        /* not 0: the session failed; `failure` says how */
	char failure[512];
	char fingerprint[13]; /* of the plan: first digits of its root hash */
	char target[32];      /* that runs; "" on the reference device */
	int64_t created;      /* seconds since 1970 */
	Call *calls;          /* all that are not freed */
	struct event *tick, *signals;
	double drain_until;
	double used;          /* seconds of the processor that the loop had used at the step before */
};

/* A request from when it is whole until nothing uses it any more. */
struct Call {
	Job job;              /* in a worker; first member */
	Server *s;
	Conn *conn;           /* NULL: the peer is gone, or has its answer */
	Call *next, *before;
	char id[72];          /* x-request-id */
	char route[96];
	double began;         /* seconds_now */
	char *body; size_t n_body;
	char *text; size_t n_text; /* a worker's answer */
	ApiError error;
	void (*put_error)(const ApiError *e, FILE *out); /* its API's form */
	void (*gone)(Call *c);     /* the peer went away; conn is NULL already */
};

/* calls.c ------------------------------------------------------------ */

/* bytes: of the struct that begins with a Call, zeroed. NULL after a 500. */
Call *call_open(Server *s, Conn *conn, HttpReader *r, size_t bytes);
void call_put_random(char *id, const char *prefix); /* the prefix and 24 digits */
/* The header fields of every answer: x-request-id and what Origin needs. */
const char *call_fields(const Call *c, char *room, size_t room_bytes);
/* Whole answers. After them conn is NULL; the call is still the caller's to free. */
void call_answer(Call *c, int status, const char *type, const void *body, size_t n);
void call_answer_error(Call *c);
void call_free(Call *c);
/* An answer that needs no Call: of routes that the loop answers itself, and of refusals before one. */
void answer_now(Server *s, Conn *conn, const HttpReader *r, int status, const char *type, const void *body, size_t n);
/* more: header fields besides, each with its CR LF. */
void answer_with(Server *s, Conn *conn, const HttpReader *r, int status, const char *type, const char *more,
	const void *body, size_t n);
void answer_error_now(Server *s, Conn *conn, const HttpReader *r, const ApiError *e);
/* A line about a request that ended. `more`: further members of the JSON object, each begun by a comma. */
void log_request(Server *s, const char *id, const char *route, int status, double began, const char *more);
void log_event(Server *s, const char *event, const char *text);
void server_look(Server *s); /* has the session failed while nothing was asked of it? */

/* routes.c ------------------------------------------------------------ */

void route_names(Metrics *m); /* fills its routes */
void route_request(void *server, Conn *conn, HttpReader *r); /* NetOptions.request */

/* generation.c ------------------------------------------------------------ */

void generation_start(Server *s, Conn *conn, HttpReader *r); /* at the path of an Api */
void generation_batch(Job *job);             /* EngineOptions.batch */
void generation_cancel(Call *c, Cancelled why); /* whatever it is waiting for; its peer gets an error */
bool call_is_generation(const Call *c);
void generation_ping(Call *c, double now); /* a stream that has been silent for a while says so, where its API can */
double generation_waits_since(const Call *c); /* 0: all of it has a slot, or it has not been submitted */

/* about.c: answers of the loop ------------------------------------------------------------ */

void about_models(Server *s, Conn *conn, HttpReader *r, const char *id); /* id NULL: all */
void about_plan(Server *s, Conn *conn, HttpReader *r);
void about_page(Server *s, Conn *conn, HttpReader *r);
void about_health(Server *s, Conn *conn, HttpReader *r);
void about_ready(Server *s, Conn *conn, HttpReader *r);
void about_metrics(Server *s, Conn *conn, HttpReader *r);
/* tokens.c: answers of a worker */
void tokens_count(Server *s, Conn *conn, HttpReader *r);
void tokens_encode(Server *s, Conn *conn, HttpReader *r);
void tokens_decode(Server *s, Conn *conn, HttpReader *r);

#endif
