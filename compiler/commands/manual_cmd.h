/* manual_cmd.h - `atlasc --help-as`: manual pages and completion, from the tables that the commands obey. */
#ifndef ATLASC_MANUAL_CMD_H
#define ATLASC_MANUAL_CMD_H

#include "compiler/ir.h"

/* What cmd.help_as asks for, to stdout. */
void manual_command(Compile *c, const char *const *passes, int n_passes);

#endif
