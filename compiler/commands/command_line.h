/* command_line.h - the options of atlasc, from one table. */
#ifndef ATLASC_COMMAND_LINE_H
#define ATLASC_COMMAND_LINE_H

#include "artifacts/manual.h"
#include "compiler/ir.h"

typedef enum Command { COMMAND_COMPILE, COMMAND_KERNELS, COMMAND_TIMES, COMMAND_CALIBRATE, COMMAND_EXPLAIN,
	COMMAND_WORDS, /* those above are called by the first word */
	COMMAND_OPS = COMMAND_WORDS, COMMAND_TARGETS, COMMAND_KEYS, COMMAND_HELP, COMMAND_MANUAL, COMMAND_VERSION,
	COMMAND_WRONG /* diagnostics say why */ } Command;

typedef struct CommandWord { const char *name, *words, *summary; } CommandWord; /* name: "" = none is needed */
extern const CommandWord command_words[COMMAND_WORDS];
/* The options that a command takes, in order; COMMAND_HELP: all, with headings. Returns how
 * many, at most MAX_OPTIONS. */
enum { MAX_OPTIONS = 60 };
int command_options(Command command, ManualOption *out);

/* Fills Compile.cmd with every field resolved (targets, jobs, output). */
Command parse_command_line(Compile *c, int argc, char **argv);
void print_help(void);
void print_version(void); /* and those of what it was built with */

#endif
