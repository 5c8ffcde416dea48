/* test_tuning.c - files of measured times: read, written, refused, and what they do to a choice of kernels. */
#include "artifacts/tuning.h"
#include "compiler/toml.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SHA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define CARD "[card]\ntarget = \"sm_90a\"\nname = \"A card\"\ndriver = \"1, CUDA 13.0\"\n"
#define TEMPLATES "[templates]\na = \"" SHA "\"\nb = \"" SHA "\"\n"

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
	read_or_fail("# a remark\n" CARD "\n[templates]\nb = \"" SHA "\"  # one\na = \"" SHA "\"\n"
		"[[kernel]]\ntemplate = \"b\"\nconstants = \"K=2\"\n\"\" = [1234, 0]\n"
		"[[kernel]]\nconstants = \"K=2\"\ntemplate = \"a\"\n\"W=4 Z=1\" = [9.999, 0.5]\n"
		"\t\"W=2 Z=1\" = [ 0.4567 , 0.01 ]\n"
		"[[kernel]]\ntemplate = \"a\"\nconstants = \"K=1\"\n\"W=2 Z=1\" = [45.67, 0.0104]", &t);
	char *text = print(&t);
	assert_string_equal(text, "# Times of kernels on one card, by which atlasc chooses. Written by `atlas tune PLAN -o "
		"FILE`.\n\n" CARD "\n" TEMPLATES
		"\n[[kernel]]\ntemplate = \"a\"\nconstants = \"K=1\"\n\"W=2 Z=1\" = [45.7, 0.010]\n"
		"\n[[kernel]]\ntemplate = \"a\"\nconstants = \"K=2\"\n\"W=2 Z=1\" = [0.457, 0.010]\n"
		"\"W=4 Z=1\" = [10.0, 0.500]\n"
		"\n[[kernel]]\ntemplate = \"b\"\nconstants = \"K=2\"\n\"\" = [1230, 0.000]\n");
	read_or_fail(text, &again);
	char *twice = print(&again);
	assert_string_equal(twice, text);
	assert_float_equal(tuning_find(&again, "a", "K=2", "W=4 Z=1")->us, 10, 0);
	assert_null(tuning_find(&again, "a", "K=2", "W=4"));
	assert_null(tuning_find(&again, "a", "K=1", "W=4 Z=1"));
	assert_int_equal(tuning_template(&again, "b")->sha256[31], 0xff);
	assert_null(tuning_template(&again, "c"));
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

