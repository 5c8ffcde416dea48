/* answer.c - what the writers of answers share (generation.h).
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

int generation_reasoning(const Generation *g)
{
	int n = 0;
	for (int i = 0; i < g->n_choices; i++)
		n += g->choices[i].n_reasoning;
	return n;
}

/* Parts ------------------------------------------------------------ */

static void put_parts(Generation *g, Choice *c, FILE *out)
{
	const Api *api = g->api;
	for (; c->n_closed < c->n_parts; c->n_closed++) {
		Part *p = &c->parts[c->n_closed];
		if (!p->is_begun && api->begin)
			api->begin(g, c, p, out);
		p->is_begun = true;
		if (p->n_sent < p->n)
			api->piece(g, c, p, p->bytes + p->n_sent, p->n - p->n_sent, out);
		p->n_sent = p->n;
		if (c->n_closed + 1 == c->n_parts && p->kind != PIECE_CALL && !c->finish)
			break;
		if (api->close)
			api->close(g, c, p, out);
	}
}

void answer_put_news(Generation *g, Choice *c, FILE *out)
{
	const Api *api = g->api;
	if (!c->is_greeted && api->first)
		api->first(g, c, out);
	c->is_greeted = true;
	put_parts(g, c, out);
	if (api->idle)
		api->idle(g, c, out);
	if (c->finish && api->finish)
		api->finish(g, c, out);
	if (g->n_finished == g->n_choices && api->end)
		api->end(g, out);
}

bool answer_has(const Choice *c, PieceKind kind)
{
	for (int i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == kind)
			return true;
	return false;
}

void answer_put_joined(const Choice *c, PieceKind kind, FILE *out)
{
	const Part *only = NULL;
	char *text = NULL;
	size_t n = 0, n_parts = 0;
	for (int i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == kind) {
			only = &c->parts[i];
			n_parts++;
		}
	FILE *all = n_parts > 1 ? open_memstream(&text, &n) : NULL;
	for (int i = 0, k = 0; all && i < c->n_parts; i++)
		if (c->parts[i].kind == kind) {
			fputs(k++ ? "\n" : "", all);
			fwrite(c->parts[i].bytes, 1, c->parts[i].n, all);
		}
	if (all)
		fclose(all);
	if (n_parts > 1)
		json_text(out, text ? text : "", n);
	else
		json_text(out, only ? only->bytes : "", only ? only->n : 0);
	free(text);
}

/* Log probabilities ------------------------------------------------------------ */

void answer_put_logprob(float logprob, FILE *out)
{
	if (isnan(logprob))
		fputs("null", out);
	else
		json_number(out, isfinite(logprob) ? logprob : -9999.0);
}

void answer_token_bytes(const Generation *g, int32_t token, const char **bytes, size_t *n)
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
	answer_token_bytes(g, token, &bytes, &n);
	fputs("{\"token\":", out);
	json_text(out, bytes, n);
	fputs(",\"logprob\":", out);
	answer_put_logprob(logprob, out);
	fputs(",\"bytes\":[", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
	fputc(']', out);
}

void answer_put_token_logs(const Generation *g, const Choice *c, int first, int end, FILE *out)
{
	for (int i = first; i < end; i++) {
		fputs(i > first ? "," : "", out);
		put_chat_token(g, c->logs[i].token, c->logs[i].logprob, out);
		fputs(",\"top_logprobs\":[", out);
		for (int k = 0; k < c->logs[i].n_top; k++) {
			fputs(k ? "," : "", out);
			put_chat_token(g, c->logs[i].top[k].token, c->logs[i].top[k].logprob, out);
			fputc('}', out);
		}
		fputs("]}", out);
	}
}

/* Chunks ------------------------------------------------------------ */

void chunks_head(const Generation *g, const char *object, FILE *out)
{
	fprintf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->answer_id, object,
		(long long)g->created);
	json_quoted(out, g->call.s->limits.names[0]);
	fprintf(out, ",\"system_fingerprint\":\"%s\",\"choices\":[", g->call.s->fingerprint);
}

void chunks_usage(const Generation *g, FILE *out)
{
	const int made = generation_tokens(g);
	fprintf(out, "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
		"\"prompt_tokens_details\":{\"cached_tokens\":%d},\"completion_tokens_details\":{\"reasoning_tokens\":%d}}",
		g->prompt_tokens, made, g->prompt_tokens + made, g->cached_tokens, generation_reasoning(g));
}

void chunk_put_reason(const char *reason, FILE *out)
{
	if (reason)
		fprintf(out, ",\"finish_reason\":\"%s\"}", reason);
	else
		fputs(",\"finish_reason\":null}", out);
}

void chunk_begin(const Generation *g, FILE *out) { fputs(g->chunk_head, out); }

/* usage: null in all chunks but the last where it was asked for; or the usage so far in each. */
void chunk_close(const Generation *g, Choice *c, FILE *out)
{
	fputc(']', out);
	if (g->request.continuous_usage) {
		fputs(",\"usage\":", out);
		chunks_usage(g, out);
	} else if (g->request.include_usage) {
		fputs(",\"usage\":null", out);
	}
	fputs("}\n\n", out);
	c->n_fresh = 0;
	c->n_sent_logs = c->n_logs;
}

bool chunk_is_due(const Generation *g, const Choice *c)
{
	/* A token is news without text too, where there is none, or where usage comes with each. */
	return c->n_sent_logs < c->n_logs || (c->n_fresh && (!c->stream || g->request.continuous_usage));
}

void chunks_end(Generation *g, FILE *out)
{
	if (g->request.include_usage) {
		chunk_begin(g, out);
		fputs("],\"usage\":", out);
		chunks_usage(g, out);
		fputs("}\n\n", out);
	}
	fputs("data: [DONE]\n\n", out);
}

void chunks_failure(Generation *g, const ApiError *e, FILE *out)
{
	fputs("data: ", out);
	g->api->put_error(e, out);
	fputs("\n\n", out);
}
