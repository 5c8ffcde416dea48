/* write_completions.c - answers of Completions (apis.h). */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <math.h>
#include <string.h>

/* A token's text; of one that is no UTF-8 alone, its bytes as the API writes them: bytes:\xe2\x80. */
static void put_token_name(const char *bytes, size_t n, FILE *out)
{
	bool is_text = true;
	for (size_t i = 0; is_text && i < n;) {
		const size_t length = json_code_point((const unsigned char *)bytes + i, n - i);
		is_text = length > 0;
		i += length;
	}
	if (is_text) {
		json_text(out, bytes, n);
		return;
	}
	fputs("\"bytes:", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "\\\\x%02x", (unsigned char)bytes[i]);
	fputc('"', out);
}

/* {"text": logprob}; of tokens with the same text, whose names are one, the most probable. */
static void put_top(const Generation *g, const TokenLog *l, FILE *out)
{
	const char *bytes[ATLAS_MAX_TOP];
	size_t n[ATLAS_MAX_TOP];
	const char *between = "";
	fputc('{', out);
	for (int k = 0; k < l->n_top && k < ATLAS_MAX_TOP; k++) {
		bool is_new = true;
		answer_token_bytes(g, l->top[k].token, &bytes[k], &n[k]);
		for (int i = 0; i < k; i++)
			is_new &= n[i] != n[k] || memcmp(bytes[i], bytes[k], n[k]) != 0;
		if (!is_new)
			continue;
		fputs(between, out);
		put_token_name(bytes[k], n[k], out);
		fputc(':', out);
		answer_put_logprob(l->top[k].logprob, out);
		between = ",";
	}
	fputc('}', out);
}

static void put_logprobs(const Generation *g, const Choice *c, int first, FILE *out)
{
	const char *bytes;
	size_t n;
	if (!g->request.logprobs) {
		fputs(",\"logprobs\":null", out);
		return;
	}
	fputs(",\"logprobs\":{\"tokens\":[", out);
	for (int i = first; i < c->n_logs; i++) {
		answer_token_bytes(g, c->logs[i].token, &bytes, &n);
		fputs(i > first ? "," : "", out);
		put_token_name(bytes, n, out);
	}
	fputs("],\"token_logprobs\":[", out);
	for (int i = first; i < c->n_logs; i++) {
		fputs(i > first ? "," : "", out);
		answer_put_logprob(c->logs[i].logprob, out);
	}
	fputs(g->request.top_logprobs ? "],\"top_logprobs\":[" : "],\"top_logprobs\":null", out);
	for (int i = first; g->request.top_logprobs && i < c->n_logs; i++) {
		fputs(i > first ? "," : "", out);
		if (isnan(c->logs[i].logprob))
			fputs("null", out);
		else
			put_top(g, &c->logs[i], out);
	}
	fputs(g->request.top_logprobs ? "],\"text_offset\":[" : ",\"text_offset\":[", out);
	for (int i = first; i < c->n_logs; i++)
		fprintf(out, "%s%lld", i > first ? "," : "", (long long)c->logs[i].offset);
	fputs("]}", out);
}

void completions_head(const Generation *g, FILE *out)
{
	fputs("data: ", out);
	chunks_head(g, "text_completion", out);
}

static void begin(const Generation *g, const Choice *c, const char *text, size_t n, FILE *out)
{
	chunk_begin(g, out);
	fprintf(out, "{\"index\":%d,\"text\":", c->index);
	json_text(out, text, n);
}

/* An echo. */
void completions_first(Generation *g, Choice *c, FILE *out)
{
	const ApiPrompt *p = c->prompt;
	if (!g->request.echo)
		return;
	begin(g, c, p->text ? p->text : "", p->n_bytes, out);
	if (c->sequence.scores)
		put_logprobs(g, c, 0, out);
	else
		fputs(",\"logprobs\":null", out);
	chunk_put_reason(NULL, out);
	chunk_close(g, c, out);
}

void completions_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out)
{
	(void)p;
	begin(g, c, bytes, n, out);
	put_logprobs(g, c, c->n_sent_logs, out);
	chunk_put_reason(NULL, out);
	chunk_close(g, c, out);
}

void completions_idle(Generation *g, Choice *c, FILE *out)
{
	if (chunk_is_due(g, c))
		completions_piece(g, c, NULL, "", 0, out);
}

void completions_finish(Generation *g, Choice *c, FILE *out)
{
	begin(g, c, "", 0, out);
	fputs(",\"logprobs\":null", out);
	chunk_put_reason(c->finish, out);
	chunk_close(g, c, out);
}

void completions_whole(Generation *g, FILE *out)
{
	chunks_head(g, "text_completion", out);
	for (int i = 0; i < g->n_choices; i++) {
		const Choice *c = &g->choices[i];
		fprintf(out, "%s{\"index\":%d,\"text\":", i ? "," : "", c->index);
		answer_put_joined(c, PIECE_TEXT, out);
		put_logprobs(g, c, 0, out);
		chunk_put_reason(c->finish, out);
	}
	fputs("],\"usage\":", out);
	chunks_usage(g, out);
	fputc('}', out);
}
