/* bench_html.c - what atlas bench found as one page that needs nothing else: tables, and plots as inline SVG.
 *
 * Colours are variables with a second set for dark surroundings. In a plot a solid line is what was measured and the
 * dashed one of its colour what the bound of the same run allows. Every mark has a title with its numbers.
 */
#include "runtime/cli/bench.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 300, LEFT = 70, RIGHT = 16, TOP = 14, BOTTOM = 44, N_COLOURS = 8 };

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>atlas bench</title>\n<style>\n"
	":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#d5d9e0;--c0:#1f6feb;--c1:#c2410c;--c2:#15803d;--c3:#9333ea;"
	"--c4:#0e7490;--c5:#a16207;--c6:#be185d;--c7:#64748b}\n"
	"@media (prefers-color-scheme:dark){:root{--bg:#111418;--fg:#e6e8eb;--dim:#9aa4b2;--line:#2c333d;--c0:#6cb6ff;"
	"--c1:#fb923c;--c2:#4ade80;--c3:#c4a1ff;--c4:#22d3ee;--c5:#facc15;--c6:#f472b6;--c7:#94a3b8}}\n"
	"body{background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;"
	"padding:0 1em}\nh1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}\n"
	"table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.88em}\n"
	"td,th{padding:.2em .6em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\n"
	"td.l,th.l{text-align:left}td.s{text-align:left;color:var(--dim)}.wide{overflow-x:auto}.dim{color:var(--dim)}\n"
	"svg{max-width:100%;height:auto}svg text{fill:var(--fg);font:12px system-ui,sans-serif}\n"
	".grid{stroke:var(--line);stroke-width:1}.line{fill:none;stroke-width:2}.dash{fill:none;stroke-width:1.5;"
	"stroke-dasharray:5 4}\n</style></head><body>\n";

/* Text in element content and in attributes. */
static void put(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default:
			if ((unsigned char)*text >= 0x20)
				fputc(*text, out);
		}
}

/* Plots -------------------------------------------------------------------------------------------------- */

typedef struct Axis { /* of the values shown */
	double low, high, step; /* step: from tick to tick; 0 = the axis is logarithmic, a tick each power of ten */
} Axis;

static double bound_rate(const BenchRow *r) { return r->percent > 0 ? r->tokens_s * 100 / r->percent : 0; }

/* False when there is nothing to show. */
static bool find_axis(const Bench *b, RowKind kind, Axis *a)
{
	*a = (Axis){.low = INFINITY};
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		if (r->kind != kind || r->skipped[0])
			continue;
		a->low = fmin(a->low, r->tokens_s);
		a->high = fmax(a->high, fmax(r->tokens_s, bound_rate(r)));
	}
	if (!(a->high > 0))
		return false;
	if (kind == ROW_DECODE) {
		a->low = pow(10, floor(log10(a->low)));
		a->high = pow(10, ceil(log10(a->high * 1.0001)));
		return true;
	}
	double power = pow(10, floor(log10(a->high))), first = a->high / power; /* 1 to 10 */
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

static void open_plot(FILE *out, const char *title, const char *unit, const Axis *a)
{
	fprintf(out, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\"><title>%s</title>\n", WIDTH, HEIGHT,
		WIDTH, title);
	for (double v = a->low; v <= a->high * 1.001; v = a->step > 0 ? v + a->step : v * 10)
		fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT, WIDTH - RIGHT, y_of(a, v), y_of(a, v),
			LEFT - 8, y_of(a, v) + 4, a->high < 10 ? 1 : 0, v);
	fprintf(out, "<text x=\"8\" y=\"%d\" transform=\"rotate(-90 14 %d)\" text-anchor=\"middle\">%s</text>\n",
		HEIGHT / 2, HEIGHT / 2, unit);
}

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
	return LEFT + 30 + log2(batch) / log2(most_sequences(b)) * (WIDTH - LEFT - RIGHT - 150);
}

static bool is_shown(const BenchRow *r, int context)
{
	return r->kind == ROW_DECODE && !r->skipped[0] && r->context == context;
}

typedef enum Quantity { RATE, RATE_OF_BOUND, SHARE } Quantity; /* of a row; the last two need a bound */

