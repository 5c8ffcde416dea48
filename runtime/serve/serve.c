/* serve.c - the server's life: opens, serves, drains, ends (serve.h). */
#include "artifacts/hash.h"
#include "runtime/plan_handle.h"
#include "runtime/serve/server.h"
#include "runtime/serve/structure.h"
#include "runtime/serve/tool_formats.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 16 << 10, TICK_MS = 100 };
/* A failed server answers 503 for so long before it ends, so that a probe can see why. */
static const double failed_s = 2;

bool serve_is_loopback(const char *host)
{
	struct in6_addr six;
	struct in_addr four;
	if (strcmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &four) == 1)
		return (ntohl(four.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/* Events of the loop ------------------------------------------------------------ */

static void on_bad(void *ctx, Conn *conn, const HttpReader *r)
{
	Server *s = ctx;
	ApiError e;
	api_refuse(&e, r->status, NULL, "%s", r->why);
	answer_error_now(s, conn, r, &e);
}

static void on_gone(void *ctx, Conn *conn, void *answer)
{
	Call *c = answer;
	(void)ctx, (void)conn;
	c->conn = NULL;
	c->gone(c);
}

static void drain(Server *s, double seconds)
{
	s->state = DRAINING;
	s->drain_until = seconds_now() + seconds;
}

static void stop_listening(Server *s)
{
	net_stop_listening(s->net, s->before || offer_is_out(s->offer));
	offer_close(s->offer);
	s->offer = NULL;
}

/* Taking the place of a server, and being replaced ------------------------------------------------------------ */

static void on_given(void *ctx)
{
	Server *s = ctx;
	log_event(s, "replaced", "another server has the listening sockets; running answers end here");
	if (s->state != READY) {
		if (s->state == LOADING)
			drain(s, s->options->drain_s);
		stop_listening(s);
		return;
	}
	s->state = REPLACED;
	net_give_sockets(s->net);
	offer_close(s->offer);
	s->offer = NULL;
}

static void end_before(Server *s)
{
	if (s->before)
		event_free(s->before);
	s->before = NULL;
}

/* The sockets are this server's from now on, and the next one's to take. */
static bool accept_clients(Server *s)
{
	char why[512];
	OfferOptions o = {.path = s->options->takeover_path, .control = s->taken.control, .given = on_given, .ctx = s};
	s->taken.control = -1;
	if (s->before)
		log_event(s, "listening", net_name(s->net));
	end_before(s);
	net_accept(s->net);
	takeover_keep(&s->taken);
	takeover_close(&s->taken);
	o.n = net_sockets(s->net, o.sockets);
	s->offer = offer_open(s->base, &o, why, sizeof why);
	if (!s->offer)
		log_event(s, "error", why);
	return s->offer;
}

/* The server before has ended before this one was ready: clients are answered that it is loading. */
static void on_before_ended(evutil_socket_t fd, short what, void *arg)
{
	Server *s = arg;
	(void)fd, (void)what;
	log_event(s, "takeover", "the server before this one has ended");
	accept_clients(s);
}

static void fail(Server *s, int exit_code, const char *text)
{
	s->exit_code = exit_code;
	snprintf(s->failure, sizeof s->failure, "%s", text);
	log_event(s, "failed", s->failure);
	drain(s, failed_s);
}

void server_look(Server *s)
{
	char why[512];
	const int code = s->exit_code || !s->options->look ? 0 : s->options->look(s->options->open_ctx, why, sizeof why);
	if (code)
		fail(s, code, why);
}

static void on_batch(Job *job)
{
	EngineBatch *b = (EngineBatch *)job;
	Server *s = b->ctx;
	generation_batch(job);
	if (b->exit_code && !s->exit_code) {
		fail(s, b->exit_code, b->failure);
	} else if (b->is_open && s->state == LOADING) {
		s->state = READY;
		if (s->before)
			accept_clients(s);
		snprintf(s->target, sizeof s->target, "%s", b->target);
		metrics_start(&s->metrics, s->limits.plan, s->target);
		log_event(s, "device", b->device);
		log_event(s, "ready", net_name(s->net));
	}
	free(b);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	Server *s = arg;
	struct signalfd_siginfo info;
	(void)what;
	while (read(fd, &info, sizeof info) == sizeof info) {
		if (s->state == DRAINING) {
			stop_listening(s); /* a socket's name goes with it */
			_exit(s->exit_code ? s->exit_code : EXIT_INTERRUPTED);
		}
		log_event(s, "draining", "no new requests; a second signal ends at once");
		stop_listening(s);
		drain(s, s->options->drain_s);
	}
}

/* Deadlines of the queue and of the drain. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	Server *s = arg;
	const double now = seconds_now();
	const bool is_late = s->state == DRAINING && now >= s->drain_until;
	(void)fd, (void)what;
	server_look(s);
	for (Call *c = s->calls, *next; c; c = next) {
		next = c->next;
		if (!call_is_generation(c))
			continue;
		const double since = generation_waits_since(c);
		generation_ping(c, now);
		if (is_late)
			generation_cancel(c, BY_DRAIN);
		else if (since > 0 && now - since > s->options->max_wait_s)
			generation_cancel(c, BY_WAIT);
	}
	if (s->state < DRAINING || (s->exit_code && !is_late))
		return;
	if (s->state == DRAINING)
		stop_listening(s);
	const bool is_empty = !s->calls && net_busy(s->net) == 0;
	if (is_empty || (s->state == DRAINING && now >= s->drain_until + 2 * failed_s))
		event_base_loopbreak(s->base);
}

/* Opening ------------------------------------------------------------ */

static int say(Server *s, int code, const char *text)
{
	log_event(s, "error", text);
	return code;
}

/* Each connection has a descriptor, and the soft limit is often 1,024. */
static void raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int check_access(Server *s)
{
	const ServeOptions *o = s->options;
	char why[512];
	if (o->key_file && !guard_read_keys(&s->guard, o->key_file, why, sizeof why))
		return say(s, EXIT_BAD_INPUT, why);
	const bool is_near = o->socket_path || serve_is_loopback(o->host);
	if (!is_near && !s->guard.n_keys) {
		snprintf(why, sizeof why, "--host %s can be reached from elsewhere: --api-key-file FILE names who may use it",
			o->host);
		return say(s, EXIT_USAGE, why);
	}
	s->guard.checks_host = is_near && !o->socket_path;
	memcpy(s->guard.hosts, o->hosts, sizeof *o->hosts * (size_t)o->n_hosts);
	s->guard.n_hosts = o->n_hosts;
	if (is_near && !o->socket_path && s->guard.n_hosts < GUARD_MAX_HOSTS)
		s->guard.hosts[s->guard.n_hosts++] = o->host;
	s->guard.origin = o->origin;
	return 0;
}

static int open_loop(Server *s)
{
	sigset_t set;
	const struct timeval tick = {0, TICK_MS * 1000};
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	s->base = event_base_new();
	const int fd = s->base ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
	s->signals = fd < 0 ? NULL : event_new(s->base, fd, EV_READ | EV_PERSIST, on_signal, s);
	s->tick = s->signals ? event_new(s->base, -1, EV_PERSIST, on_tick, s) : NULL;
	s->mail = s->tick ? mail_open(s->base) : NULL;
	s->workers = s->mail ? workers_open(s->mail, s->options->n_workers) : NULL;
	if (!s->workers || event_add(s->signals, NULL) != 0 || event_add(s->tick, &tick) != 0)
		return say(s, EXIT_ENVIRONMENT, "no memory, descriptor or thread for the event loop");
	return 0;
}

/* Clients are accepted at once, or, after another server, when the session is open. */
static int take_place(Server *s, NetOptions *net)
{
	char why[512];
	if (!s->options->takeover_path)
		return 0;
	if (!takeover_take(s->options->takeover_path, &s->taken, why, sizeof why))
		return say(s, EXIT_ENVIRONMENT, why);
	memcpy(net->sockets, s->taken.sockets, sizeof net->sockets);
	net->n_sockets = s->taken.n;
	s->before = s->taken.n ? event_new(s->base, s->taken.peer, EV_READ, on_before_ended, s) : NULL;
	if (s->taken.n && (!s->before || event_add(s->before, NULL) != 0))
		return say(s, EXIT_ENVIRONMENT, "no memory for an event");
	return 0;
}

static int open_net(Server *s)
{
	const ServeOptions *o = s->options;
	char why[512];
	NetOptions options = {.host = o->host, .port = o->port, .socket_path = o->socket_path,
		.limits = {HEAD_BYTES, (size_t)o->max_body}, .max_connections = o->max_connections, .idle_s = o->idle_s,
		.head_s = o->head_s, .body_s = o->body_s, .stall_s = o->stall_s, .ctx = s, .request = route_request,
		.bad = on_bad, .gone = on_gone};
	const int code = take_place(s, &options);
	if (code)
		return code;
	s->net = net_open(s->base, &options, why, sizeof why);
	if (!s->net)
		return say(s, EXIT_ENVIRONMENT, why);
	if (o->takeover_path && !s->before && !accept_clients(s))
		return EXIT_ENVIRONMENT;
	snprintf(why, sizeof why, "%d slots of %d tokens, %d KV pages of %d, tool format %s", s->info.slots,
		s->info.max_context, s->info.pages, s->info.page, s->limits.tools ? s->limits.tools->name : "none");
	log_event(s, "plan", why);
	log_event(s, s->before ? "takeover" : "listening", net_name(s->net));
	return 0;
}

/* The form in which the model calls tools, and whether it reasons, as its template has it. */
static int find_tools(Server *s)
{
	const AtlasPlan *plan = s->options->plan;
	const ToolTemplate t = plan->has_chat ? tool_template_of(&plan->chat) : (ToolTemplate){0};
	const char *name = s->options->tool_format;
	char why[500], names[400];
	s->limits.tools = name ? tool_format_named(name) : t.format;
	s->limits.fills_tools = t.needs_all;
	s->limits.has_short_ids = t.has_short_ids;
	const bool has_channels = s->limits.tools && s->limits.tools->body == TOOL_CHANNELS;
	s->limits.reasoning = has_channels ? reasoning_of_channels() : t.reasoning;
	if (!name || s->limits.tools || strcmp(name, "none") == 0)
		return 0;
	tool_format_names(names, sizeof names);
	snprintf(why, sizeof why, "--tool-format %.40s: expected none, %s", name, names);
	return say(s, EXIT_USAGE, why);
}

static int open_all(Server *s)
{
	int code = find_tools(s);
	if (code || (code = check_access(s)))
		return code;
	if ((code = open_loop(s)) || (code = open_net(s)))
		return code;
	const EngineOptions options = {.plan = s->options->plan, .mail = s->mail, .ctx = s,
		.open_session = s->options->open_session, .open_ctx = s->options->open_ctx, .batch = on_batch};
	s->engine = engine_open(&options);
	return s->engine ? 0 : say(s, EXIT_ENVIRONMENT, "no memory or thread for the engine");
}

/* Connections first, whose answers are then of no use; what workers and the engine give back is freed on arrival. */
static void close_all(Server *s)
{
	offer_close(s->offer);
	end_before(s);
	takeover_close(&s->taken);
	net_close(s->net);
	workers_close(s->workers);
	engine_close(s->engine);
	mail_close(s->mail);
	if (s->tick)
		event_free(s->tick);
	if (s->signals) {
		close(event_get_fd(s->signals));
		event_free(s->signals);
	}
	if (s->base)
		event_base_free(s->base);
	out_close(&s->out);
	out_close(&s->log);
}

int serve_run(const ServeOptions *options)
{
	Server *s = calloc(1, sizeof *s);
	if (!s)
		return EXIT_ENVIRONMENT;
	s->options = options;
	s->taken = (Taken){.peer = -1, .control = -1};
	s->info.struct_size = sizeof s->info;
	s->created = time(NULL);
	atlas_plan_info(options->plan, &s->info);
	s->limits = (ApiLimits){
		.plan = options->plan, .info = &s->info, .names = options->names, .n_names = options->n_names,
		.structures = structures_open(options->plan)};
	route_names(&s->metrics);
	s->metrics.session.free_slots = s->info.slots;
	s->metrics.session.free_pages = s->info.pages;
	hex_text(s->info.root_hash, 6, s->fingerprint);
	raise_descriptors();
	signal(SIGPIPE, SIG_IGN);
	int code = out_open(&s->out) && out_open(&s->log) ? open_all(s) : EXIT_ENVIRONMENT;
	if (!code) {
		event_base_dispatch(s->base);
		code = s->exit_code;
		log_event(s, "ended", code ? s->failure : "drained");
	}
	close_all(s);
	structures_close(s->limits.structures);
	free(s);
	return code;
}
