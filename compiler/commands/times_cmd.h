/* times_cmd.h - `atlasc times`: which kernels have measured times, of each card. */
#ifndef ATLASC_TIMES_CMD_H
#define ATLASC_TIMES_CMD_H

#include "compiler/ir.h"

int times_command(Compile *c); /* prints to stdout; an exit code */

#endif
