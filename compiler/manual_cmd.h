/* manual_cmd.h - `atlasc --help-as`: manual pages and completion, from the tables that the commands obey. */
#ifndef ATLASC_MANUAL_CMD_H
#define ATLASC_MANUAL_CMD_H

#include "compiler/ir.h"

#include <stdio.h>

/* What cmd.help_as asks for, to stdout. */
void manual_command(Compile *c, const char *const *passes, int n_passes);
/* Every key of MODEL.toml as an item of a page (read_options.c). */
void print_option_page(FILE *f);

#endif
