/* test_ref_check.c - graphs that the reference must not execute.
 *
 * One op at a time, sound at first, then with one thing wrong.
 */
#include "artifacts/op_table.h"
#include "runtime/cpu/ref_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

typedef struct Case { /* a graph of one op */
	Tensor tensors[PLAN_MAX_OPERANDS];
	GraphOp op;
	Graph graph;
} Case;

static Tensor *add(Case *c, Role role, Dtype dtype, int64_t d0, int64_t d1)
{
	int at = c->graph.n_tensors++;
	c->tensors[at] = (Tensor){.name = "t",
		.dtype = dtype,
		.role = role,
		.n_dims = d1 ? 2 : 1,
		.shape = {d0, d1},
		.weight = role == ROLE_WEIGHT ? 0 : -1};
	c->op.operands[at] = at;
	return &c->tensors[at];
}

static void begin(Case *c, OpKind kind)
{
	*c = (Case){.op = {.kind = kind}};
	c->graph = (Graph){.vocab = 100, .slots = 4, .page = 16, .pages = 8, .max_pages = 2};
}

static const char *verdict(Case *c, char why[256])
{
	strcpy(why, "ok");
	c->graph.tensors = c->tensors;
	c->graph.ops = &c->op;
	c->graph.n_ops = 1;
	return ref_check(&c->graph, why, 256) ? "ok" : why;
}
#define EXPECT(c, text) assert_string_equal(verdict(c, why), text)

static void test_embed(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_embed);
	Tensor *token = add(&c, ROLE_INPUT, DT_i32, DIM_ROWS, 0),
		   *table = add(&c, ROLE_WEIGHT, DT_bf16, 100, 8);
	Tensor *x = add(&c, ROLE_ACTIVATION, DT_bf16, DIM_ROWS, 8);
	EXPECT(&c, "ok");
	token->dtype = DT_f32;
	EXPECT(&c, "graph op 0 (embed): row_token does not hold integers");
	token->dtype = DT_i32;
	table->shape[0] = 99;
	EXPECT(&c, "graph op 0 (embed): table is not as wide as the vocabulary");
	table->shape[0] = 100;
	x->dtype = DT_i32;
	EXPECT(&c, "graph op 0 (embed): x holds integers");
}

static void test_linear(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_linear);
	Tensor *x = add(&c, ROLE_ACTIVATION, DT_bf16, DIM_ROWS, 8);
	Tensor *w = add(&c, ROLE_WEIGHT, DT_f16, 100, 8);
	for (int i = op_operand(OP_linear, "w_scale"); i <= op_operand(OP_linear, "bias"); i++)
		c.op.operands[i] = -1;
	c.tensors[3] = (Tensor){
		.name = "y", .role = ROLE_ACTIVATION, .n_dims = 2, .shape = {DIM_ROWS, 100}};
	c.op.operands[op_operand(OP_linear, "y")] = 3;
	c.graph.n_tensors = 4;
	EXPECT(&c, "ok");
	w->dtype = DT_e2m1;
	EXPECT(&c, "ok");
	w->dtype = DT_u4;
	EXPECT(&c, "graph op 0 (linear): codes of u4 have no zeros");
	Tensor *scale = &c.tensors[4];
	*scale = (Tensor){.name = "scale", .role = ROLE_WEIGHT, .dtype = DT_e8m0, .n_dims = 2, .shape = {100, 1}};
	c.op.operands[op_operand(OP_linear, "w_scale")] = 4;
	c.graph.n_tensors = 5;
	EXPECT(&c, "graph op 0 (linear): codes of u4 have no zeros");
	scale->dtype = DT_f32z;
	EXPECT(&c, "ok");
	w->dtype = DT_e4m3;
	EXPECT(&c, "graph op 0 (linear): zeros without u4 codes");
	c.op.operands[op_operand(OP_linear, "w_scale")] = -1;
	w->dtype = DT_i32;
	EXPECT(&c, "graph op 0 (linear): w holds integers");
	w->dtype = DT_e4m3;
	x->role = ROLE_WEIGHT;
	EXPECT(&c, "graph op 0 (linear): x is a narrow weight where activations belong");
	x->dtype = DT_e4m3;
	EXPECT(&c, "graph op 0 (linear): x is a narrow weight where activations belong");
}

