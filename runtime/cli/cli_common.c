/* cli_common.c - messages, opening, encoding and signals for the verbs. */
#include "artifacts/json_put.h"
#include "artifacts/memory.h"
#include "runtime/cli/cli.h"
#include "runtime/driver.h"
#include "runtime/session.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void message(const Args *args, const char *place, MessageKind kind, const char *name, const char *fmt,
	va_list list)
{
	char where[4200];
	snprintf(where, sizeof where, "atlas %s%s%s", args->verb, place ? ": " : "", place ? place : "");
	message_head(stderr, message_is_colored(args->color, stderr), where, kind, name);
	vfprintf(stderr, fmt, list);
	fputc('\n', stderr);
}

int cli_say(const Args *args, int exit_code, const char *fmt, ...)
{
	const bool is_remark = exit_code == EXIT_OK || exit_code == EXIT_NEGATIVE;
	va_list list;
	va_start(list, fmt);
	message(args, NULL, is_remark ? MESSAGE_REMARK : MESSAGE_ERROR, NULL, fmt, list);
	va_end(list);
	return exit_code;
}

int cli_say_at(const Args *args, int exit_code, const char *file, int line, int column, const char *text)
{
	char place[4200];
	int n = snprintf(place, sizeof place, "%.4000s:%d", file, line);
	if (column)
		snprintf(place + n, sizeof place - (size_t)n, ":%d", column);
	cli_message(args, place, MESSAGE_ERROR, NULL, "%s", text);
	return exit_code;
}

void cli_message(const Args *args, const char *place, MessageKind kind, const char *name, const char *fmt, ...)
{
	va_list list;
	va_start(list, fmt);
	message(args, place, kind, name, fmt, list);
	va_end(list);
}

int cli_fail(const Args *args, const AtlasError *error)
{
	const char *advice = atlas_status_advice(error->status);
	const char *text = error->text[0] ? error->text : atlas_status_text(error->status);
	cli_message(args, NULL, MESSAGE_ERROR, atlas_status_name(error->status), "%s", text);
	if (*advice) {
		fputs("  ", stderr);
		message_head(stderr, message_is_colored(args->color, stderr), "", MESSAGE_HELP, NULL);
		fprintf(stderr, "%s\n", advice);
	}
	return atlas_status_exit_code(error->status);
}

int cli_fail_session(const Args *args, const AtlasSession *session, AtlasStatus status)
{
	AtlasError error = {.status = status};
	snprintf(error.text, sizeof error.text, "%s", atlas_session_error(session));
	return cli_fail(args, &error);
}

bool cli_parse_bytes(const char *text, int64_t *bytes) { return memory_parse(text, bytes); }

/* Opening ------------------------------------------------------------ */

static int verify_of(const Args *args, int verify)
{
	static const char *const words[] = {"full", "lazy", "off"};
	for (int i = 0; args->hashes && i < 3; i++)
		if (strcmp(args->hashes, words[i]) == 0)
			return i;
	return verify;
}

/* The folder of --weights; of what the hub's client keeps of a model, models--ORG--NAME, the snapshot that refs/main
 * names, as atlasc takes it. */
static const char *weights_folder(const Args *args, char *room, size_t room_bytes)
{
	char hash[128] = "";
	struct stat st;
	if (!args->weights_dir)
		return NULL;
	snprintf(room, room_bytes, "%s/refs/main", args->weights_dir);
	FILE *f = fopen(room, "re");
	const bool is_read = f && fgets(hash, sizeof hash, f);
	if (f)
		fclose(f);
	hash[strcspn(hash, " \t\r\n")] = 0;
	snprintf(room, room_bytes, "%s/config.json", args->weights_dir);
	const bool is_plain = lstat(room, &st) == 0;
	if (is_plain || !is_read || !*hash || *hash == '.' || strchr(hash, '/') ||
			(size_t)snprintf(room, room_bytes, "%s/snapshots/%s", args->weights_dir, hash) >= room_bytes)
		return args->weights_dir;
	return stat(room, &st) == 0 && S_ISDIR(st.st_mode) ? room : args->weights_dir;
}

int cli_open_plan_as(const Args *args, const char *path, int verify, AtlasPlan **plan)
{
	char room[4096];
	AtlasError error = {0};
	uint8_t keys[MAX_TRUST][32];
	for (int i = 0; i < args->n_trust; i++)
		if (atlas_read_key(args->trust[i], keys[i], &error) != ATLAS_OK)
			return cli_fail(args, &error);
	AtlasPlanOptions options = {.struct_size = sizeof options, .weights_dir = weights_folder(args, room, sizeof room),
		.verify = verify_of(args, verify), .trust = keys, .n_trust = args->n_trust,
		.memory_budget = args->memory_budget};
	return atlas_plan_open(path, &options, plan, &error) == ATLAS_OK ? 0 : cli_fail(args, &error);
}

