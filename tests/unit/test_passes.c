/* test_passes.c - build-graph, fuse, pick-kernels, plan-memory and schedule on a model without files. */
#include "artifacts/op_table.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static Lowered *phase_of(Compile *c, PhaseKind kind, int rows)
{
	for (int i = 0; i < c->work.at[0].phases.n; i++) {
		Lowered *low = &c->work.at[0].phases.at[i];
		if (low->kind == kind && low->rows == rows)
			return low;
	}
	fail_msg("no phase %s of %d rows", phase_name(kind), rows);
	return NULL;
}

static void expect_ops(const Lowered *low, int layer, const char *expected)
{
	char seen[512] = "";
	for (int i = 0; i < low->ops.n; i++)
		if (low->ops.at[i].layer == layer) {
			strcat(seen, *seen ? " " : "");
			strcat(seen, op_table[low->ops.at[i].kind].name);
		}
	assert_string_equal(seen, expected);
}

static void decode_is_five_launches_a_layer(void **state)
{
	static const char *const types[] = {"llama", "mistral", "qwen2", "qwen3"};
	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		Compile c;
		synthetic_model(&c, types[i]);
		build_graph(&c);
		check_graph(&c);
		fuse(&c);
		check_lowered(&c);
		assert_int_equal(c.diags.n_errors, 0);
		const Lowered *low = phase_of(&c, DECODE, 1);
		for (int l = 0; l < 2; l++)
			expect_ops(low, l, "norm_linear attention_step linear_residual norm_swiglu linear_residual");
		expect_ops(low, -1, "embed_next");
		expect_ops(low, 2, "norm_logits sample_best");
		expect_ops(phase_of(&c, PREFILL, 32), 0,
			"norm_linear rope_write attention linear_residual norm_swiglu linear_residual");
		expect_ops(phase_of(&c, PREFILL, 32), -1, "embed_prompt");
		expect_ops(phase_of(&c, ACQUIRE, 0), -1, "acquire");
		expect_ops(phase_of(&c, PROBE, 8192), -1, "linear_residual read_probe read_probe");
		synthetic_free(&c);
	}
}

static void every_layer_output_is_marked(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	build_graph(&c);
	fuse(&c);
	const Lowered *low = phase_of(&c, DECODE, 4);
	int marked = 0;
	for (int i = 0; i < low->ops.n; i++)
		if (low->ops.at[i].produces_layer >= 0) {
			assert_int_equal(low->ops.at[i].produces_layer, marked++);
			assert_int_equal(low->ops.at[i].kind, OP_linear_residual);
		}
	assert_int_equal(marked, 2);
	synthetic_free(&c);
}

static void mixed_dtypes_are_not_joined_and_say_why(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	synthetic_dtype(&c, "model.layers.1.self_attn.k_proj.weight", DT_f32);
	build_graph(&c);
	fuse(&c);
	expect_ops(phase_of(&c, DECODE, 1), 0, "norm_linear attention_step linear_residual norm_swiglu linear_residual");
	pick_kernels(&c);
	assert_int_equal(c.diags.n_errors, 0);
	int n = 0;
	for (int i = 0; i < c.work.at[0].ledger.n; i++) {
		const Slot *slot = &c.work.at[0].ledger.at[i];
		for (int k = 0; k < slot->n_candidates; k++)
			n += slot->layer_first == 1 && slot->candidates[k].verdict == CHOSEN && slot->candidates[k].reason &&
				strcmp(slot->candidates[k].reason, "not fused: model.layers.1.self_attn.q_proj.weight is bf16 but "
					"model.layers.1.self_attn.k_proj.weight is f32: they cannot be read as one") == 0;
	}
	assert_true(n > 0);
	synthetic_free(&c);
}

static GraphOp *graph_op(Compile *c, OpKind kind, int nth)
{
	for (int i = 0; i < c->graph.n_ops; i++)
		if (c->graph.ops[i].kind == kind && nth-- == 0)
			return &c->graph.ops[i];
	fail_msg("too few ops of kind %d", kind);
	return NULL;
}

static int *operand_of(GraphOp *op, const char *name) { return &op->operands[op_operand(op->kind, name)]; }

static bool has_op(const Lowered *low, int layer, OpKind kind)
{
	bool found = false;
	for (int i = 0; i < low->ops.n; i++)
		found |= low->ops.at[i].layer == layer && low->ops.at[i].kind == kind;
	return found;
}

