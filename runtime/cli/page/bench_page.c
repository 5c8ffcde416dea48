/* bench_page.c - what atlas bench found as one page: what was measured where, plots as inline SVG, tables.
 *
 * In a plot a solid line is what was measured, the dashed one of its colour the roofline: what the rates of the same
 * run allow. Series differ by colour and by the shape of their marks. Every mark has a title with its numbers, and the
 * table below the plots has all of them.
 */
#include "runtime/cli/bench/bench.h"
#include "artifacts/op_table.h"
#include "runtime/cli/page/page.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 300, LEFT = 128, RIGHT = 16, TOP = 20, BOTTOM = 50, N_COLOURS = 8, MAX_SERIES = 8 };

/* Axes ------------------------------------------------------------------------------------------------------- */

typedef struct Axis { /* of the values shown */
	double low, high, step; /* step: from tick to tick; 0 = logarithmic, with ticks at 1, 2 and 5 times powers of
							   ten; -1 = at these powers alone */
} Axis;

static double roofline(const BenchRow *r) { return r->percent > 0 ? r->tokens_s * 100 / r->percent : 0; }

/* The largest of 1, 2, 5 times a power of ten up to x, or the smallest from x on. */
static double round_value(double x, bool up)
{
	static const double steps[] = {1, 2, 5, 10};
	const double power = pow(10, floor(log10(x)));
	for (int i = 0; i < 4; i++)
		if (up && steps[i] * power >= x * (1 - 1e-9))
			return steps[i] * power;
	for (int i = 3; i > 0; i--)
		if (steps[i] * power <= x * (1 + 1e-9))
			return steps[i] * power;
	return power;
}

static double next_tick(const Axis *a, double v)
{
	return a->step > 0 ? v + a->step : a->step < 0 ? v * 10 : round_value(v * 1.5, true);
}

/* False when there is nothing to show. */
static bool find_axis(const Bench *b, RowKind kind, Axis *a)
{
	*a = (Axis){.low = INFINITY};
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		if (r->kind != kind || r->skipped[0])
			continue;
		a->low = fmin(a->low, r->tokens_s);
		a->high = fmax(a->high, fmax(r->tokens_s, roofline(r)));
	}
	if (!(a->high > 0) || !(a->low > 0))
		return false;
	if (kind == ROW_DECODE) {
		a->low = round_value(a->low, false);
		a->high = round_value(a->high, true);
		if (a->high < 4 * a->low) { /* three ticks at least */
			a->low = round_value(a->low * .99, false);
			a->high = round_value(a->high * 1.01, true);
		}
		if (a->high > 1000 * a->low) {
			a->step = -1;
			a->low = pow(10, floor(log10(a->low) + 1e-9));
			a->high = pow(10, ceil(log10(a->high) - 1e-9));
		}
		return true;
	}
	const double power = pow(10, floor(log10(a->high))), first = a->high / power; /* 1 to 10 */
	a->step = first > 5 ? 2 * power : first > 2 ? power : power / 2;
	a->low = 0;
	a->high = ceil(a->high / a->step) * a->step;
	return true;
}

static double y_of(const Axis *a, double value)
{
	double share = a->step > 0 ? value / a->high : log10(fmax(value, a->low) / a->low) / log10(a->high / a->low);
	return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP);
}

