/* rolling.c - caches that hold a window of positions and no more (rolling.h). */
#include "artifacts/rolling.h"
#include "artifacts/op_table.h"

enum { TILE = 128 }; /* the most positions that a kernel reads at a time; it begins at a multiple of as many */

/* Positions before a row's own whose keys must be there. */
static int back(int window) { return window - 1 + TILE - 1; }

/* What is written takes the place of what is pages * page positions before. */
int rolling_pages(int window, int rows, int page) { return (back(window) + rows + page - 1) / page; }

int rolling_rows(const Rolling *r) { return r->pages * r->page - back(r->window); }

int rolling_kept(int window, int page) { return (back(window) + page - 1) / page; }

static int operand_of(const GraphOp *op, const char *name)
{
	const int i = op_operand(op->kind, name);
	return i < 0 ? -1 : op->operands[i];
}

bool op_is_rolling(const Graph *g, int i)
{
	const int table = operand_of(&g->ops[i], "page_table");
	return table >= 0 && g->tensors[table].role == ROLE_WEIGHT;
}

Rolling rolling_of(const Graph *g)
{
	Rolling r = {.table = -1, .page = g->page};
	for (int i = 0; i < g->n_ops; i++) {
		if (!op_is_rolling(g, i))
			continue;
		r.table = operand_of(&g->ops[i], "page_table");
		r.pages = (int)(g->tensors[operand_of(&g->ops[i], "kv")].shape[0] / g->slots);
		r.window = g->ops[i].attrs.window > r.window ? g->ops[i].attrs.window : r.window;
	}
	return r;
}

int rolling_caches(const Graph *g, int i, int caches[2])
{
	int n = 0;
	if (g->ops[i].kind != OP_kv_write || !op_is_rolling(g, i))
		return 0;
	caches[n++] = operand_of(&g->ops[i], "kv");
	caches[n] = operand_of(&g->ops[i], "kv_block");
	return n + (caches[n] >= 0);
}

int64_t rolling_page_bytes(const Graph *g, int tensor)
{
	const Tensor *t = &g->tensors[tensor];
	int64_t elements = 1;
	for (int d = 1; d < t->n_dims; d++)
		elements *= t->shape[d];
	return dtype_span(t->dtype, elements);
}

RollingSpan rolling_span(const Rolling *r, int position)
{
	const int end = position / r->page, kept = rolling_kept(r->window, r->page);
	const int n = end < kept ? end : kept, at = (end - n) % r->pages;
	return (RollingSpan){n, at, n < r->pages - at ? n : r->pages - at};
}
