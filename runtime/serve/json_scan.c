/* json_scan.c - see json_scan.h. A state for each place in the grammar of RFC 8259. */
#include "runtime/serve/json_scan.h"
#include "runtime/text/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef enum State {
	AT_VALUE, AT_FIRST_ELEMENT, AT_FIRST_KEY, AT_KEY, AT_COLON, AFTER_VALUE, IN_STRING, IN_ESCAPE, IN_HEX, IN_WORD,
	/* of numbers: after "-", "0", other digits, ".", digits of a fraction, "e", its sign, digits of an exponent */
	AFTER_MINUS, AFTER_ZERO, IN_INTEGER, AFTER_POINT, IN_FRACTION, AFTER_E, AFTER_SIGN, IN_EXPONENT,
} State;

static const char hex_digits[] = "0000"; /* as long as what is left of \uXXXX */

static bool is_blank(unsigned char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static JsonEnd go(JsonScan *s, State state)
{
	s->state = (unsigned char)state;
	return JSON_MORE;
}

static JsonEnd open_string(JsonScan *s, State after)
{
	s->after_string = (unsigned char)after;
	return go(s, IN_STRING);
}

static JsonEnd open_nest(JsonScan *s, bool is_list)
{
	if (s->depth == JSON_SCAN_DEPTH)
		return JSON_BAD;
	const uint64_t bit = (uint64_t)1 << s->depth++;
	s->lists = is_list ? s->lists | bit : s->lists & ~bit;
	return go(s, is_list ? AT_FIRST_ELEMENT : AT_FIRST_KEY);
}

static bool is_in_list(const JsonScan *s) { return s->lists >> (s->depth - 1) & 1; }

static JsonEnd close_nest(JsonScan *s, bool is_list)
{
	if (is_in_list(s) != is_list)
		return JSON_BAD;
	return --s->depth == 0 ? JSON_DONE : go(s, AFTER_VALUE);
}

static JsonEnd begin_word(JsonScan *s, const char *rest)
{
	s->rest = rest;
	return go(s, IN_WORD);
}

static JsonEnd begin_value(JsonScan *s, unsigned char c)
{
	if (c == '{' || c == '[')
		return open_nest(s, c == '[');
	if (s->depth == 0)
		return JSON_BAD;
	switch (c) {
	case '"': return open_string(s, AFTER_VALUE);
	case 't': return begin_word(s, "rue");
	case 'f': return begin_word(s, "alse");
	case 'n': return begin_word(s, "ull");
	case '-': return go(s, AFTER_MINUS);
	case '0': return go(s, AFTER_ZERO);
	default: return is_digit(c) ? go(s, IN_INTEGER) : JSON_BAD;
	}
}

static JsonEnd after_value(JsonScan *s, unsigned char c)
{
	if (is_blank(c))
		return go(s, AFTER_VALUE);
	if (c == ',')
		return go(s, is_in_list(s) ? AT_VALUE : AT_KEY);
	return c == ']' || c == '}' ? close_nest(s, c == ']') : JSON_BAD;
}

/* A number that may end here does so at any byte that does not continue it. */
static JsonEnd in_number(JsonScan *s, unsigned char c)
{
	switch ((State)s->state) {
	case AFTER_MINUS: return c == '0' ? go(s, AFTER_ZERO) : is_digit(c) ? go(s, IN_INTEGER) : JSON_BAD;
	case AFTER_POINT: return is_digit(c) ? go(s, IN_FRACTION) : JSON_BAD;
	case AFTER_E:
		if (c == '+' || c == '-')
			return go(s, AFTER_SIGN);
		/* fallthrough */
	case AFTER_SIGN: return is_digit(c) ? go(s, IN_EXPONENT) : JSON_BAD;
	default: break;
	}
	if (is_digit(c) && s->state != AFTER_ZERO)
		return JSON_MORE;
	if (c == '.' && (s->state == AFTER_ZERO || s->state == IN_INTEGER))
		return go(s, AFTER_POINT);
	if ((c == 'e' || c == 'E') && s->state != IN_EXPONENT)
		return go(s, AFTER_E);
	return after_value(s, c);
}

static JsonEnd in_string(JsonScan *s, unsigned char c)
{
	if (c == '"')
		return go(s, (State)s->after_string);
	if (c == '\\')
		return go(s, IN_ESCAPE);
	return c < 0x20 ? JSON_BAD : JSON_MORE;
}

static JsonEnd in_escape(JsonScan *s, unsigned char c)
{
	if (c == 'u') {
		s->rest = hex_digits;
		return go(s, IN_HEX);
	}
	return c && strchr("\"\\/bfnrt", c) ? go(s, IN_STRING) : JSON_BAD;
}

static JsonEnd in_hex(JsonScan *s, unsigned char c)
{
	if (!is_digit(c) && !((c | 32) >= 'a' && (c | 32) <= 'f'))
		return JSON_BAD;
	return *++s->rest ? JSON_MORE : go(s, IN_STRING);
}

static JsonEnd in_word(JsonScan *s, unsigned char c)
{
	if (c != (unsigned char)*s->rest)
		return JSON_BAD;
	return *++s->rest ? JSON_MORE : go(s, AFTER_VALUE);
}

JsonEnd json_scan(JsonScan *s, unsigned char c)
{
	if (s->depth && s->state <= AFTER_VALUE && is_blank(c))
		return JSON_MORE;
	switch ((State)s->state) {
	case AT_FIRST_ELEMENT: return c == ']' ? close_nest(s, true) : begin_value(s, c);
	case AT_VALUE: return begin_value(s, c);
	case AT_FIRST_KEY:
		if (c == '}')
			return close_nest(s, false);
		/* fallthrough */
	case AT_KEY: return c == '"' ? open_string(s, AT_COLON) : JSON_BAD;
	case AT_COLON: return c == ':' ? go(s, AT_VALUE) : JSON_BAD;
	case AFTER_VALUE: return after_value(s, c);
	case IN_STRING: return in_string(s, c);
	case IN_ESCAPE: return in_escape(s, c);
	case IN_HEX: return in_hex(s, c);
	case IN_WORD: return in_word(s, c);
	default: return in_number(s, c);
	}
}

bool json_scan_whole(const char *text, size_t n)
{
	JsonScan s = {0};
	JsonEnd end = JSON_MORE;
	size_t i = 0;
	while (i < n && end == JSON_MORE)
		end = json_scan(&s, (unsigned char)text[i++]);
	return end == JSON_DONE && i == n;
}

bool json_scan_object(const char *text, size_t n)
{
	while (n && is_blank((unsigned char)text[n - 1]))
		n--;
	while (n && is_blank((unsigned char)*text))
		text++, n--;
	return n && *text == '{' && json_scan_whole(text, n);
}

bool json_scan_value(const char *text, size_t n)
{
	JsonScan s = {.depth = 1, .lists = 1}; /* in a list */
	for (size_t i = 0; i < n; i++)
		if ((s.depth == 1 && text[i] == ',') || json_scan(&s, (unsigned char)text[i]) != JSON_MORE)
			return false;
	return json_scan(&s, ']') == JSON_DONE;
}

bool json_scan_number(const char *text, size_t n, bool *is_integer)
{
	*is_integer = true;
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)text[i];
		if (!is_digit(c) && !(c && strchr(i ? "-+.eE" : "-", c)))
			return false;
		*is_integer &= is_digit(c) || c == '-';
	}
	return n && json_scan_value(text, n);
}