/* Kinds in a row are not enough: data must flow between them, and nobody else may read it. */
static void fusions_look_at_the_data(void **state)
{
	Compile c;
	(void)state;
	for (int mutant = 0; mutant < 10; mutant++) {
		OpKind gone = mutant == 4 ? OP_norm_swiglu : mutant == 5 ? OP_norm_logits : OP_attention_step;
		synthetic_model(&c, "qwen3");
		build_graph(&c);
		GraphOp *q_norm = graph_op(&c, OP_head_norm, 0), *q_rope = graph_op(&c, OP_rope, 0);
		GraphOp *k_rope = graph_op(&c, OP_rope, 1), *kv_write = graph_op(&c, OP_kv_write, 0);
		int row_token = *operand_of(graph_op(&c, OP_embed, 0), "row_token");
		if (mutant == 0)
			*operand_of(q_rope, "x") = *operand_of(q_norm, "x"); /* past the norm */
		if (mutant == 1)
			*operand_of(k_rope, "row_pos") = row_token;
		if (mutant == 2)
			*operand_of(kv_write, "k") = *operand_of(k_rope, "x"); /* past the rope */
		if (mutant == 3)
			*operand_of(k_rope, "inv_freq") = *operand_of(q_norm, "w");
		if (mutant == 4) { /* gate is read again, by the down projection's sum */
			GraphOp *swiglu = graph_op(&c, OP_swiglu, 0);
			*operand_of(graph_op(&c, OP_add, 1), "x") = *operand_of(swiglu, "gate");
		}
		if (mutant == 5) /* the gathered rows are read again, by the logits */
			*operand_of(graph_op(&c, OP_linear, 14), "x") = *operand_of(graph_op(&c, OP_gather, 0), "y");
		if (mutant == 6) /* attention looks elsewhere than the new keys went */
			*operand_of(graph_op(&c, OP_attention, 0), "row_pos") = row_token;
		if (mutant == 7) /* the turned q is read again, by the layer's sum */
			*operand_of(graph_op(&c, OP_add, 0), "x") = *operand_of(q_rope, "y");
		if (mutant == 8) /* positions are not what the state of slots says: attention_step makes them of that */
			*operand_of(graph_op(&c, OP_slot_rows, 0), "row_pos") = row_token;
		if (mutant == 9) /* keys are rotated, queries are not */
			k_rope->attrs.rotate = 1;
		fuse(&c);
		assert_false(has_op(phase_of(&c, DECODE, 1), mutant == 5 ? 2 : 0, gone));
		if (mutant != 5 && mutant != 8) /* the other layer is whole */
			assert_true(has_op(phase_of(&c, DECODE, 1), 1, gone));
		if (mutant < 4 || mutant == 9)
			assert_false(has_op(phase_of(&c, PREFILL, 32), 0, OP_rope_write));
		if (mutant == 6 || mutant == 8)
			assert_true(has_op(phase_of(&c, DECODE, 1), 0, OP_rope_write));
		synthetic_free(&c);
	}
}

static void missing_and_unread_tensors_are_named(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "qwen3");
	synthetic_family(&c, "llama"); /* q_norm and k_norm have no reader */
	build_graph(&c);
	assert_int_equal(c.diags.n_errors, 4);
	assert_int_equal(c.diags.list[0].code, A0604);
	assert_string_equal(c.diags.list[0].text, "tensor model.layers.0.self_attn.k_norm.weight [64] is not used by "
		"llama: list it under [weights] ignore if that is meant");
	synthetic_free(&c);
	synthetic_model(&c, "llama");
	synthetic_family(&c, "qwen3");
	build_graph(&c);
	assert_int_equal(c.diags.n_errors, 4);
	assert_int_equal(c.diags.list[0].code, A0601);
	assert_string_equal(c.diags.list[0].text,
		"tensor model.layers.0.self_attn.q_norm.weight is missing: qwen3 needs it with shape [64]");
	synthetic_free(&c);
	synthetic_model(&c, "llama");
	c.model.config.each.ffn_dim = 128;
	build_graph(&c);
	assert_int_equal(c.diags.n_errors, 6);
	assert_string_equal(c.diags.list[0].text,
		"tensor model.layers.0.mlp.gate_proj.weight has shape [96, 64]: config.json asks for [128, 64]");
	synthetic_free(&c);
}

