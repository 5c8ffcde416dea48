/* check_contract.c - is this contract whole, and does it fit its operation and its code?
 *
 * Nothing a template says is taken on trust: the op decides which operands exist, in which role and with how
 * many dims; the contract decides which names a formula may use; the code must use what the contract declares. Every
 * offence is reported at its own place, and all of them before giving up.
 *
 * Dims are names of the template's own. They are compared with the op's row in ops.h by consistency: two places
 * that ops.h gives one name must have one name here. That is what catches N and K swapped.
 */
#include "artifacts/closest.h"
#include "artifacts/op_table.h"
#include "compiler/kernelgen/kernelgen.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64, MAX_TEXT = 64 };

enum { SIZE_ = N_WORDS }; /* of a name that no word declares */
static const char *const name_kinds[] = {[DIM_] = "dim", [ATTR_INT_] = "attribute", [ATTR_FLOAT_] = "attribute",
	[TUNE_] = "tunable", [FLAG_] = "flag", [DTYPES_] = "dtype variable", [SIZE_] = "size"};

typedef struct Declared {
	const char *name;
	int kind; /* the Word that declares it, or SIZE_ */
	Loc at;
	bool is_used; /* of a dim: is alone in a shape that is always there */
} Declared;

typedef struct Check {
	Gen *g;
	const RawTemplate *raw;
	KernelTemplate k;
	Loc at_kernel; /* of KERNEL(...), or the file's first line */
	bool has_op;
	Declared names[MAX_NAMES];
	int n_names;
	/* consistency of shapes: what the op calls `op_dim` is `item` here, first in operand `where` */
	struct { char op_dim[MAX_TEXT], item[MAX_TEXT]; const char *where; } dims[MAX_NAMES];
	int n_dims;
} Check;

static Declared *find_name(Check *c, const char *name, size_t n)
{
	for (int i = 0; i < c->n_names; i++)
		if (strncmp(c->names[i].name, name, n) == 0 && c->names[i].name[n] == 0)
			return &c->names[i];
	return NULL;
}

/* Appends to a list of constants of the row. */
static void add_const(Check *c, const char **list, int *n, const Clause *cl)
{
	if (*n == MAX_CONSTS)
		fail_at(&c->g->diags, A0902, cl->at, "more than %d of this kind", MAX_CONSTS);
	else
		list[(*n)++] = cl->parts[0];
}

static void declare(Check *c, const char *name, int kind, Loc at)
{
	Declared *before = find_name(c, name, strlen(name));
	if (before)
		fail_at(&c->g->diags, A0906, at, "%s %s is declared twice, first at line %d as a %s", name_kinds[kind],
			name, before->at.line, name_kinds[before->kind]);
	else if (c->n_names == MAX_NAMES)
		fail_at(&c->g->diags, A0902, at, "more than %d names in a contract", MAX_NAMES);
	else
		c->names[c->n_names++] = (Declared){name, kind, at, false};
}

static int count_items(const char *list)
{
	char item[MAX_TEXT];
	int n = 0;
	while (expr_next(&list, item, sizeof item))
		n++;
	return n;
}

/* Clauses ---------------------------------------------------------------------------------------- */

static const char *did_you_mean(Check *c, const char *seen, const char *const *names, int n)
{
	const char *best = closest_name(seen, names, n);
	return best ? arena_printf(&c->g->arena, ": did you mean %s?", best) : "";
}

static void read_kernel_clause(Check *c, const Clause *cl)
{
	Diags *d = &c->g->diags;
	c->k.line = cl->at.line;
	if (strcmp(cl->parts[0], c->raw->name) != 0)
		fail_at(d, A0902, cl->at, "kernel %s is in a file named %s: the names must be equal",
			cl->parts[0], c->raw->name);
	c->has_op = op_from_name(cl->parts[1], &c->k.op);
	if (!c->has_op) {
		const char *names[OP_COUNT];
		for (int i = 0; i < OP_COUNT; i++)
			names[i] = op_table[i].name;
		fail_at(d, A0902, cl->at, "%s is not an operation%s", cl->parts[1],
			did_you_mean(c, cl->parts[1], names, OP_COUNT));
	}
}

