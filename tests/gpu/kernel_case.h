/* kernel_case.h - one trial of one kernel template: constants, operands, what the reference makes of them.
 *
 * Everything follows from the template's contract, from the op's row in artifacts/ops.h and from what that
 * file says of the index operands. A new template needs nothing here, a new dim at most a row of edge values.
 */
#ifndef TEST_KERNEL_CASE_H
#define TEST_KERNEL_CASE_H

#include "compiler/ir.h"

enum { CASE_NAMES = 64, CASE_DEFINES = 1536, GUARD = 4096 };

typedef struct Random { uint64_t state; } Random;
uint64_t random_bits(Random *r);
int64_t random_below(Random *r, int64_t n); /* 0..n-1 */
float random_normal(Random *r);
static inline bool one_in(Random *r, int n) { return random_below(r, n) == 0; }

typedef struct CaseBuffer { /* one field of the argument struct */
	bool present, made; /* made: `before` is filled already */
	Dtype dtype;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS], n, bytes;
	int64_t at;   /* offset in Case.image */
	void *before; /* f32, i32 or f32z [n]: contents before the run, in values the dtype can hold */
	void *want;   /* the same after the reference; for IN it is `before` itself */
} CaseBuffer;

typedef struct Rows { /* who sits in the step; arrays of ROWS, OUTS, SEGS * 4 elements, NULL without that dim */
	int rows, outs, segs, flags; /* step */
	int32_t *slot, *pos, *out_row, *seg;
} Rows;

typedef struct Case {
	const KernelTemplate *tmpl;
	Random random;
	ExprName names[CASE_NAMES];
	int n_names;
	Attrs attrs;
	Dtype vars[MAX_DTYPES];
	char defines[CASE_DEFINES];
	int grid[3], block, smem, box[MAX_MAPS][2];
	int64_t reads, writes, flops;
	Rows step;
	CaseBuffer buf[MAX_FIELDS]; /* by field */
	uint8_t *image; /* all operands as the device sees them, guards of GUARD bytes around each */
	int64_t image_bytes;
	void *allocated[64];
	int n_allocated;
} Case;

typedef struct CaseLimits {
	int64_t flops, bytes;  /* of one case */
	const Target *target;
	const char *fixed;     /* "K=2048 N=3072": constants that are not drawn; NULL = all are */
	int draws;             /* tries; 0 = as many as any template needs */
} CaseLimits;

/* Draws constants until all predicates hold and the launch fits. False when no draw does. */
bool case_choose(Case *c, const KernelTemplate *t, uint64_t seed, const CaseLimits *limits);
/* The constants of a decode step of template t with a row of each slot of c, a verify step; operands are laid out and
 * zero. False when t does not admit them. */
bool case_as_step(Case *d, const Case *c, const KernelTemplate *t, const Target *target);
/* The constants of c for a template of its op, with tunables by `choice` and that many ROWS and OUTS (0: as c has);
 * operands are laid out and zero. False when t does not admit them. */
bool case_as_twin(Case *d, const Case *c, const KernelTemplate *t, int choice, int64_t rows, int64_t outs,
	const Target *target);
/* The case's order (artifacts/order.h) into order [ORDER_BYTES]. without: a constant that it is to leave out, which
 * counts as 1, or NULL. */
bool case_order(const Case *c, const char *without, char *order);
/* Operands, guards and poison into c->image. False when the draw cannot be filled legally: choose again. */
bool case_fill(Case *c);
/* The op's reference over the operands: fills `want` of INOUT and OUT buffers. */
void case_reference(Case *c);
void case_free(Case *c);

/* "K=2048 N=3072" has N: its value. */
bool fixed_value(const char *fixed, const char *name, int64_t *value);

int64_t case_value(const Case *c, const char *name, int64_t otherwise);
int case_field(const Case *c, const char *name); /* index or -1 */
int64_t case_each(const Case *c); /* rows of a slot in a verify step, from a multiple of it on; 0 = it is none */
bool case_is_own(const Case *c, int field); /* an output that serves the launch alone: nobody reads what it leaves */
bool case_knows_rows(const Case *c); /* is the kernel told how many rows are in use, by the step or by pairs? */
void *case_alloc(Case *c, int64_t bytes);        /* zeroed, freed with the case */

/* kernel_inputs.c: contents of a buffer before the run, by the operand's name */
bool case_rows(Case *c); /* c->step; false when the drawn dims allow none */
bool case_operand(Case *c, int field);

/* What norm_logits says of part p of an out's logits: the lowest id of the largest one, and the sum relative to it. */
typedef struct BestOfPart { int id; double sum; } BestOfPart;
BestOfPart case_best(const Case *c, const float *logits, int64_t out, int64_t p);

/* Values of buffer b, f32 or i32, as the device holds them. */
void case_encode(const CaseBuffer *b, const void *values, uint8_t *raw);

typedef struct Outcome {
	bool ok;
	double worst;     /* largest error / tolerance over the outputs */
	int64_t compared; /* elements */
	char why[256];    /* of the first failure */
} Outcome;

/* Is element i of a float result one that nobody reads? */
bool case_is_idle(const Case *c, int field, int64_t i);
/* Compares a device's image with the reference, the guards and the inputs with what they were. */
Outcome case_compare(const Case *c, const uint8_t *image);

#endif
