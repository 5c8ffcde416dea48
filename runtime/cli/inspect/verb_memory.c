/* verb_memory.c - atlas memory: what a plan takes of a device, item by item, and what it took.
 *
 * The prediction needs the plan alone. With a GPU a session is opened and every bucket run; measured is by how much the
 * device's free memory fell since the driver's context was there. Another program on the same GPU would spoil that.
 */
#include "artifacts/json_put.h"
#include "artifacts/memory.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/cuda.h"
#include "runtime/plan_handle.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

typedef struct Bucket { const Phase *phase; int64_t bytes; } Bucket; /* NULL: "opened"; bytes: measured after it */
enum { MAX_BUCKETS = 128 };

typedef struct Ledger {
	const Args *args;
	AtlasPlan *plan;
	AtlasSession *session;
	bool is_measured;
	Watch watch;
	const TargetPlan *target;
	MemoryItem items[MEMORY_MAX_ITEMS]; int n_items;
	int64_t predicted;
	Bucket buckets[MAX_BUCKETS]; int n_buckets;
	int64_t peak;
} Ledger;

/* What a measured figure may differ by. */
static int64_t bar(const Ledger *l)
{
	const int64_t least = 32 << 20;
	return l->predicted / 100 > least ? l->predicted / 100 : least;
}

static bool is_near(const Ledger *l, int64_t peak) { return llabs(peak - l->predicted) <= bar(l); }

static int n_ranks(const Ledger *l) { return seen_ranks(l->args, &l->plan->artifact); }

/* What another rank took at most. */
static int64_t peak_of(const Ledger *l, int rank)
{
	const RankSeen *s = &l->args->seen[rank];
	return s->free_bytes[WATCH_CONTEXT] - s->least_free;
}

/* On all ranks. */
static bool is_within(const Ledger *l)
{
	bool is = is_near(l, l->peak);
	for (int r = 1; r < n_ranks(l); r++)
		is &= is_near(l, peak_of(l, r));
	return is;
}

static int note(Ledger *l, const Phase *phase)
{
	CudaView v;
	size_t free_bytes = 0, total_bytes;
	CuContext popped;
	Device *own = ranked_inner(session_device(l->session));
	CuResult r = cuda_view(own, &v) ? v.cu->CtxPushCurrent(v.context) : CU_NO_DEVICE;
	if (r == CU_SUCCESS) {
		r = v.cu->MemGetInfo(&free_bytes, &total_bytes);
		v.cu->CtxPopCurrent(&popped);
	}
	if (r != CU_SUCCESS)
		return cli_say(l->args, EXIT_ENVIRONMENT, "cuMemGetInfo fails: its result is %d", r);
	int64_t bytes = l->watch.free_bytes[WATCH_CONTEXT] - (int64_t)free_bytes;
	l->peak = bytes > l->peak ? bytes : l->peak;
	if (l->n_buckets < MAX_BUCKETS)
		l->buckets[l->n_buckets++] = (Bucket){phase, bytes};
	return 0;
}

static int after_bucket(void *ctx, const Phase *p) { return note(ctx, p); }

static int measure(Ledger *l)
{
	int code = receipt_open(l->args, l->plan, &l->watch, &l->session);
	if (code)
		return code;
	l->target = l->watch.plan;
	code = note(l, NULL);
	code = code ? code : receipt_run_buckets(l->args, l->session, &l->plan->artifact.graph, l->target, 4, after_bucket,
		l);
	atlas_session_close(l->session); /* the other ranks end */
	l->session = NULL;
	const int silent = code ? 0 : seen_all(l->args, &l->plan->artifact);
	if (silent)
		code = cli_say(l->args, EXIT_ENVIRONMENT, "rank %d has not said what it took", silent);
	l->is_measured = !code;
	return code;
}

static void predict(Ledger *l)
{
	const MemoryLoad load = memory_load(l->target);
	l->n_items = memory_items(&l->plan->artifact.graph, l->target, &load, l->items);
	l->predicted = memory_on_device(l->items, l->n_items);
}

static const struct { WatchStage from, to; const char *name; } stages[] = {
	{WATCH_CONTEXT, WATCH_ARENAS, "allocations"}, {WATCH_ARENAS, WATCH_KERNELS, "kernels"},
	{WATCH_KERNELS, WATCH_GRAPHS, "graphs"}, {WATCH_GRAPHS, WATCH_WEIGHTS, "weights copied"}};
enum { N_STAGES = sizeof stages / sizeof stages[0] };

static int64_t stage_bytes(const Ledger *l, int s)
{
	return l->watch.free_bytes[stages[s].from] - l->watch.free_bytes[stages[s].to];
}

