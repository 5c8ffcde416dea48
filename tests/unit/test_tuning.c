/* test_tuning.c - files of measured times: read, written, refused, and what they do to a choice of kernels. */
#include "artifacts/tuning.h"
#include "compiler/pick/times.h"
#include "compiler/text/toml.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define KEY "00112233445566ff"
#define CARD "[card]\ntarget = \"sm_90a\"\nname = \"A card\"\ndriver = \"1, CUDA 13.0\"\n"
#define TIME(us, spread) "[" us ", " spread ", \"" KEY "\"]"

static char *print(const Tuning *t)
{
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	tuning_print(t, f);
	fclose(f);
	return text;
}

static void read_or_fail(const char *text, Tuning *t)
{
	TuningFault fault;
	if (!tuning_read(text, strlen(text), t, &fault))
		fail_msg("%d:%d: %s", fault.line, fault.col, fault.text);
}

static void written_in_order_and_read_again(void **state)
{
	Tuning t, again;
	(void)state;
	read_or_fail("# a remark\n" CARD "\n"
		"[[kernel]]\ntemplate = \"b\"\nconstants = \"K=2\"\n\"\" = " TIME("1234", "0") "  # one\n"
		"[[kernel]]\nconstants = \"K=2\"\ntemplate = \"a\"\n\"W=4 Z=1\" = [9.999, 0.5, \"fedcba9876543210\"]\n"
		"\t\"W=2 Z=1\" = [ 0.4567 , 0.01 , \"" KEY "\" ]\n"
		"[[kernel]]\ntemplate = \"a\"\nconstants = \"K=1\"\n\"W=2 Z=1\" = " TIME("45.67", "0.0104"), &t);
	char *text = print(&t);
	assert_string_equal(text, "# Times of kernels on one card, by which atlasc chooses. Written by `atlas tune PLAN -o "
		"FILE`.\n\n" CARD
		"\n[[kernel]]\ntemplate = \"a\"\nconstants = \"K=1\"\n\"W=2 Z=1\" = " TIME("45.7", "0.010")
		"\n\n[[kernel]]\ntemplate = \"a\"\nconstants = \"K=2\"\n\"W=2 Z=1\" = " TIME("0.457", "0.010")
		"\n\"W=4 Z=1\" = [10.0, 0.500, \"fedcba9876543210\"]\n"
		"\n[[kernel]]\ntemplate = \"b\"\nconstants = \"K=2\"\n\"\" = " TIME("1230", "0.000") "\n");
	read_or_fail(text, &again);
	char *twice = print(&again);
	assert_string_equal(twice, text);
	assert_float_equal(tuning_find(&again, "a", "K=2", "W=4 Z=1")->us, 10, 0);
	assert_null(tuning_find(&again, "a", "K=2", "W=4"));
	assert_null(tuning_find(&again, "a", "K=1", "W=4 Z=1"));
	assert_int_equal(tuning_find(&again, "b", "K=2", "")->key[7], 0xff);
	Diags d = {0}; /* and it is TOML */
	Arena arena = {0};
	d.arena = &arena;
	const Value *toml = toml_parse(&arena, &d, "times.toml", text, strlen(text));
	assert_non_null(toml);
	assert_int_equal(value_get(toml, "kernel")->n, 3);
	arena_release(&arena);
	free(twice);
	free(text);
	tuning_free(&again);
	tuning_free(&t);
}

#define KERNEL "[[kernel]]\ntemplate = \"a\"\nconstants = \"K=1\"\n"

/* Kernels that differ only in the room of slots and pages have one time, however many of them a plan has. */
static void one_of_equal_times_stays(void **state)
{
	TunedTime times[] = {{.tmpl = "b", .constants = "K=2", .tunables = "", .us = 1}, {.tmpl = "a", .constants = "K=1",
		.tunables = "T=1", .us = 2}, {.tmpl = "b", .constants = "K=2", .tunables = "", .us = 3}, {.tmpl = "a",
		.constants = "K=1", .tunables = "T=2", .us = 4}, {.tmpl = "b", .constants = "K=2", .tunables = "", .us = 5}};
	Tuning t = {.times = times, .n_times = 5};
	int twice;
	(void)state;
	assert_false(tuning_sort(&t, &twice));
	tuning_settle(&t);
	assert_int_equal(t.n_times, 3);
	assert_true(tuning_sort(&t, &twice));
	assert_string_equal(t.times[1].tunables, "T=2");
	assert_string_equal(t.times[2].tmpl, "b");
}

