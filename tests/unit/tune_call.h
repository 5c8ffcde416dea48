/* tune_call.h - atlas tune as a call: the command's header and the compiler's do not go into one file. */
#ifndef TESTS_TUNE_CALL_H
#define TESTS_TUNE_CALL_H

#include "artifacts/plan.h"
#include "runtime/driver.h"

/* Quiet, with so many repetitions; returns the exit code. output and only may be NULL. */
int tune_call(const Artifact *artifact, const Driver *driver, const char *output, const char *only, int reps);

#endif