static void read_archs(Check *c, const Clause *cl)
{
	char item[MAX_TEXT];
	for (const char *list = cl->parts[0]; expr_next(&list, item, sizeof item);) {
		size_t digits = strspn(item, "0123456789");
		if (digits < 2 || digits > 3 || (item[digits] && strcmp(item + digits, "a") != 0)) {
			fail_at(&c->g->diags, A0902, cl->at, "ARCH %s: expected a number such as 80 or 90a", item);
			continue;
		}
		for (int i = 0; i < c->k.n_archs; i++)
			if (strcmp(c->k.archs[i], item) == 0)
				fail_at(&c->g->diags, A0906, cl->at, "ARCH names %s twice", item);
		if (c->k.n_archs == MAX_ARCHS)
			fail_at(&c->g->diags, A0902, cl->at, "ARCH names more than %d architectures", MAX_ARCHS);
		else
			c->k.archs[c->k.n_archs++] = arena_strdup(&c->g->arena, item);
	}
}

/* An unknown word would promise nothing: a test asks for rows alone where it reads batch_invariant. */
static void read_numerics(Check *c, const Clause *cl)
{
	static const char *const words[] = {"exact", "f32", "f32_accumulate", "batch_invariant"};
	char item[MAX_TEXT];
	for (const char *list = cl->parts[0]; expr_next(&list, item, sizeof item);) {
		size_t i = 0;
		while (i < sizeof words / sizeof words[0] && strcmp(words[i], item) != 0)
			i++;
		if (i == sizeof words / sizeof words[0])
			fail_at(&c->g->diags, A0902, cl->at, "NUMERICS %s: expected exact, f32, f32_accumulate or batch_invariant",
				item);
	}
	c->k.numerics = cl->parts[0];
}

/* wgmma, of bf16 or e4m3 (wgmma_fp8), is an instruction of sm_90a and of nothing else, later architectures included. */
static void read_matrix(Check *c, const Clause *cl)
{
	c->k.matrix = cl ? cl->parts[0] : "mma";
	if (!cl)
		return;
	bool is_wgmma = strcmp(c->k.matrix, "wgmma") == 0 || strcmp(c->k.matrix, "wgmma_fp8") == 0;
	if (strcmp(c->k.matrix, "mma") != 0 && !is_wgmma)
		fail_at(&c->g->diags, A0902, cl->at, "MATRIX %s: expected mma, wgmma or wgmma_fp8", c->k.matrix);
	for (int i = 0; i < c->k.n_archs && is_wgmma; i++)
		if (strcmp(c->k.archs[i], "90a") != 0)
			fail_at(&c->g->diags, A0902, cl->at, "MATRIX %s: sm_90a alone has it, and ARCH names %s",
				c->k.matrix, c->k.archs[i]);
}

static void read_attr(Check *c, const Clause *cl)
{
	const Attrs none = {0};
	double value;
	bool is_float;
	const char *name = cl->parts[0];
	declare(c, name, cl->kind, cl->at);
	add_const(c, c->k.attrs, &c->k.n_attrs, cl);
	if (!c->has_op)
		return;
	if (!attr_value(&none, name, &value, &is_float) || !op_has_attr(c->k.op, name))
		fail_at(&c->g->diags, A0903, cl->at, "%s is not an attribute of %s, which has: %s", name,
			op_table[c->k.op].name, *op_table[c->k.op].attrs ? op_table[c->k.op].attrs : "none");
	else if (is_float != (cl->kind == ATTR_FLOAT_))
		fail_at(&c->g->diags, A0903, cl->at, "attribute %s is %s: expected %s", name,
			is_float ? "a float" : "an int", is_float ? "ATTR_FLOAT" : "ATTR_INT");
}