/* Runs everything that needs no NVRTC; kernels are numbered as if each pick were one. */
static void compile_without_kernels(Compile *c)
{
	build_graph(c);
	fuse(c);
	pick_kernels(c);
	assert_int_equal(c->diags.n_errors, 0);
	TargetWork *w = &c->work.at[0];
	for (int i = 0; i < w->phases.n; i++)
		for (int k = 0; k < w->phases.at[i].picks.n; k++)
			w->phases.at[i].picks.at[k].kernel = w->plan.n_kernels++;
	w->plan.kernels = ARENA_ARRAY(&c->arena, Kernel, w->plan.n_kernels);
	for (int i = 0; i < w->plan.n_kernels; i++)
		w->plan.kernels[i].param_bytes = PLAN_MAX_PARAM_BYTES;
	plan_memory(c);
	schedule(c);
}

static void plan_holds_its_invariants(void **state)
{
	static const char *const types[] = {"llama", "qwen2", "qwen3"};
	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		Compile c;
		synthetic_model(&c, types[i]);
		compile_without_kernels(&c);
		check_plan(&c);
		synthetic_free(&c);
	}
}

static void buffers_that_share_a_place_are_ordered(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	compile_without_kernels(&c);
	int shared = 0;
	for (int p = 0; p < c.work.at[0].plan.n_phases; p++) {
		const Phase *phase = &c.work.at[0].plan.phases[p];
		for (int a = 0; a < phase->n_bufs; a++)
			for (int b = 0; b < a; b++) {
				const Buf *x = &phase->bufs[a], *y = &phase->bufs[b];
				if (x->arena != ARENA_SCRATCH || y->arena != ARENA_SCRATCH)
					continue;
				bool overlap = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
				shared += overlap;
				if (overlap) /* never alive at once */
					assert_true(x->first > y->last || y->first > x->last);
			}
	}
	assert_true(shared > 0); /* the packing does reuse memory */
	synthetic_free(&c);
}

static void arenas_beyond_any_card_are_refused(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	c.model.options.max_context = 5 << 20;
	c.model.options.slots = 1024;
	c.model.options.at_max_context = (Loc){"m/MODEL.toml", 3, 15};
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	assert_int_equal(c.diags.n_errors, 0);
	plan_memory(&c);
	assert_int_equal(c.diags.n_errors, 1);
	assert_int_equal(c.diags.list[0].code, A0801);
	assert_int_equal(c.diags.list[0].at.line, 3);
	assert_string_equal(c.diags.list[0].at.file, "m/MODEL.toml");
	/* 5 Mi x 1024 tokens of 1 KiB, and page tables */
	assert_int_equal(c.work.at[0].plan.arena_bytes[ARENA_STATE] >> 30, 5121);
	assert_non_null(strstr(c.diags.list[0].text, "state arena of sm_90a: "));
	assert_non_null(strstr(c.diags.list[0].text, "see slots, max_context or pool_tokens"));
	synthetic_free(&c);
}

static void joined_weights_stand_without_gaps(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "qwen2");
	compile_without_kernels(&c);
	const Graph *g = &c.graph;
	int checked = 0;
	for (int i = 1; i < g->n_weights; i++)
		if (strstr(g->weights[i].name, "k_proj") || strstr(g->weights[i].name, "v_proj")) {
			assert_int_equal(g->weights[i].offset, g->weights[i - 1].offset + g->weights[i - 1].bytes);
			checked++;
		}
	assert_int_equal(checked, 2 * 4);
	for (int i = 0; i < g->n_weights; i++)
		if (strstr(g->weights[i].name, "q_proj") || strstr(g->weights[i].name, "norm"))
			assert_int_equal(g->weights[i].offset % PLAN_BUF_ALIGN, 0);
	synthetic_free(&c);
}

/* Dims that a kernel decides: open in the ledger, since candidates differ there, settled in the plan, and the same for
 * who reads what it writes. */
