/* ref_check.h - may the reference execute this graph? */
#ifndef ATLAS_REF_CHECK_H
#define ATLAS_REF_CHECK_H

#include "artifacts/plan.h"

/* Checks what the plan reader leaves to the executor of a graph: element types, attributes, and
 * that token ids are rows of the tables they index. The graph must have passed the reader. On
 * false, one sentence in `why`. */
bool ref_check(const Graph *g, char *why, size_t why_bytes);

#endif
