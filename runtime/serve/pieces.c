/* pieces.c - see pieces.h: one machine over bytes.
 *
 * What may still become a marker, a call, or blanks at the border of one is held back. What broke off is text and is
 * not looked at again, but for the last few bytes: so a byte is read a few times at most, whatever a model writes. */
#include "runtime/serve/pieces.h"
#include "artifacts/json_put.h"
#include "runtime/serve/channels.h"
#include "runtime/serve/tool_block.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BLANKS = 256, MAX_MARKER = 32, MAX_AGAIN = 256, MAX_CALL = 1 << 20 };

typedef enum Mode {
	IN_REASONING, IN_TEXT, IN_BLOCK,
	IN_HEAD, IN_CALL, /* where the answer is messages: before one, in one that is a call */
} Mode;

struct PieceParser {
	const ToolFormat *format;
	json_t *tools;
	const Reasoning *reasoning;  /* NULL = there is none */
	Mode mode;
	bool may_think, may_be_bare; /* nothing but blanks came so far, or since reasoning ended */
	bool drops_blanks;           /* after reasoning, or its marker, or a call */
	char blanks[MAX_BLANKS];     /* [n_blanks] held back; a block or marker may come after them */
	char partial[MAX_MARKER];    /* [n_partial] held back: may become a marker */
	size_t n_blanks, n_partial;
	char again[MAX_AGAIN];       /* [n_again] to be read before what comes, the last one first */
	size_t n_again;
	ToolBlock block;
	char *message; size_t n_message, cap_message; /* its head; and, of a call, all that came of it */
	size_t n_head;
	bool in_string, is_escaped;  /* of a call: within a JSON string, after a '\\' there */
	bool is_structured;          /* pieces_structured */
	bool had_text;               /* the piece before this message is text */
	int n_calls;                 /* given so far */
	PieceKind kind;              /* of out */
	char *out; size_t n_out, cap_out;
	PieceSink sink;              /* of this push */
	void *ctx;
};

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Giving ------------------------------------------------------------ */

/* Bytes at the end that are the beginning of a code point. */
static size_t open_tail(const char *text, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		const unsigned char c = (unsigned char)text[n - k];
		if (c >= 0xc0)
			return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) > k ? k : 0;
		if (c < 0x80)
			return 0;
	}
	return 0;
}

static bool give(PieceParser *p, bool all)
{
	const size_t kept = all ? 0 : open_tail(p->out, p->n_out), n = p->n_out - kept;
	if (!n)
		return true;
	const Piece piece = {.kind = p->kind, .bytes = p->out, .n = n};
	const bool good = p->sink(p->ctx, &piece);
	memmove(p->out, p->out + n, kept);
	p->n_out = kept;
	return good;
}

static bool put(PieceParser *p, PieceKind kind, const char *bytes, size_t n)
{
	if (!n)
		return true;
	if (kind != p->kind && !give(p, true))
		return false;
	p->kind = kind;
	if (p->cap_out - p->n_out < n) {
		const size_t cap = (p->n_out + n) * 2 + 64;
		char *out = realloc(p->out, cap);
		if (!out)
			return false;
		p->out = out;
		p->cap_out = cap;
	}
	memcpy(p->out + p->n_out, bytes, n);
	p->n_out += n;
	return true;
}

/* Text or reasoning, after the blanks that came before it. */
static bool put_plain(PieceParser *p, const char *bytes, size_t n)
{
	const PieceKind kind = p->mode == IN_REASONING ? PIECE_REASONING : PIECE_TEXT;
	const size_t n_blanks = p->n_blanks;
	p->n_blanks = 0;
	p->may_think = p->may_be_bare = p->drops_blanks = false;
	return put(p, kind, p->blanks, n_blanks) && put(p, kind, bytes, n);
}

