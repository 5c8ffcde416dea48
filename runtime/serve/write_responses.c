/* write_responses.c - answers of Responses (apis.h).
 *
 * A part is an item of the response's output. An item is printed by one function, whether it begins, is whole in a
 * stream or in the response: its ids are the same in all of them. */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <string.h>

/* Items ------------------------------------------------------------ */

static const char *status_of(const Choice *c, int index)
{
	if (index + 1 < c->n_parts || c->parts[index].kind == PIECE_CALL)
		return "completed";
	return !c->finish ? "in_progress" : strcmp(c->finish, "length") == 0 ? "incomplete" : "completed";
}

/* The log probabilities of its tokens from number `from` on. */
static void put_logs(const Generation *g, const Choice *c, int index, int from, FILE *out)
{
	int first = from, end;
	while (first < c->n_logs && c->logs[first].part != index)
		first++;
	for (end = first; end < c->n_logs && c->logs[end].part == index; end++)
		;
	fputs("\"logprobs\":[", out);
	answer_put_token_logs(g, c, first, end, out);
	fputc(']', out);
}

/* What a message has: its first n bytes of text. */
static void put_content(const Generation *g, const Choice *c, int index, size_t n, FILE *out)
{
	fputs("{\"type\":\"output_text\",\"text\":", out);
	json_text(out, n ? c->parts[index].bytes : "", n);
	fputs(",\"annotations\":[],", out);
	put_logs(g, c, index, n ? 0 : c->n_logs, out);
	fputc('}', out);
}

static void put_call(const Part *p, size_t n, FILE *out)
{
	fprintf(out, ",\"call_id\":\"%s\",\"name\":", p->call_id);
	json_quoted(out, p->name);
	fputs(p->is_custom ? ",\"input\":" : ",\"arguments\":", out);
	json_text(out, n ? p->bytes : "", n);
}

static void put_item(const Generation *g, const Choice *c, int index, bool is_whole, FILE *out)
{
	const Part *p = &c->parts[index];
	const size_t n = is_whole ? p->n : 0;
	fprintf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", p->id,
		p->kind == PIECE_REASONING     ? "reasoning"
			: p->kind == PIECE_TEXT    ? "message"
			: p->is_custom             ? "custom_tool_call"
									   : "function_call",
		is_whole ? status_of(c, index) : "in_progress");
	if (p->kind == PIECE_REASONING) {
		fputs(",\"summary\":[],\"content\":[", out);
		if (is_whole) {
			fputs("{\"type\":\"reasoning_text\",\"text\":", out);
			json_text(out, p->bytes, n);
			fputc('}', out);
		}
		fputs("],\"encrypted_content\":null", out);
	} else if (p->kind == PIECE_TEXT) {
		fputs(",\"role\":\"assistant\",\"content\":[", out);
		if (is_whole)
			put_content(g, c, index, n, out);
		fputc(']', out);
	} else {
		put_call(p, n, out);
	}
	fputc('}', out);
}

/* Responses ------------------------------------------------------------ */

static void put_error(const ApiError *e, FILE *out)
{
	fputs("{\"code\":\"server_error\",\"message\":", out);
	json_quoted(out, e->message);
	fputc('}', out);
}

/* The response with its first n items; usage where it has ended. */
static void put_response(const Generation *g, const char *status, const ApiError *e, int n, FILE *out)
{
	const Choice *c = &g->choices[0];
	const AtlasSampling *s = &g->request.sampling;
	const int made = generation_tokens(g);
	fprintf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"background\":false,"
		"\"error\":", g->answer_id, (long long)g->created, status);
	if (e)
		put_error(e, out);
	else
		fputs("null", out);
	fprintf(out, ",\"incomplete_details\":%s,\"model\":",
		strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
	json_quoted(out, g->call.s->limits.names[0]);
	fputs(",\"output\":[", out);
	for (int i = 0; i < n; i++) {
		fputs(i ? "," : "", out);
		put_item(g, c, i, true, out);
	}
	fprintf(out, "],\"previous_response_id\":null,\"store\":false,\"temperature\":%g,\"top_p\":%g,"
		"\"truncation\":\"disabled\",\"user\":null,%.*s", (double)s->temperature, (double)s->top_p,
		(int)strlen(g->request.repeated) - 2, g->request.repeated + 1);
	if (strcmp(status, "in_progress") == 0)
		fputs(",\"usage\":null}", out);
	else
		fprintf(out, ",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
			"\"cache_write_tokens\":0},\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},"
			"\"total_tokens\":%d}}", g->prompt_tokens, g->cached_tokens, made, generation_reasoning(g),
			g->prompt_tokens + made);
}

