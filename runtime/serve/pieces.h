/* pieces.h - what the bytes of an answer are: reasoning, text, and calls of tools.
 *
 * The result does not depend on how the bytes are cut into pushes. A call is reported when it is whole, its tool is one
 * of the request and its arguments are one valid JSON object, never before; what only looks like a call, or is cut off,
 * is text. Blanks around reasoning and around calls are not part of any piece.
 */
#ifndef ATLAS_PIECES_H
#define ATLAS_PIECES_H

#include "runtime/serve/reasoning.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum PieceKind {
	PIECE_REASONING, /* bytes: UTF-8, whole code points */
	PIECE_TEXT,      /* bytes: UTF-8, whole code points */
	PIECE_CALL       /* name and arguments of one whole call */
} PieceKind;

typedef struct Piece { /* pointers live during the sink's call */
	PieceKind kind;
	const char *bytes; size_t n;               /* of text and reasoning; of a call, the name */
	const char *arguments; size_t n_arguments; /* of a call: the text of a JSON object */
	int call;                                  /* of a call: its number in the answer, from 0 */
} Piece;

typedef bool (*PieceSink)(void *ctx, const Piece *piece); /* false: stop, no memory */
typedef struct PieceParser PieceParser;
typedef struct ToolFormat ToolFormat; /* a row of the table of formats (tool_formats.h) */

/* format NULL: no calls are looked for. tools: the request's, as a list in the form of Chat Completions, which lives as
 * long as the parser; types of parameters that are text are theirs. reasoning: what an answer may begin with, NULL =
 * none; begins_in_reasoning: the prompt has written that already. NULL: no memory. */
PieceParser *pieces_open(
	const ToolFormat *format, json_t *tools, const Reasoning *reasoning, bool begins_in_reasoning);
/* The answer has a structure, which ends it: where it is messages of channels, the text of the last may have marks. */
void pieces_structured(PieceParser *p);
/* False: no memory, or the sink returned false; then the parser can only be closed. */
bool pieces_push(PieceParser *p, const char *bytes, size_t n, PieceSink sink, void *ctx);
bool pieces_finish(PieceParser *p, PieceSink sink, void *ctx); /* what was held back */
void pieces_close(PieceParser *p); /* NULL is fine */

#endif
