/* chat_json.c - JSON to values and back, as Python's json does it.
 *
 * The reader is strict: UTF-8, no trailing commas, no comments. A whole number beyond 64 bits is a float. It makes
 * values in the machine's memory as it goes, so that their bound is its own. (jansson, which the compiler has, cannot
 * be linked into libatlas.so as Debian builds it, and builds a tree of its own first.)
 */
#include "runtime/text/chat_machine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* In ------------------------------------------------------------------------------------------- */

typedef struct Json {
	Machine *m;
	const char *text;
	size_t n, at;
	ChatFault fault; /* of what is no JSON */
	bool is_request; /* names may not be there twice */
} Json;

static Val wrong(Json *j, size_t at, const char *what)
{
	size_t line = 1, from = 0;
	for (size_t i = 0; i < at && i < j->n; i++)
		if (j->text[i] == '\n') {
			line++;
			from = i + 1;
		}
	const Str before = {.p = j->text + from, .n = (at < j->n ? at : j->n) - from};
	return chat_fail(j->m, j->fault, "not JSON, line %zu, column %zu: %s", line, string_length(&before) + 1, what);
}

static void skip(Json *j)
{
	while (j->at < j->n && strchr(" \t\n\r", j->text[j->at]) && j->text[j->at])
		j->at++;
}

static char peek(const Json *j) { return j->at < j->n ? j->text[j->at] : 0; }
static bool next_is(Json *j, char c) { return j->at < j->n && j->text[j->at] == c && (j->at++, true); }

static bool hex4(const Json *j, size_t at, uint32_t *out)
{
	*out = 0;
	if (at + 4 > j->n)
		return false;
	for (size_t i = at; i < at + 4; i++) {
		const char c = j->text[i];
		const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
		if (d < 0)
			return false;
		*out = *out << 4 | (uint32_t)d;
	}
	return true;
}

/* The escape at j->at, after the backslash. */
static bool put_escape(Json *j, Text *t)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char c = peek(j), *known = c ? strchr(from, c) : NULL;
	uint32_t cp, low;
	unsigned char out[UTF8_MAX];
	j->at++;
	if (known)
		return text_put(j->m, t, &to[known - from], 1, true);
	if (c != 'u' || !hex4(j, j->at, &cp))
		return wrong(j, j->at - 2, "an escape that JSON does not have"), false;
	j->at += 4;
	if (cp >= 0xD800 && cp < 0xDC00 && j->at + 6 <= j->n && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u' &&
		hex4(j, j->at + 2, &low) && low >= 0xDC00 && low < 0xE000) {
		cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
		j->at += 6;
	}
	if (cp >= 0xD800 && cp < 0xE000)
		return wrong(j, j->at - 6, "half of a surrogate pair"), false;
	return text_put(j->m, t, (const char *)out, (size_t)utf8_write(out, cp), true);
}

static Val read_string(Json *j)
{
	Text t = {0};
	size_t from = ++j->at;
	while (j->at < j->n && !failed(j->m)) {
		const unsigned char c = (unsigned char)j->text[j->at];
		uint32_t cp;
		int k = 1;
		if (c == '"' || c == '\\') {
			text_put(j->m, &t, j->text + from, j->at - from, true);
			j->at++;
			if (c == '"')
				return text_value(j->m, &t);
			put_escape(j, &t);
			from = j->at;
			continue;
		}
		if (c < 0x20)
			return wrong(j, j->at, "a control character in a string");
		if (c >= 0x80 && (k = utf8_read((const unsigned char *)j->text + j->at, j->n - j->at, &cp)) <= 0)
			return wrong(j, j->at, "bytes that are not UTF-8");
		j->at += (size_t)k;
	}
	return wrong(j, j->n, "a string without its end");
}

static bool skip_digits(Json *j) /* false: there is none */
{
	const size_t from = j->at;
	while (peek(j) >= '0' && peek(j) <= '9')
		j->at++;
	return j->at > from;
}

static Val read_number(Json *j)
{
	const size_t from = j->at;
	char text[400], *end;
	bool real = false;
	next_is(j, '-');
	const size_t digits = j->at;
	bool good = skip_digits(j) && (j->text[digits] != '0' || j->at == digits + 1);
	if (next_is(j, '.')) {
		good &= skip_digits(j);
		real = true;
	}
	if (peek(j) == 'e' || peek(j) == 'E') {
		j->at++;
		(void)(next_is(j, '+') || next_is(j, '-'));
		good &= skip_digits(j);
		real = true;
	}
	if (!good || j->at - from >= sizeof text)
		return wrong(j, from, good ? "a number that is too long" : "a number that is none");
	memcpy(text, j->text + from, j->at - from);
	text[j->at - from] = 0;
	errno = 0;
	const long long whole = real ? 0 : strtoll(text, NULL, 10);
	if (!real && !errno)
		return val_int(whole);
	return val_float(chat_strtod(j->m, text, &end));
}

