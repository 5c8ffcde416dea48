/* command_line.h - the options of atlasc, from one table. */
#ifndef ATLASC_COMMAND_LINE_H
#define ATLASC_COMMAND_LINE_H

#include "compiler/ir.h"

typedef enum Command { COMMAND_COMPILE, COMMAND_KERNELS, COMMAND_EXPLAIN, COMMAND_CALIBRATE, COMMAND_OPS, COMMAND_KEYS,
	COMMAND_HELP, COMMAND_VERSION, COMMAND_WRONG /* diagnostics say why */ } Command;

/* Fills Compile.cmd with every field resolved (targets, jobs, output). */
Command parse_command_line(Compile *c, int argc, char **argv);
void print_help(void);

#endif