/* 1500 as "1,500". */
static void put_tick(FILE *out, double v)
{
	char digits[32];
	snprintf(digits, sizeof digits, "%.*f", v > 0 && v < 1 ? 2 : v < 10 && v != floor(v) ? 1 : 0, v);
	const size_t n = strcspn(digits, ".");
	for (size_t i = 0; digits[i]; i++)
		fprintf(out, i && i < n && (n - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
}

static void open_plot(FILE *out, const char *title, const char *says, const char *y, const char *x, const Axis *a)
{
	fprintf(out, "<figure><svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\"><title>%s</title>"
		"<desc>%s</desc>\n", WIDTH, HEIGHT, WIDTH, HEIGHT, title, says);
	for (double v = a->low; v <= a->high * 1.001; v = next_tick(a, v)) {
		fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" "
			"y=\"%.1f\" text-anchor=\"end\">", LEFT, WIDTH - RIGHT, y_of(a, v), y_of(a, v), LEFT - 8, y_of(a, v) + 4);
		put_tick(out, v);
		fputs("</text>\n", out);
	}
	fprintf(out, "<text class=\"axis\" x=\"24\" y=\"%d\" transform=\"rotate(-90 24 %d)\" text-anchor=\"middle\">%s"
		"</text>\n<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
		(HEIGHT - BOTTOM + TOP) / 2, (HEIGHT - BOTTOM + TOP) / 2, y, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x);
}

/* Marks ------------------------------------------------------------------------------------------------------- */

/* Of a series, by its colour: circle, square, triangle, diamond. */
static void open_mark(FILE *out, double x, double y, int series)
{
	switch (series % 4) {
	case 0: fprintf(out, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\">", series, x, y); break;
	case 1: fprintf(out, "<path class=\"f%d\" d=\"M%.1f %.1fh9v9h-9z\">", series, x - 4.5, y - 4.5); break;
	case 2: fprintf(out, "<path class=\"f%d\" d=\"M%.1f %.1fl5.5 10h-11z\">", series, x, y - 6); break;
	default: fprintf(out, "<path class=\"f%d\" d=\"M%.1f %.1fl6 6l-6 6l-6-6z\">", series, x, y - 6);
	}
}

static void close_mark(FILE *out, int series) { fputs(series % 4 ? "</path>\n" : "</circle>\n", out); }

static int most_sequences(const Bench *b)
{
	int most = 2;
	for (int i = 0; i < b->n_rows; i++)
		if (b->rows[i].kind == ROW_DECODE && !b->rows[i].skipped[0] && b->rows[i].batch > most)
			most = b->rows[i].batch;
	return most;
}

static double batch_x(const Bench *b, int batch)
{
	return LEFT + 30 + log2(batch) / log2(most_sequences(b)) * (WIDTH - LEFT - RIGHT - 60);
}

typedef enum Quantity { RATE, RATE_OF_ROOFLINE, SHARE } Quantity; /* of a row; the last two need a bound */

static double quantity(const BenchRow *r, Quantity q)
{
	return q == RATE ? r->tokens_s : q == SHARE ? r->percent : roofline(r);
}

static bool has_quantity(const BenchRow *r, Quantity q)
{
	return r->kind == ROW_DECODE && !r->skipped[0] && (q == RATE || r->bound);
}

static void decode_line(const Bench *b, FILE *out, const Axis *a, int context, int series, Quantity q)
{
	const char *between = "";
	fprintf(out, "<polyline class=\"%s s%d\" points=\"", q == RATE_OF_ROOFLINE ? "dash" : "line", series);
	for (const BenchRow *r = b->rows; r < b->rows + b->n_rows; r++)
		if (has_quantity(r, q) && r->context == context) {
			fprintf(out, "%s%.1f,%.1f", between, batch_x(b, r->batch), y_of(a, quantity(r, q)));
			between = " ";
		}
	fputs("\"/>\n", out);
}

static void put_point_title(const BenchRow *r, FILE *out)
{
	fprintf(out, "<title>%s: %.1f tok/s, %.3f ms a step", r->name, r->tokens_s, r->ms);
	if (r->bound)
		fprintf(out, ", %.1f %% of the roofline", r->percent);
	fputs("</title>", out);
}

static void key_mark(FILE *out, int series, bool is_dashed)
{
	fprintf(out, "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\">");
	if (is_dashed) {
		fputs("<line class=\"dash plain\" x1=\"0\" x2=\"16\" y1=\"8\" y2=\"8\"/>", out);
	} else {
		open_mark(out, 8, 8, series);
		close_mark(out, series);
	}
	fputs("</svg> ", out);
}

/* A line a context, over the batches. q: RATE or SHARE. */
static void decode_lines(const Bench *b, FILE *out, const Axis *a, Quantity q)
{
	int seen[MAX_SERIES], n_seen = 0;
	bool has_roofline = false;
	for (int batch = 1; batch <= most_sequences(b); batch *= 2)
		fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", batch_x(b, batch),
			HEIGHT - BOTTOM + 18, batch);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		int k = 0;
		if (!has_quantity(r, q))
			continue;
		while (k < n_seen && seen[k] != r->context)
			k++;
		if (k == MAX_SERIES)
			continue;
		if (k == n_seen) {
			seen[n_seen++] = r->context;
			if (q == RATE && r->bound)
				decode_line(b, out, a, r->context, k, RATE_OF_ROOFLINE);
			decode_line(b, out, a, r->context, k, q);
		}
		has_roofline |= q == RATE && r->bound;
		open_mark(out, batch_x(b, r->batch), y_of(a, quantity(r, q)), k);
		put_point_title(r, out);
		close_mark(out, k);
	}
	fputs("</svg>\n<figcaption><ul class=\"key\">", out);
	for (int k = 0; k < n_seen; k++) {
		key_mark(out, k, false);
		fprintf(out, "measured, context of %d</li>", seen[k]);
	}
	if (has_roofline) {
		key_mark(out, 0, true);
		fputs("roofline: what the rates of this run allow</li>", out);
	}
	fputs("</ul></figcaption></figure>\n", out);
}