static void every_refusal(void **state)
{
	static const struct { const char *text; int line, col; const char *why; } cases[] = {
		{"", 1, 1, "[card] lacks target"},
		{"[card]\ntarget = \"sm_90a\"\n", 3, 1, "[card] lacks name"},
		{"target = \"sm_90a\"\n", 1, 10, "a key before [card]"},
		{"[templates]\n", 1, 1, "[templates]: [card] is first, it and [templates] stand once"},
		{CARD "[card]\n", 5, 1, "[card]: [card] is first, it and [templates] stand once"},
		{CARD TEMPLATES "[templates]\n", 8, 1, "[templates]: [card] is first, it and [templates] stand once"},
		{CARD "[cards]\n", 5, 1, "unknown table: there are [card], [templates] and [[kernel]]"},
		{CARD "[[kernel]] x\n", 5, 12, "text after the value"},
		{CARD "watts = \"700\"\n", 5, 1, "unknown key watts: [card] has target, name and driver"},
		{CARD "name = \"B\"\n", 5, 1, "name stands twice"},
		{CARD "?\n", 5, 1, "expected a table or a key"},
		{CARD "name\n", 5, 5, "expected = after the key"},
		{"[card]\ntarget = 90\n", 2, 10, "expected a string"},
		{"[card]\ntarget = \"sm\n", 2, 10, "expected a string on one line, without escapes"},
		{"[card]\ntarget = \"s\\tm\"\n", 2, 10, "expected a string on one line, without escapes"},
		{CARD "[templates]\na = \"00\"\n", 6, 6, "expected a SHA-256 in hexadecimal digits"},
		{CARD "[templates]\na = \"" SHA "0\"\n", 6, 6, "expected a SHA-256 in hexadecimal digits"},
		{CARD "[templates]\na = \"" SHA "\"\na = \"" SHA "\"\n", 8, 1, "template a stands twice"},
		{CARD TEMPLATES "[[kernel]]\nus = 4\n", 9, 1,
			"unknown key us: [[kernel]] has template, constants and times by tunables"},
		{CARD TEMPLATES "[[kernel]]\ntemplate = \"a\"\n\"W=4\" = [1, 0]\n", 10, 2,
			"a time before template and constants"},
		{CARD TEMPLATES KERNEL, 8, 1, "[[kernel]] without a time"},
		{CARD TEMPLATES KERNEL KERNEL "\"W=4\" = [1, 0]\n", 8, 1, "[[kernel]] without a time"},
		{CARD TEMPLATES KERNEL "constants = \"K=2\"\n", 11, 1, "constants stands twice"},
		{CARD TEMPLATES KERNEL "\"W=4\" = 1\n", 11, 9, "expected [microseconds, spread]"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [1]\n", 11, 11, "expected [microseconds, spread]"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [1, 0, 2]\n", 11, 14, "expected [microseconds, spread]"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [-1, 0]\n", 11, 10, "expected a number from 0 on"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [1e999, 0]\n", 11, 10, "expected a number from 0 on"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [0, 0]\n", 11, 15, "a kernel takes more than 0 us"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [1, 0] 2\n", 11, 16, "text after the value"},
		{CARD TEMPLATES KERNEL "\"W=4\" = [1, 0]\n\"W=4\" = [2, 0]\n", 13, 1, "a [W=4] stands twice"},
		{CARD "[templates]\nb = \"" SHA "\"\n" KERNEL "\"W=4\" = [1, 0]\n", 11, 1, "template a is not in [templates]"},
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
	static const char text[] = CARD TEMPLATES KERNEL "\"W=4\" = [1.5, 0.25]\n";
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
}

/* Choosing ------------------------------------------------------------------------------------------------ */

static const Slot *pick(Compile *c, const char *toml, const KernelRule *rule)
{
	synthetic_model(c, "llama");
	if (toml) {
		char path[] = "/tmp/test_tuning.XXXXXX";
		int fd = mkstemp(path);
		assert_int_equal(write(fd, toml, strlen(toml)), strlen(toml));
		close(fd);
		c->cmd.tuning = arena_strdup(&c->arena, path);
		read_tuning(c);
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
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		if (s->phase == DECODE && s->rows == 1 && s->op == OP_norm_linear)
			return s;
	}
	fail_msg("no norm_linear in decode");
	return NULL;
}

static const Candidate *with_verdict(const Slot *s, Verdict verdict, const char *tmpl)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == verdict && (!tmpl || strcmp(s->candidates[i].kernel, tmpl) == 0))
			return &s->candidates[i];
	return NULL;
}

/* The constants of a kernel for the slot, from a compile with candidates. */
static const char *constants_of(Compile *c, const Candidate *k, char *out)
{
	for (int i = 0; i < c->work.at[0].trials.n; i++) {
		const Trial *t = &c->work.at[0].trials.at[i];
		if (t->op != OP_norm_linear || t->phase != DECODE || t->rows != 1
			|| strcmp(kernel_table[t->pick.template_index].name, k->kernel) != 0)
			continue;
		tuning_constants(t->pick.defines, k->tunables, out); /* no SLOTS or the like in a norm_linear */
		if (strlen(out) + strlen(k->tunables) + (*k->tunables != 0) == strlen(t->pick.defines))
			return out;
	}
	fail_msg("no trial of %s %s", k->kernel, k->tunables);
	return NULL;
}

/* A file that knows one kernel: `us` of it, of the template's present source or another one. */
static const char *file_of(Arena *a, const char *tmpl, const char *constants, const char *tunables, double us,
	bool is_current)
{
	const KernelTemplate *t = NULL;
	for (int i = 0; i < n_kernel_table; i++)
		if (strcmp(kernel_table[i].name, tmpl) == 0)
			t = &kernel_table[i];
	const char *sha = "";
	for (int i = 0; i < 32; i++)
		sha = arena_printf(a, "%s%02x", sha, (unsigned)(t->source_sha256[i] ^ (is_current ? 0 : 1)));
	return arena_printf(a, CARD "[templates]\n%s = \"%s\"\n[[kernel]]\ntemplate = \"%s\"\nconstants = \"%s\"\n"
		"\"%s\" = [%g, 0.01]\n", tmpl, sha, tmpl, constants, tunables, us);
}

