/* test_pick_wgmma.c - templates bound to one architecture: taken there for long prompts, replaced everywhere else.
 *
 * The shapes are those of a model of a billion parameters, without its weights. What must be chosen follows from the
 * contracts: wgmma_* name sm_90a alone, take bf16 weights and more than 32 rows, and are faster; gemm_* serve any.
 * Where wgmma_* serve, a norm before them is a launch of its own, from 65 rows of a prompt and 33 of a decode step on.
 */
#include "artifacts/op_table.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { HIDDEN = 2048, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64, FFN = 8192, ROWS = 2048, FEW_ROWS = 16 };

/* The synthetic model with other dims, and two prefill phases. */
static void large_model(Compile *c, const char *target)
{
	static const struct { const char *part; int64_t d0, d1; } shapes[] = {
		{"norm.weight", HIDDEN, 0}, {"layernorm.weight", HIDDEN, 0}, {"embed_tokens", 40, HIDDEN},
		{"q_proj", HEADS * HEAD_DIM, HIDDEN}, {"k_proj", KV_HEADS * HEAD_DIM, HIDDEN},
		{"v_proj", KV_HEADS * HEAD_DIM, HIDDEN}, {"o_proj", HIDDEN, HEADS * HEAD_DIM},
		{"gate_proj", FFN, HIDDEN}, {"up_proj", FFN, HIDDEN}, {"down_proj", HIDDEN, FFN}};
	synthetic_model(c, "llama");
	c->cmd.targets[0] = target;
	Config *cf = &c->model.config;
	cf->hidden_dim = HIDDEN;
	cf->each.n_heads = HEADS;
	cf->each.n_kv_heads = KV_HEADS;
	cf->each.head_dim = HEAD_DIM;
	cf->each.ffn_dim = FFN;
	cf->max_position = ROWS;
	Options *o = &c->model.options;
	o->max_context = ROWS;
	o->prefill[0] = FEW_ROWS;
	o->prefill[1] = ROWS;
	o->n_prefill = 2;
	int64_t at = 0;
	for (int i = 0; i < c->model.tensors.n; i++) {
		StTensor *t = &c->model.tensors.at[i];
		size_t k = 0;
		while (k < sizeof shapes / sizeof shapes[0] && !strstr(t->name, shapes[k].part))
			k++;
		assert_true(k < sizeof shapes / sizeof shapes[0]);
		t->shape[0] = shapes[k].d0;
		t->shape[1] = shapes[k].d1;
		t->bytes = 2 * shapes[k].d0 * (shapes[k].d1 ? shapes[k].d1 : 1);
		t->offset = at;
		at += t->bytes;
	}
	c->model.shards.at[0].bytes = at;
}

static void pick(Compile *c)
{
	build_graph(c);
	fuse(c);
	assert_int_equal(c->diags.n_errors, 0);
	pick_kernels(c);
	if (c->diags.n_errors)
		fail_msg("%s", c->diags.list[0].text);
}

/* The ledger's slot for the first op of that kind in a layer of a prefill phase. */
static const Slot *slot_of(Compile *c, int rows, int layer, OpKind kind)
{
	const TargetWork *w = &c->work.at[0];
	for (int i = 0; i < w->phases.n; i++) {
		const Lowered *low = &w->phases.at[i];
		for (int k = 0; k < low->ops.n && low->kind == PREFILL && low->rows == rows; k++)
			if (low->ops.at[k].layer == layer && low->ops.at[k].kind == kind)
				return &w->ledger.at[low->picks.at[low->ops.at[k].pick].slot];
	}
	fail_msg("no %s in layer %d of %d rows", op_table[kind].name, layer, rows);
	return NULL;
}

/* The first candidate of a template with that verdict, NULL when there is none. */
static const Candidate *candidate(const Slot *s, const char *kernel, Verdict verdict)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (strcmp(s->candidates[i].kernel, kernel) == 0 && s->candidates[i].verdict == verdict)
			return &s->candidates[i];
	return NULL;
}