static void test_heads(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_rope);
	c.op.attrs = (Attrs){.head_dim = 16, .rotary_dim = 8, .rope_factor = 1};
	Tensor *x = add(&c, ROLE_ACTIVATION, DT_bf16, DIM_ROWS, 48);
	add(&c, ROLE_WEIGHT, DT_f32, 4, 0);
	add(&c, ROLE_INPUT, DT_i32, DIM_ROWS, 0);
	add(&c, ROLE_ACTIVATION, DT_bf16, DIM_ROWS, 48);
	EXPECT(&c, "ok");
	x->shape[1] = 40;
	EXPECT(&c, "graph op 0 (rope): a row is not a whole number of heads");
	x->shape[1] = 48;
	c.op.attrs.rotary_dim = 18;
	EXPECT(&c, "graph op 0 (rope): ROTARY is not between 0 and HDIM");
	c.op.attrs.rotary_dim = 16;
	c.op.attrs.rotate = 1;
	EXPECT(&c, "ok");
	c.op.attrs.rotate = 2;
	EXPECT(&c, "graph op 0 (rope): ROTATE is neither 0 nor 1");
	c.op.attrs = (Attrs){.rotary_dim = 0};
	EXPECT(&c, "graph op 0 (rope): HDIM is not positive");

	begin(&c, OP_attention);
	c.op.attrs = (Attrs){.head_dim = 16, .n_heads = 9, .n_kv_heads = 2, .page = 16};
	add(&c, ROLE_INPUT, DT_i32, 4, 0);
	EXPECT(&c, "graph op 0 (attention): NH is not a multiple of NKV");
	c.op.attrs.n_kv_heads = 0;
	EXPECT(&c, "graph op 0 (attention): NKV is not positive");
	c.op.attrs.n_kv_heads = 3;
	c.op.attrs.window = -1;
	EXPECT(&c, "graph op 0 (attention): WINDOW is negative");
}

/* A cache of codes and its scales. */
static void test_kv_codes(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_kv_write);
	c.op.attrs = (Attrs){.head_dim = 32, .n_kv_heads = 2, .page = 16};
	for (int i = 0; i < op_table[OP_kv_write].n_operands; i++) {
		const char *name = op_table[OP_kv_write].operands[i].name;
		bool is_float = strchr("kv", name[0]) != NULL;
		add(&c, strcmp(name, "kv_scale") == 0 ? ROLE_WEIGHT : ROLE_STATE, is_float ? DT_f32 : DT_i32, 4, 0);
	}
	int *scale = &c.op.operands[op_operand(OP_kv_write, "kv_scale")],
		*block = &c.op.operands[op_operand(OP_kv_write, "kv_block")];
	Dtype *kv = &c.tensors[op_operand(OP_kv_write, "kv")].dtype;
	const int has_scale = *scale, has_block = *block;
	*kv = DT_e2m1;
	EXPECT(&c, "ok");
	*block = -1;
	EXPECT(&c, "graph op 0 (kv_write): codes of kv have no kv_block");
	*kv = DT_e4m3;
	EXPECT(&c, "ok");
	*scale = -1;
	EXPECT(&c, "graph op 0 (kv_write): codes of kv have no kv_scale");
	*kv = DT_bf16;
	EXPECT(&c, "ok");
	*scale = has_scale;
	EXPECT(&c, "graph op 0 (kv_write): kv_scale without codes");
	*kv = DT_e4m3;
	*block = has_block;
	EXPECT(&c, "graph op 0 (kv_write): kv_block without 4-bit codes");
	*kv = DT_e2m1;
	c.op.attrs.head_dim = 24;
	EXPECT(&c, "graph op 0 (kv_write): HDIM is not a multiple of 16, the size of a scale block");
}

