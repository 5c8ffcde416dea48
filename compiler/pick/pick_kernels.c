/* pick_kernels.c - choose one kernel for every op, and write down everything that was considered.
 *
 * For an op, every template that implements it is a family of candidates, one for each combination of its
 * tunables. A candidate is admissible when the target is among its architectures, every operand binds by name,
 * type and shape, every predicate holds, and the launch fits the device. Among the admissible ones the
 * cheapest wins. Where each of their templates was measured (tuning.c), what was measured goes before what was not,
 * since the model (cost.c) may be wrong by more than they differ; a template without a time might be the fastest, and
 * then the model ranks all. Pins and bans of MODEL.toml come first. There is no fall-back: an op without an admissible
 * candidate is a refusal that says why each one was rejected.
 *
 * Attention and Gated DeltaNet of a verify step are to give a row the bits that decode gives it: what adds in another
 * order than decode's kernel for as many sequences is banned. Where nothing else is admissible, or a pin asks for it,
 * the choice says so in the ledger, and a note says (A0730). Products, router, experts and scores are chosen freely: on
 * a GPU a text with drafts may part from one without. With [numerics] invariant, all ops of a set of phases are chosen
 * together (pick_orders.c).
 *
 * Layers repeat, so a decision is made once for each different op and reused.
 */
#include "compiler/pick/picker.h"
#include "compiler/pick/times.h"
#include "compiler/text/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_NAMES = 48, MAX_SHOWN = 8 /* candidates in a refusal */,
	MAX_DEFINES = MAX_NAMES + MAX_CONSTS + MAX_DTYPES, /* macros, float attributes, dtype variables */
};

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
	vsnprintf(p->why, sizeof p->why, fmt, args);
	va_end(args);
	return false;
}

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

