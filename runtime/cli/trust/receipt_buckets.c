/* receipt_buckets.c - steps of every bucket of a plan, for observers. */
#include "runtime/cli/cli.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/cuda.h"
#include "runtime/plan_handle.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

typedef struct Filling {
	const Args *args;
	AtlasSession *session;
	const Graph *g;
	AtlasEvent *events; int n_events;
	int32_t *tokens;
	uint32_t random;
} Filling;

static int start(Filling *f, int n_tokens, int most)
{
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	int slot;
	for (int i = 0; i < n_tokens; i++) {
		f->random = f->random * 1664525u + 1013904223u;
		f->tokens[i] = (int32_t)((f->random >> 8) % (uint32_t)f->g->vocab);
	}
	AtlasStatus s = atlas_start(f->session, f->tokens, n_tokens, &greedy, most, &slot);
	return s == ATLAS_OK ? 0 : cli_fail_session(f->args, f->session, s);
}

static int run_to_end(Filling *f)
{
	while (atlas_active(f->session) > 0) {
		int n;
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
		AtlasStatus s = atlas_step(f->session, f->events, f->n_events, &n);
		if (s != ATLAS_OK)
			return cli_fail_session(f->args, f->session, s);
	}
	return 0;
}

/* Tokens that `n` sequences of equal length can have at once, by slots, context and pool; `more` come of each. */
static bool has_room(const Graph *g, int n, int length, int more)
{
	int positions = length + more + (g->verify_rows > 1 ? g->verify_rows - 1 : 0);
	return n <= g->slots && length + more <= g->max_context && n * ((positions + g->page - 1) / g->page) <= g->pages;
}

static int fill_bucket(Filling *f, const Phase *p, int steps, bool *was_run)
{
	int n = p->each ? p->rows / p->each : p->rows, length = 1, more = steps;
	if (p->kind == PREFILL) { /* the fewest prompts that make up its rows */
		n = (p->rows + f->g->max_context - 2) / (f->g->max_context - 1);
		length = p->rows / n;
		more = 1;
	}
	n = n > f->g->slots ? f->g->slots : n;
	*was_run = has_room(f->g, n, length, more);
	int code = 0;
	for (int i = 0; i < n && *was_run && !code; i++)
		code = start(f, p->kind == PREFILL && i == 0 ? length + p->rows % n : length, more);
	return code ? code : run_to_end(f);
}

int receipt_run_buckets(const Args *args, AtlasSession *session, const Graph *g, const TargetPlan *t, int steps,
	BucketFn *after, void *ctx)
{
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(session, &info);
	Filling f = {.args = args, .session = session, .g = g, .n_events = g->slots * info.step_tokens, .random = 1};
	f.events = calloc((size_t)f.n_events, sizeof *f.events);
	f.tokens = calloc((size_t)g->max_context, sizeof *f.tokens);
	int code = f.events && f.tokens ? 0 : cli_say(args, EXIT_ENVIRONMENT, "no memory for %d tokens", g->max_context);
	for (int p = 0; p < t->n_phases && !code; p++) {
		bool was_run;
		if (t->phases[p].kind != PREFILL && t->phases[p].kind != (info.step_tokens > 1 ? VERIFY : DECODE))
			continue;
		session_force_rows(session, t->phases[p].each); /* each rung's, which the ladder may have for fewer slots */
		code = fill_bucket(&f, &t->phases[p], steps, &was_run);
		if (!code && was_run && after)
			code = after(ctx, &t->phases[p]);
	}
	session_force_rows(session, 0);
	free(f.events);
	free(f.tokens);
	return code;
}

/* The watch needs the plan of the device's target while the session opens: the one that a session on it would have. */
const TargetPlan *receipt_target(const Args *args, const AtlasPlan *plan)
{
	Driver cu;
	CuDevice device;
	int major = 0, minor = 0;
	if (driver_open(&cu, NULL) != ATLAS_OK || cu.Init(0) != CU_SUCCESS ||
		cu.DeviceGet(&device, args->device_index) != CU_SUCCESS ||
		cu.DeviceGetAttribute(&major, CU_ATTR_CC_MAJOR, device) != CU_SUCCESS ||
		cu.DeviceGetAttribute(&minor, CU_ATTR_CC_MINOR, device) != CU_SUCCESS)
		return NULL;
	return cuda_find_target(&plan->artifact, major, minor);
}

int receipt_open(const Args *args, const AtlasPlan *plan, Watch *w, AtlasSession **session)
{
	AtlasError error = {0};
	AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cuda",
		.device_index = args->device_index, .speculate = cli_speculate(args)};
	if (plan->by_reference && !args->weights_dir)
		return cli_say(args, EXIT_USAGE, "the plan holds no weights: name the checkpoint's folder with --weights DIR");
	watch_start(w, receipt_target(args, plan)); /* NULL: the opening says what is wrong */
	if (session_open_watched(plan, &options, w->plan ? &w->hooks : NULL, args->seat, session, &error) != ATLAS_OK)
		return cli_fail(args, &error);
	return w->plan ? 0 : cli_say(args, EXIT_ENVIRONMENT, "the GPU cannot be watched");
}
