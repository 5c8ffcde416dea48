/* bench_text.c - the tables of atlas bench, and its JSON. */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/op_table.h"
#include "runtime/cli/bench/bench.h"

#include <string.h>

/* Text --------------------------------------------------------------------------------------------------- */

static void text_bounds(const Bench *b, FILE *out)
{
	if (b->no_bounds[0]) {
		fprintf(out, "bounds   none: %s\n", b->no_bounds);
		return;
	}
	fprintf(out, "bounds   read %.0f GB/s (before %.0f, after %.0f)   gemm %.1f TFLOP/s (%.1f, %.1f)",
		b->bounds.read_gbps, b->before.read_gbps, b->after.read_gbps, b->bounds.gemm_tflops, b->before.gemm_tflops,
		b->after.gemm_tflops);
	if (b->bounds.fp8_tflops > 0)
		fprintf(out, "   fp8 by fp8 %.1f (%.1f, %.1f)", b->bounds.fp8_tflops, b->before.fp8_tflops,
			b->after.fp8_tflops);
	if (b->bounds.fp4_tflops > 0)
		fprintf(out, "   fp4 by fp4 %.1f (%.1f, %.1f)", b->bounds.fp4_tflops, b->before.fp4_tflops,
			b->after.fp4_tflops);
	fprintf(out, "   launch %.2f us\n", b->bounds.launch_us);
}

static void text_cold(const Bench *b, FILE *out)
{
	const ColdStart *c = &b->cold;
	fprintf(out, "start    open %.1f ms   session %.1f ms", c->open, c->session);
	if (b->target)
		fprintf(out, " (context %.1f, memory %.1f, kernels %.1f, graphs %.1f, weights %.1f)", c->context, c->memory,
			c->kernels, c->graphs, c->weights);
	fprintf(out, "   first token %.1f ms, of %d\n", c->first_token, c->first_tokens);
	fprintf(out, "         start to first token%s: %.1f ms\n", b->target ? " without weights" : "",
		c->open + c->session - c->weights + c->first_token);
}

static void text_row(const Bench *b, const BenchRow *r, FILE *out)
{
	fprintf(out, "%-18s", r->name);
	if (r->skipped[0]) {
		fprintf(out, " skipped: %s\n", r->skipped);
		return;
	}
	fprintf(out, " %10.1f %10.3f %6.1f %%", r->tokens_s, r->ms, 100 * r->spread);
	if (r->nodes)
		fprintf(out, " %11.3f %9.0f %8.1f", r->bytes_token / 1e6, r->gbps, r->tflops);
	else
		fprintf(out, " %11s %9s %8s", "-", "-", "-");
	if (r->bound)
		fprintf(out, " %6.1f %% %-4s", r->percent, bound_name(r->bound));
	else
		fprintf(out, " %8s %-4s", "-", "");
	if (r->nodes)
		fprintf(out, " %6d %8.2f", r->nodes, r->layer_launches);
	else
		fprintf(out, " %6s %8s", "-", "-");
	if (r->a_layer > 0)
		fprintf(out, "   %.1f experts a layer%s", r->a_layer, r->experts.layers[0] ? "" : " (assumed)");
	const BenchRatio ratio = bench_ratio(b, r);
	if (ratio.ratio > 0)
		fprintf(out, "   %.3f +- %.3f of before%s%s", ratio.ratio, ratio.open, ratio.verdict ? ": " : ", within runs",
			ratio.verdict ? ratio.verdict : "");
	if (r->kind == ROW_SPECULATE)
		fprintf(out, "   %.2f tokens a step, %.1f %% of drafts", r->step_tokens, 100 * r->accepted);
	if (r->collectives)
		fprintf(out, "   %d collectives alone %.3f ms, %.1f %%", r->collectives, r->collective_us / 1e3,
			r->collective_us / (10 * r->ms));
	fputc('\n', out);
}

/* What rows that draft and verify are to be read by. */
static void text_speculate(const Bench *b, FILE *out)
{
	bool any = false;
	for (int i = 0; i < b->n_rows; i++)
		any |= b->rows[i].kind == ROW_SPECULATE;
	if (!any)
		return;
	fputs("drafts   sp rows: ", out);
	const Graph *g = b->graph;
	for (int i = 0; i < g->n_ladder && g->n_ladder > 1; i++)
		fprintf(out, "%s%d for up to %d", i ? ", " : "", g->ladder[i].rows, g->ladder[i].slots);
	if (g->n_ladder > 1)
		fputs(" sequences, rows of each in a verify step; accepted", out);
	else
		fprintf(out, "%d rows of a sequence in a verify step; accepted", b->info.verify_rows);
	for (int i = 0; i < b->info.verify_rows - 1; i++)
		if (b->args->acceptance[i] > 0)
			fprintf(out, "%s %.2f of draft %d as prescribed", i ? "," : "", b->args->acceptance[i], i + 1);
		else
			fprintf(out, "%s draft %d as sampled", i ? "," : "", i + 1);
	fputc('\n', out);
}

