/* tool_grammar.h - what an answer that must be a call looks like. */
#ifndef ATLAS_TOOL_GRAMMAR_H
#define ATLAS_TOOL_GRAMMAR_H

#include "runtime/serve/tool_formats.h"

/* The JSON schema of one call after the format's lead, of the tool `only` or, if that is NULL, of any. tools: as in
 * Chat Completions, checked. The format has a lead. NULL: no memory; json_decref. */
json_t *tool_schema(const ToolFormat *format, json_t *tools, const char *only);

typedef struct FormError { char pointer[160], text[160]; } FormError; /* pointer: "/TOOL/properties/a" */

/* The same as a form (grammar.h), opener and all, of a format without a lead. Parameters come in the order of the
 * schema; of an object that is written in a form of its own, those alone that the schema names. NULL after filling *e:
 * the schema asks for what the format cannot be held to, or there is no memory (then e->text is ""). json_decref. */
json_t *tool_form(const ToolFormat *format, json_t *tools, const char *only, FormError *e);

/* Text, and calls in it whose arguments are of the schemas: a form too, opener and all. The format can talk.
 * `reasoning` may be NULL: what the model says before, in which calls are text. */
json_t *tool_talk(const ToolFormat *format, const Reasoning *reasoning, json_t *tools, FormError *e);
bool tool_can_talk(const ToolFormat *format); /* calls begin with a mark, wherever they are in an answer */

#endif
