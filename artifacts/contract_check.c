/* contract_check.c - is each launch what its kernel's contract says, of the constants the kernel was compiled with?
 *
 * A plan holds the contract of each template, and with each kernel its constants ("HDIM=64 ROWS=4 WT=bf16 ..."). The
 * two decide all of a launch: types and shapes of operands, grid, block, shared memory, tiles, work. Once a kernel
 * that is computed again here, from the text alone, and compared with the kernel, with each of its launches, with the
 * graph's attributes, and with the decision of the ledger that chose the launch. So a kernel of another head dim,
 * a grid in another order, or shared memory that is 16 bytes short is no plan.
 */
#include "artifacts/expr.h"
#include "artifacts/order.h"
#include "artifacts/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONSTANTS = 96, DEFINES_BYTES = 2048, MAX_TILES = 4, TEXT_BYTES = 512 };

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

typedef struct Constants { /* of one kernel */
	char text[DEFINES_BYTES]; /* "HDIM\0" "64\0" ...: what the pointers below point to */
	struct { const char *name, *value; } given[MAX_CONSTANTS];
	int n_given;
	char sizes[2 * MAX_CONSTANTS][24]; /* "WT_BITS" */
	ExprName names[2 * MAX_CONSTANTS]; /* the whole numbers */
	int n;
} Constants;

typedef struct Tile { int operand; int64_t box[2]; } Tile;

typedef struct Fit { /* what the contract says of every launch of a kernel */
	const Contract *contract;
	int64_t grid[3], reads, writes, flops;
	int n_operands, operand[PLAN_MAX_OPERANDS]; /* in the order of the argument struct: index in the op's row */
	bool is_there[PLAN_MAX_OPERANDS];
	Dtype dtype[PLAN_MAX_OPERANDS];
	int n_dims[PLAN_MAX_OPERANDS];
	int64_t shape[PLAN_MAX_OPERANDS][PLAN_MAX_DIMS];
	Tile tiles[MAX_TILES]; int n_tiles;
	struct { int field; double value; } attrs[MAX_CONSTANTS]; int n_attrs; /* field: of attr_fields */
	char order[ORDER_BYTES];
	bool is_launched;
	int slot; /* of the launch before; equal ones need not be looked up again */
} Fit;

typedef struct Fitting { /* where we are */
	const Artifact *a;
	const TargetPlan *plan;
	const Kernel *k;
	Constants c;
	Fit *fit;
	Why *why;
} Fitting;

static const ContractTerm *find_term(const Contract *c, const char *kind, const char *name, size_t n)
{
	for (int i = 0; i < c->n_terms; i++)
		if (strcmp(c->terms[i].kind, kind) == 0 && strncmp(c->terms[i].name, name, n) == 0 && c->terms[i].name[n] == 0)
			return &c->terms[i];
	return NULL;
}

static const ContractTerm *term_named(const Contract *c, const char *kind, const char *name)
{
	return find_term(c, kind, name, strlen(name));
}

static const char *value_of(const Constants *c, const char *name)
{
	for (int i = 0; i < c->n_given; i++)
		if (strcmp(c->given[i].name, name) == 0)
			return c->given[i].value;
	return NULL;
}

/* A whole decimal number and nothing else. */
static bool is_number(const char *s, int64_t *v)
{
	char *end;
	if ((*s < '0' || *s > '9') && *s != '-')
		return false;
	*v = strtoll(s, &end, 10);
	return *end == 0;
}

