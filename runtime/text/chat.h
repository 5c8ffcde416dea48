/* chat.h - a conversation to the text that a model reads, by a compiled chat template.
 *
 *     ChatProgram program;
 *     if (!chat_open(&program, bytes, n_bytes, why, sizeof why)) ...refuse the plan, saying why...
 *     ChatPrompt prompt;
 *     ChatFailure failure;
 *     if (chat_render(&program, json, n, now, limits, &prompt, &failure)) ...failure.text says why...
 *     chat_prompt_free(&prompt);
 *
 * The format is artifacts/chat_format.h. A ChatProgram owns nothing and is constant after chat_open: any number of
 * threads may render with it. What a template computes is what jinja2 3.1 computes in the settings of transformers:
 * strings are counted in code points, an undefined value is false and empty and has no attributes, none prints "None".
 */
#ifndef ATLAS_TEXT_CHAT_H
#define ATLAS_TEXT_CHAT_H

#include "artifacts/chat_format.h"
#include "runtime/text/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All pointers lead into the caller's bytes. */
typedef struct ChatProgram {
	const ChatHeader *header;
	const ChatNode *nodes; /* [n_nodes]; 0 of them: the template was not compiled, and `text` says why */
	const uint32_t *kids;
	const ChatScope *scopes;
	const ChatLoad *loads;
	const ChatFunc *funcs;
	const ChatParam *params;
	const ChatGlobal *globals;
	const char *text; /* [n_text] */
} ChatProgram;

/* Checks `bytes` (aligned to 8, they must outlive `p`) and fills `p`: after it, interpreting reads no table out of
 * bounds and does not nest deeper than the format allows. False with a sentence in `why`; has scratch memory. */
bool chat_open(ChatProgram *p, const void *bytes, size_t n_bytes, char *why, size_t why_bytes);

typedef struct ChatLimits {
	int64_t fuel;       /* steps: nodes that are evaluated, and what they do to long values */
	size_t output_bytes;
	size_t memory_bytes; /* of all values together */
} ChatLimits;

typedef struct ChatPrompt { /* chat_prompt_free */
	char *text; /* [n], and a final NUL */
	size_t n;
	TextRange *spans; size_t n_spans; /* what the template wrote, ascending, apart */
} ChatPrompt;

typedef enum ChatFault {
	CHAT_OK,
	CHAT_BAD_INPUT, /* the conversation is not JSON, or of the wrong shape */
	CHAT_RAISED,    /* raise_exception of the template: its words */
	CHAT_BAD_VALUE, /* the template does with a value what cannot be done with it */
	CHAT_LIMIT,     /* fuel, depth, output or memory */
	CHAT_NO_MEMORY  /* malloc failed */
} ChatFault;
typedef struct ChatFailure { ChatFault fault; char text[512]; } ChatFailure;

/* json [n]: the conversation as runtime/atlas.h has it. now: seconds since 1970. */
ChatFault chat_render(const ChatProgram *p, const char *json, size_t n, int64_t now, ChatLimits limits,
	ChatPrompt *prompt, ChatFailure *failure);
void chat_prompt_free(ChatPrompt *prompt);

#endif