static void read_dtypes(Check *c, const Clause *cl)
{
	char item[MAX_TEXT];
	bool has_bytes = true; /* the same number of them for every element */
	declare(c, arena_printf(&c->g->arena, "%s_BITS", cl->parts[0]), SIZE_, cl->at);
	const int max = (int)(sizeof c->k.dtypes / sizeof c->k.dtypes[0]);
	if (c->k.n_dtypes == max) {
		fail_at(&c->g->diags, A0902, cl->at, "more than %d dtype variables", max);
		return;
	}
	ContractDtype *v = &c->k.dtypes[c->k.n_dtypes++];
	v->var = cl->parts[0];
	for (const char *list = cl->parts[1]; expr_next(&list, item, sizeof item);) {
		Dtype t;
		if (!dtype_from_name(item, &t)) {
			fail_at(&c->g->diags, A0903, cl->at, "%s is not a dtype: expected one of artifacts/dtypes.h", item);
			continue;
		}
		bool again = false;
		has_bytes &= dtype_bytes(t) > 0;
		for (int i = 0; i < v->n; i++)
			again |= v->allowed[i] == t;
		if (again)
			fail_at(&c->g->diags, A0906, cl->at, "dtype variable %s allows %s twice", v->var, item);
		else
			v->allowed[v->n++] = t;
	}
	if (has_bytes)
		declare(c, arena_printf(&c->g->arena, "%s_BYTES", v->var), SIZE_, cl->at);
}

static void read_tunable(Check *c, const Clause *cl)
{
	char item[MAX_TEXT];
	if (c->k.n_tunables == MAX_TUNABLES) {
		fail_at(&c->g->diags, A0902, cl->at, "more than %d tunables", MAX_TUNABLES);
		return;
	}
	ContractTunable *t = &c->k.tunables[c->k.n_tunables++];
	t->name = cl->parts[0];
	for (const char *list = cl->parts[1]; expr_next(&list, item, sizeof item);) {
		char *end;
		long v = strtol(item, &end, 10);
		if (*end || v < 0 || v > INT_MAX) {
			fail_at(&c->g->diags, A0902, cl->at, "tunable %s: %s is not a whole number", t->name, item);
			continue;
		}
		for (int i = 0; i < t->n_values; i++)
			if (t->values[i] == v)
				fail_at(&c->g->diags, A0906, cl->at, "tunable %s lists %ld twice", t->name, v);
		if (t->n_values == MAX_TUNE_VALUES)
			fail_at(&c->g->diags, A0902, cl->at, "tunable %s has more than %d values", t->name, MAX_TUNE_VALUES);
		else
			t->values[t->n_values++] = (int)v;
	}
}

static const Clause *find_once(Check *c, Word w)
{
	const Clause *found = NULL;
	for (int i = 0; i < c->raw->clauses.n; i++) {
		const Clause *cl = &c->raw->clauses.at[i];
		if (cl->kind != w)
			continue;
		if (found)
			fail_at(&c->g->diags, A0906, cl->at, "%s occurs twice, first at line %d", cl->word, found->at.line);
		else
			found = cl;
	}
	if (!found && w > KERNEL_ && w < SMEM_)
		fail_at(&c->g->diags, A0902, c->at_kernel, "%s is missing", word_names[w]);
	return found;
}

static void read_once(Check *c)
{
	const Clause *found[EARLY_ + 1] = {0};
	for (int w = ARCH_; w <= EARLY_; w++)
		found[w] = find_once(c, (Word)w);
	if (found[ARCH_])
		read_archs(c, found[ARCH_]);
	if (found[NUMERICS_])
		read_numerics(c, found[NUMERICS_]);
	read_matrix(c, found[MATRIX_]);
	c->k.overlaps = has_name(&c->raw->used_names, "inputs_ready");
	const char **const formulas[] = {[BLOCK_] = &c->k.block, [SMEM_] = &c->k.smem, [READS_] = &c->k.reads,
		[WRITES_] = &c->k.writes, [FLOPS_] = &c->k.flops, [PIECES_] = &c->k.pieces, [RATE_] = &c->k.rate};
	for (int w = BLOCK_; w <= RATE_; w++)
		*formulas[w] = found[w] ? found[w]->parts[0] : w == RATE_ ? "100" : "0";
	for (int i = 0; i < 3; i++)
		c->k.grid[i] = found[GRID_] ? found[GRID_]->parts[i] : "1";
}

static void read_names(Check *c)
{
	for (int i = 0; i < c->raw->clauses.n; i++) {
		const Clause *cl = &c->raw->clauses.at[i];
		if (cl->kind == ATTR_INT_ || cl->kind == ATTR_FLOAT_)
			read_attr(c, cl);
		else if (cl->kind >= DIM_ && cl->kind <= FLAG_)
			declare(c, cl->parts[0], cl->kind, cl->at);
		if (cl->kind == DIM_)
			add_const(c, c->k.dims, &c->k.n_dims, cl);
		else if (cl->kind == DTYPES_)
			read_dtypes(c, cl);
		else if (cl->kind == TUNE_)
			read_tunable(c, cl);
	}
}