static void print_text(const Ledger *l)
{
	const MemoryLoad load = memory_load(l->target);
	printf("%s: %.1f MiB on the device; %d kernels of %lld bytes, %d graph nodes\n", l->target->target,
		(double)l->predicted / (1 << 20), load.n_kernels, (long long)load.code_bytes, load.n_nodes);
	for (int i = 0; i < l->n_items; i++)
		printf("  %-21s %-6s %16lld bytes\n", l->items[i].name, l->items[i].is_on_device ? "device" : "host",
			(long long)l->items[i].bytes);
	if (!l->is_measured)
		return;
	puts("measured, while opening:");
	for (int s = 0; s < N_STAGES; s++)
		printf("  %-28s %16lld bytes\n", stages[s].name, (long long)stage_bytes(l, s));
	printf("  %-28s %16lld bytes of %lld, including other processes\n", "in use before",
		(long long)(l->watch.total_bytes - l->watch.free_bytes[WATCH_CONTEXT]), (long long)l->watch.total_bytes);
	puts("measured after each bucket:");
	for (int i = 0; i < l->n_buckets; i++)
		printf("  %-28s %16lld bytes, %+lld\n", l->buckets[i].phase ? PHASE_LABEL(l->buckets[i].phase) : "opened",
			(long long)l->buckets[i].bytes,
			(long long)(l->buckets[i].bytes - l->predicted));
	for (int r = 0; r < n_ranks(l); r++) {
		const int64_t peak = r ? peak_of(l, r) : l->peak;
		if (n_ranks(l) > 1)
			printf("rank %d: ", r);
		printf("peak %.1f MiB, predicted %.1f MiB: %s %.1f MiB\n", (double)peak / (1 << 20),
			(double)l->predicted / (1 << 20), is_near(l, peak) ? "within" : "further apart than",
			(double)bar(l) / (1 << 20));
	}
}

static void print_json(const Ledger *l)
{
	printf("{\"schema_version\": 1, \"target\": ");
	json_quoted(stdout, l->target->target);
	printf(", \"device_bytes\": %lld, \"items\": [", (long long)l->predicted);
	for (int i = 0; i < l->n_items; i++) {
		fputs(i ? ",\n  {\"item\": " : "\n  {\"item\": ", stdout);
		json_quoted(stdout, l->items[i].name);
		printf(", \"where\": \"%s\", \"bytes\": %lld}", l->items[i].is_on_device ? "device" : "host",
			(long long)l->items[i].bytes);
	}
	fputs("],\n \"measured\": ", stdout);
	if (!l->is_measured) {
		puts("null}");
		return;
	}
	printf("{\"peak\": %lld, \"bar\": %lld, \"within\": %s,\n  \"opening\": {", (long long)l->peak, (long long)bar(l),
		is_within(l) ? "true" : "false");
	for (int s = 0; s < N_STAGES; s++)
		printf("%s\"%s\": %lld", s ? ", " : "", stages[s].name, (long long)stage_bytes(l, s));
	fputs("},\n  \"buckets\": [", stdout);
	for (int i = 0; i < l->n_buckets; i++) {
		const Phase *of = l->buckets[i].phase;
		printf("%s{\"phase\": \"%s\", \"rows\": %d, \"each\": %d, \"bytes\": %lld}", i ? ", " : "",
			of ? phase_name(of->kind) : "opened", of ? of->rows : 0, of ? of->each : 0, (long long)l->buckets[i].bytes);
	}
	for (int r = 1; r < n_ranks(l); r++)
		printf("%s{\"rank\": %d, \"peak\": %lld, \"within\": %s}", r > 1 ? ", " : "],\n  \"other_ranks\": [", r,
			(long long)peak_of(l, r), is_near(l, peak_of(l, r)) ? "true" : "false");
	puts("]}}");
}

/* Without a GPU each target of the plan in turn. */
static int predict_all(Ledger *l)
{
	const Artifact *a = &l->plan->artifact;
	if (a->n_targets == 0)
		return cli_say(l->args, EXIT_BAD_INPUT, "the plan is for the reference device, which takes no device memory");
	for (int i = 0; i < a->n_targets; i++) {
		l->target = &a->targets[i];
		predict(l);
		(l->args->json ? print_json : print_text)(l);
	}
	return EXIT_OK;
}

int verb_memory(const Args *args)
{
	Ledger l = {.args = args};
	Driver cu;
	cli_hold_signals();
	bool is_cpu = args->device && strcmp(args->device, "cpu") == 0;
	bool is_auto = !args->device || strcmp(args->device, "auto") == 0;
	int code = cli_open_plan(args, args->plan, &l.plan);
	if (!code && (is_cpu || (is_auto && driver_open(&cu, NULL) != ATLAS_OK))) {
		code = predict_all(&l);
	} else if (!code) {
		code = measure(&l);
		if (!code) {
			predict(&l);
			(args->json ? print_json : print_text)(&l);
			code = is_within(&l) ? EXIT_OK : EXIT_NEGATIVE;
		}
	}
	atlas_session_close(l.session);
	watch_end(&l.watch);
	atlas_plan_close(l.plan);
	return code;
}