static bool has_op(Compile *c, int rows, int layer, OpKind kind)
{
	const TargetWork *w = &c->work.at[0];
	for (int i = 0; i < w->phases.n; i++)
		for (int k = 0; k < w->phases.at[i].ops.n; k++) {
			const LOp *op = &w->phases.at[i].ops.at[k];
			if (w->phases.at[i].kind == PREFILL && w->phases.at[i].rows == rows && op->layer == layer &&
				op->kind == kind)
				return true;
		}
	return false;
}

/* What sm_90a takes for many rows, what others take, and the ops they are of: one where no norm is inside. */
static const struct { OpKind wide_op; const char *wide; OpKind other_op; const char *other; } pairs[] = {
	{OP_linear_rows, "wgmma_linear", OP_norm_linear, "gemm_norm"},
	{OP_linear_residual, "wgmma_residual", OP_linear_residual, "gemm_residual"},
	{OP_linear_swiglu, "wgmma_swiglu", OP_norm_swiglu, "gemm_swiglu"}};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0], RESIDUAL = 1 };

static void one_architecture_has_them(void **state)
{
	(void)state;
	for (int t = 0; t < n_target_table; t++) {
		const char *target = target_table[t].name;
		bool is_hopper = strcmp(target, "sm_90a") == 0;
		char why[80];
		snprintf(why, sizeof why, "needs architecture 90a: target is %s", target);
		Compile c;
		large_model(&c, target);
		pick(&c);
		assert_int_equal(has_op(&c, ROWS, 0, OP_norm_rows), is_hopper);
		for (int i = 0; i < N_PAIRS; i++) {
			const Slot *s = slot_of(&c, ROWS, 0, is_hopper ? pairs[i].wide_op : pairs[i].other_op);
			assert_non_null(candidate(s, is_hopper ? pairs[i].wide : pairs[i].other, CHOSEN));
		}
		const Slot *s = slot_of(&c, ROWS, 0, OP_linear_residual);
		assert_non_null(candidate(s, pairs[RESIDUAL].other, is_hopper ? SLOWER : CHOSEN));
		if (!is_hopper)
			assert_string_equal(candidate(s, pairs[RESIDUAL].wide, REJECTED)->reason, why);
		synthetic_free(&c);
	}
}

/* By the model alone: the widest tile, unless its last round would leave much of the card idle. 2,048 rows of 3,072
 * columns are 192 tiles of 256, two rounds of which the second is half empty, but 256 tiles of 192. A product of
 * 128 rows has so few tiles that blocks divide their columns. */
static void tiles_fill_the_card(void **state)
{
	(void)state;
	static const struct { int rows; OpKind op; const char *kernel, *tunables; } want[] = {
		{ROWS, OP_linear_rows, "wgmma_linear", "BN=192 CLUSTER=2"},
		{ROWS, OP_linear_swiglu, "wgmma_swiglu", "BN=256 CLUSTER=2"},
		{128, OP_linear_residual, "wgmma_few_residual", "BN=64 SPLIT=4"},
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		Compile c;
		large_model(&c, "sm_90a");
		c.cmd.tuning = "none";
		c.model.options.prefill[1] = want[i].rows;
		pick(&c);
		const Candidate *k = candidate(slot_of(&c, want[i].rows, 0, want[i].op), want[i].kernel, CHOSEN);
		if (!k || strcmp(k->tunables, want[i].tunables) != 0)
			fail_msg("%d rows, %s: not %s", want[i].rows, want[i].kernel, k ? k->tunables : "chosen");
		synthetic_free(&c);
	}
}