static const char *ending_of(const Generation *g)
{
	return strcmp(g->choices[0].finish, "length") == 0 ? "incomplete" : "completed";
}

void responses_whole(Generation *g, FILE *out) { put_response(g, ending_of(g), NULL, g->choices[0].n_parts, out); }

/* Streams ------------------------------------------------------------ */

/* "response." is the beginning of each type. */
static void begin(Generation *g, const char *type, FILE *out)
{
	fprintf(out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d", type, type,
		g->n_events++);
}

static void end(FILE *out) { fputs("}\n\n", out); }

static void put_event(Generation *g, const char *type, const char *status, const ApiError *e, int n, FILE *out)
{
	begin(g, type, out);
	fputs(",\"response\":", out);
	put_response(g, status, e, n, out);
	end(out);
}

/* Events about the item that is not whole yet. */
static void begin_item(Generation *g, const Choice *c, const char *type, FILE *out)
{
	begin(g, type, out);
	fprintf(out, ",\"item_id\":\"%s\",\"output_index\":%d", c->parts[c->n_closed].id, c->n_closed);
}

static void put_item_event(Generation *g, const Choice *c, const char *type, bool is_whole, FILE *out)
{
	begin(g, type, out);
	fprintf(out, ",\"output_index\":%d,\"item\":", c->n_closed);
	put_item(g, c, c->n_closed, is_whole, out);
	end(out);
}

static void put_part_event(Generation *g, const Choice *c, const char *type, size_t n, FILE *out)
{
	begin_item(g, c, type, out);
	fputs(",\"content_index\":0,\"part\":", out);
	put_content(g, c, c->n_closed, n, out);
	end(out);
}

void responses_first(Generation *g, Choice *c, FILE *out)
{
	(void)c;
	put_event(g, "created", "in_progress", NULL, 0, out);
	put_event(g, "in_progress", "in_progress", NULL, 0, out);
}

void responses_begin(Generation *g, Choice *c, Part *p, FILE *out)
{
	put_item_event(g, c, "output_item.added", false, out);
	if (p->kind == PIECE_TEXT)
		put_part_event(g, c, "content_part.added", 0, out);
}

/* How events about what grows are called, and the member of the last that has all of it. */
static const struct Growth { const char *delta, *done, *member; } growths[] = {
	[PIECE_REASONING] = {"reasoning_text.delta", "reasoning_text.done", "text"},
	[PIECE_TEXT] = {"output_text.delta", "output_text.done", "text"},
	[PIECE_CALL] = {"function_call_arguments.delta", "function_call_arguments.done", "arguments"},
	{"custom_tool_call_input.delta", "custom_tool_call_input.done", "input"},
};

static const struct Growth *growth_of(const Part *p) { return &growths[p->kind + (p->is_custom ? 1 : 0)]; }

void responses_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out)
{
	begin_item(g, c, growth_of(p)->delta, out);
	fputs(p->kind == PIECE_CALL ? ",\"delta\":" : ",\"content_index\":0,\"delta\":", out);
	json_text(out, bytes, n);
	if (p->kind == PIECE_TEXT) {
		fputc(',', out);
		put_logs(g, c, c->n_closed, c->n_sent_logs, out);
	}
	end(out);
	while (c->n_sent_logs < c->n_logs && c->logs[c->n_sent_logs].part >= 0)
		c->n_sent_logs++;
}

void responses_close(Generation *g, Choice *c, Part *p, FILE *out)
{
	begin_item(g, c, growth_of(p)->done, out);
	fprintf(out, p->kind == PIECE_CALL ? ",\"%s\":" : ",\"content_index\":0,\"%s\":", growth_of(p)->member);
	json_text(out, p->n ? p->bytes : "", p->n);
	if (p->kind == PIECE_TEXT) {
		fputc(',', out);
		put_logs(g, c, c->n_closed, 0, out);
	}
	if (p->kind == PIECE_CALL && !p->is_custom) {
		fputs(",\"name\":", out);
		json_quoted(out, p->name);
	}
	end(out);
	if (p->kind == PIECE_TEXT)
		put_part_event(g, c, "content_part.done", p->n, out);
	put_item_event(g, c, "output_item.done", true, out);
}

void responses_end(Generation *g, FILE *out)
{
	put_event(g, ending_of(g), ending_of(g), NULL, g->choices[0].n_parts, out);
}

void responses_failure(Generation *g, const ApiError *e, FILE *out)
{
	put_event(g, "failed", "failed", e, g->choices[0].n_closed, out);
}
