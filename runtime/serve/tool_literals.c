/* tool_literals.c - see tool_literals.h. */
#include "runtime/serve/tool_literals.h"
#include "artifacts/json_put.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

JsonEnd literal_scan(LiteralScan *s, char c)
{
	if (s->quote) {
		/* No mark has its first byte a second time, so a match that breaks off begins again with this byte at most. */
		s->n_matched = c == s->quote[s->n_matched] ? s->n_matched + 1 : c == s->quote[0];
		if (!s->quote[s->n_matched]) {
			s->n_matched = 0;
			s->open = (char)!s->open;
			return JSON_MORE;
		}
	} else if (s->open) {
		const bool closes = !s->is_escaped && c == s->open;
		s->is_escaped = !s->is_escaped && c == '\\';
		s->open = closes ? 0 : s->open;
		return JSON_MORE;
	} else if (c == '"' || c == '\'') {
		s->open = c;
		return JSON_MORE;
	}
	if (s->open || !c)
		return JSON_MORE;
	if (strchr("([{", c))
		return ++s->depth < JSON_SCAN_DEPTH ? JSON_MORE : JSON_BAD;
	return strchr(")]}", c) && s->depth-- == 0 ? JSON_DONE : JSON_MORE;
}

/* To JSON ------------------------------------------------------------ */

typedef struct Reader {
	const char *at, *end, *quote;
	FILE *out;
	int depth;
} Reader;

static void skip_blanks(Reader *r)
{
	while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
		r->at++;
}

static bool take(Reader *r, char c)
{
	skip_blanks(r);
	const bool is_next = r->at < r->end && *r->at == c;
	r->at += is_next;
	return is_next;
}

static bool take_mark(Reader *r, const char *mark)
{
	const size_t n = strlen(mark);
	const bool is_next = (size_t)(r->end - r->at) >= n && memcmp(r->at, mark, n) == 0;
	r->at += is_next ? n : 0;
	return is_next;
}

static bool is_hex(const Reader *r, const char *digits, size_t n)
{
	return (size_t)(r->end - digits) >= n && strspn(digits, "0123456789abcdefABCDEF") >= n;
}

