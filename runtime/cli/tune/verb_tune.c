/* verb_tune.c - atlas tune: time the candidates of a plan, and keep a file of times for atlasc.
 *
 * A file holds the times of one card. What was measured now replaces what it says of the same kernels, and the rest
 * stays: a time of a kernel that is another one by now has another key, and atlasc does not use it.
 */
#include "artifacts/closest.h"
#include "artifacts/op_table.h"
#include "artifacts/tuning.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/tune/tune.h"
#include "runtime/plan_handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPS_DEFAULT = 4, ROUNDS = 2 };

typedef struct Tune {
	const Args *args;
	const Artifact *artifact;
	int target;           /* index of the one that runs on this GPU */
	const TargetPlan *set;
	OpKind only;          /* --only; OP_COUNT = all */
	bool *wanted;         /* [set->n_kernels] */
	int n_wanted;
	char driver[96];
	const char *card;
	Tuning old, made;     /* the file as it was; what is written: its strings are the plan's and old's */
	int n_measured;       /* of made.times, the first ones, in the order of the ledger */
	int *time_of;         /* [set->n_kernels] index in made.times until that is sorted */
	char **constants;     /* [set->n_kernels] */
	int *chain;           /* [set->n_kernels] launches in a chain, 0 = not yet known */
} Tune;

/* Candidates ------------------------------------------------------------------------------------------------ */

static const Slot *slot_of(const Tune *t, int trial)
{
	return &t->artifact->ledger[t->target][t->set->phases[trial].launches[0].slot];
}

/* Is every word of `words` one of `defines`? */
static bool has_words(const char *defines, const char *words)
{
	for (const char *w = words; *w; w += strspn(w, " ")) {
		size_t n = strcspn(w, " ");
		const char *d = defines;
		for (; *d && (strcspn(d, " ") != n || strncmp(d, w, n) != 0); d += strspn(d, " "))
			d += strcspn(d, " ");
		if (!*d)
			return false;
		w += n;
	}
	return true;
}

/* The ledger says which of a kernel's constants are tunables. */
static const char *tunables_of(const Tune *t, int trial)
{
	const Kernel *k = &t->set->kernels[trial];
	const Slot *s = slot_of(t, trial);
	for (int i = 0; i < s->n_candidates; i++)
		if (strcmp(s->candidates[i].kernel, k->name) == 0 && has_words(k->defines, s->candidates[i].tunables))
			return s->candidates[i].tunables;
	return "";
}

static int read_only(Tune *t)
{
	const char *only = t->args->only, *names[OP_COUNT];
	t->only = OP_COUNT;
	for (int i = 0; i < OP_COUNT; i++)
		names[i] = op_table[i].name;
	if (!only || op_from_name(only, &t->only))
		return 0;
	const char *near = closest_name(only, names, OP_COUNT);
	return cli_say(t->args, EXIT_USAGE, near ? "--only %s: there is no such op: did you mean %s?"
		: "--only %s: there is no such op: see atlasc --list-ops%s", only, near ? near : "");
}

static int choose_trials(Tune *t)
{
	t->wanted = calloc((size_t)t->set->n_kernels, sizeof *t->wanted);
	t->constants = calloc((size_t)t->set->n_kernels, sizeof *t->constants);
	t->time_of = calloc((size_t)t->set->n_kernels, sizeof *t->time_of);
	t->chain = calloc((size_t)t->set->n_kernels, sizeof *t->chain);
	if (!t->wanted || !t->constants || !t->time_of || !t->chain)
		return cli_say(t->args, EXIT_ENVIRONMENT, "no memory for %d candidates", t->set->n_kernels);
	for (int i = 0; i < t->set->n_kernels; i++) {
		t->wanted[i] = t->only == OP_COUNT || t->set->phases[i].launches[0].op == t->only;
		t->n_wanted += t->wanted[i];
	}
	return t->n_wanted ? 0 : cli_say(t->args, EXIT_USAGE, "--only %s: the plan has no candidate for it",
		t->args->only);
}

/* The target of the device, which must have candidates. */
static int find_candidates(Tune *t, const TargetPlan *plan)
{
	for (int i = 0; i < t->artifact->n_targets; i++)
		if (&t->artifact->targets[i] == plan)
			t->target = i;
	t->set = &t->artifact->candidates[t->target];
	return t->set->n_kernels ? 0 : cli_say(t->args, EXIT_BAD_INPUT,
		"%s has no candidates for %s: atlasc --candidates N puts them in", t->args->plan, plan->target);
}

static bool has_any(const Artifact *a)
{
	for (int i = 0; i < a->n_targets; i++)
		if (a->candidates[i].n_kernels)
			return true;
	return false;
}

/* The file ------------------------------------------------------------------------------------------------ */