static void decode_plots(const Bench *b, FILE *out)
{
	Axis a, share = {.high = 100, .step = 20};
	double most = 0;
	if (!find_axis(b, ROW_DECODE, &a))
		return;
	fputs("<section class=\"plot\"><h2>Decode</h2>\n", out);
	open_plot(out, "Decode: tokens per second by sequences", "Tokens per second of all sequences together, on a "
		"logarithmic axis, over how many sequences are decoded together; the table of rows has the numbers.",
		"tokens/s (log scale)", "sequences together (log scale)", &a);
	decode_lines(b, out, &a, RATE);
	for (int i = 0; i < b->n_rows; i++)
		if (has_quantity(&b->rows[i], SHARE))
			most = fmax(most, b->rows[i].percent);
	if (most > 0) {
		share.high = fmax(share.high, ceil(most / share.step) * share.step);
		open_plot(out, "Decode: share of the roofline by sequences", "Measured speed in percent of the roofline, over "
			"how many sequences are decoded together; the table of rows has the numbers.", "% of the roofline",
			"sequences together (log scale)", &share);
		decode_lines(b, out, &share, SHARE);
	}
	fputs("</section>\n", out);
}

static void prefill_plot(const Bench *b, FILE *out)
{
	int n = 0, all = 0;
	bool has_roofline = false;
	Axis a;
	if (!find_axis(b, ROW_PREFILL, &a))
		return;
	for (int i = 0; i < b->n_rows; i++)
		all += b->rows[i].kind == ROW_PREFILL && !b->rows[i].skipped[0];
	const double step = fmin(190, (WIDTH - LEFT - RIGHT - 20.0) / all), width = step * 0.475;
	fputs("<section class=\"plot\"><h2>Prefill</h2>\n", out);
	open_plot(out, "Prefill: tokens per second by prompt", "A bar for each length of a prompt; the table of rows has "
		"the numbers.", "tokens/s", "prompt", &a);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		if (r->kind != ROW_PREFILL || r->skipped[0])
			continue;
		double x = LEFT + 20 + step * n++, y = y_of(&a, r->tokens_s);
		fprintf(out, "<rect class=\"f0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s: "
			"%.0f tok/s, %.2f ms, %.1f TFLOP/s</title></rect>\n", x, y, width, HEIGHT - BOTTOM - y, r->name,
			r->tokens_s, r->ms, r->tflops);
		has_roofline |= r->bound != BOUND_NONE;
		if (r->bound)
			fprintf(out, "<line class=\"dash plain\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
				x - width / 12, x + width * 13 / 12, y_of(&a, roofline(r)), y_of(&a, roofline(r)));
		fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x + width / 2,
			HEIGHT - BOTTOM + 18, r->name);
	}
	fputs("</svg>\n<figcaption><ul class=\"key\">", out);
	fputs("<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><rect class=\"f0\" width=\"16\" height=\"16\"/></svg> "
		"measured</li>", out);
	if (has_roofline) {
		key_mark(out, 0, true);
		fputs("roofline: what the rates of this run allow</li>", out);
	}
	fputs("</ul></figcaption></figure></section>\n", out);
}

