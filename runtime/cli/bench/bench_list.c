/* bench_list.c - which rows there are: those a plan has by default, and any that --only names.
 *
 * Without --only: prompts and contexts that everybody compares, larger ones where the plan's context has room, and for
 * each the numbers of sequences that the plan's slots and buckets suggest. A name of --only selects itself, whatever
 * its numbers; the start of a name, numbers whole, for all rows of the default that start so; "tg128@32768" for all
 * numbers of sequences after that context.
 */
#include "runtime/cli/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS_DEFAULT = 128, MOST_BEFORE = 1 << 20 /* tokens of contexts, all sequences */, MOST_DIGITS = 7,
	MAX_STREAMS = 64 /* numbers of sequences of a context */ };

static const int prompts[] = {512, 2048, 8192}, contexts[] = {0, 4096, 16384};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef struct Listing {
	Bench *b;
	int tokens;               /* of a sequence in a repetition */
	bool speculates;
	int streams[MAX_STREAMS], n_streams; /* ascending */
	const char *word; size_t n; /* the item of --only at hand; NULL = all rows of the default */
	bool was_met, is_out_of_memory;
} Listing;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Does the name start with word[0..n), without a number cut in two? */
static bool starts_with(const char *name, const char *word, size_t n)
{
	return n && strncmp(name, word, n) == 0 && !(is_digit(word[n - 1]) && is_digit(name[n]));
}

static BenchRow row_of(RowKind kind, int tokens, int context, int batch)
{
	BenchRow row = {.kind = kind, .tokens = tokens, .context = context, .batch = batch};
	if (kind == ROW_PREFILL)
		snprintf(row.name, sizeof row.name, "pp%d", tokens);
	else
		snprintf(row.name, sizeof row.name, "%s%d@%dx%d", kind == ROW_DECODE ? "tg" : "sp", tokens, context, batch);
	return row;
}

static void add(Listing *l, const BenchRow *row)
{
	Bench *b = l->b;
	BenchRow *grown;
	l->was_met = true;
	if (!(grown = realloc(b->rows, sizeof *grown * (size_t)(b->n_rows + 1)))) {
		l->is_out_of_memory = true;
		return;
	}
	b->rows = grown;
	grown[b->n_rows++] = *row;
}

/* Default rows -------------------------------------------------------------------------------------------- */

static void add_streams(Listing *l, int n)
{
	int at = 0;
	while (at < l->n_streams && l->streams[at] < n)
		at++;
	if (n < 1 || n > l->b->info.slots || (at < l->n_streams && l->streams[at] == n) || l->n_streams == MAX_STREAMS)
		return;
	memmove(&l->streams[at + 1], &l->streams[at], sizeof l->streams[0] * (size_t)(l->n_streams++ - at));
	l->streams[at] = n;
}

/* Powers of two, all slots, and the buckets of decode. */
static void find_streams(Listing *l)
{
	const Artifact *a = &l->b->plan->artifact;
	for (int n = 1; n <= l->b->info.slots; n *= 2)
		add_streams(l, n);
	add_streams(l, l->b->info.slots);
	for (int i = 0; i < a->n_targets; i++)
		for (int p = 0; p < a->targets[i].n_phases; p++)
			if (a->targets[i].phases[p].kind == DECODE)
				add_streams(l, a->targets[i].phases[p].rows);
}

/* A row of the default, if the item of --only is the start of its name. */
static void offer(Listing *l, RowKind kind, int tokens, int context, int batch)
{
	const BenchRow row = row_of(kind, tokens, context, batch);
	if (!l->word || starts_with(row.name, l->word, l->n))
		add(l, &row);
}

static void offer_context(Listing *l, RowKind kind, int context)
{
	for (int i = 0; i < l->n_streams; i++)
		if ((int64_t)context * l->streams[i] <= MOST_BEFORE)
			offer(l, kind, l->tokens, context, l->streams[i]);
}

static void offer_default(Listing *l)
{
	const int64_t room = l->b->info.max_context;
	for (int i = 0; i < COUNT(prompts); i++)
		offer(l, ROW_PREFILL, prompts[i], 0, 1);
	for (int64_t n = 32768; n <= room && n <= MOST_BEFORE; n *= 2)
		offer(l, ROW_PREFILL, (int)n, 0, 1);
	for (int kind = ROW_DECODE; kind <= (l->speculates ? ROW_SPECULATE : ROW_DECODE); kind++) {
		for (int i = 0; i < COUNT(contexts); i++)
			offer_context(l, (RowKind)kind, contexts[i]);
		for (int64_t n = 32768; n < room && n <= MOST_BEFORE; n *= 2)
			offer_context(l, (RowKind)kind, (int)n);
	}
}

