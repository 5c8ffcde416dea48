/* tokenizer_json.c - checked access to the JSON of tokenizer files (see the header). */
#include "compiler/tokenizer/tokenizer_json.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"
#include "compiler/text/value.h"

#include <stdio.h>
#include <string.h>

enum { QUOTE_BYTES = 60, MAX_FILE_BYTES = 256 << 20 };

bool reject(Reader *r, Code code, Json at, const char *fmt, ...)
{
	va_list args;
	char text[1024];
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	return fail_at(r->diags, code, (Loc){r->file, 0, 0}, "%s: %s", at.path, text);
}

json_t *load_json(Reader *r)
{
	json_error_t e;
	char *text;
	size_t n;
	if (!input_read(r->arena, r->diags, r->file, false, MAX_FILE_BYTES, &text, &n))
		return NULL;
	if (!json_check_text(r->diags, A0501, r->file, text, n))
		return NULL;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
	if (!root) {
		fail_at(r->diags, A0501, (Loc){r->file, e.line > 0 ? e.line : 1, e.column > 0 ? e.column : 1}, "%s",
			clip_text(r->arena, e.text, strlen(e.text), JSON_ERROR_TEXT_LENGTH));
	} else if (!json_is_object(root)) {
		fail_at(r->diags, A0501, (Loc){r->file, 1, 1}, "expected an object");
		json_decref(root);
		root = NULL;
	}
	return root;
}

Json child(Reader *r, Json of, const char *key)
{
	json_t *v = json_object_get(of.v, key);
	const char *path = *of.path ? arena_printf(r->arena, "%s.%s", of.path, key) : key;
	return (Json){v && !json_is_null(v) ? v : NULL, path};
}

Json element(Reader *r, Json of, size_t index)
{
	return (Json){json_array_get(of.v, index), arena_printf(r->arena, "%s[%zu]", of.path, index)};
}

static const char *type_name(const json_t *v)
{
	if (!v)
		return "nothing";
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a real number";
	case JSON_TRUE: case JSON_FALSE: return "a boolean";
	case JSON_NULL: return "null";
	}
	return "?";
}

static bool wrong_type(Reader *r, Json at, const char *expected)
{
	return reject(r, A0504, at, "%s where %s is expected", type_name(at.v), expected);
}

bool get_string(Reader *r, Json of, const char *key, Str *out)
{
	Json at = child(r, of, key);
	if (!json_is_string(at.v))
		return wrong_type(r, at, "a string");
	*out = (Str){json_string_value(at.v), json_string_length(at.v)};
	return true;
}

bool get_bool(Reader *r, Json of, const char *key, bool *out)
{
	Json at = child(r, of, key);
	*out = json_is_true(at.v);
	return json_is_boolean(at.v) || wrong_type(r, at, "a boolean");
}

bool get_bool_or(Reader *r, Json of, const char *key, bool absent, bool *out)
{
	*out = absent;
	return !child(r, of, key).v || get_bool(r, of, key, out);
}

bool get_count(Reader *r, Json of, const char *key, int64_t *out)
{
	Json at = child(r, of, key);
	*out = json_integer_value(at.v);
	return (json_is_integer(at.v) && *out >= 0) || wrong_type(r, at, "an integer that is not negative");
}

bool get_array(Reader *r, Json of, const char *key, Json *out)
{
	*out = child(r, of, key);
	return json_is_array(out->v) || wrong_type(r, *out, "an array");
}

bool get_point(Reader *r, Json of, const char *key, Str *out)
{
	uint32_t cp;
	if (!get_string(r, of, key, out))
		return false;
	if (!out->n || (size_t)utf8_next(out->at, &cp) != out->n)
		return reject(r, A0504, child(r, of, key), "%s where one character is expected", quoted(r, *out));
	return true;
}

bool only_keys(Reader *r, Json of, const char *keys)
{
	const char *key;
	json_t *v;
	bool ok = true;
	json_object_foreach(of.v, key, v) {
		size_t n = strlen(key);
		const char *found = keys;
		while ((found = strstr(found, key)) != NULL) {
			if ((found == keys || found[-1] == ' ') && (found[n] == ' ' || !found[n]))
				break;
			found++;
		}
		if (!n || !found || memchr(key, ' ', n))
			ok = reject(r, A0502, of, "unknown key %s; known are %s", quoted(r, (Str){key, n}), keys);
	}
	return ok;
}

const char *quoted(Reader *r, Str s)
{
	return arena_printf(r->arena, "\"%s\"", clip_text(r->arena, s.at, s.n, QUOTE_BYTES));
}

bool str_is(Str s, const char *literal)
{
	return s.n == strlen(literal) && !memcmp(s.at, literal, s.n);
}

bool str_same(Str a, Str b)
{
	return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n));
}

Str str_replace(Arena *a, Str text, Str what, Str by)
{
	size_t n = 0, hits = 0;
	for (const char *p = text.at; what.n && (p = memmem(p, (size_t)(text.at + text.n - p), what.at, what.n));
		p += what.n)
		hits++;
	if (!hits)
		return text;
	char *out = arena_alloc(a, text.n + hits * by.n + 1);
	const char *from = text.at, *end = text.at + text.n, *p;
	while ((p = memmem(from, (size_t)(end - from), what.at, what.n)) != NULL) {
		memcpy(out + n, from, (size_t)(p - from));
		n += (size_t)(p - from);
		memcpy(out + n, by.at, by.n);
		n += by.n;
		from = p + what.n;
	}
	memcpy(out + n, from, (size_t)(end - from));
	return (Str){out, n + (size_t)(end - from)};
}