static void cold_plot(const Bench *b, FILE *out)
{
	const ColdStart *c = &b->cold;
	double rest = c->session - c->context - c->memory - c->kernels - c->graphs - c->weights, x = 0, total;
	const struct { const char *name; double ms; } parts[] = {{"open", c->open}, {"context", c->context},
		{"memory", c->memory}, {"kernels", c->kernels}, {"graphs", c->graphs}, {"weights", c->weights},
		{b->target ? "rest of the session" : "session", rest}, {"first token", c->first_token}};
	total = c->open + c->session + c->first_token;
	fprintf(out, "<section><h2>Start</h2>\n<p>%.1f ms to the first token, %.1f without weights.</p>\n<figure>"
		"<svg viewBox=\"0 0 %d 30\" width=\"%d\" height=\"30\" role=\"img\"><title>Start: parts of the time to the "
		"first token</title><desc>The list below the bar has the numbers.</desc>\n", total, total - c->weights, WIDTH,
		WIDTH);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		double width = fmax(parts[i].ms, 0) / total * WIDTH;
		fprintf(out, "<rect class=\"f%zu\" x=\"%.1f\" y=\"2\" width=\"%.1f\" height=\"26\"><title>%s: %.1f ms</title>"
			"</rect>\n", i % N_COLOURS, x, fmax(width - (width > 3), 0), parts[i].name, parts[i].ms);
		x += width;
	}
	fputs("</svg>\n<figcaption><ul class=\"key\">", out);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (parts[i].ms > 0)
			fprintf(out, "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><rect class=\"f%zu\" width=\"16\" "
				"height=\"16\"/></svg> %s %.1f ms</li>", i % N_COLOURS, parts[i].name, parts[i].ms);
	fputs("</ul></figcaption></figure></section>\n", out);
}

/* Tables ------------------------------------------------------------------------------------------------- */

static void number_cell(FILE *out, const char *head, bool is_there, int digits, double value, const char *after)
{
	fprintf(out, "<td class=\"n\" data-l=\"%s\">", head);
	if (is_there)
		fprintf(out, "%.*f%s</td>", digits, value, after);
	else
		fputs("-</td>", out);
}

static void put_heads(FILE *out, const char *const *heads, int n, int n_left)
{
	fputs("<thead><tr>", out);
	for (int i = 0; i < n; i++)
		fprintf(out, "<th scope=\"col\"%s>%s</th>", i < n_left ? "" : " class=\"n\"", heads[i]);
	fputs("</tr></thead><tbody>\n", out);
}

static void ratio_cell(const Bench *b, const BenchRow *r, FILE *out)
{
	const BenchRatio x = bench_ratio(b, r);
	if (!b->args->compare.n)
		return;
	fputs("<td class=\"n\" data-l=\"of before\">", out);
	if (x.ratio <= 0) {
		fputs("-</td>", out);
		return;
	}
	const char *verdict = x.verdict ? x.verdict : "";
	fprintf(out, "<span class=\"%s\">%.3f</span> &#177; %.3f%s%s</td>", strcmp(verdict, "faster") == 0 ? "ok"
		: strcmp(verdict, "slower") == 0 ? "bad" : "same", x.ratio, x.open, x.verdict ? " " : "", verdict);
}

