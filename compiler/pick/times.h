/* times.h - the measured times that kernels are chosen by (tuning.c). */
#ifndef ATLASC_TIMES_H
#define ATLASC_TIMES_H

#include "compiler/ir.h"

/* kernels/tuning/ or --tuning -> Compile.tunings, a part of read_options. card: target.card, NULL = not given; `at`
 * its place. */
void read_tuning(Compile *c, const char *card, Loc at);
/* Of n files by name, "sm_90a.h100", the one that the target's kernels are chosen by; NULL = none is of it. cards:
 * those that are asked for, with commas between them, or NULL. */
const TemplateSource *tuning_file(const TemplateSource *files, int n, const Target *t, const char *cards);
/* The files' hashes, cards and drivers, and on what the targets ran, -> Options.resolved. */
void record_tuning(Compile *c);
/* time_key.c: of the code that a kernel with these constants reaches, and of its launch. Constants of room (tuning.h)
 * may be missing. */
void time_key(const KernelTemplate *t, const Target *target, const char *defines, uint8_t key[32]);
/* The launch's part of it, as text: malloc of the caller. */
char *launch_values(const KernelTemplate *t, const Target *target, const char *defines);
/* tuning.c: a file's text -> Compile.tunings; false after an error. */
bool read_times(Compile *c, const char *file, const char *text, size_t n);
/* What the kernel took on the card of the target's tuning file; NULL = not measured. Notes times that are of another
 * version of the template. */
const TunedTime *tuned_time(Compile *c, const Target *target, const KernelTemplate *t, const char *defines,
	const char *tunables);
void print_targets(FILE *f); /* targets.c: each with its cards, and those that it has times of */

#endif
