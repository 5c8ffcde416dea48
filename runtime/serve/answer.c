/* answer.c - answers of Chat Completions and Completions, whole and as streams.
 *
 * Clients do not check, they touch: every chunk has all its members, `finish_reason` is null up to the chunk that ends
 * an answer, whose delta is empty, and the chunk with the usage has an empty list of choices. */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int generation_tokens(const Generation *g)
{
	int n = 0;
	for (int i = 0; i < g->n_choices; i++)
		n += g->choices[i].n_tokens;
	return n;
}

void choice_drop_logs(Choice *c)
{
	for (int i = 0; i < c->n_logs; i++)
		free(c->logs[i].top);
	c->n_logs = 0;
}

/* Pieces ------------------------------------------------------------ */

static void put_head(const Generation *g, const char *object, FILE *out)
{
	fprintf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->answer_id, object,
		(long long)g->created);
	json_quoted(out, g->call.s->limits.names[0]);
	fprintf(out, ",\"system_fingerprint\":\"%s\",\"choices\":[", g->call.s->fingerprint);
}

static void put_usage(const Generation *g, FILE *out)
{
	const int made = generation_tokens(g);
	fprintf(out, "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
		"\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
		g->prompt_tokens, made, g->prompt_tokens + made);
}

static void put_logprob(float logprob, FILE *out)
{
	if (isnan(logprob))
		fputs("null", out);
	else
		json_number(out, isfinite(logprob) ? logprob : -9999.0);
}

static void token_bytes(const Generation *g, int32_t token, const char **bytes, size_t *n)
{
	const AtlasPlan *plan = g->call.s->limits.plan;
	bool special;
	if (!plan->has_tokenizer || !tok_token_bytes(&plan->tokenizer, token, bytes, n, &special)) {
		*bytes = "";
		*n = 0;
	}
}

static void put_chat_token(const Generation *g, int32_t token, float logprob, FILE *out)
{
	const char *bytes;
	size_t n;
	token_bytes(g, token, &bytes, &n);
	fputs("{\"token\":", out);
	json_text(out, bytes, n);
	fputs(",\"logprob\":", out);
	put_logprob(logprob, out);
	fputs(",\"bytes\":[", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
	fputc(']', out);
}

static void put_chat_logprobs(const Generation *g, const Choice *c, FILE *out)
{
	fputs("{\"content\":[", out);
	for (int i = 0; i < c->n_logs; i++) {
		fputs(i ? "," : "", out);
		put_chat_token(g, c->logs[i].token, c->logs[i].logprob, out);
		fputs(",\"top_logprobs\":[", out);
		for (int k = 0; k < c->logs[i].n_top; k++) {
			fputs(k ? "," : "", out);
			put_chat_token(g, c->logs[i].top[k].token, c->logs[i].top[k].logprob, out);
			fputc('}', out);
		}
		fputs("]}", out);
	}
	fputs("],\"refusal\":null}", out);
}

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
		token_bytes(g, l->top[k].token, &bytes[k], &n[k]);
		for (int i = 0; i < k; i++)
			is_new &= n[i] != n[k] || memcmp(bytes[i], bytes[k], n[k]) != 0;
		if (!is_new)
			continue;
		fputs(between, out);
		put_token_name(bytes[k], n[k], out);
		fputc(':', out);
		put_logprob(l->top[k].logprob, out);
		between = ",";
	}
	fputc('}', out);
}

static void put_text_logprobs(const Generation *g, const Choice *c, FILE *out)
{
	const char *bytes;
	size_t n;
	fputs("{\"tokens\":[", out);
	for (int i = 0; i < c->n_logs; i++) {
		token_bytes(g, c->logs[i].token, &bytes, &n);
		fputs(i ? "," : "", out);
		put_token_name(bytes, n, out);
	}
	fputs("],\"token_logprobs\":[", out);
	for (int i = 0; i < c->n_logs; i++) {
		fputs(i ? "," : "", out);
		put_logprob(c->logs[i].logprob, out);
	}
	fputs(g->request.top_logprobs ? "],\"top_logprobs\":[" : "],\"top_logprobs\":null", out);
	for (int i = 0; g->request.top_logprobs && i < c->n_logs; i++) {
		fputs(i ? "," : "", out);
		if (isnan(c->logs[i].logprob))
			fputs("null", out);
		else
			put_top(g, &c->logs[i], out);
	}
	fputs(g->request.top_logprobs ? "],\"text_offset\":[" : ",\"text_offset\":[", out);
	for (int i = 0; i < c->n_logs; i++)
		fprintf(out, "%s%lld", i ? "," : "", (long long)c->logs[i].offset);
	fputs("]}", out);
}