static bool give_calls(PieceParser *p)
{
	if (!give(p, true))
		return false;
	for (int i = 0; i < p->block.calls.n; i++) {
		const ToolCall *c = &p->block.calls.at[i];
		const Piece piece = {.kind = PIECE_CALL, .bytes = c->name, .n = c->n_name, .arguments = c->arguments,
			.n_arguments = c->n_arguments, .call = p->n_calls++};
		if (!p->sink(p->ctx, &piece))
			return false;
	}
	p->n_blanks = 0;
	p->may_think = p->may_be_bare = false;
	p->drops_blanks = true;
	return true;
}

/* Reading ------------------------------------------------------------ */

static void read_again(PieceParser *p, const char *bytes, size_t n)
{
	for (size_t i = n; i > 0; i--)
		p->again[p->n_again++] = bytes[i - 1];
}

static bool end_block(PieceParser *p, BlockResult result)
{
	const ToolBlock *b = &p->block;
	if (result == BLOCK_NO_MEMORY)
		return false;
	p->mode = IN_TEXT;
	read_again(p, b->held + b->again, b->n - b->again);
	if (result == BLOCK_CALLS)
		return give_calls(p);
	size_t n_blanks = 0; /* at its end, before what may be the next block */
	while (n_blanks < MAX_BLANKS && n_blanks < b->again && is_blank(b->held[b->again - 1 - n_blanks]))
		n_blanks++;
	if (!put_plain(p, b->held, b->again - n_blanks))
		return false;
	memcpy(p->blanks, b->held + b->again - n_blanks, n_blanks);
	p->n_blanks = n_blanks;
	return true;
}

static bool begin_block(PieceParser *p, const char *opener)
{
	p->mode = IN_BLOCK;
	return tool_block_open(&p->block, p->format, p->tools, opener);
}

static bool read_block(PieceParser *p, char c)
{
	const BlockResult result = tool_block_push(&p->block, c);
	return result == BLOCK_MORE || end_block(p, result);
}

/* Messages ------------------------------------------------------------ */

static bool hold(PieceParser *p, const char *bytes, size_t n)
{
	if (p->cap_message - p->n_message < n) {
		const size_t cap = (p->n_message + n) * 2 + 64;
		char *message = realloc(p->message, cap);
		if (!message)
			return false;
		p->message = message;
		p->cap_message = cap;
	}
	memcpy(p->message + p->n_message, bytes, n);
	p->n_message += n;
	return true;
}

/* What is held is text, as the model wrote it. */
static bool give_held(PieceParser *p)
{
	const size_t n = p->n_message;
	p->mode = IN_TEXT;
	p->n_message = 0;
	return put_plain(p, p->message, n);
}

static bool begin_message(PieceParser *p)
{
	const MessageHead head = channels_read_head(p->message, p->n_message);
	const bool is_analysis = head.channel.n == 8 && memcmp(head.channel.at, "analysis", 8) == 0;
	p->n_head = p->n_message;
	if (head.function.n && p->format && p->format->body == TOOL_CHANNELS) {
		p->mode = IN_CALL;
		p->in_string = p->is_escaped = false;
		return true;
	}
	if (head.has_recipient && !is_analysis)
		return give_held(p);
	p->n_message = 0;
	p->mode = is_analysis ? IN_REASONING : IN_TEXT;
	const bool has_break = p->mode == IN_TEXT && p->had_text;
	p->had_text = p->mode == IN_TEXT;
	return !has_break || put(p, PIECE_TEXT, "\n", 1);
}

