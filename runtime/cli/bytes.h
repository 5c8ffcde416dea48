/* bytes.h - growable bytes of the command's verbs. */
#ifndef ATLAS_BYTES_H
#define ATLAS_BYTES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Bytes { /* zeroed = empty; free(at) by the owner */
	char *at;
	size_t n, cap;
} Bytes;

/* Appends; false when there is no memory. */
bool bytes_add(Bytes *b, const char *from, size_t n);

#endif
