/* op_table.h - the rows of ops.h as data. It is no part of plan.h, which nearly every file includes. */
#ifndef ATLAS_OP_TABLE_H
#define ATLAS_OP_TABLE_H

#include "artifacts/plan.h"

enum {
#define OP(name, traits, attrs, meaning, ...) OP_##name,
#include "artifacts/ops.h"
#undef OP
	OP_COUNT
};

/* Traits and classes: what they mean is on top of ops.h. */
enum { OP_GRAPH = 1, OP_FUSED = 2, OP_PLAN = 4, OP_PARTS = 8, OP_SCRATCH = 16, OP_RANKS = 32 };
typedef enum OperandClass {
	OF_floats, OF_ints, OF_weight, OF_codes, OF_scales, OF_slot, OF_state, OF_own, OF_peer, OPERAND_CLASSES
} OperandClass;
/* Its elements are i32; of class own they may be. */
static inline bool class_is_whole(OperandClass c) { return c == OF_ints || c == OF_slot; }
static inline bool class_is_weight(OperandClass c) { return c >= OF_weight && c <= OF_scales; }

typedef struct OperandInfo {
	OperandRole role : 4;
	OperandClass of : 4;
	char name[22]; /* "x" */
} OperandInfo;

typedef struct OpInfo {
	const char *name;
	int traits;
	const char *attrs;   /* names separated by spaces */
	int n_operands;
	const OperandInfo *operands; /* [n_operands] */
	const char *shapes;  /* [n_operands] strings, one after the other: a pointer each would be as long as its text */
} OpInfo;
extern const OpInfo op_table[OP_COUNT];
extern const char *const op_meanings[OP_COUNT]; /* one formula each; apart, since libatlas does without */
bool op_from_name(const char *name, OpKind *out);
int op_operand(OpKind op, const char *name); /* index or -1 */
const char *operand_shape(OpKind op, int i); /* "ROWS, K": dims local to the op, and attribute names */
bool op_has_attr(OpKind op, const char *name);
bool has_word(const char *list, const char *word, size_t n); /* is word [n] among "bf16 f16"? */

#endif