/* Formulas ------------------------------------------------------------------------------------------ */

typedef struct Formula { Check *c; const char *what, *text; Loc at; const Names *args; } Formula; /* args: or NULL */

static void see_name(void *ctx, const char *name, int n)
{
	Formula *f = ctx;
	Declared *d = find_name(f->c, name, (size_t)n);
	if (d && d->kind != DIM_) /* a dim is used where it is bound */
		d->is_used = true;
	if ((d && d->kind != ATTR_FLOAT_ && d->kind != DTYPES_) ||
		(f->args && has_name(f->args, arena_strndup(&f->c->g->arena, name, (size_t)n))))
		return;
	if (d) {
		fail_at(&f->c->g->diags, A0904, f->at, "%s: %.*s is a %s: formulas use integers only: %s", f->what, n, name,
			d->kind == DTYPES_ ? "dtype variable" : "float attribute", f->text);
		return;
	}
	const char *known[MAX_NAMES];
	for (int i = 0; i < f->c->n_names; i++)
		known[i] = f->c->names[i].name;
	fail_at(&f->c->g->diags, A0904, f->at, "%s: unknown name %.*s%s: %s", f->what, n, name,
		did_you_mean(f->c, arena_strndup(&f->c->g->arena, name, (size_t)n), known, f->c->n_names), f->text);
}

static void check_formula_of(Check *c, const char *what, const char *text, Loc at, const Names *args)
{
	char why[200];
	Formula f = {c, what, text, at, args};
	if (!expr_names(text, see_name, &f, why, sizeof why))
		fail_at(&c->g->diags, A0904, at, "%s: %s: %s", what, why, text);
}

static void check_formula(Check *c, const char *what, const char *text, Loc at)
{
	check_formula_of(c, what, text, at, NULL);
}

/* ORDER(word, formula, ...) */
static void read_order(Check *c, const Clause *cl)
{
	char word[MAX_TEXT], *item = arena_alloc(&c->g->arena, strlen(cl->parts[0]) + 1);
	const char *list = cl->parts[0];
	if (!expr_next(&list, word, sizeof word) || !is_identifier(word)) {
		fail_at(&c->g->diags, A0902, cl->at, "ORDER(%s): expected a word, then formulas", cl->parts[0]);
		return;
	}
	const char *formulas = list + strspn(list, " \t");
	while (expr_next(&list, item, strlen(list) + 1))
		check_formula(c, "ORDER", arena_strdup(&c->g->arena, item), cl->at);
	if (c->k.n_orders == MAX_ORDERS)
		fail_at(&c->g->diags, A0902, cl->at, "more than %d ORDER", MAX_ORDERS);
	else
		c->k.orders[c->k.n_orders++] = (ContractTerm){"order", arena_strdup(&c->g->arena, word), formulas};
}

static void check_formulas(Check *c)
{
	for (int i = 0; i < c->raw->formulas.n; i++) {
		const RawFormula *f = &c->raw->formulas.at[i];
		if (!f->is_param)
			check_formula_of(c, arena_printf(&c->g->arena, "FORMULA %s", f->name), f->text, f->at, &f->args);
	}
	for (int i = 0; i < c->raw->clauses.n; i++) {
		const Clause *cl = &c->raw->clauses.at[i];
		if (cl->kind == ORDER_)
			read_order(c, cl);
		if (cl->kind == REQUIRE_ || cl->kind == PREFER_ || cl->kind == PRUNE_) {
			check_formula(c, cl->word, cl->parts[0], cl->at);
			if (c->k.n_requires == MAX_REQUIRES)
				fail_at(&c->g->diags, A0902, cl->at, "more than %d predicates", MAX_REQUIRES);
			else
				c->k.requires[c->k.n_requires++] = (ContractRequire){cl->parts[0], cl->at.file, cl->at.line,
					cl->kind != REQUIRE_, cl->kind == PRUNE_};
		}
		for (int j = 0; cl->kind >= GRID_ && cl->kind <= RATE_ && j < cl->n_parts; j++)
			check_formula(c, cl->word, cl->parts[j], cl->at);
	}
	if (!c->k.n_orders)
		fail_at(&c->g->diags, A0902, c->at_kernel, "ORDER is missing");
}