/* What the bound takes experts to be. */
static void text_experts(const Bench *b, FILE *out)
{
	int of, each;
	if (b->n_rows && bench_has_experts(b->graph, &of, &each))
		fprintf(out, "experts  %d of %d for each row; a layer: distinct experts that rows of a step chose, on "
			"average, which the bound uses\n         (assumed: not counted, the most that they can choose)\n",
			each, of);
}

/* What the rows are compared with. */
static void text_before(const Bench *b, FILE *out)
{
	const EarlierRun *x = &b->earlier[0];
	const int n = b->args->compare.n, now = b->args->also.n + 1;
	if (!n)
		return;
	fprintf(out, "before   plan %.12s, %s, on %s, %s\n         %d run%s, and %d now: ", x->root, x->family,
		x->card[0] ? x->card : "an unnamed device", x->date[0] ? x->date : "without a date", n, n > 1 ? "s" : "", now);
	if (n > 1 && now > 1)
		fprintf(out, "+- is an interval of %d %% confidence, by how the runs differ\n", BENCH_CONFIDENCE);
	else
		fputs("+- is by repetitions within a run; another run may differ by more: no verdict\n"
			"         a verdict needs two runs on each side: --compare FILE --compare FILE --also FILE\n", out);
}

static void text_rows(const Bench *b, FILE *out)
{
	if (!b->n_rows)
		return;
	fprintf(out, "\n%-18s %10s %10s %8s %11s %9s %8s %13s %6s %8s\n", "row", "tok/s", "ms", "spread", "MB/token",
		"GB/s", "TFLOP/s", "of bound", "nodes", "a layer");
	for (int i = 0; i < b->n_rows; i++)
		text_row(b, &b->rows[i], out);
}

static int name_kernel(const BenchKernel *k, char name[128])
{
	return snprintf(name, 128, "%s%s%s", k->kernel->name, k->tunables[0] ? " " : "", k->tunables);
}

static int name_columns(const Bench *b, const Phase *p)
{
	char name[128];
	int widest = (int)strlen("template");
	for (int i = 0; i < b->n_kernels; i++) {
		int n = b->kernels[i].phase == p ? name_kernel(&b->kernels[i], name) : 0;
		widest = n > widest ? n : widest;
	}
	return widest;
}

static void text_kernel(const BenchKernel *k, int columns, FILE *out)
{
	char name[128], grid[40];
	name_kernel(k, name);
	snprintf(grid, sizeof grid, "%dx%dx%d", k->launch->grid[0], k->launch->grid[1], k->launch->grid[2]);
	fprintf(out, "  %-16s %-*s %12s %5d %9.2f %9.2f %9.3f %9.2f %6.1f %% %-4s %9.1f\n",
		op_table[k->launch->op].name, columns, name, grid, k->count, k->time.us, k->time.high_us - k->time.low_us,
		k->bytes / 1e6, k->bound_us,
		k->time.us > 0 ? 100 * k->bound_us / k->time.us : 0, bound_name(k->bound), k->lost_us);
}

static void text_kernels(const Bench *b, FILE *out)
{
	for (int i = 0; i < b->n_phases; i++) {
		const BenchPhase *w = &b->phases[i];
		fprintf(out, "\n%s  %d rows, %d positions each; the step %.1f us, bounds %.1f us (%.1f %%), launches alone "
			"with a cold cache %.1f us\n", PHASE_LABEL(w->phase), w->rows, w->context, w->step.us,
			w->bound_us, w->step.us > 0 ? 100 * w->bound_us / w->step.us : 0, w->alone_us);
		int columns = name_columns(b, w->phase);
		fprintf(out, "  %-16s %-*s %12s %5s %9s %9s %9s %9s %13s %9s\n", "op", columns, "template", "grid", "count",
			"us", "spread us", "MB", "bound us", "of bound", "lost us");
		for (int k = 0; k < b->n_kernels; k++)
			if (b->kernels[k].phase == w->phase)
				text_kernel(&b->kernels[k], columns, out);
	}
}

