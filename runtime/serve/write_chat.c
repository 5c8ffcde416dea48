/* write_chat.c - answers of Chat Completions (apis.h). */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <string.h>

/* Those of all tokens, also of reasoning and calls, each once. */
static void put_logprobs(const Generation *g, const Choice *c, int first, FILE *out)
{
	if (!g->request.logprobs) {
		fputs(",\"logprobs\":null", out);
		return;
	}
	fputs(",\"logprobs\":{\"content\":[", out);
	answer_put_token_logs(g, c, first, c->n_logs, out);
	fputs("],\"refusal\":null}", out);
}

static const char *reason_of(const Choice *c)
{
	return c->n_calls && strcmp(c->finish, "stop") == 0 ? "tool_calls" : c->finish;
}

void chat_head(const Generation *g, FILE *out)
{
	fputs("data: ", out);
	chunks_head(g, "chat.completion.chunk", out);
}

static void begin(const Generation *g, const Choice *c, FILE *out)
{
	chunk_begin(g, out);
	fprintf(out, "{\"index\":%d,\"delta\":", c->index);
}

static void end(const Generation *g, Choice *c, FILE *out)
{
	put_logprobs(g, c, c->n_sent_logs, out);
	chunk_put_reason(NULL, out);
	chunk_close(g, c, out);
}

void chat_first(Generation *g, Choice *c, FILE *out)
{
	begin(g, c, out);
	fputs("{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null", out);
	chunk_put_reason(NULL, out);
	chunk_close(g, c, out);
}

static void put_call_head(const Part *p, FILE *out)
{
	fprintf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", p->call_id);
	json_quoted(out, p->name);
	fputs(",\"arguments\":", out);
}

/* A call begins with its name; text after earlier text, with calls between them, on a line of its own. */
void chat_begin(Generation *g, Choice *c, Part *p, FILE *out)
{
	if (p->kind != PIECE_CALL) {
		const Part *before = c->parts;
		while (before < p && before->kind != p->kind)
			before++;
		if (before < p)
			chat_piece(g, c, p, "\n", 1, out);
		return;
	}
	begin(g, c, out);
	fprintf(out, "{\"tool_calls\":[{\"index\":%d,", p->call);
	put_call_head(p, out);
	fputs("\"\"}}]}", out);
	end(g, c, out);
}

void chat_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out)
{
	begin(g, c, out);
	if (p && p->kind == PIECE_CALL)
		fprintf(out, "{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", p->call);
	else
		fputs(p && p->kind == PIECE_REASONING ? "{\"reasoning_content\":" : "{\"content\":", out);
	json_text(out, bytes, n);
	fputs(p && p->kind == PIECE_CALL ? "}}]}" : "}", out);
	end(g, c, out);
}

void chat_idle(Generation *g, Choice *c, FILE *out)
{
	if (chunk_is_due(g, c))
		chat_piece(g, c, NULL, "", 0, out);
}

void chat_finish(Generation *g, Choice *c, FILE *out)
{
	begin(g, c, out);
	fputs("{},\"logprobs\":null", out);
	chunk_put_reason(reason_of(c), out);
	chunk_close(g, c, out);
}

static void put_calls(const Choice *c, FILE *out)
{
	const char *between = ",\"tool_calls\":[";
	for (int i = 0; i < c->n_parts; i++) {
		const Part *p = &c->parts[i];
		if (p->kind != PIECE_CALL)
			continue;
		fprintf(out, "%s{", between);
		put_call_head(p, out);
		json_text(out, p->bytes, p->n);
		fputs("}}", out);
		between = ",";
	}
	fputs(c->n_calls ? "]" : "", out);
}

/* content is null where calls are all that there is. */
static void put_message(const Choice *c, FILE *out)
{
	fputs("\"message\":{\"role\":\"assistant\",\"content\":", out);
	if (c->n_calls && !answer_has(c, PIECE_TEXT))
		fputs("null", out);
	else
		answer_put_joined(c, PIECE_TEXT, out);
	if (answer_has(c, PIECE_REASONING)) {
		fputs(",\"reasoning_content\":", out);
		answer_put_joined(c, PIECE_REASONING, out);
	}
	put_calls(c, out);
	fputs(",\"refusal\":null}", out);
}

void chat_whole(Generation *g, FILE *out)
{
	chunks_head(g, "chat.completion", out);
	for (int i = 0; i < g->n_choices; i++) {
		const Choice *c = &g->choices[i];
		fprintf(out, "%s{\"index\":%d,", i ? "," : "", c->index);
		put_message(c, out);
		put_logprobs(g, c, 0, out);
		chunk_put_reason(reason_of(c), out);
	}
	fputs("],\"usage\":", out);
	chunks_usage(g, out);
	fputc('}', out);
}
