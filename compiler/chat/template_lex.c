/* template_lex.c - the text of a chat template to tokens.
 *
 * What is between tags is data. White space around tags follows the rules of jinja2 with trim_blocks and
 * lstrip_blocks: the newline after %} and #} is dropped, and so are blanks in front of {% and {# that begin a line; a
 * minus in a tag drops all white space on its side, a plus none. The last newline of the text is dropped.
 */
#include "compiler/chat/template.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Lexer {
	Template *t;
	const char *text;
	size_t n, at;
	bool at_line; /* what was taken last ended a line */
	char open[64]; int n_open; /* brackets that wait for their other half */
	size_t place; int line, col; /* `place` is at that line and column */
} Lexer;

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c)
{
	return c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static bool starts(const Lexer *x, size_t at, const char *what)
{
	size_t n = strlen(what);
	return at <= x->n && x->n - at >= n && memcmp(x->text + at, what, n) == 0;
}

static void find_place(Lexer *x, size_t at)
{
	for (; x->place < at; x->place++)
		if (x->text[x->place] == '\n') {
			x->line++;
			x->col = 1;
		} else if (((unsigned char)x->text[x->place] & 0xC0) != 0x80)
			x->col++;
}

static Token *put(Lexer *x, TokenKind kind, size_t at, const char *text, size_t n)
{
	Token *k = vec_push(x->t->arena, &x->t->tokens);
	find_place(x, at);
	*k = (Token){.kind = kind, .line = x->line, .col = x->col, .text = text, .n = (int)n};
	return k;
}

static bool bad(Lexer *x, size_t at, const char *what)
{
	find_place(x, at);
	return template_fail(x->t, A0520, x->line, x->col, "%s", what);
}

/* Data [from, end) in front of a tag whose sign is at `end` + 2. */
static void put_data(Lexer *x, size_t from, size_t end, bool strips_line)
{
	size_t stop = end;
	const char sign = end + 2 < x->n ? x->text[end + 2] : 0;
	if (sign == '-') {
		while (stop > from && is_space(x->text[stop - 1]))
			stop--;
	} else if (sign != '+' && strips_line) {
		size_t line = stop;
		while (line > from && x->text[line - 1] != '\n')
			line--;
		bool blank = line > from || x->at_line;
		for (size_t i = line; i < stop; i++)
			blank &= is_space(x->text[i]);
		if (blank)
			stop = line;
	}
	if (stop > from)
		put(x, T_DATA, from, x->text + from, stop - from);
}

/* After the end of a tag: a minus eats white space, else a newline goes unless `sign` is a plus. */
static void after_tag(Lexer *x, char sign, bool trims)
{
	if (sign == '-')
		while (x->at < x->n && is_space(x->text[x->at]))
			x->at++;
	else if (sign != '+' && trims && x->at < x->n && x->text[x->at] == '\n')
		x->at++;
	x->at_line = x->at && x->text[x->at - 1] == '\n';
}

static size_t skip_spaces(const Lexer *x, size_t at)
{
	while (at < x->n && is_space(x->text[at]))
		at++;
	return at;
}

/* Is {% NAME %} at `at`, with signs? Returns where the tag ends, before its closing sign; 0 = no. */
static size_t word_tag(const Lexer *x, size_t at, const char *name)
{
	if (!starts(x, at, "{%"))
		return 0;
	at += 2;
	if (at < x->n && (x->text[at] == '-' || x->text[at] == '+'))
		at++;
	at = skip_spaces(x, at);
	if (!starts(x, at, name))
		return 0;
	at = skip_spaces(x, at + strlen(name));
	return starts(x, at, "%}") || starts(x, at, "-%}") || starts(x, at, "+%}") ? at : 0;
}

static bool take_raw(Lexer *x, size_t end_of_name)
{
	const size_t begin = x->at;
	char sign = x->text[end_of_name] == '%' ? 0 : x->text[end_of_name];
	if (sign == '+')
		return bad(x, begin, "{% raw +%} is not a tag");
	x->at = end_of_name + (sign ? 3 : 2);
	after_tag(x, sign, false);
	const size_t from = x->at;
	for (size_t at = from; at < x->n; at++) {
		size_t end = word_tag(x, at, "endraw");
		if (!end)
			continue;
		put_data(x, from, at, true);
		sign = x->text[end] == '%' ? 0 : x->text[end];
		x->at = end + (sign ? 3 : 2);
		after_tag(x, sign, true);
		return true;
	}
	return bad(x, begin, "{% raw %} without {% endraw %}");
}

static bool take_comment(Lexer *x)
{
	for (size_t at = x->at + 2; at < x->n; at++) {
		if (!starts(x, at, "#}"))
			continue;
		const char sign = at > x->at + 2 ? x->text[at - 1] : 0;
		x->at = at + 2;
		after_tag(x, sign, true);
		return true;
	}
	return bad(x, x->at, "a comment without #}");
}

/* Inside tags -------------------------------------------------------------------------------------------- */

static int digits_of(const char *s, int n, int base, uint32_t *v)
{
	int i = 0;
	for (*v = 0; i < n; i++) {
		char c = s[i];
		int d = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
		if (d >= base)
			break;
		*v = *v * (uint32_t)base + (uint32_t)d;
	}
	return i;
}

static char *put_utf8(char *out, uint32_t cp)
{
	if (cp < 0x80) {
		*out++ = (char)cp;
	} else if (cp < 0x800) {
		*out++ = (char)(0xC0 | cp >> 6);
		*out++ = (char)(0x80 | (cp & 0x3F));
	} else {
		if (cp < 0x10000)
			*out++ = (char)(0xE0 | cp >> 12);
		else {
			*out++ = (char)(0xF0 | cp >> 18);
			*out++ = (char)(0x80 | (cp >> 12 & 0x3F));
		}
		*out++ = (char)(0x80 | (cp >> 6 & 0x3F));
		*out++ = (char)(0x80 | (cp & 0x3F));
	}
	return out;
}

/* One escape at s, which is after the backslash; how many bytes it takes, 0 = not one that is known. */
static int unescape(const char *s, int n, char **out)
{
	static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
	const char *known = memchr(from, s[0], sizeof from - 1);
	uint32_t v;
	if (s[0] == '\n')
		return 1;
	if (known)
		return *(*out)++ = to[known - from], 1;
	if (s[0] >= '0' && s[0] <= '7') {
		int k = digits_of(s, n < 3 ? n : 3, 8, &v);
		*out = put_utf8(*out, v);
		return k;
	}
	const int width = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
	if (!width) {
		*(*out)++ = '\\';
		return s[0] == 'N' ? 0 : (*(*out)++ = s[0], 1);
	}
	if (n < 1 + width || digits_of(s + 1, width, 16, &v) != width || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
		return 0;
	*out = put_utf8(*out, v);
	return 1 + width;
}

static bool take_string(Lexer *x)
{
	const char quote = x->text[x->at];
	size_t end = x->at + 1;
	while (end < x->n && x->text[end] != quote)
		end += x->text[end] == '\\' ? 2 : 1;
	if (end >= x->n)
		return bad(x, x->at, "a string without its end");
	char *text = arena_alloc(x->t->arena, 2 * (end - x->at) + 8), *out = text;
	for (size_t i = x->at + 1; i < end;) {
		if (x->text[i] != '\\') {
			*out++ = x->text[i++];
			continue;
		}
		int k = unescape(x->text + i + 1, (int)(end - i - 1), &out);
		if (!k && x->text[i + 1] != '\n')
			return bad(x, i, "an escape that is not known here");
		i += 1 + (size_t)k;
	}
	put(x, T_STRING, x->at, text, (size_t)(out - text));
	x->at = end + 1;
	return true;
}

/* Digits with single underscores between them. */
static size_t digits(const Lexer *x, size_t at)
{
	while (at < x->n && (is_digit(x->text[at]) ||
		(x->text[at] == '_' && at && is_digit(x->text[at - 1]) && at + 1 < x->n && is_digit(x->text[at + 1]))))
		at++;
	return at;
}

static bool take_number(Lexer *x)
{
	const size_t from = x->at;
	size_t end = digits(x, from), e;
	bool real = false;
	char text[64];
	size_t n = 0;
	if (x->text[from] == '0' && end == from + 1 && end < x->n && strchr("xXbBoO", x->text[end]))
		return bad(x, from, "a number in another base than ten");
	if (end + 1 < x->n && x->text[end] == '.' && is_digit(x->text[end + 1]) && !(from && x->text[from - 1] == '.')) {
		end = digits(x, end + 1);
		real = true;
	}
	if (end < x->n && (x->text[end] == 'e' || x->text[end] == 'E')) {
		e = end + 1;
		e += e < x->n && (x->text[e] == '+' || x->text[e] == '-');
		if (e < x->n && is_digit(x->text[e])) {
			end = digits(x, e);
			real = true;
		}
	}
	for (size_t i = from; i < end && n < sizeof text - 1; i++)
		if (x->text[i] != '_')
			text[n++] = x->text[i];
	text[n] = 0;
	Token *k = put(x, real ? T_FLOAT : T_INT, from, x->text + from, end - from);
	k->real = strtod(text, NULL);
	k->integer = k->real < 9.2e18 ? strtoll(text, NULL, 10) : 0;
	x->at = end;
	return n < sizeof text - 1 && (real || k->real < 9.2e18) ? true : bad(x, from, "a number that is too large");
}

static bool take_operator(Lexer *x)
{
	static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
		"(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"};
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
		const char *op = operators[i];
		if (!starts(x, x->at, op))
			continue;
		const char *opening = strchr("([{", op[0]), *closing = strchr(")]}", op[0]);
		if (opening && x->n_open == sizeof x->open)
			return bad(x, x->at, "too many brackets inside each other");
		if (opening)
			x->open[x->n_open++] = ")]}"[opening - "([{"];
		if (closing && (!x->n_open || x->open[--x->n_open] != op[0]))
			return bad(x, x->at, "a closing bracket without its opening one");
		put(x, T_OP, x->at, op, strlen(op));
		x->at += strlen(op);
		return true;
	}
	return bad(x, x->at, "a character that means nothing here");
}

