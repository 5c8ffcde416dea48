/* ref_call.h - how the reference functions reach their operands; inside runtime/cpu.
 *
 * Operands are found by name, so a function cannot mistake one for another when a row of ops.h
 * changes.
 */
#ifndef ATLAS_REF_CALL_H
#define ATLAS_REF_CALL_H

#include "runtime/cpu/ref_ops.h"

/* The operand of that name; it must be one of the op's row. */
const RefOperand *ref_arg(const RefCall *c, const char *name);
static inline bool ref_has(const RefCall *c, const char *name) { return ref_arg(c, name)->data; }
static inline float *ref_floats(const RefCall *c, const char *name)
{
	return ref_arg(c, name)->data;
}
static inline int32_t *ref_ints(const RefCall *c, const char *name)
{
	return ref_arg(c, name)->data;
}
static inline int64_t ref_dim(const RefCall *c, const char *name, int i)
{
	return ref_arg(c, name)->shape[i];
}

static inline float ref_element(const RefOperand *from, int64_t i)
{
	float value;
	ref_convert(from, i, 1, &value);
	return value;
}

/* x within bounds; a NaN stays one. */
static inline double ref_within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* The call's scratch, as its function takes it. */
typedef struct RefRoom {
	size_t used; /* bytes */
	bool runs;   /* else the function does nothing but take */
} RefRoom;
static inline bool ref_runs(const RefCall *c) { return c->room->runs; }
void *ref_take(const RefCall *c, size_t bytes); /* aligned to 16; NULL while nothing runs */

/* The slot of row t; -1 when the row is idle. */
static inline int ref_row_slot(const RefCall *c, int64_t t)
{
	return t < ref_ints(c, "step")[0] ? ref_ints(c, "row_slot")[t] : -1;
}

/* The scale, in e4m3, of n elements that become e2m1 codes, with another `scale` around them: NaN if one of them is. */
float ref_group_scale(const float *x, int64_t n, float scale);

/* n elements, of which FP8_BLOCK each have a scale, `stride` floats from one to the next. */
void ref_codes_of(const float *x, int64_t n, float *y, float *scale, int64_t stride);
void ref_values_of(const float *codes, int64_t n, const float *scale, int64_t stride, float *y);

double ref_gelu(double x); /* its tanh form */

/* Rows of weights: codes [.., cols] and, where they are quantised, scales. */
typedef struct RefCodes { RefOperand w, scale, row_scale; /* data NULL = absent */ int64_t cols, block_k; } RefCodes;
/* w[row, k..k+count) as they are meant: (code - zero) * block scale * row scale; `scale_row` is that of the blocks. */
void ref_unpack(const RefCodes *x, int64_t row, int64_t scale_row, int64_t k, int64_t count, float *out);

/* sum_i a[i] b[i]: exact products, added in float64 on eight lanes, element i on lane i % 8. */
double ref_dot(const float *a, const float *b, int64_t n);

/* What a token is drawn by (ref_slots.c, the logits stage): n columns take part; drafts count as generated. */
typedef struct DrawOf {
	const int32_t *ids;    /* of the columns, ascending; NULL = column v is of id v */
	const int32_t *counts; /* by id */
	const int32_t *drafts; int n_drafts;
	const float *sampling; const int32_t *limits; /* [8] each */
	const int32_t *rules;  /* of the slot, as many as limits says */
	const uint32_t *mask;  /* bits of the columns that may be drawn; NULL = all */
	int n, position;
} DrawOf;
bool ref_is_masked(const int32_t *limits);
/* The slot's mask after that many drafts, NULL = it has none. */
const uint32_t *ref_mask(const RefCall *c, int slot, int64_t drafts);
/* The token, -1 when the scores are not numbers or the rules leave none; penalises logits [n] in place.
 * scratch: 2 * n. */
int ref_draw_token(const DrawOf *d, float *logits, double *scratch, float *logprob);
/* `done` of the ring entry of a slot's token. */
int ref_done(const RefCall *c, int slot, int token, int position);

/* The function of each op. With OP_FUSED or OP_SCRATCH it is also called to measure what it takes: ref_runs. */
typedef void RefFn(const RefCall *c);
#define OP(name, ...) RefFn ref_##name;
#include "artifacts/ops.h"
#undef OP

#endif
