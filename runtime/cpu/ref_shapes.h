/* ref_shapes.h - do a graph's tensors have the shapes that its ops speak of? */
#ifndef ATLAS_REF_SHAPES_H
#define ATLAS_REF_SHAPES_H

#include "artifacts/plan.h"

/* Checks each op against its row of artifacts/ops.h: every operand that is not optional is there,
 * floats and integers stand where the reference expects them, equal dim names have equal sizes,
 * formulas over attributes hold. The graph must have passed the plan reader. On false, one sentence
 * in why names op and operand. */
bool ref_shapes_fit(const Graph *g, char *why, size_t why_bytes);

#endif
