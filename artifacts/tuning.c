/* tuning.c - reader and writer of kernels/tuning/TARGET.CARD.toml.
 *
 * A line is a header, or a key and a value; a value is a string without escapes or a pair of numbers. The text is
 * copied once and its strings are ended in place.
 */
#include "artifacts/tuning.h"
#include "artifacts/hash.h"
#include "artifacts/op_table.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef enum Table { NO_TABLE, CARD, KERNEL } Table;

typedef struct Line { /* one line, cut up */
	char *at;        /* cursor */
	const char *start;
	int number;
} Line;

typedef struct Reading {
	Tuning *out;
	TuningFault *fault;
	Table table;
	const char *tmpl, *constants; /* of the [[kernel]] at hand; NULL = not yet */
	int kernel_line, n_before;    /* where it began, times there were before it */
} Reading;

static bool wrong(Reading *r, const Line *l, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool wrong(Reading *r, const Line *l, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	r->fault->line = l->number;
	r->fault->col = (int)(l->at - l->start) + 1;
	vsnprintf(r->fault->text, sizeof r->fault->text, fmt, args);
	va_end(args);
	return false;
}

static void skip_blanks(Line *l) { l->at += strspn(l->at, " \t"); }

static bool end_line(Reading *r, Line *l)
{
	skip_blanks(l);
	return *l->at == 0 || *l->at == '#' || wrong(r, l, "text after the value");
}

/* A string in quotes, which is ended in place. */
static bool take_string(Reading *r, Line *l, const char **out)
{
	if (*l->at != '"')
		return wrong(r, l, "expected a string");
	char *end = strchr(l->at + 1, '"'), *escape = strchr(l->at + 1, '\\');
	if (!end || (escape && escape < end))
		return wrong(r, l, "expected a string on one line, without escapes");
	*end = 0;
	*out = l->at + 1;
	l->at = end + 1;
	return true;
}

/* A key and the sign after it. */
static bool take_key(Reading *r, Line *l, const char **key)
{
	static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	size_t n = strspn(l->at, bare);
	char *end = l->at + n;
	if (*l->at == '"') {
		if (!take_string(r, l, key))
			return false;
		end = NULL;
	} else if (n == 0) {
		return wrong(r, l, "expected a table or a key");
	} else {
		*key = l->at;
		l->at = end;
	}
	skip_blanks(l);
	if (*l->at != '=')
		return wrong(r, l, "expected = after the key");
	l->at++;
	if (end)
		*end = 0;
	skip_blanks(l);
	return true;
}

static bool take_number(Reading *r, Line *l, double *out)
{
	skip_blanks(l);
	char *end;
	*out = *l->at >= '0' && *l->at <= '9' ? strtod(l->at, &end) : -1;
	if (!(*out >= 0) || !isfinite(*out))
		return wrong(r, l, "expected a number from 0 on");
	l->at = end;
	skip_blanks(l);
	return true;
}

/* The fault is the key, or the string that ends here: inside its quotes. */
#define WRONG_AT(place, ...) ((l)->at = (char *)(uintptr_t)(place), wrong(r, l, __VA_ARGS__))

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_kernel_key(Reading *r, Line *l, uint8_t key[TUNING_KEY_BYTES])
{
	const char *text;
	skip_blanks(l);
	if (!take_string(r, l, &text))
		return false;
	for (int i = 0; i < TUNING_KEY_BYTES; i++) {
		int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
		if (low < 0)
			return WRONG_AT(text, "expected a key of %d hexadecimal digits", 2 * TUNING_KEY_BYTES);
		key[i] = (uint8_t)(high << 4 | low);
	}
	skip_blanks(l);
	return !text[2 * TUNING_KEY_BYTES] || WRONG_AT(text, "expected a key of %d hexadecimal digits",
		2 * TUNING_KEY_BYTES);
}

static bool take_sign(Reading *r, Line *l, char sign)
{
	return *l->at == sign ? l->at++, true : wrong(r, l, "expected [microseconds, spread, \"key\"]");
}

/* [4.56, 0.012, "5f0c9e7d41b2a386"] */
static bool take_time(Reading *r, Line *l, TunedTime *t)
{
	return take_sign(r, l, '[') && take_number(r, l, &t->us) && take_sign(r, l, ',') && take_number(r, l, &t->spread) &&
		take_sign(r, l, ',') && take_kernel_key(r, l, t->key) && take_sign(r, l, ']') &&
		(t->us > 0 || wrong(r, l, "a kernel takes more than 0 us"));
}

static bool read_card(Reading *r, Line *l, const char *key)
{
	const char **field = strcmp(key, "target") == 0 ? &r->out->target : strcmp(key, "name") == 0 ? &r->out->card
		: strcmp(key, "driver") == 0 ? &r->out->driver : NULL;
	if (!field)
		return WRONG_AT(key, "unknown key %.40s: [card] has target, name and driver", key);
	return !*field ? take_string(r, l, field) : WRONG_AT(key, "%s occurs twice", key);
}

static bool read_kernel(Reading *r, Line *l, const char *key)
{
	bool is_name = strcmp(key, "template") == 0;
	if (is_name || strcmp(key, "constants") == 0) {
		const char **field = is_name ? &r->tmpl : &r->constants;
		return !*field ? take_string(r, l, field) : WRONG_AT(key, "%s occurs twice", key);
	}
	if (*key && !strchr(key, '='))
		return WRONG_AT(key, "unknown key %.40s: [[kernel]] has template, constants and times by tunables", key);
	if (!r->tmpl || !r->constants)
		return WRONG_AT(key, "a time before template and constants");
	TunedTime *t = &r->out->times[r->out->n_times++];
	*t = (TunedTime){.tmpl = r->tmpl, .constants = r->constants, .tunables = key};
	return take_time(r, l, t);
}

/* A [[kernel]] that ends here must have said something. */
static bool end_table(Reading *r, const Line *l)
{
	const Line began = {.at = l->at, .start = l->at, .number = r->kernel_line};
	if (r->table == KERNEL && r->out->n_times == r->n_before)
		return wrong(r, &began, "[[kernel]] without a time");
	return true;
}

static bool read_header(Reading *r, Line *l)
{
	static const struct { const char *text; Table table; } headers[] = {{"[card]", CARD}, {"[[kernel]]", KERNEL}};
	if (!end_table(r, l))
		return false;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		size_t n = strlen(headers[i].text);
		if (strncmp(l->at, headers[i].text, n) != 0)
			continue;
		Table t = headers[i].table;
		if ((t == CARD) != (r->table == NO_TABLE))
			return wrong(r, l, "%s: expected [card] first, and once", headers[i].text);
		r->table = t;
		r->tmpl = r->constants = NULL;
		r->kernel_line = l->number;
		r->n_before = r->out->n_times;
		l->at += n;
		return end_line(r, l);
	}
	if (strncmp(l->at, "[templates]", 11) == 0)
		return wrong(r, l, "[templates]: times by whole files, of an older version: measure again");
	return wrong(r, l, "unknown table: there are [card] and [[kernel]]");
}