/* Named rows ---------------------------------------------------------------------------------------------- */

/* Digits at *at, up to `end`. */
static bool take_number(const char **at, const char *end, int *out)
{
	const char *from = *at;
	*out = 0;
	for (; *at < end && is_digit(**at); ++*at)
		if (*at - from < MOST_DIGITS)
			*out = *out * 10 + (**at - '0');
	return *at > from && *at - from <= MOST_DIGITS;
}

static bool take_letter(const char **at, const char *end, char c)
{
	const bool is_there = *at < end && **at == c;
	*at += is_there;
	return is_there;
}

static void add_row(Listing *l, RowKind kind, int tokens, int context, int batch)
{
	const BenchRow row = row_of(kind, tokens, context, batch);
	add(l, &row);
}

/* The row, or all rows of a context, that a whole name names. */
static void add_named(Listing *l)
{
	const char *at = l->word + 2, *end = l->word + l->n;
	int tokens, context, batch;
	if (l->n < 3 || !take_number(&at, end, &tokens) || tokens < 1)
		return;
	if (strncmp(l->word, "pp", 2) == 0) {
		if (at == end)
			add_row(l, ROW_PREFILL, tokens, 0, 1);
		return;
	}
	const RowKind kind = strncmp(l->word, "sp", 2) == 0 && l->speculates ? ROW_SPECULATE : ROW_DECODE;
	if ((kind == ROW_DECODE && strncmp(l->word, "tg", 2) != 0) || tokens != l->tokens ||
		!take_letter(&at, end, '@') || !take_number(&at, end, &context))
		return;
	if (at == end)
		for (int i = 0; i < l->n_streams; i++)
			add_row(l, kind, tokens, context, l->streams[i]);
	else if (take_letter(&at, end, 'x') && take_number(&at, end, &batch) && at == end && batch > 0)
		add_row(l, kind, tokens, context, batch);
}

static int refuse(const Listing *l)
{
	const AtlasPlanInfo *info = &l->b->info;
	char drafts[80] = "";
	if (info->verify_rows)
		snprintf(drafts, sizeof drafts, "; %s%salso sp%d@CxB", l->speculates ? "" : "with --speculate ",
			l->speculates ? "" : info->drafter == ATLAS_SPECULATE_NGRAM ? "ngram " : "mtp ",
			l->tokens);
	return cli_say(l->b->args, EXIT_USAGE, "--only %.*s: there is no such row. This plan has ppN, tg%d@C and tg%d@CxB: "
		"N and C tokens up to max_context %d, B sequences from 1 to %d%s", (int)l->n, l->word, l->tokens, l->tokens,
		info->max_context, info->slots, drafts);
}

static int compare_rows(const void *x, const void *y)
{
	const BenchRow *a = x, *b = y;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->context != b->context)
		return a->context < b->context ? -1 : 1;
	return a->tokens != b->tokens ? (a->tokens < b->tokens ? -1 : 1) : a->batch - b->batch;
}

/* In order, each once. */
static void settle(Bench *b)
{
	int n = 0;
	if (b->n_rows)
		qsort(b->rows, (size_t)b->n_rows, sizeof *b->rows, compare_rows);
	for (int i = 0; i < b->n_rows; i++)
		if (n == 0 || compare_rows(&b->rows[n - 1], &b->rows[i]) != 0)
			b->rows[n++] = b->rows[i];
	b->n_rows = n;
}

int bench_list_rows(Bench *b)
{
	const char *only = b->args->only;
	Listing l = {.b = b, .tokens = b->args->bench_tokens > 0 ? b->args->bench_tokens : TOKENS_DEFAULT,
		.speculates = cli_speculates(b->args)};
	find_streams(&l);
	if (!only)
		offer_default(&l);
	for (const char *at = only; at && *at;) {
		l.word = at;
		l.n = strcspn(at, ",");
		at += l.n + (at[l.n] == ',');
		l.was_met = l.n == 0 || (l.n == 4 && strncmp(l.word, "none", 4) == 0);
		if (!l.was_met)
			offer_default(&l);
		if (!l.was_met)
			add_named(&l);
		if (!l.was_met)
			return refuse(&l);
	}
	settle(b);
	return l.is_out_of_memory ? cli_say(b->args, EXIT_ENVIRONMENT, "no memory for the rows") : 0;
}