static Val read_value(Json *j, int depth);

static Val read_array(Json *j, int depth)
{
	Val out = list_new(j->m, V_LIST, 0);
	j->at++;
	skip(j);
	if (next_is(j, ']'))
		return out;
	do
		list_push(j->m, out.list, read_value(j, depth + 1));
	while (!failed(j->m) && next_is(j, ','));
	return failed(j->m) || next_is(j, ']') ? out : wrong(j, j->at, "expected ',' or ']'");
}

static Val read_object(Json *j, int depth)
{
	Val out = dict_new(j->m, V_DICT);
	j->at++;
	skip(j);
	if (next_is(j, '}'))
		return out;
	do {
		skip(j);
		const size_t at = j->at, n = out.dict->n;
		if (peek(j) != '"')
			return wrong(j, j->at, "expected a name in quotes");
		const Val key = read_string(j);
		skip(j);
		if (!failed(j->m) && !next_is(j, ':'))
			return wrong(j, j->at, "expected ':'");
		const Val value = read_value(j, depth + 1);
		if (dict_put(j->m, out.dict, key, value) && out.dict->n == n && j->is_request)
			return wrong(j, at, "a name that was there before");
	} while (!failed(j->m) && next_is(j, ','));
	return failed(j->m) || next_is(j, '}') ? out : wrong(j, j->at, "expected ',' or '}'");
}

/* With the white space around it. */
static Val read_value(Json *j, int depth)
{
	static const struct { const char *word; Val value; } words[] = {{"null", {.tag = V_NONE}},
		{"true", {.tag = V_BOOL, .truth = true}}, {"false", {.tag = V_BOOL, .truth = false}}};
	Val out = {.tag = V_ABSENT};
	skip(j);
	if (failed(j->m) || !chat_work(j->m, 1))
		return val_none();
	if (depth > CHAT_MAX_VALUE)
		return chat_fail(j->m, CHAT_LIMIT, "the JSON nests deeper than %d", CHAT_MAX_VALUE);
	const char c = peek(j);
	if (c == '"')
		out = read_string(j);
	else if (c == '[')
		out = read_array(j, depth);
	else if (c == '{')
		out = read_object(j, depth);
	else if (c == '-' || (c >= '0' && c <= '9'))
		out = read_number(j);
	for (size_t i = 0; i < sizeof words / sizeof *words && !is_given(out); i++) {
		const size_t n = strlen(words[i].word);
		if (j->n - j->at >= n && memcmp(j->text + j->at, words[i].word, n) == 0) {
			out = words[i].value;
			j->at += n;
		}
	}
	if (!is_given(out))
		return wrong(j, j->at, j->at < j->n ? "expected a value" : "it ends too early");
	skip(j);
	return out;
}

bool json_in(Machine *m, const char *text, size_t n, bool is_request, Val *out)
{
	Json j = {m, text, n, 0, is_request ? CHAT_BAD_INPUT : CHAT_BAD_VALUE, is_request};
	*out = read_value(&j, 0);
	if (!failed(m) && j.at < n)
		wrong(&j, j.at, "text after the value");
	return !failed(m);
}

/* Out ------------------------------------------------------------------------------------------ */

typedef struct Style {
	bool ascii, sorted, lines;
	const Str *indent;        /* of each level, where there are lines */
	const Str *item, *key;    /* separators */
} Style;