/* What is after a backslash. */
static bool put_escape(Reader *r)
{
	const char c = *r->at++;
	const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (n) {
		char digits[9] = "";
		if (!is_hex(r, r->at, n))
			return false;
		memcpy(digits, r->at, n);
		r->at += n;
		const unsigned long code = strtoul(digits, NULL, 16);
		if (code < 0x10000)
			fprintf(r->out, "\\u%04lx", code);
		else
			fprintf(r->out, "\\u%04lx\\u%04lx", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
		return code < 0x110000;
	}
	if (c == '\n')
		return true;
	if (c && strchr("\"\\/bfnrt", c))
		fprintf(r->out, "\\%c", c);
	else if (c == '\'')
		fputc(c, r->out);
	else if (c == '0')
		fputs("\\u0000", r->out);
	else
		r->at--, fputs("\\\\", r->out); /* it stays, as in Python */
	return true;
}

/* After its first quote. */
static bool put_python_string(Reader *r, char quote)
{
	fputc('"', r->out);
	while (r->at < r->end && *r->at != quote) {
		const char c = *r->at++;
		if (c == '\\') {
			if (r->at == r->end || !put_escape(r))
				return false;
		} else if (c == '"') {
			fputs("\\\"", r->out);
		} else if ((unsigned char)c < 0x20) {
			fprintf(r->out, "\\u%04x", c);
		} else {
			fputc(c, r->out);
		}
	}
	fputc('"', r->out);
	return take_mark(r, (const char[]){quote, 0});
}

/* *is_one: a string begins here. */
static bool put_string(Reader *r, bool *is_one)
{
	const char c = r->at < r->end ? *r->at : 0;
	if (!r->quote) {
		*is_one = c == '"' || c == '\'';
		r->at += *is_one;
		return !*is_one || put_python_string(r, c);
	}
	*is_one = take_mark(r, r->quote);
	if (!*is_one)
		return true;
	const char *close = memmem(r->at, (size_t)(r->end - r->at), r->quote, strlen(r->quote));
	if (!close)
		return false;
	json_text(r->out, r->at, (size_t)(close - r->at));
	r->at = close + strlen(r->quote);
	return true;
}

static JsonSlice take_word(Reader *r, const char *ends)
{
	const char *from = r->at;
	while (r->at < r->end && *r->at && !strchr(ends, *r->at))
		r->at++;
	return (JsonSlice){from, (size_t)(r->at - from)};
}

static bool put_value(Reader *r);

/* Up to the bracket that closes them, which comes next; '\0': up to the end. `sign`: between a name and its value. */
static bool put_members(Reader *r, char sign, char close)
{
	bool is_string;
	fputc('{', r->out);
	for (const char *between = "";; between = ",") {
		skip_blanks(r);
		if (r->at == r->end || *r->at == close)
			break;
		fputs(between, r->out);
		if (!put_string(r, &is_string))
			return false;
		const char *ends = r->quote ? ":,[]{}" : " \t\r\n=:,()[]{}\"'";
		const JsonSlice name = is_string ? (JsonSlice){"", 0} : take_word(r, ends);
		if (!is_string && !name.n)
			return false;
		if (!is_string)
			json_text(r->out, name.at, name.n);
		fputc(':', r->out);
		if (!take(r, sign) || !put_value(r))
			return false;
		if (!take(r, ','))
			break;
	}
	fputc('}', r->out);
	skip_blanks(r);
	return close ? take(r, close) : r->at == r->end;
}

static bool put_list(Reader *r, char close)
{
	bool is_closed, goes_on = true;
	fputc('[', r->out);
	for (const char *between = ""; !(is_closed = take(r, close)) && goes_on; between = ",") {
		fputs(between, r->out);
		if (!put_value(r))
			return false;
		goes_on = take(r, ',');
	}
	fputc(']', r->out);
	return is_closed;
}

static bool put_word(Reader *r)
{
	static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}, {"true", "true"},
		{"false", "false"}, {"null", "null"}};
	bool is_integer;
	const JsonSlice w = take_word(r, " \t\r\n,)]}");
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (w.n == strlen(words[i][0]) && memcmp(w.at, words[i][0], w.n) == 0)
			return fputs(words[i][1], r->out), true;
	fwrite(w.at, 1, w.n, r->out);
	return w.n && json_scan_number(w.at, w.n, &is_integer);
}

static bool put_value(Reader *r)
{
	bool is_string;
	skip_blanks(r);
	if (r->at == r->end || r->depth == JSON_SCAN_DEPTH - 2) /* with the object around it, and that of the call */
		return false;
	const char c = *r->at;
	if (c == '{' || c == '[' || c == '(') {
		r->at++;
		r->depth++;
		const bool good = c == '{' ? put_members(r, ':', '}') : put_list(r, c == '[' ? ']' : ')');
		r->depth--;
		return good;
	}
	return put_string(r, &is_string) && (is_string || put_word(r));
}

static bool convert(const char *quote, const char *text, size_t n_text, bool are_members, char **json, size_t *n)
{
	Reader r = {.at = text, .end = text + n_text, .quote = quote};
	*json = NULL;
	r.out = open_memstream(json, n);
	if (!r.out)
		return false;
	const bool good = are_members ? put_members(&r, quote ? ':' : '=', 0) : put_value(&r) && r.at == r.end;
	/* A memory stream that cannot grow does not say so for certain: what is cut is no JSON. */
	const bool has_room = fclose(r.out) == 0 && *json && (!good || json_scan_whole(*json, *n));
	if (good && has_room)
		return true;
	free(*json);
	*json = NULL;
	return has_room;
}

bool literals_to_json(const char *quote, const char *text, size_t n_text, char **json, size_t *n)
{
	return convert(quote, text, n_text, true, json, n);
}

bool literal_to_json(const char *text, size_t n_text, char **json, size_t *n)
{
	return convert(NULL, text, n_text, false, json, n);
}