/* Arguments --------------------------------------------------------------------------------------- */

static const char *const role_words[] = {
	[OPERAND_IN] = "IN", [OPERAND_IN_OPT] = "IN_IF", [OPERAND_INOUT] = "INOUT", [OPERAND_INOUT_OPT] = "INOUT_IF",
	[OPERAND_OUT] = "OUT"};

static bool role_from_word(const char *word, OperandRole *role)
{
	for (int i = 0; i < OPERAND_ROLES; i++)
		if (strcmp(role_words[i], word) == 0)
			return *role = (OperandRole)i, true;
	return false;
}

/* An item of an op's shape that is a dim of the op, not an attribute, number or expression. */
static bool is_op_dim(OpKind op, const char *item)
{
	return is_identifier(item) && !op_has_attr(op, item);
}

/* Writes text without its spaces: shapes are compared as they are read. */
static void squeeze(const char *text, char *out, size_t bytes)
{
	size_t n = 0;
	for (; *text && n + 1 < bytes; text++)
		if (*text != ' ' && *text != '\t')
			out[n++] = *text;
	out[n] = 0;
}

static void check_dim(Check *c, const RawField *f, int index, const char *theirs, const char *ours)
{
	char item[MAX_TEXT], op_item[MAX_TEXT];
	squeeze(ours, item, sizeof item);
	squeeze(theirs, op_item, sizeof op_item);
	const char *op = op_table[c->k.op].name;
	if (!is_op_dim(c->k.op, theirs)) {
		Declared *d = find_name(c, item, strlen(item));
		if (strcmp(item, op_item) != 0 && !(d && d->kind == DIM_))
			fail_at(&c->g->diags, A0903, f->at, "dim %d of %s is %s of %s: expected that or a dim, found %s", index,
				f->name, theirs, op, ours);
		return;
	}
	for (int i = 0; i < c->n_dims; i++)
		if (strcmp(c->dims[i].op_dim, op_item) == 0) {
			if (strcmp(c->dims[i].item, item) != 0)
				fail_at(&c->g->diags, A0903, f->at, "dim %d of %s is %s of %s, which is %s in %s: found %s", index,
					f->name, theirs, op, c->dims[i].item, c->dims[i].where, ours);
			return;
		}
	if (c->n_dims < MAX_NAMES) {
		strcpy(c->dims[c->n_dims].op_dim, op_item);
		strcpy(c->dims[c->n_dims].item, item);
		c->dims[c->n_dims++].where = f->name;
	}
}

/* theirs: the operand's shape in ops.h, NULL when the field is no operand. */
static void check_shape(Check *c, const RawField *f, bool is_always_there, const char *theirs)
{
	const char *shape = f->clause.parts[1];
	char item[MAX_TEXT], op_item[MAX_TEXT];
	for (const char *list = shape; expr_next(&list, item, sizeof item);) {
		Declared *d = find_name(c, item, strlen(item));
		if (d && d->kind == DIM_ && is_always_there)
			d->is_used = true;
		check_formula(c, arena_printf(&c->g->arena, "shape of %s", f->name), arena_strdup(&c->g->arena, item),
			f->at);
	}
	if (!theirs)
		return;
	if (count_items(shape) != count_items(theirs)) {
		fail_at(&c->g->diags, A0903, f->at, "%s has %d dims, \"%s\": %s gives it %d, \"%s\"", f->name,
			count_items(shape), shape, op_table[c->k.op].name, count_items(theirs), theirs);
		return;
	}
	int index = 0;
	for (const char *list = shape; expr_next(&list, item, sizeof item) && expr_next(&theirs, op_item, sizeof op_item);)
		check_dim(c, f, index++, op_item, item);
}

static void check_field_role(Check *c, const RawField *f, OperandRole role, const OperandInfo *operand)
{
	const bool demands = operand_may_be_absent(operand->role) && role + 1u == operand->role; /* IN of an IN_IF */
	const bool spares = operand_may_be_absent(role) && operand->role + 1u == role;
	if (operand->role != role && !demands)
		fail_at(&c->g->diags, A0903, f->at, "%s of %s is %s%s%s found %s", f->name, op_table[c->k.op].name,
			spares ? "always there: expected " : "", role_words[operand->role], spares ? "," : ":", role_words[role]);
}

