/* test_floor.c - every graph op alone has a kernel on every target, whatever is around it.
 *
 * A graph of one op is lowered and given kernels, with the operands that may be absent and without them. Then a decoder
 * with its norms after attention and after the MLP, each before the sum, and with norms over all of q and of k (the
 * form of OLMo-2), for which no fusion was written. Fusions find their ops by the data that flows between them.
 */
#include "artifacts/expr.h"
#include "compiler/graph/builder.h"
#include "tests/unit/synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const LayerSpec spec = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .kv = DT_bf16};

enum { BOTH = PHASE_PREFILL | PHASE_DECODE };

static const Attrs attrs = {.head_dim = 64, .n_heads = 4, .n_kv_heads = 2, .page = 16, .rotary_dim = 64, .eps = 1e-5f,
	.scale = 0.125f, .rope_factor = 1, .n_active = 2, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 64, .v_dim = 64,
	.n_taps = 3, .cap = 30, .factor = 2, .n_groups = 2, .top_groups = 1,
	.share_scale = 2.5f, .gate_limit = 7, .n_valid = 40, .ahead = 1};

/* Dims that ops.h names; those of the step's own tensors are the synthetic model's. */
static const ExprName dims[] = {{"K", 256}, {"N", 256}, {"M", 64}, {"J", 2}, {"G", 4}, {"E", 8}, {"C", 192}, {"H", 64},
	{"V", 40}, {"VOCAB", 40}, {"HDIM", 64}, {"NH", 4}, {"NKV", 2}, {"PAGE", 16}, {"PAGES", 32}, {"MAX_PAGES", 8},
	{"SLOTS", 4}, {"SEGS", 4}, {"ROTARY", 64}, {"TOPK", 2}, {"TAPS", 3}, {"NK", 2}, {"NV", 4}, {"DK", 64}, {"DV", 64},
	{"DRAFTS", 2}, {"STOPS", 1}, {"BLOCK_N", 128}, {"BLOCK_K", 128}};

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
	if (class_is_whole(op_table[op].operands[op_operand(op, name)].of))
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
	if (op == OP_scale_shares && strcmp(name, "y") == 0)
		return DT_f32;
	return op == OP_linear && strcmp(name, "y") == 0 ? result : DT_bf16;
}

/* Terms of a row of ops.h as dims of a tensor. */
static int shape_of(const char *row, int64_t *shape)
{
	int n = 0;
	char term[96], why[96];
	for (const char *list = row; expr_next(&list, term, sizeof term); n++) {
		const ExprEnv env = {dims, sizeof dims / sizeof dims[0], NULL};
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
				shape_of(operand_shape(op, i), shape), shape);
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
		for (int variant = 0; variant < 4 && (op_table[op].traits & (OP_GRAPH | OP_RANKS)) == OP_GRAPH; variant++) {
			const Dtype result = variant & 1 ? DT_f32 : DT_bf16;
			Compile c;
			if (variant & 1 && op != OP_linear)
				continue;
			synthetic_model(&c, "llama");
			c.cmd.n_targets = 0;
			for (int t = 0; t < n_target_table; t++) /* rows in e2m1 are for tensor cores that read them */
				if (op != OP_dequantise_fp4 || multiplies_fp4(&target_table[t]))
					c.cmd.targets[c.cmd.n_targets++] = target_table[t].name;
			const int n_targets = c.cmd.n_targets;
			one_op(&c, (OpKind)op, variant & 2, result);
			c.model.options.no_fusion = true;
			/* one prefill phase and two of decode for each target */
			const int n = lowered(&c, op_table[op].name);
			const bool are_experts = op == OP_experts || op == OP_experts_limited || op == OP_experts_gelu ||
				op == OP_experts_clamped;
			assert_int_equal(n, 3 * n_targets * (are_experts ? 4 : 1));
			synthetic_free(&c);
		}
}

typedef struct Form { bool is_shuffled, has_whole_norm; } Form;
typedef int LayerFn(Compile *c, const StepTensors *s, int l, int x, const Form *form);

