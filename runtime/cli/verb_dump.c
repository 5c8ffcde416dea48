/* verb_dump.c - atlas dump: what a model computes for a prompt, as a safetensors file.
 *
 * Tensors: tokens I32 [T]; logits F32 [T, V]; with --hidden, l0.out, l1.out, ... F32 [T, H], the
 * residual stream after each layer. Written under a temporary name, synced, renamed.
 */
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_trace.h"
#include "runtime/cli/stop_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool write_all(FILE *file, const Bytes *header, const Tokens *tokens, const Trace *t)
{
	uint64_t length = header->n; /* little-endian like everything here */
	size_t rows = (size_t)t->rows, logits = rows * (size_t)t->vocab,
		   hidden = rows * (size_t)t->n_layers * (size_t)t->hidden_dim;
	return fwrite(&length, sizeof length, 1, file) == 1 &&
		fwrite(header->at, 1, header->n, file) == header->n &&
		fwrite(tokens->ids, sizeof *tokens->ids, rows, file) == rows &&
		fwrite(t->logits, sizeof *t->logits, logits, file) == logits &&
		(!t->hidden || fwrite(t->hidden, sizeof *t->hidden, hidden, file) == hidden) &&
		fflush(file) == 0 && fsync(fileno(file)) == 0;
}

static int write_file(const Args *args, const Tokens *tokens, const Trace *t)
{
	Bytes header = {0};
	char *name = malloc(strlen(args->output) + 16);
	if (!name || !make_header(t, &header)) {
		free(name);
		free(header.at);
		return cli_say(args, EXIT_ENVIRONMENT, "no memory to write %s", args->output);
	}
	sprintf(name, "%s.XXXXXX", args->output);
	int fd = mkstemp(name);
	FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
	bool good = file && write_all(file, &header, tokens, t);
	int failure = errno;
	if (file)
		good = fclose(file) == 0 && good;
	if (good && (chmod(name, 0644) != 0 || rename(name, args->output) != 0)) {
		failure = errno;
		good = false;
	}
	if (!good && fd >= 0)
		unlink(name);
	free(name);
	free(header.at);
	return good ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s: %s", args->output, strerror(failure));
}

int verb_dump(const Args *args)
{
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	Tokens tokens = {0};
	Trace trace = {0};
	struct stat st;
	if (!args->output || !*args->output)
		return cli_say(args, EXIT_USAGE, "name the file to write: -o FILE");
	if (lstat(args->output, &st) == 0 && !S_ISREG(st.st_mode)) /* a device is not ours to replace */
		return cli_say(args, EXIT_ENVIRONMENT, "%s: not a regular file", args->output);
	cli_hold_signals();
	int code = cli_open_plan(args, args->plan, &plan);
	if (!code)
		code = cli_prompt_tokens(args, plan, &tokens);
	if (!code)
		code = cli_open_session(args, plan, NULL, &session);
	if (!code)
		code = trace_prompt(args, plan, session, &tokens, args->hidden, &trace);
	if (!code)
		code = write_file(args, &tokens, &trace);
	trace_free(&trace);
	free(tokens.ids);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return code;
}
