/* test_orders.c - [numerics] invariant: which order a set of phases shares, and what is refused. */
#include "artifacts/op_table.h"
#include "artifacts/order.h"
#include "compiler/pick/times.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* times: those that kernels are chosen by, NULL = none. candidates: --candidates. */
static void pick_by(Compile *c, const char *model_type, bool is_invariant, const KernelRule *rule, const Tuning *times,
	int candidates)
{
	synthetic_model(c, model_type);
	c->cmd.candidates = candidates;
	if (times)
		*vec_push(&c->arena, &c->tunings) = (TargetTuning){.file = "times.toml", .sha256 = "", .times = *times,
			.was_told = ARENA_ARRAY(&c->arena, bool, n_kernel_table),
			.has_others = ARENA_ARRAY(&c->arena, bool, n_kernel_table)};
	Options *o = &c->model.options;
	o->slots = 16;
	o->prefill[0] = 16;
	o->prefill[1] = 32;
	o->prefill[2] = 128;
	o->n_prefill = 3;
	for (int i = 0; i < 5; i++)
		o->decode[i] = 1 << i;
	o->n_decode = 5;
	o->is_invariant = is_invariant;
	o->at_invariant = (Loc){"MODEL.toml", 2, 1};
	if (rule)
		*vec_push(&c->arena, &o->rules) = *rule;
	build_graph(c);
	fuse(c);
	pick_kernels(c);
}

static void pick(Compile *c, const char *model_type, bool is_invariant, const KernelRule *rule)
{
	pick_by(c, model_type, is_invariant, rule, NULL, 0);
}

static const Candidate *chosen(const Slot *s)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return &s->candidates[i];
	fail_msg("nothing is chosen for %s", op_table[s->op].name);
	return NULL;
}

/* The nth slot of an op and first layer in a bucket; NULL = there is none. */
static const Slot *slot_of(const Compile *c, PhaseKind kind, int rows, OpKind op, int layer, int nth)
{
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		if (s->phase == kind && s->rows == rows && s->op == op && s->layer_first == layer && nth-- == 0)
			return s;
	}
	return NULL;
}

/* How many decisions of prefill and decode add in another order than the same one of their first bucket. */
static int count_different(const Compile *c, int *compared)
{
	int different = 0;
	*compared = 0;
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		if (order_set(s->phase) == ORDER_FREE)
			continue;
		int nth = 0;
		for (int k = 0; k < i; k++) {
			const Slot *b = &c->work.at[0].ledger.at[k];
			nth += b->phase == s->phase && b->rows == s->rows && b->op == s->op && b->layer_first == s->layer_first;
		}
		const Slot *first = slot_of(c, s->phase, s->phase == PREFILL ? 16 : 1, s->op, s->layer_first, nth);
		assert_true(first || !c->model.options.is_invariant);
		different += !first || strcmp(chosen(first)->order, chosen(s)->order) != 0;
		++*compared;
	}
	return different;
}

static void every_bucket_adds_in_one_order(void **state)
{
	static const char *const families[] = {"llama", "qwen2", "qwen3"};
	(void)state;
	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
		Compile c;
		int compared;
		pick(&c, families[i], true, NULL);
		assert_int_equal(c.diags.n_errors, 0);
		assert_int_equal(count_different(&c, &compared), 0);
		assert_true(compared > 50);
		synthetic_free(&c);
		pick(&c, families[i], false, NULL); /* the test could see it */
		assert_int_not_equal(count_different(&c, &compared), 0);
		synthetic_free(&c);
	}
}

/* The least time of a candidate that adds in this order, of those that the contract prefers; -1 = none. */
static double least_of(const Slot *s, const char *order)
{
	double least = -1;
	for (int i = 0; i < s->n_candidates; i++) {
		const Candidate *k = &s->candidates[i];
		if (k->verdict != REJECTED && k->verdict != PRUNED && (!order || strcmp(k->order, order) == 0) &&
			(least < 0 || k->cost_us < least))
			least = k->cost_us;
	}
	return least;
}