static bool read_line(Reading *r, Line *l)
{
	const char *key;
	skip_blanks(l);
	if (*l->at == 0 || *l->at == '#')
		return true;
	if (*l->at == '[')
		return read_header(r, l);
	if (!take_key(r, l, &key))
		return false;
	switch (r->table) {
	case CARD: return read_card(r, l, key) && end_line(r, l);
	case KERNEL: return read_kernel(r, l, key) && end_line(r, l);
	default: return wrong(r, l, "a key before [card]");
	}
}

static bool check_whole(Reading *r, int lines)
{
	const Tuning *t = r->out;
	Line end = {.at = t->text, .start = t->text, .number = lines};
	int twice;
	if (!end_table(r, &end))
		return false;
	if (!t->target || !t->card || !t->driver)
		return wrong(r, &end, "[card] lacks %s", !t->target ? "target" : !t->card ? "name" : "driver");
	if (!tuning_sort(r->out, &twice))
		return wrong(r, &end, "%.40s [%.80s] occurs twice", t->times[twice].tmpl, t->times[twice].tunables);
	return true;
}

bool tuning_read(const char *text, size_t n, Tuning *out, TuningFault *fault)
{
	Reading r = {.out = out, .fault = fault};
	int lines = 1, number = 0;
	bool ok = true;
	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	*out = (Tuning){.text = malloc(n + 1), .times = calloc((size_t)lines, sizeof *out->times)};
	if (!out->text || !out->times) {
		tuning_free(out);
		*fault = (TuningFault){.text = "no memory"};
		return false;
	}
	memcpy(out->text, text, n);
	out->text[n] = 0;
	for (char *at = out->text, *end; ok && at <= out->text + n; at = end + 1) {
		end = memchr(at, '\n', (size_t)(out->text + n - at));
		end = end ? end : out->text + n;
		*end = 0;
		Line l = {.at = at, .start = at, .number = ++number};
		ok = strlen(at) == (size_t)(end - at) ? read_line(&r, &l) : wrong(&r, &l, "a NUL character");
	}
	ok = ok && check_whole(&r, number);
	if (!ok)
		tuning_free(out);
	return ok;
}