void bench_print_text(const Bench *b, FILE *out)
{
	fprintf(out, "plan     %s   %s, %d layers, hidden_dim %d, vocab %d, weights %.1f MiB\n", b->args->plan,
		b->info.family, b->info.n_layers, b->info.hidden_dim, b->info.vocab, (double)b->info.weight_bytes / 1048576);
	fprintf(out, "device   %s   %s%s%s, %.1f MiB taken\n", b->device.device, b->device.device_name,
		b->target ? ", " : "", b->device.target, (double)b->device.device_bytes / 1048576);
	const char *other = cli_other_card(b->plan, b->device.target, b->device.device_name);
	if (other)
		fprintf(out, "times    of another card chose the kernels: %s\n", other);
	text_bounds(b, out);
	text_cold(b, out);
	if (bench_temperature(b) > 0)
		fprintf(out, "answers  sampled at temperature %g, each sequence with a different seed\n", bench_temperature(b));
	text_speculate(b, out);
	text_experts(b, out);
	text_before(b, out);
	text_rows(b, out);
	text_kernels(b, out);
}

/* JSON --------------------------------------------------------------------------------------------------- */

static void number(FILE *out, const char *name, double value)
{
	fprintf(out, "\"%s\": ", name);
	json_number(out, value);
}

static void text(FILE *out, const char *name, const char *value)
{
	fprintf(out, "\"%s\": ", name);
	json_quoted(out, value);
}

static void json_bounds(FILE *out, const char *name, const TimerBounds *t)
{
	fprintf(out, "\"%s\": {", name);
	number(out, "read_gbps", t->read_gbps);
	fputs(", ", out);
	number(out, "gemm_tflops", t->gemm_tflops);
	const struct { const char *name; double value; } codes[] = {{"fp8_tflops", t->fp8_tflops},
		{"fp4_tflops", t->fp4_tflops}};
	for (int i = 0; i < 2; i++)
		if (codes[i].value > 0) {
			fputs(", ", out);
			number(out, codes[i].name, codes[i].value);
		}
	fputs(", ", out);
	number(out, "launch_us", t->launch_us);
	fputc('}', out);
}

static void json_row(const Bench *b, const BenchRow *r, FILE *out)
{
	fputc('{', out);
	text(out, "name", r->name);
	fprintf(out, ", \"kind\": \"%s\", \"tokens\": %d, \"context\": %d, \"batch\": %d, ",
		r->kind == ROW_PREFILL ? "prefill" : r->kind == ROW_DECODE ? "decode" : "speculate", r->tokens, r->context,
		r->batch);
	if (r->skipped[0]) {
		text(out, "skipped", r->skipped);
		fputc('}', out);
		return;
	}
	const struct { const char *name; double value; } values[] = {{"ms", r->ms}, {"spread", r->spread},
		{"tokens_s", r->tokens_s}, {"bytes", r->bytes}, {"flops", r->flops}, {"flops_fp8", r->fp8_flops},
		{"flops_fp4", r->fp4_flops}, {"bytes_token", r->bytes_token},
		{"gbps", r->gbps}, {"tflops", r->tflops}};
	fprintf(out, "\"reps\": %d", r->reps);
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		if (i < 3 || r->nodes) {
			fputs(", ", out);
			number(out, values[i].name, values[i].value);
		}
	if (r->kind == ROW_SPECULATE) {
		fputs(", ", out);
		number(out, "step_tokens", r->step_tokens);
		fputs(", ", out);
		number(out, "accepted", r->accepted);
	}
	if (r->a_layer > 0) {
		fputs(", ", out);
		number(out, "experts", r->a_layer);
		fprintf(out, ", \"experts_counted\": %lld", (long long)r->experts.layers[0]);
	}
	if (r->bound) {
		fprintf(out, ", \"bound\": \"%s\", ", bound_name(r->bound));
		number(out, "percent", r->percent);
	}
	if (r->nodes) {
		fprintf(out, ", \"nodes\": %d, ", r->nodes);
		number(out, "layer_launches", r->layer_launches);
	}
	if (r->collectives) {
		fprintf(out, ", \"collectives\": %d, ", r->collectives);
		number(out, "collective_us", r->collective_us);
		fputs(", ", out);
		number(out, "collective_share", r->collective_us / (1e3 * r->ms));
	}
	const BenchRatio ratio = bench_ratio(b, r);
	if (ratio.ratio > 0) {
		fputs(", ", out);
		number(out, "ratio", ratio.ratio);
		fputs(", ", out);
		number(out, "ratio_open", ratio.open);
		fprintf(out, ", \"ratio_runs\": [%d, %d]", ratio.n_before, ratio.n_now);
		if (ratio.verdict)
			fprintf(out, ", \"verdict\": \"%s\"", ratio.verdict);
	}
	fputc('}', out);
}