static double quantity(const BenchRow *r, Quantity q)
{
	return q == RATE ? r->tokens_s : q == SHARE ? r->percent : bound_rate(r);
}

static void decode_line(const Bench *b, FILE *out, const Axis *a, int context, int colour, Quantity q)
{
	int n = 0;
	double x = 0, y = 0;
	fprintf(out, "<polyline class=\"%s\" style=\"stroke:var(--c%d)\" points=\"",
		q == RATE_OF_BOUND ? "dash" : "line", colour);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		if (!is_shown(r, context) || (q != RATE && !r->bound))
			continue;
		x = batch_x(b, r->batch);
		y = y_of(a, quantity(r, q));
		fprintf(out, "%s%.1f,%.1f", n++ ? " " : "", x, y);
	}
	fputs("\"/>\n", out);
	if (n && q != RATE_OF_BOUND)
		fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:var(--c%d)\">context %d</text>\n", x + 8, y + 4, colour,
			context);
}

static void decode_point(const Bench *b, const BenchRow *r, FILE *out, const Axis *a, int colour, Quantity q)
{
	fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" style=\"fill:var(--c%d)\"><title>%s: %.1f tok/s, "
		"%.3f ms a step", batch_x(b, r->batch), y_of(a, quantity(r, q)), colour, r->name, r->tokens_s, r->ms);
	if (r->bound)
		fprintf(out, ", %.1f %% of the bound", r->percent);
	fputs("</title></circle>\n", out);
}

/* A line a context, over the batches. q: RATE or SHARE. */
static void decode_lines(const Bench *b, FILE *out, const Axis *a, Quantity q)
{
	int seen[8], n_seen = 0;
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		int k = 0;
		if (r->kind != ROW_DECODE || r->skipped[0] || (q == SHARE && !r->bound))
			continue;
		while (k < n_seen && seen[k] != r->context)
			k++;
		if (k == n_seen && n_seen < (int)(sizeof seen / sizeof *seen)) {
			seen[n_seen++] = r->context;
			if (q == RATE)
				decode_line(b, out, a, r->context, k % N_COLOURS, RATE_OF_BOUND);
			decode_line(b, out, a, r->context, k % N_COLOURS, q);
		}
		decode_point(b, r, out, a, k % N_COLOURS, q);
	}
	for (int batch = 1; batch <= most_sequences(b); batch *= 2)
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", batch_x(b, batch),
			HEIGHT - BOTTOM + 18, batch);
	fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">sequences</text></svg>\n", WIDTH / 2, HEIGHT - 8);
}

static void decode_plots(const Bench *b, FILE *out)
{
	Axis a, share = {.high = 100, .step = 20};
	double most = 0;
	if (!find_axis(b, ROW_DECODE, &a))
		return;
	fputs("<h2>Decode: tokens a second, all sequences together, by batch</h2>\n", out);
	open_plot(out, "decode", "tok/s", &a);
	decode_lines(b, out, &a, RATE);
	for (int i = 0; i < b->n_rows; i++)
		if (b->rows[i].kind == ROW_DECODE)
			most = fmax(most, b->rows[i].percent);
	if (most <= 0)
		return;
	share.high = fmax(share.high, ceil(most / share.step) * share.step);
	fputs("<h2>Decode: share of the bound, by batch</h2>\n", out);
	open_plot(out, "share of the bound", "%", &share);
	decode_lines(b, out, &share, SHARE);
}

static void prefill_plot(const Bench *b, FILE *out)
{
	int n = 0, all = 0;
	Axis a;
	if (!find_axis(b, ROW_PREFILL, &a))
		return;
	for (int i = 0; i < b->n_rows; i++)
		all += b->rows[i].kind == ROW_PREFILL && !b->rows[i].skipped[0];
	const double step = fmin(190, (WIDTH - LEFT - RIGHT - 20.0) / all), width = step * 0.475;
	fputs("<h2>Prefill: tokens a second of one prompt</h2>\n", out);
	open_plot(out, "prefill", "tok/s", &a);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		if (r->kind != ROW_PREFILL || r->skipped[0])
			continue;
		double x = LEFT + 20 + step * n++, y = y_of(&a, r->tokens_s);
		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" style=\"fill:var(--c0)\"><title>%s: "
			"%.0f tok/s, %.2f ms, %.1f TFLOP/s</title></rect>\n", x, y, width, HEIGHT - BOTTOM - y, r->name,
			r->tokens_s, r->ms, r->tflops);
		if (r->bound)
			fprintf(out, "<line class=\"dash\" style=\"stroke:var(--c1)\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
				"y2=\"%.1f\"/>\n", x - width / 12, x + width * 13 / 12, y_of(&a, bound_rate(r)),
				y_of(&a, bound_rate(r)));
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x + width / 2,
			HEIGHT - BOTTOM + 18, r->name);
	}
	fputs("</svg>\n", out);
}

