/* out.h - a text that is written through a FILE, over and over in the same memory. */
#ifndef ATLAS_OUT_H
#define ATLAS_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct Out {
	FILE *f;
	char *at;  /* after out_end: [n], valid until the next out_begin */
	size_t n;
} Out;

bool out_open(Out *o); /* false: no memory */
FILE *out_begin(Out *o);
bool out_end(Out *o);  /* false: no memory for all of it */
void out_close(Out *o);

#endif