static void every_refusal(void **state)
{
	static const struct { const char *text; int line, col; const char *why; } cases[] = {
		{"", 1, 1, "[card] lacks target"},
		{"[card]\ntarget = \"sm_90a\"\n", 3, 1, "[card] lacks name"},
		{"target = \"sm_90a\"\n", 1, 10, "a key before [card]"},
		{"[[kernel]]\n", 1, 1, "[[kernel]]: expected [card] first, and once"},
		{CARD "[card]\n", 5, 1, "[card]: expected [card] first, and once"},
		{CARD "[templates]\n", 5, 1, "[templates]: times by whole files, of an older version: measure again"},
		{CARD "[cards]\n", 5, 1, "unknown table: there are [card] and [[kernel]]"},
		{CARD "[[kernel]] x\n", 5, 12, "text after the value"},
		{CARD "watts = \"700\"\n", 5, 1, "unknown key watts: [card] has target, name and driver"},
		{CARD "name = \"B\"\n", 5, 1, "name occurs twice"},
		{CARD "?\n", 5, 1, "expected a table or a key"},
		{CARD "name\n", 5, 5, "expected = after the key"},
		{"[card]\ntarget = 90\n", 2, 10, "expected a string"},
		{"[card]\ntarget = \"sm\n", 2, 10, "expected a string on one line, without escapes"},
		{"[card]\ntarget = \"s\\tm\"\n", 2, 10, "expected a string on one line, without escapes"},
		{CARD "[[kernel]]\nus = 4\n", 6, 1,
			"unknown key us: [[kernel]] has template, constants and times by tunables"},
		{CARD "[[kernel]]\ntemplate = \"a\"\n\"W=4\" = [1, 0]\n", 7, 2,
			"a time before template and constants"},
		{CARD KERNEL, 5, 1, "[[kernel]] without a time"},
		{CARD KERNEL KERNEL "\"W=4\" = " TIME("1", "0") "\n", 5, 1, "[[kernel]] without a time"},
		{CARD KERNEL "constants = \"K=2\"\n", 8, 1, "constants occurs twice"},
		{CARD KERNEL "\"W=4\" = 1\n", 8, 9, "expected [microseconds, spread, \"key\"]"},
		{CARD KERNEL "\"W=4\" = [1]\n", 8, 11, "expected [microseconds, spread, \"key\"]"},
		{CARD KERNEL "\"W=4\" = [1, 0]\n", 8, 14, "expected [microseconds, spread, \"key\"]"},
		{CARD KERNEL "\"W=4\" = [1, 0, 2]\n", 8, 16, "expected a string"},
		{CARD KERNEL "\"W=4\" = [1, 0, \"00\"]\n", 8, 17, "expected a key of 16 hexadecimal digits"},
		{CARD KERNEL "\"W=4\" = [1, 0, \"00112233445566fg\"]\n", 8, 17, "expected a key of 16 hexadecimal digits"},
		{CARD KERNEL "\"W=4\" = [1, 0, \"" KEY "0\"]\n", 8, 17, "expected a key of 16 hexadecimal digits"},
		{CARD KERNEL "\"W=4\" = [1, 0, \"" KEY "\", 3]\n", 8, 34, "expected [microseconds, spread, \"key\"]"},
		{CARD KERNEL "\"W=4\" = [-1, 0]\n", 8, 10, "expected a number from 0 on"},
		{CARD KERNEL "\"W=4\" = [1e999, 0]\n", 8, 10, "expected a number from 0 on"},
		{CARD KERNEL "\"W=4\" = " TIME("0", "0") "\n", 8, 35, "a kernel takes more than 0 us"},
		{CARD KERNEL "\"W=4\" = " TIME("1", "0") " 2\n", 8, 36, "text after the value"},
		{CARD KERNEL "\"W=4\" = " TIME("1", "0") "\n\"W=4\" = " TIME("2", "0") "\n", 10, 1, "a [W=4] occurs twice"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		Tuning t;
		TuningFault fault;
		assert_false(tuning_read(cases[i].text, strlen(cases[i].text), &t, &fault));
		assert_null(t.text);
		assert_string_equal(fault.text, cases[i].why);
		assert_int_equal(fault.line, cases[i].line);
		if (fault.col != cases[i].col)
			fail_msg("%s: column %d", fault.text, fault.col);
	}
	Tuning t;
	TuningFault fault;
	assert_false(tuning_read("[card]\0", 7, &t, &fault));
	assert_string_equal(fault.text, "a NUL character");
}

/* Whatever is cut off, changed or put in: an answer, and nothing read outside. */
static void any_bytes(void **state)
{
	static const char text[] = CARD KERNEL "\"W=4\" = " TIME("1.5", "0.25") "\n";
	(void)state;
	for (size_t n = 0; n <= sizeof text - 1; n++)
		for (int change = -1; change < 4; change++) {
			char *copy = malloc(n + 1);
			Tuning t;
			TuningFault fault;
			memcpy(copy, text, n);
			if (change >= 0 && n)
				copy[n - 1] = "\"[=\n"[change];
			if (tuning_read(copy, n, &t, &fault))
				tuning_free(&t);
			free(copy);
		}
}

static void constants_are_what_is_left(void **state)
{
	char out[64];
	(void)state;
	tuning_constants("A=1 BN=64 K=2 WARPS=4", "WARPS=4 BN=64", out);
	assert_string_equal(out, "A=1 K=2");
	tuning_constants("A=1 K=2", "", out);
	assert_string_equal(out, "A=1 K=2");
	tuning_constants("A=1", "A=1", out);
	assert_string_equal(out, "");
	tuning_constants("HDIM=64 MAX_PAGES=4 PAGE=64 PAGES=16 SEGS=4 SLOTS=4 SLOTS_X=1 STOPS=1", "", out);
	assert_string_equal(out, "HDIM=64 PAGE=64 SLOTS_X=1");
	tuning_constants("CHUNKED=0 HDIM=64 NEIGHBOURS=0 WINDOW=0", "", out); /* newer attributes that are not there */
	assert_string_equal(out, "HDIM=64 WINDOW=0");
	tuning_constants("CHUNKED=1 NEIGHBOURS=1", "", out);
	assert_string_equal(out, "CHUNKED=1 NEIGHBOURS=1");
}

/* One card's times choose: the one that is asked for, the typical one, or else the first that there is. */
static void a_card_is_chosen(void **state)
{
	static const TemplateSource files[] = {{"sm_80.a100", ""}, {"sm_90.x", ""}, {"sm_90a.gh200", ""},
		{"sm_90a.h100", ""}, {"sm_90a.h200", ""}};
	const Target *hopper = target_by_name("sm_90a"), *ampere = target_by_name("sm_80");
	(void)state;
	assert_string_equal(tuning_file(files, 5, hopper, NULL)->name, "sm_90a.h100");
	assert_string_equal(tuning_file(files, 5, hopper, "h200")->name, "sm_90a.h200");
	assert_string_equal(tuning_file(files, 5, hopper, "a100,h200")->name, "sm_90a.h200");
	assert_string_equal(tuning_file(files, 5, ampere, "a100,h200")->name, "sm_80.a100");
	assert_string_equal(tuning_file(files, 5, hopper, "h20,h2000,100")->name, "sm_90a.h100");
	assert_string_equal(tuning_file(files, 3, hopper, NULL)->name, "sm_90a.gh200");
	assert_null(tuning_file(files, 2, hopper, NULL));
	assert_null(tuning_file(files, 5, target_by_name("sm_89"), "h100"));
}

/* Of the launch values count, not words; of the rest of a contract nothing. */
static void keys_are_of_values(void **state)
{
	static const char defines[] = "BIAS=0 BT=bf16 EPS=0x1.4f8b58p-17f K=576 N=960 NORM_ONE=0 NT=bf16 PER_WARP=1 ROWS=1 "
		"WARPS=4 WT=f16";
	const Target *hopper = target_by_name("sm_90a"), *ampere = target_by_name("sm_80");
	const KernelTemplate *of = NULL;
	uint8_t first[32], key[32];
	(void)state;
	for (int i = 0; i < n_kernel_table; i++)
		if (strcmp(kernel_table[i].name, "gemv_norm") == 0)
			of = &kernel_table[i];
	time_key(of, hopper, defines, first);
#define ASSERT_KEY(is_same, change) \
	do { \
		KernelTemplate t = *of; \
		change; \
		time_key(&t, hopper, defines, key); \
		assert_int_equal(memcmp(key, first, sizeof key) == 0, is_same); \
	} while (0)
	ASSERT_KEY(true, t.grid[0] = "N / 4");
	ASSERT_KEY(true, t.block = "WARPS * 2 * WT_BITS");
	ASSERT_KEY(true, t.smem = "ROWS * K * WT_BYTES");
	ASSERT_KEY(true, (t.reads = "1", t.writes = "2", t.flops = "3", t.pieces = "4", t.rate = "5"));
	ASSERT_KEY(true, t.n_requires = 0);
	ASSERT_KEY(true, (t.numerics = "exact", t.line = 1));
	ASSERT_KEY(true, t.source_sha256[0] ^= 1);
	ASSERT_KEY(false, t.code_sha256[31] ^= 1);
	ASSERT_KEY(false, t.grid[0] = "N / 4 + 1");
	ASSERT_KEY(false, t.grid[1] = "2");
	ASSERT_KEY(false, t.block = "64 * WARPS");
	ASSERT_KEY(false, t.smem = "SMEM_MAX");
	ASSERT_KEY(false, t.grid[1] = "SLOTS"); /* equal with one slot, another grid with many */
	ASSERT_KEY(false, t.grid[0] = "NOTHING");
	ASSERT_KEY(false, (t.maps[0] = (ContractMap){.name = "w_map", .box = {"64", "64"}}, t.n_maps = 1));
#undef ASSERT_KEY
	/* neither does capacity, nor where the constants stand */
	time_key(of, hopper, "WT=f16 WARPS=4 SLOTS=7 ROWS=1 PER_WARP=1 NT=bf16 NORM_ONE=0 N=960 K=576 BT=bf16 BIAS=0", key);
	assert_memory_equal(key, first, sizeof key);
	time_key(of, hopper, "WT=f32 WARPS=4 ROWS=1 PER_WARP=1 NT=bf16 NORM_ONE=0 N=964 K=576 BT=bf16 BIAS=0", key);
	assert_memory_not_equal(key, first, sizeof key);
	time_key(of, ampere, defines, key); /* no formula asks for the target */
	assert_memory_equal(key, first, sizeof key);
}

/* Choosing ------------------------------------------------------------------------------------------------ */

static const Slot *pick(Compile *c, const char *toml, const KernelRule *rule, int slot)
{
	synthetic_model(c, "llama");
	if (toml) {
		char path[] = "/tmp/test_tuning.XXXXXX";
		int fd = mkstemp(path);
		assert_int_equal(write(fd, toml, strlen(toml)), strlen(toml));
		close(fd);
		c->cmd.tuning = arena_strdup(&c->arena, path);
		read_tuning(c, NULL, (Loc){0});
		unlink(path);
	}
	if (rule)
		*vec_push(&c->arena, &c->model.options.rules) = *rule;
	if (c->diags.n_errors)
		return NULL;
	build_graph(c);
	fuse(c);
	pick_kernels(c);
	if (c->diags.n_errors)
		fail_msg("%s", c->diags.list[c->diags.n - 1].text);
	return &c->work.at[0].ledger.at[slot];
}

static const Candidate *with_verdict(const Slot *s, Verdict verdict, const char *tmpl)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == verdict && (!tmpl || strcmp(s->candidates[i].kernel, tmpl) == 0))
			return &s->candidates[i];
	return NULL;
}