static void few_rows_and_other_weights_stay(void **state)
{
	Compile c;
	(void)state;
	large_model(&c, "sm_90a");
	static const char *const f16[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
		"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};
	for (size_t i = 0; i < sizeof f16 / sizeof f16[0]; i++) {
		char name[64];
		snprintf(name, sizeof name, "model.layers.1.%s.weight", f16[i]);
		synthetic_dtype(&c, name, DT_f16);
	}
	pick(&c);
	for (int i = 0; i < N_PAIRS; i++)
		assert_true(has_op(&c, FEW_ROWS, 0, pairs[i].other_op));
	assert_false(has_op(&c, FEW_ROWS, 0, OP_norm_rows));
	assert_string_equal(candidate(slot_of(&c, FEW_ROWS, 0, OP_linear_residual), "wgmma_residual", PRUNED)->reason,
		"ROWS > 32 is false: ROWS = 16");
	assert_false(has_op(&c, ROWS, 1, OP_norm_rows));
	for (int i = 0; i < N_PAIRS; i++) {
		assert_non_null(candidate(slot_of(&c, ROWS, 1, pairs[i].other_op), pairs[i].other, CHOSEN));
		assert_non_null(candidate(slot_of(&c, ROWS, 0, pairs[i].wide_op), pairs[i].wide, CHOSEN));
	}
	assert_non_null(strstr(candidate(slot_of(&c, ROWS, 1, OP_linear_residual), "wgmma_residual", REJECTED)->reason,
		"is f16, which WT does not take"));
	synthetic_free(&c);
}

/* How many ops of that kind decode has in all buckets of so many rows. */
static int count_in_decode(const Compile *c, int rows, OpKind kind)
{
	const TargetWork *w = &c->work.at[0];
	int n = 0;
	for (int i = 0; i < w->phases.n; i++)
		for (int k = 0; k < w->phases.at[i].ops.n; k++)
			n += w->phases.at[i].kind == DECODE && w->phases.at[i].rows == rows &&
				w->phases.at[i].ops.at[k].kind == kind;
	return n;
}

static void decode_in_buckets(Compile *c, const char *target, int few, int many)
{
	large_model(c, target);
	c->model.options.slots = many;
	c->model.options.decode[0] = few;
	c->model.options.decode[1] = many;
	c->model.options.n_decode = 2;
}

/* A decode step of 24 rows has its norms inside; from 25 on, where templates serve such rows, apart. */
static void many_answers_are_as_prompts(void **state)
{
	(void)state;
	for (int t = 0; t < n_target_table; t++) {
		const bool is_hopper = strcmp(target_table[t].name, "sm_90a") == 0;
		Compile c;
		decode_in_buckets(&c, target_table[t].name, 24, 25);
		pick(&c);
		for (int i = 0; i < N_PAIRS; i++) {
			const int n = count_in_decode(&c, 24, pairs[i].other_op);
			assert_true(n > 0);
			assert_int_equal(count_in_decode(&c, 25, is_hopper ? pairs[i].wide_op : pairs[i].other_op), n);
		}
		assert_int_equal(count_in_decode(&c, 24, OP_norm_logits), 1);
		assert_int_equal(count_in_decode(&c, 25, OP_norm_logits), is_hopper ? 0 : 1);
		assert_int_equal(count_in_decode(&c, 25, OP_norm_outs), is_hopper ? 1 : 0);
		assert_int_equal(count_in_decode(&c, 25, OP_linear_logits), is_hopper ? 1 : 0);
		assert_int_equal(count_in_decode(&c, 24, OP_norm_rows), 0);
		assert_int_equal(count_in_decode(&c, 25, OP_norm_rows) > 0, is_hopper);
		synthetic_free(&c);
	}
}

/* Of up to 32 rows blocks are half a multiprocessor, and columns are divided until they fill the card, or six ways; of
 * more rows they have one to themselves. Logits of up to 64 outs are of the first kind. */
static void blocks_of_few_answers_share_multiprocessors(void **state)
{
	enum { CARD = 2 * 132 }; /* blocks */
	static const struct { OpKind op; const char *slim, *few; } want[] = {
		{OP_linear_rows, "wgmma_slim_linear", "wgmma_few_linear"},
		{OP_linear_residual, "wgmma_slim_residual", "wgmma_few_residual"},
		{OP_linear_swiglu, "wgmma_slim_swiglu", "wgmma_few_swiglu"},
		{OP_linear_logits, "wgmma_slim_logits", "wgmma_slim_logits"}};
	int seen = 0;
	Compile c;
	(void)state;
	decode_in_buckets(&c, "sm_90a", 32, 64);
	pick(&c);
	for (int i = 0; i < c.work.at[0].phases.n; i++) {
		const Lowered *low = &c.work.at[0].phases.at[i];
		for (int k = 0; low->kind == DECODE && k < low->ops.n; k++) {
			const Pick *p = &low->picks.at[low->ops.at[k].pick];
			for (size_t w = 0; w < sizeof want / sizeof want[0]; w++) {
				if (low->ops.at[k].kind != want[w].op)
					continue;
				assert_string_equal(kernel_table[p->template_index].name, low->rows == 32 ? want[w].slim : want[w].few);
				seen++;
				if (low->rows > 32 || want[w].op == OP_linear_logits)
					continue;
				const char *split = strstr(p->defines, "SPLIT=");
				const int n = split ? atoi(split + 6) : 0, most = want[w].op == OP_linear_swiglu ? 2 : 6;
				assert_non_null(strstr(p->defines, "BLOCKS=2"));
				assert_true(n > 0 && p->grid[0] <= CARD);
				assert_true(n == most || p->grid[0] / n * (n == 4 ? 6 : n + 1) > CARD);
			}
		}
	}
	assert_true(seen > 2 * 4);
	synthetic_free(&c);
}

/* What is to have the same bits in all buckets is lowered as in the smallest. */
static void invariant_answers_are_lowered_alike(void **state)
{
	static const int few[] = {8, 64};
	(void)state;
	for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
		Compile c;
		decode_in_buckets(&c, "sm_90a", few[i], 128);
		c.model.options.is_invariant = true;
		pick(&c);
		assert_int_equal(count_in_decode(&c, few[i], OP_norm_rows) > 0, few[i] > 32);
		assert_int_equal(count_in_decode(&c, 128, OP_norm_rows), count_in_decode(&c, few[i], OP_norm_rows));
		synthetic_free(&c);
	}
}

