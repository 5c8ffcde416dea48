/* ref_shapes.c - checks a graph before the reference device trusts its shapes.
 *
 * The shapes in ops.h are short: a number, a dim, an attribute, or a product or quotient of them
 * such as "NKV * HDIM" or "ROTARY / 2". A name that is no attribute is a dim of the op: the first
 * operand that has it says its size, the others must agree; V, SLOTS, PAGES and MAX_PAGES are the
 * graph's own. ROWS and OUTS are dims too; their sizes are the markers DIM_ROWS and DIM_OUTS. Dims
 * of one name and integers of the session's interface are then what the functions expect.
 */
#include "runtime/cpu/ref_shapes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 16 };

typedef struct Names {
	const GraphOp *op;
	struct {
		char name[24];
		int64_t size;
	} at[MAX_NAMES];
	int n;
} Names;

/* Reads one name or number at *p; `seen` is the size the tensor has there, which binds a new name.
 */
static int64_t factor(Names *names, const char **p, int64_t seen)
{
	char word[24] = "";
	size_t n = 0;
	double value;
	bool is_float;
	while ((isalnum((unsigned char)**p) || **p == '_') && n + 1 < sizeof word)
		word[n++] = *(*p)++;
	if (isdigit((unsigned char)word[0])) {
		int64_t number = 0;
		for (const char *c = word; *c; c++)
			number = number * 10 + (*c - '0');
		return number;
	}
	if (op_has_attr(names->op->kind, word) &&
		attr_value(&names->op->attrs, word, &value, &is_float))
		return (int64_t)value;
	for (int i = 0; i < names->n; i++)
		if (strcmp(names->at[i].name, word) == 0)
			return names->at[i].size;
	if (names->n < MAX_NAMES) {
		memcpy(names->at[names->n].name, word, sizeof word);
		names->at[names->n++].size = seen;
	}
	return seen;
}

/* The size that the shape text at *p gives to one dim; *p is left behind its comma. */
static int64_t dim_size(Names *names, const char **p, int64_t seen)
{
	*p += strspn(*p, " ");
	int64_t value = factor(names, p, seen);
	for (;;) {
		*p += strspn(*p, " ");
		char sign = **p;
		if (sign != '*' && sign != '/')
			break;
		*p += 1 + strspn(*p + 1, " ");
		int64_t right = factor(names, p, seen);
		value = sign == '*' ? value * right : right ? value / right : -9;
	}
	*p += **p == ',';
	return value;
}

/* NULL, or what is wrong with the tensor as this operand. */
static const char *check_operand(Names *names, const OperandInfo *info, const Tensor *t)
{
	const char *p = info->shape;
	for (int i = 0; i < t->n_dims; i++) {
		if (!*p)
			return "has too many dims";
		if (dim_size(names, &p, t->shape[i]) != t->shape[i])
			return "has another shape than the other operands ask for";
	}
	return *p ? "has too few dims" : NULL;
}

static bool is_one_of(const char *name, const char *list)
{
	size_t n = strlen(name);
	for (const char *p = list; (p = strstr(p, name)); p += n)
		if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

/* Integers are where the reference reads integers; only weights may be narrower than float32. */
static const char *check_dtype(const OperandInfo *info, const Tensor *t)
{
	static const char integers[] =
		"step seg row_token row_slot row_pos out_row slot_token slot_len counts limits "
		"stop_tokens out_token out_done acquire new_limits new_pages page_table";
	static const char raw[] = "table w bias inv_freq";
	if ((t->dtype == DT_i32) != is_one_of(info->name, integers))
		return t->dtype == DT_i32 ? "holds integers" : "holds no integers";
	if (t->role == ROLE_WEIGHT && t->dtype != DT_f32 && t->dtype != DT_i32 &&
		!is_one_of(info->name, raw))
		return "is a weight in a place of activations";
	if (t->role == ROLE_WEIGHT && info->role != OPERAND_IN && info->role != OPERAND_IN_OPT)
		return "is a weight and would be written";
	return NULL;
}

static const char *check_attrs(const Graph *g, const GraphOp *op)
{
	const Attrs *a = &op->attrs;
	if (op_has_attr(op->kind, "HDIM") && a->head_dim <= 0)
		return "HDIM is not positive";
	if (op_has_attr(op->kind, "PAGE") && a->page != g->page)
		return "PAGE is not that of the graph";
	if (op_has_attr(op->kind, "NKV") && a->n_kv_heads <= 0)
		return "NKV is not positive";
	if (op_has_attr(op->kind, "NH") && (a->n_heads <= 0 || a->n_heads % a->n_kv_heads != 0))
		return "NH is not a multiple of NKV";
	if (op_has_attr(op->kind, "ROTARY") && (a->rotary_dim < 0 || a->rotary_dim > a->head_dim))
		return "ROTARY is not between 0 and HDIM";
	return NULL;
}

/* Relations that shapes do not express. */
static const char *check_relations(const Graph *g, const GraphOp *op)
{
	const Tensor *first = &g->tensors[op->operands[0]];
	if ((op->kind == OP_head_norm || op->kind == OP_rope) &&
		first->shape[1] % op->attrs.head_dim != 0)
		return "rows are no whole number of heads";
	const Tensor *logits = op->kind == OP_sample ? &g->tensors[op->operands[1]] : NULL;
	if (logits && (op->attrs.n_valid < 1 || op->attrs.n_valid > logits->shape[1]))
		return "N_VALID is not between 1 and V";
	return NULL;
}

bool ref_shapes_fit(const Graph *g, char *why, size_t why_bytes)
{
	for (int k = 0; k < g->n_ops; k++) {
		const GraphOp *op = &g->ops[k];
		const OpInfo *row = &op_table[op->kind];
		const char *name = "", *what = check_attrs(g, op);
		Names names = {op,
			{{"V", g->vocab}, {"SLOTS", g->slots}, {"PAGES", g->pages},
				{"MAX_PAGES", g->max_pages}},
			4};
		if (!(row->traits & OP_GRAPH))
			what = "is no op of graphs";
		for (int i = 0; i < row->n_operands && !what; i++) {
			name = row->operands[i].name;
			if (op->operands[i] >= 0) {
				const Tensor *t = &g->tensors[op->operands[i]];
				what = check_operand(&names, &row->operands[i], t);
				what = what ? what : check_dtype(&row->operands[i], t);
			} else if (row->operands[i].role != OPERAND_IN_OPT) {
				what = "is absent";
			}
		}
		if (!what) {
			name = "";
			what = check_relations(g, op);
		}
		if (what) {
			snprintf(why, why_bytes, "graph op %d, %s: %s%s%s", k, row->name, name,
				*name ? " " : "", what);
			return false;
		}
	}
	return true;
}
