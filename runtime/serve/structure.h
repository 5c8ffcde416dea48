/* structure.h - the grammars that requests ask for: read, compiled once, and kept for the requests that follow. */
#ifndef ATLAS_STRUCTURE_H
#define ATLAS_STRUCTURE_H

#include "runtime/serve/api.h"

typedef struct Structures Structures;
/* NULL: no memory. The vocabulary's tree is made when the first request needs it. */
Structures *structures_open(const AtlasPlan *plan);
void structures_close(Structures *s); /* after all requests; NULL is fine */

/* Fields of a body that ask for a structure: response_format, structured_outputs, guided_json, guided_regex,
 * guided_choice. At most one of them, which is in r->wanted then. Any thread, as the following. False after filling
 * `e`. */
bool api_read_structure(const ApiLimits *limits, json_t *body, ApiRequest *r, ApiError *e);

/* The answer is a call of the plan's format, as `source` has it. The format's marks are written with the vocabulary's
 * own tokens, where it has them. */
bool structure_of_call(
	const ApiLimits *limits, const GrammarSource *source, const char *param, ApiRequest *r, ApiError *e);

/* When prompts are read: takes the grammar of r->wanted, which is gone then, if it is kept. Where an answer is messages
 * of channels, what is before the text of the last one belongs to it. False after filling `e`. */
bool structure_find(const ApiLimits *limits, ApiRequest *r, ApiError *e);
/* Compiles r->wanted, which is gone then; that may take half a second. Of requests that want one at once the first
 * compiles it, the others wait. False after filling `e`. */
bool structure_compile(const ApiLimits *limits, ApiRequest *r, ApiError *e);
void structure_forget(ApiRequest *r); /* r->wanted; NULL is fine */

#endif
