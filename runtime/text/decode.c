/* decode.c - ids to text, one by one: only whole code points leave the stream.
 *
 * Texts of tokens are bytes; a code point may be spread over several tokens. Bytes that may still
 * become a code point are held back. With TOK_DECODE_FALLBACK a run of byte tokens is held as a
 * whole, because only its end shows whether it is UTF-8: if not, each of its bytes is a U+FFFD.
 */
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

#include <stdlib.h>
#include <string.h>

static bool append(unsigned char **at, size_t *n, size_t *cap, const void *from, size_t k)
{
	if (*n + k + 1 > *cap) {
		size_t grown = (*n + k + 1) * 2;
		unsigned char *p = realloc(*at, grown);
		if (!p)
			return false;
		*at = p;
		*cap = grown;
	}
	if (k)
		memcpy(*at + *n, from, k);
	*n += k;
	(*at)[*n] = 0;
	return true;
}

static bool hold(TokStream *s, const void *from, size_t n)
{
	return append(&s->held, &s->n_held, &s->held_cap, from, n);
}

/* Gives out one code point, unless it is stripped from the start of the output. */
static bool emit(TokStream *s, uint32_t cp)
{
	unsigned char utf8[UTF8_MAX];
	if (s->strip_left && cp == s->tok->header->strip_point)
		return s->strip_left--, true;
	s->strip_left = 0;
	return append(&s->out, &s->n_out, &s->out_cap, utf8, (size_t)utf8_write(utf8, cp));
}

/* Moves the whole code points of `held` to `out`; with `all`, what is left becomes U+FFFD. */
static bool release(TokStream *s, bool all)
{
	size_t at = 0;
	bool ok = true;
	while (at < s->n_held && ok) {
		uint32_t cp = UTF8_REPLACEMENT;
		int len = utf8_read(s->held + at, s->n_held - at, &cp);
		if (!len && !all)
			break;
		at += len > 0 ? (size_t)len : len ? (size_t)-len : s->n_held - at;
		ok = emit(s, len > 0 ? cp : UTF8_REPLACEMENT);
	}
	s->n_held -= at;
	if (s->n_held)
		memmove(s->held, s->held + at, s->n_held);
	return ok;
}

/* The end of a run of byte tokens. */
static bool end_run(TokStream *s)
{
	bool valid = true, ok = true;
	if (!s->in_run)
		return true;
	for (size_t at = 0; at < s->n_held && valid;) {
		uint32_t cp;
		int len = utf8_read(s->held + at, s->n_held - at, &cp);
		valid = len > 0;
		at += valid ? (size_t)len : 0;
	}
	s->in_run = false;
	if (valid)
		return release(s, true);
	for (size_t i = 0; i < s->n_held && ok; i++)
		ok = emit(s, UTF8_REPLACEMENT);
	s->n_held = 0;
	return ok;
}

static const TokFirst *find_first(const Tok *t, uint32_t id)
{
	uint32_t low = 0, high = t->count[TOK_SEC_FIRST];
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (t->firsts[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->count[TOK_SEC_FIRST] && t->firsts[low].id == id ? &t->firsts[low] : NULL;
}

static const TokToken *find_id(const Tok *t, int32_t id)
{
	if (id < 0 || (uint32_t)id >= t->header->n_ids || !(t->tokens[id].flags & TOK_EXISTS))
		return NULL;
	return &t->tokens[id];
}

bool tok_token_bytes(const Tok *t, int32_t id, const char **bytes, size_t *n_bytes, bool *special)
{
	const TokToken *o = find_id(t, id);
	*bytes = o ? (const char *)t->strings + o->text : "";
	*n_bytes = o ? o->text_bytes : 0;
	*special = o && o->flags & TOK_SPECIAL;
	return o != NULL;
}

void tok_stream_start(TokStream *s, const Tok *t, bool skip_special)
{
	*s = (TokStream){.tok = t, .skip_special = skip_special, .strip_left = t->header->strip_count};
}

static bool take_token(TokStream *s, int32_t id, const TokToken *o)
{
	const Tok *t = s->tok;
	const TokFirst *first = !s->started && o->flags & TOK_FIRST ? find_first(t, (uint32_t)id) : NULL;
	const unsigned char *text = t->strings + (first ? first->text : o->text);
	size_t n = first ? first->text_bytes : o->text_bytes;
	bool spaced = t->header->decode == TOK_DECODE_SPACED && s->started;
	bool is_byte = t->header->decode == TOK_DECODE_FALLBACK && o->flags & TOK_BYTE;
	s->started = true;
	if (is_byte) {
		s->in_run = true;
		return hold(s, text, n);
	}
	return end_run(s) && (!spaced || hold(s, " ", 1)) && hold(s, text, n) && release(s, false);
}

static int give(TokStream *s, bool ok, const char **text, size_t *n_bytes)
{
	*text = s->n_out ? (const char *)s->out : "";
	*n_bytes = s->n_out;
	return ok ? 0 : TOK_E_MEMORY;
}

int tok_stream_push(TokStream *s, int32_t id, const char **text, size_t *n_bytes)
{
	const TokToken *o = find_id(s->tok, id);
	bool taken = o && !(s->skip_special && o->flags & TOK_SPECIAL);
	s->n_out = 0;
	return give(s, !taken || take_token(s, id, o), text, n_bytes);
}

int tok_stream_finish(TokStream *s, const char **text, size_t *n_bytes)
{
	s->n_out = 0;
	return give(s, end_run(s) && release(s, true), text, n_bytes);
}

void tok_stream_free(TokStream *s)
{
	free(s->held);
	free(s->out);
	*s = (TokStream){0};
}

int64_t tok_decode(const Tok *t, const int32_t *ids, size_t n, bool skip_special, char *out, size_t cap)
{
	TokStream s;
	int64_t total = 0;
	int error = 0;
	tok_stream_start(&s, t, skip_special);
	for (size_t i = 0; i <= n && !error; i++) {
		const char *text;
		size_t k;
		error = i < n ? tok_stream_push(&s, ids[i], &text, &k) : tok_stream_finish(&s, &text, &k);
		if (k && (size_t)total < cap)
			memcpy(out + total, text, k < cap - (size_t)total ? k : cap - (size_t)total);
		total += (int64_t)k;
	}
	tok_stream_free(&s);
	return error ? error : total;
}
