/* op_meanings.c - the formulas of ops.h, which libatlas leaves out: sections of a file without a user are dropped. */
#include "artifacts/op_table.h"

const char *const op_meanings[OP_COUNT] = {
#define OP(name, traits, attrs, meaning, ...) [OP_##name] = meaning,
#include "artifacts/ops.h"
#undef OP
};
