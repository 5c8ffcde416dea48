/* bind_kernel.c - does a template do this op with these values of its tunables, and as what launch?
 *
 * The operands bind by name, type and shape, which gives the contract's constants their values; then every predicate
 * must hold, the launch must fit the device, and the order of sums is computed. What fails is kept as data: which
 * condition it was (Considered.failed). Its text is made when it is printed, by asking once more.
 */
#include "artifacts/order.h"
#include "compiler/pick/picker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 48, MAX_DEFINES = MAX_NAMES + MAX_CONSTS + MAX_DTYPES /* macros, float attributes, dtypes */ };

typedef struct Env { /* constants known so far, with their values */
	ExprName names[MAX_NAMES];
	int n;
	int n_macros; /* the first of them become macros of the kernel; element sizes after them are for formulas only */
} Env;

static bool set(Env *env, const char *name, int64_t value)
{
	if (env->n == MAX_NAMES)
		bug("more than %d constants in one contract", MAX_NAMES);
	env->names[env->n++] = (ExprName){name, value};
	return true;
}

static bool reject(Picker *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool reject(Picker *p, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	if (p->why)
		vsnprintf(p->why, WHY_BYTES, fmt, args);
	va_end(args);
	return false;
}

/* What is asked next: where the answer is no, this condition is what failed. */
static void ask(Picker *p, ConditionKind kind, int index) { p->asked = (Condition){kind, index}; }

static bool eval(Picker *p, const Env *env, const char *text, int64_t *value)
{
	ExprEnv e = {env->names, env->n, NULL};
	char why[WHY_BYTES / 2];
	return expr_eval(text, &e, value, why, sizeof why) || reject(p, "%s: %s", text, why);
}

/* "K = 576, ROWS = 1": the names an expression mentions, with their values. */
typedef struct Operands { const Env *env; char *text; size_t room; int n; } Operands;
static void add_operand(void *ctx, const char *name, int n)
{
	Operands *o = ctx;
	ExprEnv e = {o->env->names, o->env->n, NULL};
	int64_t value;
	if (!env_find(&e, name, (size_t)n, &value))
		return;
	int len = snprintf(o->text, o->room, "%s%.*s = %lld", o->n++ ? ", " : "", n, name, (long long)value);
	if (len > 0 && (size_t)len < o->room) {
		o->text += len;
		o->room -= (size_t)len;
	}
}

typedef struct Mention { const KernelTemplate *of; bool is_there; } Mention;
static void find_tunable(void *ctx, const char *name, int n)
{
	Mention *m = ctx;
	for (int i = 0; i < m->of->n_tunables; i++)
		m->is_there |= strncmp(m->of->tunables[i].name, name, (size_t)n) == 0 && !m->of->tunables[i].name[n];
}

/* Does one of a list of expressions name a tunable of the template? */
static bool names_tunable(const KernelTemplate *t, const char *list)
{
	char item[WHY_BYTES], why[WHY_BYTES / 2];
	Mention m = {t, false};
	while (!m.is_there && expr_next(&list, item, sizeof item))
		m.is_there = !expr_names(item, find_tunable, &m, why, sizeof why) || m.is_there; /* cut: it may */
	return m.is_there;
}

static bool check_arch(Picker *p, const KernelTemplate *t)
{
	ask(p, SERVES_TARGET, 0);
	if (template_serves(t, p->work->target))
		return true;
	char list[64] = "";
	for (int i = 0; i < t->n_archs; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", t->archs[i]);
	return reject(p, "needs architecture %s: target is %s", list, p->work->target->name);
}

/* Binding ---------------------------------------------------------------------------------------- */

/* The template's dim of that name, or NULL for anything else. */
static const char *dim_named(const KernelTemplate *t, const char *name)
{
	for (int i = 0; i < t->n_dims; i++)
		if (strcmp(t->dims[i], name) == 0)
			return t->dims[i];
	return NULL;
}

static bool known(const Env *env, const char *name, int64_t *value)
{
	ExprEnv e = {env->names, env->n, NULL};
	return env_find(&e, name, strlen(name), value);
}

/* A dim's first plain mention decides it; any other mention must agree. A 0 dim of the operand is one that the
 * candidate decides (its own tunable). Expressions wait until all plain dims are bound (pass 1). */
static bool bind_shape(Picker *p, const KernelTemplate *t, const ContractField *f, const LTensor *x, Env *env,
	int pass)
{
	char item[96];
	const char *rest = f->shape;
	int d = 0;
	for (; expr_next(&rest, item, sizeof item); d++) {
		if (d >= x->n_dims)
			return reject(p, "%s: contract shape [%s] has more dims than %s", f->name, f->shape, x->name);
		int64_t want, have = x->shape[d];
		const char *dim = dim_named(t, item);
		if (dim && !known(env, dim, &want)) {
			set(env, dim, have);
		} else if (pass == 1) {
			if (!eval(p, env, item, &want))
				return false;
			if (have != 0 && have != want)
				return reject(p, "%s: contract says %s = %lld, %s has %lld", f->name, item,
					(long long)want, x->name, (long long)have);
		}
	}
	return d == x->n_dims || reject(p, "%s: contract shape [%s] has fewer dims than %s", f->name, f->shape, x->name);
}

static bool bind_dtype(Picker *p, const KernelTemplate *t, const ContractField *f, const LTensor *x, int *vars)
{
	for (int v = 0; v < t->n_dtypes; v++) {
		if (strcmp(t->dtypes[v].var, f->dtype) != 0)
			continue;
		if (vars[v] >= 0 && vars[v] != (int)x->dtype)
			return reject(p, "%s: %s is %s, but %s is already %s", f->name, x->name, dtype_name(x->dtype),
				f->dtype, dtype_name((Dtype)vars[v]));
		for (int i = 0; i < t->dtypes[v].n; i++)
			if (t->dtypes[v].allowed[i] == x->dtype) {
				vars[v] = (int)x->dtype;
				return true;
			}
		return reject(p, "%s: %s is %s, which %s does not take", f->name, x->name, dtype_name(x->dtype), f->dtype);
	}
	return strcmp(f->dtype, dtype_name(x->dtype)) == 0 ||
		reject(p, "%s: %s is %s, the contract takes %s", f->name, x->name, dtype_name(x->dtype), f->dtype);
}

static const LTensor *operand_of(const Picker *p, const ContractField *f)
{
	int i = op_operand(p->op->kind, f->name);
	if (i < 0)
		bug("kernelgen let through field %s of no operand", f->name);
	return p->op->operands[i] < 0 ? NULL : &p->low->tensors.at[p->op->operands[i]];
}

/* The dtype of a variable; that of an absent operand alone is the first allowed one. */
static Dtype var_dtype(const KernelTemplate *t, const int *vars, int v)
{
	return vars[v] < 0 ? t->dtypes[v].allowed[0] : (Dtype)vars[v];
}

/* An optional operand that the contract leaves out must be absent. */
static bool takes_operands(Picker *p, const KernelTemplate *t)
{
	const OpInfo *info = &op_table[p->op->kind];
	for (int i = 0; i < info->n_operands; i++) {
		bool is_taken = p->op->operands[i] < 0;
		ask(p, TAKES_OPERAND, i);
		for (int k = 0; k < t->n_fields && !is_taken; k++)
			is_taken = strcmp(t->fields[k].name, info->operands[i].name) == 0;
		if (!is_taken)
			return reject(p, "%s is there, the contract does not take it", info->operands[i].name);
	}
	return true;
}

static void add_sizes(Picker *p, Env *env, const char *var, Dtype dtype)
{
	set(env, arena_printf(&p->c->scratch, "%s_BITS", var), dtype_span(dtype, 8));
	if (dtype_bytes(dtype))
		set(env, arena_printf(&p->c->scratch, "%s_BYTES", var), dtype_bytes(dtype));
}

static bool bind_operands(Picker *p, const KernelTemplate *t, Env *env, int vars[MAX_DTYPES])
{
	for (int v = 0; v < MAX_DTYPES; v++)
		vars[v] = -1;
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < t->n_fields; i++) {
			const ContractField *f = &t->fields[i];
			const LTensor *x = operand_of(p, f);
			ask(p, BINDS_FIELD, i);
			if (pass == 0 && f->flag)
				set(env, f->flag, x != NULL);
			if (!x && !f->flag)
				return reject(p, "%s is absent, the contract needs it", f->name);
			if (x && !((pass || bind_dtype(p, t, f, x, vars)) && bind_shape(p, t, f, x, env, pass)))
				return false;
		}
	for (int i = 0; i < t->n_dims; i++) { /* dims only absent operands would have bound */
		int64_t unused;
		if (!known(env, t->dims[i], &unused))
			set(env, t->dims[i], 0);
	}
	env->n_macros = env->n;
	set(env, "SMEM_MAX", p->work->target->smem_block_bytes);
	set(env, "SMS", p->work->target->n_sms);
	for (int v = 0; v < t->n_dtypes; v++) /* DTYPES(WT, ...) also gives WT_BITS, and WT_BYTES of whole bytes */
		add_sizes(p, env, t->dtypes[v].var, var_dtype(t, vars, v));
	return true;
}

/* One candidate ------------------------------------------------------------------------------------- */

/* "K % 8 == 0 is false: K = 100" */
static void say_false(Picker *p, const char *predicate, const Env *env)
{
	char text[160] = "", why[64];
	Operands o = {env, text, sizeof text, 0};
	if (!p->why)
		return;
	expr_names(predicate, add_operand, &o, why, sizeof why);
	reject(p, "%s is false: %s", predicate, text);
}

/* A preference that is false is no failure: they are counted in out. not_preferred: the first of them, -1 = none. */
static bool check_requires(Picker *p, const KernelTemplate *t, const Env *env, int *not_preferred, Admitted *out)
{
	*not_preferred = -1;
	for (int i = 0; i < t->n_requires; i++) {
		const bool is_preference = t->requires[i].is_preference;
		int64_t ok;
		ask(p, HOLDS, i);
		if (p->held && (p->held[i] == HELD || p->held[i] == FAILED))
			ok = p->held[i] == HELD;
		else if (!eval(p, env, t->requires[i].text, &ok))
			return false;
		else if (p->held && p->held[i] == NOT_ASKED)
			p->held[i] = names_tunable(t, t->requires[i].text) ? ASK_AGAIN : ok ? HELD : FAILED;
		if (ok)
			continue;
		if (!is_preference || *not_preferred < 0)
			say_false(p, t->requires[i].text, env);
		if (!is_preference)
			return false;
		if (*not_preferred < 0)
			*not_preferred = i;
		out->n_not_preferred += !t->requires[i].is_pruning;
	}
	return true;
}

static bool find_order(Picker *p, const KernelTemplate *t, const Env *env, const char **order)
{
	char text[ORDER_BYTES] = "", why[WHY_BYTES / 2];
	const ExprEnv e = {env->names, env->n, NULL};
	ask(p, HAS_ORDER, 0);
	for (int i = 0; i < t->n_orders; i++)
		if (!order_append(text, t->orders[i].name, t->orders[i].text, &e, why, sizeof why))
			return reject(p, "ORDER(%s, %s): %s", t->orders[i].name, t->orders[i].text, why);
	*order = arena_strdup(&p->c->arena, text);
	return true;
}

/* Tiles that the copy engine takes: up to 256 rows of 128 bytes, of a matrix whose rows are 16-byte steps. */
static bool check_maps(Picker *p, const KernelTemplate *t, const Env *env, Pick *pick)
{
	for (int i = 0; i < t->n_maps; i++) {
		const ContractMap *m = &t->maps[i];
		const LTensor *x = operand_of(p, &t->fields[m->field]);
		ask(p, HAS_TILES, i);
		int64_t box[2], row = dtype_span(x->dtype, x->shape[x->n_dims - 1]);
		for (int k = 0; k < 2; k++)
			if (!eval(p, env, m->box[k], &box[k]))
				return false;
		if (box[0] < 1 || box[0] > 256 || dtype_span(x->dtype, box[1]) != 128)
			return reject(p, "%s: tiles of %lld x %lld %s: rows of 128 bytes, 1 to 256 of them", m->name,
				(long long)box[0], (long long)box[1], dtype_name(x->dtype));
		if (x->n_dims < 2 || row % 16)
			return reject(p, "%s: %s has rows of %lld bytes: a multiple of 16 expected", m->name, x->name,
				(long long)row);
		pick->box[i][0] = (int)box[0];
		pick->box[i][1] = (int)box[1];
	}
	return true;
}

static bool check_launch(Picker *p, const KernelTemplate *t, const Env *env, Pick *pick)
{
	static const int64_t limits[3] = {2147483647, 65535, 65535};
	int64_t v;
	ask(p, FITS_DEVICE, 0);
	for (int i = 0; i < 3; i++) {
		if (!eval(p, env, t->grid[i], &v))
			return false;
		if (v < 1 || v > limits[i])
			return reject(p, "grid.%c = %s = %lld: the device takes 1 to %lld", "xyz"[i], t->grid[i],
				(long long)v, (long long)limits[i]);
		pick->grid[i] = (int)v;
	}
	if (!eval(p, env, t->block, &v))
		return false;
	if (v < 1 || v > 1024)
		return reject(p, "block = %s = %lld: the device takes 1 to 1024", t->block, (long long)v);
	pick->block[0] = (int)v;
	pick->block[1] = pick->block[2] = 1;
	if (!eval(p, env, t->smem, &v))
		return false;
	if (v < 0 || v > p->work->target->smem_block_bytes)
		return reject(p, "shared memory = %s = %lld bytes: %s has %d a block", t->smem, (long long)v,
			p->work->target->name, p->work->target->smem_block_bytes);
	pick->smem_bytes = (int)v;
	return eval(p, env, t->reads, &pick->read_bytes) &&
		eval(p, env, t->writes, &pick->write_bytes) && eval(p, env, t->flops, &pick->flops) &&
		eval(p, env, t->pieces, &pick->pieces) && eval(p, env, t->rate, &pick->rate);
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "BIAS=0 EPS=0x1.4f8b58p-17f K=576 WT=bf16 ...": sorted, so that equal kernels have equal text. */
static const char *defines_text(Picker *p, const KernelTemplate *t, const Env *env, const int *vars)
{
	char *list[MAX_DEFINES];
	int n = 0;
	Arena *a = &p->c->scratch;
	for (int i = 0; i < env->n_macros; i++)
		list[n++] = arena_printf(a, "%s=%lld", env->names[i].name, (long long)env->names[i].value);
	for (int i = 0; i < t->n_attrs; i++) {
		double value;
		bool is_float;
		attr_value(&p->op->attrs, t->attrs[i], &value, &is_float);
		if (is_float)
			list[n++] = arena_printf(a, "%s=%af", t->attrs[i], value);
	}
	for (int v = 0; v < t->n_dtypes; v++)
		list[n++] = arena_printf(a, "%s=%s", t->dtypes[v].var,
			dtype_name(var_dtype(t, vars, v)));
	qsort(list, (size_t)n, sizeof list[0], compare_text);
	size_t bytes = 1;
	for (int i = 0; i < n; i++)
		bytes += strlen(list[i]) + 1;
	char *text = arena_alloc(&p->c->arena, bytes), *at = text;
	for (int i = 0; i < n; i++)
		at += sprintf(at, "%s%s", i ? " " : "", list[i]);
	return text;
}

/* Of the tunables, and of the op's whole-number attributes. */
static void set_constants(Picker *p, const KernelTemplate *t, const int *values, Env *env)
{
	for (int i = 0; i < t->n_tunables; i++)
		set(env, t->tunables[i].name, values[i]);
	for (int i = 0; i < t->n_attrs; i++) {
		double value;
		bool is_float;
		if (!attr_value(&p->op->attrs, t->attrs[i], &value, &is_float))
			bug("kernelgen let through attribute %s", t->attrs[i]);
		if (!is_float)
			set(env, t->attrs[i], (int64_t)value);
	}
}

/* Everything but the tunables' values, which are there. False where a condition fails: p->asked. */
static bool fit(Picker *p, const int *values, int *not_preferred, Admitted *out)
{
	const KernelTemplate *t = &kernel_table[out->pick.template_index];
	Env env = {.n = 0};
	int vars[MAX_DTYPES];
	set_constants(p, t, values, &env);
	if (!check_arch(p, t) || !takes_operands(p, t) || !bind_operands(p, t, &env, vars) ||
		!check_requires(p, t, &env, not_preferred, out) || !check_launch(p, t, &env, &out->pick) ||
		!check_maps(p, t, &env, &out->pick) || !find_order(p, t, &env, &out->order))
		return false;
	if (!p->why)
		out->pick.defines = defines_text(p, t, &env, vars);
	return true;
}

int combinations(const KernelTemplate *t)
{
	int n = 1;
	for (int i = 0; i < t->n_tunables; i++)
		n *= t->tunables[i].n_values;
	return n;
}

bool try_candidate(Picker *p, int template_index, int choice, Considered *k, Admitted *a)
{
	const KernelTemplate *t = &kernel_table[template_index];
	*k = (Considered){.template_index = template_index, .not_preferred = -1, .order = "", .note = ""};
	*a = (Admitted){.pick = {.template_index = template_index, .kernel = -1, .slot = -1}};
	for (int i = 0; i < t->n_tunables; i++) {
		k->values[i] = a->pick.values[i] = t->tunables[i].values[choice % t->tunables[i].n_values];
		choice /= t->tunables[i].n_values;
	}
	if (fit(p, k->values, &k->not_preferred, a)) {
		k->order = a->order;
		a->is_preferred = k->not_preferred < 0;
		return true;
	}
	k->verdict = REJECTED;
	k->failed = p->asked;
	return false;
}

bool fails_with_any_values(const Considered *k)
{
	const KernelTemplate *t = &kernel_table[k->template_index];
	if (k->failed.kind == SERVES_TARGET || k->failed.kind == TAKES_OPERAND)
		return true;
	for (int i = 0; i < t->n_fields; i++)
		if (names_tunable(t, t->fields[i].shape))
			return false;
	for (int i = 0; k->failed.kind == HOLDS && i <= k->failed.index; i++)
		if (names_tunable(t, t->requires[i].text))
			return false;
	return k->failed.kind <= HOLDS;
}

const char *failure_text(Picker *p, const Considered *k, Arena *a)
{
	char why[WHY_BYTES] = "";
	int not_preferred;
	Admitted again = {.pick = {.template_index = k->template_index}};
	p->held = NULL;
	p->why = why;
	fit(p, k->values, &not_preferred, &again);
	p->why = NULL;
	return arena_strdup(a, why);
}

Loc failure_place(const Considered *k)
{
	const KernelTemplate *t = &kernel_table[k->template_index];
	const int i = k->failed.index;
	switch (k->failed.kind) {
	case BINDS_FIELD: return (Loc){t->fields[i].file, t->fields[i].line, 0};
	case HOLDS: return (Loc){t->requires[i].file, t->requires[i].line, 0};
	case HAS_TILES: return (Loc){t->maps[i].file, t->maps[i].line, 0};
	default: return (Loc){t->file, t->line, 0};
	}
}

const char *tunables_text(Arena *a, int template_index, const int *values)
{
	const KernelTemplate *t = &kernel_table[template_index];
	const char *text = "";
	for (int i = 0; i < t->n_tunables; i++)
		text = arena_printf(a, "%s%s%s=%d", text, i ? " " : "", t->tunables[i].name, values[i]);
	return text;
}

/* Dims the candidate decides: shapes of the intermediates it writes. operands[i] is NULL where absent. */
static void settle_outputs(Picker *p, const Pick *pick, LTensor *const *operands)
{
	const KernelTemplate *t = &kernel_table[pick->template_index];
	Env env = {.n = 0};
	int vars[MAX_DTYPES];
	char why[WHY_BYTES] = "";
	p->why = why;
	set_constants(p, t, pick->values, &env);
	if (!bind_operands(p, t, &env, vars))
		bug("%s no longer binds: %s", t->name, why);
	for (int i = 0; i < t->n_fields; i++) {
		LTensor *x = operands[op_operand(p->op->kind, t->fields[i].name)];
		if (!x || t->fields[i].role != OPERAND_OUT)
			continue;
		char item[96];
		const char *rest = t->fields[i].shape;
		for (int d = 0; expr_next(&rest, item, sizeof item); d++)
			if (x->shape[d] == 0 && !eval(p, &env, item, &x->shape[d]))
				bug("shape of %s: %s", x->name, why);
	}
	p->why = NULL;
}

void settle_op(Picker *p, const Pick *pick)
{
	LTensor *operands[PLAN_MAX_OPERANDS];
	for (int i = 0; i < op_table[p->op->kind].n_operands; i++)
		operands[i] = p->op->operands[i] < 0 ? NULL : &p->low->tensors.at[p->op->operands[i]];
	settle_outputs(p, pick, operands);
}

void add_trial(Picker *p, const Pick *pick)
{
	LTensor *operands[PLAN_MAX_OPERANDS];
	for (int i = 0; i < p->work->trials.n; i++) {
		const Pick *other = &p->work->trials.at[i].pick;
		if (other->template_index == pick->template_index && strcmp(other->defines, pick->defines) == 0)
			return;
	}
	Trial *t = vec_push(&p->c->arena, &p->work->trials);
	*t = (Trial){.pick = *pick, .op = p->op->kind, .layer = p->op->layer, .phase = p->low->kind, .rows = p->low->rows,
		.outs = p->low->outs, .each = p->low->each};
	t->pick.slot = p->work->ledger.n + p->ahead; /* the index that this decision will have */
	for (int i = 0; i < op_table[t->op].n_operands; i++) {
		bool is_there = p->op->operands[i] >= 0;
		if (is_there)
			t->operands[i] = p->low->tensors.at[p->op->operands[i]];
		operands[i] = is_there ? &t->operands[i] : NULL;
	}
	settle_outputs(p, pick, operands);
}