/* Of the orders that every bucket has the cheapest wins, and in each bucket the cheapest kernel of it. */
static void the_cheapest_order_wins(void **state)
{
	static const int rows[] = {16, 32, 128};
	enum { N = 3 };
	const Slot *slots[N];
	Compile c;
	int orders = 0;
	(void)state;
	pick(&c, "llama", true, NULL);
	for (int m = 0; m < N; m++)
		assert_non_null(slots[m] = slot_of(&c, PREFILL, rows[m], OP_attention, 0, 0));
	const char *won = chosen(slots[0])->order;
	double least = -1, of_won = -1;
	for (int i = 0; i < slots[0]->n_candidates; i++) {
		const Candidate *k = &slots[0]->candidates[i];
		double sum = 0;
		for (int m = 0; m < N && sum >= 0; m++) {
			const double us = *k->order ? least_of(slots[m], k->order) : -1;
			sum = us < 0 ? -1 : sum + us / least_of(slots[m], NULL);
		}
		if (sum < 0 || k->verdict == REJECTED || k->verdict == PRUNED)
			continue;
		orders += strcmp(k->order, won) != 0;
		least = least < 0 || sum < least ? sum : least;
		of_won = strcmp(k->order, won) == 0 ? sum : of_won;
	}
	assert_true(orders > 0); /* there was a choice */
	assert_true(of_won <= least * 1.000001);
	for (int m = 0; m < N; m++)
		assert_true(chosen(slots[m])->cost_us <= least_of(slots[m], won));
	synthetic_free(&c);
}

/* The tunables of a trial, as the ledger has them. */
static const char *tunables_of(Arena *a, const Trial *t)
{
	const KernelTemplate *k = &kernel_table[t->pick.template_index];
	const char *text = "";
	for (int i = 0; i < k->n_tunables; i++) {
		const char *name = arena_printf(a, " %s=", k->tunables[i].name);
		const char *at = strstr(arena_printf(a, " %s", t->pick.defines), name);
		assert_non_null(at);
		text = arena_printf(a, "%s%s%.*s", text, *text ? " " : "", (int)strcspn(at + 1, " "), at + 1);
	}
	return text;
}

/* Times of the kernels that contracts prefer, of which no order has one in each bucket: tiles of 32 rows of weights are
 * the fast ones, whose chains are two below 9 rows and one above. The order is one of these all the same, and what was
 * not measured is taken for as fast as what differs in chains alone. gemm, measured where it is slow, does not win. */
static void an_order_wins_without_all_times(void **state)
{
	Compile all, tuned;
	Arena a = {0};
	Tuning times = {.target = "sm_90a", .card = "A", .driver = "1"};
	int twice;
	(void)state;
	pick_by(&all, "llama", true, NULL, NULL, 100);
	const TargetWork *w = &all.work.at[0];
	times.times = calloc((size_t)w->trials.n, sizeof *times.times);
	for (int i = 0; i < w->trials.n; i++) {
		const Trial *t = &w->trials.at[i];
		const KernelTemplate *k = &kernel_table[t->pick.template_index];
		const char *tunables = tunables_of(&a, t);
		const bool is_wide = strstr(tunables, "TILES=2") != NULL, is_gemm = strcmp(k->name, "gemm_norm") == 0;
		const char *chains = t->rows > 8 && is_wide ? "CHAINS=1" : "CHAINS=2";
		if (t->op != OP_norm_linear || t->phase != DECODE || (is_gemm ? t->rows < 9 : !strstr(tunables, chains)))
			continue;
		TunedTime *time = &times.times[times.n_times++];
		char *constants = arena_alloc(&a, strlen(t->pick.defines) + 1);
		uint8_t key[32];
		tuning_constants(t->pick.defines, tunables, constants);
		time_key(k, w->target, t->pick.defines, key);
		*time = (TunedTime){.tmpl = k->name, .constants = constants, .tunables = tunables,
			.us = is_gemm ? 30 : is_wide ? 10 : 20};
		memcpy(time->key, key, sizeof time->key);
	}
	assert_true(times.n_times > 20 && tuning_sort(&times, &twice));
	pick_by(&tuned, "llama", true, NULL, &times, 0);
	assert_int_equal(tuned.diags.n, 0);
	for (int rows = 1; rows <= 16; rows *= 2) {
		const Candidate *k = chosen(slot_of(&tuned, DECODE, rows, OP_norm_linear, 0, 0));
		assert_string_equal(k->kernel, "stream_norm");
		assert_non_null(strstr(k->tunables, "TILES=2"));
		assert_non_null(strstr(k->order, ",1) squares(0)"));
		assert_string_equal(k->cost_from, rows > 8 ? "measured" : "model");
		assert_true(rows > 8 ? k->cost_us <= 10 && k->cost_us >= 10 : k->cost_us >= 10 && k->cost_us < 11);
	}
	synthetic_free(&tuned);
	synthetic_free(&all);
	free(times.times);
	arena_release(&a);
}

