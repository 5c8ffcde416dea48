/* shape_check.c - do tensors fit the row of their op in ops.h?
 *
 * A row's shape is a list of terms, "ROWS, (NH + 2 * NKV) * HDIM". Some names have one value in the whole graph
 * (OUTS, SLOTS, PAGE, ...), some are attributes of the op, and the others are local: the first operand that has
 * such a name as a whole term gives its value. ROWS is local too, and is then either the rows or the outs of the
 * step, since a norm runs over both. Then every term is evaluated and compared. A term with a name that nothing
 * decides (an attribute, where the caller has none) is not compared.
 */
#include "artifacts/expr.h"
#include "artifacts/reader.h"

#include <string.h>

enum { MAX_NAMES = 24, NAME_BYTES = 16, TERM_BYTES = 96 };

typedef struct Env {
	int n;
	ExprName names[MAX_NAMES];
	char text[MAX_NAMES][NAME_BYTES];
	bool is_known; /* every name of the term that is looked at */
} Env;

static bool find(const Env *e, const char *name, size_t n, int64_t *value)
{
	return env_find(&(ExprEnv){e->names, e->n, NULL}, name, n, value);
}

static void define(Env *e, const char *name, int64_t value)
{
	const size_t n = strlen(name);
	int64_t before;
	if (e->n == MAX_NAMES || n >= NAME_BYTES || find(e, name, n, &before))
		return;
	memcpy(e->text[e->n], name, n + 1);
	e->names[e->n] = (ExprName){e->text[e->n], value};
	e->n++;
}

static bool is_name(const char *term) { return *term && term[strspn(term, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")] == 0; }

static void see_name(void *ctx, const char *name, int n)
{
	Env *e = ctx;
	int64_t value;
	e->is_known &= find(e, name, (size_t)n, &value);
}

/* Is the term `have`, if it is known? One that has no value, as a block of size 0 has none, is nothing. */
static bool is_term(Env *e, const char *term, int64_t have)
{
	char why[64];
	int64_t want;
	e->is_known = true;
	if (expr_names(term, see_name, e, why, sizeof why) && !e->is_known)
		return true;
	return expr_eval(term, &(ExprEnv){e->names, e->n, NULL}, &want, why, sizeof why) && want == have;
}

static void define_globals(Env *e, const Graph *g, const OpShapes *s)
{
	const struct { const char *name; int64_t value; } fixed[] = {
		{"OUTS", s->outs}, {"SLOTS", g->slots}, {"SEGS", g->slots},
		{"PAGE", g->page}, {"MAX_PAGES", g->max_pages}};
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		define(e, fixed[i].name, fixed[i].value);
	for (int i = 0; s->attrs && i < n_attr_fields; i++) {
		const AttrField *f = &attr_fields[i];
		int value;
		memcpy(&value, (const char *)s->attrs + f->offset, sizeof value);
		if (f->kind == F_INT && op_has_attr(s->op, f->label))
			define(e, f->label, value);
	}
}

/* For each term of each present operand: defines its name, or compares it. False when one differs, or their number. */
static bool each_term(const OpShapes *s, Env *e, bool compare, int *operand)
{
	const OpInfo *info = &op_table[s->op];
	char term[TERM_BYTES];
	for (*operand = 0; *operand < info->n_operands; ++*operand) {
		const char *list = operand_shape(s->op, *operand);
		const int n = s->n_dims[*operand];
		int d = 0;
		for (; n && expr_next(&list, term, sizeof term); d++) {
			if (d == n || (compare && !is_term(e, term, s->shape[*operand][d])))
				return false;
			if (!compare && is_name(term))
				define(e, term, s->shape[*operand][d]);
		}
		if (d != n)
			return false;
	}
	return true;
}

bool check_op_shapes(const Graph *g, const OpShapes *s, const char *what, Why *why)
{
	Env e = {0};
	int i;
	int64_t rows;
	define_globals(&e, g, s);
	if (s->attrs && op_has_attr(s->op, "PAGE") && s->attrs->page != g->page)
		return why_not(why, READ_MALFORMED, "%s: PAGE is %d, the graph's page has %d tokens", what,
			s->attrs->page, g->page);
	bool ok = each_term(s, &e, false, &i);
	if (ok && find(&e, "ROWS", 4, &rows) && rows != s->rows && rows != s->outs)
		return why_not(why, READ_MALFORMED, "%s: %lld rows, neither the step's nor its outs", what,
			(long long)rows);
	if (ok && each_term(s, &e, true, &i))
		return true;
	return why_not(why, READ_MALFORMED, "%s: operand %s does not have the shape [%s]", what,
		op_table[s->op].operands[i].name, operand_shape(s->op, i));
}