/* From after {% or {{ to after its end. */
static bool take_tag(Lexer *x, bool is_block)
{
	const char *ends[3] = {is_block ? "%}" : "}}", is_block ? "-%}" : "-}}", is_block ? "+%}" : ""};
	const size_t begin = x->at - 2;
	x->n_open = 0;
	if (x->at < x->n && (x->text[x->at] == '-' || x->text[x->at] == '+'))
		x->at++;
	for (;;) {
		x->at = skip_spaces(x, x->at);
		if (x->at >= x->n)
			return bad(x, begin, "a tag without its end");
		for (int i = 0; i < 3 && !x->n_open; i++)
			if (*ends[i] && starts(x, x->at, ends[i])) {
				put(x, is_block ? T_BLOCK_END : T_OUTPUT_END, x->at, ends[i], 2);
				x->at += strlen(ends[i]);
				after_tag(x, ends[i][0], is_block);
				return true;
			}
		const char c = x->text[x->at];
		const size_t from = x->at;
		if (is_digit(c)) {
			if (!take_number(x))
				return false;
		} else if (is_name(c)) {
			while (x->at < x->n && is_name(x->text[x->at]))
				x->at++;
			put(x, T_NAME, from, x->text + from, x->at - from);
		} else if (!(c == '"' || c == '\'' ? take_string(x) : take_operator(x)))
			return false;
	}
}

bool template_lex(Template *t, const char *text, size_t n)
{
	Lexer x = {.t = t, .text = text, .n = n, .at_line = true, .line = 1, .col = 1};
	if (n && text[n - 1] == '\n')
		x.n--;
	while (x.at < x.n) {
		size_t at = x.at, raw;
		while (at < x.n && !(text[at] == '{' && at + 1 < x.n && strchr("{%#", text[at + 1])))
			at++;
		if (at == x.n) {
			put(&x, T_DATA, x.at, text + x.at, at - x.at);
			break;
		}
		const char kind = text[at + 1];
		put_data(&x, x.at, at, kind != '{');
		x.at = at;
		raw = word_tag(&x, at, "raw");
		if (raw || kind == '#') {
			if (!(raw ? take_raw(&x, raw) : take_comment(&x)))
				return false;
			continue;
		}
		put(&x, kind == '%' ? T_BLOCK_BEGIN : T_OUTPUT_BEGIN, at, text + at, 2);
		x.at += 2;
		if (!take_tag(&x, kind == '%'))
			return false;
	}
	put(&x, T_END, x.n, "", 0);
	return true;
}
