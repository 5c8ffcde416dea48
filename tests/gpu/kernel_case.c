/* kernel_case.c - draws the constants of a trial, lays out its operands, runs the reference. */
#include "tests/gpu/kernel_case.h"
#include "artifacts/order.h"
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 20000 };

/* Edge values: one, primes, ragged against every tile, sizes of real models. */
typedef struct Pool { const char *name; int n; int values[24]; } Pool;
static const Pool pools[] = {
	{"ROWS", 17, {1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64, 77, 129, 200, 256, 397}},
	{"OUTS", 8, {1, 2, 3, 7, 8, 9, 17, 33}},
	{"SLOTS", 5, {1, 2, 3, 8, 11}},
	{"K", 12, {8, 64, 72, 136, 256, 264, 576, 896, 1000, 2048, 4864, 14336}},
	{"N", 14, {1, 3, 16, 17, 61, 64, 130, 258, 512, 576, 1000, 1536, 11300, 22600}},
	{"V", 8, {1, 7, 61, 130, 1000, 4099, 49152, 128256}},
	{"H", 6, {8, 64, 104, 576, 2048, 4096}},
	{"MAX_PAGES", 7, {1, 2, 7, 16, 40, 600, 16384}},
	{"PAGE", 5, {1, 16, 32, 64, 256}},
	{"HDIM", 7, {32, 64, 80, 96, 128, 256, 512}},
	{"NKV", 5, {1, 2, 3, 8, 5}},
	{"NH", 12, {1, 2, 3, 5, 7, 8, 9, 14, 16, 20, 32, 40}},
	{"ROTARY", 7, {2, 32, 64, 80, 128, 256, 512}},
	{"STOPS", 3, {1, 2, 5}},
	{"WORDS", 2, {263168 + (1 << 12), 263168 + (1 << 22)}},
	{"RANKS", 3, {2, 4, 8}},
	{"SPLITS", 6, {1, 2, 3, 8, 31, 32}},
	{"NORM_ONE", 2, {0, 1}},
	{"WINDOW", 8, {0, 0, 0, 1, 7, 33, 128, 1000}},
	{"CHUNKED", 3, {0, 0, 1}},
	{"NEIGHBOURS", 3, {0, 0, 1}},
	{"GATED", 2, {0, 1}},
	{"V_IS_K", 3, {0, 0, 1}},
	{"NORM_WHOLE", 3, {0, 0, 1}},
	{"ROTATE", 2, {0, 1}},
	{"NK", 5, {1, 2, 3, 4, 16}},
	{"NV", 8, {1, 2, 3, 4, 6, 8, 32, 48}},
	{"DK", 6, {8, 16, 24, 64, 100, 128}},
	{"DV", 6, {8, 16, 36, 64, 96, 128}},
	{"TAPS", 4, {1, 2, 3, 6}},
	{"DRAFTS", 3, {1, 2, 3}},
	{"EACH", 4, {1, 2, 3, 4}},
	{"C", 7, {2, 34, 128, 250, 512, 1000, 8192}},
	{"BLOCK_N", 5, {1, 16, 64, 128, 48}},
	{"BLOCK_K", 5, {16, 32, 64, 128, 256}},
	{"SHARED_BLOCK_N", 5, {1, 16, 64, 128, 48}},
	{"SHARED_BLOCK_K", 5, {16, 32, 64, 128, 256}},
	{"EXPERTS", 7, {1, 2, 6, 8, 33, 128, 256}},
	{"TOPK", 7, {1, 2, 2, 3, 4, 8, 10}},
	{"FIRSTS", 5, {2, 3, 9, 129, 257}},
	{"NORM_TOPK", 2, {0, 1}},
	{"FIRST", 3, {0, 8, 61}},
	{"GROUPS", 4, {1, 1, 2, 8}},
	{"TOP_GROUPS", 3, {1, 2, 4}},
	{"SHARES", 5, {1, 2, 3, 9, 11}},
	{"DRAFTS", 3, {1, 2, 3}},
	{"AHEAD", 2, {1, 2}},
	{"", 8, {1, 2, 3, 8, 17, 64, 128, 250}}, /* any other name */
};

