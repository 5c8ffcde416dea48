/* tool_block.h - a block of calls while its bytes come, from the marker that opens it to where it ends or breaks off.
 */
#ifndef ATLAS_TOOL_BLOCK_H
#define ATLAS_TOOL_BLOCK_H

#include "runtime/serve/tool_calls.h"
#include "runtime/serve/tool_formats.h"
#include "runtime/serve/tool_literals.h"

typedef enum BlockResult {
	BLOCK_MORE,
	BLOCK_CALLS,    /* `calls` are whole; bytes from `again` on are not of the block */
	BLOCK_TEXT,     /* it is none: bytes before `again` are text, those from there on are to be read again */
	BLOCK_NO_MEMORY
} BlockResult;

typedef struct ToolBlock { /* zeroed, then tool_block_open; tool_block_free */
	const ToolFormat *format;
	json_t *tools;
	char *held; size_t n, cap; /* all bytes, from the opener on */
	size_t again;              /* at most the bytes of a mark before n */
	int step;                  /* of tool_block.c */
	size_t token, mark;        /* where the value or name, and the marker, of this step begins */
	JsonScan json;
	LiteralScan literals;
	bool is_text;              /* the parameter's value is a string, whatever the schema says */
	ToolRange name, key, value; /* of held; name.n 0: the JSON itself names what it calls */
	ToolParameter *parameters; int n_parameters, cap_parameters;
	ToolCalls calls;
} ToolBlock;

/* opener: one of the format's, which has come already; "" = the block begins with the JSON itself. False: no memory. */
bool tool_block_open(ToolBlock *b, const ToolFormat *format, json_t *tools, const char *opener);
/* After another result than BLOCK_MORE the block is to be opened anew. */
BlockResult tool_block_push(ToolBlock *b, char c);
BlockResult tool_block_finish(ToolBlock *b); /* the answer ends here; not BLOCK_MORE */
void tool_block_free(ToolBlock *b);

#endif
