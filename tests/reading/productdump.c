/* productdump.c - the weights of all products of a checkpoint's graph, as the reference device understands them.
 *
 *   productdump FOLDER    for each linear: a line "NAME N K" with the tensor of its codes, then w [K,N] as f32
 *
 * The reading passes and build-graph make the graph; every op must have the shapes of its row; and each linear is then
 * executed on the rows of a unit matrix, which gives its weight, whatever its format. No kernel and no plan is needed.
 */
#include "artifacts/reader.h"
#include "compiler/graph/requant.h"
#include "compiler/text/input.h"
#include "runtime/cpu/ref_ops.h"
#include "tests/reading/graph_of.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_file(void *ctx, const Weight *w, int64_t at, void *dst, size_t n)
{
	Compile *c = ctx;
	for (int i = 0; i < c->model.shards.n; i++) {
		int64_t unused;
		if (strcmp(c->model.shards.at[i].name, w->file) != 0)
			continue;
		int fd = input_open(&c->diags, c->model.shards.at[i].path, false, &unused);
		if (fd < 0 || !input_pread(fd, dst, n, w->file_offset + at))
			bug("%s cannot be read", w->name);
		close(fd);
	}
	return true;
}

/* The product whose codes, or scales, are made of others. */
static const MadeProduct *made_of(const Compile *c, int weight)
{
	for (int i = 0; i < c->made.n; i++)
		if (c->made.at[i].codes == weight || c->made.at[i].scale == weight)
			return &c->made.at[i];
	return NULL;
}

static void *bytes_of(Compile *c, int weight)
{
	const Weight *w = &c->graph.weights[weight];
	void *raw = malloc((size_t)w->bytes); /* exact, so that a sanitizer sees a step too far */
	for (int i = 0; i < c->constants.n; i++)
		if (c->constants.at[i].weight == weight)
			return memcpy(raw, c->constants.at[i].bytes, (size_t)w->bytes);
	const MadeProduct *p = made_of(c, weight);
	const SourceReader reader = {read_file, c};
	Requant *r = requant_new(&c->arena);
	if (!(p ? requant_bytes(c, r, p, weight, 0, raw, (size_t)w->bytes, &reader)
			: read_file(c, w, 0, raw, (size_t)w->bytes)))
		bug("%s cannot be made", w->name);
	requant_release(r);
	return raw;
}

static void check_shapes(const Compile *c, const GraphOp *op)
{
	char text[256];
	Why why = {.text = text, .bytes = sizeof text};
	OpShapes s = {.op = op->kind, .attrs = &op->attrs, .rows = DIM_ROWS, .outs = DIM_OUTS};
	for (int i = 0; i < op_table[op->kind].n_operands; i++)
		if (op->operands[i] >= 0) {
			s.shape[i] = c->graph.tensors[op->operands[i]].shape;
			s.n_dims[i] = c->graph.tensors[op->operands[i]].n_dims;
		}
	if (!check_op_shapes(&c->graph, &s, op_table[op->kind].name, &why))
		bug("%s", text);
}

static void dump_linear(Compile *c, const GraphOp *op)
{
	RefCall call = {.op = OP_linear, .attrs = op->attrs};
	for (int i = op_operand(OP_linear, "w"); i <= op_operand(OP_linear, "w_row_scale"); i++) {
		if (op->operands[i] < 0)
			continue;
		const Tensor *t = &c->graph.tensors[op->operands[i]];
		call.operand[i] = (RefOperand){bytes_of(c, t->weight), t->dtype, t->n_dims, {t->shape[0], t->shape[1]}, false};
	}
	const Tensor *w = &c->graph.tensors[op->operands[op_operand(OP_linear, "w")]];
	const int64_t n = w->shape[0], k = w->shape[1];
	float *x = calloc((size_t)(k * k), sizeof *x), *y = malloc((size_t)(k * n) * sizeof *y);
	for (int64_t i = 0; i < k; i++)
		x[i * k + i] = 1;
	call.operand[op_operand(OP_linear, "x")] = (RefOperand){x, DT_f32, 2, {k, k}, false};
	call.operand[op_operand(OP_linear, "y")] = (RefOperand){y, DT_f32, 2, {k, n}, false};
	ref_op(&call);
	const MadeProduct *p = made_of(c, w->weight);
	printf("%s %lld %lld\n", p ? p->source.name : w->name, (long long)n, (long long)k);
	fwrite(y, sizeof *y, (size_t)(k * n), stdout);
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		free(call.operand[i].data);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	Compile c;
	bool good = graph_of(&c, argv[1]);
	for (int i = 0; good && i < c.graph.n_ops; i++) {
		check_shapes(&c, &c.graph.ops[i]);
		if (c.graph.ops[i].kind == OP_linear)
			dump_linear(&c, &c.graph.ops[i]);
	}
	free_graph(&c);
	return good ? 0 : 1;
}
