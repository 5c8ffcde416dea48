/* bench_before.c - earlier results of atlas bench --json, and how the rows of this run compare with them.
 *
 * The repetitions of a row share a process: its placement in memory, the state of the card's clocks. Two processes may
 * differ by more than their repetitions do, so from one run a side follows a ratio and no verdict. With two or more a
 * side, what a further run would show is known from how far the runs of a side are apart: logarithms of their speeds,
 * a common variance, and Student's t for the few that there are.
 */
#include "artifacts/hash.h"
#include "runtime/cli/bench/bench.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_FREEDOM = 2 /* two runs a side */ };

/* Two-sided quantiles of Student's t for BENCH_CONFIDENCE, by degrees of freedom from FIRST_FREEDOM on. */
static const double student_t[] = {9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012,
	2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756,
	2.750, 2.744};
_Static_assert(sizeof student_t / sizeof student_t[0] == 2 * MAX_GIVEN + 1 - 2 - FIRST_FREEDOM + 1, "all of --compare "
	"and --also, and this run");

/* Files ---------------------------------------------------------------------------------------------------- */

/* A copy of a text of the object; "" where it is none. */
static void take_text(const json_t *object, const char *key, char *to, size_t n)
{
	const char *text = json_string_value(json_object_get(object, key));
	snprintf(to, n, "%.*s", (int)n - 1, text ? text : "");
}

static double number_of(const json_t *object, const char *key)
{
	const double x = json_number_value(json_object_get(object, key));
	return isfinite(x) && x > 0 ? x : 0;
}

static int take_rows(const Args *args, const json_t *rows, EarlierRun *out)
{
	size_t i;
	const json_t *row;
	out->rows = calloc(json_array_size(rows) + 1, sizeof *out->rows);
	if (!out->rows)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %zu rows", json_array_size(rows));
	json_array_foreach(rows, i, row) {
		EarlierRow *r = &out->rows[out->n_rows];
		take_text(row, "name", r->name, sizeof r->name);
		r->tokens_s = number_of(row, "tokens_s");
		r->spread = number_of(row, "spread");
		if (!r->name[0] || (!json_object_get(row, "skipped") && r->tokens_s <= 0))
			return cli_say(args, EXIT_BAD_INPUT, "%s: rows[%zu]: expected a name, and tokens_s above 0 or skipped",
				out->file, i);
		out->n_rows += r->tokens_s > 0;
	}
	return 0;
}

static int read_run(const Args *args, EarlierRun *out)
{
	char *text = NULL;
	size_t n = 0;
	json_error_t error;
	int code = cli_read_file(args, out->file, &text, &n);
	if (code)
		return code;
	json_t *all = json_loadb(text, n, 0, &error);
	sha256_of(text, n, out->sha256);
	free(text);
	if (!all)
		return cli_say_at(args, EXIT_BAD_INPUT, out->file, error.line, error.column, error.text);
	const json_t *rows = json_object_get(all, "rows");
	const long long version = json_integer_value(json_object_get(all, "schema_version"));
	if (!json_is_array(rows) || !json_is_string(json_object_get(all, "root")))
		code = cli_say(args, EXIT_BAD_INPUT, "%s: not a result of atlas bench --json: it has no root and rows",
			out->file);
	else if (version != BENCH_SCHEMA)
		code = cli_say(args, EXIT_VERSION, "%s: schema_version %lld: this atlas reads %d", out->file, version,
			BENCH_SCHEMA);
	else
		code = take_rows(args, rows, out);
	take_text(all, "root", out->root, sizeof out->root);
	take_text(all, "family", out->family, sizeof out->family);
	take_text(all, "device_name", out->card, sizeof out->card);
	take_text(all, "driver", out->driver, sizeof out->driver);
	take_text(all, "date", out->date, sizeof out->date);
	out->temperature = number_of(all, "temperature");
	json_decref(all);
	return code;
}

