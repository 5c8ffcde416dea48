/* estimate.h - `atlasc --estimate`: the memory that a plan will need, before a kernel is compiled or a weight read. */
#ifndef ATLASC_ESTIMATE_H
#define ATLASC_ESTIMATE_H

#include <stdio.h>

#include "compiler/ir.h"

/* After plan_memory: for each target the items of its arenas in bytes, largest first, and their sum. `json`: one
 * object, schema_version 1. Items on the device but for io and ring, which are the host's; what driver and
 * context take for themselves is not among them. */
void estimate_memory(Compile *c, bool json, FILE *out);

#endif
