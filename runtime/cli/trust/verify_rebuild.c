/* verify_rebuild.c - atlas verify --rebuild: is the plan what its recorded inputs make?
 *
 * A plan records what it was made of: MODEL.toml, the options, the tools; of the checkpoint and of files of times,
 * scales and token ids it has hashes alone, so these are named. atlasc, which is next to this command, is run on them
 * (`atlas` knows no NVRTC), into a folder next to the plan, and the two files are compared byte by byte.
 * No cache of kernels is read, so that what others may have put there cannot be taken for what the compiler makes.
 * What is not the same is named by section, and by meaning as `atlas diff` does. Signatures come after the sections
 * and are not compared.
 */
#include "runtime/cli/trust/verify_rebuild.h"
#include "artifacts/diff.h"
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "runtime/plan_handle.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_OTHER_TOOL = 8, MAX_WORDS = 40, N_FILES = 2 };

typedef struct NamedFile { /* that MODEL.toml names */
	const char *name;            /* as recorded, NULL = it names none */
	const char *from;            /* where it is now */
	char in_checkpoint[PATH_MAX + 272], link[PATH_MAX + 272]; /* the latter in the folder; "" = not made */
} NamedFile;

typedef struct Rebuild {
	const Args *args;
	AtlasPlan *plan, *made;
	char folder[PATH_MAX];      /* scratch; "" = none */
	char toml[PATH_MAX + 272], output[PATH_MAX + 16]; /* in it */
	NamedFile files[N_FILES];
	char compiler[CLI_PROGRAM_BYTES], targets[256];
} Rebuild;

static const char *option(const AtlasPlan *p, const char *name) { return artifact_option(&p->artifact, name); }

/* The files that MODEL.toml names: given, or in the checkpoint. */
static int find_files(Rebuild *r)
{
	const Args *args = r->args;
	const struct { const char *option, *word, *given, *what; } rows[N_FILES] = {
		{"kv.scales", "--kv-scales", args->kv_scales, "scales"},
		{"speculate.vocabulary_file", "--vocabulary-file", args->vocabulary_file, "token ids"}};
	for (int i = 0; i < N_FILES; i++) {
		NamedFile *f = &r->files[i];
		const char *name = f->name = option(r->plan, rows[i].option);
		if (!name && rows[i].given)
			return cli_say(args, EXIT_USAGE, "%s %s: the plan was made without a file of %s", rows[i].word,
				rows[i].given, rows[i].what);
		if (!name)
			continue;
		if (strchr(name, '/') || strlen(name) > 255)
			return cli_say(args, EXIT_BAD_INPUT, "%s records a path, %.80s, where a name belongs", args->plan, name);
		snprintf(f->in_checkpoint, sizeof f->in_checkpoint, "%s/%s", args->checkpoint, name);
		f->from = rows[i].given ? rows[i].given : f->in_checkpoint;
		if (access(f->from, R_OK) != 0)
			return cli_say(args, EXIT_USAGE, "%s: %s: name the file of %s, %s, with %s FILE", f->from, strerror(errno),
				rows[i].what, name, rows[i].word);
	}
	return 0;
}

/* What is needed besides the plan. */
static int check_inputs(Rebuild *r)
{
	const Args *args = r->args;
	const char *tuning = option(r->plan, "input.tuning");
	if (!option(r->plan, "input.model_toml") || !tuning || !option(r->plan, "output.weights") ||
		!option(r->plan, "tool.atlasc"))
		return cli_say(args, EXIT_BAD_INPUT, "%s does not record its inputs: compile the model again",
			args->plan);
	if (strcmp(tuning, "file") == 0 && !args->tuning)
		return cli_say(args, EXIT_USAGE, "the plan was made with a file of times: name it with --tuning FILE");
	if (strcmp(tuning, "file") != 0 && args->tuning)
		return cli_say(args, EXIT_USAGE, "--tuning %s: the plan was made with %s", args->tuning,
			strcmp(tuning, "none") == 0 ? "no times" : "the times of the compiler");
	return find_files(r);
}

static void write_text(const void *text, FILE *file) { fputs(text, file); }

