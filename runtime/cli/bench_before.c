/* bench_before.c - an earlier result of atlas bench --json, and how the rows of this run compare with it. */
#include "runtime/cli/bench.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static int take_rows(const Args *args, const json_t *rows, BenchBefore *out)
{
	size_t i;
	const json_t *row;
	out->rows = calloc(json_array_size(rows) + 1, sizeof *out->rows);
	if (!out->rows)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %zu rows", json_array_size(rows));
	json_array_foreach(rows, i, row) {
		BeforeRow *r = &out->rows[out->n_rows];
		take_text(row, "name", r->name, sizeof r->name);
		r->tokens_s = number_of(row, "tokens_s");
		r->spread = number_of(row, "spread");
		if (!r->name[0] || (!json_object_get(row, "skipped") && r->tokens_s <= 0))
			return cli_say(args, EXIT_BAD_INPUT, "%s: rows[%zu]: expected a name, and tokens_s above 0 or skipped",
				args->compare, i);
		out->n_rows += r->tokens_s > 0;
	}
	return 0;
}

int bench_read_before(const Args *args, BenchBefore *out)
{
	char *text = NULL;
	size_t n = 0;
	json_error_t error;
	int code = cli_read_file(args, args->compare, &text, &n);
	if (code)
		return code;
	json_t *all = json_loadb(text, n, 0, &error);
	free(text);
	if (!all)
		return cli_say_at(args, EXIT_BAD_INPUT, args->compare, error.line, error.column, error.text);
	const json_t *rows = json_object_get(all, "rows");
	const long long version = json_integer_value(json_object_get(all, "schema_version"));
	if (!json_is_array(rows) || !json_is_string(json_object_get(all, "root")))
		code = cli_say(args, EXIT_BAD_INPUT, "%s: no result of atlas bench --json: it has no root and rows",
			args->compare);
	else if (version != BENCH_SCHEMA)
		code = cli_say(args, EXIT_VERSION, "%s: schema_version %lld: this atlas reads %d", args->compare, version,
			BENCH_SCHEMA);
	else
		code = take_rows(args, rows, out);
	take_text(all, "root", out->root, sizeof out->root);
	take_text(all, "family", out->family, sizeof out->family);
	take_text(all, "device_name", out->card, sizeof out->card);
	take_text(all, "driver", out->driver, sizeof out->driver);
	take_text(all, "date", out->date, sizeof out->date);
	json_decref(all);
	return code;
}

BenchRatio bench_ratio(const Bench *b, const BenchRow *row)
{
	const BenchBefore *before = &b->before_run;
	for (int i = 0; i < before->n_rows && !row->skipped[0]; i++)
		if (strcmp(before->rows[i].name, row->name) == 0) {
			const double ratio = row->tokens_s / before->rows[i].tokens_s;
			return (BenchRatio){ratio, ratio * (before->rows[i].spread + row->spread) / 2};
		}
	return (BenchRatio){0, 0};
}
