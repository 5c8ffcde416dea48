/* structure.h - the grammars that requests ask for: read, compiled once, and kept for the requests that follow. */
#ifndef ATLAS_STRUCTURE_H
#define ATLAS_STRUCTURE_H

#include "runtime/serve/api.h"

typedef struct Structures Structures;
/* NULL: no memory. The vocabulary's tree is made when the first request needs it. */
Structures *structures_open(const AtlasPlan *plan);
void structures_close(Structures *s); /* after all requests; NULL is fine */

/* Fields of a body that ask for a structure: response_format, structured_outputs, guided_json, guided_regex,
 * guided_choice. At most one of them. Any thread, as the following. False after filling `e`. */
bool api_read_structure(const ApiLimits *limits, json_t *body, ApiRequest *r, ApiError *e);

/* The answer is the text `before`, then JSON of the schema. opener: what `before` begins with; where a token of the
 * vocabulary has that text, the answer begins with it. */
bool structure_after(const ApiLimits *limits, const char *before, const char *opener, json_t *schema, const char *param,
	ApiRequest *r, ApiError *e);

#endif