static void check_field_dtype(Check *c, const RawField *f)
{
	Dtype t;
	const char *name = f->clause.parts[0];
	Declared *d = find_name(c, name, strlen(name));
	if (d && d->kind == DTYPES_)
		d->is_used = true;
	else if (!dtype_from_name(name, &t))
		fail_at(&c->g->diags, A0903, f->at, "%s: %s is neither a dtype nor a DTYPES variable", f->name, name);
}

static ContractField *find_field(Check *c, const char *name)
{
	for (int i = 0; i < c->k.n_fields; i++)
		if (strcmp(c->k.fields[i].name, name) == 0)
			return &c->k.fields[i];
	return NULL;
}

/* A map of an operand is next to the operand's own field, before or after it. */
static void check_map(Check *c, const RawField *f)
{
	Diags *d = &c->g->diags;
	const char *of = f->clause.parts[0];
	const ContractField *field = find_field(c, of);
	if (f->is_pointer || f->offset % 64)
		fail_at(d, A0903, f->at, "%s is not a tensor map: expected TENSOR_MAP alone", f->name);
	if (!field)
		fail_at(d, A0903, f->at, "tensor map %s: %s is not an argument", f->name, of);
	else if (operand_may_be_absent(field->role))
		fail_at(d, A0903, f->at, "tensor map %s: %s may be absent", f->name, of);
	if (!f->is_used && c->raw->kernels.n)
		fail_at(d, A0905, f->at, "tensor map %s is never used in the code", f->name);
	for (int i = 1; i <= 2; i++)
		check_formula(c, arena_printf(&c->g->arena, "box of %s", f->name), f->clause.parts[i], f->at);
	if (c->k.n_maps == MAX_MAPS)
		fail_at(d, A0903, f->at, "struct Args has more than %d tensor maps", MAX_MAPS);
	else
		c->k.maps[c->k.n_maps++] = (ContractMap){f->name, field ? (int)(field - c->k.fields) : -1,
			{f->clause.parts[1], f->clause.parts[2]}, f->offset, f->at.file, f->at.line};
}

static bool is_map(const RawField *f) { return f->clause.word && strcmp(f->clause.word, "MAP") == 0; }

/* The pointer itself is used, or a tensor map of what it points to. */
static bool is_used_somehow(const Check *c, const RawField *f)
{
	bool used = f->is_used;
	for (int i = 0; i < c->raw->fields.n; i++)
		used |= is_map(&c->raw->fields.at[i]) && strcmp(c->raw->fields.at[i].clause.parts[0], f->name) == 0;
	return used;
}

static void check_field(Check *c, int index)
{
	Diags *d = &c->g->diags;
	const RawField *f = &c->raw->fields.at[index];
	OperandRole role;
	if (!f->clause.word || !role_from_word(f->clause.word, &role)) {
		fail_at(d, A0903, f->at, "%s has no contract: expected IN, IN_IF, INOUT, INOUT_IF or OUT", f->name);
		return;
	}
	if (!f->is_pointer)
		fail_at(d, A0903, f->at, "%s is not a pointer", f->name);
	if (c->k.n_fields >= MAX_FIELDS) {
		if (c->k.n_fields == MAX_FIELDS)
			fail_at(d, A0903, f->at, "struct Args has more than %d arguments", MAX_FIELDS);
		return;
	}
	check_field_dtype(c, f);
	ContractField *out = &c->k.fields[c->k.n_fields++];
	*out = (ContractField){f->name, role, NULL, f->clause.parts[0], f->clause.parts[1], f->offset, f->at.file,
		f->at.line, false};
	if (operand_may_be_absent(role)) {
		out->flag = f->clause.parts[2];
		Declared *flag = find_name(c, out->flag, strlen(out->flag));
		if (!flag || flag->kind != FLAG_)
			fail_at(d, A0903, f->at, "%s: no FLAG(%s) is declared", f->name, out->flag);
		else if (flag->is_used)
			fail_at(d, A0906, f->at, "flag %s belongs to two arguments", out->flag);
		else
			flag->is_used = true;
	}
	if (!is_used_somehow(c, f) && c->raw->kernels.n)
		fail_at(d, A0905, f->at, "argument %s is never used in the code", f->name);
	int operand = c->has_op ? op_operand(c->k.op, f->name) : -1;
	if (operand >= 0)
		check_field_role(c, f, role, &op_table[c->k.op].operands[operand]);
	else if (c->has_op)
		fail_at(d, A0903, f->at, "%s is not an operand of %s", f->name, op_table[c->k.op].name);
	check_shape(c, f, !operand_may_be_absent(role), operand >= 0 ? operand_shape(c->k.op, operand) : NULL);
}