/* A layer with its norms after what they norm. */
static int post_norm_layer(Compile *c, const StepTensors *s, int l, int x, const Form *form)
{
	static const char *const modules[] = {"q", "k", "v", "o", "gate", "up", "down"};
	static const int widths[] = {256, 128, 128, 64, 96, 96, 64};
	int y[7], n[2];
	(void)form;
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
	const Cache kv = g_cache(c, s, l, arena_printf(&c->arena, "model.layers.%d.self_attn", l), &spec);
	const int o = g_activation(c, arena_printf(&c->arena, "l%d.attn", l), 256);
	g_op(c, OP_kv_write, l, 0, &attrs, (int[]){s->step, n[1], y[2], s->row_slot, s->row_pos, kv.table, kv.kv,
		kv.scale, kv.block});
	g_op(c, OP_attention, l, 0, &attrs, (int[]){s->step, n[0], kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos,
		s->seg, kv.table, -1, o});
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

/* A decoder of such layers, with kernels. */
static void decoder(Compile *c, const char *target, LayerFn *layer, const Form *form, bool is_alone)
{
	StepTensors s;
	DecoderEnds ends;
	synthetic_model(c, "llama");
	c->cmd.random_weights = true;
	c->cmd.targets[0] = target;
	c->model.options.no_fusion = is_alone;
	c->graph = (Graph){.family = "llama", .n_layers = 2, .vocab = 40, .hidden_dim = 64, .slots = 4, .max_context = 128,
		.page = 16, .pages = 32, .max_pages = 8, .prompt_grid = 16, .bos_token = -1, .n_stop_tokens = 1,
		.stop_tokens = (int[]){2}, .top_p = 1, .repetition_penalty = 1};
	g_begin(c, "model", &s, &ends);
	for (int l = 0; l < c->graph.n_layers; l++)
		ends.x = layer(c, &s, l, ends.x, form);
	g_head(c, "model", &attrs, &s, &ends);
	g_acquire(c, &s);
	assert_int_equal(c->diags.n_errors, 0);
	assert_true(lowered(c, target) > 0);
	check_lowered(c);
}

static void norms_after_what_they_norm(void **state)
{
	(void)state;
	for (int t = 0; t < n_target_table; t++)
		for (int is_alone = 0; is_alone < 2; is_alone++) {
			Compile c;
			decoder(&c, target_table[t].name, post_norm_layer, NULL, is_alone);
			synthetic_free(&c);
		}
}

/* Attention with its norm before it: ops in another order, others between them; or a norm over all of q and of k. */
static int attention_layer(Compile *c, const StepTensors *s, int l, int x, const Form *form)
{
	static const char *const names[] = {"q", "k", "v", "o"};
	static const int64_t widths[] = {256, 128, 128, 64};
	const char *modules[4];
	Product w[4];
	int y[4], turned[2];
	for (int i = 0; i < 4; i++) {
		modules[i] = arena_printf(&c->arena, "model.layers.%d.%s", l, names[i]);
		y[i] = g_activation(c, arena_printf(&c->arena, "l%d.%s", l, names[i]), widths[i]);
	}
	g_products(c, 3, modules, widths, 64, w);
	g_products(c, 1, modules + 3, widths + 3, 256, w + 3);
	const int norm = g_weight(c, arena_printf(&c->arena, "model.layers.%d.norm.weight", l), 1, 64, 0);
	const int n = g_activation(c, arena_printf(&c->arena, "l%d.n", l), 64);
	g_op(c, OP_rmsnorm, l, 0, &attrs, (int[]){x, norm, n});
	const int twice = g_activation(c, arena_printf(&c->arena, "l%d.twice", l), 64);
	for (int i = 0; i < 3; i++) {
		g_linear(c, l, 0, &w[i], n, -1, y[i]);
		if (i == 1 && form->is_shuffled)
			g_op(c, OP_add, l, 0, NULL, (int[]){x, x, twice});
	}
	const float inv_freq[32] = {1};
	const int turns = g_constant(c, arena_printf(&c->arena, "turns.%d", l), DT_f32, 32, inv_freq);
	for (int i = 0; i < 2; i++) {
		const int k = form->is_shuffled ? 1 - i : i;
		int from = y[k];
		if (form->has_whole_norm) {
			const int weight = g_weight(c, arena_printf(&c->arena, "model.layers.%d.%s_norm.weight", l, names[k]), 1,
				widths[k], 0);
			from = g_activation(c, arena_printf(&c->arena, "l%d.%s.norm", l, names[k]), widths[k]);
			g_op(c, OP_rmsnorm, l, 0, &attrs, (int[]){y[k], weight, from});
		}
		turned[k] = g_activation(c, arena_printf(&c->arena, "l%d.%s.rope", l, names[k]), widths[k]);
		g_op(c, OP_rope, l, 0, &attrs, (int[]){from, turns, s->row_pos, turned[k]});
	}
	const Cache kv = g_cache(c, s, l, arena_printf(&c->arena, "model.layers.%d.self_attn", l), &spec);
	const int o = g_activation(c, arena_printf(&c->arena, "l%d.attn", l), 256);
	g_op(c, OP_kv_write, l, 0, &attrs, (int[]){s->step, turned[1], y[2], s->row_slot, s->row_pos, kv.table, kv.kv,
		kv.scale, kv.block});
	g_op(c, OP_attention, l, 0, &attrs, (int[]){s->step, turned[0], kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos,
		s->seg, kv.table, -1, o});
	g_linear(c, l, 0, &w[3], o, -1, y[3]);
	const int sum = g_activation(c, arena_printf(&c->arena, "l%d.out", l), 64);
	g_op(c, OP_add, l, 0, NULL, (int[]){form->is_shuffled ? twice : x, y[3], sum});
	return sum;
}

/* The ops of layer 0 in the smallest decode phase, by name. */
static const char *ops_of_layer(Compile *c)
{
	const char *text = "";
	for (int p = 0; p < c->work.at[0].phases.n; p++) {
		const Lowered *low = &c->work.at[0].phases.at[p];
		for (int i = 0; i < low->ops.n && low->kind == DECODE && low->rows == 1; i++)
			if (low->ops.at[i].layer == 0)
				text = arena_printf(&c->arena, "%s%s%s", text, *text ? " " : "", op_table[low->ops.at[i].kind].name);
	}
	return text;
}

/* What the ledger says of the chosen kernel of that op in a decode phase. */
static const char *reason_of(const Compile *c, OpKind op)
{
	for (int i = 0; i < c->work.at[0].ledger.n; i++) {
		const Slot *s = &c->work.at[0].ledger.at[i];
		for (int k = 0; k < s->n_candidates && s->op == op && s->phase == DECODE; k++)
			if (s->candidates[k].verdict == CHOSEN)
				return s->candidates[k].reason;
	}
	return "no such op";
}

static void fusions_follow_the_data(void **state)
{
	(void)state;
	const Form plain = {false, false}, shuffled = {true, false}, whole = {false, true};
	Compile c;
	decoder(&c, "sm_90a", attention_layer, &plain, false);
	assert_string_equal(ops_of_layer(&c), "norm_linear attention_step linear_residual");
	assert_string_equal(reason_of(&c, OP_attention_step), "");
	synthetic_free(&c);
	decoder(&c, "sm_90a", attention_layer, &shuffled, false);
	assert_string_equal(ops_of_layer(&c), "norm_linear add attention_step linear_residual");
	assert_string_equal(reason_of(&c, OP_add), "");
	synthetic_free(&c);
	decoder(&c, "sm_90a", attention_layer, &whole, false);
	assert_string_equal(ops_of_layer(&c), "norm_linear attention_step linear_residual");
	synthetic_free(&c);
	decoder(&c, "sm_90a", attention_layer, &plain, true);
	assert_string_equal(reason_of(&c, OP_rope), "not fused: kernels.fuse = false");
	synthetic_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_has_a_kernel_alone),
		cmocka_unit_test(norms_after_what_they_norm),
		cmocka_unit_test(fusions_follow_the_data),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
