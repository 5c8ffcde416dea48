/* tune.h - atlas tune: the candidates of a plan, each alone on the GPU. */
#ifndef ATLAS_TUNE_H
#define ATLAS_TUNE_H

#include "artifacts/plan.h"
#include "runtime/cli/bench/time_launch.h"

/* verb_tune.c: the whole verb after opening the plan; returns the exit code. driver: NULL = the system's. */
struct Args;
int tune_artifact(const struct Args *args, const Artifact *artifact, const Driver *driver);
/* tune_rekey.c: the verb with --rekey, whose plan is a file of times. */
int tune_rekey(const struct Args *args);

/* tune_inputs.c: what a buffer of a trial (named as the operand) holds before it runs -------------------- */

/* Only random numbers will not do: an index, a count, settings. */
bool tune_is_ruled(const Buf *b);
/* The contents of such a buffer in a full step: decode rows of one slot each, with few tokens in even turns and many in
 * odd ones (no more than the context holds), prefill rows of as few prompts as hold them. Page tables of different
 * `turn` lead to different pages, as long as there are any. host has b->bytes bytes. */
enum { TUNE_FEW = 1024, TUNE_MANY = 4096 };
void tune_rule(const Graph *g, const Phase *p, const Buf *b, int turn, void *host);

/* tune_trials.c: time --------------------------------------------------------------------------------------- */

typedef struct Tuner Tuner;

/* Takes memory for the largest trial, in addition to the timer's, and fills it with random numbers. *tuner is NULL on
 * failure, and timer_error says why. `wanted` [set->n_kernels] are the trials to come. */
AtlasStatus tune_start(LaunchTimer *timer, const Graph *g, const TargetPlan *set, const bool *wanted, Tuner **tuner);
void tune_end(Tuner *t); /* NULL is fine */

/* Why tune_time failed; no sentence when memory of the host was short. */
const AtlasError *tune_error(const Tuner *t);

/* Microseconds of one launch in a chain of its own kind, each on weights and state that no cache holds: the median of
 * `reps` runs of the chain, and its quartiles. Launches that look back take turns with short and long histories, so
 * that theirs is the mean of both. *n is the chain's length, even; 0 = choose one. */
AtlasStatus tune_time(Tuner *t, int trial, int reps, int *n, LaunchTime *one);

#endif