static void ban(Compile *c, const char *name)
{
	*vec_push(&c->arena, &c->model.options.rules) = (KernelRule){.is_pin = false, .template_name = name,
		.layer_first = 1, .layer_last = 1, .at = {"MODEL.toml", 7, 1}};
}

/* A ban takes the second best where another admissible candidate exists, and the ledger says by which line. */
static void a_ban_falls_to_what_serves_the_rest(void **state)
{
	Compile c;
	(void)state;
	large_model(&c, "sm_90a");
	ban(&c, "wgmma_residual");
	pick(&c);
	const Slot *s = slot_of(&c, ROWS, 1, OP_linear_residual);
	assert_non_null(candidate(s, "gemm_residual", CHOSEN));
	assert_null(candidate(s, "wgmma_residual", CHOSEN));
	assert_string_equal(candidate(s, "wgmma_residual", BANNED)->reason, "MODEL.toml:7");
	assert_non_null(candidate(slot_of(&c, ROWS, 0, OP_linear_residual), "wgmma_residual", CHOSEN));
	synthetic_free(&c);
}

/* Of swiglu without a norm inside there is one template: banning it is refused, not circumvented. Other products of
 * rows as they are have others. */
static void a_ban_of_the_only_one_is_refused(void **state)
{
	(void)state;
	for (int i = 0; i < N_PAIRS; i++) {
		char want[120];
		Compile c;
		if (i == RESIDUAL || pairs[i].wide_op == OP_linear_rows)
			continue;
		large_model(&c, "sm_90a");
		ban(&c, pairs[i].wide);
		build_graph(&c);
		fuse(&c);
		pick_kernels(&c);
		assert_int_equal(c.diags.n_errors, 1);
		snprintf(want, sizeof want, "leaves no admissible kernel for %s (prefill rows 2048, ",
			op_table[pairs[i].wide_op].name);
		if (!strstr(c.diags.list[0].text, want) || c.diags.list[0].at.line != 7)
			fail_msg("%s, not %s", c.diags.list[0].text, want);
		synthetic_free(&c);
	}
}