/* The folder with MODEL.toml as recorded and, next to it, the files that it names. */
static int make_folder(Rebuild *r)
{
	const Args *args = r->args;
	const char *text = option(r->plan, "input.model_toml");
	if (snprintf(r->folder, sizeof r->folder, "%s.rebuild.XXXXXX", args->plan) >= (int)sizeof r->folder ||
		!mkdtemp(r->folder)) {
		r->folder[0] = 0;
		return cli_say(args, EXIT_ENVIRONMENT, "no folder can be created next to %s: %s", args->plan, strerror(errno));
	}
	const char *name = option(r->plan, "input.model_name");
	if (name && (strchr(name, '/') || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
		return cli_say(args, EXIT_BAD_INPUT, "%s records a path, %.80s, where a name belongs", args->plan, name);
	snprintf(r->toml, sizeof r->toml, "%s/%.255s", r->folder, name ? name : "MODEL.toml");
	snprintf(r->output, sizeof r->output, "%s/plan.bin", r->folder);
	const int code = cli_write_file(args, r->toml, write_text, text);
	if (code)
		return code;
	bool good = true;
	for (int i = 0; good && i < N_FILES; i++) {
		NamedFile *n = &r->files[i];
		char link[sizeof n->link];
		char *real = n->name ? realpath(n->from, NULL) : NULL;
		snprintf(link, sizeof link, "%s/%s", r->folder, n->name ? n->name : "");
		good = !n->name || (real && symlink(real, link) == 0);
		if (good && n->name)
			memcpy(n->link, link, sizeof link);
		free(real);
	}
	return good ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s cannot be filled: %s", r->folder, strerror(errno));
}

static void remove_folder(const Rebuild *r)
{
	if (!r->folder[0])
		return;
	unlink(r->toml);
	unlink(r->output);
	for (int i = 0; i < N_FILES; i++)
		if (r->files[i].link[0])
			unlink(r->files[i].link);
	rmdir(r->folder);
}

static bool has_hashed_files(const Artifact *a)
{
	for (int i = 0; i < a->n_origins; i++)
		if (strcmp(a->origins[i].kind, "weights") == 0 && a->origins[i].sha256[0])
			return true;
	return false;
}

static int list_words(Rebuild *r, const char *words[MAX_WORDS])
{
	const Args *args = r->args;
	const Artifact *a = &r->plan->artifact;
	const char *tuning = option(r->plan, "input.tuning");
	size_t at = (size_t)snprintf(r->targets, sizeof r->targets, "%s", a->n_targets ? "" : "none");
	for (int i = 0; i < a->n_targets && at < sizeof r->targets; i++)
		at += (size_t)snprintf(r->targets + at, sizeof r->targets - at, "%s%s", i ? "," : "", a->targets[i].target);
	const struct { const char *flag, *value; } rows[] = {
		{"--model", r->toml}, {"--target", r->targets}, {"--weights", option(r->plan, "output.weights")},
		{"--output", args->output ? args->output : r->output},
		{"--candidates", option(r->plan, "input.candidates")}, {"--context", option(r->plan, "input.context")},
		{"--slots", option(r->plan, "input.slots")}, {"--seed", option(r->plan, "weights.random_seed")},
		{"--tuning", strcmp(tuning, "none") == 0 ? "none" : args->tuning}, {"--card", option(r->plan, "input.card")}};
	int n = 0;
	words[n++] = r->compiler;
	words[n++] = "--quiet";
	if (option(r->plan, "weights.random_seed"))
		words[n++] = "--random-weights";
	if (option(r->plan, "input.pruned"))
		words[n++] = "--pruned";
	if (has_hashed_files(a))
		words[n++] = "--hash-files";
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].value) {
			words[n++] = rows[i].flag;
			words[n++] = rows[i].value;
		}
	words[n++] = "--";
	words[n++] = args->checkpoint;
	words[n] = NULL;
	return n;
}

/* Signals wait in this process, so that the folder is removed; not in the compiler. */
static int run_compiler(Rebuild *r)
{
	const char *words[MAX_WORDS];
	int status;
	list_words(r, words);
	fflush(stdout);
	pid_t child = fork();
	if (child < 0)
		return cli_say(r->args, EXIT_ENVIRONMENT, "%s cannot be started: %s", r->compiler, strerror(errno));
	if (child == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execv(r->compiler, (char *const *)(uintptr_t)words);
		_exit(EXIT_ENVIRONMENT);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
	return code == 0 ? 0 : cli_say(r->args, code, "%s does not make a plan of %s: exit code %d", r->compiler,
		r->args->checkpoint, code);
}

/* The comparison ---------------------------------------------------------------------------------------- */

/* Where the sections end. */
static int64_t end_of(const Artifact *a)
{
	int64_t end = 0;
	for (int i = 0; i < a->n_sections; i++)
		if (a->sections[i].offset + a->sections[i].bytes > end)
			end = a->sections[i].offset + a->sections[i].bytes;
	return end;
}

/* First byte at which they differ, -1 = none. A section that is missing has no bytes. */
static int64_t first_difference(const AtlasPlan *a, const AtlasPlan *b, const char *name)
{
	const Section *x = artifact_section(&a->artifact, name), *y = artifact_section(&b->artifact, name);
	const int64_t n = x ? x->bytes : 0, m = y ? y->bytes : 0, least = n < m ? n : m;
	const uint8_t *p = x ? a->artifact.file + x->offset : NULL, *q = y ? b->artifact.file + y->offset : NULL;
	if (!x || !y)
		return 0;
	if (n == m && memcmp(p, q, (size_t)n) == 0)
		return -1;
	for (int64_t i = 0; i < least; i++)
		if (p[i] != q[i])
			return i;
	return least;
}

typedef struct Finding { const char *section; int64_t at; } Finding;
enum { MAX_FINDINGS = 64 };

/* Sections of either plan that are not the same, each once. */
static int list_findings(const Rebuild *r, Finding list[MAX_FINDINGS])
{
	const AtlasPlan *of[2] = {r->plan, r->made};
	int n = 0;
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < of[side]->artifact.n_sections && n < MAX_FINDINGS; i++) {
			const char *name = of[side]->artifact.sections[i].name;
			int64_t at = side && artifact_section(&of[0]->artifact, name) ? -1 : first_difference(of[0], of[1], name);
			if (at >= 0)
				list[n++] = (Finding){name, at};
		}
	return n;
}