static bool check_arch(Picker *p, const KernelTemplate *t)
{
	if (template_serves(t, p->work->target))
		return true;
	char list[64] = "";
	for (int i = 0; i < t->n_archs; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", t->archs[i]);
	return reject(p, "needs architecture %s: target is %s", list, p->work->target->name);
}

/* Binding ---------------------------------------------------------------------------------------- */

static const char *next_item(const char *shape, char *item, size_t bytes)
{
	int depth = 0;
	size_t n = 0;
	while (*shape == ' ')
		shape++;
	for (; *shape && (depth || *shape != ','); shape++) {
		depth += (*shape == '(') - (*shape == ')');
		if (n + 1 < bytes)
			item[n++] = *shape;
	}
	item[n] = 0;
	return *shape == ',' ? shape + 1 : NULL;
}

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
	for (; rest; d++) {
		rest = next_item(rest, item, sizeof item);
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

/* Where candidates that are not preferred are admitted, out says why and how much they are not. */
static bool check_requires(Picker *p, const KernelTemplate *t, const Env *env, Admitted *out)
{
	for (int i = 0; i < t->n_requires; i++) {
		int64_t ok;
		if (!eval(p, env, t->requires[i].text, &ok))
			return false;
		if (ok)
			continue;
		char text[160] = "";
		Operands o = {env, text, sizeof text, 0};
		char why[64];
		expr_names(t->requires[i].text, add_operand, &o, why, sizeof why);
		reject(p, "%s is false: %s", t->requires[i].text, text);
		if (!p->is_wide || !t->requires[i].is_preference)
			return false;
		if (!out->not_preferred)
			out->not_preferred = arena_strdup(&p->c->arena, p->why);
		out->n_not_preferred += !t->requires[i].is_pruning;
	}
	return true;
}

static bool find_order(Picker *p, const KernelTemplate *t, const Env *env, const char **order)
{
	char text[ORDER_BYTES] = "", why[WHY_BYTES / 2];
	const ExprEnv e = {env->names, env->n, NULL};
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
	return check_maps(p, t, env, pick) && eval(p, env, t->reads, &pick->read_bytes) &&
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

static void set_attrs(Picker *p, const KernelTemplate *t, Env *env)
{
	for (int i = 0; i < t->n_attrs; i++) {
		double value;
		bool is_float;
		if (!attr_value(&p->op->attrs, t->attrs[i], &value, &is_float))
			bug("kernelgen let through attribute %s", t->attrs[i]);
		if (!is_float)
			set(env, t->attrs[i], (int64_t)value);
	}
}

/* Fills pick, tunables, order and not_preferred when the candidate is admissible, else p->why. `choice` numbers the
 * tunables' combination. */
static bool try_candidate(Picker *p, int template_index, int choice, Admitted *out)
{
	const KernelTemplate *t = &kernel_table[template_index];
	Env env = {.n = 0};
	int vars[MAX_DTYPES];
	const char *text = "";
	for (int i = 0; i < t->n_tunables; i++) {
		const ContractTunable *tune = &t->tunables[i];
		int value = tune->values[choice % tune->n_values];
		choice /= tune->n_values;
		set(&env, tune->name, value);
		text = arena_printf(&p->c->arena, "%s%s%s=%d", text, i ? " " : "", tune->name, value);
	}
	set_attrs(p, t, &env);
	*out = (Admitted){.pick = {.template_index = template_index, .kernel = -1, .slot = -1}, .tunables = text};
	if (!check_arch(p, t) || !takes_operands(p, t) || !bind_operands(p, t, &env, vars) ||
		!check_requires(p, t, &env, out) || !check_launch(p, t, &env, &out->pick) ||
		!find_order(p, t, &env, &out->order))
		return false;
	out->pick.defines = defines_text(p, t, &env, vars);
	return true;
}

/* Dims the candidate decides: shapes of the intermediates it writes. operands[i] is NULL where absent. */
static void settle_outputs(Picker *p, const Pick *pick, const char *tunables, LTensor *const *operands)
{
	const KernelTemplate *t = &kernel_table[pick->template_index];
	Env env = {.n = 0};
	int vars[MAX_DTYPES];
	for (int i = 0; i < t->n_tunables; i++) {
		size_t n = strlen(t->tunables[i].name);
		for (const char *s = tunables; s && *s; s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL)
			if (strncmp(s, t->tunables[i].name, n) == 0 && s[n] == '=')
				set(&env, t->tunables[i].name, atoi(s + n + 1));
	}
	set_attrs(p, t, &env);
	if (!bind_operands(p, t, &env, vars))
		bug("%s no longer binds: %s", t->name, p->why);
	for (int i = 0; i < t->n_fields; i++) {
		LTensor *x = operands[op_operand(p->op->kind, t->fields[i].name)];
		if (!x || t->fields[i].role != OPERAND_OUT)
			continue;
		char item[96];
		const char *rest = t->fields[i].shape;
		for (int d = 0; rest; d++) {
			rest = next_item(rest, item, sizeof item);
			if (x->shape[d] == 0 && !eval(p, &env, item, &x->shape[d]))
				bug("shape of %s: %s", x->name, p->why);
		}
	}
}

static void settle_op(Picker *p, const Pick *pick, const char *tunables)
{
	LTensor *operands[PLAN_MAX_OPERANDS];
	for (int i = 0; i < op_table[p->op->kind].n_operands; i++)
		operands[i] = p->op->operands[i] < 0 ? NULL : &p->low->tensors.at[p->op->operands[i]];
	settle_outputs(p, pick, tunables, operands);
}

/* Equal constants mean equal shapes, grid and work. */
void add_trial(Picker *p, const Pick *pick, const char *tunables)
{
	LTensor *operands[PLAN_MAX_OPERANDS];
	for (int i = 0; i < p->work->trials.n; i++) {
		const Pick *other = &p->work->trials.at[i].pick;
		if (other->template_index == pick->template_index && strcmp(other->defines, pick->defines) == 0)
			return;
	}
	Trial *t = vec_push(&p->c->arena, &p->work->trials);
	*t = (Trial){.pick = *pick, .op = p->op->kind, .layer = p->op->layer, .phase = p->low->kind, .rows = p->low->rows,
		.outs = p->low->outs};
	t->pick.slot = p->work->ledger.n + p->ahead; /* the index that this decision will have */
	for (int i = 0; i < op_table[t->op].n_operands; i++) {
		bool is_there = p->op->operands[i] >= 0;
		if (is_there)
			t->operands[i] = p->low->tensors.at[p->op->operands[i]];
		operands[i] = is_there ? &t->operands[i] : NULL;
	}
	settle_outputs(p, pick, tunables, operands);
}

/* Rules of MODEL.toml --------------------------------------------------------------------------------- */

static bool rule_applies(const Picker *p, const KernelRule *r)
{
	bool in_layers = p->op->layer >= r->layer_first && p->op->layer <= r->layer_last;
	return in_layers && p->low->kind != PROBE && (!r->op || strcmp(r->op, op_table[p->op->kind].name) == 0) &&
		(!r->phase || strcmp(r->phase, phase_name(p->low->kind)) == 0);
}

/* Every word of `wanted` ("WARPS=8 SPLITS=4") is in `have`. */
static bool has_tunables(const char *have, const char *wanted)
{
	for (const char *w = wanted; w && *w;) {
		size_t n = strcspn(w, " ,");
		bool found = false;
		for (const char *h = have; h && *h; h = strchr(h, ' ') ? strchr(h, ' ') + 1 : NULL)
			found |= strcspn(h, " ") == n && strncmp(h, w, n) == 0;
		if (!found)
			return false;
		w += n + strspn(w + n, " ,");
	}
	return true;
}

static bool rule_names(const KernelRule *r, const char *name, const char *tunables)
{
	return strcmp(r->template_name, name) == 0 && (!r->tunables || has_tunables(tunables, r->tunables));
}

/* 0 = no rule, 1 = pinned, -1 = banned or pushed out by a pin. */
static int rule_verdict(const Picker *p, const char *name, const char *tunables, const KernelRule **by)
{
	int verdict = 0;
	for (int i = 0; i < p->c->model.options.rules.n; i++) {
		KernelRule *r = &p->c->model.options.rules.at[i];
		const KernelTemplate *pinned = NULL;
		if (!rule_applies(p, r))
			continue;
		for (int k = 0; k < n_kernel_table && r->is_pin; k++)
			if (strcmp(kernel_table[k].name, r->template_name) == 0 && kernel_table[k].op == p->op->kind)
				pinned = &kernel_table[k];
		bool named = rule_names(r, name, tunables);
		if (r->is_pin ? !pinned : !named)
			continue;
		r->was_met = true;
		*by = r;
		if (!r->is_pin || !named)
			return -1;
		verdict = 1;
	}
	return verdict;
}

/* The decision for one op ------------------------------------------------------------------------------ */

const char *operands_text(Picker *p)
{
	char *text = arena_strdup(&p->c->scratch, "");
	const OpInfo *info = &op_table[p->op->kind];
	for (int i = 0; i < info->n_operands; i++) {
		if (p->op->operands[i] < 0)
			continue;
		const LTensor *x = &p->low->tensors.at[p->op->operands[i]];
		char shape[128] = "";
		for (int d = 0; d < x->n_dims; d++) {
			char dim[24] = "*"; /* what the kernel decides is 0 until it has */
			if (x->shape[d])
				snprintf(dim, sizeof dim, "%lld", (long long)x->shape[d]);
			snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%s", d ? "," : "", dim);
		}
		text = arena_printf(&p->c->scratch, "%s%s%s %s [%s]", text, *text ? ", " : "",
			info->operands[i].name, dtype_name(x->dtype), shape);
	}
	return arena_strdup(&p->c->arena, text);
}

/* "BLOCK_K=0 BLOCK_N=0 HDIM=64": the whole-number ones, which are what formulas may name. */
static const char *attrs_text(Picker *p)
{
	const char *text = "";
	double value;
	bool is_float;
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(p->op->kind, #NAME) && attr_value(&p->op->attrs, #NAME, &value, &is_float) && !is_float) \
		text = arena_printf(&p->c->arena, "%s%s%s=%lld", text, *text ? " " : "", #NAME, (long long)value);
#include "artifacts/attrs.h"
#undef ATTR
	return text;
}

static int combinations(const KernelTemplate *t)
{
	int n = 1;
	for (int i = 0; i < t->n_tunables; i++)
		n *= t->tunables[i].n_values;
	return n;
}

/* The order in which decode's kernel of this layer adds, for as many sequences; NULL where there is none to keep. */
static const char *order_of_decode(const Picker *p)
{
	const OpKind of = order_op(p->op->kind);
	const bool is_kept = of == OP_attention_step || of == OP_delta_step;
	const char *order = NULL;
	for (int i = 0; p->low->kind == VERIFY && is_kept && i < p->work->ledger.n; i++) {
		const Slot *s = &p->work->ledger.at[i];
		if (s->phase != DECODE || s->rows != p->low->rows / p->c->graph.verify_rows || s->op != of ||
			s->layer_first > p->op->layer || p->op->layer > s->layer_last)
			continue;
		for (int k = 0; k < s->n_candidates; k++)
			if (s->candidates[k].verdict == CHOSEN)
				order = s->candidates[k].order;
	}
	return order;
}

static void consider(Picker *p, Decision *d, int template_index, int choice)
{
	const KernelTemplate *t = &kernel_table[template_index];
	const KernelRule *by = NULL;
	Admitted a;
	bool ok = try_candidate(p, template_index, choice, &a);
	int rule = rule_verdict(p, t->name, a.tunables, &by);
	Candidate *k = vec_push(&p->c->arena, &d->candidates);
	*k = (Candidate){.kernel = t->name, .tunables = a.tunables, .reason = "", .cost_from = "", .order = ""};
	if (!ok) {
		k->verdict = REJECTED;
		k->reason = arena_strdup(&p->c->arena, p->why);
		return;
	}
	k->order = a.order;
	if (rule < 0) {
		k->verdict = BANNED;
		/* the file by its last name: the plan says the same wherever it lies */
		k->reason = arena_printf(&p->c->arena, "%s%s:%d", by->is_pin ? "by the pin at " : "",
			input_name(by->at.file, "MODEL.toml"), by->at.line);
		return;
	}
	if (rule == 0 && p->order && strcmp(a.order, p->order) != 0) {
		k->verdict = BANNED;
		k->reason = arena_printf(&p->c->arena, "decode[%d] adds in the order of %s",
			p->low->rows / p->c->graph.verify_rows, p->order);
		return;
	}
	k->verdict = SLOWER;
	k->cost_from = rule > 0 ? "pin" : "model";
	a.model_us = model_cost(p->work->target, &a.pick);
	a.time = tuned_time(p->c, p->work->target, t, a.pick.defines, a.tunables);
	a.candidate = d->candidates.n - 1;
	*vec_push(&p->c->scratch, &d->admitted) = a;
}

/* The likeliest of the template's admissible combinations, from `first` on, by the model: what was measured once shall
 * not decide what is measured next. */
static void add_trials(Picker *p, Decision *d, int first)
{
	for (int n = first; n < first + p->c->cmd.candidates && n < d->admitted.n; n++) {
		int best = n;
		for (int i = n + 1; i < d->admitted.n; i++)
			if (d->admitted.at[i].model_us < d->admitted.at[best].model_us)
				best = i;
		Admitted chosen = d->admitted.at[best];
		memmove(&d->admitted.at[n + 1], &d->admitted.at[n], (size_t)(best - n) * sizeof chosen);
		d->admitted.at[n] = chosen;
		add_trial(p, &chosen.pick, chosen.tunables);
	}
}

static bool is_every_template_measured(const Decision *d)
{
	bool is_measured = true;
	int before = -1;
	for (int i = 0; i < d->admitted.n; i++) {
		bool is_new = d->admitted.at[i].pick.template_index != before;
		if (is_new && !is_measured)
			return false;
		before = d->admitted.at[i].pick.template_index;
		is_measured = d->admitted.at[i].time || (!is_new && is_measured);
	}
	return is_measured;
}

/* The cheapest; NULL = none is admitted. Gives all of them their cost. */
static const Admitted *choose(Decision *d)
{
	const Admitted *best = NULL;
	const bool by_times = is_every_template_measured(d);
	for (int i = 0; i < d->admitted.n; i++) {
		const Admitted *a = &d->admitted.at[i];
		Candidate *k = &d->candidates.at[a->candidate];
		bool is_measured = by_times && a->time;
		k->cost_us = is_measured ? a->time->us : a->model_us;
		if (strcmp(k->cost_from, "pin") != 0)
			k->cost_from = is_measured ? "measured" : "model";
		if (by_times && !is_measured)
			continue;
		double least = best ? d->candidates.at[best->candidate].cost_us : 0;
		if (!best || k->cost_us < least || (k->cost_us <= least && a->candidate < best->candidate))
			best = a;
	}
	return best;
}

/* All combinations of a template that fail for one reason are one candidate: the tunables play no part. */
static void fold_rejected(Decision *d, int from)
{
	if (d->candidates.n - from < 2)
		return;
	for (int i = from; i < d->candidates.n; i++)
		if (d->candidates.at[i].verdict != REJECTED ||
			strcmp(d->candidates.at[i].reason, d->candidates.at[from].reason) != 0)
			return;
	d->candidates.n = from + 1;
	d->candidates.at[from].tunables = "";
}

static const KernelTemplate *template_of(const Candidate *k)
{
	const KernelTemplate *t = kernel_table;
	while (strcmp(t->name, k->kernel) != 0)
		t++;
	return t;
}

/* The predicate of t that this reason says is false; NULL when it says something else. */
static const ContractRequire *broken_require(const KernelTemplate *t, const char *reason)
{
	for (int i = 0; i < t->n_requires; i++) {
		size_t n = strlen(t->requires[i].text);
		if (strncmp(reason, t->requires[i].text, n) == 0 && strncmp(reason + n, " is false", 9) == 0)
			return &t->requires[i];
	}
	return NULL;
}

/* What this reason is about: the place of the predicate, of the argument, else where the contract begins. */
static Loc place_of(const KernelTemplate *t, const char *reason)
{
	const ContractRequire *broken = broken_require(t, reason);
	for (int i = 0; i < t->n_fields && !broken; i++) {
		size_t n = strlen(t->fields[i].name);
		if (strncmp(reason, t->fields[i].name, n) == 0 && (reason[n] == ':' || reason[n] == ' '))
			return (Loc){t->fields[i].file, t->fields[i].line, 0};
	}
	return broken ? (Loc){broken->file, broken->line, 0} : (Loc){t->file, t->line, 0};
}

/* How many of its template's conditions were not asked any more when it failed; what is only banned has passed all. */
static int conditions_left(const Candidate *k)
{
	const KernelTemplate *t = template_of(k);
	if (k->verdict == BANNED)
		return 0;
	const ContractRequire *broken = broken_require(t, k->reason);
	if (broken)
		return t->n_requires - (int)(broken - t->requires) + 1;
	bool is_launch = strncmp(k->reason, "grid.", 5) == 0 || strncmp(k->reason, "shared memory", 13) == 0;
	return is_launch ? 1 : t->n_requires + 2;
}

/* Those that came closest first, and of those that fail for one reason the first: tunables have many combinations. */
static char *add_candidates(Picker *p, const Decision *d, char *text)
{
	int shown[MAX_SHOWN], n = 0;
	for (int left = 0; left <= MAX_REQUIRES + 2; left++)
		for (int i = 0; i < d->candidates.n && n < MAX_SHOWN; i++) {
			const Candidate *k = &d->candidates.at[i];
			bool is_new = conditions_left(k) == left;
			for (int s = 0; s < n && is_new; s++) {
				const Candidate *o = &d->candidates.at[shown[s]];
				is_new = strcmp(o->kernel, k->kernel) != 0 || conditions_left(o) != left;
			}
			if (!is_new)
				continue;
			shown[n++] = i;
			text = arena_printf(&p->c->arena, "%s\n    %s%s%s: %s %s", text, k->kernel, *k->tunables ? " " : "",
				k->tunables, verdict_name(k->verdict), k->reason);
			const Loc at = place_of(template_of(k), k->reason);
			if (k->verdict == REJECTED)
				text = arena_printf(&p->c->arena, "%s (%s:%d)", text, at.file, at.line);
		}
	return text;
}

const KernelRule *rule_to_blame(const Picker *p, const Decision *d)
{
	const KernelRule *by = NULL;
	for (int i = 0; i < d->candidates.n; i++) {
		const Candidate *k = &d->candidates.at[i];
		if (k->verdict == BANNED && rule_verdict(p, k->kernel, k->tunables, &by) < 0)
			return by;
	}
	return NULL;
}

/* "attention_step i32 bf16 f32": what a refusal is about, whatever the bucket. */
static const char *refused_key(Picker *p, const KernelRule *rule)
{
	const OpInfo *info = &op_table[p->op->kind];
	const char *key = info->name;
	if (rule)
		return arena_printf(&p->c->scratch, "%s %s:%d", key, rule->at.file, rule->at.line);
	for (int i = 0; i < info->n_operands; i++)
		if (p->op->operands[i] >= 0)
			key = arena_printf(&p->c->scratch, "%s %s", key,
				dtype_name(p->low->tensors.at[p->op->operands[i]].dtype));
	return key;
}

/* Does a plan have this op only because a head drafts? */
static bool is_for_drafts(const Picker *p)
{
	switch (p->op->kind) {
	case OP_follow_rows: /* of prefill and acquire */
	case OP_keys_write:
	case OP_hold:
	case OP_join:
	case OP_embed_next_token:
	case OP_acquire:
		return p->c->graph.verify_rows > 0;
	default:
		return p->low->kind == VERIFY || p->low->kind == DRAFT;
	}
}

const char *layer_text(Picker *p)
{
	const int layer = p->op->layer;
	if (layer >= 0 && layer < p->c->graph.n_layers)
		return arena_printf(&p->c->scratch, "layer %d", layer);
	return layer < 0 ? "before the layers" : "after the layers";
}

void refuse(Picker *p, const Decision *d, const char *operands)
{
	const LOp *op = p->op;
	const KernelRule *rule = rule_to_blame(p, d);
	const char *what = refused_key(p, rule), *name = op_table[op->kind].name;
	for (int i = 0; i < p->refused.n; i++)
		if (strcmp(p->refused.at[i], what) == 0)
			return;
	*vec_push(&p->c->scratch, &p->refused) = what;
	const char *where = arena_printf(&p->c->scratch, "%s, %s rows %d, %s", layer_text(p), phase_name(p->low->kind),
		p->low->rows, p->work->target->name);
	const char *without = !is_for_drafts(p) ? "" :
		"\n    [speculate] rows = 1 in MODEL.toml leaves the drafting head and its phases out";
	if (rule && !rule->is_pin) { /* the kernels that it bans would do: those that would not are not the cause */
		fail_at(&p->c->diags, A0701, rule->at, "this ban of %s leaves no admissible kernel for %s (%s)%s",
			rule->template_name, name, where, without);
		return;
	}
	Loc at = {p->c->model.config.at_hidden_dim.file, 0, 0};
	char *text = rule ? arena_printf(&p->c->arena, "this pin of %s leaves no admissible kernel for %s (%s)",
		rule->template_name, name, where) : arena_printf(&p->c->arena, "no admissible kernel for %s (%s): %s", name,
		where, operands);
	if (op->note)
		text = arena_printf(&p->c->arena, "%s\n    not fused: %s", text, op->note);
	if (!d->candidates.n)
		text = arena_printf(&p->c->arena, "%s\n    no template implements this op alone", text);
	text = add_candidates(p, d, text);
	fail_at(&p->c->diags, A0701, rule ? rule->at : at, "%s%s", text, without);
}

/* The ledger slot an equal decision of the layer before already has, or -1. */
static int same_slot(Picker *p, const char *operands)
{
	for (int i = p->work->ledger.n - 1; i >= 0; i--) {
		const Slot *s = &p->work->ledger.at[i];
		if (s->phase == p->low->kind && s->rows == p->low->rows && s->op == p->op->kind &&
			s->layer_last + 1 >= p->op->layer && s->layer_last >= 0 && strcmp(s->operands, operands) == 0)
			return i;
	}
	return -1;
}

static bool same_rules(const Picker *p, int layer_a, int layer_b)
{
	for (int i = 0; i < p->c->model.options.rules.n; i++) {
		const KernelRule *r = &p->c->model.options.rules.at[i];
		bool a = layer_a >= r->layer_first && layer_a <= r->layer_last;
		bool b = layer_b >= r->layer_first && layer_b <= r->layer_last;
		if (a != b)
			return false;
	}
	return true;
}

static bool same_attrs(const Attrs *a, const Attrs *b)
{
#define ATTR(NAME, field, type, meaning) \
	if (a->field != b->field) \
		return false;
#include "artifacts/attrs.h"
#undef ATTR
	return true;
}

Decision consider_all(Picker *p)
{
	Decision d = {0};
	for (int t = 0; t < n_kernel_table; t++) {
		if (kernel_table[t].op != p->op->kind)
			continue;
		int from = d.candidates.n, first = d.admitted.n;
		for (int i = 0; i < combinations(&kernel_table[t]); i++)
			consider(p, &d, t, i);
		fold_rejected(&d, from);
		if (!p->is_wide)
			add_trials(p, &d, first);
	}
	return d;
}

/* The kernel of a verify step does not add in decode's order: the ledger keeps it, and a note says so once a phase. */
static void tell_other_order(Picker *p, const Admitted *best, Candidate *chosen, const char *order)
{
	const bool is_pinned = strcmp(chosen->cost_from, "pin") == 0;
	chosen->reason = arena_printf(&p->c->arena, "adds in another order than decode[%d], which has %s: %s",
		p->low->rows / p->c->graph.verify_rows, order, is_pinned ? "it is pinned" : "no admissible kernel has that");
	const char *what = arena_printf(&p->c->scratch, "%s: %s%s%s %s", op_table[p->op->kind].name, chosen->kernel,
		*best->tunables ? " " : "", best->tunables, chosen->reason);
	for (int i = 0; i < p->stated.n; i++)
		if (strcmp(p->stated.at[i], what) == 0)
			return;
	*vec_push(&p->c->scratch, &p->stated) = what;
	note_at(&p->c->diags, A0730, (Loc){0}, "layer %d, verify rows %d, %s, %s", p->op->layer, p->low->rows,
		p->work->target->name, what);
}

bool reuse(Picker *p, const char *operands, bool is_asked)
{
	LOp *op = p->op;
	int slot = same_slot(p, operands);
	for (int i = 0; slot >= 0 && i < p->low->ops.n; i++) {
		const LOp *twin = &p->low->ops.at[i];
		if (twin->pick < 0 || p->low->picks.at[twin->pick].slot != slot)
			continue;
		if (!same_attrs(&twin->attrs, &op->attrs) || !same_rules(p, twin->layer, op->layer))
			return false;
		if (is_asked)
			return true;
		op->pick = twin->pick;
		if (p->work->ledger.at[slot].layer_last < op->layer)
			p->work->ledger.at[slot].layer_last = op->layer;
		const Pick *k = &p->low->picks.at[op->pick];
		settle_op(p, k, p->work->ledger.at[slot].candidates[k->chosen].tunables);
		return true;
	}
	return false;
}

void settle(Picker *p, Decision *d, const Admitted *best, const char *operands)
{
	LOp *op = p->op;
	d->candidates.at[best->candidate].verdict = CHOSEN;
	if (op->alone)
		d->candidates.at[best->candidate].reason = arena_printf(&p->c->arena, "not fused: %s", op->alone);
	*vec_push(&p->c->arena, &p->work->ledger) = (Slot){.phase = p->low->kind, .rows = p->low->rows,
		.outs = p->low->outs, .layer_first = op->layer, .layer_last = op->layer, .op = op->kind,
		.operands = operands, .attrs = attrs_text(p), .candidates = d->candidates.at, .n_candidates = d->candidates.n};
	Pick *pick = vec_push(&p->c->arena, &p->low->picks);
	*pick = best->pick;
	pick->slot = p->work->ledger.n - 1;
	pick->chosen = best->candidate;
	op->pick = p->low->picks.n - 1;
	settle_op(p, pick, best->tunables);
}

void decide(Picker *p)
{
	const char *operands = operands_text(p);
	if (reuse(p, operands, false))
		return;
	const char *order = p->order = order_of_decode(p);
	Decision d = consider_all(p);
	if (!d.admitted.n && order) {
		p->order = NULL;
		d = consider_all(p);
	}
	p->order = NULL;
	const Admitted *best = choose(&d);
	if (!best) {
		refuse(p, &d, operands);
		return;
	}
	if (order && strcmp(best->order, order) != 0)
		tell_other_order(p, best, &d.candidates.at[best->candidate], order);
	settle(p, &d, best, operands);
}

/* A rule that decided nothing says something else than its writer meant. */
static void check_rules(Compile *c)
{
	for (int i = 0; i < c->model.options.rules.n; i++) {
		const KernelRule *r = &c->model.options.rules.at[i];
		const char *layers = r->layer_first < 0 ? "" : arena_printf(&c->scratch, " of layers %d to %d",
			r->layer_first, r->layer_last);
		if (!r->was_met)
			fail_at(&c->diags, A0702, r->at, "kernels.%s: no op%s%s%s is one for %s%s%s", r->is_pin ? "pin" : "ban",
				layers, r->phase ? " in phase " : "", r->phase ? r->phase : "", r->template_name,
				r->tunables ? " with " : "", r->tunables ? r->tunables : "");
	}
}

/* All phases of the set of phase i, which is its first; of a later one, nothing: it is done. */
static void pick_set(Picker *p, int i)
{
	Lowered *lows[2 * MAX_BUCKETS];
	int n = 0, set = (int)order_set(p->work->phases.at[i].kind);
	for (int k = 0; k < p->work->phases.n; k++)
		if ((int)order_set(p->work->phases.at[k].kind) == set) {
			if (!n && k != i)
				return;
			lows[n++] = &p->work->phases.at[k];
		}
	pick_in_one_order(p, lows, n);
}

/* pick_kernels - one admissible, cheapest kernel for every op of every phase.
 *
 *   needs   TargetWork.phases, kernel table, MODEL.toml's pins and bans
 *   gives   LOp.pick, Lowered.picks, TargetWork.ledger; shapes that a kernel's tunables decide
 *   breaks  nothing
 *   fails   an op without an admissible candidate (all of them are reported), a rule about no op at all
 */
void pick_kernels(Compile *c)
{
	for (int w = 0; w < c->work.n; w++) {
		Picker p = {.c = c, .work = &c->work.at[w]};
		for (int i = 0; i < p.work->phases.n; i++) {
			p.low = &p.work->phases.at[i];
			p.stated.n = 0;
			const bool in_set = c->model.options.is_invariant && order_set(p.low->kind) != ORDER_FREE;
			if (in_set)
				pick_set(&p, i);
			for (int k = 0; !in_set && k < p.low->ops.n; k++) {
				p.op = &p.low->ops.at[k];
				decide(&p);
			}
		}
	}
	check_rules(c);
}
