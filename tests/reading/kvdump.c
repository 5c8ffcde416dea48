/* kvdump.c - the caches of a checkpoint's graph.
 *
 *   kvdump FOLDER    for each layer: "LAYER DTYPE [ELEMENTS A RUN]: SCALES OF KEYS | SCALES OF VALUES", as %.9g
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

static void dump(const Compile *c, const GraphOp *op, const GraphOp *reader)
{
	const Tensor *kv = operand(c, op, "kv"), *scale = operand(c, op, "kv_scale"), *block = operand(c, op, "kv_block");
	if (operand(c, reader, "kv") != kv || operand(c, reader, "kv_scale") != scale
			|| operand(c, reader, "kv_block") != block)
		bug("layer %d: what is written is not what is read", op->layer);
	printf("%d %s", op->layer, dtype_name(kv->dtype));
	if (block)
		printf(" %lld", (long long)(kv->shape[4] / block->shape[4]));
	putchar(':');
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