/* A compile with all candidates, to take constants from. */
static void compile_all(Compile *c)
{
	synthetic_model(c, "llama");
	c->cmd.candidates = 100;
	build_graph(c);
	fuse(c);
	pick_kernels(c);
	assert_int_equal(c->diags.n_errors, 0);
}

/* The first decision in which so many templates are admissible, and where it stands. */
static int slot_with(const Compile *c, int n_templates)
{
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		int n = 0, n_admissible = 0;
		for (int k = 0; k < s->n_candidates; k++) {
			bool is_new = k == 0 || strcmp(s->candidates[k].kernel, s->candidates[k - 1].kernel) != 0, any = false;
			for (int m = k; is_new && m < s->n_candidates; m++)
				any |= s->candidates[m].verdict <= SLOWER &&
					strcmp(s->candidates[m].kernel, s->candidates[k].kernel) == 0;
			n += any;
			n_admissible += s->candidates[k].verdict <= SLOWER;
		}
		if (n == n_templates && n_admissible > 2)
			return i;
	}
	fail_msg("no decision between %d templates", n_templates);
	return -1;
}

/* "WARPS=8 SPLITS=2" as data. */
static int values_of(Arena *a, const Candidate *c, RuleTunable values[MAX_TUNABLES])
{
	int n = 0;
	for (const char *w = c->tunables; *w; w += strcspn(w, " "), w += strspn(w, " "), n++)
		values[n] = (RuleTunable){arena_strndup(a, w, strcspn(w, "=")), atoi(strchr(w, '=') + 1)};
	return n;
}

