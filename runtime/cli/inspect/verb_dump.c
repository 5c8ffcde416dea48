/* verb_dump.c - atlas dump: what a model computes for a prompt, as a safetensors file.
 *
 * Tensors: tokens I32 [T]; logits F32 [T, V]; with --hidden, l0.out, l1.out, ... F32 [T, H], the
 * residual stream after each layer.
 */
#include "runtime/cli/bytes.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_trace.h"

#include <stdlib.h>

/* Appends one tensor's entry to the header; returns where the next one's data begins. */
static size_t describe(
	Bytes *header, const char *name, const char *dtype, int rows, int cols, size_t from)
{
	char entry[256], shape[32];
	size_t to = from + 4 * (size_t)rows * (size_t)(cols ? cols : 1);
	snprintf(shape, sizeof shape, cols ? "%d,%d" : "%d", rows, cols);
	int n = snprintf(entry, sizeof entry,
		"%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
		header->n > 1 ? "," : "", name, dtype, shape, from, to);
	bytes_add(header, entry, (size_t)n);
	return to;
}

static bool make_header(const Trace *t, Bytes *header)
{
	static const char spaces[8] = "        ";
	char name[32];
	if (!bytes_add(header, "{", 1))
		return false;
	size_t at = describe(header, "tokens", "I32", t->rows, 0, 0);
	at = describe(header, "logits", "F32", t->rows, t->vocab, at);
	for (int l = 0; t->hidden && l < t->n_layers; l++) {
		snprintf(name, sizeof name, "l%d.out", l);
		at = describe(header, name, "F32", t->rows, t->hidden_dim, at);
	}
	return bytes_add(header, "}", 1) && bytes_add(header, spaces, (8 - header->n % 8) % 8);
}

typedef struct Dump {
	const Tokens *tokens;
	const Trace *trace;
	Bytes header;
} Dump;

static void write_dump(const void *what, FILE *file)
{
	const Dump *d = what;
	const Trace *t = d->trace;
	uint64_t length = d->header.n; /* little-endian like everything here */
	size_t rows = (size_t)t->rows;
	fwrite(&length, sizeof length, 1, file);
	fwrite(d->header.at, 1, d->header.n, file);
	fwrite(d->tokens->ids, sizeof *d->tokens->ids, rows, file);
	fwrite(t->logits, sizeof *t->logits, rows * (size_t)t->vocab, file);
	if (t->hidden)
		fwrite(t->hidden, sizeof *t->hidden, rows * (size_t)t->n_layers * (size_t)t->hidden_dim, file);
}

static int write_file(const Args *args, const Tokens *tokens, const Trace *t)
{
	Dump d = {.tokens = tokens, .trace = t};
	int code = make_header(t, &d.header) ? cli_write_file(args, args->output, write_dump, &d)
		: cli_say(args, EXIT_ENVIRONMENT, "no memory to write %s", args->output);
	free(d.header.at);
	return code;
}

int verb_dump(const Args *args)
{
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	Tokens tokens = {0};
	Trace trace = {0};
	if (!args->output || !*args->output)
		return cli_say(args, EXIT_USAGE, "name the file to write: -o FILE");
	cli_hold_signals();
	int code = cli_check_output(args, args->output);
	if (!code)
		code = cli_open_plan(args, args->plan, &plan);
	if (!code)
		code = cli_prompt_tokens(args, plan, &tokens);
	if (!code)
		code = cli_open_session(args, plan, NULL, NULL, &session);
	if (!code)
		code = trace_prompt(args, plan, session, &tokens, args->hidden, NULL, &trace);
	if (!code)
		code = write_file(args, &tokens, &trace);
	trace_free(&trace);
	free(tokens.ids);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return code;
}
