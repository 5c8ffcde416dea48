/* seen_ranks.c - what the other ranks of a plan ran, how exact it was, and what memory they took: each watches its own
 * GPU.
 *
 * They are processes of the same command, so what they have seen is a struct in memory that was shared before they were
 * forked. Rank 0 reads it when they have closed their devices, which the end of its session has them do.
 */
#include "runtime/cli/cli.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/driver.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/plan_handle.h"
#include "runtime/session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { WAIT_MS = 30000, TURN_MS = 5 };

typedef struct Follower {
	DeviceWatch hooks;
	Watch watch;
	RankSeen *seen;
	Driver cu;
	bool has_driver;
} Follower;

static void on_stage(void *ctx, WatchStage stage, int64_t free_bytes, int64_t total_bytes)
{
	Follower *f = ctx;
	f->watch.hooks.stage(&f->watch, stage, free_bytes, total_bytes);
	f->seen->least_free = free_bytes;
}

static void on_node(void *ctx, int phase, int step, int launch, const SeenLaunch *seen)
{
	Follower *f = ctx;
	f->watch.hooks.node(&f->watch, phase, step, launch, seen);
}

/* Free memory when a phase begins, not at each of its steps. */
static void on_launched(void *ctx, int phase, int steps)
{
	Follower *f = ctx;
	size_t free_bytes, total_bytes;
	const int before = f->watch.n_log;
	f->watch.hooks.launched(&f->watch, phase, steps);
	if (f->watch.n_log != before && f->has_driver && f->cu.MemGetInfo(&free_bytes, &total_bytes) == CU_SUCCESS &&
		(int64_t)free_bytes < f->seen->least_free)
		f->seen->least_free = (int64_t)free_bytes;
}

bool receipt_share(Args *args, int n)
{
	if (strcmp(args->verb, "receipt") != 0 && strcmp(args->verb, "memory") != 0 && !args->certify)
		return true;
	void *at = mmap(NULL, sizeof(RankSeen) * (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	args->seen = at == MAP_FAILED ? NULL : at;
	return args->seen;
}

AtlasStatus receipt_follow(const Args *args, const AtlasPlan *plan, const AtlasSessionOptions *options,
	const RankSeat *seat, AtlasError *error)
{
	RankSeen *seen = &args->seen[group_rank(seat->group)];
	Follower f = {.hooks = {&f, on_stage, on_node, on_launched}, .seen = seen};
	Listener listener = {0};
	Args own = *args;
	own.device_index = options->device_index;
	if (strcmp(args->verb, "receipt") == 0)
		seen->is_heard = listener_start(&listener, args->cupti, seen->no_cupti, sizeof seen->no_cupti);
	watch_start(&f.watch, receipt_target(&own, plan));
	f.has_driver = driver_open(&f.cu, NULL) == ATLAS_OK;
	CuDevice device;
	if (!f.has_driver || f.cu.DeviceGet(&device, own.device_index) != CU_SUCCESS ||
		f.cu.DeviceGetName(seen->device, sizeof seen->device, device) != CU_SUCCESS)
		seen->device[0] = 0;
	const AtlasStatus s = session_follow(plan, options, f.watch.plan ? &f.hooks : NULL, seat, error);
	if (seen->is_heard && !listener_stop(&listener, seen->no_cupti, sizeof seen->no_cupti))
		seen->is_heard = false;
	seen->n_nodes = f.watch.n_nodes;
	seen->n_bad = f.watch.n_bad;
	memcpy(seen->first_bad, f.watch.first_bad, sizeof seen->first_bad);
	memcpy(seen->free_bytes, f.watch.free_bytes, sizeof seen->free_bytes);
	seen->total_bytes = f.watch.total_bytes;
	seen->is_short_of_memory = !f.watch.plan || f.watch.is_short_of_memory ||
		!receipt_match(&f.watch, listener.ran, listener.n, &seen->match);
	if (!seen->is_heard)
		seen->match.first_difference[0] = 0;
	listener_free(&listener);
	watch_end(&f.watch);
	atomic_store(&seen->is_done, 1);
	return s;
}

/* Certificates ------------------------------------------------------------------------------------------------ */

typedef struct Certifier {
	const Args *args;
	const AtlasPlan *plan;
	Certificate c;
	Dtype *coarsest;
	Measure *m;
	RankSeen *seen;
} Certifier;

static void begin_certificate(void *ctx, Device *own)
{
	Certifier *c = ctx;
	const int n_layers = c->plan->artifact.graph.n_layers;
	c->coarsest = malloc(sizeof *c->coarsest * ((size_t)n_layers + 1));
	for (int l = 0; c->coarsest && l <= n_layers; l++)
		c->coarsest[l] = DT_f32;
	c->m = c->coarsest ? measure_start(own, &c->plan->artifact, c->args->threads, &c->c, c->coarsest) : NULL;
}

static void certify_phase(void *ctx, int phase)
{
	Certifier *c = ctx;
	if (c->m)
		measure_bucket(c->m, phase);
}

static void end_certificate(void *ctx)
{
	Certifier *c = ctx;
	const int most = (int)(sizeof c->seen->ops / sizeof *c->seen->ops);
	c->seen->n_ops = c->m && c->c.n_ops <= most ? c->c.n_ops : -1;
	if (c->seen->n_ops > 0)
		memcpy(c->seen->ops, c->c.ops, sizeof *c->c.ops * (size_t)c->c.n_ops);
	measure_end(c->m);
	certificate_free(&c->c);
	free(c->coarsest);
}

AtlasStatus certify_follow(const Args *args, const AtlasPlan *plan, const AtlasSessionOptions *options,
	const RankSeat *seat, AtlasError *error)
{
	Certifier c = {.args = args, .plan = plan, .seen = &args->seen[group_rank(seat->group)]};
	const RankHooks hooks = {&c, begin_certificate, certify_phase, end_certificate};
	RankSeat own = *seat;
	own.hooks = &hooks;
	c.seen->n_ops = -1;
	const AtlasStatus s = session_follow(plan, options, NULL, &own, error);
	atomic_store(&c.seen->is_done, 1);
	return s;
}

bool receipt_has_seen(const Args *args, int r)
{
	for (int ms = 0; ms < WAIT_MS && !atomic_load(&args->seen[r].is_done); ms += TURN_MS)
		nanosleep(&(struct timespec){0, TURN_MS * 1000000L}, NULL);
	return atomic_load(&args->seen[r].is_done) && !args->seen[r].is_short_of_memory;
}