/* Members ------------------------------------------------------------ */

static size_t skip_blanks(const char *text, size_t n, size_t at)
{
	while (at < n && is_blank((unsigned char)text[at]))
		at++;
	return at;
}

/* After the value that begins at `at`. */
static size_t skip_value(const char *text, size_t n, size_t at)
{
	int depth = 0;
	bool in_quotes = false;
	for (; at < n; at++) {
		const char c = text[at];
		if (in_quotes && c == '\\')
			at++;
		else if (c == '"' && in_quotes && depth == 0)
			return at + 1;
		else if (c == '"')
			in_quotes = !in_quotes;
		else if (!in_quotes && (c == '{' || c == '['))
			depth++;
		else if (!in_quotes && (c == '}' || c == ']') && depth-- <= 1)
			return depth < 0 ? at : at + 1;
		else if (!in_quotes && depth == 0 && (c == ',' || c == ':' || is_blank((unsigned char)c)))
			return at;
	}
	return at;
}

bool json_scan_next(const char *text, size_t n, size_t *at, JsonSlice *key, JsonSlice *value)
{
	size_t i = skip_blanks(text, n, *at + (*at == 0));
	if (i < n && text[i] == ',')
		i = skip_blanks(text, n, i + 1);
	if (i >= n || text[i] == ']' || text[i] == '}')
		return false;
	if (text[0] == '{') {
		const size_t end = skip_value(text, n, i);
		if (key)
			*key = (JsonSlice){text + i, end - i};
		i = skip_blanks(text, n, skip_blanks(text, n, end) + 1);
	}
	*at = skip_value(text, n, i);
	*value = (JsonSlice){text + i, *at - i};
	return true;
}

/* Strings ------------------------------------------------------------ */

/* Of four digits. */
static uint32_t hex_value(const char *digits)
{
	uint32_t value = 0;
	for (int i = 0; i < 4; i++) {
		const unsigned char c = (unsigned char)digits[i];
		value = value << 4 | (uint32_t)(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
	}
	return value;
}

/* The code point of the escapes at `at`, which is after a backslash and a u; moves `at` after it. */
static uint32_t unescape(const char *text, size_t n, size_t *at)
{
	const uint32_t high = hex_value(text + *at);
	*at += 4;
	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (high < 0xdc00 && *at + 6 <= n && text[*at] == '\\' && text[*at + 1] == 'u') {
		const uint32_t low = hex_value(text + *at + 2);
		if (low >= 0xdc00 && low <= 0xdfff) {
			*at += 6;
			return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
		}
	}
	return UTF8_REPLACEMENT;
}

char *json_scan_text(JsonSlice string, size_t *n)
{
	static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
	char *text = malloc(string.n);
	size_t end = string.n - 1;
	*n = 0;
	for (size_t at = 1; text && at < end;) {
		const char c = string.at[at++];
		if (c != '\\') {
			text[(*n)++] = c;
			continue;
		}
		const char escape = string.at[at++];
		const char *letter = strchr(letters, escape);
		if (escape == 'u')
			*n += (size_t)utf8_write((unsigned char *)text + *n, unescape(string.at, end, &at));
		else
			text[(*n)++] = letter ? meant[letter - letters] : escape;
	}
	return text;
}

void json_scan_mend(char *text, size_t n)
{
	for (size_t at = 0; at + 1 < n; at++) {
		if (text[at] != '\\')
			continue;
		if (text[++at] != 'u')
			continue;
		size_t next = at + 1;
		const uint32_t cp = unescape(text, n, &next);
		if (cp == 0 || cp == UTF8_REPLACEMENT)
			memcpy(text + at + 1, "fffd", 4);
		at = next - 1;
	}
}