static void rows_table(const Bench *b, FILE *out)
{
	const char *heads[12] = {"row", "tok/s", "ms", "spread"};
	int n = 4;
	if (b->args->compare.n)
		heads[n++] = "of before";
	static const char *const more[] = {"MB/token", "GB/s", "TFLOP/s", "of roofline", "limited by", "launches",
		"a layer"};
	for (int i = 0; i < 7; i++)
		heads[n++] = more[i];
	if (!b->n_rows)
		return;
	fputs("<section><h2>Rows</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Rows\">"
		"<table class=\"rows cards sorts\"><caption>ppN reads a prompt of N tokens. tgN@CxB makes N tokens for each of "
		"B sequences with a context of C tokens; spN@CxB, steps that draft and verify. Times are medians; spread: "
		"largest less least, over the median. MB/token: what must be read for a token.</caption>", out);
	put_heads(out, heads, n, 1);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		fprintf(out, "<tr><th scope=\"row\" data-l=\"row\">%s</th>", r->name);
		if (r->skipped[0]) {
			fprintf(out, "<td class=\"dim skipped\" colspan=\"%d\">skipped: ", n - 1);
			page_put(out, r->skipped);
			fputs("</td></tr>\n", out);
			continue;
		}
		number_cell(out, "tok/s", true, 1, r->tokens_s, "");
		number_cell(out, "ms", true, 3, r->ms, "");
		number_cell(out, "spread", true, 1, 100 * r->spread, " %");
		ratio_cell(b, r, out);
		number_cell(out, "MB/token", r->nodes, 3, r->bytes_token / 1e6, "");
		number_cell(out, "GB/s", r->nodes, 0, r->gbps, "");
		number_cell(out, "TFLOP/s", r->nodes, 1, r->tflops, "");
		number_cell(out, "of roofline", r->bound, 1, r->percent, " %");
		fprintf(out, "<td class=\"n\" data-l=\"limited by\">%s</td>", r->bound == BOUND_READ ? "reading"
			: r->bound == BOUND_GEMM ? "products" : "-");
		number_cell(out, "launches", r->nodes, 0, r->nodes, "");
		number_cell(out, "a layer", r->nodes, 2, r->layer_launches, "");
		fputs("</tr>\n", out);
	}
	fputs("</tbody></table></div></section>\n", out);
}

static void kernel_row(const BenchKernel *k, FILE *out)
{
	double share = k->time.us > 0 ? k->bound_us / k->time.us : 0;
	fprintf(out, "<tr><th scope=\"row\" data-l=\"op\">%s</th><td class=\"kernel\" data-l=\"template\">",
		op_table[k->launch->op].name);
	page_put(out, k->kernel->name);
	fputs(" <span class=\"dim\">", out);
	page_put(out, k->tunables);
	fprintf(out, "</span></td><td class=\"n\" data-l=\"grid\" data-v=\"%.0f\">%d&#215;%d&#215;%d</td>",
		(double)k->launch->grid[0] * k->launch->grid[1] * k->launch->grid[2], k->launch->grid[0], k->launch->grid[1],
		k->launch->grid[2]);
	number_cell(out, "count", true, 0, k->count, "");
	number_cell(out, "\302\265s", true, 2, k->time.us, "");
	number_cell(out, "MB", true, 3, k->bytes / 1e6, "");
	number_cell(out, "roofline \302\265s", true, 2, k->bound_us, "");
	fputs("<td class=\"n\" data-l=\"of roofline\">", out);
	page_share(out, share, false);
	fprintf(out, "</td><td class=\"n\" data-l=\"limited by\">%s</td>", k->bound == BOUND_GEMM ? "products" : "reading");
	number_cell(out, "lost \302\265s", true, 1, k->lost_us, "");
	fputs("</tr>\n", out);
}

static void kernel_tables(const Bench *b, FILE *out)
{
	static const char *const heads[] = {"op", "template", "grid", "count", "\302\265s", "MB", "roofline \302\265s",
		"of roofline", "limited by", "lost \302\265s"};
	for (int i = 0; i < b->n_phases; i++) {
		const BenchPhase *w = &b->phases[i];
		fprintf(out, "<section class=\"phase\"><h2>Launches of %s</h2>\n<p>%d rows, %d positions each. The step "
			"takes %.1f \302\265s, its roofline %.1f \302\265s; its launches alone with a cold cache %.1f \302\265s. "
			"Worst first.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Launches of %s\">"
			"<table class=\"kernels cards sorts\"><caption>Launches of one kind together</caption>",
			PHASE_LABEL(w->phase), w->rows, w->context, w->step.us, w->bound_us, w->alone_us,
			PHASE_LABEL(w->phase));
		put_heads(out, heads, 10, 2);
		for (int k = 0; k < b->n_kernels; k++)
			if (b->kernels[k].phase == w->phase)
				kernel_row(&b->kernels[k], out);
		fputs("</tbody></table></div></section>\n", out);
	}
}

/* What was measured, where and when --------------------------------------------------------------------------- */

static void text_fact(FILE *out, const char *name, const char *text)
{
	if (!*text)
		return;
	page_fact(out, name);
	page_put(out, text);
	page_fact_end(out);
}