static const Candidate *chosen_of(const Slot *s) { return with_verdict(s, CHOSEN, NULL); }

/* A file with one more time: that of a candidate, of its template as it is or of another version. */
static const char *file_with(Arena *a, const char *file, const Compile *all, int slot, const Candidate *k, double us,
	bool is_current)
{
	const TargetWork *w = &all->work.at[0];
	for (int i = 0; i < w->trials.n; i++) {
		const Trial *t = &w->trials.at[i];
		const KernelTemplate *tmpl = &kernel_table[t->pick.template_index];
		char *constants = arena_alloc(a, strlen(t->pick.defines) + 1);
		char *without = arena_alloc(a, strlen(t->pick.defines) + 1);
		tuning_constants(t->pick.defines, k->tunables, constants);
		tuning_constants(t->pick.defines, "", without);
		size_t tunables = strlen(k->tunables) + (*k->tunables != 0);
		if (t->pick.slot != slot || strcmp(tmpl->name, k->kernel) != 0 ||
			strlen(constants) + tunables != strlen(without))
			continue;
		const char *digits = "";
		uint8_t key[32];
		time_key(tmpl, w->target, t->pick.defines, key);
		for (int b = 0; b < TUNING_KEY_BYTES; b++)
			digits = arena_printf(a, "%s%02x", digits, (unsigned)(key[b] ^ (is_current ? 0 : 1)));
		return arena_printf(a, "%s[[kernel]]\ntemplate = \"%s\"\nconstants = \"%s\"\n\"%s\" = [%g, 0.01, \"%s\"]\n",
			file ? file : CARD, k->kernel, constants, k->tunables, us, digits);
	}
	fail_msg("no trial of %s %s", k->kernel, k->tunables);
	return NULL;
}

