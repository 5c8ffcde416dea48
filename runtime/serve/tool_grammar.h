/* tool_grammar.h - what an answer that must be a call looks like. */
#ifndef ATLAS_TOOL_GRAMMAR_H
#define ATLAS_TOOL_GRAMMAR_H

#include "runtime/serve/tool_formats.h"

/* The JSON schema of one call after the format's lead, of the tool `only` or, if that is NULL, of any. tools: as in
 * Chat Completions, checked. The format has a lead. NULL: no memory; json_decref. */
json_t *tool_schema(const ToolFormat *format, json_t *tools, const char *only);

#endif
