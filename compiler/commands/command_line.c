/* command_line.c - one table of options gives parsing, --help and suggestions. */
#include "compiler/commands/command_line.h"
#include "artifacts/closest.h"
#include "artifacts/memory.h"
#include "artifacts/message.h"
#include "compiler/commands/explain.h"
#include "compiler/kernels/kernels.h"
#include "compiler/read/option_table.h"
#include "compiler/text/value.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <msgpack.h>
#include <openssl/opensslv.h>
#include <sodium/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COUNT = 256 };
enum { COMPILE = 1 << COMMAND_COMPILE, KERNELS = 1 << COMMAND_KERNELS, EXPLAIN = 1 << COMMAND_EXPLAIN,
	CALIBRATE = 1 << COMMAND_CALIBRATE, TIMES = 1 << COMMAND_TIMES,
	EVERY = COMPILE | KERNELS | EXPLAIN | CALIBRATE | TIMES };

typedef enum Flag { /* in the order of the help */
	F_OUTPUT, F_MODEL, F_FAMILY, F_CONTEXT, F_SLOTS, F_WEIGHTS, F_RANDOM, F_SEED,
	F_TARGET, F_CARD, F_TUNING, F_CANDIDATES, F_PRUNED, F_JOBS, F_CACHE,
	F_ESTIMATE, F_BUDGET,
	F_SIGN, F_HASH,
	F_TEXT, F_LIST, F_CODE,
	F_DRY, F_JSON, F_QUIET, F_VERBOSE, F_WARN, F_COLOR,
	F_DUMP, F_STOP, F_TIMINGS, F_OPS, F_TARGETS, F_KEYS,
	F_VERSION, F_HELP, F_AS, N_FLAGS
} Flag;

static const ManualOption flags[N_FLAGS] = {
	[F_OUTPUT] = {"--output", 'o', "FILE", "plan to write (default: plan.bin)"},
	[F_MODEL] = {"--model", 0, "FILE", "MODEL.toml to use (default: the one in MODEL_DIR, else the family's)"},
	[F_FAMILY] = {"--family", 0, "FILE", "facts of a model family that atlasc does not have, or has otherwise; see "
		"docs/families.md"},
	[F_CONTEXT] = {"--context", 0, "N", "longest sequence in tokens, prompt included (default: runtime.max_context of "
		"MODEL.toml)"},
	[F_SLOTS] = {"--slots", 0, "N", "sequences that run at once (default: runtime.slots of MODEL.toml)"},
	[F_WEIGHTS] = {"--weights", 0, "embed|ref", "copy weights into the plan (default), or refer to the checkpoint's "
		"files; ref with --random-weights: make them when the plan is opened"},
	[F_RANDOM] = {"--random-weights", 0, NULL, "use random weights: MODEL_DIR may be a config.json alone; [speculate] "
		"decides whether there is a draft head"},
	[F_SEED] = {"--seed", 0, "N", "seed of --random-weights (default: 0); the same seed gives the same plan"},
	[F_TARGET] = {"--target", 0, "LIST", "GPU architectures, separated by commas; none: reference device only "
		"(default: sm_90a)"},
	[F_CARD] = {"--card", 0, "LIST", "choose kernels by the built-in times of this card, such as h100 (default: "
		"target.card of MODEL.toml, else the typical card)"},
	[F_TUNING] = {"--tuning", 0, "FILE|none", "choose kernels by these measured times (default: the built-in ones)"},
	[F_CANDIDATES] = {"--candidates", 0, "N", "add the N most promising kernels of each template and op, for atlas "
		"tune"},
	[F_PRUNED] = {"--pruned", 0, NULL, "with --candidates: as many again of those that contracts do not prefer"},
	[F_JOBS] = {"--jobs", 'j', "N", "kernels compiled in parallel (default: the number of processors)"},
	[F_CACHE] = {"--cache-dir", 0, "DIR", "keep compiled kernels in DIR, which only you may write to; not read with "
		"--sign"},
	[F_ESTIMATE] = {"--estimate", 0, NULL, "print the memory that the plan will need, item by item, and compile "
		"nothing"},
	[F_BUDGET] = {"--memory-budget", 0, "SIZE", "refuse a plan that needs more GPU memory than SIZE, such as 24GiB, "
		"before weights are read"},
	[F_SIGN] = {"--sign", 0, "PEM", "sign the plan with this Ed25519 private key; may be repeated"},
	[F_HASH] = {"--hash-files", 0, NULL, "also record the SHA-256 of every weight file, which is read once more"},
	[F_TEXT] = {"--text", 0, "FILE", "(calibrate) text used to measure K/V scales"},
	[F_LIST] = {"--list", 0, NULL, "(explain) list every code with its title"},
	[F_CODE] = {"--machine-code", 0, NULL, "(times) with --json: compile each kernel too, and print the SHA-256 of its "
		"machine code"},
	[F_DRY] = {"--dry-run", 0, NULL, "do everything except write the plan"},
	[F_JSON] = {"--json", 0, NULL, "print summary and diagnostics as JSON on stdout"},
	[F_QUIET] = {"--quiet", 'q', NULL, "print diagnostics only"},
	[F_VERBOSE] = {"--verbose", 'v', NULL, "with an error about kernels, list every candidate"},
	[F_WARN] = {"--warn", 'W', "error|error=CODE", "turn notes into errors: those about unused input, or those with "
		"this code"},
	[F_COLOR] = {"--color", 0, MESSAGE_COLORS, "colour of messages on stderr (default: auto, on a terminal)"},
	[F_DUMP] = {"--dump", 'd', "LETTERS", "print the program to stdout after these passes"},
	[F_STOP] = {"--stop-after", 0, "PASS", "stop after this pass; only emit writes a plan"},
	[F_TIMINGS] = {"--timings", 0, NULL, "print the time of every pass on stderr"},
	[F_OPS] = {"--list-ops", 0, NULL, "print every operation with its operands and formula"},
	[F_TARGETS] = {"--list-targets", 0, NULL, "print every target, the cards it has run on, and the cards it has times "
		"for"},
	[F_KEYS] = {"--help-model", 0, NULL, "print every key of MODEL.toml with its range and meaning"},
	[F_VERSION] = {"--version", 'V', NULL, "print the version"},
	[F_HELP] = {"--help", 'h', NULL, "print this help"},
	[F_AS] = {"--help-as", 0, "man|model|" COMPLETION_SHELLS, "print the manual page, that of MODEL.toml, or a shell's "
		"completion script"},
};

