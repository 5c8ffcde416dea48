/* main.c - the atlasc command: the pass table is the program.
 *
 * A pass reads and fills fields of Compile. The driver stops after a pass that recorded an error, prints all
 * diagnostics, and leaves with the exit code of the first. Dumps, checks, timing and --stop-after come from the table.
 */
#include "artifacts/closest.h"
#include "artifacts/message.h"
#include "artifacts/op_table.h"
#include "compiler/commands/calibrate_cmd.h"
#include "compiler/commands/command_line.h"
#include "compiler/commands/explain.h"
#include "compiler/commands/kernels_cmd.h"
#include "compiler/commands/manual_cmd.h"
#include "compiler/commands/progress.h"
#include "compiler/commands/times_cmd.h"
#include "compiler/ir.h"
#include "compiler/pick/times.h"
#include "compiler/plan/estimate.h"
#include "compiler/read/model_folder.h"
#include "compiler/text/value.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct Pass {
	char letter;
	const char *name;
	void (*run)(Compile *c);
	void (*check)(Compile *c);
	void (*print)(Compile *c, void *file);
	bool keeps_going; /* runs although an earlier reading pass failed, to report all it can */
} Pass;

static const Pass pipeline[] = {
	/* files -> model */
	{'c', "read-config", read_config, NULL, print_model, false},
	{'o', "read-options", read_options, NULL, print_model, true},
	{'w', "read-weights", read_weights, NULL, print_model, true},
	{'t', "read-text", read_text, check_model, print_model, true},
	/* model -> graph */
	{'g', "build-graph", build_graph, check_graph, print_graph, false},
	{'r', "cut-ranks", cut_ranks, check_cut_graph, print_graph, false},
	/* graph -> plan */
	{'f', "fuse", fuse, check_lowered, print_lowered, false},
	{'k', "pick-kernels", pick_kernels, check_lowered, print_lowered, false},
	{'n', "make-kernels", make_kernels, check_lowered, print_lowered, false},
	{'b', "plan-memory", plan_memory, check_budget, print_plan, false},
	{'s', "schedule", schedule, check_plan, print_plan, false},
	/* plan -> artifact */
	{'e', "emit", emit, NULL, print_plan, false},
};
enum { N_PASSES = sizeof pipeline / sizeof pipeline[0] };

static double now_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Talk ------------------------------------------------------------------------------------------ */

/* "FILE:LINE:COLUMN" */
static const char *place_text(Arena *a, Loc at)
{
	return !at.file ? "atlasc" : at.line ? arena_printf(a, "%s:%d:%d", at.file, at.line, at.col) : at.file;
}

static void print_diags(const Compile *c)
{
	const Diags *d = &c->diags;
	const bool is_colored = message_is_colored(c->cmd.color, stderr);
	for (int i = 0; i < d->n; i++) {
		const Diag *g = &d->list[i];
		message_head(stderr, is_colored, place_text(d->arena, g->at), g->is_note ? MESSAGE_NOTE : MESSAGE_ERROR,
			code_name(g->code));
		fprintf(stderr, "%s\n", g->text);
	}
	int kept = 0;
	for (int i = 0; i < d->n; i++)
		kept += !d->list[i].is_note;
	const int more = d->n_errors - d->n_again - kept;
	if (more > 0)
		fprintf(stderr, "atlasc: %d more error%s\n", more, more == 1 ? "" : "s");
}

typedef struct Program {
	Compile c; /* first: a pass that reports progress knows this alone */
	Progress progress;
} Program;

static void progress(Compile *c, const char *what, int64_t done, int64_t total)
{
	progress_show(&((Program *)c)->progress, what, done, total, now_seconds());
}

/* Text as JSON takes it. A path may hold bytes that are no UTF-8: each byte beyond ASCII becomes a ? then. */
static json_t *json_words(const char *text)
{
	json_t *words = text ? json_string(text) : json_null();
	if (words)
		return words;
	char *plain = strdup(text);
	for (char *p = plain; p && *p; p++)
		if (*p & 0x80)
			*p = '?';
	words = plain ? json_string(plain) : json_null();
	free(plain);
	return words;
}

static json_t *json_diags(const Diags *d)
{
	json_t *list = json_array();
	for (int i = 0; i < d->n; i++) {
		const Diag *g = &d->list[i];
		json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:i, s:i, s:o}", "code", code_name(g->code),
			"severity", g->is_note ? "note" : "error", "file", json_words(g->at.file), "line", g->at.line,
			"column", g->at.col, "message", json_words(g->text)));
	}
	return list;
}

static json_t *json_target(const TargetWork *work)
{
	json_t *phases = json_array(), *arenas = json_object();
	for (int i = 0; i < work->plan.n_phases; i++) {
		const Phase *p = &work->plan.phases[i];
		json_array_append_new(phases, json_pack("{s:s, s:i, s:i, s:i, s:i}", "phase", phase_name(p->kind), "rows",
			p->rows, "outs", p->outs, "each", p->each, "launches", p->n_launches));
	}
	for (int a = 0; a < (work->plan.arena_bytes[ARENA_PEER] ? ARENA_COUNT : ARENA_STORED); a++)
		json_object_set_new(arenas, arena_name((ArenaKind)a), json_integer(work->plan.arena_bytes[a]));
	return json_pack("{s:s, s:i, s:o, s:o}", "target", work->target->name, "kernels", work->plan.n_kernels,
		"phases", phases, "arena_bytes", arenas);
}

