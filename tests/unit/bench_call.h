/* bench_call.h - atlas bench as calls: the command's header and the compiler's do not go into one file. */
#ifndef TESTS_BENCH_CALL_H
#define TESTS_BENCH_CALL_H

#include "runtime/atlas.h"

typedef struct BenchKind { /* launches of one kind, as --kernels counts them */
	int phase, rows;       /* kind of phase and its bucket */
	int launch, count;     /* index of the first of them in its phase; of them in a step */
	double us, bytes, flops, bound_us, lost_us;
} BenchKind;

typedef struct BenchSeen {
	BenchKind kinds[256];
	int n;
	int n_phases;
	char *text, *json, *html; /* what is printed; free() */
} BenchSeen;

/* atlas bench --kernels without rows, quiet; returns the exit code. */
int bench_call_kernels(AtlasPlan *plan, AtlasSession *session, BenchSeen *seen);

/* The HTML page of one decode row of that share of its bound (0 = no bound); free it. */
char *bench_call_page(double percent);

/* Bytes and operations of one launch of the plan's target 0. */
void bench_call_work(const AtlasPlan *plan, int phase, int launch, int rows, int outs, double positions, double history,
	double experts, double *bytes, double *flops);

/* cli_other_card. */
const char *bench_call_other_card(const AtlasPlan *plan, const char *target, const char *gpu);

/* A decode row of so many greedy sequences: experts that were counted, over how many layers and steps, those a layer
 * that its bound takes, and the bytes of a step by that. Returns the exit code. */
typedef struct BenchExperts { double distinct, a_layer, bytes; int64_t layers; } BenchExperts;
int bench_call_experts(AtlasPlan *plan, AtlasSession *session, int batch, BenchExperts *out);

#endif
