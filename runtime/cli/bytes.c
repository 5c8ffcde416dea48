/* bytes.c - see bytes.h. */
#include "runtime/cli/bytes.h"

#include <stdlib.h>
#include <string.h>

bool bytes_add(Bytes *b, const char *from, size_t n)
{
	if (b->cap - b->n < n) {
		size_t cap = (b->n + n) * 2 + 64;
		char *at = realloc(b->at, cap);
		if (!at)
			return false;
		b->at = at;
		b->cap = cap;
	}
	if (n)
		memcpy(b->at + b->n, from, n);
	b->n += n;
	return true;
}
