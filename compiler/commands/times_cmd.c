/* times_cmd.c - `atlasc times`: which kernels have measured times, of each card.
 *
 * A time counts while its kernel is what it was (time_key.c) and a compile looks for its constants. The text names, for
 * each file, the templates whose times do not count any more and those that were never timed; --json has every time as
 * well. --machine-code compiles each kernel and adds the hash of what NVRTC makes of it: `atlas tune --rekey` compares
 * those of two compilers, and keeps a time whose kernel is written otherwise and runs as before.
 */
#include "compiler/commands/times_cmd.h"
#include "artifacts/hash.h"
#include "compiler/kernels/kernels.h"
#include "compiler/pick/times.h"
#include "compiler/text/input.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, ROOM = 64 /* of constants that a time is not of */, WHY_BYTES = 200 };

typedef struct State { /* of one time */
	const KernelTemplate *tmpl; /* NULL = there is none of that name, or it does not serve the target */
	uint8_t key[32];            /* of the kernel as it is now */
	bool is_current;
	const char *tunables;       /* of the kernel as it is now */
	KernelSource source;
	const char *launch;
	const char *machine_code;   /* SHA-256, hexadecimal; NULL = it does not compile */
} State;

typedef struct Counts { int times, current; } Counts; /* of one template */

typedef struct Listing { /* one file */
	const TargetTuning *file;
	const Target *target;
	State *states;  /* [file->times.n_times] */
	Counts *counts; /* [n_kernel_table] */
	int n_current;
	const char *gone; /* names of templates that are not there, with blanks before */
	int n_gone;
} Listing;