static int read_old(Tune *t)
{
	const char *path = t->args->output;
	TuningFault fault;
	char *text;
	size_t n;
	int code = path ? cli_check_output(t->args, path) : 0;
	if (!path || code || (access(path, F_OK) != 0 && errno == ENOENT))
		return code;
	code = cli_read_file(t->args, path, &text, &n);
	if (code)
		return code;
	if (!tuning_read(text, n, &t->old, &fault))
		code = cli_say_at(t->args, EXIT_BAD_INPUT, path, fault.line, fault.col, fault.text);
	free(text);
	return code;
}

static int check_old(const Tune *t)
{
	const char *path = t->args->output;
	if (t->old.text && strcmp(t->old.target, t->set->target) != 0)
		return cli_say(t->args, EXIT_BAD_INPUT, "%s: times of %s, this GPU runs %s", path, t->old.target,
			t->set->target);
	if (t->old.text && strcmp(t->old.card, t->card) != 0)
		return cli_say(t->args, EXIT_BAD_INPUT, "%s: times of %s, this GPU is %s: a file holds the times of one card",
			path,
			t->old.card, t->card);
	return 0;
}

static bool is_kept(const Tune *t, const TunedTime *x)
{
	for (int i = 0; i < t->n_measured; i++)
		if (strcmp(t->made.times[i].tmpl, x->tmpl) == 0 && strcmp(t->made.times[i].constants, x->constants) == 0 &&
			strcmp(t->made.times[i].tunables, x->tunables) == 0)
			return false;
	return true;
}

/* made.times holds what was measured: add what is kept. Of kernels that differ only in how much room slots and pages
 * have, which is no part of a time, one time stays. */
static void merge(Tune *t)
{
	t->made.n_times = t->n_measured;
	for (int i = 0; i < t->old.n_times; i++)
		if (is_kept(t, &t->old.times[i]))
			t->made.times[t->made.n_times++] = t->old.times[i];
	tuning_settle(&t->made);
}

static void write_times(const void *what, FILE *out) { tuning_print(what, out); }

/* Measuring -------------------------------------------------------------------------------------------------- */

static bool make_room(Tune *t)
{
	size_t n = (size_t)t->set->n_kernels + (size_t)t->old.n_times;
	t->made = (Tuning){.target = t->set->target, .card = t->card, .driver = t->driver,
		.times = calloc(n, sizeof *t->made.times)};
	return t->made.times;
}

static bool add_time(Tune *t, int trial)
{
	const Kernel *k = &t->set->kernels[trial];
	const char *tunables = tunables_of(t, trial);
	t->constants[trial] = malloc(strlen(k->defines) + 1);
	if (!t->constants[trial])
		return false;
	tuning_constants(k->defines, tunables, t->constants[trial]);
	t->time_of[trial] = t->n_measured;
	TunedTime *time = &t->made.times[t->n_measured++];
	*time = (TunedTime){.tmpl = k->name, .constants = t->constants[trial], .tunables = tunables};
	memcpy(time->key, k->source_sha256, sizeof time->key);
	return true;
}

static int fail(const Tune *t, const AtlasError *from, AtlasStatus status, const Kernel *k)
{
	AtlasError error = *from;
	if (error.status == ATLAS_OK)
		error_set(&error, status, "no memory to measure with");
	if (k)
		cli_say(t->args, 0, "while %s [%s] was timed:", k->name, k->defines);
	return cli_fail(t->args, &error);
}

/* The candidates of one decision, one after the other and then all again: a card that warms up meanwhile is as slow for
 * each of them. The faster round counts. */
static int measure_slot(Tune *t, Tuner *tuner, int slot)
{
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < t->set->n_kernels; i++) {
			LaunchTime one;
			if (!t->wanted[i] || t->set->phases[i].launches[0].slot != slot)
				continue;
			if (cli_interrupted())
				return EXIT_INTERRUPTED;
			AtlasStatus s = tune_time(tuner, i, t->args->reps > 0 ? t->args->reps : REPS_DEFAULT, &t->chain[i], &one);
			if (s != ATLAS_OK)
				return fail(t, tune_error(tuner), s, &t->set->kernels[i]);
			if (round == 0 && !add_time(t, i))
				return cli_say(t->args, EXIT_ENVIRONMENT, "no memory for %d times", t->n_wanted);
			TunedTime *x = &t->made.times[t->time_of[i]];
			double before = round ? x->us : one.us, least = one.us < before ? one.us : before;
			double apart = (one.us < before ? before - one.us : one.us - before) / least;
			double quartiles = (one.high_us - one.low_us) / one.us;
			x->us = least;
			x->spread = quartiles > x->spread ? quartiles : x->spread;
			x->spread = apart > x->spread ? apart : x->spread;
		}
	return 0;
}

