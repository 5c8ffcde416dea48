/* tables.c - the tables of dtypes, attributes and ops as data, expanded from their headers; and the name of a table
 * that a mistyped one is closest to. */
#include "artifacts/closest.h"
#include "artifacts/op_table.h"

#include <stdio.h>
#include <string.h>

static const struct { const char *name; int bits; const char *safetensors; double tolerance; } dtypes[] = {
#define DTYPE(name, bits, st, tol) {#name, bits, st, tol},
#include "artifacts/dtypes.h"
#undef DTYPE
};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == DT_COUNT, "one row a dtype");

const char *dtype_name(Dtype d) { return dtypes[d].name; }
int dtype_bytes(Dtype d) { return dtypes[d].bits / 8; }
int64_t dtype_span(Dtype d, int64_t n)
{
	return dtypes[d].bits >= 8 ? n * (dtypes[d].bits / 8) : n / (8 / dtypes[d].bits); /* of n close to 2^63 too */
}
int64_t dtype_count(Dtype d, int64_t bytes) { return bytes * 8 / dtypes[d].bits; }
double dtype_tolerance(Dtype d) { return dtypes[d].tolerance; }

bool dtype_from_name(const char *name, Dtype *out)
{
	for (int i = 0; i < DT_COUNT; i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return *out = (Dtype)i, true;
	return false;
}

bool dtype_from_safetensors(const char *name, Dtype *out)
{
	for (int i = 0; i < DT_COUNT && *name; i++)
		if (strcmp(dtypes[i].safetensors, name) == 0)
			return *out = (Dtype)i, true;
	return false;
}

#define IN(class, name, shape) OPERAND(IN, class, name, shape)
#define IN_OPT(class, name, shape) OPERAND(IN_OPT, class, name, shape)
#define INOUT(class, name, shape) OPERAND(INOUT, class, name, shape)
#define INOUT_OPT(class, name, shape) OPERAND(INOUT_OPT, class, name, shape)
#define OUT(class, name, shape) OPERAND(OUT, class, name, shape)

/* Shapes of all ops: arrays of char, which follow each other without a gap. */
#define OPERAND(role, class, name, shape) name[sizeof shape]
#define OP(name, traits, attrs, meaning, ...) struct { char __VA_ARGS__; } name;
typedef struct Shapes {
#include "artifacts/ops.h"
} Shapes;
#undef OPERAND
#undef OP
#define OPERAND(role, class, name, shape) shape
#define OP(name, traits, attrs, meaning, ...) .name = {__VA_ARGS__},
static const Shapes shapes = {
#include "artifacts/ops.h"
};
#undef OPERAND
#undef OP
#define OPERAND(role, class, name, shape) {OPERAND_##role, OF_##class, #name}
#define COUNT(...) (int)(sizeof((const OperandInfo[]){__VA_ARGS__}) / sizeof(OperandInfo))
const OpInfo op_table[OP_COUNT] = {
#define OP(name, traits, attrs, meaning, ...) \
	[OP_##name] = {#name, traits, attrs, COUNT(__VA_ARGS__), (const OperandInfo[]){__VA_ARGS__}, \
		(const char *)&shapes.name},
#include "artifacts/ops.h"
#undef OP
};

bool op_from_name(const char *name, OpKind *out)
{
	for (int i = 0; i < OP_COUNT; i++)
		if (strcmp(op_table[i].name, name) == 0)
			return *out = (OpKind)i, true;
	return false;
}

int op_operand(OpKind op, const char *name)
{
	for (int i = 0; i < op_table[op].n_operands; i++)
		if (strcmp(op_table[op].operands[i].name, name) == 0)
			return i;
	return -1;
}

const char *operand_shape(OpKind op, int i)
{
	const char *shape = op_table[op].shapes;
	while (i-- > 0)
		shape += strlen(shape) + 1;
	return shape;
}

bool has_word(const char *list, const char *word, size_t n)
{
	for (; *list; list += strcspn(list, " "), list += *list == ' ')
		if (strcspn(list, " ") == n && strncmp(list, word, n) == 0)
			return true;
	return false;
}

bool op_has_attr(OpKind op, const char *name)
{
	return has_word(op_table[op].attrs, name, strlen(name));
}

enum { KIND_int, KIND_float };

bool attr_value(const Attrs *a, const char *name, double *value, bool *is_float)
{
#define ATTR(NAME, field, type, meaning) \
	if (strcmp(name, #NAME) == 0) { \
		*value = (double)a->field; \
		*is_float = KIND_##type == KIND_float; \
		return true; \
	}
#include "artifacts/attrs.h"
#undef ATTR
	return false;
}

static const char *const roles[] = {"weight", "state", "activation", "input", "output"};
static const char *const arenas[] = {"weights", "state", "scratch", "io", "ring", "probe", "peer"};
static const char *const phases[] = {"prefill", "decode", "draft", "verify", "acquire", "probe"};
static const char *const verdicts[] = {"chosen", "slower", "rejected", "banned", "pruned"};
_Static_assert(sizeof roles / sizeof roles[0] == ROLE_COUNT, "one name a role");
_Static_assert(sizeof arenas / sizeof arenas[0] == ARENA_COUNT, "one name an arena");
_Static_assert(sizeof phases / sizeof phases[0] == PHASE_KINDS, "one name a phase");
_Static_assert(sizeof verdicts / sizeof verdicts[0] == VERDICT_COUNT, "one name a verdict");

const char *role_name(Role r) { return roles[r]; }

static const char *const operand_roles[OPERAND_ROLES] = {
	[OPERAND_IN] = "in", [OPERAND_IN_OPT] = "in?", [OPERAND_INOUT] = "inout", [OPERAND_INOUT_OPT] = "inout?",
	[OPERAND_OUT] = "out"};
const char *operand_role_name(OperandRole r) { return operand_roles[r]; }
const char *arena_name(ArenaKind a) { return arenas[a]; }
const char *phase_name(PhaseKind p) { return phases[p]; }
int phase_bit(PhaseKind p)
{
	static const int bits[PHASE_KINDS] = {[PREFILL] = PHASE_PREFILL, [DECODE] = PHASE_DECODE, [DRAFT] = PHASE_DRAFT,
		[VERIFY] = PHASE_VERIFY, [ACQUIRE] = PHASE_ACQUIRE};
	return bits[p];
}
PhaseLabel phase_label(PhaseKind kind, int rows, int each)
{
	PhaseLabel l;
	if (kind == VERIFY && each > 0)
		snprintf(l.text, sizeof l.text, "%s[%dx%d]", phases[kind], rows / each, each);
	else if (kind == DRAFT)
		snprintf(l.text, sizeof l.text, "%s[%dx%d]", phases[kind], rows, each);
	else
		snprintf(l.text, sizeof l.text, "%s[%d]", phases[kind], rows);
	return l;
}

int phase_ops(const Graph *g, PhaseKind kind, int each)
{
	int n = 0, drafts = 0;
	for (; kind == DRAFT && n < g->n_ops && drafts < each - 1; n++)
		drafts += g->ops[n].kind == OP_keep_draft;
	return kind == DRAFT ? n : g->n_ops;
}

int ladder_rows(const Graph *g, int slots)
{
	int i = 0;
	while (i < g->n_ladder && g->ladder[i].slots < slots)
		i++;
	return i < g->n_ladder ? g->ladder[i].rows : 1;
}

const char *logits_name(PhaseKind p) { return p == VERIFY ? "verify.logits" : "logits"; }
const ContractTerm *contract_predicate(const Contract *c, int i)
{
	for (int k = 0; i >= 0 && k < c->n_terms; k++)
		if ((strcmp(c->terms[k].kind, "requires") == 0 || strcmp(c->terms[k].kind, "prefers") == 0) && i-- == 0)
			return &c->terms[k];
	return NULL;
}

const char *verdict_name(Verdict v) { return verdicts[v]; }

#define I32 DT_i32
#define F32 DT_f32
const FrameTensor frame_table[] = {
	{"step", ROLE_INPUT, I32, 1, {4}},
	{"row_token", ROLE_INPUT, I32, 1, {DIM_ROWS}},
	{"row_slot", ROLE_INPUT, I32, 1, {DIM_ROWS}},
	{"row_pos", ROLE_INPUT, I32, 1, {DIM_ROWS}},
	{"row_next", ROLE_INPUT, I32, 1, {DIM_ROWS}},
	{"out_row", ROLE_INPUT, I32, 1, {DIM_OUTS}},
	{"seg", ROLE_INPUT, I32, 2, {DIM_SLOTS, 4}},
	{"acquire", ROLE_INPUT, I32, 1, {DIM_SLOTS}},
	{"new_sampling", ROLE_INPUT, F32, 2, {DIM_SLOTS, 8}},
	{"new_limits", ROLE_INPUT, I32, 2, {DIM_SLOTS, 8}},
	{"new_pages", ROLE_INPUT, I32, 2, {DIM_SLOTS, DIM_MAX_PAGES}},
	{"new_rules", ROLE_INPUT, I32, 1, {PLAN_RULES * PLAN_RULE_WORDS}},
	{"rank", ROLE_INPUT, I32, 1, {1}},
	{"ring", ROLE_OUTPUT, I32, 2, {DIM_SLOTS, PLAN_RING_ENTRIES * PLAN_RING_WORDS}},
	{"page_table", ROLE_STATE, I32, 2, {DIM_SLOTS, DIM_MAX_PAGES}},
	{"slot_len", ROLE_STATE, I32, 1, {DIM_SLOTS}},
	{"slot_token", ROLE_STATE, I32, 1, {DIM_SLOTS}},
	{"slot_draft", ROLE_STATE, I32, 2, {DIM_SLOTS, DIM_DRAFTS}},
	{"slot_version", ROLE_STATE, I32, 1, {DIM_SLOTS}},
	{"sampling", ROLE_STATE, F32, 2, {DIM_SLOTS, 8}},
	{"limits", ROLE_STATE, I32, 2, {DIM_SLOTS, 8}},
	{"rules", ROLE_STATE, I32, 2, {DIM_SLOTS, PLAN_RULES * PLAN_RULE_WORDS}},
	{"masks", ROLE_STATE, I32, 2, {DIM_SLOTS, DIM_MASK}},
	{"masks_later", ROLE_STATE, I32, 3, {DIM_SLOTS, DIM_DRAFTS, DIM_MASK}},
	{"counts", ROLE_STATE, I32, 2, {DIM_SLOTS, DIM_VOCAB}},
};
const int n_frame_table = (int)(sizeof frame_table / sizeof frame_table[0]);

const char *made_name(MadeAs m)
{
	static const char *const names[MADE_COUNT] = {"no", "numbers", "codes", "e4m3_scales", "e4m3_scale", "e2m1_scales",
		"e2m1_scale", "u4_scales"};
	return names[m];
}

/* Closest names (closest.h) ------------------------------------------------------------ */

/* Letters inserted, dropped, replaced or swapped with their neighbour to turn a into b. Names are short: longer ones
 * are far from any other. */
static size_t distance(const char *a, const char *b)
{
	enum { MOST = 64 };
	size_t rows[3][MOST + 1], n = strlen(a), m = strlen(b);
	if (n > MOST || m > MOST)
		return MOST;
	for (size_t i = 0; i <= n; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
		for (size_t j = 0; j <= m; j++) {
			size_t best = i + j; /* one of them is empty */
			if (i && j) {
				best = above[j - 1] + (a[i - 1] != b[j - 1]);
				best = above[j] + 1 < best ? above[j] + 1 : best;
				best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			}
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			row[j] = best;
		}
	}
	return rows[n % 3][m];
}

/* In half edits: the rest of a name that was begun counts as half of one. */
static size_t halves(const char *seen, const char *name)
{
	enum { LEAST = 3 };
	const size_t n = strlen(seen);
	return n >= LEAST && strncmp(name, seen, n) == 0 && name[n] ? 1 : 2 * distance(seen, name);
}

const char *closest_name(const char *seen, const char *const *names, int n)
{
	const char *best = NULL;
	size_t least = 2 * (strlen(seen + strspn(seen, "-")) / 3 + 2);
	for (int i = 0; i < n; i++) {
		const size_t d = halves(seen, names[i]);
		if (d > 0 && d < least) {
			least = d;
			best = names[i];
		}
	}
	return best;
}
