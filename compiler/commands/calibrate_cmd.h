/* calibrate_cmd.h - `atlasc calibrate`: measures the scales of a quantised KV cache. */
#ifndef ATLASC_CALIBRATE_CMD_H
#define ATLASC_CALIBRATE_CMD_H

#include "compiler/ir.h"

/* Compiles the model by `compile` into a plan next to cmd.output, which is removed again, and has `atlas calibrate` run
 * cmd.text through it. An exit code; errors were printed. */
int calibrate_command(Compile *c, int (*compile)(Compile *c));

#endif