static bool has_field(const Check *c, const char *name)
{
	for (int i = 0; i < c->raw->fields.n; i++)
		if (strcmp(c->raw->fields.at[i].name, name) == 0)
			return true;
	return false;
}

static void check_args(Check *c)
{
	Diags *d = &c->g->diags;
	if (c->raw->n_args_structs != 1) {
		fail_at(d, c->raw->n_args_structs ? A0906 : A0902, c->raw->n_args_structs ? c->raw->args_at : c->at_kernel,
			c->raw->n_args_structs ? "struct Args is defined twice" : "struct Args is missing");
		return;
	}
	c->k.param_bytes = c->raw->args_bytes;
	for (int i = 0; i < c->raw->fields.n; i++)
		if (!is_map(&c->raw->fields.at[i]))
			check_field(c, i);
	for (int i = 0; i < c->raw->fields.n; i++)
		if (is_map(&c->raw->fields.at[i]))
			check_map(c, &c->raw->fields.at[i]);
	for (int i = 0; c->has_op && i < op_table[c->k.op].n_operands; i++) {
		const OperandInfo *o = &op_table[c->k.op].operands[i];
		if (!has_field(c, o->name) && !operand_may_be_absent(o->role)) /* left out: kernels are for ops without it */
			fail_at(d, A0903, c->raw->args_at, "operand %s of %s is missing: expected %s(..., %s, \"%s\")", o->name,
				op_table[c->k.op].name, role_words[o->role], o->name, operand_shape(c->k.op, i));
	}
}

/* What is read before inputs_ready must be there before the step: operands that are read, of a kernel that waits. */
static void check_early(Check *c)
{
	Diags *d = &c->g->diags;
	char item[MAX_TEXT];
	for (int i = 0; i < c->raw->clauses.n; i++) {
		const Clause *cl = &c->raw->clauses.at[i];
		if (cl->kind != EARLY_)
			continue;
		if (!c->k.overlaps && c->raw->kernels.n)
			fail_at(d, A0905, cl->at, "EARLY: the code never calls inputs_ready");
		for (const char *list = cl->parts[0]; expr_next(&list, item, sizeof item);) {
			ContractField *f = find_field(c, item);
			if (!f)
				fail_at(d, A0903, cl->at, "EARLY: %s is not an argument", item);
			else if (f->role == OPERAND_OUT)
				fail_at(d, A0903, cl->at, "EARLY: %s is OUT: nothing of it is there to read", item);
			else if (f->early)
				fail_at(d, A0906, cl->at, "EARLY names %s twice", item);
			else
				f->early = true;
		}
	}
}

/* Code --------------------------------------------------------------------------------------------- */

static void check_kernel(Check *c)
{
	Diags *d = &c->g->diags;
	const char *name = c->raw->name;
	if (c->raw->kernels.n == 0)
		fail_at(d, A0902, c->at_kernel, "no kernel: expected extern \"C\" __global__ void %s(const Args a)", name);
	for (int i = 0; i < c->raw->kernels.n; i++) {
		const RawKernel *k = &c->raw->kernels.at[i];
		if (strcmp(k->name, name) != 0)
			fail_at(d, A0902, k->at, "kernel %s: the only kernel of a file has its name, %s", k->name, name);
		else if (!k->is_extern_c || !k->is_void || !k->takes_args)
			fail_at(d, A0902, k->at, "kernel %s %s: expected extern \"C\" __global__ void %s(const Args a)", name,
				!k->is_extern_c ? "is not extern \"C\"" : !k->is_void ? "returns a value" :
				"does not take exactly one Args", name);
	}
}

typedef struct Mention { const char *name; bool found; } Mention;

static void see_mention(void *ctx, const char *name, int n)
{
	Mention *m = ctx;
	m->found |= strncmp(m->name, name, (size_t)n) == 0 && m->name[n] == 0;
}

