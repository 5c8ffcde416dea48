/* shape_check.c - do tensors fit the row of their op in ops.h?
 *
 * A row's shape is a list of terms, "ROWS, (NH + 2 * NKV) * HDIM". Some names have one value in the whole graph
 * (OUTS, SLOTS, PAGES, ...), some are attributes of the op, and the others are local: the first operand that has
 * such a name as a whole term gives its value. ROWS is local too, and is then either the rows or the outs of the
 * step, since a norm runs over both. Then every term is evaluated and compared. A term with a name that nothing
 * decides (an attribute, where the caller has none) is not compared.
 */
#include "artifacts/reader.h"

#include <string.h>

enum { MAX_NAMES = 24, NAME_BYTES = 16 };

typedef struct Env {
	int n;
	struct { char name[NAME_BYTES]; int64_t value; } at[MAX_NAMES];
} Env;

typedef struct Term { /* evaluator over one term: + - * / ceil_div and parentheses */
	const Env *env;
	const char *p;
	bool known; /* every name had a value */
} Term;

static const int64_t *lookup(const Env *e, const char *name, size_t n)
{
	for (int i = 0; i < e->n; i++)
		if (strlen(e->at[i].name) == n && memcmp(e->at[i].name, name, n) == 0)
			return &e->at[i].value;
	return NULL;
}

static void define(Env *e, const char *name, size_t n, int64_t value)
{
	if (e->n == MAX_NAMES || n >= NAME_BYTES || lookup(e, name, n))
		return;
	memcpy(e->at[e->n].name, name, n);
	e->at[e->n].name[n] = 0;
	e->at[e->n++].value = value;
}

static size_t name_length(const char *p)
{
	size_t n = 0;
	while ((p[n] >= 'A' && p[n] <= 'Z') || p[n] == '_')
		n++;
	return n;
}

static int64_t sum(Term *t);

/* "ceil_div(" has been read. No block has a size of 0: such a quotient equals no dim. */
static int64_t quotient(Term *t)
{
	int64_t a = sum(t);
	t->p += *t->p == ',';
	int64_t b = sum(t);
	t->p += *t->p == ')';
	return a > 0 && b > 0 ? (a - 1) / b + 1 : 0;
}

static int64_t factor(Term *t)
{
	static const char ceil_div[] = "ceil_div(";
	int64_t v = 0;
	while (*t->p == ' ')
		t->p++;
	size_t n = name_length(t->p);
	if (strncmp(t->p, ceil_div, sizeof ceil_div - 1) == 0) {
		t->p += sizeof ceil_div - 1;
		v = quotient(t);
	} else if (n) {
		const int64_t *value = lookup(t->env, t->p, n);
		t->known &= value != NULL;
		t->p += n;
		v = value ? *value : 1;
	} else if (*t->p == '(') {
		t->p++;
		v = sum(t);
		t->p++; /* ')' */
	} else {
		while (*t->p >= '0' && *t->p <= '9')
			v = v * 10 + (*t->p++ - '0');
	}
	while (*t->p == ' ')
		t->p++;
	return v;
}

/* Dims and attributes are below 2^31 and a row multiplies three at most: what wraps cannot be equal by chance,
 * since dims of a tensor are positive and far smaller. */
static int64_t product(Term *t)
{
	uint64_t v = (uint64_t)factor(t);
	while (*t->p == '*' || *t->p == '/') {
		char op = *t->p++;
		uint64_t next = (uint64_t)factor(t);
		v = op == '*' ? v * next : next ? v / next : 0;
	}
	return (int64_t)v;
}

static int64_t sum(Term *t)
{
	uint64_t v = (uint64_t)product(t);
	while (*t->p == '+' || *t->p == '-') {
		char op = *t->p++;
		uint64_t next = (uint64_t)product(t);
		v = op == '+' ? v + next : v - next;
	}
	return (int64_t)v;
}

static void define_globals(Env *e, const Graph *g, const OpShapes *s)
{
	const struct { const char *name; int64_t value; } fixed[] = {
		{"OUTS", s->outs}, {"SLOTS", g->slots}, {"SEGS", g->slots},
		{"PAGES", g->pages}, {"PAGE", g->page}, {"MAX_PAGES", g->max_pages}};
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		define(e, fixed[i].name, strlen(fixed[i].name), fixed[i].value);
	for (int i = 0; s->attrs && i < n_attr_fields; i++) {
		const AttrField *f = &attr_fields[i];
		int value;
		memcpy(&value, (const char *)s->attrs + f->offset, sizeof value);
		if (f->kind == F_INT && op_has_attr(s->op, f->label))
			define(e, f->label, strlen(f->label), value);
	}
}

/* Calls for each term of each present operand; false when a count of dims differs. */
static bool each_term(const OpShapes *s, Env *e, bool compare, int *operand, int *dim)
{
	const OpInfo *info = &op_table[s->op];
	for (*operand = 0; *operand < info->n_operands; ++*operand) {
		const char *p = info->operands[*operand].shape;
		int n = s->n_dims[*operand];
		if (n == 0)
			continue;
		for (*dim = 0; *dim < n; ++*dim, p++) {
			size_t len = name_length(p);
			int64_t have = s->shape[*operand][*dim];
			if (!compare && len && (p[len] == ',' || p[len] == 0))
				define(e, p, len, have);
			Term t = {e, p, true};
			int64_t want = sum(&t);
			if (compare && t.known && want != have)
				return false;
			p = t.p;
			if ((*p == ',') != (*dim + 1 < n))
				return false;
			p += *p == ',';
			if (*p == 0)
				break;
		}
	}
	return true;
}

bool check_op_shapes(const Graph *g, const OpShapes *s, const char *what, Why *why)
{
	Env e = {0};
	int i, d;
	define_globals(&e, g, s);
	if (s->attrs && op_has_attr(s->op, "PAGE") && s->attrs->page != g->page)
		return why_not(why, READ_MALFORMED, "%s: PAGE is %d, the graph's page has %d tokens", what,
			s->attrs->page, g->page);
	bool ok = each_term(s, &e, false, &i, &d);
	const int64_t *rows = lookup(&e, "ROWS", 4);
	if (ok && rows && *rows != s->rows && *rows != s->outs)
		return why_not(why, READ_MALFORMED, "%s: %lld rows, neither the step's nor its outs", what,
			(long long)*rows);
	if (ok && each_term(s, &e, true, &i, &d))
		return true;
	return why_not(why, READ_MALFORMED, "%s: operand %s does not have the shape [%s]", what,
		op_table[s->op].operands[i].name, op_table[s->op].operands[i].shape);
}