/* Few rows are few tiles: several blocks share the keys of one, where there are enough. */
static void attention_of_few_rows_in_teams(void **state)
{
	Compile c;
	(void)state;
	large_model(&c, "sm_90a");
	pick(&c);
	for (int i = 0; i < c.work.at[0].phases.n; i++) {
		const Lowered *low = &c.work.at[0].phases.at[i];
		for (int k = 0; k < low->ops.n; k++) {
			const Pick *p = &low->picks.at[low->ops.at[k].pick];
			if (low->ops.at[k].kind != OP_attention)
				continue;
			assert_non_null(strstr(p->defines, low->rows == FEW_ROWS ? "TEAM=4" : "TEAM=1"));
			assert_int_equal(p->grid[0], low->rows == FEW_ROWS ? 4 * KV_HEADS * (1 + c.model.options.slots) : 132);
		}
	}
	synthetic_free(&c);
}

/* Attention is bound by head dim besides: what has no place in the swizzle stays on mma. */
static void attention_takes_what_it_can(void **state)
{
	(void)state;
	for (int t = 0; t < n_target_table; t++) {
		bool is_hopper = strcmp(target_table[t].name, "sm_90a") == 0;
		Compile c;
		large_model(&c, target_table[t].name);
		pick(&c);
		for (int rows = FEW_ROWS; rows <= ROWS; rows += ROWS - FEW_ROWS) {
			const Slot *s = slot_of(&c, rows, 0, OP_attention);
			assert_non_null(candidate(s, is_hopper ? "attn_wgmma" : "attn_prefill", CHOSEN));
			assert_non_null(candidate(s, is_hopper ? "attn_prefill" : "attn_wgmma", is_hopper ? SLOWER : REJECTED));
		}
		synthetic_free(&c);
	}
}

static void attention_of_other_head_dims(void **state)
{
	Compile c;
	(void)state;
	large_model(&c, "sm_90a");
	c.model.config.each.head_dim = 80;
	c.model.config.each.n_heads = 8;
	c.model.config.each.n_kv_heads = 8;
	for (int i = 0; i < c.model.tensors.n; i++) {
		StTensor *x = &c.model.tensors.at[i];
		if (strstr(x->name, "q_proj") || strstr(x->name, "k_proj") || strstr(x->name, "v_proj"))
			x->shape[0] = 8 * 80;
		if (strstr(x->name, "o_proj"))
			x->shape[1] = 8 * 80;
	}
	pick(&c);
	const Slot *s = slot_of(&c, ROWS, 0, OP_attention);
	assert_non_null(candidate(s, "attn_prefill", CHOSEN));
	assert_non_null(strstr(candidate(s, "attn_wgmma", REJECTED)->reason, "is false: HDIM = 80"));
	synthetic_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_architecture_has_them),
		cmocka_unit_test(tiles_fill_the_card),
		cmocka_unit_test(few_rows_and_other_weights_stay),
		cmocka_unit_test(many_answers_are_as_prompts),
		cmocka_unit_test(blocks_of_few_answers_share_multiprocessors),
		cmocka_unit_test(invariant_answers_are_lowered_alike),
		cmocka_unit_test(a_ban_falls_to_what_serves_the_rest),
		cmocka_unit_test(a_ban_of_the_only_one_is_refused),
		cmocka_unit_test(attention_takes_what_it_can),
		cmocka_unit_test(attention_of_few_rows_in_teams),
		cmocka_unit_test(attention_of_other_head_dims),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