/* Headings of the help, each before the option that it begins with. */
static const struct { Flag first; const char *head; } heads[] = {{F_OUTPUT, "Model and plan"},
	{F_TARGET, "Target and kernels"}, {F_ESTIMATE, "Memory"}, {F_SIGN, "Trust"}, {F_TEXT, "Other commands"},
	{F_DRY, "Output"}, {F_DUMP, "Look into the compiler"}, {F_VERSION, "Help"}};

const CommandWord command_words[COMMAND_WORDS] = {
	[COMMAND_COMPILE] = {"", "MODEL_DIR [-o plan.bin] [options]", "compile a Hugging Face checkpoint into a plan"},
	[COMMAND_KERNELS] = {"kernels", "[--json]", "print every kernel template with its contract"},
	[COMMAND_TIMES] = {"times", "[FILE] [--json]", "show which kernels lack measured times, for each card"},
	[COMMAND_EXPLAIN] = {"explain", "CODE | --list [--json]", "explain an error code or a status of atlas.h"},
	[COMMAND_CALIBRATE] = {"calibrate", "MODEL_DIR --text FILE -o FILE", "measure scales for an fp8 or nvfp4 KV cache"},
};

void print_version(void)
{
	char nvrtc[PATH_MAX];
	printf("atlasc " ATLAS_VERSION "\nbuilt with jansson " JANSSON_VERSION ", msgpack-c " MSGPACK_VERSION ", OpenSSL "
		OPENSSL_VERSION_STR ", libsodium " SODIUM_VERSION_STRING ", libclang %s\nNVRTC: %s\n", libclang_version,
		nvrtc_find(nvrtc, sizeof nvrtc) ? nvrtc : "libnvrtc.so.13, where the loader finds it");
}

