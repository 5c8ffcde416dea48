/* test_floor.c - every graph op alone has a kernel on every target, whatever is around it.
 *
 * A graph of one op is lowered and given kernels, with the operands that may be absent and without them. Then a decoder
 * with its norms after attention and after the MLP, each before the sum, and with norms over all of q and of k (the
 * form of OLMo-2), for which no fusion was written.
 */
#include "artifacts/expr.h"
#include "compiler/builder.h"
#include "tests/unit/synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { BOTH = PHASE_PREFILL | PHASE_DECODE };

static const Attrs attrs = {.head_dim = 64, .n_heads = 4, .n_kv_heads = 2, .page = 16, .rotary_dim = 64, .eps = 1e-5f,
	.scale = 0.125f, .rope_factor = 1, .n_active = 2, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 64, .v_dim = 64,
	.n_taps = 3, .cap = 30, .n_valid = 40, .ahead = 1};

/* Dims that ops.h names; those of the step's own tensors are the synthetic model's. */
static const ExprName dims[] = {{"K", 256}, {"N", 256}, {"M", 64}, {"G", 4}, {"E", 8}, {"C", 192}, {"H", 64}, {"V", 40},
	{"VOCAB", 40}, {"HDIM", 64}, {"NH", 4}, {"NKV", 2}, {"PAGE", 16}, {"PAGES", 32}, {"MAX_PAGES", 8}, {"SLOTS", 4},
	{"SEGS", 4}, {"ROTARY", 64}, {"TOPK", 2}, {"TAPS", 3}, {"NK", 2}, {"NV", 4}, {"DK", 64}, {"DV", 64}, {"DRAFTS", 2},
	{"STOPS", 1}, {"BLOCK_N", 128}, {"BLOCK_K", 128}};

static bool is_one_of(const char *name, const char *list)
{
	const size_t n = strlen(name);
	for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
		if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
			return true;
	return false;
}

static Dtype dtype_of(OpKind op, const char *name, Dtype result)
{
	if (is_one_of(name, "step seg row_slot row_token row_pos row_next out_row slot_token slot_len slot_draft "
			"slot_version page_table new_pages counts limits new_limits rules new_rules ring acquire stop_tokens ids "
			"drawn expert"))
		return DT_i32;
	if (is_one_of(name, "inv_freq share logits sampling new_sampling drawn_logprob x_scale y_scale x_row_scale "
			"y_row_scale w_row_scale kv_scale delta delta_later state"))
		return DT_f32;
	if (is_one_of(name, "x_block y_block kv_block"))
		return DT_e4m3;
	if ((op == OP_dequantise && strcmp(name, "x") == 0) || (op == OP_quantise && strcmp(name, "y") == 0))
		return DT_e4m3;
	if ((op == OP_dequantise_fp4 && strcmp(name, "x") == 0) || (op == OP_quantise_fp4 && strcmp(name, "y") == 0))
		return DT_e2m1;
	return op == OP_linear && strcmp(name, "y") == 0 ? result : DT_bf16;
}

/* Terms of a row of ops.h as dims of a tensor. */
static int shape_of(const char *row, int64_t *shape)
{
	int n = 0;
	for (const char *at = row; *at; n++) {
		char term[96];
		size_t depth = 0, length = 0;
		for (; *at && (depth || *at != ','); at++) {
			depth += *at == '(';
			depth -= *at == ')';
			if (length || *at != ' ')
				term[length++] = *at;
		}
		term[length] = 0;
		at += *at == ',';
		const ExprEnv env = {dims, sizeof dims / sizeof dims[0], NULL};
		char why[96];
		if (strcmp(term, "ROWS") == 0)
			shape[n] = DIM_ROWS;
		else if (strcmp(term, "OUTS") == 0)
			shape[n] = DIM_OUTS;
		else if (!expr_eval(term, &env, &shape[n], why, sizeof why))
			fail_msg("%s: %s", term, why);
	}
	return n;
}

