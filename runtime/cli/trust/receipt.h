/* receipt.h - what a GPU really ran, compared with the plan: for atlas receipt and atlas memory.
 *
 * A Watch observes a session from its opening. It compares every kernel node of the graphs with the plan's launch, as
 * the driver reports it, and writes down which steps were put on the stream. A Listener has CUPTI report each kernel
 * that ran, with the time at which it started. receipt_match compares the two.
 */
#ifndef ATLAS_RECEIPT_H
#define ATLAS_RECEIPT_H

#include "artifacts/certificate.h"
#include "runtime/device.h"

#include <stdio.h>

struct Args;

typedef struct PhaseSteps { int phase, steps; } PhaseSteps;

typedef struct Watch {
	DeviceWatch hooks;         /* ctx is this; give &hooks to session_open_watched */
	const TargetPlan *plan;    /* set by the caller before the opening */
	PhaseSteps *log; int n_log, cap; /* in order */
	int64_t n_nodes, n_bad;    /* nodes of graphs; of them those that are not the plan's launch */
	char first_bad[256];       /* "" = none */
	int64_t free_bytes[WATCH_STAGES], total_bytes;
	bool is_short_of_memory;   /* the log is not whole */
} Watch;
void watch_start(Watch *w, const TargetPlan *plan);
void watch_end(Watch *w);

typedef struct RanKernel { SeenLaunch seen; uint64_t start_ns; } RanKernel;
typedef struct Listener {
	void *cupti;
	unsigned version;            /* of CUPTI's API: 130001 */
	RanKernel *ran; int n, cap;  /* by start once it has ended */
	char **names; int n_names;   /* that `ran` points to */
	int64_t dropped;             /* records that CUPTI had no room for */
	bool is_short_of_memory;
} Listener;
/* Kernels that start from here on are heard. One at a time in a process. path: the library, NULL = where it usually is.
 * False: it cannot be had, with the reason. */
bool listener_start(Listener *l, const char *path, char *why, size_t why_bytes);
bool listener_stop(Listener *l, char *why, size_t why_bytes); /* all that ran is in l->ran */
void listener_free(Listener *l);

typedef struct Match {
	int64_t planned, observed;   /* launches of the plan's */
	int64_t nccl_planned, nccl_observed; /* kernels of NCCL: one for each collective that is its */
	int64_t out_of_place;        /* that started before one that precedes them and that they do not wait for */
	uint8_t planned_sha256[32], observed_sha256[32]; /* of the two lists as text, in order */
	char first_difference[384];  /* "" = none */
} Match;
bool receipt_match(const Watch *w, RanKernel *ran, int n, Match *m); /* takes NCCL's out of ran; false: no memory */

/* Steps of every bucket: for each prefill phase prompts of its rows, for each decode phase its rows for `steps` steps.
 * `after` is called after each (may be NULL); it returns an exit code. Buckets that no session can fill are left. */
typedef int BucketFn(void *ctx, const Phase *phase);
int receipt_run_buckets(const struct Args *args, AtlasSession *session, const Graph *g, const TargetPlan *t, int steps,
	BucketFn *after, void *ctx);
/* What another rank has seen, where all see it: shared memory. */
typedef struct RankSeen {
	_Atomic int is_done;         /* the rest is there */
	char device[256];
	int64_t n_nodes, n_bad;
	char first_bad[256];
	int64_t free_bytes[WATCH_STAGES], total_bytes, least_free; /* least: of all steps */
	bool is_heard;               /* CUPTI listened */
	bool is_short_of_memory;
	char no_cupti[256];
	Match match;
	int n_ops; CertOp ops[1024]; /* of a certificate: figures of its launches; -1 = there was no memory */
} RankSeen;
bool receipt_share(struct Args *args, int n); /* before ranks are forked: args->seen, where the verb watches */
/* session_follow, watched: into args->seen, by the rank of the seat. certify_follow: each launch measured. */
struct RankSeat;
AtlasStatus certify_follow(const struct Args *args, const AtlasPlan *plan, const AtlasSessionOptions *options,
	const struct RankSeat *seat, AtlasError *error);
AtlasStatus receipt_follow(const struct Args *args, const AtlasPlan *plan, const AtlasSessionOptions *options,
	const struct RankSeat *seat, AtlasError *error);
int seen_ranks(const struct Args *args, const Artifact *a); /* how many ranks see; 1 = this process alone */
/* When the session is closed: waits until all have said what they have seen; the first that has not, 0 = all have. */
int seen_all(const struct Args *args, const Artifact *a);
/* The first that ran what the plan has not, or other steps than rank 0, of which m is; 0 = none. */
int seen_differs(const struct Args *args, const Artifact *a, const Match *m);
/* Figures of their launches into c->ops, of each the worse one. The first rank that has none; 0 = all have. */
int seen_certificate(const struct Args *args, const Artifact *a, Certificate *c);
/* Their part of a receipt; as text a line for each, or what is different. */
void seen_put_launches(const Match *m, bool is_heard, FILE *out);
void seen_put_ranks(const struct Args *args, const Artifact *a, FILE *out);
void seen_print(const struct Args *args, const Artifact *a, const Match *m, bool differences);

/* Of the GPU that args name; NULL = it has none, or there is no such GPU. */
const TargetPlan *receipt_target(const struct Args *args, const AtlasPlan *plan);
/* As cli_open_session, on a GPU, watched. w->plan is found on the way. */
int receipt_open(const struct Args *args, const AtlasPlan *plan, Watch *w, AtlasSession **session);

#endif
