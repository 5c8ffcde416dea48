/* out.c - see out.h. */
#include "runtime/serve/out.h"

#include <stdio_ext.h>
#include <stdlib.h>

bool out_open(Out *o)
{
	*o = (Out){0};
	o->f = open_memstream(&o->at, &o->n);
	if (o->f)
		__fsetlocking(o->f, FSETLOCKING_BYCALLER);
	return o->f != NULL;
}

FILE *out_begin(Out *o)
{
	clearerr(o->f);
	fseeko(o->f, 0, SEEK_SET);
	return o->f;
}

bool out_end(Out *o)
{
	fputc(0, o->f); /* what an earlier, longer text left does not count */
	const bool good = fflush(o->f) == 0 && !ferror(o->f);
	const off_t end = ftello(o->f);
	o->n = good && end > 0 ? (size_t)end - 1 : 0;
	return good;
}

void out_close(Out *o)
{
	if (o->f)
		fclose(o->f);
	free(o->at);
	*o = (Out){0};
}