static void cold_plot(const Bench *b, FILE *out)
{
	const ColdStart *c = &b->cold;
	double rest = c->session - c->context - c->memory - c->kernels - c->graphs - c->weights, x = 0, total;
	const struct { const char *name; double ms; } parts[] = {{"open", c->open}, {"context", c->context},
		{"memory", c->memory}, {"kernels", c->kernels}, {"graphs", c->graphs}, {"weights", c->weights},
		{b->target ? "rest of the session" : "session", rest}, {"first token", c->first_token}};
	total = c->open + c->session + c->first_token;
	fprintf(out, "<h2>Start: %.1f ms to the first token, %.1f without weights</h2>\n<svg viewBox=\"0 0 %d 30\" "
		"width=\"%d\" role=\"img\"><title>start</title>\n", total, total - c->weights, WIDTH, WIDTH);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		double width = fmax(parts[i].ms, 0) / total * WIDTH;
		fprintf(out, "<rect x=\"%.1f\" y=\"2\" width=\"%.1f\" height=\"26\" style=\"fill:var(--c%zu)\"><title>%s: "
			"%.1f ms</title></rect>\n", x, width, i % N_COLOURS, parts[i].name, parts[i].ms);
		x += width;
	}
	fputs("</svg>\n<p>", out);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (parts[i].ms > 0)
			fprintf(out, "<span style=\"color:var(--c%zu)\">&#9632;</span> %s %.1f ms&#160;&#160; ", i % N_COLOURS,
				parts[i].name, parts[i].ms);
	fputs("</p>\n", out);
}

/* Tables ------------------------------------------------------------------------------------------------- */

static void rows_table(const Bench *b, FILE *out)
{
	if (!b->n_rows)
		return;
	fputs("<h2>Rows</h2>\n<div class=\"wide\"><table><tr><th class=\"l\">row</th><th>tok/s</th><th>ms</th>"
		"<th>spread</th><th>MB/token</th><th>GB/s</th><th>TFLOP/s</th><th>of bound</th><th>nodes</th>"
		"<th>launches a layer</th></tr>\n",
		out);
	for (int i = 0; i < b->n_rows; i++) {
		const BenchRow *r = &b->rows[i];
		fprintf(out, "<tr><td class=\"l\">%s</td>", r->name);
		if (r->skipped[0]) {
			fputs("<td class=\"s\" colspan=\"9\">skipped: ", out);
			put(out, r->skipped);
			fputs("</td></tr>\n", out);
			continue;
		}
		fprintf(out, "<td>%.1f</td><td>%.3f</td><td>%.1f %%</td>", r->tokens_s, r->ms, 100 * r->spread);
		if (r->nodes)
			fprintf(out, "<td>%.3f</td><td>%.0f</td><td>%.1f</td>", r->bytes_token / 1e6, r->gbps, r->tflops);
		else
			fputs("<td>-</td><td>-</td><td>-</td>", out);
		if (r->bound)
			fprintf(out, "<td>%.1f %% %s</td>", r->percent, bound_name(r->bound));
		else
			fputs("<td>-</td>", out);
		if (r->nodes)
			fprintf(out, "<td>%d</td><td>%.2f</td></tr>\n", r->nodes, r->layer_launches);
		else
			fputs("<td>-</td><td>-</td></tr>\n", out);
	}
	fputs("</table></div>\n", out);
}