static void put_escaped(Machine *m, Text *t, const Str *s, bool ascii)
{
	static const char named[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
	size_t plain = 0;
	text_plain(m, t, "\"");
	for (size_t i = 0, k; i < s->n && !failed(m); i += k) {
		uint32_t cp;
		char out[16] = "\\";
		k = utf8_take((const unsigned char *)s->p + i, s->n - i, &cp);
		const char *known = cp && cp < 0x80 ? strchr(named, (int)cp) : NULL;
		if (!known && cp >= 0x20 && !(ascii && cp > 0x7E))
			continue;
		const bool marked = string_is_mixed(s) ? s->m[i] : s->has_marked;
		text_put_part(m, t, s, plain, i - plain);
		plain = i + k;
		if (known)
			out[1] = letters[known - named];
		else if (cp < 0x10000)
			snprintf(out, sizeof out, "\\u%04x", cp);
		else
			snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
		text_put(m, t, out, strlen(out), marked);
	}
	text_put_part(m, t, s, plain, s->n - plain);
	text_plain(m, t, "\"");
}

static void new_line(Machine *m, Text *t, const Style *style, int depth)
{
	if (!style->lines)
		return;
	text_plain(m, t, "\n");
	for (int i = 0; i < depth; i++)
		text_put_str(m, t, style->indent);
}

static void put_json(Machine *m, Text *t, Val v, const Style *style, int depth);

/* A key that is no string becomes one. */
static void put_key(Machine *m, Text *t, Val key, const Style *style)
{
	if (key.tag == V_STRING) {
		put_escaped(m, t, key.str, style->ascii);
		return;
	}
	if (key.tag != V_NONE && key.tag != V_BOOL && key.tag != V_INT && key.tag != V_FLOAT)
		chat_fail(m, CHAT_BAD_VALUE, "keys must be str, int, float, bool or None, not %s", type_name(key));
	text_plain(m, t, "\"");
	put_json(m, t, key, style, 0);
	text_plain(m, t, "\"");
}

static void put_object(Machine *m, Text *t, const Dict *d, const Style *style, int depth)
{
	Val keys = list_new(m, V_LIST, 0);
	for (size_t i = 0; i < d->n; i++)
		list_push(m, keys.list, d->at[i].key);
	if (style->sorted)
		keys.list = sorted_list(m, keys.list, NULL, false, false, false);
	text_plain(m, t, "{");
	for (size_t i = 0; i < keys.list->n && !failed(m); i++) {
		if (i)
			text_put_str(m, t, style->item);
		new_line(m, t, style, depth + 1);
		put_key(m, t, keys.list->at[i], style);
		text_put_str(m, t, style->key);
		const Val *value = dict_get(m, d, keys.list->at[i]);
		put_json(m, t, value ? *value : val_none(), style, depth + 1);
	}
	if (d->n)
		new_line(m, t, style, depth);
	text_plain(m, t, "}");
}

static void put_json(Machine *m, Text *t, Val v, const Style *style, int depth)
{
	if (depth > CHAT_MAX_VALUE)
		chat_fail(m, CHAT_LIMIT, "values of more than %d lists inside each other", CHAT_MAX_VALUE);
	if (failed(m) || !chat_work(m, 1))
		return;
	switch (v.tag) {
	case V_NONE: text_plain(m, t, "null"); return;
	case V_BOOL: text_plain(m, t, v.truth ? "true" : "false"); return;
	case V_INT: put_repr(m, t, v, 0); return;
	case V_FLOAT:
		if (isnan(v.real) || isinf(v.real))
			text_plain(m, t, isnan(v.real) ? "NaN" : v.real < 0 ? "-Infinity" : "Infinity");
		else
			put_float(m, t, v.real);
		return;
	case V_STRING: put_escaped(m, t, v.str, style->ascii); return;
	case V_LIST: case V_TUPLE:
		text_plain(m, t, "[");
		for (size_t i = 0; i < v.list->n && !failed(m); i++) {
			if (i)
				text_put_str(m, t, style->item);
			new_line(m, t, style, depth + 1);
			put_json(m, t, v.list->at[i], style, depth + 1);
		}
		if (v.list->n)
			new_line(m, t, style, depth);
		text_plain(m, t, "]");
		return;
	case V_DICT: put_object(m, t, v.dict, style, depth); return;
	default: chat_fail(m, CHAT_BAD_VALUE, "Object of type %s is not JSON serializable", type_name(v));
	}
}

bool json_out(Machine *m, Text *t, Val v, bool ascii, Val indent, Val separators, bool sorted)
{
	static const Str comma = {.p = ",", .n = 1, .has_plain = true};
	static const Str comma_space = {.p = ", ", .n = 2, .has_plain = true};
	static const Str colon = {.p = ": ", .n = 2, .has_plain = true};
	Style style = {.ascii = ascii, .sorted = sorted, .lines = is_given(indent) && indent.tag != V_NONE, .key = &colon};
	int64_t n = 0;
	style.item = style.lines ? &comma : &comma_space;
	if (style.lines && indent.tag == V_STRING)
		style.indent = indent.str;
	else if (style.lines) {
		Text blanks = {0};
		if (!whole_number(m, indent, &n))
			chat_fail(m, CHAT_BAD_VALUE, "tojson: indent is a '%s'", type_name(indent));
		for (int64_t i = 0; i < n && !failed(m); i++)
			text_plain(m, &blanks, " ");
		const Val string = text_value(m, &blanks);
		if (failed(m))
			return false;
		style.indent = string.str;
	}
	if (is_given(separators) && separators.tag != V_NONE) {
		if ((separators.tag != V_TUPLE && separators.tag != V_LIST) || separators.list->n != 2 ||
			separators.list->at[0].tag != V_STRING || separators.list->at[1].tag != V_STRING) {
			chat_fail(m, CHAT_BAD_VALUE, "tojson: separators are not two texts");
			return false;
		}
		style.item = separators.list->at[0].str;
		style.key = separators.list->at[1].str;
	}
	put_json(m, t, v, &style, 0);
	return !failed(m);
}