int cli_open_plan(const Args *args, const char *path, AtlasPlan **plan)
{
	return cli_open_plan_as(args, path, ATLAS_VERIFY_FULL, plan);
}

void cli_json_or_null(FILE *out, const char *text)
{
	if (text && *text)
		json_quoted(out, text);
	else
		fputs("null", out);
}

int cli_speculate_named(const char *word)
{
	return strcmp(word, "off") == 0 ? ATLAS_SPECULATE_OFF : strcmp(word, DRAFTER_HEAD) == 0 ? ATLAS_SPECULATE_MTP
		: strcmp(word, DRAFTER_NGRAM) == 0 ? ATLAS_SPECULATE_NGRAM : -1;
}

bool cli_speculates(const Args *args) { return args->speculate && strcmp(args->speculate, "off") != 0; }

/* Verbs but run, chat and serve count steps of one token, or make none, unless they are asked for more. */
int cli_speculate(const Args *args)
{
	const bool draws = strcmp(args->verb, "run") == 0 || strcmp(args->verb, "chat") == 0 ||
		strcmp(args->verb, "serve") == 0;
	return args->speculate ? cli_speculate_named(args->speculate)
		: draws ? ATLAS_SPECULATE_AUTO : ATLAS_SPECULATE_OFF;
}

AtlasDevice *cli_start_device(const Args *args)
{
	bool is_cpu = args->device && strcmp(args->device, "cpu") == 0;
	return is_cpu ? NULL : atlas_device_start(args->device_index);
}

const char *cli_other_card(const AtlasPlan *plan, const char *target, const char *gpu)
{
	const char *card = artifact_option_of(&plan->artifact, "tuning", target, ".card");
	return card && strcmp(card, gpu) != 0 ? card : NULL;
}

void cli_remark_card(const Args *args, const AtlasPlan *plan, const char *target, const char *gpu)
{
	const char *card = cli_other_card(plan, target, gpu);
	if (card && !args->quiet)
		cli_message(args, NULL, MESSAGE_NOTE, NULL, "kernels were chosen by times of %s; this GPU is %s", card, gpu);
}

/* Only a server keeps prefixes: what other verbs measure is the reading of whole prompts. */
static AtlasPrefixCache prefix_cache_of(const Args *args, const AtlasPlanInfo *plan)
{
	if (strcmp(args->verb, "serve") != 0)
		return ATLAS_PREFIX_OFF;
	const bool is_on = args->prefix_cache ? strcmp(args->prefix_cache, "on") == 0 : plan->keeps_prefixes;
	return is_on ? ATLAS_PREFIX_ON : ATLAS_PREFIX_OFF;
}

