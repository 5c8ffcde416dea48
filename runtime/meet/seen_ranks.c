/* seen_ranks.c - what the other ranks of a plan ran, how exact it was, and what memory they took: each watches its own
 * GPU.
 *
 * They are processes of the same command, so what they have seen is a struct in memory that was shared before they were
 * forked. Rank 0 reads it when they have closed their devices, which the end of its session has them do.
 */
#include "artifacts/json_put.h"
#include "artifacts/ranks.h"
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

/* What rank 0 makes of it -------------------------------------------------------------------------------------- */

int seen_ranks(const Args *args, const Artifact *a) { return args->seen ? ranks_of(&a->ranks) : 1; }

int seen_all(const Args *args, const Artifact *a)
{
	int ms = 0;
	for (int r = 1; r < seen_ranks(args, a); r++) {
		const RankSeen *s = &args->seen[r];
		for (; ms < WAIT_MS && !atomic_load(&s->is_done); ms += TURN_MS)
			nanosleep(&(struct timespec){0, TURN_MS * 1000000L}, NULL);
		if (!atomic_load(&s->is_done) || s->is_short_of_memory)
			return r;
	}
	return 0;
}

int seen_differs(const Args *args, const Artifact *a, const Match *m)
{
	for (int k = 1; k < seen_ranks(args, a); k++) {
		const RankSeen *s = &args->seen[k];
		if (s->n_bad || s->match.first_difference[0] ||
			memcmp(s->match.planned_sha256, m->planned_sha256, sizeof m->planned_sha256) != 0)
			return k;
	}
	return 0;
}

int seen_certificate(const Args *args, const Artifact *a, Certificate *c)
{
	const int silent = seen_all(args, a);
	for (int r = 1; r < seen_ranks(args, a); r++) {
		const RankSeen *s = &args->seen[r];
		bool good = r != silent && s->n_ops > 0;
		for (int i = 0; good && i < s->n_ops; i++)
			good = measure_add(c, &s->ops[i]);
		if (!good)
			return r;
	}
	return 0;
}

void seen_put_launches(const Match *m, bool is_heard, FILE *out)
{
	fprintf(out, "\"launches\": {\"planned\": %lld, \"observed\": ", (long long)m->planned);
	if (is_heard) {
		fprintf(out, "%lld, \"out_of_place\": %lld", (long long)m->observed, (long long)m->out_of_place);
		if (m->nccl_planned)
			fprintf(out, ", \"of_nccl\": {\"planned\": %lld, \"observed\": %lld}", (long long)m->nccl_planned,
				(long long)m->nccl_observed);
		fputs(",\n  \"observed_sha256\": ", out);
		json_hash(out, m->observed_sha256);
		fputs(", \"first_difference\": ", out);
		cli_json_or_null(out, m->first_difference);
	} else {
		fputs("null", out);
	}
	fputs(",\n  \"planned_sha256\": ", out);
	json_hash(out, m->planned_sha256);
	fputc('}', out);
}

void seen_put_ranks(const Args *args, const Artifact *a, FILE *out)
{
	for (int k = 1; k < seen_ranks(args, a); k++) {
		const RankSeen *s = &args->seen[k];
		fprintf(out, "%s{\"rank\": %d, \"device\": ", k > 1 ? ",\n  " : ",\n \"other_ranks\": [\n  ", k);
		json_quoted(out, s->device);
		fprintf(out, ", \"graphs\": {\"nodes\": %lld, \"different\": %lld, \"first_difference\": ",
			(long long)s->n_nodes, (long long)s->n_bad);
		cli_json_or_null(out, s->first_bad);
		fputs("},\n  ", out);
		seen_put_launches(&s->match, s->is_heard, out);
		fputc('}', out);
	}
	if (seen_ranks(args, a) > 1)
		fputc(']', out);
}

void seen_print(const Args *args, const Artifact *a, const Match *m, bool differences)
{
	const int bad = differences ? seen_differs(args, a, m) : 0;
	for (int k = 1; k < seen_ranks(args, a) && !differences; k++) {
		const RankSeen *s = &args->seen[k];
		printf("rank %d            %lld nodes, %lld different; %lld launches planned", k, (long long)s->n_nodes,
			(long long)s->n_bad, (long long)s->match.planned);
		if (s->is_heard)
			printf(", %lld observed by CUPTI", (long long)s->match.observed);
		putchar('\n');
	}
	if (!bad)
		return;
	const RankSeen *s = &args->seen[bad];
	printf("different on rank %d: %s\n", bad, s->first_bad[0] ? s->first_bad : s->match.first_difference[0]
		? s->match.first_difference : "its steps are others than those of rank 0");
}
