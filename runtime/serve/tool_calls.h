/* tool_calls.h - calls as models write them, with arguments as JSON: from JSON objects, and from parameters as text
 * whose types the tool's schema gives.
 */
#ifndef ATLAS_TOOL_CALLS_H
#define ATLAS_TOOL_CALLS_H

#include "runtime/serve/json_scan.h"

#include <jansson.h>

enum { TOOL_NAME_BYTES = 128, TOOL_MAX_CALLS = 128 /* of a block */, TOOL_MAX_PARAMETERS = 256 /* of a call */ };

typedef enum CallResult { CALL_GOOD, CALL_WRONG, CALL_NO_MEMORY } CallResult;

typedef struct ToolCall { char *name, *arguments; size_t n_name, n_arguments; } ToolCall; /* owned */
typedef struct ToolCalls { ToolCall *at; int n, cap; } ToolCalls; /* zeroed = none; tool_calls_clear */

/* Adds the calls of a JSON object, or of a list of such: {"name": "f", "arguments": {...}}, where "parameters" and
 * "tool_name" are the same, no arguments are {}, and all may be in a member "function".
 * CALL_WRONG: it is something else, or calls what `tools` does not have. */
CallResult tool_calls_add(ToolCalls *calls, json_t *tools, const char *json, size_t n);
/* Adds a call of arguments that are a JSON object. */
CallResult tool_calls_add_named(ToolCalls *calls, json_t *tools, JsonSlice name, JsonSlice arguments);

typedef struct ToolRange { size_t at, n; } ToolRange; /* bytes of a text */
typedef struct ToolParameter {
	ToolRange key, text;
	bool is_text; /* a string, whatever the schema says */
} ToolParameter;
/* Adds a call of parameters [n] as parts of a text. Each becomes the first that it can be of what the schema allows it:
 * null, a boolean, a number, an object, a list; else it is a string. Of two with one key the later counts. */
CallResult tool_calls_add_typed(
	ToolCalls *calls, json_t *tools, const char *text, ToolRange name, const ToolParameter *parameters, int n);

void tool_calls_clear(ToolCalls *calls);

/* The member "function" of the tool of that name, or NULL. tools: as in Chat Completions; NULL = none. */
json_t *tool_find(json_t *tools, const char *name, size_t n);

#endif
