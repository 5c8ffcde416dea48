/* toml.c - a recursive-descent reader of the TOML subset (see toml.h).
 *
 * One function for each production, all over one cursor. The first mistake ends the reading: what follows a
 * mistake in TOML seldom means what it says. Functions return false after having recorded it.
 *
 * The only subtle part of TOML is who may add to a table. Each table remembers how it came about:
 *
 *   FROM_PATH    a header went through it: [a.b] makes a.     [a] may still define it, once
 *   FROM_HEADER  its own header was there, [a] or [[a]].    No second header
 *   FROM_DOTS    a dotted key made it: a.b = 1.               More dotted keys may add, headers not
 *   FROM_INLINE  { } or [ ].                                  Complete: nothing can be added
 *   FROM_LIST    the array made by [[a]].                     Only [[a]] adds
 */
#include "compiler/text/toml.h"
#include "compiler/text/input.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_PARTS = 8, MAX_STRING_BYTES = 64 << 10, MAX_MEMBERS = 1024, MAX_NUMBER_BYTES = 64 };
enum { FROM_PATH = 1, FROM_HEADER, FROM_DOTS, FROM_INLINE, FROM_LIST };

typedef struct Toml {
	Arena *arena;
	Diags *diags;
	const char *file;
	const char *p, *end, *line_start;
	int line, depth;
	const char *counted; /* col is the column of this place */
	int col;
} Toml;

/* The place of the cursor. Counts on from the last place asked for, so that a long line costs its length once. */
static Loc here(Toml *t)
{
	if (t->counted < t->line_start || t->counted > t->p) {
		t->counted = t->line_start;
		t->col = 1;
	}
	for (; t->counted < t->p; t->counted++)
		t->col += ((unsigned char)*t->counted & 0xC0) != 0x80; /* code points */
	return (Loc){t->file, t->line, t->col};
}

#define syntax(t, ...) fail_at((t)->diags, A0301, here(t), __VA_ARGS__)

static char peek(const Toml *t) { return t->p < t->end ? *t->p : 0; }

static bool looking_at(const Toml *t, const char *text)
{
	size_t n = strlen(text);
	return (size_t)(t->end - t->p) >= n && memcmp(t->p, text, n) == 0;
}

static void skip_blanks(Toml *t)
{
	while (peek(t) == ' ' || peek(t) == '\t')
		t->p++;
}

static bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }

static bool is_bare(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || is_digit(ch) || ch == '_' || ch == '-';
}

static bool is_control(char ch) { return ((unsigned char)ch < ' ' && ch != '\t') || ch == 0x7f; }

/* Over a newline, "\n" or "\r\n". */
static bool skip_newline(Toml *t)
{
	if (looking_at(t, "\r\n"))
		t->p++;
	else if (peek(t) != '\n')
		return false;
	t->line++;
	t->line_start = ++t->p;
	return true;
}

static bool skip_comment(Toml *t)
{
	if (peek(t) != '#')
		return true;
	while (t->p < t->end && *t->p != '\n' && !looking_at(t, "\r\n")) {
		if (is_control(*t->p))
			return syntax(t, "control character 0x%02x in a comment", (unsigned char)*t->p);
		t->p++;
	}
	return true;
}

static bool end_line(Toml *t, const char *after)
{
	skip_blanks(t);
	if (!skip_comment(t))
		return false;
	return t->p == t->end || skip_newline(t) || syntax(t, "text after %s: expected the end of the line", after);
}

static bool skip_lines(Toml *t)
{
	do {
		skip_blanks(t);
		if (!skip_comment(t))
			return false;
	} while (skip_newline(t));
	return true;
}

/* Strings --------------------------------------------------------------------------------------- */

static char *put_utf8(char *to, unsigned code)
{
	if (code < 0x80) {
		*to++ = (char)code;
		return to;
	}
	static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
	int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	*to++ = (char)(lead[more] | code >> (6 * more));
	while (more-- > 0)
		*to++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
	return to;
}