static bool end_message(PieceParser *p)
{
	const bool is_call = p->mode == IN_CALL;
	p->mode = IN_HEAD;
	if (!is_call)
		return true;
	const MessageHead head = channels_read_head(p->message, p->n_head - strlen(CHANNELS_MESSAGE));
	JsonSlice arguments = {p->message + p->n_head, p->n_message - p->n_head};
	while (arguments.n && is_blank(*arguments.at))
		arguments.at++, arguments.n--;
	while (arguments.n && is_blank(arguments.at[arguments.n - 1]))
		arguments.n--;
	tool_calls_clear(&p->block.calls);
	const CallResult result = !arguments.n
		? tool_calls_add_named(&p->block.calls, p->tools, head.function, (JsonSlice){"{}", 2})
		: !json_scan_whole(arguments.at, arguments.n)
		? CALL_WRONG : tool_calls_add_named(&p->block.calls, p->tools, head.function, arguments);
	if (result != CALL_GOOD) {
		const bool good = result == CALL_WRONG && give_held(p);
		p->mode = IN_HEAD;
		p->had_text = true;
		return good;
	}
	p->n_message = 0;
	p->had_text = false;
	return give_calls(p);
}

static bool read_head(PieceParser *p, char c)
{
	static const char mark[] = CHANNELS_MESSAGE;
	const size_t n = sizeof mark - 1;
	if (!p->n_message && c == '\n')
		return true;
	if (!hold(p, &c, 1))
		return false;
	if (!channels_may_be_head(p->message, p->n_message))
		return give_held(p);
	return p->n_message < n || memcmp(p->message + p->n_message - n, mark, n) != 0 || begin_message(p);
}

/* A byte of a call's arguments: what it writes in a string is no mark. */
static bool hold_argument(PieceParser *p, char c)
{
	p->in_string = p->in_string ? c != '"' || p->is_escaped : c == '"';
	p->is_escaped = p->in_string && c == '\\' && !p->is_escaped;
	return p->n_message < MAX_CALL ? hold(p, &c, 1) : give_held(p) && put_plain(p, &c, 1);
}

static bool read_message(PieceParser *p, char c)
{
	bool is_whole;
	if (p->mode == IN_CALL && p->in_string)
		return hold_argument(p, c);
	if (p->mode == IN_TEXT && p->is_structured)
		return put_plain(p, &c, 1);
	p->partial[p->n_partial++] = c;
	if (channels_may_end(p->partial, p->n_partial, &is_whole)) {
		p->n_partial = is_whole ? 0 : p->n_partial;
		return !is_whole || end_message(p);
	}
	const size_t n = p->n_partial;
	p->n_partial = 0;
	read_again(p, p->partial + 1, n - 1);
	return p->mode == IN_CALL ? hold_argument(p, p->partial[0]) : put_plain(p, p->partial, 1);
}

static bool finish_message(PieceParser *p)
{
	if (p->mode == IN_CALL && p->n_partial && !hold(p, p->partial, p->n_partial))
		return false;
	if (p->mode == IN_CALL)
		return end_message(p);
	return p->mode == IN_HEAD || put_plain(p, p->partial, p->n_partial);
}

/* Plain bytes ------------------------------------------------------------ */

static bool end_reasoning(PieceParser *p)
{
	p->mode = IN_TEXT;
	p->n_blanks = 0;
	p->may_think = false;
	p->may_be_bare = p->drops_blanks = true;
	return true;
}

static bool begin_reasoning(PieceParser *p)
{
	p->mode = IN_REASONING;
	p->n_blanks = 0;
	p->drops_blanks = true;
	return true;
}

/* Markers that mean something here; NULL = none. */
static const char *marker(const PieceParser *p, int i)
{
	if (i == 0)
		return p->mode == IN_REASONING ? p->reasoning->closer : p->may_think ? p->reasoning->opener : NULL;
	return p->mode == IN_TEXT && p->format && i <= TOOL_MAX_OPENERS ? p->format->openers[i - 1] : NULL;
}

/* May it begin a marker? *whole: it is one. */
static bool is_marker(const PieceParser *p, const char *bytes, size_t n, const char **whole)
{
	*whole = NULL;
	for (int i = 0; i <= TOOL_MAX_OPENERS; i++) {
		const char *m = marker(p, i);
		if (!m || strncmp(m, bytes, n) != 0)
			continue;
		*whole = m[n] ? NULL : m;
		return true;
	}
	return false;
}