static void json_kernel(const BenchKernel *k, FILE *out)
{
	fputc('{', out);
	text(out, "op", op_table[k->launch->op].name);
	fputs(", ", out);
	text(out, "template", k->kernel->name);
	fputs(", ", out);
	text(out, "tunables", k->tunables);
	fputs(", ", out);
	text(out, "defines", k->kernel->defines);
	fprintf(out, ", \"grid\": [%d, %d, %d], \"count\": %d, \"reps\": %d, ", k->launch->grid[0], k->launch->grid[1],
		k->launch->grid[2], k->count, k->time.reps);
	const struct { const char *name; double value; } values[] = {{"us", k->time.us}, {"low_us", k->time.low_us},
		{"high_us", k->time.high_us}, {"bytes", k->bytes}, {"flops", k->flops}, {"bound_us", k->bound_us},
		{"lost_us", k->lost_us}};
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		number(out, values[i].name, values[i].value);
		fputs(", ", out);
	}
	fprintf(out, "\"bound\": \"%s\"}", bound_name(k->bound));
}

static void json_phase(const Bench *b, const BenchPhase *w, FILE *out)
{
	bool is_first = true;
	fprintf(out, "{\"phase\": \"%s\", \"bucket\": %d, \"rows\": %d, \"context\": %d, \"nodes\": %d, ",
		phase_name(w->phase->kind), w->phase->rows, w->rows, w->context, w->phase->n_launches);
	number(out, "step_us", w->step.us);
	fputs(", ", out);
	number(out, "bound_us", w->bound_us);
	fputs(", ", out);
	number(out, "alone_us", w->alone_us);
	fputs(", \"kernels\": [", out);
	for (int k = 0; k < b->n_kernels; k++) {
		if (b->kernels[k].phase != w->phase)
			continue;
		fputs(is_first ? "\n  " : ",\n  ", out);
		is_first = false;
		json_kernel(&b->kernels[k], out);
	}
	fputs("]}", out);
}

static void json_cold(const Bench *b, FILE *out)
{
	const ColdStart *c = &b->cold;
	const struct { const char *name; double value; } values[] = {{"open_ms", c->open}, {"session_ms", c->session},
		{"context_ms", c->context}, {"memory_ms", c->memory},
		{"kernels_ms", c->kernels}, {"graphs_ms", c->graphs}, {"weights_ms", c->weights}};
	fputs("\"start\": {", out);
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		if (i < 2 || b->target) {
			number(out, values[i].name, values[i].value);
			fputs(", ", out);
		}
	number(out, "first_token_ms", c->first_token);
	fprintf(out, ", \"first_tokens\": %d}", c->first_tokens);
}

void bench_print_json(const Bench *b, FILE *out)
{
	fprintf(out, "{\"schema_version\": %d, \"root\": \"", BENCH_SCHEMA);
	hex_put(out, b->info.root_hash, 32);
	fputs("\", ", out);
	text(out, "family", b->info.family);
	fprintf(out, ", \"n_layers\": %d, \"hidden_dim\": %d, \"vocab\": %d, \"weight_bytes\": %lld, ", b->info.n_layers,
		b->info.hidden_dim, b->info.vocab, (long long)b->info.weight_bytes);
	text(out, "device", b->device.device);
	fputs(", ", out);
	text(out, "device_name", b->device.device_name);
	fputs(", ", out);
	text(out, "target", b->device.target);
	fputs(", ", out);
	text(out, "driver", b->driver);
	fputs(", ", out);
	text(out, "date", b->date);
	if (b->host[0]) {
		fputs(", ", out);
		text(out, "host", b->host);
	}
	if (b->args->compare.n) {
		fputs(", ", out);
		text(out, "compared_with", b->earlier[0].root);
	}
	fprintf(out, ", \"device_bytes\": %lld, ", (long long)b->device.device_bytes);
	const char *card = artifact_option_of(&b->plan->artifact, "tuning", b->device.target, ".card");
	text(out, "times_of", card ? card : "");
	fputs(", ", out);
	number(out, "temperature", bench_temperature(b));
	fputs(", \"acceptance\": [", out); /* as prescribed; without any, as drawn */
	for (int i = 0; i < b->info.verify_rows - 1 && b->args->acceptance[i] > 0; i++) {
		fputs(i ? ", " : "", out);
		json_number(out, b->args->acceptance[i]);
	}
	fputs("],\n", out);
	if (b->no_bounds[0]) {
		text(out, "no_bounds", b->no_bounds);
	} else {
		json_bounds(out, "bounds", &b->bounds);
		fputs(", ", out);
		json_bounds(out, "bounds_before", &b->before);
		fputs(", ", out);
		json_bounds(out, "bounds_after", &b->after);
	}
	fputs(",\n", out);
	json_cold(b, out);
	fputs(",\n\"rows\": [", out);
	for (int i = 0; i < b->n_rows; i++) {
		fputs(i ? ",\n  " : "\n  ", out);
		json_row(b, &b->rows[i], out);
	}
	fputs("],\n\"phases\": [", out);
	for (int i = 0; i < b->n_phases; i++) {
		fputs(i ? ",\n " : "\n ", out);
		json_phase(b, &b->phases[i], out);
	}
	fputs("]}\n", out);
}