static bool read_unicode_escape(Toml *t, int digits, unsigned *code)
{
	*code = 0;
	for (int i = 0; i < digits; i++, t->p++) {
		char ch = peek(t);
		char low = (char)(ch | 0x20);
		if (!is_digit(ch) && !(low >= 'a' && low <= 'f'))
			return syntax(t, "expected %d hexadecimal digits", digits);
		*code = *code << 4 | (unsigned)(is_digit(ch) ? ch - '0' : low - 'a' + 10);
	}
	if (*code == 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
		return syntax(t, "escape of U+%04X, which is not a character", *code);
	return true;
}

static bool read_escape(Toml *t, char **to)
{
	static const char from[] = "btnfr\"\\", into[] = "\b\t\n\f\r\"\\";
	t->p++;
	char ch = peek(t);
	const char *simple = ch ? strchr(from, ch) : NULL;
	if (simple) {
		t->p++;
		*(*to)++ = into[simple - from];
		return true;
	}
	if (ch != 'u' && ch != 'U')
		return syntax(t, "unknown escape in a string");
	t->p++;
	unsigned code;
	if (!read_unicode_escape(t, ch == 'u' ? 4 : 8, &code))
		return false;
	*to = put_utf8(*to, code);
	return true;
}

/* "basic" or 'literal', on one line. */
static bool read_string(Toml *t, const char **out, int *n)
{
	char quote = *t->p;
	if (looking_at(t, "\"\"\"") || looking_at(t, "'''"))
		return syntax(t, "multi-line strings are not read: write \\n in a string of one line");
	const char *begin = t->p++, *close = t->p;
	while (close < t->end && *close != quote && *close != '\n')
		close += quote == '"' && *close == '\\' && t->end - close > 1 ? 2 : 1;
	if (close - begin > MAX_STRING_BYTES) {
		t->p = begin;
		return syntax(t, "string of more than %d bytes", MAX_STRING_BYTES);
	}
	char *text = arena_alloc(t->arena, (size_t)(close - begin) + 1), *to = text; /* escapes only shrink */
	for (;;) {
		char ch = peek(t);
		if (t->p == t->end || ch == '\n' || looking_at(t, "\r\n")) {
			t->p = begin;
			return syntax(t, "string without its closing %c", quote);
		}
		if (ch == quote)
			break;
		if (is_control(ch))
			return syntax(t, "control character 0x%02x in a string", (unsigned char)ch);
		if (quote == '"' && ch == '\\') {
			if (!read_escape(t, &to))
				return false;
		} else {
			*to++ = *t->p++;
		}
	}
	t->p++;
	*n = (int)(to - text);
	*out = text;
	return true;
}

/* Keys and tables ------------------------------------------------------------------------------- */

typedef struct Key { const char *name; Loc at; } Key;

static bool read_key(Toml *t, Key *parts, int *n)
{
	for (*n = 0;; t->p++) {
		skip_blanks(t);
		if (*n == MAX_PARTS)
			return syntax(t, "key of more than %d parts", MAX_PARTS);
		Key *k = &parts[(*n)++];
		int bytes;
		k->at = here(t);
		if (peek(t) == '"' || peek(t) == '\'') {
			if (!read_string(t, &k->name, &bytes))
				return false;
		} else {
			const char *begin = t->p;
			while (is_bare(peek(t)))
				t->p++;
			if (t->p == begin)
				return syntax(t, "expected a key");
			k->name = arena_strndup(t->arena, begin, (size_t)(t->p - begin));
		}
		skip_blanks(t);
		if (peek(t) != '.')
			return true;
	}
}

static const char *shown(const Toml *t, const Key *k)
{
	return clip_text(t->diags->arena, k->name, strlen(k->name), 48);
}

static Value *find(Value *table, const char *name) { return (Value *)value_get(table, name); }

static Value *new_value(Toml *t, ValueKind kind, Loc at, unsigned origin)
{
	Value *v = ARENA_NEW(t->arena, Value);
	v->kind = kind;
	v->at = v->key_at = at;
	v->origin = origin;
	v->source = t->p;
	return v;
}

static void append(Value *parent, Value *v)
{
	Value **tail = &parent->first;
	while (*tail)
		tail = &(*tail)->next;
	*tail = v;
	parent->n++;
}

static bool add_member(Toml *t, Value *table, const Key *k, Value *v)
{
	if (table->n == MAX_MEMBERS)
		return fail_at(t->diags, A0301, k->at, "table of more than %d members", MAX_MEMBERS);
	v->key = k->name;
	v->key_at = k->at;
	append(table, v);
	return true;
}

static bool fail_twice(Toml *t, const Key *k, const Value *first)
{
	return fail_at(t->diags, A0301, k->at, "%s is there already, in line %d", shown(t, k),
		first->key_at.line);
}

/* The table in which the last part of a dotted key is; made where it is missing. */
static Value *walk_dots(Toml *t, Value *table, const Key *parts, int n)
{
	for (int i = 0; i + 1 < n; i++) {
		Value *v = find(table, parts[i].name);
		if (v && (v->kind != VALUE_TABLE || v->origin != FROM_DOTS)) {
			fail_twice(t, &parts[i], v);
			return NULL;
		}
		if (!v) {
			v = new_value(t, VALUE_TABLE, parts[i].at, FROM_DOTS);
			if (!add_member(t, table, &parts[i], v))
				return NULL;
		}
		table = v;
	}
	return table;
}

static Value *read_value(Toml *t);

/* key = value; its table is `table` or one below it */
static bool read_assignment(Toml *t, Value *table)
{
	Key parts[MAX_PARTS];
	int n;
	if (!read_key(t, parts, &n))
		return false;
	if (peek(t) != '=')
		return syntax(t, "expected = after the key %s", shown(t, &parts[n - 1]));
	t->p++;
	table = walk_dots(t, table, parts, n);
	if (!table)
		return false;
	const Value *old = find(table, parts[n - 1].name);
	if (old)
		return fail_twice(t, &parts[n - 1], old);
	skip_blanks(t);
	Value *v = read_value(t);
	return v && add_member(t, table, &parts[n - 1], v);
}

/* [a.b] or [[a.b]]: gives the table that the following lines fill. */
static Value *read_header(Toml *t, Value *root)
{
	bool is_list = looking_at(t, "[[");
	t->p += is_list ? 2 : 1;
	Key parts[MAX_PARTS];
	int n;
	if (!read_key(t, parts, &n))
		return NULL;
	if (!looking_at(t, is_list ? "]]" : "]")) {
		syntax(t, "expected %s after the table's name", is_list ? "]]" : "]");
		return NULL;
	}
	t->p += is_list ? 2 : 1;
	Value *table = root;
	for (int i = 0; i + 1 < n; i++) {
		Value *v = find(table, parts[i].name);
		if (!v) {
			v = new_value(t, VALUE_TABLE, parts[i].at, FROM_PATH);
			if (!add_member(t, table, &parts[i], v))
				return NULL;
		} else if (v->origin == FROM_LIST) {
			for (v = v->first; v->next;)
				v = v->next;
		} else if (v->kind != VALUE_TABLE || v->origin == FROM_INLINE) {
			fail_twice(t, &parts[i], v);
			return NULL;
		}
		table = v;
	}
	const Key *last = &parts[n - 1];
	Value *v = find(table, last->name);
	if (is_list && (!v || v->origin == FROM_LIST)) {
		if (!v) {
			v = new_value(t, VALUE_ARRAY, last->at, FROM_LIST);
			if (!add_member(t, table, last, v))
				return NULL;
		}
		if (v->n == MAX_MEMBERS) {
			fail_at(t->diags, A0301, last->at, "more than %d tables [[%s]]", MAX_MEMBERS, shown(t, last));
			return NULL;
		}
		Value *element = new_value(t, VALUE_TABLE, last->at, FROM_HEADER);
		append(v, element);
		return element;
	}
	if (!is_list && v && v->kind == VALUE_TABLE && v->origin == FROM_PATH) {
		v->origin = FROM_HEADER;
		v->at = v->key_at = last->at;
		return v;
	}
	if (v) {
		fail_twice(t, last, v);
		return NULL;
	}
	v = new_value(t, VALUE_TABLE, last->at, FROM_HEADER);
	return add_member(t, table, last, v) ? v : NULL;
}

/* Values ------------------------------------------------------------------------------------------ */

/* digits with single underscores between them, to `to`; false when there is none or one is misplaced */
static bool copy_digits(const char **p, const char *end, char **to, int base)
{
	bool after_digit = false;
	while (*p < end) {
		char ch = **p, low = (char)(ch | 0x20);
		int digit = is_digit(ch) ? ch - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
		if (digit < base) {
			*(*to)++ = ch;
			after_digit = true;
		} else if (ch == '_' && after_digit) {
			after_digit = false;
		} else {
			break;
		}
		++*p;
	}
	return after_digit;
}

static bool read_prefixed(Toml *t, Value *v, const char *begin, const char *end)
{
	char digits[MAX_NUMBER_BYTES + 1], *to = digits;
	int base = begin[1] == 'x' ? 16 : begin[1] == 'o' ? 8 : 2;
	const char *p = begin + 2;
	if (!copy_digits(&p, end, &to, base) || p != end)
		return syntax(t, "malformed number");
	*to = 0;
	errno = 0;
	v->kind = VALUE_INT;
	v->integer = strtoll(digits, NULL, base);
	return !errno || syntax(t, "integer beyond 64 bits");
}

static bool read_decimal(Toml *t, Value *v, const char *begin, const char *end)
{
	char text[MAX_NUMBER_BYTES + 1], *to = text;
	const char *p = begin;
	if (*p == '+' || *p == '-')
		*to++ = *p++;
	const char *first = p;
	bool ok = copy_digits(&p, end, &to, 10) && !(*first == '0' && p - first > 1), real = false;
	if (ok && p < end && *p == '.') {
		real = true;
		*to++ = *p++;
		ok = copy_digits(&p, end, &to, 10);
	}
	if (ok && p < end && (*p == 'e' || *p == 'E')) {
		real = true;
		*to++ = *p++;
		if (p < end && (*p == '+' || *p == '-'))
			*to++ = *p++;
		ok = copy_digits(&p, end, &to, 10);
	}
	if (!ok || p != end)
		return syntax(t, "malformed number");
	*to = 0;
	errno = 0;
	if (real) {
		v->kind = VALUE_REAL;
		v->real = strtod(text, NULL); /* the program never sets a locale */
		return isfinite(v->real) || syntax(t, "number beyond the range of a double");
	}
	v->kind = VALUE_INT;
	v->integer = strtoll(text, NULL, 10);
	return !errno || syntax(t, "integer beyond 64 bits");
}

/* A number, true or false; or something that looks like one. */
static bool read_word(Toml *t, Value *v)
{
	const char *begin = t->p, *end = begin;
	while (end < t->end && (is_bare(*end) || *end == '+' || *end == '.' || *end == ':'))
		end++;
	size_t n = (size_t)(end - begin);
	const char *digits = begin + (n && (*begin == '+' || *begin == '-'));
	if (n == 0)
		return syntax(t, "expected a value");
	if ((n == 4 && memcmp(begin, "true", 4) == 0) || (n == 5 && memcmp(begin, "false", 5) == 0)) {
		v->kind = VALUE_BOOL;
		v->boolean = n == 4;
	} else if (end - digits == 3 && (memcmp(digits, "inf", 3) == 0 || memcmp(digits, "nan", 3) == 0)) {
		return syntax(t, "inf and nan are not read: expected a finite number");
	} else if (n > 4 && is_digit(begin[0]) && (begin[4] == '-' || begin[2] == ':')) {
		return syntax(t, "dates and times are not read");
	} else if (end == digits || !is_digit(*digits)) {
		return syntax(t, "expected a value: strings need quotes");
	} else if (n > MAX_NUMBER_BYTES) {
		return syntax(t, "number of more than %d characters", MAX_NUMBER_BYTES);
	} else if (n > 2 && begin[0] == '0' && strchr("xob", begin[1])) {
		if (!read_prefixed(t, v, begin, end))
			return false;
	} else if (!read_decimal(t, v, begin, end)) {
		return false;
	}
	t->p = end;
	return true;
}

static bool read_list(Toml *t, Value *v)
{
	v->kind = VALUE_ARRAY;
	Value **tail = &v->first;
	t->p++;
	for (;;) {
		if (!skip_lines(t))
			return false;
		if (peek(t) == ']')
			break;
		Value *element = read_value(t);
		if (!element)
			return false;
		*tail = element;
		tail = &element->next;
		v->n++;
		if (!skip_lines(t))
			return false;
		if (peek(t) == ',')
			t->p++;
		else if (peek(t) != ']')
			return syntax(t, t->p == t->end ? "list without its closing ]" : "expected , or ] in a list");
	}
	t->p++;
	return true;
}

static bool read_inline_table(Toml *t, Value *v)
{
	v->kind = VALUE_TABLE;
	t->p++;
	skip_blanks(t);
	if (peek(t) == '}') {
		t->p++;
		return true;
	}
	for (;;) {
		if (!read_assignment(t, v))
			return false;
		skip_blanks(t);
		if (peek(t) == '}')
			break;
		if (peek(t) != ',')
			return syntax(t, "expected , or } in an inline table, which must be on one line");
		t->p++;
	}
	t->p++;
	return true;
}

static Value *read_value(Toml *t)
{
	Value *v = new_value(t, VALUE_NULL, here(t), FROM_INLINE);
	if (t->depth == MAX_DEPTH) {
		syntax(t, "nested deeper than %d levels", MAX_DEPTH);
		return NULL;
	}
	t->depth++;
	bool ok;
	switch (peek(t)) {
	case '"':
	case '\'':
		v->kind = VALUE_STRING;
		ok = read_string(t, &v->string, &v->n);
		break;
	case '[': ok = read_list(t, v); break;
	case '{': ok = read_inline_table(t, v); break;
	default: ok = read_word(t, v); break;
	}
	t->depth--;
	v->source_bytes = (int)(t->p - v->source);
	return ok ? v : NULL;
}

const Value *toml_parse(Arena *a, Diags *d, const char *file, const char *text, size_t n)
{
	Toml t = {.arena = a, .diags = d, .file = file, .p = text, .end = text + n, .line_start = text, .line = 1,
		.counted = text, .col = 1};
	if (n > TOML_MAX_BYTES) {
		fail_at(d, A0301, (Loc){file, 0, 0}, "%zu bytes: expected at most %d", n, TOML_MAX_BYTES);
		return NULL;
	}
	size_t bad = utf8_bad(text, n);
	if (bad < n) {
		for (; t.p < text + bad; t.p++)
			if (*t.p == '\n') {
				t.line++;
				t.line_start = t.p + 1;
			}
		syntax(&t, "not UTF-8: byte 0x%02x", (unsigned char)*t.p);
		return NULL;
	}
	if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* invisible: "expected a key" would explain nothing */
		syntax(&t, "starts with a byte-order mark: save the file without it");
		return NULL;
	}
	Value *root = new_value(&t, VALUE_TABLE, here(&t), FROM_HEADER), *table = root;
	for (;;) {
		if (!skip_lines(&t))
			return NULL;
		if (t.p == t.end)
			return root;
		bool is_header = *t.p == '[';
		if (is_header && !(table = read_header(&t, root)))
			return NULL;
		if (!is_header && !read_assignment(&t, table))
			return NULL;
		if (!end_line(&t, is_header ? "the table's name" : "the value"))
			return NULL;
	}
}
