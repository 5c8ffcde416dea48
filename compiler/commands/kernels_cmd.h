/* kernels_cmd.h - `atlasc kernels`: every template with its contract. */
#ifndef ATLASC_KERNELS_CMD_H
#define ATLASC_KERNELS_CMD_H

#include "compiler/base.h"

int kernels_command(Diags *d, bool json); /* prints to stdout; an exit code */

#endif