static void kernels_decide_shapes(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	compile_without_kernels(&c);
	const Lowered *low = phase_of(&c, DECODE, 1);
	int seen = 0;
	for (int i = 0; i < low->ops.n; i++) {
		const LOp *op = &low->ops.at[i];
		const char *ledger = c.work.at[0].ledger.at[low->picks.at[op->pick].slot].operands;
		if (op->kind == OP_attention_step) {
			const LTensor *part = &low->tensors.at[op->operands[op_operand(op->kind, "part")]];
			char splits[32];
			snprintf(splits, sizeof splits, "SPLITS=%lld ", (long long)part->shape[2]);
			assert_true(part->shape[2] > 0);
			assert_non_null(strstr(low->picks.at[op->pick].defines, splits));
			assert_non_null(strstr(ledger, ",*,"));
			seen++;
		}
		if (op->kind == OP_sample_best) {
			const LTensor *best = &low->tensors.at[op->operands[op_operand(op->kind, "best")]];
			const LOp *head = &low->ops.at[i - 1];
			assert_int_equal(op->operands[op_operand(op->kind, "best")],
				head->operands[op_operand(head->kind, "best")]);
			assert_true(best->shape[1] > 0);
			seen++;
		}
	}
	assert_int_equal(seen, 3); /* two layers, one head */
	synthetic_free(&c);
}

static void bans_and_pins_decide(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	KernelRule ban = {.is_pin = false, .template_name = "stream_norm", .layer_first = 1, .layer_last = 1,
		.at = {"MODEL.toml", 7, 1}};
	*vec_push(&c.arena, &c.model.options.rules) = ban;
	ban.template_name = "gemm_norm";
	ban.at.line = 9;
	*vec_push(&c.arena, &c.model.options.rules) = ban;
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	assert_int_equal(c.diags.n_errors, 1); /* nothing else serves these rows: refused, never substituted */
	assert_string_equal(c.diags.list[0].text, "this ban of gemm_norm leaves no admissible kernel for norm_linear "
		"(prefill rows 32, all decode buckets, layer 1, sm_90a)\n    and the ban of stream_norm at MODEL.toml:7");
	assert_int_equal(c.diags.list[0].at.line, 9);
	synthetic_free(&c);

	synthetic_model(&c, "llama");
	*vec_push(&c.arena, &c.model.options.rules) = (KernelRule){.is_pin = true, .template_name = "stream_norm",
		.phase = "decode", .layer_first = 1, .layer_last = 1, .n_tunables = 3,
		.tunables = (RuleTunable[]){{"COLS", 64}, {"DEPTH", 4}, {"TILES", 2}}};
	compile_without_kernels(&c);
	int pinned = 0;
	for (int i = 0; i < c.work.at[0].ledger.n; i++) {
		const Slot *s = &c.work.at[0].ledger.at[i];
		for (int k = 0; k < s->n_candidates && s->op == OP_norm_linear; k++) {
			const Candidate *x = &s->candidates[k];
			bool here = s->phase == DECODE && s->layer_first == 1;
			bool is_it = strcmp(x->kernel, "stream_norm") == 0 &&
				strcmp(x->tunables, "TILES=2 COLS=64 DEPTH=4 CHAINS=2 SQUARES=0") == 0;
			pinned += here && is_it && x->verdict == CHOSEN && strcmp(x->cost_from, "pin") == 0;
			assert_true(x->verdict == REJECTED || x->verdict == PRUNED || (x->verdict == BANNED) == (here && !is_it));
		}
	}
	assert_int_equal(pinned, 2); /* decode[1], decode[4] */
	synthetic_free(&c);
}

/* Knobs that turn nothing are mistakes. */
static void rules_about_nothing_are_refused(void **state)
{
	static const struct { KernelRule rule; const char *text; } rows[] = {
		{{.is_pin = true, .template_name = "stream_norm", .phase = "acquire", .layer_first = -1, .layer_last = 2},
			"kernels.pin: no op in phase acquire is one for stream_norm"},
		{{.template_name = "sample", .layer_first = 0, .layer_last = 1},
			"kernels.ban: no op of layers 0 to 1 is one for sample"},
		{{.template_name = "stream_norm", .phase = "prefill", .layer_first = -1, .layer_last = 2}, NULL}};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		Compile c;
		synthetic_model(&c, "llama");
		*vec_push(&c.arena, &c.model.options.rules) = rows[i].rule;
		build_graph(&c);
		fuse(&c);
		pick_kernels(&c);
		assert_int_equal(c.diags.n_errors, rows[i].text != NULL);
		if (rows[i].text) {
			assert_int_equal(c.diags.list[0].code, A0702);
			assert_string_equal(c.diags.list[0].text, rows[i].text);
		}
		synthetic_free(&c);
	}
}