/* What the step has under that name, whoever reads it. */
static int step_tensor(const Compile *c, const char *name)
{
	for (int i = 0; i < c->graph.n_tensors; i++)
		if (c->graph.tensors[i].role != ROLE_ACTIVATION && strcmp(c->graph.tensors[i].name, name) == 0)
			return i;
	return -1;
}

/* Optional operands that say how codes are read: without codes they are absent. */
static bool is_of_codes(const char *name) { return strstr(name, "scale") || strstr(name, "block"); }

static void one_op(Compile *c, OpKind op, bool has_options, Dtype result)
{
	const OpInfo *info = &op_table[op];
	int operands[PLAN_MAX_OPERANDS];
	build_graph(c);
	assert_int_equal(c->diags.n_errors, 0);
	c->graph.n_ops = 0;
	for (int i = 0; i < info->n_operands; i++) {
		const char *name = info->operands[i].name;
		int64_t shape[PLAN_MAX_DIMS];
		operands[i] = -1;
		if (operand_may_be_absent(info->operands[i].role) && (!has_options || is_of_codes(name)))
			continue;
		operands[i] = step_tensor(c, name);
		if (operands[i] < 0)
			operands[i] = g_tensor(c, ROLE_ACTIVATION, dtype_of(op, name, result), name,
				shape_of(info->operands[i].shape, shape), shape);
	}
	g_op(c, op, 0, BOTH, &attrs, operands);
}

/* Every op of the phases that have any is given a kernel; returns how many ops there are. */
static int lowered(Compile *c, const char *what)
{
	int n = 0;
	fuse(c);
	pick_kernels(c);
	if (c->diags.n_errors)
		fail_msg("%s: %s", what, c->diags.list[0].text);
	for (int w = 0; w < c->work.n; w++)
		for (int p = 0; p < c->work.at[w].phases.n; p++) {
			const Lowered *low = &c->work.at[w].phases.at[p];
			for (int i = 0; i < low->ops.n && low->kind != PROBE; i++, n++)
				assert_true(low->ops.at[i].pick >= 0);
		}
	return n;
}

static void every_op_has_a_kernel_alone(void **state)
{
	(void)state;
	assert_true(n_target_table <= 8); /* as many as a command line has */
	for (int op = 0; op < OP_COUNT; op++)
		for (int variant = 0; variant < 4 && op_table[op].traits & OP_GRAPH; variant++) {
			const Dtype result = variant & 1 ? DT_f32 : DT_bf16;
			Compile c;
			if (variant & 1 && op != OP_linear)
				continue;
			synthetic_model(&c, "llama");
			c.cmd.n_targets = 0;
			for (int t = 0; t < n_target_table; t++)
				c.cmd.targets[c.cmd.n_targets++] = target_table[t].name;
			one_op(&c, (OpKind)op, variant & 2, result);
			c.model.options.no_fusion = true;
			/* one prefill phase and two of decode for each target */
			const int n = lowered(&c, op_table[op].name);
			assert_int_equal(n, 3 * n_target_table * (op == OP_experts ? 4 : 1));
			synthetic_free(&c);
		}
}

