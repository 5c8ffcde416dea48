/* targets.h - the readers of foreign bytes, each as a function of any bytes.
 *
 * A target returns when the bytes were read or refused with a word; anything else that happens is a finding: a crash,
 * a leak, a sanitizer's word, or a rule of the reader that does not hold, which is `bug`. scripts/fuzz.sh runs them
 * under libFuzzer, test_fuzz_corpus.c on the inputs that are kept in tests/fuzz/NAME.
 */
#ifndef TESTS_TARGETS_H
#define TESTS_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FuzzTarget {
	const char *name;
	bool (*run)(const uint8_t *bytes, size_t n); /* were they read? */
} FuzzTarget;
extern const FuzzTarget fuzz_targets[];
extern const int n_fuzz_targets;

#endif