int cli_open_session(const Args *args, const AtlasPlan *plan, const char *device, AtlasDevice *started,
	AtlasSession **session)
{
	AtlasError error = {0};
	const bool is_server = strcmp(args->verb, "serve") == 0;
	AtlasPlanInfo plan_info = {.struct_size = sizeof plan_info};
	atlas_plan_info(plan, &plan_info);
	AtlasSessionOptions options = {.struct_size = sizeof options,
		.device = device ? device : args->device,
		.device_index = args->device_index,
		.n_threads = args->threads,
		.steps_ahead = args->steps_ahead > 0 ? args->steps_ahead : 0,
		.started = started,
		.speculate = cli_speculate(args),
		.mixed = !args->mixed ? ATLAS_MIXED_AUTO : strcmp(args->mixed, "on") == 0 ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF,
		.prefix_cache = prefix_cache_of(args, &plan_info),
		.max_gap = args->max_gap > 0 ? args->max_gap : is_server ? 128 : 0,
		.max_gap_each = args->max_gap > 0 || !is_server ? 0 : SERVE_GAP_EACH};
	if (plan_info.weights_by_reference && !args->weights_dir)
		return cli_say(args, EXIT_USAGE, "the plan holds no weights: name the checkpoint's folder with --weights DIR");
	if (session_open_watched(plan, &options, NULL, args->seat, session, &error) != ATLAS_OK)
		return cli_fail(args, &error);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(*session, &info);
	if (!args->quiet)
		cli_say(args, 0, "device %s: %s, %.1f MiB", info.device, info.device_name,
			(double)info.device_bytes / 1048576);
	cli_remark_card(args, plan, info.target, info.device_name);
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

int cli_check_tokens(const Args *args, const AtlasPlan *plan, const Tokens *tokens, const char *where)
{
	AtlasPlanInfo info = {.struct_size = sizeof info};
	atlas_plan_info(plan, &info);
	for (int i = 0; i < tokens->n; i++)
		if (tokens->ids[i] >= info.vocab) {
			cli_message(args, NULL, MESSAGE_ERROR, "TOKEN", "%s: token id %d (number %d of %d): ids go from 0 to %d",
				where, tokens->ids[i], i + 1, tokens->n, info.vocab - 1);
			return EXIT_BAD_INPUT;
		}
	return 0;
}

int cli_prompt_tokens(const Args *args, const AtlasPlan *plan, Tokens *tokens)
{
	if (!args->prompt == !args->tokens)
		return cli_say(args, EXIT_USAGE, "give either -p TEXT or --tokens IDS");
	int code = args->tokens ? parse_ids(args, args->tokens, tokens)
		: cli_encode(args, plan, args->prompt, strlen(args->prompt), tokens);
	return code ? code : cli_check_tokens(args, plan, tokens, args->tokens ? "--tokens" : "the prompt");
}

int cli_made_tokens(const Args *args, const AtlasPlan *plan, int n, Tokens *tokens)
{
	AtlasPlanInfo info = {.struct_size = sizeof info};
	atlas_plan_info(plan, &info);
	n = n < info.max_context ? n : info.max_context;
	*tokens = (Tokens){malloc(sizeof *tokens->ids * (size_t)n), n};
	if (!tokens->ids)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %d tokens", n);
	for (int i = 0; i < n; i++)
		tokens->ids[i] = (int32_t)((i + 1) * 2654435761u % (unsigned)info.vocab);
	return 0;
}

AtlasSampling cli_sampling(const AtlasPlan *plan, const SamplingArgs *from)
{
	AtlasSampling s = {.struct_size = sizeof s};
	atlas_sampling_init(plan, &s);
	const struct {
		double given;
		float *place;
	} settings[] = {{from->temperature, &s.temperature}, {from->top_p, &s.top_p},
		{from->min_p, &s.min_p}, {from->repetition_penalty, &s.repetition_penalty},
		{from->presence_penalty, &s.presence_penalty},
		{from->frequency_penalty, &s.frequency_penalty}};
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (!isnan(settings[i].given))
			*settings[i].place = (float)settings[i].given;
	if (from->top_k >= 0)
		s.top_k = from->top_k;
	s.seed = from->seed;
	return s;
}

int cli_read_file(const Args *args, const char *path, char **bytes, size_t *n)
{
	const bool is_stdin = strcmp(path, "-") == 0;
	FILE *file = is_stdin ? stdin : fopen(path, "rb");
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
	if (file && !is_stdin)
		fclose(file);
	if (failure)
		return cli_say(args, EXIT_BAD_INPUT, "%s: %s", path, strerror(failure));
	if (!*bytes)
		return cli_say(args, EXIT_ENVIRONMENT, "%s: no memory for the file", path);
	(*bytes)[*n] = 0;
	return 0;
}

int cli_find_compiler(const Args *args, char path[CLI_PROGRAM_BYTES])
{
	if (args->atlasc) {
		snprintf(path, CLI_PROGRAM_BYTES, "%s", args->atlasc);
	} else {
		ssize_t n = readlink("/proc/self/exe", path, CLI_PROGRAM_BYTES - sizeof "atlasc");
		path[n < 0 ? 0 : n] = 0;
		char *slash = strrchr(path, '/');
		strcpy(slash ? slash + 1 : path, "atlasc");
	}
	return access(path, X_OK) == 0 ? 0
		: cli_say(args, EXIT_ENVIRONMENT, "%s: %s: name the compiler with --atlasc FILE", path, strerror(errno));
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

void cli_name_driver(const Driver *cu, char text[96])
{
	int version = 0;
	char line[256] = "", *at;
	FILE *f = fopen("/proc/driver/nvidia/version", "r");
	text[0] = 0;
	if (f && fgets(line, sizeof line, f) && (at = strstr(line, "  "))) {
		at += strspn(at, " ");
		snprintf(text, 96, "%.*s, ", (int)strcspn(at, " \"\n"), at);
	}
	if (f)
		fclose(f);
	cu->DriverGetVersion(&version);
	snprintf(text + strlen(text), 96 - strlen(text), "CUDA %d.%d", version / 1000, version % 1000 / 10);
}