/* A layer with its norms after what they norm. */
static int post_norm_layer(Compile *c, const StepTensors *s, int l, int x)
{
	static const char *const modules[] = {"q", "k", "v", "o", "gate", "up", "down"};
	static const int widths[] = {256, 128, 128, 64, 96, 96, 64};
	int y[7], n[2];
	Product w[7];
	for (int i = 0; i < 7; i++) {
		const int64_t rows = widths[i];
		const char *module = arena_printf(&c->arena, "model.layers.%d.%s", l, modules[i]);
		g_products(c, 1, &module, &rows, i == 3 ? 256 : i == 6 ? 96 : 64, &w[i]);
		y[i] = g_activation(c, arena_printf(&c->arena, "l%d.%s", l, modules[i]), rows);
	}
	for (int i = 0; i < 3; i++)
		g_linear(c, l, 0, &w[i], x, -1, y[i]);
	for (int i = 0; i < 2; i++) {
		const int weight = g_weight(c, arena_printf(&c->arena, "model.layers.%d.%s_norm.weight", l, modules[i]), 1,
			widths[i], 0);
		const int normed = g_activation(c, arena_printf(&c->arena, "l%d.%s.norm", l, modules[i]), widths[i]);
		g_op(c, OP_rmsnorm, l, 0, &attrs, (int[]){y[i], weight, normed});
		n[i] = normed;
	}
	const float inv_freq[32] = {1};
	const int turns = g_constant(c, arena_printf(&c->arena, "turns.%d", l), DT_f32, 32, inv_freq);
	for (int i = 0; i < 2; i++) {
		const int turned = g_activation(c, arena_printf(&c->arena, "l%d.%s.rope", l, modules[i]), widths[i]);
		g_op(c, OP_rope, l, 0, &attrs, (int[]){n[i], turns, s->row_pos, turned});
		n[i] = turned;
	}
	const LayerSpec spec = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .kv = DT_bf16};
	const Cache kv = g_cache(c, l, arena_printf(&c->arena, "model.layers.%d.self_attn", l), &spec);
	const int o = g_activation(c, arena_printf(&c->arena, "l%d.attn", l), 256);
	g_op(c, OP_kv_write, l, 0, &attrs, (int[]){s->step, n[1], y[2], s->row_slot, s->row_pos, s->page_table, kv.kv,
		kv.scale, kv.block});
	g_op(c, OP_attention, l, 0, &attrs, (int[]){s->step, n[0], kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos,
		s->seg, s->page_table, o});
	static const char *const halves[] = {"mid", "out"};
	for (int half = 0; half < 2; half++) {
		const int h = g_activation(c, arena_printf(&c->arena, "l%d.h", l), 96), of = half ? 6 : 3;
		if (half) {
			g_linear(c, l, 0, &w[4], x, -1, y[4]);
			g_linear(c, l, 0, &w[5], x, -1, y[5]);
			g_op(c, OP_swiglu, l, 0, NULL, (int[]){y[4], y[5], h});
		}
		g_linear(c, l, 0, &w[of], half ? h : o, -1, y[of]);
		const int weight = g_weight(c, arena_printf(&c->arena, "model.layers.%d.%s_norm.weight", l, halves[half]), 1,
			64, 0);
		const int normed = g_activation(c, arena_printf(&c->arena, "l%d.%s.norm", l, halves[half]), 64);
		const int sum = g_activation(c, arena_printf(&c->arena, "l%d.%s", l, halves[half]), 64);
		g_op(c, OP_rmsnorm, l, 0, &attrs, (int[]){y[of], weight, normed});
		g_op(c, OP_add, l, 0, NULL, (int[]){x, normed, sum});
		x = sum;
	}
	return x;
}

static void norms_after_what_they_norm(void **state)
{
	(void)state;
	for (int t = 0; t < n_target_table; t++)
		for (int is_alone = 0; is_alone < 2; is_alone++) {
			Compile c;
			synthetic_model(&c, "llama");
			c.cmd.random_weights = true;
			c.cmd.targets[0] = target_table[t].name;
			c.model.options.no_fusion = is_alone;
			c.graph = (Graph){.family = "llama", .n_layers = 2, .vocab = 40, .hidden_dim = 64, .slots = 4,
				.max_context = 128, .page = 16, .pages = 32, .max_pages = 8, .prompt_grid = 16, .bos_token = -1,
				.n_stop_tokens = 1, .stop_tokens = (int[]){2}, .top_p = 1, .repetition_penalty = 1};
			StepTensors s;
			DecoderEnds ends;
			g_begin(&c, "model", &s, &ends);
			for (int l = 0; l < c.graph.n_layers; l++)
				ends.x = post_norm_layer(&c, &s, l, ends.x);
			g_head(&c, "model", &attrs, &s, &ends);
			g_acquire(&c, &s);
			assert_int_equal(c.diags.n_errors, 0);
			assert_true(lowered(&c, target_table[t].name) > 0);
			check_lowered(&c);
			synthetic_free(&c);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_has_a_kernel_alone),
		cmocka_unit_test(norms_after_what_they_norm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
