/* estimate.h - `atlasc --estimate`: the memory that a plan will need, before a kernel is compiled or a weight read. */
#ifndef ATLASC_ESTIMATE_H
#define ATLASC_ESTIMATE_H

#include "compiler/ir.h"

#include <stdio.h>

/* After plan_memory: for each target the items of artifacts/memory.h in bytes, largest first, and their sum on the
 * device. `json`: one object, schema_version 1. */
void estimate_memory(Compile *c, bool json, FILE *out);
/* A0804 for each target that needs more than --memory-budget. */
void check_budget(Compile *c);

#endif