static void print_json(const Compile *c, int exit_code)
{
	json_t *targets = json_array();
	for (int i = 0; i < c->work.n && !c->diags.n_errors; i++)
		json_array_append_new(targets, json_target(&c->work.at[i]));
	json_t *root = json_pack("{s:i, s:i, s:o, s:b, s:o, s:i, s:o}", "schema_version", 1, "exit_code", exit_code,
		"output", json_words(c->cmd.output), "dry_run", c->cmd.dry_run, "diagnostics", json_diags(&c->diags), "errors",
		c->diags.n_errors - c->diags.n_again, "targets", targets);
	json_dumpf(root, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(root);
}

static double mib(int64_t bytes) { return (double)bytes / (1 << 20); }

static void print_summary(const Compile *c, double seconds)
{
	const Graph *g = &c->graph;
	fprintf(stderr, "%s: %s, %d layers, %d slots of %d tokens, %d weights (%.1f MiB)\n",
		c->cmd.dry_run ? "dry run" : c->cmd.output, g->family, g->n_layers, g->slots, g->max_context,
		g->n_weights, mib(g->weight_arena_bytes));
	for (int i = 0; i < c->work.n; i++) {
		const TargetPlan *p = &c->work.at[i].plan;
		int launches = 0;
		for (int k = 0; k < p->n_phases; k++)
			launches += p->phases[k].n_launches;
		fprintf(stderr, "  %s: %d phases, %d launches, %d kernels; state %.1f MiB, scratch %.1f MiB\n", p->target,
			p->n_phases, launches, p->n_kernels, mib(p->arena_bytes[ARENA_STATE]),
			mib(p->arena_bytes[ARENA_SCRATCH]));
		if (c->cmd.candidates)
			fprintf(stderr, "  %s: %d candidates for atlas tune\n", p->target, c->work.at[i].candidates.n_kernels);
	}
	fprintf(stderr, "  %.2f s\n", seconds);
}

/* The driver --------------------------------------------------------------------------------------- */

static bool is_reading(int i)
{
	return pipeline[i].run == read_config || pipeline[i].keeps_going;
}

static void run_passes(Compile *c)
{
	for (int i = 0; i < N_PASSES; i++) {
		const Pass *p = &pipeline[i];
		if (c->diags.n_errors && i > 0 && !(p->keeps_going && is_reading(i - 1)))
			return;
		double start = now_seconds();
		if (c->cmd.estimate && p->run == (c->ranks.n ? fuse : schedule))
			return;
		bool is_left_out = (p->run == emit && c->cmd.dry_run) || /* its level is the plan's, and can be shown */
			(p->run == make_kernels && c->cmd.estimate);
		if (!is_left_out)
			p->run(c);
		if (p->check && !c->diags.n_errors)
			p->check(c);
		if (c->cmd.timings && !is_left_out)
			fprintf(stderr, "%-14s %8.1f ms\n", p->name, 1e3 * (now_seconds() - start));
		if (c->cmd.dump && strchr(c->cmd.dump, p->letter) && !c->diags.n_errors)
			p->print(c, stdout);
		arena_release(&c->scratch);
		if (c->cmd.stop_after && strcmp(c->cmd.stop_after, p->name) == 0)
			return;
	}
}

static int first_exit_code(const Diags *d)
{
	for (int i = 0; i < d->n; i++)
		if (!d->list[i].is_note) /* a remark that -W makes an error may be of a code that has no exit code */
			return code_exit(d->list[i].code) ? code_exit(d->list[i].code) : EXIT_BAD_INPUT;
	return d->n_errors ? EXIT_INTERNAL : EXIT_OK;
}

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	_exit(EXIT_INTERRUPTED); /* while the output has a temporary name, the writer keeps signals waiting */
}

static void print_passes(void)
{
	puts("Passes (-d LETTERS prints after them, --stop-after NAME ends there):");
	for (int i = 0; i < N_PASSES; i++)
		printf("  %c  %s\n", pipeline[i].letter, pipeline[i].name);
}

static void print_ops(void)
{
	for (int i = 0; i < OP_COUNT; i++) {
		const OpInfo *o = &op_table[i];
		printf("%s%s\n    %s\n", o->name, o->traits & OP_GRAPH ? "" : " (fused)", op_meanings[i]);
		for (int k = 0; k < o->n_operands; k++)
			printf("    %-6s %s [%s]\n", operand_role_name(o->operands[k].role), o->operands[k].name,
				operand_shape(i, k));
	}
}

