/* bench_rows.c - prompts read and tokens made, through the library as any program uses it.
 *
 * Prompts are random ids, never one id. Answers are greedy, which is the least a step does, or drawn at --temperature,
 * each sequence by a seed of its own: greedy answers of random weights soon repeat few ids, and so does the choice of
 * experts. No token stops an answer. Times are the host's: from the call that starts a prompt to its first token, and
 * over whole runs of decode steps. The repetitions of a decode row follow one another in the same sequences, so that a
 * deep context is read in once; bytes are those of the context that was there in the middle.
 */
#include "runtime/cli/bench/bench.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session.h"

#include <stdarg.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { REPS_DEFAULT = 3, MAX_REPS = 1000, COLLECTIVE_REPS = 20 };

static int reps_of(const Bench *b) { return b->args->reps > 0 ? b->args->reps : REPS_DEFAULT; }

/* Sequences ---------------------------------------------------------------------------------------------- */

static uint64_t random_bits(Bench *b) /* splitmix64 */
{
	uint64_t z = b->random += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

/* Of the next sequence. Greedy ones draw nothing, so their prompts are the same with and without a temperature. */
static AtlasSampling sampling_of(Bench *b)
{
	const uint64_t seed = b->args->sampling.seed ^ (b->n_started++ + 1) * 0xD1342543DE82EF95u;
	return (AtlasSampling){.struct_size = sizeof(AtlasSampling), .temperature = (float)bench_temperature(b),
		.top_p = 1, .repetition_penalty = 1, .seed = seed};
}

double bench_temperature(const Bench *b) { return fmax(b->args->sampling.temperature, 0); /* NAN: 0 */ }

int bench_start(Bench *b, int batch, int n, int max_new)
{
	int slot;
	for (int i = 0; i < batch; i++) {
		const AtlasSampling sampling = sampling_of(b);
		for (int k = 0; k < n; k++)
			b->tokens[k] = (int32_t)(random_bits(b) % (uint64_t)b->info.vocab);
		AtlasStatus s = atlas_start(b->session, b->tokens, n, &sampling, max_new, &slot);
		if (s != ATLAS_OK)
			return cli_fail_session(b->args, b->session, s);
	}
	return 0;
}

int bench_steps(Bench *b, int batch, int more, bool *ended)
{
	*ended = false;
	for (int64_t left = (int64_t)batch * more; left > 0 && !*ended;) {
		int n;
		AtlasStatus s = atlas_step(b->session, b->events, b->n_events, &n);
		if (s != ATLAS_OK)
			return cli_fail_session(b->args, b->session, s);
		left -= n;
		for (int i = 0; i < n; i++)
			*ended |= b->events[i].finish != ATLAS_RUNNING && left > 0;
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
	}
	return 0;
}

int bench_cancel_all(Bench *b)
{
	for (int i = 0; i < b->info.slots; i++) {
		AtlasStatus s = atlas_cancel(b->session, i);
		if (s != ATLAS_OK && s != ATLAS_ARGUMENT) /* a slot without a sequence */
			return cli_fail_session(b->args, b->session, s);
	}
	return 0;
}

int bench_room(const Bench *b, int batch)
{
	int64_t pool = (int64_t)(b->info.pages / batch) * b->info.page;
	return pool < b->info.max_context ? (int)pool : b->info.max_context;
}

/* The first token of a process: a prompt of random ids, as long as the context lets it be. */
int bench_first_token(Bench *b)
{
	bool ended;
	int n = b->info.max_context > 128 ? 128 : b->info.max_context;
	double start = cli_seconds();
	int code = bench_start(b, 1, n, 1);
	if (!code)
		code = bench_steps(b, 1, 1, &ended);
	b->cold.first_token = 1e3 * (cli_seconds() - start);
	b->cold.first_tokens = n;
	return code;
}

/* One row ------------------------------------------------------------------------------------------------ */

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts ms [n]. */
static void take_times(BenchRow *row, double *ms, int n)
{
	qsort(ms, (size_t)n, sizeof *ms, compare_double);
	row->reps = n;
	row->ms = (ms[(n - 1) / 2] + ms[n / 2]) / 2;
	row->spread = (ms[n - 1] - ms[0]) / row->ms;
}

/* A prompt is read in chunks of the largest bucket; only the last asks for logits. */
static Work prompt_work(const Bench *b, const BenchRow *row, int *nodes, const Phase **last)
{
	Work sum = {0};
	int most = b->device.prefill_rows;
	*nodes = 0;
	*last = NULL;
	for (int at = 0; at < row->tokens && b->target; at += most) {
		int rows = row->tokens - at < most ? row->tokens - at : most;
		StepUse use = {.rows = rows, .outs = at + rows == row->tokens, .history = at + rows,
			.positions = rows * (at + (rows + 1) / 2.0), .sequences = 1,
			.experts = bench_experts(b, &row->experts, false, rows)};
		const Phase *p = phase_for(b->target, PREFILL, rows, use.outs, 0);
		if (!p)
			continue;
		Work w = phase_work(p, &use);
		add_work(&sum, &w);
		*nodes += p->n_launches;
		*last = p;
	}
	return sum;
}

static double layer_launches(const Bench *b, const Phase *p)
{
	int n = 0;
	for (int i = 0; p && i < p->n_launches; i++)
		n += p->launches[i].layer >= 0 && p->launches[i].layer < b->graph->n_layers;
	return (double)n / b->graph->n_layers;
}

static void finish_row(const Bench *b, BenchRow *row, const Work *w, double tokens, const Phase *p)
{
	row->tokens_s = tokens / row->ms * 1e3;
	row->layer_launches = layer_launches(b, p);
	if (!p)
		return;
	row->bytes = w->bytes;
	row->flops = w->flops;
	row->fp8_flops = w->fp8;
	row->fp4_flops = w->fp4;
	row->bytes_token = w->bytes / tokens;
	row->gbps = w->bytes / row->ms * 1e-6;
	row->tflops = w->flops / row->ms * 1e-9;
}

static void skip(BenchRow *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void skip(BenchRow *row, const char *fmt, ...)
{
	va_list list;
	va_start(list, fmt);
	vsnprintf(row->skipped, sizeof row->skipped, fmt, list);
	va_end(list);
}

/* Does the plan hold `batch` sequences of `positions` positions? */
static bool fits(const Bench *b, BenchRow *row, int batch, int positions)
{
	int64_t pages = (int64_t)batch * ((positions + b->info.page - 1) / b->info.page);
	if (positions > b->info.max_context)
		skip(row, "needs %d positions a sequence, runtime.max_context is %d", positions, b->info.max_context);
	else if (batch > b->info.slots)
		skip(row, "needs %d slots, runtime.slots is %d", batch, b->info.slots);
	else if (pages > b->info.pages)
		skip(row, "needs KV for %lld tokens, kv.pool_tokens is %lld", (long long)pages * b->info.page,
			(long long)b->info.pages * b->info.page);
	return !row->skipped[0];
}

/* Of a step of that phase, which was the last one. */
static int time_collectives(Bench *b, BenchRow *row, const Phase *p)
{
	const int n = p && b->args->seat ? phase_collectives(p) : 0;
	AtlasStatus s = n ? ranked_collectives(session_device(b->session), (int)(p - b->target->phases), COLLECTIVE_REPS,
		&row->collective_us) : ATLAS_OK;
	row->collectives = s == ATLAS_OK ? n : 0;
	return s == ATLAS_OK ? 0 : cli_fail(b->args, &session_device(b->session)->error);
}

static int run_prefill(Bench *b, BenchRow *row)
{
	double ms[MAX_REPS];
	int code = 0, reps = reps_of(b), nodes;
	bool ended;
	const Phase *p;
	if (!fits(b, row, 1, row->tokens))
		return 0;
	for (int i = -1; i < reps && !code; i++) { /* once to warm up */
		double start = cli_seconds();
		code = bench_start(b, 1, row->tokens, 1);
		if (!code)
			code = bench_steps(b, 1, 1, &ended);
		if (i >= 0)
			ms[i] = 1e3 * (cli_seconds() - start);
	}
	if (code)
		return code;
	take_times(row, ms, reps);
	code = bench_sample_prompt(b, row);
	if (code)
		return code;
	row->a_layer = bench_experts(b, &row->experts, false, row->tokens < b->device.prefill_rows ? row->tokens
		: b->device.prefill_rows);
	Work w = prompt_work(b, row, &nodes, &p);
	row->nodes = nodes;
	finish_row(b, row, &w, row->tokens, p);
	return row->tokens <= b->device.prefill_rows ? time_collectives(b, row, p) : 0;
}

/* *ended = a sequence came to its end: its logits were no numbers. */
static int time_decode(Bench *b, BenchRow *row, int prompt, bool *ended)
{
	double ms[MAX_REPS];
	int reps = reps_of(b), sampled = bench_sample_tokens(b, row);
	int max_new = 1 + 2 * (BENCH_WARM_STEPS + sampled) + reps * row->tokens + BENCH_SLACK;
	if (row->kind == ROW_SPECULATE) {
		int code = bench_time_speculate(b, row, prompt, reps, ms, ended), stopped = bench_cancel_all(b);
		if (!code && !*ended)
			take_times(row, ms, reps);
		return code ? code : stopped;
	}
	int room = bench_room(b, row->batch) - prompt + 1;
	max_new = max_new < room ? max_new : room;
	int code = bench_start(b, row->batch, prompt, max_new);
	if (!code)
		code = bench_steps(b, row->batch, 1 + BENCH_WARM_STEPS, ended);
	if (!code && !*ended)
		code = bench_sample_flight(b, row, ended);
	if (!code && !*ended && sampled) /* steps are in flight again before the clock starts */
		code = bench_steps(b, row->batch, BENCH_WARM_STEPS, ended);
	for (int i = 0; i < reps && !code && !*ended; i++) {
		double start = cli_seconds();
		code = bench_steps(b, row->batch, row->tokens, ended);
		ms[i] = 1e3 * (cli_seconds() - start) / row->tokens;
	}
	if (!code && !*ended)
		take_times(row, ms, reps);
	if (!code && !*ended)
		code = bench_sample_flight(b, row, ended);
	int cancelled = bench_cancel_all(b);
	return code ? code : cancelled;
}

static int run_decode(Bench *b, BenchRow *row)
{
	bool ended = false;
	int reps = reps_of(b), prompt = row->context > 0 ? row->context : 1;
	const int most = bench_rows_each(b, row); /* of a step */
	/* the first token takes no position of its own */
	const int sampled = bench_sample_tokens(b, row);
	const int before = BENCH_WARM_STEPS + (sampled ? sampled + BENCH_WARM_STEPS : 0);
	int made = before + sampled + most - 1 + reps * (row->tokens + most - 1);
	if (!fits(b, row, row->batch, prompt + made))
		return 0;
	const int code = time_decode(b, row, prompt, &ended);
	if (code)
		return code;
	if (ended) {
		skip(row, "a sequence ended early: its logits are not numbers");
		return 0;
	}
	double mean = prompt + before + (reps * row->tokens + 1) / 2.0; /* the row's own position included */
	if (row->kind == ROW_SPECULATE) {
		row->a_layer = bench_experts(b, &row->experts, false, row->batch * most);
		Work both = bench_speculate_work(b, row, mean, &row->nodes);
		finish_row(b, row, &both, row->batch * row->step_tokens,
			phase_for(b->target, VERIFY, row->batch * most, row->batch * most, most));
		return 0;
	}
	const Phase *p = phase_for(b->target, DECODE, row->batch, row->batch, 0);
	StepUse use = {.rows = row->batch, .outs = row->batch, .positions = row->batch * mean,
		.history = row->batch * mean, .experts = row->a_layer = bench_experts(b, &row->experts, false, row->batch),
		.sequences = row->batch};
	Work w = p ? phase_work(p, &use) : (Work){0};
	row->nodes = p ? p->n_launches : 0;
	finish_row(b, row, &w, row->batch, p);
	return time_collectives(b, row, p);
}

int bench_run_rows(Bench *b)
{
	bool shows = !b->args->quiet && isatty(STDERR_FILENO); /* the row at hand */
	int code = 0;
	for (int i = 0; i < b->n_rows && !code; i++) {
		BenchRow *row = &b->rows[i];
		if (shows)
			fprintf(stderr, "\r\033[K%s", row->name);
		session_speculate(b->session, row->kind == ROW_SPECULATE);
		code = row->kind == ROW_PREFILL ? run_prefill(b, row) : run_decode(b, row);
	}
	if (shows)
		fputs("\r\033[K", stderr);
	return code;
}