/* A rule that names layers is about these alone, be they all of them: what stands before and after is not a layer. */
static void rules_for_layers_leave_the_rest_alone(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	*vec_push(&c.arena, &c.model.options.rules) = (KernelRule){.is_pin = false, .template_name = "embed_next",
		.layer_first = 0, .layer_last = 1, .at = {"MODEL.toml", 7, 1}};
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	assert_int_equal(c.diags.n_errors, 1); /* the rule is about nothing; no op lacks a kernel */
	assert_int_equal(c.diags.list[0].code, A0702);
	synthetic_free(&c);
	synthetic_model(&c, "llama");
	*vec_push(&c.arena, &c.model.options.rules) = (KernelRule){.is_pin = false, .template_name = "embed_next",
		.layer_first = -1, .layer_last = 2, .at = {"MODEL.toml", 7, 1}};
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	assert_int_equal(c.diags.n_errors, 1); /* of decode[1] and decode[4] together */
	assert_non_null(strstr(c.diags.list[0].text, "before the layers"));
	synthetic_free(&c);
}

/* The sines of rope_write are good to a bound: a context past it is refused, not answered wrongly. */
static void contexts_past_the_sines_are_refused(void **state)
{
	Compile c;
	(void)state;
	for (int context = 5 << 20; context <= 6 << 20; context += 1 << 20) {
		synthetic_model(&c, "llama");
		c.model.options.max_context = context;
		build_graph(&c);
		fuse(&c);
		pick_kernels(&c);
		assert_int_equal(c.diags.n_errors, context == 6 << 20 ? 2 : 0);
		if (c.diags.n_errors)
			assert_non_null(strstr(c.diags.list[0].text,
				"rope_write: rejected MAX_PAGES * PAGE <= 6000000 is false: MAX_PAGES = 393216, PAGE = 16"));
		synthetic_free(&c);
	}
}

/* Each op that has no kernel once, however many layers, phases and buckets have it. */
static void equal_layers_are_refused_once(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	for (int l = 0; l < 2; l++)
		synthetic_dtype(&c, arena_printf(&c.arena, "model.layers.%d.self_attn.k_proj.weight", l), DT_i32);
	build_graph(&c);
	fuse(&c);
	pick_kernels(&c);
	assert_true(c.diags.n_errors > 0);
	for (int i = 0; i < c.diags.n; i++) {
		assert_null(strstr(c.diags.list[i].text, "layer 1,"));
		for (int k = 0; k < i; k++) {
			const char *a = c.diags.list[i].text, *b = c.diags.list[k].text; /* up to "(layer 0, decode rows 1" */
			assert_true(strcspn(a, "(") != strcspn(b, "(") || strncmp(a, b, strcspn(a, "(")) != 0);
		}
	}
	synthetic_free(&c);
}

static void every_rejection_has_its_operands(void **state)
{
	Compile c;
	(void)state;
	synthetic_model(&c, "llama");
	compile_without_kernels(&c);
	int rejected = 0;
	for (int i = 0; i < c.work.at[0].ledger.n; i++) {
		const Slot *s = &c.work.at[0].ledger.at[i];
		int chosen = 0;
		for (int k = 0; k < s->n_candidates; k++) {
			chosen += s->candidates[k].verdict == CHOSEN;
			if (s->candidates[k].verdict == REJECTED) {
				rejected++;
				assert_true(strlen(s->candidates[k].reason) > 0);
				if (strstr(s->candidates[k].reason, "is false:"))
					assert_non_null(strstr(s->candidates[k].reason, " = "));
			}
		}
		assert_int_equal(chosen, 1);
	}
	assert_true(rejected > 0);
	synthetic_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decode_is_five_launches_a_layer),
		cmocka_unit_test(every_layer_output_is_marked),
		cmocka_unit_test(mixed_dtypes_are_not_joined_and_say_why),
		cmocka_unit_test(fusions_look_at_the_data),
		cmocka_unit_test(missing_and_unread_tensors_are_named),
		cmocka_unit_test(plan_holds_its_invariants),
		cmocka_unit_test(buffers_that_share_a_place_are_ordered),
		cmocka_unit_test(arenas_beyond_any_card_are_refused),
		cmocka_unit_test(joined_weights_stand_without_gaps),
		cmocka_unit_test(kernels_decide_shapes),
		cmocka_unit_test(bans_and_pins_decide),
		cmocka_unit_test(rules_about_nothing_are_refused),
		cmocka_unit_test(rules_for_layers_leave_the_rest_alone),
		cmocka_unit_test(contexts_past_the_sines_are_refused),
		cmocka_unit_test(equal_layers_are_refused_once),
		cmocka_unit_test(every_rejection_has_its_operands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