static void put_logprobs(const Generation *g, const Choice *c, FILE *out)
{
	fputs(",\"logprobs\":", out);
	if (!g->request.logprobs)
		fputs("null", out);
	else if (g->request.is_chat)
		put_chat_logprobs(g, c, out);
	else
		put_text_logprobs(g, c, out);
}

static void put_finish_reason(const char *finish, FILE *out)
{
	if (finish)
		fprintf(out, ",\"finish_reason\":\"%s\"}", finish);
	else
		fputs(",\"finish_reason\":null}", out);
}

/* Whole answers ------------------------------------------------------------ */

void answer_put_whole(const Generation *g, FILE *out)
{
	put_head(g, g->request.is_chat ? "chat.completion" : "text_completion", out);
	for (int i = 0; i < g->n_choices; i++) {
		const Choice *c = &g->choices[i];
		fprintf(out, "%s{\"index\":%d,", i ? "," : "", c->index);
		fputs(g->request.is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":", out);
		json_text(out, c->text ? c->text : "", c->n_text);
		fputs(g->request.is_chat ? ",\"refusal\":null}" : "", out);
		put_logprobs(g, c, out);
		put_finish_reason(c->finish, out);
	}
	fputs("],\"usage\":", out);
	put_usage(g, out);
	fputc('}', out);
}

/* Streams ------------------------------------------------------------ */

char *answer_chunk_head(const Generation *g)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);
	if (!out)
		return NULL;
	fputs("data: ", out);
	put_head(g, g->request.is_chat ? "chat.completion.chunk" : "text_completion", out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static void begin_chunk(const Generation *g, FILE *out) { fputs(g->chunk_head, out); }

/* usage: null in all chunks but the last where it was asked for; or the usage so far in each. */
static void end_chunk(const Generation *g, FILE *out)
{
	fputc(']', out);
	if (g->request.continuous_usage) {
		fputs(",\"usage\":", out);
		put_usage(g, out);
	} else if (g->request.include_usage) {
		fputs(",\"usage\":null", out);
	}
	fputs("}\n\n", out);
}

void answer_put_first(const Generation *g, Choice *c, FILE *out)
{
	const ApiPrompt *p = c->prompt;
	c->is_greeted = true;
	if (!g->request.is_chat && !g->request.echo)
		return;
	begin_chunk(g, out);
	fprintf(out, "{\"index\":%d,", c->index);
	if (g->request.is_chat) {
		fputs("\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null", out);
	} else {
		fputs("\"text\":", out);
		json_text(out, p->text ? p->text : "", p->n_bytes);
		if (c->sequence.scores)
			put_logprobs(g, c, out);
		else
			fputs(",\"logprobs\":null", out);
	}
	put_finish_reason(NULL, out);
	end_chunk(g, out);
	choice_drop_logs(c);
}

void answer_put_text(const Generation *g, Choice *c, FILE *out)
{
	/* A token is news without text too, where there is none, or where usage comes with each. */
	const bool is_news = c->n_fresh && (!c->stream || g->request.continuous_usage);
	if (!c->n_text && !c->n_logs && !is_news)
		return;
	begin_chunk(g, out);
	fprintf(out, "{\"index\":%d,%s", c->index, g->request.is_chat ? "\"delta\":{\"content\":" : "\"text\":");
	json_text(out, c->text ? c->text : "", c->n_text);
	fputs(g->request.is_chat ? "}" : "", out);
	put_logprobs(g, c, out);
	put_finish_reason(NULL, out);
	end_chunk(g, out);
	c->n_text = 0;
	c->n_fresh = 0;
	choice_drop_logs(c);
}

void answer_put_finish(const Generation *g, const Choice *c, FILE *out)
{
	begin_chunk(g, out);
	fprintf(out, "{\"index\":%d,%s,\"logprobs\":null", c->index, g->request.is_chat ? "\"delta\":{}" : "\"text\":\"\"");
	put_finish_reason(c->finish, out);
	end_chunk(g, out);
}

void answer_put_end(const Generation *g, FILE *out)
{
	if (g->request.include_usage) {
		begin_chunk(g, out);
		fputs("],\"usage\":", out);
		put_usage(g, out);
		fputs("}\n\n", out);
	}
	fputs("data: [DONE]\n\n", out);
}

void answer_put_failure(const ApiError *e, FILE *out)
{
	fputs("data: ", out);
	api_put_error(out, e);
	fputs("\n\n", out);
}
