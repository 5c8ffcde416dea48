/* kvdump.c - the caches of a checkpoint's graph.
 *
 *   kvdump FOLDER    for each layer: "LAYER DTYPE [ELEMENTS A RUN] [rotated]: SCALES OF KEYS | OF VALUES", as %.9g
 *
 * Diagnostics go to stderr as in productdump.c. No kernel and no plan is needed.
 */
#include "artifacts/reader.h"
#include "tests/reading/graph_of.h"

#include <stdio.h>
#include <string.h>

static const float *constant(const Compile *c, int weight)
{
	for (int i = 0; i < c->constants.n; i++)
		if (c->constants.at[i].weight == weight)
			return c->constants.at[i].bytes;
	bug("%s is not made by the compiler", c->graph.weights[weight].name);
}

static const Tensor *operand(const Compile *c, const GraphOp *op, const char *name)
{
	int t = op->operands[op_operand(op->kind, name)];
	return t < 0 ? NULL : &c->graph.tensors[t];
}

/* Are keys and queries of the layer rotated? Both or neither. */
static bool is_rotated(const Compile *c, const GraphOp *op, const GraphOp *reader)
{
	int n[2] = {0};
	for (int i = 0; i < c->graph.n_ops; i++) {
		const GraphOp *rope = &c->graph.ops[i];
		const Tensor *y = rope->kind == OP_rope ? operand(c, rope, "y") : NULL;
		n[0] += y && y == operand(c, op, "k") && rope->attrs.rotate;
		n[1] += y && y == operand(c, reader, "q") && rope->attrs.rotate;
	}
	if (n[0] != n[1])
		bug("layer %d: only keys are rotated, or only queries", op->layer);
	return n[0];
}

static void dump(const Compile *c, const GraphOp *op, const GraphOp *reader)
{
	const Tensor *kv = operand(c, op, "kv"), *scale = operand(c, op, "kv_scale"), *block = operand(c, op, "kv_block");
	if (operand(c, reader, "kv") != kv || operand(c, reader, "kv_scale") != scale ||
			operand(c, reader, "kv_block") != block)
		bug("layer %d: what is written is not what is read", op->layer);
	printf("%d %s", op->layer, dtype_name(kv->dtype));
	if (block)
		printf(" %lld", (long long)(kv->shape[4] / block->shape[4]));
	fputs(is_rotated(c, op, reader) ? " rotated:" : ":", stdout);
	for (int64_t i = 0; scale && i < 2 * scale->shape[1]; i++)
		printf("%s %.9g", i == scale->shape[1] ? " |" : "", (double)constant(c, scale->weight)[i]);
	putchar('\n');
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	Compile c;
	bool good = graph_of(&c, argv[1]);
	for (int i = 0; good && i + 1 < c.graph.n_ops; i++)
		if (c.graph.ops[i].kind == OP_kv_write)
			dump(&c, &c.graph.ops[i], &c.graph.ops[i + 1]);
	free_graph(&c);
	return good ? 0 : 1;
}