/* The words of the command; of a path its last part, so that a page names no folder. */
static void command_fact(const Bench *b, FILE *out)
{
	page_fact(out, "Command");
	fputs("<code>atlas bench", out);
	for (int i = 0; i < b->args->n_words; i++) {
		const char *word = b->args->words[i], *value = word[0] == '-' ? strchr(word, '=') : NULL;
		const char *slash = strrchr(word, '/');
		fputc(' ', out);
		if (slash && value && value < slash)
			page_printf(out, "%.*s", (int)(value - word + 1), word);
		page_put(out, slash ? slash + 1 : word);
	}
	fputs("</code>", out);
	page_fact_end(out);
}

static void roofline_fact(const Bench *b, FILE *out)
{
	page_fact(out, "Rooflines of this run");
	if (b->no_bounds[0]) {
		fputs("none: ", out);
		page_put(out, b->no_bounds);
	} else {
		fprintf(out, "reading %.0f GB/s, products %.1f TFLOP/s", b->bounds.read_gbps, b->bounds.gemm_tflops);
		if (b->bounds.fp8_tflops > 0)
			fprintf(out, ", of FP8 by FP8 %.1f", b->bounds.fp8_tflops);
		if (b->bounds.fp4_tflops > 0)
			fprintf(out, ", of FP4 by FP4 %.1f", b->bounds.fp4_tflops);
		fprintf(out, "; the timer's own part of a launch is %.2f \302\265s", b->bounds.launch_us);
	}
	page_fact_end(out);
}

static void before_fact(const Bench *b, FILE *out)
{
	const EarlierRun *x = &b->earlier[0];
	const int n = b->args->compare.n, now = b->args->also.n + 1;
	if (!n)
		return;
	page_fact(out, "Compared with");
	page_printf(out, "%s, plan %.12s, %s%s%s, %s", x->family, x->root, x->card[0] ? x->card : "an unnamed device",
		x->driver[0] ? ", driver " : "", x->driver, x->date[0] ? x->date : "no date");
	fprintf(out, "; %d run%s, and %d now. A ratio above 1 is faster. ", n, n > 1 ? "s" : "", now);
	if (n > 1 && now > 1)
		fprintf(out, "&#177; is an interval of %d %% confidence, by how runs differ.", BENCH_CONFIDENCE);
	else
		fputs("&#177; is by repetitions within a run; another run may differ by more. A verdict needs two runs or more "
			"on each side.", out);
	if (strcmp(x->card, b->device.device_name) != 0)
		fputs(" <span class=\"warn\">another device</span>", out);
	page_fact_end(out);
}

void bench_print_html(const Bench *b, FILE *out)
{
	char title[160], footer[96];
	snprintf(title, sizeof title, "atlas bench: %.60s, %d layers", b->info.family, b->info.n_layers);
	snprintf(footer, sizeof footer, "Made by atlas bench --html, atlas %s.", atlas_version());
	page_open(out, title, NULL);
	fputs("<main id=\"main\">\n<section id=\"run\"><h2>Run</h2>\n<dl class=\"facts\">\n", out);
	page_fact(out, "Model");
	page_put(out, b->info.family);
	fprintf(out, ", %d layers, hidden_dim %d, ", b->info.n_layers, b->info.hidden_dim);
	page_bytes(out, (double)b->info.weight_bytes);
	fputs(" of weights", out);
	page_fact_end(out);
	page_fact(out, "Plan");
	page_hash(out, b->info.root_hash);
	page_fact_end(out);
	text_fact(out, "Device", b->device.device_name);
	text_fact(out, "Driver", b->driver);
	text_fact(out, "Target", b->target ? b->device.target : "");
	text_fact(out, "Date", b->date);
	text_fact(out, "Host", b->host);
	command_fact(b, out);
	roofline_fact(b, out);
	before_fact(b, out);
	fputs("</dl></section>\n", out);
	fputs("<div class=\"plots\">\n", out);
	decode_plots(b, out);
	prefill_plot(b, out);
	fputs("</div>\n", out);
	cold_plot(b, out);
	rows_table(b, out);
	kernel_tables(b, out);
	fputs("</main>\n", out);
	page_close(out, footer, NULL);
}