void print_help(void)
{
	ManualOption rows[MAX_OPTIONS];
	puts("usage:");
	for (int i = 0; i < COMMAND_WORDS; i++) {
		char left[80];
		snprintf(left, sizeof left, "atlasc %s%s%s", command_words[i].name, *command_words[i].name ? " " : "",
			command_words[i].words);
		help_item(stdout, left, 6, command_words[i].summary);
	}
	putchar('\n');
	help_lines(stdout, "The compiler needs no GPU and reads no environment variable. The same inputs give the same "
		"bytes.\n");
	help_options(stdout, rows, command_options(COMMAND_HELP, rows));
	puts("\nFirst steps:\n  atlasc ~/models/Llama-3.2-1B -o plan.bin\n  atlas run plan.bin -p \"Once upon a time\"\n");
	help_lines(stdout, "Exit codes: 0 done, 2 usage, 3 refused (no admissible kernel), 4 bad input, 5 environment, "
		"7 does not fit in memory, 70 internal error, 130 interrupted.\n");
	putchar('\n');
}

static bool wrong(Compile *c, const char *fmt, const char *a, const char *b)
{
	return fail_at(&c->diags, A0101, (Loc){0}, fmt, a, b);
}

static bool unknown_flag(Compile *c, const char *seen)
{
	const char *names[N_FLAGS];
	for (int i = 0; i < N_FLAGS; i++)
		names[i] = flags[i].name;
	seen = arena_strndup(&c->arena, seen, strcspn(seen, "="));
	const char *near = closest_name(seen, names, N_FLAGS);
	return near ? wrong(c, "unknown option %s: did you mean %s?", seen, near)
		: wrong(c, "unknown option %s: see atlasc --help%s", seen, "");
}

static bool set_targets(Compile *c, const char *list)
{
	c->cmd.n_targets = 0;
	if (strcmp(list, "none") == 0) /* the graph alone, which the reference device executes */
		return true;
	for (const char *at = list; *at;) {
		size_t n = strcspn(at, ",");
		const char *name = arena_strndup(&c->arena, at, n);
		if (!target_by_name(name)) {
			const char *known[2] = {"", ""}; /* has run; has not */
			const char **names = ARENA_ARRAY(&c->arena, const char *, n_target_table + 1);
			names[n_target_table] = "none";
			for (int i = 0; i < n_target_table; i++) {
				const char **of = &known[!target_table[i].ran_on];
				names[i] = target_table[i].name;
				*of = arena_printf(&c->arena, "%s%s%s", *of, **of ? ", " : "", target_table[i].name);
			}
			return wrong(c, "--target %s: expected %s", name, arena_printf(&c->arena,
				"%s, or one of those that are compiled, never run: %s%s", known[0], known[1],
				did_you_mean(&c->arena, closest_name(name, names, n_target_table + 1))));
		}
		for (int i = 0; i < c->cmd.n_targets; i++)
			if (strcmp(c->cmd.targets[i], name) == 0)
				return wrong(c, "--target %s: named twice%s", name, "");
		if (c->cmd.n_targets == (int)(sizeof c->cmd.targets / sizeof c->cmd.targets[0]))
			return wrong(c, "--target %s: too many targets%s", list, "");
		c->cmd.targets[c->cmd.n_targets++] = name;
		at += n + (at[n] == ',');
	}
	return c->cmd.n_targets > 0 || wrong(c, "--target: expected a list such as sm_90a,sm_80%s%s", "", "");
}

static bool set_count(Compile *c, const char *name, const char *text, int most, int *count)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (!*text || *end || errno || n < 1 || n > most)
		return wrong(c, arena_printf(&c->arena, "%%s %%s: expected 1 to %d", most), name, text);
	*count = (int)n;
	return true;
}

static bool set_seed(Compile *c, const char *text)
{
	char *end;
	errno = 0;
	unsigned long long seed = strtoull(text, &end, 10);
	if (!*text || *end || errno || strchr(text, '-'))
		return wrong(c, "--seed %s: expected a whole number below 2^64%s", text, "");
	c->cmd.seed = seed;
	c->cmd.has_seed = true;
	return true;
}

