/* verb_serve.c - atlas serve: options of the command line to a server (runtime/serve/serve.h). */
#include "artifacts/audit.h"
#include "artifacts/hash.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/plan_handle.h"
#include "runtime/serve/serve.h"
#include "runtime/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Opening { const Args *args; const AtlasPlan *plan; AtlasDevice *started; } Opening;

/* Rows of steps of prompts by default: those of the largest bucket that takes at most GAP_US by the ledger. Where steps
 * are not mixed: at most half as long again as the smallest of at least LEAST rows. With experts, of which a few rows
 * read as many as a lot of them, that is a larger one. */
static int default_rows(const AtlasPlan *plan, const char *target, bool mixed)
{
	enum { GAP_US = 20000, LEAST = 128 };
	const Artifact *a = &plan->artifact;
	int rows = LEAST, t = 0;
	double most = mixed ? GAP_US : INFINITY;
	while (t < a->n_targets && strcmp(a->targets[t].target, target) != 0)
		t++;
	for (int pass = mixed; pass < 2 && t < a->n_targets; pass++)
		for (int i = 0; i < a->targets[t].n_phases; i++) {
			const Phase *p = &a->targets[t].phases[i];
			const double us = p->kind == PREFILL && p->rows >= LEAST ? audit_expected_us(a->ledger[t], p) : INFINITY;
			if (pass == 0 && 1.5 * us < most)
				most = 1.5 * us;
			else if (pass == 1 && us <= most && p->rows > rows)
				rows = p->rows;
		}
	return rows;
}

static int open_session(void *ctx, AtlasSession **session)
{
	Opening *o = ctx;
	Args args = *o->args;
	args.quiet = true; /* the server's own lines say what is opened */
	const int code = cli_open_session(&args, o->plan, NULL, o->started, session);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	if (code || args.max_gap > 0)
		return code;
	atlas_session_info(*session, &info);
	session_max_gap(*session, default_rows(o->plan, info.target, info.mixed), SERVE_GAP_EACH);
	return 0;
}

static int look(void *ctx, char *why, size_t n) { return cli_look_at_ranks(((Opening *)ctx)->args, why, n); }

/* The last member of a receipt is the SHA-256 of all before its comma. */
static int read_receipt(const Args *args, char digits[65])
{
	static const char last[] = ",\n \"sha256\": \"";
	char *text = NULL, *at = NULL;
	uint8_t hash[32];
	size_t n;
	const int code = cli_read_file(args, args->receipt, &text, &n);
	if (code) {
		free(text);
		return code;
	}
	for (char *p = text; (p = strstr(p, last)); p += strlen(last))
		at = p;
	if (at) {
		sha256_of(text, (size_t)(at - text), hash);
		hex_text(hash, 32, digits);
	}
	const bool holds = at && strncmp(at + strlen(last), digits, 64) == 0;
	free(text);
	return holds ? 0 : cli_say(args, EXIT_INTEGRITY, "%s: not a receipt whose sha256 matches", args->receipt);
}

/* PLAN without folder and ending. */
static void default_name(const char *plan, char *room, size_t n)
{
	const char *slash = strrchr(plan, '/');
	snprintf(room, n, "%s", slash ? slash + 1 : plan);
	char *dot = strrchr(room, '.');
	if (dot && dot != room)
		*dot = 0;
}

static double seconds(double given, double otherwise) { return given > 0 ? given : otherwise; }

static int serve(const Args *args, Opening *opening)
{
	AtlasPlanInfo info = {.struct_size = sizeof info};
	char name[256], port[16], why[768] = "", digits[65], *cert = certificate_path(args->plan);
	atlas_plan_info(opening->plan, &info);
	snprintf(port, sizeof port, "%d", args->port < 0 ? 8080 : args->port);
	default_name(args->plan, name, sizeof name);
	ServeOptions o = {.plan = opening->plan, .host = args->listen ? args->listen : "127.0.0.1", .port = port,
		.socket_path = args->socket, .takeover_path = args->take_over, .names = {name}, .n_names = 1,
		.key_file = args->api_key_file, .n_hosts = args->allowed_hosts.n, .origin = args->allowed_origin,
		.tool_format = args->tool_format,
		.max_queue = args->max_queue > 0 ? args->max_queue : 8 * info.slots,
		.max_connections = args->max_connections > 0 ? args->max_connections : 1024,
		.n_workers = args->workers > 0 ? args->workers : 2, .max_body = args->max_body > 0 ? args->max_body : 16 << 20,
		.max_pending = args->max_pending > 0 ? args->max_pending : 1 << 20,
		.max_wait_s = seconds(args->max_wait, 600), .drain_s = isnan(args->drain) ? 30 : args->drain,
		.head_s = seconds(args->head_timeout, 5), .body_s = seconds(args->body_timeout, 30),
		.idle_s = seconds(args->keep_alive, 75), .stall_s = seconds(args->write_timeout, 30),
		.ping_s = seconds(args->ping, 10),
		.log = !args->log || *args->log == 'j' ? SERVE_LOG_JSON : *args->log == 't' ? SERVE_LOG_TEXT : SERVE_LOG_OFF,
		.open_session = open_session, .look = look, .open_ctx = opening};
	memcpy(o.hosts, args->allowed_hosts.at, sizeof o.hosts);
	if (args->names.n) {
		memcpy(o.names, args->names.at, sizeof o.names);
		o.n_names = args->names.n;
	}
	if (cert && access(cert, F_OK) == 0) {
		certificate_demand(args, &opening->plan->artifact, 0, 0, why, sizeof why);
		o.certificate = why;
	}
	free(cert);
	int code = args->receipt ? read_receipt(args, digits) : 0;
	o.receipt_sha256 = args->receipt ? digits : NULL;
	return code ? code : serve_run(&o);
}

int verb_serve(const Args *args)
{
	AtlasPlan *plan = NULL;
	if (args->socket && (args->listen || args->port >= 0))
		return cli_say(args, EXIT_USAGE, "--socket takes the place of --host and --port");
	if (!args->socket && args->listen && !serve_is_loopback(args->listen) && !args->api_key_file)
		return cli_say(args, EXIT_USAGE,
			"--host %s can be reached from elsewhere: --api-key-file FILE says who may use it", args->listen);
	cli_hold_signals();
	Opening opening = {.args = args, .started = cli_start_device(args)};
	int code = cli_open_plan_as(args, args->plan, ATLAS_VERIFY_LAZY, &plan);
	opening.plan = plan;
	if (!code)
		code = serve(args, &opening);
	atlas_device_end(opening.started);
	atlas_plan_close(plan);
	return code;
}