static void assert_chosen(const Slot *s, const Candidate *k, const char *from)
{
	const Candidate *chosen = chosen_of(s);
	assert_string_equal(chosen->kernel, k->kernel);
	assert_string_equal(chosen->tunables, k->tunables);
	assert_string_equal(chosen->cost_from, from);
}

static void measured_goes_before_modelled(void **state)
{
	Compile all, tuned;
	Arena a = {0};
	(void)state;
	compile_all(&all);
	int at = slot_with(&all, 1);
	const Slot *s = &all.work.at[0].ledger.at[at];
	const Candidate *model = chosen_of(s), *other = with_verdict(s, SLOWER, NULL);
	assert_string_equal(model->cost_from, "model");

	/* one that was measured wins, however slow it was */
	const char *file = file_with(&a, NULL, &all, at, other, 1e6, true);
	assert_chosen(pick(&tuned, file, NULL, at), other, "measured");
	assert_float_equal(chosen_of(&tuned.work.at[0].ledger.at[at])->cost_us, 1e6, 0);
	assert_int_equal(tuned.diags.n, 0);
	synthetic_free(&tuned);

	/* of two the faster one */
	file = file_with(&a, file, &all, at, model, 2e6, true);
	assert_chosen(pick(&tuned, file, NULL, at), other, "measured");
	synthetic_free(&tuned);

	/* a time of another source does not count, and that is told once */
	file = file_with(&a, NULL, &all, at, other, 0.001, false);
	assert_chosen(pick(&tuned, file, NULL, at), model, "model");
	assert_int_equal(tuned.diags.n, 1);
	assert_true(tuned.diags.list[0].is_note);
	assert_string_equal(code_name(tuned.diags.list[0].code), "A0704");
	assert_string_equal(tuned.diags.list[0].text, arena_printf(&a, "times of %s were measured with another version "
		"of it and are not used", other->kernel));
	synthetic_free(&tuned);

	/* a ban goes before */
	RuleTunable values[MAX_TUNABLES];
	KernelRule ban = {.template_name = other->kernel, .tunables = values, .layer_first = -1, .layer_last = 2,
		.at = {"MODEL.toml", 3, 1}, .n_tunables = values_of(&a, other, values)};
	file = file_with(&a, NULL, &all, at, other, 0.001, true);
	const Slot *banned = pick(&tuned, file, &ban, at);
	assert_non_null(with_verdict(banned, BANNED, other->kernel));
	assert_chosen(banned, model, "model");
	synthetic_free(&tuned);
	synthetic_free(&all);
	arena_release(&a);
}

