/* test_pruned.c - what contracts do not prefer: never chosen while something else is left, and never impossible. */
#include "artifacts/op_table.h"
#include "artifacts/plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* One row of decode: gemm_norm, which its contract prefers from 9 rows on, beside stream_norm. */
static void pick(Compile *c, int candidates, bool pruned, const KernelRule *rules, int n)
{
	synthetic_model(c, "llama");
	c->cmd.candidates = candidates;
	c->cmd.pruned = pruned;
	for (int i = 0; i < n; i++)
		*vec_push(&c->arena, &c->model.options.rules) = rules[i];
	build_graph(c);
	fuse(c);
	pick_kernels(c);
}

static const Slot *slot_of(const Compile *c)
{
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		if (s->phase == DECODE && s->rows == 1 && s->op == OP_norm_linear)
			return s;
	}
	fail_msg("decode has no norm_linear");
	return NULL;
}

static const Candidate *chosen(const Slot *s)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return &s->candidates[i];
	fail_msg("nothing is chosen");
	return NULL;
}

static int count(const Slot *s, const char *kernel, const char *verdict)
{
	int n = 0;
	for (int i = 0; i < s->n_candidates; i++)
		n += strcmp(s->candidates[i].kernel, kernel) == 0 &&
			strcmp(verdict_name(s->candidates[i].verdict), verdict) == 0;
	return n;
}

static void the_ledger_says_pruned(void **state)
{
	Compile c;
	int n = 0;
	(void)state;
	pick(&c, 0, false, NULL, 0);
	const Slot *s = slot_of(&c);
	assert_string_equal(chosen(s)->kernel, "stream_norm");
	for (int i = 0; i < s->n_candidates; i++) {
		const Candidate *k = &s->candidates[i];
		if (k->verdict != PRUNED || strcmp(k->kernel, "gemm_norm") != 0)
			continue;
		assert_string_equal(k->reason, "ROWS >= 9 is false: ROWS = 1");
		assert_string_equal(k->order, "gemm");
		assert_string_equal(k->cost_from, "model");
		assert_true(k->cost_us > 0);
		n++;
	}
	assert_true(n > 0);
	assert_true(count(s, "gemv_norm", "rejected") > 0 && count(s, "gemv_norm", "pruned") == 0);
	synthetic_free(&c);
}

static void a_pin_chooses_it(void **state)
{
	const KernelRule pin = {.is_pin = true, .template_name = "gemm_norm", .phase = "decode", .layer_first = -1,
		.layer_last = 2, .at = {"models/MODEL.toml", 7, 11}};
	Compile c;
	(void)state;
	pick(&c, 0, false, &pin, 1);
	assert_int_equal(c.diags.n_errors, 0);
	const Slot *s = slot_of(&c);
	assert_string_equal(chosen(s)->kernel, "gemm_norm");
	assert_string_equal(chosen(s)->reason, "not preferred: ROWS >= 9 is false: ROWS = 1");
	assert_string_equal(chosen(s)->cost_from, "pin");
	for (int i = 0; i < s->n_candidates; i++)
		if (strcmp(s->candidates[i].kernel, "stream_norm") == 0 && s->candidates[i].verdict != REJECTED) {
			assert_int_equal(s->candidates[i].verdict, BANNED);
			assert_string_equal(s->candidates[i].reason, "by the pin at MODEL.toml:7");
		}
	synthetic_free(&c);
}

static void it_is_what_a_ban_leaves(void **state)
{
	const KernelRule bans[] = {
		{.template_name = "stream_norm", .layer_first = -1, .layer_last = 2, .at = {"MODEL.toml", 7, 11}},
		{.template_name = "gemm_norm", .layer_first = -1, .layer_last = 2, .at = {"MODEL.toml", 9, 11}}};
	Compile c;
	(void)state;
	pick(&c, 0, false, bans, 1);
	assert_int_equal(c.diags.n_errors, 0);
	assert_string_equal(chosen(slot_of(&c))->kernel, "gemm_norm");
	assert_string_equal(chosen(slot_of(&c))->reason, "not preferred: ROWS >= 9 is false: ROWS = 1");
	assert_int_equal(count(slot_of(&c), "gemm_norm", "pruned"), 0);
	synthetic_free(&c);
	pick(&c, 0, false, bans, 2);
	assert_true(c.diags.n_errors > 0);
	synthetic_free(&c);
}

/* How many trials are of that template for one row of decode. */
static int trials(const Compile *c, const char *kernel)
{
	int n = 0;
	for (int i = 0; i < c->work.at[0].trials.n; i++) {
		const Trial *t = &c->work.at[0].trials.at[i];
		n += t->op == OP_norm_linear && t->phase == DECODE && t->rows == 1 &&
			strcmp(kernel_table[t->pick.template_index].name, kernel) == 0;
	}
	return n;
}

static void they_are_timed_where_asked_for(void **state)
{
	Compile c;
	(void)state;
	pick(&c, 2, false, NULL, 0);
	const int plain = trials(&c, "stream_norm");
	assert_int_equal(plain, 2);
	assert_int_equal(trials(&c, "gemm_norm"), 0);
	synthetic_free(&c);
	pick(&c, 2, true, NULL, 0);
	assert_in_range(trials(&c, "gemm_norm"), 1, 2);
	assert_in_range(trials(&c, "stream_norm"), plain, 2 * plain);
	synthetic_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ledger_says_pruned),
		cmocka_unit_test(a_pin_chooses_it),
		cmocka_unit_test(it_is_what_a_ban_leaves),
		cmocka_unit_test(they_are_timed_where_asked_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