/* What printf makes of a float by "%af": 0x1.8p-3f. The C library's reader would ask the locale. */
static bool is_float(const char *s, double *v)
{
	const double sign = *s == '-' ? -1 : 1;
	int64_t exponent, scale = 0;
	s += *s == '-';
	if (strncmp(s, "0x", 2) != 0)
		return false;
	double n = 0;
	bool is_fraction = false;
	for (s += 2; (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f') || *s == '.'; s++) {
		is_fraction |= *s == '.';
		if (*s == '.')
			continue;
		n = n * 16 + (*s <= '9' ? *s - '0' : *s - 'a' + 10);
		scale -= is_fraction ? 4 : 0;
	}
	char digits[8];
	size_t length = *s == 'p' ? strcspn(s, "f") : sizeof digits;
	if (length < 2 || length - 1 >= sizeof digits || strcmp(s + length, "f") != 0 || scale < -64)
		return false;
	snprintf(digits, sizeof digits, "%.*s", (int)length - 1, s + 1 + (s[1] == '+'));
	digits[length - 1 - (s[1] == '+')] = 0;
	if (!is_number(digits, &exponent))
		return false;
	*v = sign * ldexp(n, (int)(exponent + scale));
	return true;
}

/* Constants ---------------------------------------------------------------------------------------- */

static bool split_defines(Fitting *f)
{
	Why *why = f->why;
	Constants *c = &f->c;
	if (strlen(f->k->defines) >= sizeof c->text)
		return REFUSE("kernel %s: its constants take more than %d bytes", f->k->name, DEFINES_BYTES);
	strcpy(c->text, f->k->defines);
	c->n_given = c->n = 0;
	for (char *p = c->text; *p;) {
		char *end = p + strcspn(p, " "), *equals = memchr(p, '=', (size_t)(end - p));
		if (!equals || equals == p || c->n_given == MAX_CONSTANTS)
			return REFUSE("kernel %s: \"%.80s\" is not a constant", f->k->name, p);
		bool is_last = !*end;
		*equals = *end = 0;
		if (value_of(c, p))
			return REFUSE("kernel %s: constant %s occurs twice", f->k->name, p);
		c->given[c->n_given].name = p;
		c->given[c->n_given++].value = equals + 1;
		p = is_last ? end : end + 1;
	}
	return true;
}

static void add_number(Constants *c, const char *name, int64_t value)
{
	c->names[c->n++] = (ExprName){name, value};
}

/* A dtype variable also gives VAR_BITS, and VAR_BYTES of whole bytes. */
static void add_sizes(Constants *c, const char *var, Dtype t)
{
	snprintf(c->sizes[c->n], sizeof c->sizes[0], "%s_BITS", var);
	add_number(c, c->sizes[c->n], dtype_span(t, 8));
	if (dtype_bytes(t)) {
		snprintf(c->sizes[c->n], sizeof c->sizes[0], "%s_BYTES", var);
		add_number(c, c->sizes[c->n], dtype_bytes(t));
	}
}

/* Is the constant one that the contract knows, with a value it may have? */
static bool take_constant(Fitting *f, const char *name, const char *value)
{
	Why *why = f->why;
	const Contract *c = f->fit->contract;
	const ContractTerm *t;
	int64_t v;
	if ((t = term_named(c, "dtype", name))) {
		Dtype d;
		if (!has_word(t->text, value, strlen(value)) || !dtype_from_name(value, &d) || strlen(name) > 16)
			return REFUSE("kernel %s: %s = %s: the contract takes %s", f->k->name, name, value, t->text);
		add_sizes(&f->c, name, d);
		return true;
	}
	if ((t = term_named(c, "tunable", name)) && !has_word(t->text, value, strlen(value)))
		return REFUSE("kernel %s: %s = %s: the contract takes %s", f->k->name, name, value, t->text);
	bool is_flag = false;
	for (int i = 0; i < c->n_terms; i++)
		is_flag |= strcmp(c->terms[i].kind, "flag") == 0 && strcmp(c->terms[i].text, name) == 0;
	if (!t && !is_flag && !term_named(c, "dim", name) && !term_named(c, "attr", name))
		return REFUSE("kernel %s: the contract knows no constant %s", f->k->name, name);
	const bool is_whole = is_number(value, &v), is_attr = !t && !is_flag && term_named(c, "attr", name);
	double real = is_whole ? (double)v : 0;
	if (is_whole)
		add_number(&f->c, name, v);
	else if (!is_attr || !is_float(value, &real))
		return REFUSE("kernel %s: %s = %s: a number expected", f->k->name, name, value);
	for (int i = 0; i < n_attr_fields && is_attr; i++)
		if (strcmp(attr_fields[i].label, name) == 0) {
			f->fit->attrs[f->fit->n_attrs].field = i;
			f->fit->attrs[f->fit->n_attrs++].value = real;
		}
	return true;
}

static bool take_constants(Fitting *f)
{
	Why *why = f->why;
	const Contract *c = f->fit->contract;
	if (!split_defines(f))
		return false;
	for (int i = 0; i < f->c.n_given; i++)
		if (!take_constant(f, f->c.given[i].name, f->c.given[i].value))
			return false;
	for (int i = 0; i < c->n_terms; i++) {
		const ContractTerm *t = &c->terms[i];
		bool is_flag = strcmp(t->kind, "flag") == 0;
		if ((is_flag || strcmp(t->kind, "dim") == 0 || strcmp(t->kind, "attr") == 0 || strcmp(t->kind, "dtype") == 0 ||
			strcmp(t->kind, "tunable") == 0) && !value_of(&f->c, is_flag ? t->text : t->name))
			return REFUSE("kernel %s: constant %s is missing", f->k->name, is_flag ? t->text : t->name);
	}
	add_number(&f->c, "SMEM_MAX", f->plan->smem_block_bytes);
	add_number(&f->c, "SMS", f->plan->n_sms);
	return true;
}

/* What the contract says -------------------------------------------------------------------------------- */

static bool evaluate(Fitting *f, const char *what, const char *text, int64_t *value)
{
	char reason[160];
	const ExprEnv env = {f->c.names, f->c.n, NULL};
	return expr_eval(text, &env, value, reason, sizeof reason) || why_not(f->why, READ_MALFORMED,
		"kernel %s: %s = %.120s: %s", f->k->name, what, text, reason);
}

static bool evaluate_term(Fitting *f, const char *kind, int64_t *value)
{
	const ContractTerm *t = term_named(f->fit->contract, kind, "");
	return t ? evaluate(f, kind, t->text, value) : why_not(f->why, READ_MALFORMED, "contract %s: %s is missing",
		f->k->name, kind);
}

/* "80" serves sm_80 and later, "90a" sm_90a alone. */
static bool serves(const char *arch, const char *target)
{
	size_t digits = strspn(arch, "0123456789");
	return strncmp(target, "sm_", 3) == 0 && (arch[digits] ? strcmp(arch, target + 3) == 0
		: strtol(target + 3, NULL, 10) >= strtol(arch, NULL, 10));
}

/* "WT [N, K]" of an operand. */
static bool fit_operand(Fitting *f, const ContractTerm *t)
{
	Why *why = f->why;
	Fit *fit = f->fit;
	char word[32], dims[TEXT_BYTES], item[TEXT_BYTES];
	const char *open = strstr(t->text, " ["), *list = dims;
	const int i = fit->n_operands, index = op_operand(fit->contract->op, t->name);
	const ContractTerm *flag = term_named(fit->contract, "flag", t->name);
	int64_t present = 1;
	if (!open || (size_t)(open - t->text) >= sizeof word || strlen(t->text) >= sizeof dims || index < 0 ||
		i == PLAN_MAX_OPERANDS)
		return REFUSE("contract %s: \"%.40s %.80s\" is not an operand of its op", f->k->name, t->name, t->text);
	snprintf(word, sizeof word, "%.*s", (int)(open - t->text), t->text);
	const char *named = value_of(&f->c, word);
	if (!dtype_from_name(named && term_named(fit->contract, "dtype", word) ? named : word, &fit->dtype[i]))
		return REFUSE("contract %s: operand %s has no dtype", f->k->name, t->name);
	if (flag && !evaluate(f, t->name, flag->text, &present))
		return false;
	fit->operand[i] = index;
	fit->is_there[i] = present != 0;
	fit->n_operands++;
	snprintf(dims, sizeof dims, "%.*s", (int)strcspn(open + 2, "]"), open + 2);
	while (fit->is_there[i] && expr_next(&list, item, sizeof item)) {
		if (fit->n_dims[i] == PLAN_MAX_DIMS)
			return REFUSE("contract %s: operand %s has more than %d dims", f->k->name, t->name, PLAN_MAX_DIMS);
		if (!evaluate(f, t->name, item, &fit->shape[i][fit->n_dims[i]++]))
			return false;
	}
	return true;
}

static bool fit_tile(Fitting *f, const ContractTerm *rows)
{
	Why *why = f->why;
	Fit *fit = f->fit;
	const ContractTerm *columns = term_named(fit->contract, "map.columns", rows->name);
	if (!columns || fit->n_tiles == MAX_TILES)
		return REFUSE("contract %s: tiles of %s", f->k->name, rows->name);
	Tile *t = &fit->tiles[fit->n_tiles++];
	t->operand = op_operand(fit->contract->op, rows->name);
	return evaluate(f, "rows of a tile", rows->text, &t->box[0]) &&
		evaluate(f, "columns of a tile", columns->text, &t->box[1]);
}

static bool fit_order(Fitting *f, const ContractTerm *t)
{
	char reason[160];
	const ExprEnv env = {f->c.names, f->c.n, NULL};
	return order_append(f->fit->order, t->name, t->text, &env, reason, sizeof reason) || why_not(f->why, READ_MALFORMED,
		"kernel %s: order %.60s(%.120s): %s", f->k->name, t->name, t->text, reason);
}

static bool fit_terms(Fitting *f)
{
	Why *why = f->why;
	const Contract *c = f->fit->contract;
	bool is_served = false;
	for (int i = 0; i < c->n_terms; i++) {
		const ContractTerm *t = &c->terms[i];
		const bool is_predicate = strcmp(t->kind, "requires") == 0;
		int64_t holds = 1;
		is_served |= strcmp(t->kind, "arch") == 0 && serves(t->name, f->plan->target);
		if ((strcmp(t->kind, "operand") == 0 && !fit_operand(f, t)) || (strcmp(t->kind, "map.rows") == 0 &&
			!fit_tile(f, t)) || (is_predicate && !evaluate(f, "a predicate", t->text, &holds)) ||
			(strcmp(t->kind, "order") == 0 && !fit_order(f, t)))
			return false;
		if (!holds)
			return REFUSE("kernel %s: %.160s is false", f->k->name, t->text);
	}
	if (!*f->fit->order)
		return REFUSE("kernel %s: its contract states no order", f->k->name);
	return is_served || REFUSE("kernel %s: its contract does not include %s", f->k->name, f->plan->target);
}

static bool fit_kernel(Fitting *f)
{
	Why *why = f->why;
	const Kernel *k = f->k;
	Fit *fit = f->fit;
	int64_t block, smem;
	for (int i = 0; i < f->a->n_contracts && !fit->contract; i++)
		if (strcmp(f->a->contracts[i].name, k->name) == 0)
			fit->contract = &f->a->contracts[i];
	if (!fit->contract)
		return REFUSE("kernel %s: there is no contract of that name", k->name);
	if (strcmp(k->entry, k->name) != 0)
		return REFUSE("kernel %s: its entry is %.80s", k->name, k->entry);
	if (!take_constants(f) || !fit_terms(f) || !evaluate_term(f, "grid.x", &fit->grid[0]) ||
		!evaluate_term(f, "grid.y", &fit->grid[1]) || !evaluate_term(f, "grid.z", &fit->grid[2]) ||
		!evaluate_term(f, "block", &block) || !evaluate_term(f, "smem", &smem) ||
		!evaluate_term(f, "reads", &fit->reads) || !evaluate_term(f, "writes", &fit->writes) ||
		!evaluate_term(f, "flops", &fit->flops))
		return false;
	if (k->block[0] != block || k->block[1] != 1 || k->block[2] != 1)
		return REFUSE("kernel %s: block %d x %d x %d, by its contract %lld x 1 x 1", k->name, k->block[0], k->block[1],
			k->block[2], (long long)block);
	if (k->smem_bytes != smem)
		return REFUSE("kernel %s: %d bytes of dynamic shared memory, by its contract %lld", k->name, k->smem_bytes,
			(long long)smem);
	return smem <= f->plan->smem_block_bytes || REFUSE("kernel %s: %lld bytes of shared memory: %s has %d a block",
		k->name, (long long)smem, f->plan->target, f->plan->smem_block_bytes);
}

/* A launch ----------------------------------------------------------------------------------------------- */

static bool check_operands(const Fit *fit, const Phase *p, const Launch *l, const char *what, Why *why)
{
	if (l->n_args != fit->n_operands || l->n_maps != fit->n_tiles)
		return REFUSE("%s: %d arguments and %d tensor maps, by the contract %d and %d", what, l->n_args, l->n_maps,
			fit->n_operands, fit->n_tiles);
	for (int i = 0; i < l->n_args; i++) {
		const Arg *a = &l->args[i];
		const char *name = op_table[l->op].operands[a->operand].name;
		if (a->operand != fit->operand[i] || (i && a->field_offset <= l->args[i - 1].field_offset))
			return REFUSE("%s: argument %d is %s: not in the order of the contract", what, i, name);
		if ((a->buf >= 0) != fit->is_there[i])
			return REFUSE("%s: %s is %s, the kernel was compiled with%s it", what, name,
				a->buf < 0 ? "absent" : "there", fit->is_there[i] ? "" : "out");
		const Buf *b = a->buf < 0 ? NULL : &p->bufs[a->buf];
		if (b && (b->dtype != fit->dtype[i] || b->n_dims != fit->n_dims[i]))
			return REFUSE("%s: %s is %s of %d dims, the kernel takes %s of %d", what, name, dtype_name(b->dtype),
				b->n_dims, dtype_name(fit->dtype[i]), fit->n_dims[i]);
		for (int d = 0; b && d < b->n_dims; d++)
			if (b->shape[d] != fit->shape[i][d])
				return REFUSE("%s: dim %d of %s is %lld, the kernel was compiled for %lld", what, d, name,
					(long long)b->shape[d], (long long)fit->shape[i][d]);
	}
	for (int i = 0; i < l->n_maps; i++) {
		const TensorMap *m = &l->maps[i];
		int of = 0;
		while (l->args[of].buf != m->buf || l->args[of].operand != fit->tiles[i].operand)
			if (++of == l->n_args)
				return REFUSE("%s: tensor map %d is not of operand %s", what, i,
					op_table[l->op].operands[fit->tiles[i].operand].name);
		if (m->box[0] != fit->tiles[i].box[0] || m->box[1] != fit->tiles[i].box[1] ||
			(i && m->field_offset <= l->maps[i - 1].field_offset))
			return REFUSE("%s: tensor map %d has tiles of %d x %d, by the contract %lld x %lld", what, i, m->box[0],
				m->box[1], (long long)fit->tiles[i].box[0], (long long)fit->tiles[i].box[1]);
	}
	return true;
}

static bool check_work(const Fit *fit, const Launch *l, const char *what, Why *why)
{
	const int64_t *g = fit->grid;
	if (l->grid[0] != g[0] || l->grid[1] != g[1] || l->grid[2] != g[2])
		return REFUSE("%s: grid %d x %d x %d, by the contract %lld x %lld x %lld", what, l->grid[0], l->grid[1],
			l->grid[2], (long long)g[0], (long long)g[1], (long long)g[2]);
	return (l->read_bytes == fit->reads && l->write_bytes == fit->writes && l->flops == fit->flops) ||
		REFUSE("%s: reads %lld, writes %lld, computes %lld, by the contract %lld, %lld, %lld", what,
			(long long)l->read_bytes, (long long)l->write_bytes, (long long)l->flops, (long long)fit->reads,
			(long long)fit->writes, (long long)fit->flops);
}

/* "WARPS=4 SPLITS=2": is each of these among the kernel's constants? */
static bool has_constants(const char *defines, const char *text)
{
	char word[128];
	for (const char *p = text; *p; p += *p == ' ') {
		size_t n = strcspn(p, " ");
		snprintf(word, sizeof word, "%.*s", (int)n, p);
		if (!has_word(defines, word, strlen(word)))
			return false;
		p += n;
	}
	return true;
}

/* "step i32 [4], x bf16 [16,576], part f32 [16,9,*,64]": are these the operands? A kernel decides what is *. */
static bool has_operands(const Phase *p, const Launch *l, const char *text)
{
	char item[TEXT_BYTES];
	for (int i = 0; i < op_table[l->op].n_operands; i++) {
		const Buf *b = NULL;
		for (int k = 0; k < l->n_args; k++)
			b = l->args[k].operand == i && l->args[k].buf >= 0 ? &p->bufs[l->args[k].buf] : b;
		if (!b)
			continue;
		int n = snprintf(item, sizeof item, "%s %s [", op_table[l->op].operands[i].name, dtype_name(b->dtype));
		if (strncmp(text, item, (size_t)n) != 0)
			return false;
		text += n;
		for (int d = 0; d < b->n_dims; d++) {
			n = snprintf(item, sizeof item, "%lld", (long long)b->shape[d]);
			n = *text == '*' ? 1 : strncmp(text, item, (size_t)n) == 0 ? n : 0;
			if (!n || text[n] != (d + 1 < b->n_dims ? ',' : ']'))
				return false;
			text += n + 1;
		}
		text += strncmp(text, ", ", 2) == 0 ? 2 : 0;
	}
	return !*text;
}

/* The kernel is the one the ledger has chosen, or, of a trial, one of those it admits; with its attributes. */
static bool check_decision(const Kernel *k, const Fit *fit, const Slot *s, bool is_trial, const char *what, Why *why)
{
	const Contract *c = fit->contract;
	const Candidate *named = NULL;
	char word[128];
	for (int i = 0; i < s->n_candidates && !named; i++)
		if ((s->candidates[i].verdict == CHOSEN || (is_trial && *s->candidates[i].order)) &&
			strcmp(s->candidates[i].kernel, k->name) == 0 && has_constants(k->defines, s->candidates[i].tunables))
			named = &s->candidates[i];
	if (!named)
		return REFUSE("%s: kernel %s is not what the ledger has chosen", what, k->name);
	if (strcmp(named->order, fit->order) != 0)
		return REFUSE("%s: by the ledger kernel %s adds as %.120s, by its contract as %.120s", what, k->name,
			named->order, fit->order);
	for (const char *p = s->attrs; *p; p += *p == ' ') {
		size_t n = strcspn(p, " ");
		snprintf(word, sizeof word, "%.*s", (int)n, p);
		if (find_term(c, "attr", word, strcspn(word, "=")) && !has_word(k->defines, word, strlen(word)))
			return REFUSE("%s: the ledger says %s, the kernel was compiled otherwise", what, word);
		p += n;
	}
	return true;
}

/* The graph's ops by layer, and which attributes an op has. */
typedef struct Ops {
	const Graph *g;
	int *order, *start; /* [n_ops]; [n_layers + 3]: those of layer l begin at order[start[l + 1]] */
	uint64_t has[OP_COUNT]; /* bit i: attr_fields[i] */
} Ops;

static bool index_ops(Ops *o, const Graph *g)
{
	*o = (Ops){.g = g, .order = malloc(sizeof *o->order * (size_t)(g->n_ops + 1)),
		.start = calloc((size_t)g->n_layers + 4, sizeof *o->start)};
	if (!o->order || !o->start)
		return false;
	for (int k = 0; k < OP_COUNT; k++)
		for (int i = 0; i < n_attr_fields; i++)
			o->has[k] |= (uint64_t)op_has_attr((OpKind)k, attr_fields[i].label) << i;
	for (int i = 0; i < g->n_ops; i++)
		o->start[g->ops[i].layer + 3]++;
	for (int l = 0; l <= g->n_layers + 2; l++)
		o->start[l + 1] += o->start[l];
	for (int i = 0; i < g->n_ops; i++)
		o->order[o->start[g->ops[i].layer + 2]++] = i; /* which moves each start to the next one's */
	return true;
}

/* Attributes the kernel was compiled with are those of an op of the layer, as far as graph ops have them at all; 0 is
 * that of a part the layer lacks (no norm of heads, no scales), but for WINDOW and CAP, where it is a meaning of its
 * own. */
static bool check_attrs(const Ops *o, const Fit *fit, const Phase *p, const Launch *l, const char *what, Why *why)
{
	for (int k = 0; k < fit->n_attrs; k++) {
		const AttrField *field = &attr_fields[fit->attrs[k].field];
		const double have = fit->attrs[k].value;
		const bool has_zero = strcmp(field->label, "WINDOW") == 0 || strcmp(field->label, "CAP") == 0;
		bool is_listed = false, is_same = false;
		if (strcmp(field->label, "EACH") == 0 && !(have <= p->each && have >= p->each))
			return REFUSE("%s: compiled for %g rows of a slot, where the phase has %d", what, have, p->each);
		for (int i = o->start[l->layer + 1]; i < o->start[l->layer + 2] && !is_same; i++) {
			const GraphOp *op = &o->g->ops[o->order[i]];
			double value;
			bool is_float;
			if (!(op->phases & phase_bit(p->kind)) || !(o->has[op->kind] >> fit->attrs[k].field & 1))
				continue;
			attr_value(&op->attrs, field->label, &value, &is_float);
			is_listed = true;
			is_same = !(value < have) && !(value > have);
		}
		if (is_listed && !is_same && (have < 0 || have > 0 || has_zero))
			return REFUSE("%s: compiled with %s = %g, which no op has in layer %d", what, field->label, have,
				l->layer);
	}
	return true;
}

static bool check_launch(const TargetPlan *t, const Slot *ledger, const Ops *ops, Fit *fit, const Phase *p, int index,
	Why *why)
{
	const Launch *l = &p->launches[index];
	const bool is_trial = !ops;
	const Slot *s = &ledger[l->slot];
	char what[96];
	snprintf(what, sizeof what, "%s launch %d (%s)", PHASE_LABEL(p), index, op_table[l->op].name);
	if (fit->contract->op != l->op)
		return REFUSE("%s: kernel %s is one for %s", what, t->kernels[l->kernel].name,
			op_table[fit->contract->op].name);
	if (!check_operands(fit, p, l, what, why) || !check_work(fit, l, what, why))
		return false;
	if (!(fit->is_launched && fit->slot == l->slot) &&
		!check_decision(&t->kernels[l->kernel], fit, s, is_trial, what, why))
		return false;
	if (!(fit->is_launched && fit->slot == l->slot) && !has_operands(p, l, s->operands))
		return REFUSE("%s: the ledger has other operands: %.160s", what, s->operands);
	fit->is_launched = true;
	fit->slot = l->slot;
	if (!is_trial && (l->layer < s->layer_first || l->layer > s->layer_last))
		return REFUSE("%s: of layer %d, entry %d of the ledger is about %d to %d", what, l->layer, l->slot,
			s->layer_first, s->layer_last);
	return is_trial || p->kind == PROBE || check_attrs(ops, fit, p, l, what, why);
}

/* ops: NULL for trials, which are of candidates and of no op of the graph. */
static bool check_all(const Artifact *a, const TargetPlan *t, const Slot *ledger, const Ops *ops, Why *why)
{
	Fit *fits = calloc((size_t)t->n_kernels + 1, sizeof *fits);
	Fitting *f = malloc(sizeof *f);
	bool good = (fits && f) || why_not(why, READ_NO_MEMORY, "no memory to check %d kernels", t->n_kernels);
	for (int i = 0; i < t->n_kernels && good; i++) {
		*f = (Fitting){.a = a, .plan = t, .k = &t->kernels[i], .fit = &fits[i], .why = why};
		good = fit_kernel(f);
	}
	for (int p = 0; p < t->n_phases && good; p++)
		for (int i = 0; i < t->phases[p].n_launches && good; i++)
			good = check_launch(t, ledger, ops, &fits[t->phases[p].launches[i].kernel], &t->phases[p], i, why);
	for (int i = 0; i < t->n_kernels && good; i++)
		good = fits[i].is_launched || REFUSE("kernel %s: nothing launches it", t->kernels[i].name);
	free(fits);
	free(f);
	return good;
}

bool check_contracts(const Artifact *a, const TargetPlan *t, const Slot *ledger, bool are_trials, Why *why)
{
	Ops ops = {0};
	bool good = are_trials || index_ops(&ops, &a->graph) ||
		why_not(why, READ_NO_MEMORY, "no memory to sort %d ops", a->graph.n_ops);
	good = good && check_all(a, t, ledger, are_trials ? NULL : &ops, why);
	free(ops.order);
	free(ops.start);
	return good;
}