/* "error", "error=A0207" */
static bool set_warn(Compile *c, const char *value)
{
	Code code;
	if (strcmp(value, "error") == 0) {
		c->diags.refuses_unread = true;
		return true;
	}
	if (strncmp(value, "error=", 6) != 0)
		return wrong(c, "-W %s: expected error, or error=CODE as in error=A0207%s", value, "");
	if (!code_from_name(value + 6, &code)) {
		const char *near = closest_code(value + 6, false);
		return wrong(c, "-W %s: there is no such code%s", value, near ? did_you_mean(&c->arena, near)
			: ": atlasc explain --list has all of them");
	}
	c->diags.refuses[code] = true;
	return true;
}

static bool apply(Compile *c, Flag f, const char *value, Command *command)
{
	CommandLine *cmd = &c->cmd;
	switch (f) {
	case F_OUTPUT: cmd->output = value; break;
	case F_TEXT: cmd->text = value; break;
	case F_MODEL: cmd->model_toml = value; break;
	case F_FAMILY: cmd->family = value; break;
	case F_CONTEXT: return set_count(c, "--context", value, (int)option_table[MAX_CONTEXT].hi, &cmd->context);
	case F_SLOTS: return set_count(c, "--slots", value, (int)option_table[SLOTS].hi, &cmd->slots);
	case F_TARGET: return set_targets(c, value);
	case F_CARD: cmd->cards = value; break;
	case F_TUNING: cmd->tuning = value; break;
	case F_CANDIDATES: return set_count(c, "--candidates", value, MAX_COUNT, &cmd->candidates);
	case F_PRUNED: cmd->pruned = true; break;
	case F_WEIGHTS:
		if (strcmp(value, "embed") != 0 && strcmp(value, "ref") != 0)
			return wrong(c, "--weights %s: expected embed or ref%s", value, "");
		cmd->embed_weights = strcmp(value, "embed") == 0;
		break;
	case F_RANDOM: cmd->random_weights = true; break;
	case F_SEED: return set_seed(c, value);
	case F_HASH: cmd->hash_files = true; break;
	case F_SIGN:
		if (cmd->n_sign == (int)(sizeof cmd->sign / sizeof cmd->sign[0]))
			return wrong(c, "--sign %s: too many keys%s", value, "");
		cmd->sign[cmd->n_sign++] = value;
		break;
	case F_JOBS: return set_count(c, "-j", value, MAX_COUNT, &cmd->jobs);
	case F_CACHE: cmd->cache_dir = value; break;
	case F_DUMP: cmd->dump = value; break;
	case F_STOP: cmd->stop_after = value; break;
	case F_DRY: cmd->dry_run = true; break;
	case F_JSON: cmd->json = true; break;
	case F_TIMINGS: cmd->timings = true; break;
	case F_QUIET: cmd->quiet = true; break;
	case F_VERBOSE: cmd->verbose = true; break;
	case F_WARN: return set_warn(c, value);
	case F_OPS: *command = COMMAND_OPS; break;
	case F_TARGETS: *command = COMMAND_TARGETS; break;
	case F_KEYS: *command = COMMAND_KEYS; break;
	case F_ESTIMATE: cmd->estimate = true; break;
	case F_BUDGET:
		return memory_parse(value, &cmd->memory_budget) ||
			wrong(c, "--memory-budget %s: expected bytes, or a number of KiB, MiB or GiB%s", value, "");
	case F_LIST: cmd->list = true; break;
	case F_CODE: cmd->machine_code = true; break;
	case F_COLOR: return message_is_color(value) || wrong(c, "--color %s: expected auto, always or never%s", value, "");
	case F_VERSION: *command = COMMAND_VERSION; break;
	case F_HELP: *command = COMMAND_HELP; break;
	case F_AS:
		if (strcmp(value, "man") != 0 && strcmp(value, "model") != 0 && strcmp(value, "bash") != 0 &&
				strcmp(value, "zsh") != 0 && strcmp(value, "fish") != 0)
			return wrong(c, "--help-as %s: expected man, model, bash, zsh or fish%s", value, "");
		cmd->help_as = value;
		*command = COMMAND_MANUAL;
		break;
	case N_FLAGS: break;
	}
	return true;
}

