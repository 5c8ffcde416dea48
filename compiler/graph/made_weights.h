/* made_weights.h - weights without file and value, of --random-weights (made_weights.c). */
#ifndef ATLASC_MADE_WEIGHTS_H
#define ATLASC_MADE_WEIGHTS_H

#include "compiler/ir.h"

/* Weight w with what it is: Weight.made and made_cols. */
Weight random_weight_of(const Compile *c, int w);
void mark_made_weights(Compile *c); /* with --weights ref, those are made when a session opens */

#endif