/* Drafts may be drawn from fewer columns than there are ids, not from more; counts are of all ids. */
static void test_draw(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_draw);
	c.op.attrs.n_valid = 60;
	c.op.attrs.ahead = 2;
	const int logits = op_operand(OP_draw, "logits"), ids = op_operand(OP_draw, "ids"),
		counts = op_operand(OP_draw, "counts");
	for (int i = 0; i < op_table[OP_draw].n_operands; i++)
		add(&c, ROLE_STATE, i == logits || strcmp(op_table[OP_draw].operands[i].name, "sampling") == 0 ||
			strcmp(op_table[OP_draw].operands[i].name, "drawn_logprob") == 0 ? DT_f32 : DT_i32, i == ids ? 60 : 4,
			i == logits ? 60 : i == counts ? 100 : i == ids ? 0 : 8);
	EXPECT(&c, "ok");
	c.op.attrs.n_valid = 61;
	EXPECT(&c, "graph op 0 (draw): N_VALID is not between 1 and the columns of logits");
	c.op.attrs.n_valid = 60;
	c.tensors[logits].shape[1] = 101;
	EXPECT(&c, "graph op 0 (draw): logits is wider than the vocabulary");
	c.tensors[logits].shape[1] = 60;
	c.tensors[counts].shape[1] = 60;
	EXPECT(&c, "graph op 0 (draw): counts is not as wide as the vocabulary");
	c.tensors[counts].shape[1] = 100;
	c.tensors[ids].dtype = DT_f32;
	EXPECT(&c, "graph op 0 (draw): ids does not hold integers");
}

static void test_sample(void **state)
{
	(void)state;
	char why[256];
	Case c;
	begin(&c, OP_sample);
	c.op.attrs.n_valid = 100;
	const struct {
		Dtype dtype;
		int64_t d0, d1;
	} operands[] = {{DT_i32, 4, 0}, {DT_f32, DIM_OUTS, 100}, {DT_i32, DIM_OUTS, 0},
		{DT_i32, DIM_ROWS, 0}, {DT_i32, DIM_ROWS, 0}, {DT_f32, 4, 8}, {DT_i32, 4, 8},
		{DT_i32, 4, 1536}, {DT_i32, 4, 4}, {DT_i32, 1, 0}, {DT_i32, 4, 100}, {DT_i32, 4, 0}, {DT_i32, 4, 0},
		{DT_i32, 4, 256}};
	for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
		add(&c, ROLE_STATE, operands[i].dtype, operands[i].d0, operands[i].d1);
	assert_int_equal(c.graph.n_tensors, op_table[OP_sample].n_operands);
	EXPECT(&c, "ok");
	c.op.attrs.n_valid = 101;
	EXPECT(&c, "graph op 0 (sample): N_VALID is not between 1 and the columns of logits");
	c.op.attrs.n_valid = 0;
	EXPECT(&c, "graph op 0 (sample): N_VALID is not between 1 and the columns of logits");
	c.op.attrs.n_valid = 1;
	c.tensors[10].shape[1] = 64;
	EXPECT(&c, "graph op 0 (sample): counts is not as wide as the vocabulary");
	c.tensors[10].shape[1] = 100;
	c.tensors[6].dtype = DT_f32;
	EXPECT(&c, "graph op 0 (sample): limits does not hold integers");
	c.tensors[6].dtype = DT_i32;
	c.tensors[7].dtype = DT_f32;
	EXPECT(&c, "graph op 0 (sample): rules does not hold integers");
	c.tensors[7].dtype = DT_i32;
	c.tensors[13].dtype = DT_f32;
	EXPECT(&c, "graph op 0 (sample): ring does not hold integers");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_embed),
		cmocka_unit_test(test_linear),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_kv_codes), cmocka_unit_test(test_draw), cmocka_unit_test(test_sample),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