/* Which commands take it. */
static unsigned commands_of(Flag f)
{
	switch (f) {
	case F_TEXT: return CALIBRATE;
	case F_LIST: return EXPLAIN;
	case F_CODE: return TIMES;
	case F_JOBS: return COMPILE | TIMES;
	case F_OUTPUT: case F_MODEL: case F_FAMILY: case F_QUIET: case F_WARN: return COMPILE | CALIBRATE;
	case F_JSON: return COMPILE | KERNELS | EXPLAIN | TIMES;
	case F_OPS: case F_TARGETS: case F_KEYS: case F_COLOR: case F_VERSION: case F_HELP: case F_AS: return EVERY;
	default: return COMPILE;
	}
}

/* `command` is what the first word says. */
static bool is_taken(Compile *c, Flag f, Command command)
{
	unsigned of = commands_of(f);
	if (of & 1u << command)
		return true;
	if (command != COMMAND_COMPILE)
		return wrong(c, "%s is not an option of atlasc %s", flags[f].name, command_words[command].name);
	return wrong(c, "%s is an option of atlasc %s only", flags[f].name,
		command_words[of & EXPLAIN ? COMMAND_EXPLAIN : of & TIMES ? COMMAND_TIMES : COMMAND_CALIBRATE].name);
}

/* The flag an argument spells; its value when joined to it ("-j4", "--jobs=4"), else NULL. */
static Flag match(const char *arg, const char **value)
{
	*value = NULL;
	for (int i = 0; i < N_FLAGS; i++) {
		size_t n = strlen(flags[i].name);
		if (strncmp(arg, flags[i].name, n) == 0 && (arg[n] == 0 || (arg[n] == '=' && flags[i].value))) {
			*value = arg[n] ? arg + n + 1 : NULL;
			return (Flag)i;
		}
		if (flags[i].letter && arg[0] == '-' && arg[1] == flags[i].letter && (!arg[2] || flags[i].value)) {
			*value = arg[2] ? arg + 2 : NULL;
			return (Flag)i;
		}
	}
	return N_FLAGS;
}

/* The command that the first word names. */
static Command verb_of(const char *word)
{
	for (int i = COMMAND_COMPILE + 1; i < COMMAND_WORDS; i++)
		if (strcmp(word, command_words[i].name) == 0)
			return (Command)i;
	return COMMAND_COMPILE;
}

/* What may be the first word besides a folder: commands, and the verbs of the other command, which are no commands. */
static const char *const verbs_of_atlas[] = {"run", "audit", "verify", "dump", "perplexity", "bench", "tune", "info",
	"diff", "receipt", "memory", "sign", "serve", "chat"};
enum { N_VERBS = sizeof verbs_of_atlas / sizeof verbs_of_atlas[0] };

/* The first word names no folder. False: it is a verb of the other command, or much like such a word; the error is
 * recorded. */
static bool is_new_folder(Compile *c, const char *word)
{
	const char *names[COMMAND_WORDS + N_VERBS];
	int n = 0;
	for (int i = 0; i < N_VERBS; i++) {
		names[n++] = verbs_of_atlas[i];
		if (strcmp(word, verbs_of_atlas[i]) == 0)
			return wrong(c, "%s works on a plan and is a verb of the other command: atlas %s PLAN", word, word);
	}
	for (int i = COMMAND_COMPILE + 1; i < COMMAND_WORDS; i++)
		names[n++] = command_words[i].name;
	const char *near = strchr(word, '/') ? NULL : closest_name(word, names, n);
	return !near || wrong(c, "%s: there is no such folder or command: did you mean %s?", word,
		verb_of(near) == COMMAND_COMPILE ? arena_printf(&c->arena, "atlas %s", near) : near);
}

int command_options(Command command, ManualOption *out)
{
	int n = 0;
	for (int i = 0; i < N_FLAGS; i++) {
		for (int k = 0; command == COMMAND_HELP && k < (int)(sizeof heads / sizeof heads[0]); k++)
			if (heads[k].first == (Flag)i)
				out[n++] = (ManualOption){.name = heads[k].head};
		if (command == COMMAND_HELP || (commands_of((Flag)i) & 1u << command))
			out[n++] = flags[i];
	}
	return n;
}