/* Is it a run of its own, of the same plan on the same device as `first`, the first of its side? */
static int check_run(const Bench *b, const EarlierRun *run, const EarlierRun *first)
{
	for (const EarlierRun *r = b->earlier; r < run; r++)
		if (memcmp(r->sha256, run->sha256, sizeof r->sha256) == 0)
			return cli_say(b->args, EXIT_BAD_INPUT, "%s: the same run as %s", run->file, r->file);
	if (fabs(run->temperature - bench_temperature(b)) > 0)
		return cli_say(b->args, EXIT_BAD_INPUT, "%s: temperature %g: this run has %g", run->file, run->temperature,
			bench_temperature(b));
	if (strcmp(run->root, first->root) != 0)
		return cli_say(b->args, EXIT_BAD_INPUT, "%s: plan %.12s: %s has %.12s", run->file, run->root, first->file,
			first->root);
	if (strcmp(run->card, first->card) != 0)
		return cli_say(b->args, EXIT_BAD_INPUT, "%s: on %s: %s is on %s", run->file, run->card, first->file,
			first->card);
	return 0;
}

int bench_read_earlier(Bench *b)
{
	const Words *before = &b->args->compare, *also = &b->args->also;
	int code = also->n && !before->n ? cli_say(b->args, EXIT_USAGE, "--also: nothing to compare with: --compare FILE")
		: 0;
	for (int i = 0; i < before->n + also->n && !code; i++) {
		EarlierRun *run = &b->earlier[b->n_earlier++];
		run->file = i < before->n ? before->at[i] : also->at[i - before->n];
		code = read_run(b->args, run);
		if (!code)
			code = check_run(b, run, &b->earlier[i < before->n ? 0 : before->n]);
	}
	return code;
}

int bench_check_also(const Bench *b)
{
	EarlierRun self = {.file = b->args->plan, .temperature = bench_temperature(b)};
	const int first = b->args->compare.n;
	if (first == b->n_earlier)
		return 0;
	hex_text(b->info.root_hash, 32, self.root);
	snprintf(self.card, sizeof self.card, "%s", b->device.device_name);
	return check_run(b, &b->earlier[first], &self); /* the others are equal to it */
}

/* Ratios --------------------------------------------------------------------------------------------------- */

/* Logarithms of the speed of a row in the runs of a side. */
typedef struct Speeds { double sum, squares, spreads; int n; } Speeds;

static void add_speed(Speeds *s, double tokens_s, double spread)
{
	const double x = log(tokens_s);
	s->sum += x;
	s->squares += x * x;
	s->spreads += spread;
	s->n++;
}

static double variation(const Speeds *s) { return fmax(s->squares - s->sum * s->sum / s->n, 0); }

BenchRatio bench_ratio(const Bench *b, const BenchRow *row)
{
	Speeds side[2] = {{.n = 0}, {.n = 0}}; /* before, now */
	if (row->skipped[0])
		return (BenchRatio){0};
	for (int i = 0; i < b->n_earlier; i++)
		for (int k = 0; k < b->earlier[i].n_rows; k++)
			if (strcmp(b->earlier[i].rows[k].name, row->name) == 0)
				add_speed(&side[i >= b->args->compare.n], b->earlier[i].rows[k].tokens_s, b->earlier[i].rows[k].spread);
	if (!side[0].n)
		return (BenchRatio){0};
	add_speed(&side[1], row->tokens_s, row->spread);
	const double change = side[1].sum / side[1].n - side[0].sum / side[0].n;
	BenchRatio out = {.ratio = exp(change), .n_before = side[0].n, .n_now = side[1].n};
	if (side[0].n < 2 || side[1].n < 2) {
		out.open = out.ratio * (side[0].spreads / side[0].n + side[1].spreads / side[1].n) / 2;
		return out;
	}
	const int freedom = side[0].n + side[1].n - 2;
	const double variance = (variation(&side[0]) + variation(&side[1])) / freedom;
	const double open = student_t[freedom - FIRST_FREEDOM] * sqrt(variance * (1.0 / side[0].n + 1.0 / side[1].n));
	out.open = out.ratio * expm1(open);
	out.verdict = fabs(change) <= open ? "same" : change > 0 ? "faster" : "slower";
	return out;
}