/* Two admissible candidates of a decision with one template, of which the later one is cheaper by the model. */
static bool pair_of(const Slot *s, const Candidate **dearer, const Candidate **cheaper)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict <= SLOWER && strcmp(s->candidates[i].kernel, chosen_of(s)->kernel) != 0)
			return false;
	for (int i = s->n_candidates - 1; i > 0; i--)
		for (int k = i - 1; k >= 0; k--) {
			const Candidate *a = &s->candidates[k], *b = &s->candidates[i];
			*dearer = a, *cheaper = b;
			if (a->verdict <= SLOWER && b->verdict == SLOWER && a->cost_us > b->cost_us)
				return true;
		}
	return false;
}

static void the_model_decides_between_equal_times(void **state)
{
	Compile all, tuned;
	Arena a = {0};
	int n = 0;
	(void)state;
	compile_all(&all);
	for (int at = 0; at < all.work.at[0].ledger.n && n < 3; at++) {
		const Candidate *dearer, *cheaper;
		if (!pair_of(&all.work.at[0].ledger.at[at], &dearer, &cheaper))
			continue;
		const char *file = file_with(&a, NULL, &all, at, dearer, 7, true);
		file = file_with(&a, file, &all, at, cheaper, 7, true);
		assert_chosen(pick(&tuned, file, NULL, at), cheaper, "measured");
		synthetic_free(&tuned);
		n++;
	}
	assert_true(n > 0);
	synthetic_free(&all);
	arena_release(&a);
}

/* A template without a time might be the fastest: then the model decides, as if there were no times. */
static void times_of_some_templates_decide_nothing(void **state)
{
	Compile all, tuned;
	Arena a = {0};
	(void)state;
	compile_all(&all);
	int at = slot_with(&all, 2);
	const Slot *s = &all.work.at[0].ledger.at[at];
	const Candidate *model = chosen_of(s), *other = NULL;
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == SLOWER && strcmp(s->candidates[i].kernel, model->kernel) != 0)
			other = &s->candidates[i];
	const char *file = file_with(&a, NULL, &all, at, other, 0.001, true);
	assert_chosen(pick(&tuned, file, NULL, at), model, "model");
	assert_null(strstr(chosen_of(&tuned.work.at[0].ledger.at[at])->cost_from, "measured"));
	synthetic_free(&tuned);
	file = file_with(&a, file, &all, at, model, 0.002, true); /* now each has one */
	assert_chosen(pick(&tuned, file, NULL, at), other, "measured");
	synthetic_free(&tuned);
	synthetic_free(&all);
	arena_release(&a);
}

static void files_are_for_a_target(void **state)
{
	Compile c;
	(void)state;
	assert_null(pick(&c, "[card]\ntarget = \"sm_80\"\nname = \"A\"\ndriver = \"1\"\n", NULL, 0));
	assert_string_equal(code_name(c.diags.list[0].code), "A0703");
	assert_string_equal(c.diags.list[0].text, "times of sm_80, which is not a target of this compile");
	synthetic_free(&c);
	assert_null(pick(&c, "[card]\ntarget = 90\n", NULL, 0));
	assert_string_equal(code_name(c.diags.list[0].code), "A0703");
	assert_int_equal(c.diags.list[0].at.line, 2);
	assert_int_equal(c.diags.list[0].at.col, 10);
	synthetic_free(&c);
	for (int i = 0; i < n_tuning_toml; i++) { /* those that are built in */
		Tuning t;
		read_or_fail(tuning_toml[i].text, &t);
		const size_t n = strlen(t.target); /* TARGET.CARD, the word a part of the card's name */
		assert_memory_equal(tuning_toml[i].name, t.target, n);
		assert_int_equal(tuning_toml[i].name[n], '.');
		assert_non_null(strcasestr(t.card, tuning_toml[i].name + n + 1));
		char *text = print(&t);
		assert_string_equal(text, tuning_toml[i].text);
		free(text);
		tuning_free(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_in_order_and_read_again),
		cmocka_unit_test(one_of_equal_times_stays),
		cmocka_unit_test(every_refusal),
		cmocka_unit_test(any_bytes),
		cmocka_unit_test(constants_are_what_is_left),
		cmocka_unit_test(a_card_is_chosen),
		cmocka_unit_test(keys_are_of_values),
		cmocka_unit_test(measured_goes_before_modelled),
		cmocka_unit_test(the_model_decides_between_equal_times),
		cmocka_unit_test(times_of_some_templates_decide_nothing),
		cmocka_unit_test(files_are_for_a_target),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