static bool parse(Compile *c, int argc, char **argv, Command *command)
{
	bool ok = true, words_only = false;
	Command verb = COMMAND_COMPILE; /* the first word; options such as --help make another command of it */
	for (int i = 1; i < argc; i++) {
		const char *value;
		if (!words_only && strcmp(argv[i], "--") == 0) {
			words_only = true;
			continue;
		}
		if (!argv[i][0]) { /* a variable of a script that is not set */
			ok = wrong(c, "an empty argument: expected the name of a model folder%s%s", "", "");
			continue;
		}
		if (words_only || argv[i][0] != '-' || !argv[i][1]) {
			if (i == 1 && (verb = verb_of(argv[i])) != COMMAND_COMPILE)
				*command = verb;
			else if (i == 1 && access(argv[i], F_OK) != 0 && !is_new_folder(c, argv[i]))
				return false;
			else if (c->cmd.model_dir || *command == COMMAND_KERNELS)
				ok = wrong(c, "unexpected argument %s%s", argv[i], "");
			else
				c->cmd.model_dir = argv[i];
			continue;
		}
		Flag f = match(argv[i], &value);
		if (f == N_FLAGS) {
			ok = unknown_flag(c, argv[i]);
		} else if (!is_taken(c, f, verb)) {
			ok = false;
			i += flags[f].value && !value;
		} else if (flags[f].value && !value && i + 1 == argc) {
			ok = wrong(c, "%s needs %s", flags[f].name, flags[f].value);
		} else {
			if (flags[f].value && !value)
				value = argv[++i];
			ok = flags[f].value && !*value ? wrong(c, "%s needs %s", flags[f].name, flags[f].value) :
				apply(c, f, value, command) && ok;
		}
	}
	return ok;
}

/* What the words say together; NULL, or why not. */
static const char *contradiction(const CommandLine *cmd, Command command)
{
	if (command == COMMAND_COMPILE && !cmd->model_dir)
		return "no model folder given: atlasc MODEL_DIR -o plan.bin";
	if (command == COMMAND_CALIBRATE && (!cmd->model_dir || !cmd->text || !cmd->output))
		return "calibrate needs a model folder, --text FILE and -o FILE";
	if (command == COMMAND_EXPLAIN && !cmd->model_dir && !cmd->list)
		return "name a code: atlasc explain A0302, or --list for all of them";
	if (command == COMMAND_EXPLAIN && cmd->model_dir && cmd->list)
		return "explain: a code or --list, not both";
	if (cmd->machine_code && !cmd->json)
		return "--machine-code needs --json";
	if (cmd->pruned && !cmd->candidates)
		return "--pruned needs --candidates";
	if (cmd->has_seed && !cmd->random_weights)
		return "--seed needs --random-weights";
	if (cmd->random_weights && cmd->hash_files)
		return "--hash-files with --random-weights: there are no files to hash";
	if (cmd->random_weights && !cmd->embed_weights && cmd->n_sign)
		return "--sign with --random-weights --weights ref: a signature cannot cover weights that are made when the "
			"plan is opened";
	if (cmd->cards && cmd->tuning)
		return "--card chooses among the built-in times, which --tuning replaces: give one of them";
	if (cmd->cards && !cmd->n_targets)
		return "--card: --target none needs no measured times";
	if (cmd->estimate && !cmd->n_targets)
		return "--estimate: --target none needs no GPU memory";
	if (cmd->estimate && cmd->stop_after)
		return "--estimate and --stop-after both end the compile: give one of them";
	return NULL;
}

Command parse_command_line(Compile *c, int argc, char **argv)
{
	Command command = COMMAND_COMPILE;
	c->cmd = (CommandLine){.embed_weights = true, .targets = {"sm_90a"}, .n_targets = 1,
		.color = message_color_word(argc, argv)};
	if (!parse(c, argc, argv, &command))
		return COMMAND_WRONG;
	const char *why = contradiction(&c->cmd, command);
	if (why) {
		wrong(c, "%s%s", why, "");
		return COMMAND_WRONG;
	}
	if (!c->cmd.output)
		c->cmd.output = "plan.bin";
	if (!c->cmd.jobs) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);
		c->cmd.jobs = n < 1 ? 1 : n > MAX_COUNT ? MAX_COUNT : (int)n;
	}
	return command;
}
