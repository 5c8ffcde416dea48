/* bench.h - atlas bench: how fast a plan runs, compared with how fast the same GPU could run it.
 *
 * A row is one measurement. Its bound is the time that the GPU needs at least, by what the row must read and multiply
 * and by two rates measured in the same run: reading memory, and a large product by the plan's own kernel.
 */
#ifndef ATLAS_BENCH_H
#define ATLAS_BENCH_H

#include "runtime/cli/bench/time_launch.h"
#include "runtime/cli/cli.h"
#include "runtime/plan_handle.h"

typedef enum RowKind { ROW_PREFILL, ROW_DECODE, ROW_SPECULATE } RowKind;
typedef enum BoundKind { BOUND_NONE, BOUND_READ, BOUND_GEMM } BoundKind; /* which of the two takes longer */

/* Experts that rows of a step chose, each counted once a layer: [0] of the model's layers, [1] of the head that
 * drafts. */
typedef struct Experts {
	double distinct[2]; /* sums over the layers and steps that were looked at */
	int64_t layers[2];  /* how many; 0 = none was, and the bound assumes the most that rows can choose */
} Experts;

typedef struct BenchRow {
	RowKind kind;
	char name[48];       /* "pp512", "tg128@4096x8", "sp128@4096x8": tokens of steps that draft and verify */
	int tokens;          /* prefill: of the prompt; decode: of each sequence in one repetition */
	int context, batch;  /* decode: tokens before the first repetition; sequences */
	char skipped[160];   /* why it was not measured; "" = it was */
	int reps;
	double ms;           /* median: prefill: to the first token; decode: of one step */
	double spread;       /* of the repetitions: (largest - least) / median */
	double tokens_s;     /* of all sequences together */
	double step_tokens;  /* speculate: tokens that a step made of a sequence */
	double accepted;     /* speculate: drafts accepted, of all */
	double bytes, flops; /* prefill: of the prompt; decode: of one step in the middle of the repetitions */
	double fp8_flops, fp4_flops; /* of these by products of codes by codes */
	double bytes_token;  /* bytes / tokens that come of them */
	double gbps, tflops; /* bytes and flops over time */
	BoundKind bound;
	double percent;      /* of the bound's rate; 0 without one */
	int collectives;     /* of these steps' launches, those that wait for other ranks; 0 = not timed */
	double collective_us; /* of one step, on their own */
	int nodes;           /* launches of one step: nodes of its CUDA graph; 0 on the reference device */
	double layer_launches; /* of them in a layer, on average */
	Experts experts;
	double a_layer;      /* experts that a step reads in a layer, on average, for the bound; 0 = there are none */
} BenchRow;

typedef struct BenchKernel { /* launches of a phase that are one kernel on operands of one shape */
	const Phase *phase;
	const Launch *launch; /* the first of them */
	const Kernel *kernel;
	const char *tunables; /* "WARPS=8" */
	int count;            /* in a step */
	LaunchTime time;
	double bytes, flops, fp8, fp4; /* bytes: read and written; as of Work */
	double bound_us;
	BoundKind bound;
	double lost_us;       /* count * (time - bound) */
} BenchKernel;

typedef struct BenchPhase { /* a whole step, launch after launch, without the host */
	const Phase *phase;
	int rows, context;    /* in use; positions a row looked back at, on average */
	LaunchTime step;
	double bound_us, alone_us; /* sums over its launches: of the bounds, of the times alone with a cold cache */
} BenchPhase;

typedef struct ColdStart { /* ms */
	double open;    /* map the plan and check it, hashes of weights left out */
	double context; /* driver and context, which begin to start with `open`: what is left of it then */
	double memory;  /* of the device, and pinned */
	double kernels; /* load cubins */
	double graphs;  /* build, instantiate and upload */
	double weights; /* to the device */
	double session; /* all of atlas_session_open: the five above and what is between them */
	double first_token; /* of a prompt of first_tokens */
	int first_tokens;
} ColdStart;

/* An earlier result, of this plan or another. "" = the file does not say. */
typedef struct EarlierRow { char name[48]; double tokens_s, spread; } EarlierRow;
typedef struct EarlierRun {
	const char *file;
	char root[65], family[64], card[256], driver[96], date[32];
	uint8_t sha256[32]; /* of the file: one run does not count twice */
	double temperature;
	EarlierRow *rows; int n_rows; /* rows: owned; those that were measured */
} EarlierRun;
enum { BENCH_SCHEMA = 2 /* of the JSON that is written and read */ };

typedef struct Bench {
	const Args *args;
	char date[32];   /* when it began, "2026-11-29T06:40:00Z"; "" = not recorded */
	char driver[96]; /* of the GPU; "" = there is none */
	char host[64];   /* --host; "" = not asked for */
	EarlierRun earlier[2 * MAX_GIVEN]; int n_earlier; /* args->compare.n of --compare, then those of --also */
	AtlasDevice *started;
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info;
	AtlasSessionInfo device;
	const Graph *graph;
	const TargetPlan *target; /* NULL on the reference device */
	LaunchTimer *timer;       /* NULL without bounds */
	char no_bounds[256];      /* why there are none; "" = there are */
	TimerBounds before, after, bounds; /* of the rows; the better of the two */
	ColdStart cold;
	BenchRow *rows; int n_rows;
	BenchPhase *phases; int n_phases;    /* --kernels */
	BenchKernel *kernels; int n_kernels; /* --kernels: by phase, worst first */
	AtlasEvent *events; int n_events; /* [slots * tokens of a step] */
	int32_t *tokens;          /* [max_context] random ids */
	uint64_t random, n_started; /* state of the generator of ids; sequences so far */
} Bench;