static void check_names(Compile *c)
{
	const char *names[N_PASSES];
	char letters[N_PASSES + 1] = "";
	for (int i = 0; i < N_PASSES; i++) {
		names[i] = pipeline[i].name;
		letters[i] = pipeline[i].letter;
	}
	bool found = !c->cmd.stop_after;
	for (int i = 0; i < N_PASSES && !found; i++)
		found = strcmp(names[i], c->cmd.stop_after) == 0;
	if (!found) {
		const char *near = closest_name(c->cmd.stop_after, names, N_PASSES);
		fail_at(&c->diags, A0101, (Loc){0}, "--stop-after %s: there is no such pass%s", c->cmd.stop_after,
			near ? did_you_mean(&c->arena, near) : ": see atlasc --help");
	}
	for (const char *d = c->cmd.dump; d && *d; d++)
		if (!strchr(letters, *d))
			fail_at(&c->diags, A0101, (Loc){0}, "-d %c: the passes are %s", *d, letters);
	if (c->cmd.dump && c->cmd.json)
		fail_at(&c->diags, A0101, (Loc){0}, "--json and -d both write to stdout: give one of them");
}

/* --random-weights takes a config.json too, wherever and under whatever name it lies. */
static void name_config(Compile *c)
{
	struct stat st;
	if (!c->cmd.random_weights || stat(c->cmd.model_dir, &st) != 0 || !S_ISREG(st.st_mode))
		return;
	const char *slash = strrchr(c->cmd.model_dir, '/');
	c->cmd.config_file = c->cmd.model_dir;
	c->cmd.model_dir = slash ? arena_strndup(&c->arena, c->cmd.model_dir, (size_t)(slash - c->cmd.model_dir) + 1) : ".";
}

/* An output that cannot be written is reported with the mistakes of the input, not after all the work. False: there
 * is no folder to read. */
static bool check_paths(Compile *c)
{
	char why[512] = "";
	bool is_folder = find_model_folder(c);
	bool writes = !c->cmd.dry_run && !c->cmd.estimate && (!c->cmd.stop_after || strcmp(c->cmd.stop_after, "emit") == 0);
	if (writes && !artifact_can_write(c->cmd.output, why, sizeof why))
		fail_at(&c->diags, A0103, (Loc){c->cmd.output, 0, 0}, "%s", why);
	check_keys(c);
	return is_folder;
}

static int compile(Compile *c)
{
	double start = now_seconds();
	check_names(c);
	name_config(c);
	if (!c->cmd.quiet) {
		((Program *)c)->progress = progress_on(stderr);
		c->progress = progress;
	}
	if (!c->diags.n_errors && check_paths(c))
		run_passes(c);
	if (c->progress)
		progress_clear(&((Program *)c)->progress);
	print_diags(c);
	int code = first_exit_code(&c->diags);
	if (c->cmd.estimate && code == EXIT_OK)
		estimate_memory(c, c->cmd.json, stdout);
	else if (c->cmd.json)
		print_json(c, code);
	else if (code == EXIT_OK && !c->cmd.quiet && !c->cmd.stop_after)
		print_summary(c, now_seconds() - start);
	return code;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = on_interrupt};
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	signal(SIGXFSZ, SIG_IGN); /* a file that grows past a limit is an error of write */
	Program program = {.c = {.cmd = {.jobs = 0}}};
	Compile *const c = &program.c;
	c->diags.arena = &c->arena;
	int code;
	switch (parse_command_line(c, argc, argv)) {
	case COMMAND_HELP:
		print_help();
		print_passes();
		code = EXIT_OK;
		break;
	case COMMAND_MANUAL: {
		const char *names[N_PASSES];
		for (int i = 0; i < N_PASSES; i++)
			names[i] = pipeline[i].name;
		manual_command(c, names, N_PASSES);
		code = EXIT_OK;
		break;
	}
	case COMMAND_VERSION:
		print_version();
		code = EXIT_OK;
		break;
	case COMMAND_OPS:
		print_ops();
		code = EXIT_OK;
		break;
	case COMMAND_TARGETS:
		print_targets(stdout);
		code = EXIT_OK;
		break;
	case COMMAND_KEYS:
		print_option_table(stdout);
		code = EXIT_OK;
		break;
	case COMMAND_KERNELS:
		code = kernels_command(&c->diags, c->cmd.json);
		print_diags(c);
		break;
	case COMMAND_TIMES: /* the word that would name a model names a file of times */
		code = times_command(c);
		print_diags(c);
		break;
	case COMMAND_CALIBRATE:
		code = calibrate_command(c, compile);
		break;
	case COMMAND_EXPLAIN: /* the word that would name a model names a code */
		code = explain_command(&c->diags, c->cmd.model_dir, c->cmd.json);
		print_diags(c);
		break;
	case COMMAND_COMPILE:
		code = compile(c);
		break;
	default:
		print_diags(c);
		code = EXIT_USAGE;
	}
	arena_release(&c->scratch);
	arena_release(&c->arena);
	if (fflush(stdout) != 0 || ferror(stdout))
		return EXIT_ENVIRONMENT;
	return code;
}
