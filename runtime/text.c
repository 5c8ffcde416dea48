/* text.c - the tokenizer of atlas.h: statuses for its errors, streams on the heap. */
#include "runtime/plan_handle.h"
#include "runtime/text/stops.h"
#include "runtime/text/tokenizer.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

static_assert(sizeof(AtlasSpan) == sizeof(TextRange) && offsetof(AtlasSpan, end) == offsetof(TextRange, end), "alike");

struct AtlasText {
	const AtlasPlan *plan;
	TokStream stream;
	int skip_special;
	Stops stops;
	bool has_begun; /* a token was pushed */
};

static AtlasStatus text_status(int64_t result)
{
	if (result >= 0)
		return ATLAS_OK;
	return result == TOK_E_MEMORY ? ATLAS_NO_MEMORY : result == TOK_E_FORMAT ? ATLAS_MALFORMED : ATLAS_CONTEXT;
}

AtlasStatus atlas_encode(const AtlasPlan *plan, const char *text, size_t n_bytes, int flags, int32_t *tokens,
	size_t cap, size_t *n_tokens)
{
	if (n_tokens)
		*n_tokens = 0;
	if (!plan || !n_tokens || (!text && n_bytes) || (!tokens && cap))
		return ATLAS_ARGUMENT;
	if (!plan->has_tokenizer)
		return ATLAS_NO_TOKENIZER;
	int n = tok_encode(&plan->tokenizer, text, n_bytes, flags & ATLAS_ADD_SPECIAL,
		flags & ATLAS_PARSE_SPECIAL, tokens, cap > INT_MAX ? INT_MAX : (int)cap);
	if (n >= 0)
		*n_tokens = (size_t)n;
	return text_status(n);
}

AtlasStatus atlas_encode_spans(const AtlasPlan *plan, const char *text, size_t n_bytes, int flags,
	const AtlasSpan *spans, size_t n_spans, int32_t *tokens, size_t cap, size_t *n_tokens)
{
	if (n_tokens)
		*n_tokens = 0;
	if (!plan || !n_tokens || (!text && n_bytes) || (!tokens && cap) || (!spans && n_spans))
		return ATLAS_ARGUMENT;
	for (size_t i = 0; i < n_spans; i++)
		if (spans[i].begin > spans[i].end || spans[i].end > n_bytes || (i && spans[i].begin < spans[i - 1].end))
			return ATLAS_ARGUMENT;
	if (flags & ATLAS_PARSE_SPECIAL)
		return atlas_encode(plan, text, n_bytes, flags, tokens, cap, n_tokens);
	if (!plan->has_tokenizer)
		return ATLAS_NO_TOKENIZER;
	int n = tok_encode_spans(&plan->tokenizer, text, n_bytes, flags & ATLAS_ADD_SPECIAL, (const TextRange *)spans,
		n_spans, tokens, cap > INT_MAX ? INT_MAX : (int)cap);
	if (n >= 0)
		*n_tokens = (size_t)n;
	return text_status(n);
}

AtlasStatus atlas_text_open(const AtlasPlan *plan, int skip_special, AtlasText **text)
{
	if (text)
		*text = NULL;
	if (!plan || !text)
		return ATLAS_ARGUMENT;
	if (!plan->has_tokenizer)
		return ATLAS_NO_TOKENIZER;
	AtlasText *t = calloc(1, sizeof *t);
	if (!t)
		return ATLAS_NO_MEMORY;
	t->plan = plan;
	t->skip_special = skip_special;
	tok_stream_start(&t->stream, &plan->tokenizer, skip_special);
	*text = t;
	return ATLAS_OK;
}

AtlasStatus atlas_text_push(AtlasText *text, int32_t token, const char **bytes, size_t *n)
{
	if (!text || !bytes || !n)
		return ATLAS_ARGUMENT;
	*bytes = "";
	*n = 0;
	text->has_begun = true;
	if (text->stops.matched)
		return ATLAS_OK;
	const AtlasStatus status = text_status(tok_stream_push(&text->stream, token, bytes, n));
	return status == ATLAS_OK && !stops_push(&text->stops, *bytes, *n, bytes, n) ? ATLAS_NO_MEMORY : status;
}

AtlasStatus atlas_text_finish(AtlasText *text, const char **bytes, size_t *n)
{
	if (!text || !bytes || !n)
		return ATLAS_ARGUMENT;
	*bytes = "";
	*n = 0;
	if (text->stops.matched)
		return ATLAS_OK;
	AtlasStatus status = text_status(tok_stream_finish(&text->stream, bytes, n));
	if (status != ATLAS_OK || text->stops.n == 0)
		return status;
	return stops_end(&text->stops, *bytes, *n, bytes, n) ? ATLAS_OK : ATLAS_NO_MEMORY;
}

AtlasStatus atlas_text_stops(AtlasText *text, const char *const *stops, const size_t *n_bytes, int n, int include)
{
	if (!text || text->has_begun || n < 0 || n > ATLAS_MAX_STOPS || (n && (!stops || !n_bytes)))
		return ATLAS_ARGUMENT;
	for (int i = 0; i < n; i++)
		if (!stops[i] || n_bytes[i] < 1 || n_bytes[i] > ATLAS_MAX_STOP_BYTES)
			return ATLAS_ARGUMENT;
	return stops_set(&text->stops, stops, n_bytes, n, include) ? ATLAS_OK : ATLAS_NO_MEMORY;
}

int atlas_text_stopped(const AtlasText *text) { return text ? text->stops.matched - 1 : -1; }

void atlas_text_restart(AtlasText *text)
{
	if (!text)
		return;
	tok_stream_free(&text->stream);
	tok_stream_start(&text->stream, &text->plan->tokenizer, text->skip_special);
	stops_restart(&text->stops);
	text->has_begun = false;
}

void atlas_text_close(AtlasText *text)
{
	if (!text)
		return;
	tok_stream_free(&text->stream);
	stops_free(&text->stops);
	free(text);
}