static void kernel_row(const BenchKernel *k, FILE *out)
{
	double share = k->time.us > 0 ? k->bound_us / k->time.us : 0;
	fprintf(out, "<tr><td class=\"l\">%s</td><td class=\"l\">", op_table[k->launch->op].name);
	put(out, k->kernel->name);
	fputs(" <span class=\"dim\">", out);
	put(out, k->tunables);
	fprintf(out, "</span></td><td>%dx%dx%d</td><td>%d</td><td>%.2f</td><td>%.3f</td><td>%.2f</td><td>%.1f %% %s</td>"
		"<td>%.1f</td><td class=\"l\"><svg width=\"110\" height=\"12\"><rect width=\"100\" height=\"12\" "
		"style=\"fill:var(--line)\"/><rect width=\"%.1f\" height=\"12\" style=\"fill:var(--c0)\"/></svg></td></tr>\n",
		k->launch->grid[0], k->launch->grid[1], k->launch->grid[2], k->count, k->time.us, k->bytes / 1e6, k->bound_us,
		100 * share, bound_name(k->bound), k->lost_us, 100 * fmin(share, 1.1));
}

static void kernel_tables(const Bench *b, FILE *out)
{
	for (int i = 0; i < b->n_phases; i++) {
		const BenchPhase *w = &b->phases[i];
		fprintf(out, "<h2>Launches of %s[%d]</h2>\n<p class=\"dim\">%d rows, %d positions each. The step takes "
			"%.1f us, its bounds %.1f us; its launches alone with a cold cache %.1f us. Worst first.</p>\n"
			"<div class=\"wide\"><table><tr><th class=\"l\">op</th><th class=\"l\">template</th><th>grid</th>"
			"<th>count</th><th>us</th><th>MB</th>"
			"<th>bound us</th><th>of bound</th><th>lost us</th><th></th></tr>\n", phase_name(w->phase->kind),
			w->phase->rows, w->rows, w->context, w->step.us, w->bound_us, w->alone_us);
		for (int k = 0; k < b->n_kernels; k++)
			if (b->kernels[k].phase == w->phase)
				kernel_row(&b->kernels[k], out);
		fputs("</table></div>\n", out);
	}
}

void bench_print_html(const Bench *b, FILE *out)
{
	fputs(head, out);
	fputs("<h1>", out);
	put(out, b->info.family);
	fprintf(out, ", %d layers, %d wide, %.2f GB of weights</h1>\n<p>", b->info.n_layers, b->info.hidden_dim,
		(double)b->info.weight_bytes / 1e9);
	put(out, b->device.device_name);
	fputs(b->target ? ", " : "", out);
	put(out, b->device.target);
	fputs("<br/>\n", out);
	if (b->no_bounds[0]) {
		fputs("No bounds: ", out);
		put(out, b->no_bounds);
	} else {
		fprintf(out, "Bounds of this run: reading %.0f GB/s, products %.1f TFLOP/s", b->bounds.read_gbps,
			b->bounds.gemm_tflops);
		if (b->bounds.fp8_tflops > 0)
			fprintf(out, ", of FP8 by FP8 %.1f", b->bounds.fp8_tflops);
		if (b->bounds.fp4_tflops > 0)
			fprintf(out, ", of FP4 by FP4 %.1f", b->bounds.fp4_tflops);
		fprintf(out, ". A launch timed alone holds the clock's own %.2f us.", b->bounds.launch_us);
	}
	fprintf(out, "</p>\n<p class=\"dim\">%sppN reads a prompt of N tokens; tgN@CxB makes N tokens for each of B "
		"sequences that have C tokens behind them. Times are medians; spread: largest less least, over the median. "
		"MB/token: what must be read for a token. Of bound: the least time for those bytes (read) or operations (gemm) "
		"at the rates of this run, over the time. Plan ",
		b->no_bounds[0] ? "" : "Solid: measured. Dashed: what the bounds allow. ");
	for (int i = 0; i < 6; i++)
		fprintf(out, "%02x", b->info.root_hash[i]);
	fprintf(out, ", atlas %s.</p>\n", atlas_version());
	decode_plots(b, out);
	prefill_plot(b, out);
	cold_plot(b, out);
	rows_table(b, out);
	kernel_tables(b, out);
	fputs("</body></html>\n", out);
}
