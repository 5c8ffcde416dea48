/* pieces.c - see pieces.h. All bytes are text so far. */
#include "runtime/serve/pieces.h"

#include <stdlib.h>

struct PieceParser { int n_calls; };

PieceParser *pieces_open(const ToolFormat *format, json_t *tools, bool has_reasoning, bool begins_in_reasoning)
{
	(void)format, (void)tools, (void)has_reasoning, (void)begins_in_reasoning;
	return calloc(1, sizeof(PieceParser));
}

bool pieces_push(PieceParser *p, const char *bytes, size_t n, PieceSink sink, void *ctx)
{
	(void)p;
	return n == 0 || sink(ctx, &(Piece){.kind = PIECE_TEXT, .bytes = bytes, .n = n});
}

bool pieces_finish(PieceParser *p, PieceSink sink, void *ctx)
{
	(void)p, (void)sink, (void)ctx;
	return true;
}

void pieces_close(PieceParser *p) { free(p); }