static const char *hex(Arena *a, const uint8_t *bytes, int n)
{
	char *text = arena_alloc(a, 2 * (size_t)n + 1);
	for (int i = 0; i < n; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
	return text;
}

static const KernelTemplate *template_named(const char *name, const Target *target)
{
	for (int i = 0; i < n_kernel_table; i++)
		if (strcmp(kernel_table[i].name, name) == 0)
			return template_serves(&kernel_table[i], target) ? &kernel_table[i] : NULL;
	return NULL;
}

/* "NAME=VALUE ..." in words that blanks part; NULL = it has none of that name. */
static const char *find_word(const char *words, const char *name)
{
	const size_t n = strlen(name);
	for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
		if (strncmp(at, name, n) == 0 && at[n] == '=')
			return at;
	return NULL;
}

/* A time's tunables as the template has them today: one that it did not have then has the first of its values. */
static const char *tunables_today(Arena *a, const KernelTemplate *t, const TunedTime *time)
{
	const char *text = "";
	for (int i = 0; i < t->n_tunables; i++) {
		const ContractTunable *tune = &t->tunables[i];
		const char *at = find_word(time->tunables, tune->name);
		if (at)
			text = arena_printf(a, "%s%s%.*s", text, *text ? " " : "", (int)strcspn(at, " "), at);
		else
			text = arena_printf(a, "%s%s%s=%d", text, *text ? " " : "", tune->name, tune->values[0]);
	}
	return text;
}

/* All constants of the kernel: those of room, which a time has none of, get one value, and attributes newer than the
 * time (tuning_constants) are 0. */
static const char *defines_of(Arena *a, const KernelTemplate *t, const TunedTime *time, const char *tunables)
{
	const char *text = arena_printf(a, "%s%s%s", time->constants, *time->constants && *tunables ? " " : "", tunables);
	for (int i = 0; i < t->n_dims; i++)
		if (tuning_is_room(t->dims[i]))
			text = arena_printf(a, "%s%s%s=%d", text, *text ? " " : "", t->dims[i], ROOM);
	for (int i = 0; i < t->n_attrs; i++)
		if (!find_word(time->constants, t->attrs[i]))
			text = arena_printf(a, "%s%s%s=0", text, *text ? " " : "", t->attrs[i]);
	return text;
}

/* Does a compile look for the time by the constants that it has? One that lacks an attribute is never found. */
static bool is_found(Arena *a, const KernelSource *source, const char *tunables, const TunedTime *time)
{
	char *constants = arena_alloc(a, strlen(source->defines) + 1);
	tuning_constants(source->defines, tunables, constants);
	return strcmp(constants, time->constants) == 0;
}

static Listing list_times(Compile *c, const TargetTuning *file)
{
	const Tuning *t = &file->times;
	Listing l = {.file = file, .target = target_by_name(t->target), .states = ARENA_ARRAY(&c->arena, State, t->n_times),
		.counts = ARENA_ARRAY(&c->arena, Counts, n_kernel_table), .gone = ""};
	for (int i = 0; l.target && i < t->n_times; i++) {
		const TunedTime *time = &t->times[i];
		State *s = &l.states[i];
		s->tmpl = template_named(time->tmpl, l.target);
		if (!s->tmpl) {
			if (i == 0 || strcmp(time[-1].tmpl, time->tmpl) != 0) {
				l.gone = arena_printf(&c->arena, "%s %s", l.gone, time->tmpl);
				l.n_gone++;
			}
			continue;
		}
		s->tunables = tunables_today(&c->arena, s->tmpl, time);
		s->source = (KernelSource){s->tmpl, defines_of(&c->arena, s->tmpl, time, s->tunables), l.target->name};
		char *launch = launch_values(s->tmpl, l.target, s->source.defines);
		s->launch = arena_strdup(&c->arena, launch);
		free(launch);
		time_key(s->tmpl, l.target, s->source.defines, s->key);
		s->is_current = memcmp(s->key, time->key, sizeof time->key) == 0 &&
			strcmp(s->tunables, time->tunables) == 0 && is_found(&c->arena, &s->source, s->tunables, time);
		Counts *n = &l.counts[s->tmpl - kernel_table];
		n->times++;
		n->current += s->is_current;
		l.n_current += s->is_current;
	}
	return l;
}

/* Of a kernel's instructions, and of what decides how many of them a multiprocessor runs at once; NULL: there are none.
 * Other data of the cubin, as constants that were inlined, takes no time. */
static const char *hash_code(Arena *a, const KernelSource *source, const Cubin *cubin)
{
	CubinInfo info;
	char why[WHY_BYTES], *text = NULL;
	uint8_t sha256[32];
	if (!cubin->bytes || !cubin_read(cubin->bytes, cubin->n, source->tmpl->name, &info, why, sizeof why))
		return NULL;
	sha256_of(info.code, info.code_bytes, sha256);
	text = arena_printf(a, "%s %d %d %d", hex(a, sha256, sizeof sha256), info.registers, info.local_bytes,
		info.static_smem_bytes);
	sha256_of(text, strlen(text), sha256);
	return hex(a, sha256, sizeof sha256);
}

/* Compiles the kernels, in processes. */
static void make_code(Compile *c, Listing *l)
{
	const int n = l->file->times.n_times;
	CompileJob *jobs = ARENA_ARRAY(&c->arena, CompileJob, n + 1);
	int *of = ARENA_ARRAY(&c->arena, int, n + 1), n_jobs = 0;
	for (int i = 0; i < n; i++)
		if (l->states[i].tmpl) {
			of[n_jobs] = i;
			jobs[n_jobs++] = (CompileJob){.source = &l->states[i].source};
		}
	nvrtc_pool_run(jobs, n_jobs, c->cmd.jobs, NVRTC_SECONDS, NULL, NULL);
	for (int i = 0; i < n_jobs; i++) {
		l->states[of[i]].machine_code = hash_code(&c->arena, jobs[i].source, &jobs[i].cubin);
		free(jobs[i].cubin.bytes);
		free(jobs[i].log);
		free(jobs[i].ended);
	}
}

/* Text -------------------------------------------------------------------------------------------- */

static void print_line(int n, const char *what, const char *names)
{
	printf("  %d %s%s%s\n", n, what, n ? ":" : "", names);
}

static void print_listing(Compile *c, const Listing *l)
{
	const Tuning *t = &l->file->times;
	const char *changed = "", *never = "";
	int n_serving = 0, n_changed = 0, n_never = 0;
	for (int i = 0; i < n_kernel_table; i++) {
		const Counts *n = &l->counts[i];
		if (!template_serves(&kernel_table[i], l->target))
			continue;
		n_serving++;
		if (n->current < n->times) {
			n_changed++;
			changed = arena_printf(&c->arena, "%s %s", changed, kernel_table[i].name);
			if (n->current)
				changed = arena_printf(&c->arena, "%s (%d of %d times)", changed, n->times - n->current, n->times);
		} else if (!n->times) {
			n_never++;
			never = arena_printf(&c->arena, "%s %s", never, kernel_table[i].name);
		}
	}
	printf("%s (%s): %d templates serve %s; %d of %d times are of them as they are\n", l->file->file, t->card,
		n_serving, t->target, l->n_current, t->n_times);
	print_line(n_changed, "changed after they were timed", changed);
	print_line(n_never, "never timed on this card", never);
	print_line(l->n_gone, "timed, but no longer there for this target", l->gone);
}

static bool has_times(const Compile *c, const Target *target)
{
	for (int i = 0; i < c->tunings.n; i++)
		if (strcmp(c->tunings.at[i].times.target, target->name) == 0)
			return true;
	return false;
}

/* JSON -------------------------------------------------------------------------------------------- */

static json_t *json_times(Compile *c, const Listing *l)
{
	json_t *list = json_array();
	for (int i = 0; i < l->file->times.n_times; i++) {
		const TunedTime *t = &l->file->times.times[i];
		const State *s = &l->states[i];
		json_t *o = json_pack("{s:s, s:s, s:s, s:f, s:b, s:s?, s:s?, s:s?}", "template", t->tmpl, "constants",
			t->constants, "tunables", t->tunables, "us", t->us, "is_current", s->is_current, "key",
			s->tmpl ? hex(&c->scratch, s->key, TUNING_KEY_BYTES) : NULL, "launch", s->launch, "tunables_today",
			s->tunables);
		if (c->cmd.machine_code)
			json_object_set_new(o, "machine_code", s->machine_code ? json_string(s->machine_code) : json_null());
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *json_listing(Compile *c, const Listing *l)
{
	json_t *templates = json_array();
	for (int i = 0; i < n_kernel_table; i++)
		if (template_serves(&kernel_table[i], l->target))
			json_array_append_new(templates, json_pack("{s:s, s:i, s:i}", "name", kernel_table[i].name, "times",
				l->counts[i].times, "current", l->counts[i].current));
	const Tuning *t = &l->file->times;
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "file", l->file->file, "target", t->target, "card", t->card,
		"driver", t->driver, "templates", templates, "times", json_times(c, l));
}

static bool print_json(Compile *c, const Listing *listings, int n)
{
	json_t *files = json_array(), *untimed = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(files, json_listing(c, &listings[i]));
	for (int i = 0; i < n_target_table; i++)
		if (!has_times(c, &target_table[i]))
			json_array_append_new(untimed, json_string(target_table[i].name));
	json_t *all = json_pack("{s:i, s:o, s:o}", "schema_version", SCHEMA_VERSION, "files", files, "untimed_targets",
		untimed);
	bool ok = json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
	json_decref(all);
	return ok;
}

/* ------------------------------------------------------------------------------------------------- */

static bool read_all(Compile *c)
{
	const char *file = c->cmd.model_dir;
	char *text;
	size_t n;
	if (file)
		return input_read(&c->arena, &c->diags, file, false, TUNING_MAX_BYTES, &text, &n) &&
			read_times(c, file, text, n);
	for (int i = 0; i < n_tuning_toml; i++)
		if (!read_times(c, arena_printf(&c->arena, "kernels/tuning/%s.toml", tuning_toml[i].name), tuning_toml[i].text,
			strlen(tuning_toml[i].text)))
			return false;
	return true;
}

int times_command(Compile *c)
{
	if (!read_all(c))
		return code_exit(c->diags.list[0].code);
	Listing *listings = ARENA_ARRAY(&c->arena, Listing, c->tunings.n + 1);
	for (int i = 0; i < c->tunings.n; i++) {
		listings[i] = list_times(c, &c->tunings.at[i]);
		if (!listings[i].target) {
			fail_at(&c->diags, A0703, (Loc){c->tunings.at[i].file, 0, 0}, "times of %s, which is not a target",
				c->tunings.at[i].times.target);
			return EXIT_BAD_INPUT;
		}
		if (c->cmd.machine_code)
			make_code(c, &listings[i]);
	}
	bool ok = true;
	if (c->cmd.json) {
		ok = print_json(c, listings, c->tunings.n);
	} else {
		for (int i = 0; i < c->tunings.n; i++)
			print_listing(c, &listings[i]);
		for (int i = 0; i < n_target_table && !c->cmd.model_dir; i++)
			if (!has_times(c, &target_table[i]))
				printf("%s: no card was timed\n", target_table[i].name);
	}
	if (ok && fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_OK;
	fail_at(&c->diags, A0103, (Loc){0}, "stdout cannot be written");
	return EXIT_ENVIRONMENT;
}