/* Is the attribute part of shapes, and only of operands that the contract leaves out? */
static bool is_left_out(const Check *c, const char *attr)
{
	bool is_left = false;
	for (int i = 0; i < op_table[c->k.op].n_operands; i++) {
		const OperandInfo *o = &op_table[c->k.op].operands[i];
		char item[MAX_TEXT], why[200];
		Mention m = {attr, false};
		for (const char *list = operand_shape(c->k.op, i); expr_next(&list, item, sizeof item);)
			expr_names(item, see_mention, &m, why, sizeof why);
		if (m.found && has_field(c, o->name))
			return false;
		is_left |= m.found;
	}
	return is_left;
}

static void check_used(Check *c)
{
	Diags *d = &c->g->diags;
	for (int i = 0; i < c->n_names && c->raw->n_args_structs; i++) {
		const Declared *n = &c->names[i];
		bool in_code = has_name(&c->raw->used_names, n->name);
		if (n->kind == DIM_ && !n->is_used)
			fail_at(d, A0904, n->at, "dim %s is not a whole dimension of any required operand, so it cannot be bound",
				n->name);
		else if (n->kind == FLAG_ && !n->is_used)
			fail_at(d, A0905, n->at, "flag %s belongs to no argument", n->name);
		else if (n->kind == DTYPES_ && !n->is_used)
			fail_at(d, A0905, n->at, "dtype variable %s belongs to no argument", n->name);
		else if ((n->kind == ATTR_INT_ || n->kind == ATTR_FLOAT_ || n->kind == TUNE_) && !n->is_used &&
			!in_code && c->raw->kernels.n)
			fail_at(d, A0905, n->at, "%s %s is never used", name_kinds[n->kind], n->name);
	}
	char item[MAX_TEXT];
	for (const char *list = c->has_op ? op_table[c->k.op].attrs : ""; *list;) {
		list += strspn(list, " ");
		size_t n = strcspn(list, " ");
		snprintf(item, sizeof item, "%.*s", (int)n, list);
		if (n && !find_name(c, item, n) && !is_left_out(c, item))
			fail_at(d, A0903, c->at_kernel, "attribute %s of %s is not declared", item, op_table[c->k.op].name);
		list += n;
	}
}

/* ------------------------------------------------------------------------------------------------- */

static void list_sources(Check *c)
{
	c->k.n_sources = c->raw->sources.n;
	const char **names = ARENA_ARRAY(&c->g->arena, const char *, c->k.n_sources);
	for (int i = 0; i < c->k.n_sources; i++)
		names[i] = c->g->sources.at[c->raw->sources.at[i]].name;
	c->k.sources = names;
	memcpy(c->k.source_sha256, c->raw->source_sha256, sizeof c->k.source_sha256);
	memcpy(c->k.code_sha256, c->raw->code_sha256, sizeof c->k.code_sha256);
}

void check_contract(Gen *g, const RawTemplate *raw)
{
	Check *c = ARENA_NEW(&g->arena, Check);
	*c = (Check){.g = g, .raw = raw, .at_kernel = {raw->path, 1, 1}};
	c->k.name = raw->name;
	c->k.file = raw->path;
	const int errors = g->diags.n_errors;
	const Clause *kernel = find_once(c, KERNEL_);
	if (!kernel) {
		fail_at(&g->diags, A0902, c->at_kernel, "no contract: expected KERNEL(%s, OPERATION)", raw->name);
		return;
	}
	c->at_kernel = kernel->at;
	read_kernel_clause(c, kernel);
	declare(c, "SMEM_MAX", SIZE_, kernel->at);
	declare(c, "SMS", SIZE_, kernel->at);
	read_once(c);
	read_names(c);
	check_args(c);
	check_early(c);
	check_formulas(c);
	check_kernel(c);
	check_used(c);
	for (int i = 0; i < g->templates.n; i++)
		if (strcmp(g->templates.at[i].name, raw->name) == 0)
			fail_at(&g->diags, A0906, kernel->at, "kernel %s is defined in %s too", raw->name, g->templates.at[i].file);
	list_sources(c);
	if (g->diags.n_errors == errors)
		*vec_push(&g->arena, &g->templates) = c->k;
}