static void measured_goes_before_modelled(void **state)
{
	Compile c, tuned;
	Arena arena = {0};
	char constants[512];
	(void)state;
	synthetic_model(&c, "llama");
	c.cmd.candidates = 100;
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	const Slot *s = NULL;
	for (int i = 0; i < c.work.at[0].ledger.n && !s; i++)
		if (c.work.at[0].ledger.at[i].phase == DECODE && c.work.at[0].ledger.at[i].op == OP_norm_linear)
			s = &c.work.at[0].ledger.at[i];
	const Candidate *model = with_verdict(s, CHOSEN, NULL), *other = with_verdict(s, SLOWER, NULL);
	assert_string_equal(model->cost_from, "model");
	constants_of(&c, other, constants);

	/* one that was measured wins, however slow it was */
	const char *file = file_of(&arena, other->kernel, constants, other->tunables, 1e6, true);
	const Candidate *chosen = with_verdict(pick(&tuned, file, NULL), CHOSEN, NULL);
	assert_string_equal(chosen->kernel, other->kernel);
	assert_string_equal(chosen->tunables, other->tunables);
	assert_string_equal(chosen->cost_from, "measured");
	assert_float_equal(chosen->cost_us, 1e6, 0);
	assert_int_equal(tuned.diags.n, 0);
	synthetic_free(&tuned);

	/* a time of another source does not count, and that is told once */
	file = file_of(&arena, other->kernel, constants, other->tunables, 0.001, false);
	chosen = with_verdict(pick(&tuned, file, NULL), CHOSEN, NULL);
	assert_string_equal(chosen->kernel, model->kernel);
	assert_string_equal(chosen->tunables, model->tunables);
	assert_int_equal(tuned.diags.n, 1);
	assert_true(tuned.diags.list[0].is_note);
	assert_string_equal(code_name(tuned.diags.list[0].code), "A0704");
	assert_string_equal(tuned.diags.list[0].text, arena_printf(&arena, "the times of %s are of another source of it: "
		"not used", other->kernel));
	synthetic_free(&tuned);

	/* nor does one of other constants */
	file = file_of(&arena, other->kernel, "K=1", other->tunables, 0.001, true);
	assert_string_equal(with_verdict(pick(&tuned, file, NULL), CHOSEN, NULL)->cost_from, "model");
	synthetic_free(&tuned);

	/* a ban goes before */
	KernelRule ban = {.template_name = other->kernel, .tunables = other->tunables, .layer_first = -1, .layer_last = 2,
		.at = {"MODEL.toml", 3, 1}};
	file = file_of(&arena, other->kernel, constants, other->tunables, 0.001, true);
	const Slot *banned = pick(&tuned, file, &ban);
	assert_non_null(with_verdict(banned, BANNED, other->kernel));
	assert_string_equal(with_verdict(banned, CHOSEN, NULL)->tunables, model->tunables);
	synthetic_free(&tuned);
	synthetic_free(&c);
	arena_release(&arena);
}

static void files_are_for_a_target(void **state)
{
	Compile c;
	(void)state;
	assert_null(pick(&c, "[card]\ntarget = \"sm_80\"\nname = \"A\"\ndriver = \"1\"\n", NULL));
	assert_string_equal(code_name(c.diags.list[0].code), "A0703");
	assert_string_equal(c.diags.list[0].text, "times of sm_80, which is no target of this compile");
	synthetic_free(&c);
	assert_null(pick(&c, "[card]\ntarget = 90\n", NULL));
	assert_string_equal(code_name(c.diags.list[0].code), "A0703");
	assert_int_equal(c.diags.list[0].at.line, 2);
	assert_int_equal(c.diags.list[0].at.col, 10);
	synthetic_free(&c);
	for (int i = 0; i < n_tuning_toml; i++) { /* those that are built in */
		Tuning t;
		read_or_fail(tuning_toml[i].text, &t);
		assert_string_equal(t.target, tuning_toml[i].name);
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
		cmocka_unit_test(every_refusal),
		cmocka_unit_test(any_bytes),
		cmocka_unit_test(constants_are_what_is_left),
		cmocka_unit_test(measured_goes_before_modelled),
		cmocka_unit_test(files_are_for_a_target),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
