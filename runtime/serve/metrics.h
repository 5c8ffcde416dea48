/* metrics.h - what the server counts, and its text for Prometheus (exposition format 0.0.4). Of the loop's thread. */
#ifndef ATLAS_METRICS_H
#define ATLAS_METRICS_H

#include "runtime/plan_handle.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { METRICS_BOUNDS = 20, METRICS_BUCKETS = 128, METRICS_UNKNOWN = 32, METRICS_ROUTES = 24 };

typedef struct Histogram {
	int64_t counts[METRICS_BOUNDS + 1]; /* of each bucket alone */
	double sum;
} Histogram;
void histogram_add(Histogram *h, double seconds);

typedef enum Finish { FINISH_STOP, FINISH_LENGTH, FINISH_ERROR, FINISHES } Finish;
typedef enum Cancelled { BY_CLIENT, BY_SLOW_CLIENT, BY_WAIT, BY_DRAIN, CANCELS } Cancelled;

typedef struct StepBucket {
	const char *phase; /* static: "prefill", "mixed", "decode", "verify" */
	int rows;          /* of the compiled step; of a device without any, the most of a step */
	int each;          /* of "verify": rows of each slot; else 0 */
	double expected_s; /* by the plan's ledger, of "mixed" that of "prefill", whose steps they are; 0 = unknown */
	Histogram seconds;
} StepBucket;

typedef struct Metrics {
	const char *routes[METRICS_ROUTES]; /* [n_routes] paths; static */
	int n_routes;
	int64_t requests[METRICS_ROUTES + 1][6]; /* of each, and of all others, by the first digit of the status */
	int64_t finished[FINISHES], cancelled[CANCELS];
	int64_t shed, prompt_tokens, generation_tokens, running, waiting;
	AtlasSessionInfo session;           /* after the last step */
	Histogram first_token, gap, whole, queue;
	Histogram host_engine, host_loop; /* of a step */
	StepBucket steps[METRICS_BUCKETS];
	int n_steps;
	struct { char name[48]; int64_t n; } unknown[METRICS_UNKNOWN]; /* the last one: all others */
	int n_unknown;
} Metrics;

/* The buckets of the plan's target (NULL: the reference device, which has none), as m->session uses them. */
void metrics_start(Metrics *m, const AtlasPlan *plan, const char *target);
/* The step of m->session took so long. */
void metrics_step(Metrics *m, double seconds);
/* An answer: route is "METHOD PATH" or a path; NULL = none was read. */
void metrics_answer(Metrics *m, const char *route, int status);
void metrics_unknown(Metrics *m, const char *name);
void metrics_put(const Metrics *m, const AtlasPlan *plan, const AtlasPlanInfo *info, const char *target, FILE *out);

#endif