static bool read_plain(PieceParser *p, char c)
{
	const char *whole;
	if (!p->n_partial && is_blank(c)) {
		if (p->drops_blanks)
			return true;
		if (p->n_blanks == MAX_BLANKS && !put_plain(p, "", 0))
			return false;
		p->blanks[p->n_blanks++] = c;
		return true;
	}
	if (!p->n_partial && p->may_be_bare && p->mode == IN_TEXT && p->format && p->format->is_bare &&
		(c == '{' || c == '['))
		return begin_block(p, "") && read_block(p, c);
	p->partial[p->n_partial++] = c;
	const size_t n = p->n_partial;
	if (!is_marker(p, p->partial, n, &whole)) {
		p->n_partial = 0;
		read_again(p, p->partial + 1, n - 1);
		return put_plain(p, p->partial, 1);
	}
	if (!whole)
		return true;
	p->n_partial = 0;
	return p->mode == IN_REASONING                       ? end_reasoning(p)
		: p->reasoning && whole == p->reasoning->opener ? begin_reasoning(p)
														: begin_block(p, whole);
}

static bool has_channels(const PieceParser *p) { return p->reasoning && p->reasoning->has_channels; }

static bool read_byte(PieceParser *p, char c)
{
	bool good;
	for (p->again[p->n_again++] = c; p->n_again > 0;) {
		c = p->again[--p->n_again];
		good = p->mode == IN_HEAD ? read_head(p, c)
			: has_channels(p)     ? read_message(p, c)
			: p->mode == IN_BLOCK ? read_block(p, c)
								  : read_plain(p, c);
		if (!good)
			return false;
	}
	return true;
}

/* The interface ------------------------------------------------------------ */

PieceParser *pieces_open(
	const ToolFormat *format, json_t *tools, const Reasoning *reasoning, bool begins_in_reasoning)
{
	PieceParser *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->format = format;
	p->tools = tools;
	p->may_be_bare = true;
	p->reasoning = reasoning;
	p->may_think = reasoning != NULL;
	p->mode = has_channels(p) ? IN_HEAD : IN_TEXT;
	p->kind = PIECE_TEXT;
	if (reasoning && begins_in_reasoning)
		begin_reasoning(p);
	return p;
}

void pieces_structured(PieceParser *p) { p->is_structured = true; }

static bool is_plain(const PieceParser *p)
{
	return p->mode == IN_TEXT && !has_channels(p) && !p->format && !p->may_think && !p->drops_blanks && !p->n_partial &&
		!p->n_blanks;
}

bool pieces_push(PieceParser *p, const char *bytes, size_t n, PieceSink sink, void *ctx)
{
	p->sink = sink;
	p->ctx = ctx;
	for (size_t i = 0; i < n; i++) {
		if (is_plain(p)) /* nothing is looked for any more */
			return put(p, PIECE_TEXT, bytes + i, n - i) && give(p, false);
		if (!read_byte(p, bytes[i]))
			return false;
	}
	return give(p, false);
}

bool pieces_finish(PieceParser *p, PieceSink sink, void *ctx)
{
	p->sink = sink;
	p->ctx = ctx;
	if (has_channels(p))
		return finish_message(p) && give(p, true);
	if (p->mode == IN_BLOCK) {
		const BlockResult result = tool_block_finish(&p->block);
		const size_t again = p->block.again, n = p->block.n - again;
		if (!end_block(p, result))
			return false;
		p->n_again = 0;
		return put_plain(p, p->block.held + again, n) && give(p, true);
	}
	const bool is_reasoning = p->mode == IN_REASONING;
	if (p->n_partial && !put_plain(p, p->partial, p->n_partial))
		return false;
	return (is_reasoning || put_plain(p, "", 0)) && give(p, true);
}

void pieces_close(PieceParser *p)
{
	if (!p)
		return;
	tool_block_free(&p->block);
	free(p->message);
	free(p->out);
	free(p);
}
