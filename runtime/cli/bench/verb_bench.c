/* verb_bench.c - atlas bench: the order of things.
 *
 * The start is measured first, since a process starts once. Then the bounds, the rows, the launches one by one, and
 * the bounds again: the two differ as the card's clocks do, and no row is better than its bound because of it.
 */
#include "runtime/cli/bench/bench.h"
#include "runtime/cuda.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int open_plan(Bench *b)
{
	/* Without the hash of the weights, which reads all of them: seconds of a large model, and no part of a start. */
	double start = cli_seconds();
	int code = cli_open_plan_as(b->args, b->args->plan, ATLAS_VERIFY_OFF, &b->plan);
	if (code)
		return code;
	b->cold.open = 1e3 * (cli_seconds() - start);
	b->info.struct_size = sizeof b->info;
	atlas_plan_info(b->plan, &b->info);
	b->graph = &b->plan->artifact.graph;
	b->n_events = b->info.slots * (b->info.verify_rows ? b->info.verify_rows : 1);
	b->events = calloc((size_t)b->n_events, sizeof *b->events);
	b->tokens = calloc((size_t)b->info.max_context, sizeof *b->tokens);
	b->random = b->args->sampling.seed;
	return b->events && b->tokens && plan_ignore_stops(b->plan) ? 0
		: cli_say(b->args, EXIT_ENVIRONMENT, "no memory for %d tokens", b->info.max_context);
}

static int open_session(Bench *b)
{
	double start = cli_seconds();
	int code = cli_open_session(b->args, b->plan, NULL, b->started, &b->session);
	if (code)
		return code;
	b->cold.session = 1e3 * (cli_seconds() - start);
	b->device.struct_size = sizeof b->device;
	atlas_session_info(b->session, &b->device);
	b->cold.context = 1e3 * b->device.context_seconds;
	b->cold.memory = 1e3 * b->device.memory_seconds;
	b->cold.kernels = 1e3 * b->device.kernels_seconds;
	b->cold.graphs = 1e3 * b->device.graphs_seconds;
	b->cold.weights = 1e3 * b->device.weights_seconds;
	CudaView view;
	if (cuda_view(ranked_inner(session_device(b->session)), &view))
		cli_name_driver(view.cu, b->driver);
	session_prescribe(b->session, b->args->acceptance);
	session_speculate(b->session, false); /* but for rows that do */
	for (int i = 0; i < b->plan->artifact.n_targets; i++)
		if (strcmp(b->plan->artifact.targets[i].target, b->device.target) == 0)
			b->target = &b->plan->artifact.targets[i];
	return 0;
}

/* Without a GPU, or without room for what bounds need, rows are times alone. */
static int open_timer(Bench *b)
{
	AtlasError error = {0};
	AtlasStatus s = timer_open(session_device(b->session), &b->timer, &error);
	if (s == ATLAS_UNSUPPORTED || s == ATLAS_DEVICE_MEMORY) {
		snprintf(b->no_bounds, sizeof b->no_bounds, "%.250s", error.text);
		return 0;
	}
	return s == ATLAS_OK ? 0 : cli_fail(b->args, &error);
}

static int measure_bounds(Bench *b, TimerBounds *out)
{
	if (b->timer && timer_bounds(b->timer, out) != ATLAS_OK)
		return cli_fail(b->args, timer_error(b->timer));
	return 0;
}

static double larger(double a, double b) { return a > b ? a : b; }

static void settle_bounds(Bench *b)
{
	b->bounds = (TimerBounds){larger(b->before.read_gbps, b->after.read_gbps),
		larger(b->before.gemm_tflops, b->after.gemm_tflops), larger(b->before.fp8_tflops, b->after.fp8_tflops),
		larger(b->before.fp4_tflops, b->after.fp4_tflops),
		b->before.launch_us < b->after.launch_us || b->after.launch_us == 0 ? b->before.launch_us : b->after.launch_us};
}

static void settle_rows(Bench *b)
{
	for (int i = 0; i < b->n_rows; i++) {
		BenchRow *row = &b->rows[i];
		const Work w = {row->bytes, row->flops, row->fp8_flops, row->fp4_flops};
		if (row->skipped[0] || !row->nodes)
			continue;
		double us = bound_us(&b->bounds, &w, &row->bound);
		row->percent = 100 * us / (1e3 * row->ms);
	}
}

static int measure(Bench *b)
{
	int code = bench_first_token(b);
	if (!code)
		code = open_timer(b);
	if (!code)
		code = measure_bounds(b, &b->before);
	settle_bounds(b);
	if (!code && b->args->bench_kernels && !b->timer)
		code = cli_say(b->args, EXIT_USAGE, "--kernels: %s", b->no_bounds);
	if (!code) /* first: the launches warm up the card, and would change the rows */
		code = bench_run_rows(b);
	if (!code && b->args->bench_kernels)
		code = bench_run_kernels(b);
	if (!code)
		code = measure_bounds(b, &b->after);
	settle_bounds(b);
	settle_rows(b);
	bench_settle_kernels(b);
	return code;
}

/* Of an option's value: NULL is stdout. */
static const char *file_of(const char *value) { return strcmp(value, "-") == 0 ? NULL : value; }

static void note_run(Bench *b)
{
	const time_t now = time(NULL);
	struct tm utc;
	if (gmtime_r(&now, &utc))
		strftime(b->date, sizeof b->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
	if (b->args->host)
		gethostname(b->host, sizeof b->host - 1);
}

static int check_words(const Args *args)
{
	const char *json = args->json_file, *html = args->html_file;
	if (args->acceptance[0] > 0 && !cli_speculates(args))
		return cli_say(args, EXIT_USAGE, "--acceptance: no draft is made without --speculate mtp or ngram");
	if (json && html && !file_of(json) && !file_of(html))
		return cli_say(args, EXIT_USAGE, "--json - and --html - both write to stdout: give one of them a file");
	int code = json && file_of(json) ? cli_check_output(args, json) : 0;
	return !code && html && file_of(html) ? cli_check_output(args, html) : code;
}

static void write_json(const void *bench, FILE *out) { bench_print_json(bench, out); }
static void write_html(const void *bench, FILE *out) { bench_print_html(bench, out); }
static void write_text(const void *bench, FILE *out) { bench_print_text(bench, out); }

static int report(const Bench *b)
{
	const char *json = b->args->json_file, *html = b->args->html_file;
	int code = json ? cli_write_file(b->args, file_of(json), write_json, b) : 0;
	if (!code && html)
		code = cli_write_file(b->args, file_of(html), write_html, b);
	bool stdout_is_taken = (json && !file_of(json)) || (html && !file_of(html));
	return code || stdout_is_taken ? code : cli_write_file(b->args, NULL, write_text, b);
}

int verb_bench(const Args *args)
{
	Bench b = {.args = args};
	cli_hold_signals();
	note_run(&b);
	int code = check_words(args);
	if (!code)
		code = bench_read_earlier(&b);
	if (!code) {
		b.started = cli_start_device(args);
		code = open_plan(&b);
	}
	if (!code)
		code = bench_list_rows(&b);
	if (!code)
		code = open_session(&b);
	if (!code)
		code = bench_check_also(&b);
	if (!code)
		code = measure(&b);
	if (!code)
		code = report(&b);
	timer_close(b.timer);
	for (int i = 0; i < b.n_earlier; i++)
		free(b.earlier[i].rows);
	free(b.rows);
	free(b.kernels);
	free(b.phases);
	free(b.events);
	free(b.tokens);
	atlas_session_close(b.session);
	atlas_device_end(b.started);
	atlas_plan_close(b.plan);
	return code;
}
