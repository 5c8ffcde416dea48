/* write_messages.c - answers of Messages, the API of Anthropic (apis.h).
 *
 * A part is a block of the message's content. Each event has its type twice, in a line of its own and in its data, and
 * clients need both. */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <string.h>

void messages_put_error(const ApiError *e, FILE *out)
{
	static const struct { int status; const char *type; } types[] = {{401, "authentication_error"},
		{403, "permission_error"}, {404, "not_found_error"}, {405, "invalid_request_error"}, {413, "request_too_large"},
		{429, "rate_limit_error"}, {500, "api_error"}, {503, "api_error"}, {529, "overloaded_error"}};
	const char *type = "invalid_request_error";
	char text[80];
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (types[i].status == e->status)
			type = types[i].type;
	snprintf(text, sizeof text, "prompt is too long: %zu tokens > %d maximum", e->n_tokens, e->max_tokens);
	fputs("{\"type\":\"error\",\"error\":{", out);
	json_fields(out, "type", type, "message", e->n_tokens ? text : e->message, NULL);
	fputs("}}", out);
}

/* Members ------------------------------------------------------------ */

static const char *reason_of(const Generation *g, const Choice *c)
{
	if (strcmp(c->finish, "length") == 0)
		return c->n_tokens < g->request.max_new ? "model_context_window_exceeded" : "max_tokens";
	return c->stop >= 0 ? "stop_sequence" : c->n_calls ? "tool_use" : "end_turn";
}

/* "stop_reason":...,"stop_sequence":...; finish NULL: both are null. */
static void put_reason(const Generation *g, const Choice *c, FILE *out)
{
	if (!c->finish) {
		fputs("\"stop_reason\":null,\"stop_sequence\":null", out);
		return;
	}
	fprintf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason_of(g, c));
	if (c->stop >= 0)
		json_text(out, g->request.stops[c->stop], g->request.stop_bytes[c->stop]);
	else
		fputs("null", out);
}

/* Tokens of the input are those that were read, and those that were kept, once the first token is there. */
static void put_usage(const Generation *g, int made, FILE *out)
{
	fprintf(out, "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
		"\"output_tokens\":%d}", g->prompt_tokens - g->cached_tokens, g->cached_tokens, made);
}

/* The block with its first n bytes; of a call, with its input or, as a stream begins, {}. */
static void put_block(const Part *p, size_t n, FILE *out)
{
	if (p->kind == PIECE_CALL) {
		fprintf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", p->call_id);
		json_quoted(out, p->name);
		fputs(",\"input\":", out);
		fwrite(n ? p->bytes : "{}", 1, n ? n : 2, out);
		fputc('}', out);
		return;
	}
	fputs(p->kind == PIECE_TEXT ? "{\"type\":\"text\",\"text\":" : "{\"type\":\"thinking\",\"thinking\":", out);
	json_text(out, n ? p->bytes : "", n);
	if (p->kind == PIECE_REASONING)
		fprintf(out, ",\"signature\":\"%s\"", n ? p->id : "");
	fputc('}', out);
}

/* blocks: of its content, n of them; made: tokens. */
static void put_message(const Generation *g, const Choice *c, int n, int made, FILE *out)
{
	fprintf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->answer_id);
	json_quoted(out, g->call.s->limits.names[0]);
	fputs(",\"content\":[", out);
	for (int i = 0; i < n; i++) {
		fputs(i ? "," : "", out);
		put_block(&c->parts[i], c->parts[i].n, out);
	}
	fputs("],", out);
	put_reason(g, c, out);
	fputc(',', out);
	put_usage(g, made, out);
	fputc('}', out);
}

void messages_whole(Generation *g, FILE *out)
{
	const Choice *c = &g->choices[0];
	put_message(g, c, c->n_parts, c->n_tokens, out);
}

/* Streams ------------------------------------------------------------ */

static void begin(const char *type, FILE *out) { fprintf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type); }

static void begin_block(const char *type, const Choice *c, FILE *out)
{
	begin(type, out);
	fprintf(out, ",\"index\":%d", c->n_closed);
}

static void end(FILE *out) { fputs("}\n\n", out); }

void messages_ping(Generation *g, FILE *out)
{
	(void)g;
	begin("ping", out);
	end(out);
}

void messages_first(Generation *g, Choice *c, FILE *out)
{
	begin("message_start", out);
	fputs(",\"message\":", out);
	put_message(g, c, 0, 1, out);
	end(out);
	messages_ping(g, out);
}

void messages_begin(Generation *g, Choice *c, Part *p, FILE *out)
{
	(void)g;
	begin_block("content_block_start", c, out);
	fputs(",\"content_block\":", out);
	put_block(p, 0, out);
	end(out);
}

void messages_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out)
{
	static const char *const deltas[] = {[PIECE_REASONING] = "thinking_delta\",\"thinking",
		[PIECE_TEXT] = "text_delta\",\"text", [PIECE_CALL] = "input_json_delta\",\"partial_json"};
	(void)g;
	begin_block("content_block_delta", c, out);
	fprintf(out, ",\"delta\":{\"type\":\"%s\":", deltas[p->kind]);
	json_text(out, bytes, n);
	fputc('}', out);
	end(out);
}

void messages_close(Generation *g, Choice *c, Part *p, FILE *out)
{
	(void)g;
	if (p->kind == PIECE_REASONING) {
		begin_block("content_block_delta", c, out);
		fprintf(out, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"%s\"}", p->id);
		end(out);
	}
	begin_block("content_block_stop", c, out);
	end(out);
}

void messages_finish(Generation *g, Choice *c, FILE *out)
{
	begin("message_delta", out);
	fputs(",\"delta\":{", out);
	put_reason(g, c, out);
	fputs("},", out);
	put_usage(g, c->n_tokens, out);
	end(out);
}

void messages_end(Generation *g, FILE *out)
{
	(void)g;
	begin("message_stop", out);
	end(out);
}

void messages_failure(Generation *g, const ApiError *e, FILE *out)
{
	(void)g;
	fputs("event: error\ndata: ", out);
	messages_put_error(e, out);
	fputs("\n\n", out);
}
