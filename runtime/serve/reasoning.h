/* reasoning.h - the marks that templates and models put around reasoning. */
#ifndef ATLAS_REASONING_H
#define ATLAS_REASONING_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Reasoning {
	const char *opener, *closer;
	/* An answer is messages, each of a channel: <|channel|>NAME<|message|>...<|end|>, with <|start|>assistant between
	 * them (harmony). What channel `analysis` has is reasoning. */
	bool has_channels;
} Reasoning;

/* The marks that the literals of a chat template, [n] bytes, name. NULL: none. */
const Reasoning *reasoning_of(const char *text, size_t n);
const Reasoning *reasoning_of_channels(void);

#endif
