/* quant_lists.h - what lists say of modules: those of the files, and [quant] of MODEL.toml (quant_lists.c). */
#ifndef ATLASC_QUANT_LISTS_H
#define ATLASC_QUANT_LISTS_H

#include "compiler/ir.h"

/* How many of n modules the pattern names (read_quant.c); is_named [n] becomes true for these, may be NULL. */
int quant_matches(const QuantPattern *p, const char *const *modules, int n, bool *is_named);

/* The first line of [quant] about a module, which counts as met with all others about it; NULL = there is none. */
QuantRule *quant_rule_of(Compile *c, const char *module);

/* What the files say of a module: the target, NULL = none names it or `ignore` does. */
typedef struct Stated { const QuantTarget *target; bool is_ignored; } Stated;
void quant_stated(Compile *c, const char *const *modules, int n, Stated *stated);

/* The target about a module whose tensors show that it is quantised, whatever `ignore` says; NULL = there is none. */
const QuantTarget *quant_target_of(Compile *c, const char *module);

void check_quant_lists(Compile *c); /* notes where lists and tensors differ; A0609, and A0611 with --random-weights */
void check_quant_rules(Compile *c); /* A0305 for a line of [quant] that names no product; notes what was decoded */

#endif
