/* cli_common.c - messages, opening, encoding, signals and JSON for the verbs. */
#include "runtime/cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cli_say(const Args *args, int exit_code, const char *fmt, ...)
{
	va_list list;
	va_start(list, fmt);
	fprintf(stderr, "atlas %s: ", args->verb);
	vfprintf(stderr, fmt, list);
	fputc('\n', stderr);
	va_end(list);
	return exit_code;
}

int cli_fail(const Args *args, const AtlasError *error)
{
	const char *advice = atlas_status_advice(error->status);
	const char *text = error->text[0] ? error->text : atlas_status_text(error->status);
	cli_say(args, 0, "error[%s]: %s", atlas_status_name(error->status), text);
	if (*advice)
		fprintf(stderr, "  help: %s\n", advice);
	return atlas_status_exit_code(error->status);
}

int cli_fail_session(const Args *args, const AtlasSession *session, AtlasStatus status)
{
	AtlasError error = {.status = status};
	snprintf(error.text, sizeof error.text, "%s", atlas_session_error(session));
	return cli_fail(args, &error);
}

/* Opening ------------------------------------------------------------ */

int cli_open_plan(const Args *args, const char *path, AtlasPlan **plan)
{
	AtlasError error = {0};
	AtlasPlanOptions options = {.struct_size = sizeof options, .weights_dir = args->weights_dir};
	return atlas_plan_open(path, &options, plan, &error) == ATLAS_OK ? 0 : cli_fail(args, &error);
}

int cli_open_session(
	const Args *args, const AtlasPlan *plan, const char *device, AtlasSession **session)
{
	AtlasError error = {0};
	AtlasSessionOptions options = {.struct_size = sizeof options,
		.device = device ? device : args->device,
		.device_index = args->device_index,
		.n_threads = args->threads};
	AtlasPlanInfo plan_info = {.struct_size = sizeof plan_info};
	atlas_plan_info(plan, &plan_info);
	if (plan_info.weights_by_reference && !args->weights_dir)
		return cli_say(args, EXIT_USAGE, "the plan holds no weights: name the checkpoint's folder with --weights DIR");
	if (atlas_session_open(plan, &options, session, &error) != ATLAS_OK)
		return cli_fail(args, &error);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(*session, &info);
	if (!args->quiet)
		cli_say(args, 0, "device %s: %s, %.1f MiB", info.device, info.device_name,
			(double)info.device_bytes / 1048576);
	return 0;
}

/* Prompts ------------------------------------------------------------ */

int cli_encode(const Args *args, const AtlasPlan *plan, const char *text, size_t n, Tokens *tokens)
{
	const int flags = ATLAS_ADD_SPECIAL | ATLAS_PARSE_SPECIAL;
	AtlasError error = {0};
	size_t count = 0, cap = n + 8; /* enough for nearly every text: normalisation may lengthen it */
	*tokens = (Tokens){0};
	for (;;) {
		int32_t *ids = realloc(tokens->ids, cap * sizeof *ids);
		tokens->ids = ids ? ids : tokens->ids;
		if (!ids || cap > INT_MAX)
			return cli_say(args, EXIT_ENVIRONMENT, "no memory for %zu tokens", cap);
		error.status = atlas_encode(plan, text, n, flags, ids, cap, &count);
		if (error.status != ATLAS_OK)
			return cli_fail(args, &error);
		if (count <= cap)
			break;
		cap = count;
	}
	tokens->n = (int)count;
	return 0;
}

/* Ids in decimal with commas between them. */
static int parse_ids(const Args *args, const char *text, Tokens *tokens)
{
	size_t cap = strlen(text) / 2 + 1;
	*tokens = (Tokens){malloc(cap * sizeof *tokens->ids), 0};
	if (!tokens->ids)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %zu tokens", cap);
	for (const char *p = text;;) {
		char *end;
		errno = 0;
		long id = strtol(p, &end, 10);
		if (end == p || errno || id < 0 || id > INT32_MAX || (*end && *end != ','))
			return cli_say(
				args, EXIT_USAGE, "--tokens %s: expected token ids with commas between them", text);
		tokens->ids[tokens->n++] = (int32_t)id;
		if (!*end)
			return 0;
		p = end + 1;
	}
}

int cli_prompt_tokens(const Args *args, const AtlasPlan *plan, Tokens *tokens)
{
	if (!args->prompt == !args->tokens)
		return cli_say(args, EXIT_USAGE, "give either -p TEXT or --tokens IDS");
	if (args->tokens)
		return parse_ids(args, args->tokens, tokens);
	return cli_encode(args, plan, args->prompt, strlen(args->prompt), tokens);
}

int cli_read_file(const Args *args, const char *path, char **bytes, size_t *n)
{
	FILE *file = fopen(path, "rb");
	size_t cap = 1 << 16;
	*n = 0;
	*bytes = malloc(cap + 1);
	while (file && *bytes) {
		*n += fread(*bytes + *n, 1, cap - *n, file);
		if (*n < cap)
			break;
		char *larger = realloc(*bytes, (cap *= 2) + 1);
		if (!larger)
			free(*bytes);
		*bytes = larger;
	}
	int failure = !file || ferror(file) ? errno : 0;
	if (file)
		fclose(file);
	if (failure)
		return cli_say(args, EXIT_BAD_INPUT, "%s: %s", path, strerror(failure));
	if (!*bytes)
		return cli_say(args, EXIT_ENVIRONMENT, "%s: no memory for the file", path);
	(*bytes)[*n] = 0;
	return 0;
}

/* Signals and time ------------------------------------------------------------ */

static void ends(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

void cli_hold_signals(void)
{
	sigset_t set;
	ends(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

bool cli_interrupted(void)
{
	sigset_t set;
	ends(&set);
	return sigtimedwait(&set, NULL, &(struct timespec){0}) > 0;
}

double cli_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* JSON ------------------------------------------------------------ */

/* Bytes of the code point at p, 0 when there is none: the table of Unicode 15, 3.9 D92. */
static size_t code_point(const unsigned char *p, size_t n)
{
	if (p[0] < 0x80)
		return 1;
	size_t length = p[0] >= 0xc2 && p[0] < 0xe0 ? 2
		: p[0] >= 0xe0 && p[0] < 0xf0           ? 3
		: p[0] >= 0xf0 && p[0] < 0xf5           ? 4
												: 0;
	if (!length || length > n)
		return 0;
	unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	return length;
}

void json_text(FILE *out, const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	fputc('"', out);
	for (size_t i = 0; i < n;) {
		size_t length = code_point(p + i, n - i);
		if (length == 0)
			fputs("\xef\xbf\xbd", out);
		else if (p[i] == '"' || p[i] == '\\')
			fprintf(out, "\\%c", p[i]);
		else if (p[i] == '\n')
			fputs("\\n", out);
		else if (p[i] < 0x20 || p[i] == 0x7f)
			fprintf(out, "\\u%04x", p[i]);
		else
			fwrite(p + i, 1, length, out);
		i += length ? length : 1;
	}
	fputc('"', out);
}

void json_string(FILE *out, const char *text) { json_text(out, text, strlen(text)); }

void json_number(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.9g", value);
	else
		fputs("null", out);
}