static int measure(Tune *t, Tuner *tuner)
{
	bool reports = !t->args->quiet && isatty(STDERR_FILENO);
	for (int s = 0; s < t->artifact->n_ledger[t->target]; s++) {
		int code = measure_slot(t, tuner, s);
		if (code)
			return code;
		if (reports)
			fprintf(stderr, "\r%d of %d candidates%s", t->n_measured, t->n_wanted,
				t->n_measured == t->n_wanted ? "\r\033[K" : "");
	}
	return 0;
}

/* For each decision of the ledger: what the compile chose, and the fastest. */
static void report(const Tune *t)
{
	const Artifact *a = t->artifact;
	for (int s = 0; s < a->n_ledger[t->target]; s++) {
		const Slot *slot = &a->ledger[t->target][s];
		const TunedTime *best = NULL, *chosen = NULL;
		for (int i = 0; i < t->set->n_kernels; i++) {
			const TunedTime *x = &t->made.times[t->time_of[i]];
			if (!t->wanted[i] || t->set->phases[i].launches[0].slot != s)
				continue;
			for (int c = 0; c < slot->n_candidates; c++)
				if (slot->candidates[c].verdict == CHOSEN && strcmp(slot->candidates[c].kernel, x->tmpl) == 0 &&
					strcmp(slot->candidates[c].tunables, x->tunables) == 0)
					chosen = x;
			best = !best || x->us < best->us ? x : best;
		}
		if (!best)
			continue;
		fprintf(stderr, "%12s %-15s %9.2f us  %s%s%s", LEDGER_LABEL(slot), op_table[slot->op].name,
			best->us, best->tmpl, *best->tunables ? " " : "", best->tunables);
		if (chosen && chosen != best)
			fprintf(stderr, "  (chosen: %.2f us  %s %s)", chosen->us, chosen->tmpl, chosen->tunables);
		fputc('\n', stderr);
	}
}

static int tune_on(Tune *t, Device *device)
{
	LaunchTimer *timer;
	Tuner *tuner = NULL;
	AtlasError error = {0};
	CudaView view;
	cuda_view(device, &view);
	int code = find_candidates(t, view.plan);
	t->card = device->name;
	if (!code)
		code = check_old(t);
	if (!code)
		code = choose_trials(t);
	if (code)
		return code;
	if (timer_open(device, &timer, &error) != ATLAS_OK)
		return cli_fail(t->args, &error);
	cli_name_driver(view.cu, t->driver);
	AtlasStatus s = make_room(t) ? tune_start(timer, &t->artifact->graph, t->set, t->wanted, &tuner) : ATLAS_NO_MEMORY;
	code = s == ATLAS_OK ? measure(t, tuner) : fail(t, timer_error(timer), s, NULL);
	tune_end(tuner);
	timer_close(timer);
	if (code)
		return code;
	if (!t->args->quiet)
		report(t);
	merge(t);
	return cli_write_file(t->args, t->args->output, write_times, &t->made);
}

static void forget(Tune *t)
{
	for (int i = 0; t->constants && i < t->set->n_kernels; i++)
		free(t->constants[i]);
	free(t->constants);
	free(t->time_of);
	free(t->chain);
	free(t->wanted);
	tuning_free(&t->old);
	tuning_free(&t->made);
}

int tune_artifact(const Args *args, const Artifact *artifact, const Driver *driver)
{
	const DeviceConfig config = {.artifact = artifact, .index = args->device_index, .driver = driver};
	Device *device = NULL;
	AtlasError error = {0};
	Tune t = {.args = args, .artifact = artifact};
	if (!has_any(artifact))
		return cli_say(args, EXIT_BAD_INPUT, "%s has no candidates: atlasc --candidates N puts them in", args->plan);
	int code = read_only(&t);
	if (!code)
		code = read_old(&t);
	if (!code && cuda_open(&config, &device, &error) != ATLAS_OK)
		code = cli_fail(args, &error);
	if (!code)
		code = tune_on(&t, device);
	forget(&t);
	if (device)
		device->ops->close(device);
	return code;
}

int verb_tune(const Args *args)
{
	AtlasPlan *plan = NULL;
	if (args->atlasc && !args->rekey)
		return cli_say(args, EXIT_USAGE, "--atlasc goes with --rekey");
	if (args->rekey && args->only)
		return cli_say(args, EXIT_USAGE, "--rekey measures nothing: leave --only out");
	cli_hold_signals();
	if (args->rekey)
		return tune_rekey(args);
	int code = cli_open_plan_as(args, args->plan, ATLAS_VERIFY_OFF, &plan); /* weights are not read */
	if (!code)
		code = tune_artifact(args, &plan->artifact, NULL);
	atlas_plan_close(plan);
	return code;
}
