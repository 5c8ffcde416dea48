/* ref_run.c - one call of the reference, from stdin to stdout, for tests/cpu/test_ref_ops.py.
 *
 * Header, one item a line:  op NAME [PARTS] | attr NAME VALUE | arg DTYPE DIM... | arg -  | end
 * or `models NAME`: that operand, which comes as f32, stands for bf16; or `ranks N`: the first operand has
 * another dim in front, one for each rank that takes part.
 * Then the bytes of the operands, in the order of the op's row. Answers with the bytes of those
 * that the op may write, in the same order. With PARTS > 1 the call is made in that many parts, the
 * last one first.
 */
#include "runtime/cpu/ref_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "ref_run: %s\n", what);
		exit(2);
	}
}

static void set_attr(Attrs *attrs, const char *name, double value)
{
#define ATTR(NAME, field, type, meaning)                                                           \
	if (strcmp(name, #NAME) == 0) {                                                                \
		attrs->field = (type)value;                                                                \
		return;                                                                                    \
	}
#include "artifacts/attrs.h"
#undef ATTR
	need(0, "unknown attribute");
}

static size_t bytes_of(const RefOperand *r)
{
	int64_t n = 1;
	for (int i = 0; i < r->n_dims; i++)
		n *= r->shape[i];
	return (size_t)dtype_span(r->dtype, n);
}

static int read_header(RefCall *c)
{
	char line[512];
	int n = 0, parts = 1;
	while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
		char *word = strtok(line, " \n"), *name = strtok(NULL, " \n");
		if (strcmp(word, "op") == 0) {
			need(op_from_name(name, &c->op), "unknown op");
			char *count = strtok(NULL, " \n");
			parts = count ? atoi(count) : 1;
		} else if (strcmp(word, "attr") == 0) {
			set_attr(&c->attrs, name, strtod(strtok(NULL, " \n"), NULL));
		} else if (strcmp(word, "models") == 0) {
			c->operand[op_operand(c->op, name)].is_bf16 = true;
		} else if (strcmp(word, "ranks") == 0) {
			c->n_ranks = atoi(name);
		} else if (strcmp(name, "-") == 0) {
			n++;
		} else {
			RefOperand *r = &c->operand[n++];
			need(dtype_from_name(name, &r->dtype), "unknown dtype");
			for (char *dim; (dim = strtok(NULL, " \n"));)
				r->shape[r->n_dims++] = atoll(dim);
		}
	}
	need(n == op_table[c->op].n_operands, "wrong number of operands");
	return parts;
}

/* The first operand is what all ranks give, one after the other. */
static void split_ranks(RefCall *c, const void *data[PLAN_MAX_RANKS])
{
	RefOperand *r = &c->operand[0];
	need(c->n_ranks <= PLAN_MAX_RANKS && r->n_dims == 3 && r->shape[0] == c->n_ranks, "no operand of each rank");
	for (int i = 0; i < c->n_ranks; i++)
		data[i] = (const char *)r->data + bytes_of(r) / (size_t)c->n_ranks * (size_t)i;
	r->n_dims = 2;
	memmove(r->shape, r->shape + 1, 2 * sizeof *r->shape);
	c->ranks = data;
}

int main(void)
{
	const void *of_ranks[PLAN_MAX_RANKS];
	RefCall c = {0};
	int parts = read_header(&c);
	const OpInfo *op = &op_table[c.op];
	for (int i = 0; i < op->n_operands; i++) {
		RefOperand *r = &c.operand[i];
		size_t n = r->n_dims ? bytes_of(r) : 0;
		if (!r->n_dims)
			continue;
		/* one byte off every alignment, as checkpoint files may be, for raw operands; exact end for
		 * sanitizers */
		size_t shift = r->dtype == DT_bf16 || r->dtype == DT_f16;
		char *block = malloc(n + shift);
		need(block != NULL, "no memory");
		r->data = block + shift;
		need(fread(r->data, 1, n, stdin) == n, "operands are cut short");
	}
	if (c.n_ranks)
		split_ranks(&c, of_ranks);
	for (int part = parts - 1; part >= 0; part--) {
		c.part = part;
		c.parts = parts > 1 ? parts : 0;
		c.scratch = malloc(ref_scratch_bytes(&c));
		ref_op(&c);
		free(c.scratch);
	}
	for (int i = 0; i < op->n_operands; i++) {
		const RefOperand *r = &c.operand[i];
		if (op->operands[i].role >= OPERAND_INOUT && r->data)
			fwrite(r->data, 1, bytes_of(r), stdout);
		if (r->data)
			free((char *)r->data - (r->dtype == DT_bf16 || r->dtype == DT_f16));
	}
	return fflush(stdout) != 0;
}