static const char *const tools[] = {"tool.atlasc", "tool.nvrtc", "tool.nvrtc_options"};
enum { N_TOOLS = sizeof tools / sizeof tools[0] };

static bool is_other_tool(const Rebuild *r, int i)
{
	const char *a = option(r->plan, tools[i]), *b = option(r->made, tools[i]);
	return (!a != !b) || (a && strcmp(a, b) != 0);
}

static void print_text(const Rebuild *r, bool is_equal, const uint8_t hashes[2][32], const Finding *found, int n,
	PlanDiff *diff)
{
	for (int i = 0; i < N_TOOLS; i++)
		if (is_other_tool(r, i))
			printf("another tool: %s %s -> %s\n", tools[i] + 5, option(r->plan, tools[i]) ? option(r->plan, tools[i]) :
				"none", option(r->made, tools[i]) ? option(r->made, tools[i]) : "none");
	fputs("plan     ", stdout);
	hex_put(stdout, hashes[0], 32);
	fputs("\nrebuilt  ", stdout);
	hex_put(stdout, hashes[1], 32);
	putchar('\n');
	for (int i = 0; i < n; i++)
		printf("section  %-28s differs from byte %lld on\n", found[i].section, (long long)found[i].at);
	if (!is_equal && !diff_is_empty(diff))
		diff_text(diff, false, stdout);
	puts(is_equal ? "the rebuilt plan is equal" : "the rebuilt plan differs");
}

static void print_json(const Rebuild *r, bool is_equal, const uint8_t hashes[2][32], const Finding *found, int n,
	PlanDiff *diff)
{
	int printed = 0;
	printf("{\"schema_version\": 1, \"equal\": %s, \"sha256\": ", is_equal ? "true" : "false");
	json_hash(stdout, hashes[0]);
	fputs(", \"rebuilt_sha256\": ", stdout);
	json_hash(stdout, hashes[1]);
	fputs(",\n \"other_tools\": [", stdout);
	for (int i = 0; i < N_TOOLS; i++)
		if (is_other_tool(r, i)) {
			fputs(printed++ ? ", " : "", stdout);
			json_quoted(stdout, tools[i]);
		}
	fputs("],\n \"sections\": [", stdout);
	for (int i = 0; i < n; i++) {
		fputs(i ? ", {\"section\": " : "{\"section\": ", stdout);
		json_quoted(stdout, found[i].section);
		printf(", \"first_byte\": %lld}", (long long)found[i].at);
	}
	fputs("],\n \"diff\": ", stdout);
	diff_json(diff, stdout);
	puts("}");
}

static int compare(Rebuild *r)
{
	const Artifact *a = &r->plan->artifact, *b = &r->made->artifact;
	const int64_t n = end_of(a), m = end_of(b);
	const bool is_equal = n == m && memcmp(a->file, b->file, (size_t)n) == 0;
	uint8_t hashes[2][32];
	Finding found[MAX_FINDINGS];
	bool is_other = false;
	sha256_of(a->file, (size_t)n, hashes[0]);
	sha256_of(b->file, (size_t)m, hashes[1]);
	PlanDiff *diff = diff_make(a, b);
	if (!diff)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory to compare the plans");
	int n_found = is_equal ? 0 : list_findings(r, found);
	(r->args->json ? print_json : print_text)(r, is_equal, (const uint8_t (*)[32])hashes, found, n_found, diff);
	diff_free(diff);
	for (int i = 0; i < N_TOOLS; i++)
		is_other |= is_other_tool(r, i);
	return is_equal ? EXIT_OK : is_other ? EXIT_OTHER_TOOL : EXIT_NEGATIVE;
}

static int open_made(Rebuild *r)
{
	AtlasError error = {0};
	AtlasPlanOptions options = {.struct_size = sizeof options, .verify = ATLAS_VERIFY_OFF};
	const char *path = r->args->output ? r->args->output : r->output;
	return atlas_plan_open(path, &options, &r->made, &error) == ATLAS_OK ? 0 : cli_fail(r->args, &error);
}

int verify_rebuild(const Args *args)
{
	Rebuild r = {.args = args};
	if (!args->checkpoint)
		return cli_say(args, EXIT_USAGE, "--rebuild needs --checkpoint DIR");
	cli_hold_signals();
	int code = args->output ? cli_check_output(args, args->output) : 0;
	if (!code)
		code = cli_open_plan(args, args->plan, &r.plan);
	if (!code)
		code = check_inputs(&r);
	if (!code)
		code = cli_find_compiler(args, r.compiler);
	if (!code)
		code = make_folder(&r);
	if (!code)
		code = run_compiler(&r);
	if (!code)
		code = open_made(&r);
	if (!code)
		code = compare(&r);
	atlas_plan_close(r.made);
	remove_folder(&r);
	atlas_plan_close(r.plan);
	return code;
}