void tuning_free(Tuning *t)
{
	free(t->times);
	free(t->text);
	*t = (Tuning){0};
}

/* Order ------------------------------------------------------------------------------------------------ */

static int compare_times(const void *a, const void *b)
{
	const TunedTime *x = a, *y = b;
	int order = strcmp(x->tmpl, y->tmpl);
	order = order ? order : strcmp(x->constants, y->constants);
	return order ? order : strcmp(x->tunables, y->tunables);
}

bool tuning_sort(Tuning *t, int *twice)
{
	if (t->n_times)
		qsort(t->times, (size_t)t->n_times, sizeof t->times[0], compare_times);
	for (int i = 1; i < t->n_times; i++)
		if (compare_times(&t->times[i - 1], &t->times[i]) == 0) {
			*twice = i;
			return false;
		}
	return true;
}

void tuning_settle(Tuning *t)
{
	int twice;
	while (!tuning_sort(t, &twice))
		memmove(&t->times[twice], &t->times[twice + 1], (size_t)(--t->n_times - twice) * sizeof t->times[0]);
}

const TunedTime *tuning_find(const Tuning *t, const char *tmpl, const char *constants, const char *tunables)
{
	const TunedTime wanted = {.tmpl = tmpl, .constants = constants, .tunables = tunables};
	return t->n_times ? bsearch(&wanted, t->times, (size_t)t->n_times, sizeof wanted, compare_times) : NULL;
}

/* Dims that bound indices: slots, their pages, prompts of a step, stop tokens. */
const char *const tuning_room[] = {"SLOTS", "PAGES", "MAX_PAGES", "SEGS", "STOPS", NULL};

bool tuning_is_room(const char *word)
{
	size_t n = strcspn(word, "= ");
	for (int i = 0; tuning_room[i]; i++)
		if (strlen(tuning_room[i]) == n && strncmp(tuning_room[i], word, n) == 0)
			return true;
	return false;
}

/* Is it an attribute that is not there, and that kernels had no word for when some times were taken? */
static bool is_newer(const char *word, size_t n)
{
	static const char *const words[] = {"CHUNKED=0", "NEIGHBOURS=0", "NORM_WHOLE=0"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strlen(words[i]) == n && strncmp(words[i], word, n) == 0)
			return true;
	return false;
}

void tuning_constants(const char *defines, const char *tunables, char *out)
{
	char *at = out;
	for (const char *d = defines; *d;) {
		size_t n = strcspn(d, " ");
		if (!has_word(tunables, d, n) && !tuning_is_room(d) && !is_newer(d, n)) {
			if (at > out)
				*at++ = ' ';
			memcpy(at, d, n);
			at += n;
		}
		d += n;
		d += *d == ' ';
	}
	*at = 0;
}

/* Writing ------------------------------------------------------------------------------------------------ */

/* Three significant digits. */
static double tuning_round(double us)
{
	char text[32];
	snprintf(text, sizeof text, "%.2e", us);
	return strtod(text, NULL);
}

static void print_time(const TunedTime *t, FILE *out)
{
	double us = tuning_round(t->us);
	int decimals = us < 1 ? 3 : us < 10 ? 2 : us < 100 ? 1 : 0;
	fprintf(out, "\"%s\" = [%.*f, %.3f, \"", t->tunables, decimals, us, t->spread);
	hex_put(out, t->key, TUNING_KEY_BYTES);
	fputs("\"]\n", out);
}

void tuning_print(const Tuning *t, FILE *out)
{
	fprintf(out, "# Times of kernels on one card, by which atlasc chooses. Written by `atlas tune PLAN -o FILE`.\n\n"
		"[card]\ntarget = \"%s\"\nname = \"%s\"\ndriver = \"%s\"\n", t->target, t->card, t->driver);
	for (int i = 0; i < t->n_times; i++) {
		const TunedTime *x = &t->times[i], *before = i ? x - 1 : NULL;
		if (!before || strcmp(before->tmpl, x->tmpl) != 0 || strcmp(before->constants, x->constants) != 0)
			fprintf(out, "\n[[kernel]]\ntemplate = \"%s\"\nconstants = \"%s\"\n", x->tmpl, x->constants);
		print_time(x, out);
	}
}