uint64_t random_bits(Random *r) /* splitmix64 */
{
	uint64_t z = r->state += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

int64_t random_below(Random *r, int64_t n)
{
	return (int64_t)(random_bits(r) % (uint64_t)n);
}

float random_normal(Random *r) /* sum of uniform values: near enough, and bounded by 6 */
{
	double sum = -6;
	for (int i = 0; i < 6; i++) {
		uint64_t bits = random_bits(r);
		sum += (double)(uint32_t)bits * 0x1p-32 + (double)(bits >> 32) * 0x1p-32;
	}
	return (float)sum;
}

void *case_alloc(Case *c, int64_t bytes)
{
	if (c->n_allocated == (int)(sizeof c->allocated / sizeof c->allocated[0]))
		bug("a case has too many arrays");
	void *p = calloc(1, (size_t)(bytes ? bytes : 1));
	if (!p)
		bug("out of memory");
	return c->allocated[c->n_allocated++] = p;
}

void case_free(Case *c)
{
	for (int i = 0; i < c->n_allocated; i++)
		free(c->allocated[i]);
	c->n_allocated = 0;
}

int64_t case_value(const Case *c, const char *name, int64_t otherwise)
{
	for (int i = 0; i < c->n_names; i++)
		if (strcmp(c->names[i].name, name) == 0)
			return c->names[i].value;
	return otherwise;
}

int case_field(const Case *c, const char *name)
{
	for (int i = 0; i < c->tmpl->n_fields; i++)
		if (strcmp(c->tmpl->fields[i].name, name) == 0)
			return i;
	return -1;
}

int64_t case_each(const Case *c)
{
	return case_value(c, "EACH", case_field(c, "slot_version") >= 0 ? case_value(c, "DRAFTS", -1) + 1 : 0);
}

bool case_is_own(const Case *c, int field)
{
	const OperandInfo *o = &op_table[c->tmpl->op].operands[op_operand(c->tmpl->op, c->tmpl->fields[field].name)];
	return (o->of == OF_own && o->role == OPERAND_OUT) || o->of == OF_peer;
}

bool case_knows_rows(const Case *c) { return case_field(c, "step") >= 0 || case_field(c, "pair") >= 0; }

static void set(Case *c, const char *name, int64_t value)
{
	if (c->n_names == CASE_NAMES)
		bug("%s has too many constants", c->tmpl->name);
	c->names[c->n_names++] = (ExprName){name, value};
}

static bool eval(const Case *c, const char *text, int64_t *value)
{
	ExprEnv env = {c->names, c->n_names, NULL};
	char why[128];
	if (!expr_eval(text, &env, value, why, sizeof why))
		bug("%s: %s: %s", c->tmpl->name, text, why);
	return true;
}

/* Constants ------------------------------------------------------------------------------------- */

bool fixed_value(const char *fixed, const char *name, int64_t *value)
{
	size_t n = strlen(name);
	for (const char *s = fixed; s && *s; s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL)
		if (strncmp(s, name, n) == 0 && s[n] == '=') {
			*value = atoll(s + n + 1);
			return true;
		}
	return false;
}

static int64_t draw(Case *c, const char *name)
{
	const Pool *pool = pools;
	while (*pool->name && strcmp(pool->name, name) != 0)
		pool++;
	return pool->values[random_below(&c->random, pool->n)];
}

/* Dims that others decide; -1 when the name is none of them. */
static int64_t derived(Case *c, const char *name)
{
	int64_t slots = case_value(c, "SLOTS", 1), v = case_value(c, "V", 1);
	if (strcmp(name, "SEGS") == 0)
		return case_value(c, "SLOTS", 0) ? slots : draw(c, "SLOTS");
	if (strcmp(name, "N_VALID") == 0)
		return one_in(&c->random, 2) || v < 6 ? v : v - 5;
	if (strcmp(name, "PARTS") == 0) { /* of the vocabulary, a power of two of ids each; or of anything */
		int64_t ids = (int64_t)1 << (3 + random_below(&c->random, 5));
		return case_value(c, "V", 0) ? (v + ids - 1) / ids : draw(c, name);
	}
	if (strcmp(name, "COLS") == 0) /* of a tensor that an op reads some of: the first, the last, all of a delta row */
		return case_value(c, "NV", 0) ? 2 * case_value(c, "NK", 1) * case_value(c, "DK", 1)
				+ 2 * case_value(c, "NV", 1) * (case_value(c, "DV", 1) + random_below(&c->random, 2))
			: case_value(c, "C", case_value(c, "N", 0)) + 8 * random_below(&c->random, 6);
	if (strcmp(name, "WIDTH") == 0) { /* a row's parts of all its experts, and of the shared one if there is one */
		static const int widths[] = {0, 0, 0, 16, 64, 48, 256, 23};
		int64_t of_one = case_value(c, "N", 1) / (case_field(c, "n") >= 0 ? 2 : 1);
		if (case_field(c, "gate_up_bias") >= 0 || case_field(c, "down_bias") >= 0) /* there is none */
			return case_value(c, "TOPK", 1) * of_one;
		return case_value(c, "TOPK", 1) * of_one +
			(one_in(&c->random, 3) ? of_one : widths[random_below(&c->random, 8)]);
	}
	if (strcmp(name, "PAIRS") == 0) /* rows in the order of experts, and once more for the one that all go to */
		return case_value(c, "ROWS", 1) * (case_value(c, "TOPK", 1) + random_below(&c->random, 2));
	if (strcmp(name, "SHARES") == 0 && case_field(c, "routed") >= 0) /* with or without an expert that all rows go to */
		return case_value(c, "TOPK", 1) + random_below(&c->random, 2);
	if (strcmp(name, "SHARES") == 0)
		return case_field(c, "pair") < 0 ? draw(c, name) : case_value(c, "TOPK", 1) +
			(case_field(c, "shared") >= 0 || case_field(c, "shared_down") >= 0);
	if (strcmp(name, "VOCAB") == 0) /* of which the columns of logits are some or all */
		return v + (one_in(&c->random, 2) ? 0 : 1 + random_below(&c->random, 2 * v));
	if (strcmp(name, "PAGES") != 0)
		return -1;
	int64_t page_bytes = 4 * case_value(c, "NKV", 1) * case_value(c, "PAGE", 1) * case_value(c, "HDIM", 1);
	int64_t most = (16 << 20) / page_bytes, all = slots * case_value(c, "MAX_PAGES", 1) + 2;
	return all < most ? all : most;
}

static void set_attr(Case *c, const char *name, double value)
{
#define ATTR(NAME, field, type, meaning) \
	if (strcmp(name, #NAME) == 0) \
		c->attrs.field = (type)value;
#include "artifacts/attrs.h"
#undef ATTR
}

static double draw_float(Case *c, const char *name)
{
	if (strcmp(name, "EPS") == 0)
		return one_in(&c->random, 2) ? 1e-5f : 1e-6f;
	if (strcmp(name, "GATE_SLOPE") == 0)
		return one_in(&c->random, 2) ? 1.702f : 1;
	if (strcmp(name, "CAP") == 0) /* logits made with their best may have none */
		return case_field(c, "best") >= 0 && one_in(&c->random, 2) ? 0 : one_in(&c->random, 2) ? 30 : 1.5f;
	if (strcmp(name, "GATE_LIMIT") == 0)
		return one_in(&c->random, 2) ? 7 : 0.75;
	if (strcmp(name, "SCALE") == 0)
		return (one_in(&c->random, 3) ? 1.6f : 1) / sqrtf((float)case_value(c, "HDIM", 64));
	/* ROPE_FACTOR counts twice in a score: of larger ones the rounding of q alone may cost what a mean may lose */
	return one_in(&c->random, 2) || c->attrs.scale * sqrtf((float)case_value(c, "HDIM", 64)) > 1.1f ? 1 : 1.3466f;
}

/* Attributes that are 0 where a list of constants does not name them. */
static bool is_off(const char *name)
{
	static const char *const names[] = {"ROTATE", "WINDOW", "CHUNKED", "NEIGHBOURS", "V_IS_K", "NORM_WHOLE"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* All constants once: free ones, then those that depend on them. */
static void draw_constants(Case *c, const char *fixed)
{
	const KernelTemplate *t = c->tmpl;
	int64_t value;
	c->n_names = 0;
	c->attrs = (Attrs){0};
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < t->n_dims + t->n_attrs; i++) {
			const char *name = i < t->n_dims ? t->dims[i] : t->attrs[i - t->n_dims];
			double unused;
			bool is_float = false;
			if (i >= t->n_dims)
				attr_value(&c->attrs, name, &unused, &is_float);
			bool depends = is_float || strcmp(name, "SEGS") == 0 || strcmp(name, "N_VALID") == 0 ||
				strcmp(name, "PAGES") == 0 || strcmp(name, "PARTS") == 0 || strcmp(name, "COLS") == 0 ||
				strcmp(name, "WIDTH") == 0 || strcmp(name, "PAIRS") == 0 || strcmp(name, "SHARES") == 0 ||
				strcmp(name, "VOCAB") == 0;
			if (depends != (pass == 1))
				continue;
			if (is_float) {
				set_attr(c, name, draw_float(c, name));
				continue;
			}
			if (!fixed_value(fixed, name, &value))
				value = depends ? derived(c, name) : fixed && is_off(name) ? 0 : draw(c, name);
			set(c, name, value);
			if (i >= t->n_dims)
				set_attr(c, name, (double)value);
		}
	for (int i = 0; i < t->n_tunables; i++) {
		const ContractTunable *tune = &t->tunables[i];
		if (!fixed_value(fixed, tune->name, &value))
			value = tune->values[random_below(&c->random, tune->n_values)];
		set(c, tune->name, value);
	}
	for (int i = 0; i < t->n_fields; i++)
		if (t->fields[i].flag)
			set(c, t->fields[i].flag,
				fixed_value(fixed, t->fields[i].flag, &value) ? value : random_below(&c->random, 2));
}

/* What formulas know besides the kernel's constants: SMEM_MAX, SMS, sizes of a dtype variable. */
static bool is_of_formulas(const KernelTemplate *t, const char *name)
{
	bool is = strcmp(name, "SMEM_MAX") == 0 || strcmp(name, "SMS") == 0;
	for (int v = 0; v < t->n_dtypes; v++) {
		const size_t n = strlen(t->dtypes[v].var);
		is |= strncmp(name, t->dtypes[v].var, n) == 0 &&
			(strcmp(name + n, "_BITS") == 0 || strcmp(name + n, "_BYTES") == 0);
	}
	return is;
}

static void write_defines(Case *c)
{
	const KernelTemplate *t = c->tmpl;
	char *at = c->defines, *end = at + sizeof c->defines;
	for (int i = 0; i < c->n_names; i++)
		if (!is_of_formulas(t, c->names[i].name))
			at += snprintf(at, (size_t)(end - at), "%s=%lld ", c->names[i].name, (long long)c->names[i].value);
	for (int i = 0; i < t->n_attrs; i++) {
		double value;
		bool is_float;
		if (attr_value(&c->attrs, t->attrs[i], &value, &is_float) && is_float)
			at += snprintf(at, (size_t)(end - at), "%s=%af ", t->attrs[i], value);
	}
	for (int i = 0; i < t->n_dtypes; i++)
		at += snprintf(at, (size_t)(end - at), "%s=%s%s", t->dtypes[i].var, dtype_name(c->vars[i]),
			i + 1 < t->n_dtypes ? " " : "");
	if (at >= end)
		bug("%s has too long constants", t->name);
	if (at > c->defines && at[-1] == ' ')
		at[-1] = 0;
}

static Dtype field_dtype(const Case *c, const ContractField *f)
{
	Dtype d;
	for (int i = 0; i < c->tmpl->n_dtypes; i++)
		if (strcmp(c->tmpl->dtypes[i].var, f->dtype) == 0)
			return c->vars[i];
	if (!dtype_from_name(f->dtype, &d))
		bug("%s: dtype %s", c->tmpl->name, f->dtype);
	return d;
}

static void lay_out(Case *c)
{
	int64_t at = GUARD;
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		const ContractField *f = &c->tmpl->fields[i];
		CaseBuffer *b = &c->buf[i];
		*b = (CaseBuffer){.present = !f->flag || case_value(c, f->flag, 0), .dtype = field_dtype(c, f), .n = 1};
		if (!b->present)
			continue;
		char item[96];
		for (const char *list = f->shape; expr_next(&list, item, sizeof item); b->n_dims++) {
			eval(c, item, &b->shape[b->n_dims]);
			b->n *= b->shape[b->n_dims];
		}
		b->bytes = dtype_span(b->dtype, b->n);
		b->at = at;
		at = (at + b->bytes + GUARD + 255) / 256 * 256;
	}
	c->image_bytes = at;
}

static bool fits(Case *c, const CaseLimits *limits)
{
	const KernelTemplate *t = c->tmpl;
	int64_t v;
	for (int i = 0; i < t->n_requires; i++) /* what is not preferred is right all the same */
		if (!t->requires[i].is_preference && eval(c, t->requires[i].text, &v) && !v)
			return false;
	for (int i = 0; i < 3; i++) {
		if (eval(c, t->grid[i], &v) && (v < 1 || v > (i ? 65535 : 2147483647)))
			return false;
		c->grid[i] = (int)v;
	}
	eval(c, t->block, &v);
	c->block = (int)v;
	eval(c, t->smem, &v);
	c->smem = (int)v;
	eval(c, t->reads, &c->reads);
	eval(c, t->writes, &c->writes);
	eval(c, t->flops, &c->flops);
	if (c->block < 1 || c->block > 1024 || c->smem > limits->target->smem_block_bytes || c->flops > limits->flops)
		return false;
	lay_out(c);
	for (int i = 0; i < t->n_maps; i++) {
		const CaseBuffer *b = &c->buf[t->maps[i].field];
		for (int k = 0; k < 2; k++) {
			eval(c, t->maps[i].box[k], &v);
			c->box[i][k] = (int)v;
		}
		if (b->n_dims < 2 || dtype_span(b->dtype, b->shape[b->n_dims - 1]) % 16 || c->box[i][0] < 1 ||
			c->box[i][0] > 256 || dtype_span(b->dtype, c->box[i][1]) != 128)
			return false;
	}
	return c->image_bytes <= limits->bytes;
}

/* "WT=e4m3" has WT: the dtype. */
static bool fixed_dtype(const char *fixed, const char *var, Dtype *dtype)
{
	size_t n = strlen(var);
	char name[16];
	for (const char *s = fixed; s && *s; s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL)
		if (strncmp(s, var, n) == 0 && sscanf(s + n, "=%15s", name) == 1)
			return dtype_from_name(name, dtype);
	return false;
}

/* VAR_BITS, and VAR_BYTES of whole bytes: what formulas may know of a dtype variable. */
static void set_sizes(Case *c, const char *var, Dtype dtype)
{
	char *bits = case_alloc(c, (int64_t)strlen(var) + 8), *bytes = case_alloc(c, (int64_t)strlen(var) + 8);
	sprintf(bits, "%s_BITS", var);
	set(c, bits, dtype_span(dtype, 8));
	sprintf(bytes, "%s_BYTES", var);
	if (dtype_bytes(dtype))
		set(c, bytes, dtype_bytes(dtype));
}

/* Codes of u4 have scales of f32z, and no others have; those of e2m1 have scales of a byte. A contract knows them by
 * their bits alone. */
static bool scales_fit(const Case *c)
{
	bool is_u4 = false, is_zeroed = false, is_e2m1 = false, is_f32 = false;
	for (int v = 0; v < c->tmpl->n_dtypes; v++) {
		is_u4 |= c->vars[v] == DT_u4;
		is_e2m1 |= c->vars[v] == DT_e2m1;
		is_zeroed |= c->vars[v] == DT_f32z;
		is_f32 |= c->vars[v] == DT_f32 && strcmp(c->tmpl->dtypes[v].var, "ST") == 0;
	}
	return is_u4 == is_zeroed && !(is_e2m1 && is_f32);
}

bool case_choose(Case *c, const KernelTemplate *t, uint64_t seed, const CaseLimits *limits)
{
	*c = (Case){.tmpl = t, .random = {seed}};
	for (int i = 0; i < (limits->draws ? limits->draws : DRAWS); i++) {
		draw_constants(c, limits->fixed);
		for (int v = 0; v < t->n_dtypes; v++) {
			if (!fixed_dtype(limits->fixed, t->dtypes[v].var, &c->vars[v]))
				c->vars[v] = t->dtypes[v].allowed[limits->fixed ? 0 : random_below(&c->random, t->dtypes[v].n)];
			set_sizes(c, t->dtypes[v].var, c->vars[v]);
		}
		set(c, "SMEM_MAX", limits->target->smem_block_bytes);
		set(c, "SMS", limits->target->n_sms);
		if (scales_fit(c) && fits(c, limits)) {
			write_defines(c);
			return true;
		}
		case_free(c);
	}
	return false;
}

/* What variable v of t stands for where its operands are those of c. */
static Dtype dtype_of(const Case *c, const KernelTemplate *t, int v)
{
	for (int i = 0; i < t->n_fields; i++) {
		const int at = strcmp(t->fields[i].dtype, t->dtypes[v].var) == 0 ? case_field(c, t->fields[i].name) : -1;
		if (at >= 0 && c->buf[at].present)
			return c->buf[at].dtype;
	}
	for (int k = 0; k < c->tmpl->n_dtypes; k++)
		if (strcmp(t->dtypes[v].var, c->tmpl->dtypes[k].var) == 0)
			return c->vars[k];
	return t->dtypes[v].allowed[0]; /* of an operand that is absent */
}

/* The constants of c for another template, but for tunables; rows, outs: 0 = as many. False when c does not have
 * all. */
static bool take_constants(Case *d, const Case *c, const KernelTemplate *t, int64_t rows, int64_t outs,
	const Target *target)
{
	*d = (Case){.tmpl = t, .attrs = c->attrs, .step = c->step};
	for (int i = 0; i < t->n_dims; i++) {
		const int64_t value = case_value(c, t->dims[i], -1);
		if (value < 0)
			return false;
		set(d, t->dims[i], rows && strcmp(t->dims[i], "ROWS") == 0 ? rows
			: outs && strcmp(t->dims[i], "OUTS") == 0 ? outs : value);
	}
	for (int i = 0; i < t->n_attrs; i++) { /* what the template of c does not ask for is zero */
		double value = 0;
		bool is_float = false;
		if (attr_value(&c->attrs, t->attrs[i], &value, &is_float) && !is_float)
			set(d, t->attrs[i], (int64_t)value);
	}
	for (int i = 0; i < t->n_fields; i++)
		if (t->fields[i].flag)
			set(d, t->fields[i].flag, case_value(c, t->fields[i].flag, 0));
	for (int v = 0; v < t->n_dtypes; v++) {
		d->vars[v] = dtype_of(c, t, v);
		set_sizes(d, t->dtypes[v].var, d->vars[v]);
	}
	set(d, "SMEM_MAX", target->smem_block_bytes);
	set(d, "SMS", target->n_sms);
	return true;
}

static bool finish_constants(Case *d, const Target *target)
{
	const CaseLimits limits = {INT64_MAX, INT64_MAX, target, NULL, 0};
	if (!fits(d, &limits)) {
		case_free(d);
		return false;
	}
	write_defines(d);
	d->image = case_alloc(d, d->image_bytes);
	return true;
}

bool case_as_step(Case *d, const Case *c, const KernelTemplate *t, const Target *target)
{
	if (!take_constants(d, c, t, case_value(c, "ROWS", 0) / case_each(c), 0, target))
		return false;
	for (int i = 0; i < t->n_tunables; i++) /* clusters change no bits, and fewer are admissible */
		set(d, t->tunables[i].name, strcmp(t->tunables[i].name, "CLUSTER") == 0 ? 1
			: case_value(c, t->tunables[i].name, 0));
	return finish_constants(d, target);
}

bool case_as_twin(Case *d, const Case *c, const KernelTemplate *t, int choice, int64_t rows, int64_t outs,
	const Target *target)
{
	if (!template_serves(t, target))
		return false;
	if (!take_constants(d, c, t, rows, outs, target)) {
		case_free(d);
		return false;
	}
	for (int v = 0; v < t->n_dtypes; v++) { /* may it stand for that? */
		bool is_allowed = false;
		for (int k = 0; k < t->dtypes[v].n; k++)
			is_allowed |= t->dtypes[v].allowed[k] == d->vars[v];
		if (!is_allowed) {
			case_free(d);
			return false;
		}
	}
	for (int i = 0; i < t->n_tunables; i++) {
		set(d, t->tunables[i].name, t->tunables[i].values[choice % t->tunables[i].n_values]);
		choice /= t->tunables[i].n_values;
	}
	return finish_constants(d, target);
}

bool case_order(const Case *c, const char *without, char *order)
{
	ExprName names[CASE_NAMES];
	const ExprEnv env = {names, c->n_names, NULL};
	char why[160];
	*order = 0;
	for (int i = 0; i < c->n_names; i++)
		names[i] = without && strcmp(c->names[i].name, without) == 0 ? (ExprName){without, 1} : c->names[i];
	for (int i = 0; i < c->tmpl->n_orders; i++)
		if (!order_append(order, c->tmpl->orders[i].name, c->tmpl->orders[i].text, &env, why, sizeof why))
			return false;
	return true;
}

/* Operands -------------------------------------------------------------------------------------- */

static uint16_t to_bf16(float x)
{
	uint32_t b;
	memcpy(&b, &x, 4);
	return (b & 0x7fffffff) > 0x7f800000 ? 0x7fff : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float x)
{
	_Float16 h = (_Float16)x;
	uint16_t bits;
	memcpy(&bits, &h, 2);
	return bits;
}

/* The power of two at or below x > 0. */
static uint8_t to_e8m0(float x)
{
	int exponent;
	frexpf(x, &exponent);
	exponent += 126;
	return (uint8_t)(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
}

void case_encode(const CaseBuffer *b, const void *values, uint8_t *raw)
{
	if (dtype_bytes(b->dtype) == 4) {
		memcpy(raw, values, (size_t)b->bytes);
		return;
	}
	if (!dtype_bytes(b->dtype))
		memset(raw, 0, (size_t)b->bytes);
	for (int64_t i = 0; i < b->n; i++) {
		float x = ((const float *)values)[i];
		uint16_t bits = b->dtype == DT_bf16 ? to_bf16(x) : to_f16(x);
		if (b->dtype == DT_e4m3)
			raw[i] = numbers_code(DT_e4m3, x);
		else if (b->dtype == DT_e2m1)
			raw[i / 2] |= (uint8_t)(numbers_code(DT_e2m1, x) << i % 2 * 4);
		else if (b->dtype == DT_u4)
			raw[i / 2] |= (uint8_t)((unsigned)x << i % 2 * 4);
		else if (b->dtype == DT_e8m0)
			raw[i] = to_e8m0(x);
		else
			memcpy(raw + 2 * i, &bits, 2);
	}
}

/* Values into the image, and back into `before`, so that both sides see what the dtype can hold. */
static void store_values(Case *c, CaseBuffer *b)
{
	RefOperand stored = {c->image + b->at, b->dtype, 1, {b->n}, false};
	case_encode(b, b->before, c->image + b->at);
	if (dtype_bytes(b->dtype) != 4)
		ref_convert(&stored, 0, b->n, b->before);
}

bool case_fill(Case *c)
{
	if (!case_rows(c))
		return false;
	c->image = case_alloc(c, c->image_bytes);
	memset(c->image, 0xC5, (size_t)c->image_bytes);
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		CaseBuffer *b = &c->buf[i];
		if (!b->present)
			continue;
		if (!b->before)
			b->before = case_alloc(c, b->n * 4);
		if (c->tmpl->fields[i].role == OPERAND_OUT) {
			/* poison: NaN for floats, a number nobody means for integers */
			memset(c->image + b->at, b->dtype == DT_i32 ? 0x5A : 0xFF, (size_t)b->bytes);
			memset(b->before, b->dtype == DT_i32 ? 0x5A : 0xFF, (size_t)b->n * 4);
			continue;
		}
		if (!case_operand(c, i))
			return false;
		store_values(c, b);
	}
	return true;
}

void case_reference(Case *c)
{
	RefCall call = {.op = c->tmpl->op, .attrs = c->attrs};
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		CaseBuffer *b = &c->buf[i];
		if (!b->present)
			continue;
		b->want = b->before;
		if (operand_is_written(c->tmpl->fields[i].role)) {
			b->want = case_alloc(c, b->n * 4);
			memcpy(b->want, b->before, (size_t)b->n * 4);
		}
		RefOperand *o = &call.operand[op_operand(call.op, c->tmpl->fields[i].name)];
		const bool is_kept = b->dtype == DT_i32 || b->dtype == DT_f32z;
		*o = (RefOperand){b->want, is_kept ? b->dtype : DT_f32, b->n_dims, {0}, b->dtype == DT_bf16};
		memcpy(o->shape, b->shape, sizeof o->shape);
	}
	call.scratch = malloc(ref_scratch_bytes(&call) + 16);
	if (!call.scratch)
		bug("out of memory");
	ref_op(&call);
	free(call.scratch);
}
