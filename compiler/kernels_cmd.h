/* kernels_cmd.h - `atlasc kernels`: every template with its contract. */
#ifndef ATLASC_KERNELS_CMD_H
#define ATLASC_KERNELS_CMD_H

#include <stdbool.h>

int kernels_command(bool json); /* prints to stdout; an exit code */

#endif