/* bench_work.c: what a step must do, by the plan --------------------------------------------------------- */

/* Read at least once; multiplied and added, and of these by products of e4m3 by e4m3 and of e2m1 by e2m1. */
typedef struct Work { double bytes, flops, fp8, fp4; } Work;
void add_work(Work *sum, const Work *w);

/* What is in use of a step. `positions`: sum over its rows of the positions each attends to; `history`: sum over its
 * sequences of the positions whose keys and values must be read at least once. */
typedef struct StepUse { int rows, outs; double positions, history;
	double experts;    /* that are read in a layer, on average; 0 = as many as the bucket's rows can choose */
	double sequences;  /* that the rows are of, as many of each */ } StepUse;
Work launch_work(const Phase *p, const Launch *l, const StepUse *use);
Work phase_work(const Phase *p, const StepUse *use);
/* The phase that a step of that size runs in; NULL when there is none. */
const Phase *phase_for(const TargetPlan *t, PhaseKind kind, int rows, int outs, int each);
/* Least time in us, and what takes it: reading, or products, each at the rate of its kind. */
double bound_us(const TimerBounds *b, const Work *w, BoundKind *kind);
const char *bound_name(BoundKind kind); /* "read", "gemm", "" */

/* bench_list.c ------------------------------------------------------------------------------------------- */

/* Lists the rows of the plan that --only asks for, in order. 0, or the exit code after the failure was printed. */
int bench_list_rows(Bench *b);

/* bench_rows.c ------------------------------------------------------------------------------------------- */

int bench_run_rows(Bench *b);
double bench_temperature(const Bench *b); /* 0 = greedy */
/* Starts `batch` sequences of `n` random tokens each; max_new as for atlas_start. */
int bench_start(Bench *b, int batch, int n, int max_new);
/* Steps until each of `batch` sequences has made `more` further tokens. *ended = one of them came to its end. */
int bench_steps(Bench *b, int batch, int more, bool *ended);
int bench_cancel_all(Bench *b);
/* Positions that each of `batch` sequences may have, by the context and the pool. */
int bench_room(const Bench *b, int batch);
int bench_first_token(Bench *b);

/* bench_experts.c: which experts steps read -------------------------------------------------------------- */

enum { BENCH_SAMPLED = 4 /* steps that are looked at, before the repetitions of a row and after them */ };
bool bench_has_experts(const Graph *g, int *of, int *each); /* of a layer, of a row */
int bench_sample_tokens(const Bench *b, const BenchRow *row); /* of a sequence, that a look takes at most */
/* Looks at steps of the sequences of a row; what has no clock. They must go on for that many tokens. */
int bench_sample_flight(Bench *b, BenchRow *row, bool *ended);
int bench_sample_prompt(Bench *b, BenchRow *row); /* at those of one more prompt, on a GPU */
/* Of a layer, on average; where none was looked at, as many as `rows` rows can choose. 0 = there are none. */
double bench_experts(const Bench *b, const Experts *e, bool is_head, int rows);

/* bench_speculate.c: steps that draft and verify --------------------------------------------------------- */

enum { BENCH_WARM_STEPS = 16, BENCH_SLACK = 48 /* tokens that may be in flight when a row ends */ };
/* A row: ms [reps] of a step. *ended = a sequence came to its end. */
/* Rows of a sequence in its steps; of those that draft, where they do. */
int bench_rows_each(const Bench *b, const BenchRow *row);
int bench_time_speculate(Bench *b, BenchRow *row, int prompt, int reps, double *ms, bool *ended);
/* What the two phases of a step of the row must do, `mean` positions before it; *nodes: their launches. */
Work bench_speculate_work(const Bench *b, const BenchRow *row, double mean, int *nodes);

/* bench_kernels.c: --kernels ----------------------------------------------------------------------------- */

int bench_run_kernels(Bench *b);
/* By b->bounds: what each launch could take, and the order, worst first. */
void bench_settle_kernels(Bench *b);

/* bench_before.c: --compare ------------------------------------------------------------------------------- */

/* Reads b->earlier; free(rows) of each. 0, or the exit code after the failure was reported. */
int bench_read_earlier(Bench *b);
/* Are those of --also runs of this plan on this device? Once the session is open. The same. */
int bench_check_also(const Bench *b);
/* Speed of a row over that of the earlier rows of its name, geometric means of the runs. With two runs or more a side
 * `open` is half the width of its interval of BENCH_CONFIDENCE % by how the runs of a side differ, and `verdict` is
 * "same", "faster" or "slower". Else the verdict is NULL, and `open` is what the repetitions within the runs leave
 * open, which a further run may exceed. ratio 0 = there is nothing to compare. */
enum { BENCH_CONFIDENCE = 99 };
typedef struct BenchRatio { double ratio, open; int n_before, n_now; const char *verdict; } BenchRatio;
BenchRatio bench_ratio(const Bench *b, const BenchRow *row);

/* What was found ----------------------------------------------------------------------------------------- */

void bench_print_text(const Bench *b, FILE *out);
void bench_print_json(const Bench *b, FILE *out);
void bench_print_html(const Bench *b, FILE *out);

#endif