/* A pin that all buckets can follow decides; a ban of all that an op has is refused at its line. Pins that no order
 * satisfies: tests/compiler/test_invariant.py. */
static void pins_and_bans_hold_in_a_set(void **state)
{
	const KernelRule pin = {.is_pin = true, .template_name = "stream_norm", .op = "norm_linear", .phase = "decode",
		.layer_first = -1, .layer_last = 2, .at = {"MODEL.toml", 7, 11}};
	const KernelRule ban = {.template_name = "attn_step", .layer_first = -1, .layer_last = 2,
		.at = {"MODEL.toml", 9, 11}};
	Compile c;
	(void)state;
	KernelRule rule = pin;
	rule.tunables = (RuleTunable[]){{"SPLITS", 32}};
	rule.n_tunables = 1;
	rule.template_name = "attn_step";
	rule.op = "attention_step";
	rule.layer_first = rule.layer_last = 1;
	pick(&c, "llama", true, &rule);
	assert_int_equal(c.diags.n_errors, 0); /* one that all buckets can follow is no harm */
	for (int rows = 1; rows <= 16; rows *= 2) {
		assert_null(strstr(chosen(slot_of(&c, DECODE, rows, OP_attention_step, 0, 0))->order, "attend_runs(32,"));
		assert_non_null(strstr(chosen(slot_of(&c, DECODE, rows, OP_attention_step, 1, 0))->order, "attend_runs(32,"));
	}
	synthetic_free(&c);
	for (int chains = 1; chains <= 2; chains++) { /* one that is not preferred in some buckets, either way */
		char order[32];
		snprintf(order, sizeof order, ",%d) squares(0)", chains);
		rule = pin;
		rule.tunables = (RuleTunable[]){{"TILES", 2}, {"CHAINS", chains}};
		rule.n_tunables = 2;
		pick(&c, "llama", true, &rule);
		assert_int_equal(c.diags.n_errors, 0);
		for (int rows = 1; rows <= 16; rows *= 2)
			assert_non_null(strstr(chosen(slot_of(&c, DECODE, rows, OP_norm_linear, 0, 0))->order, order));
		synthetic_free(&c);
	}
	pick(&c, "llama", true, &ban);
	assert_int_equal(c.diags.n_errors, 1);
	assert_int_equal(c.diags.list[0].code, A0701);
	assert_int_equal(c.diags.list[0].at.line, 9);
	synthetic_free(&c);
}

static void an_order_is_a_value(void **state)
{
	const ExprName names[] = {{"K", 256}, {"COLS", 64}};
	const ExprEnv env = {names, 2, NULL};
	char text[ORDER_BYTES] = "", why[80];
	(void)state;
	assert_true(order_append(text, "stream", "8, min(K, COLS * 2), K > COLS ? 2 : 1", &env, why, sizeof why));
	assert_true(order_append(text, "last", "", &env, why, sizeof why));
	assert_string_equal(text, "stream(8,128,2) last");
	assert_false(order_append(text, "stream", "ROWS", &env, why, sizeof why));
	assert_string_equal(why, "column 1: unknown name ROWS");
	memset(text, 'x', ORDER_BYTES - 3);
	text[ORDER_BYTES - 3] = 0;
	assert_false(order_append(text, "long", "", &env, why, sizeof why));
	assert_string_equal(why, "an order takes more than 256 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_order_is_a_value),
		cmocka_unit_test(every_bucket_adds_in_one_order),
		cmocka_unit_test(the_cheapest_order_wins),
		cmocka_unit_test(an_order_wins_without_all_times),
		cmocka_unit_test(pins_and_bans_hold_in_a_set),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
