/* value.c - typed access to values read from JSON and TOML (see value.h). */
#include "compiler/text/value.h"

#include <math.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 48 };

const Value *value_get(const Value *t, const char *key)
{
	if (!t || t->kind != VALUE_TABLE)
		return NULL;
	for (const Value *v = t->first; v; v = v->next)
		if (strcmp(v->key, key) == 0)
			return v;
	return NULL;
}

const char *clip_text(Arena *a, const char *text, size_t n, size_t max)
{
	bool cut = n > max;
	if (cut) {
		n = max - 3;
		while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) /* not inside a code point */
			n--;
	}
	char *out = arena_alloc(a, n + 4), *to = out;
	for (size_t i = 0; i < n; i++) { /* white space of several lines becomes one blank */
		bool blank = (unsigned char)text[i] <= ' ' || text[i] == 0x7f;
		if (!blank)
			*to++ = text[i];
		else if (to == out || to[-1] != ' ')
			*to++ = ' ';
	}
	memcpy(to, cut ? "..." : "", cut ? 4 : 1);
	return out;
}

const char *value_spelling(Arena *a, const Value *v, size_t max)
{
	if (v->source_bytes || v->kind < VALUE_ARRAY)
		return clip_text(a, v->source, (size_t)v->source_bytes, max);
	const char *text = ""; /* of headers and dotted keys of TOML, whose parts are in several places */
	for (const Value *e = v->first; e && strlen(text) < max; e = e->next)
		text = arena_printf(a, "%s%s%s%s%s", text, *text ? ", " : "", v->kind == VALUE_TABLE ? e->key : "",
			v->kind == VALUE_TABLE ? " = " : "", value_spelling(a, e, max));
	text = arena_printf(a, v->kind == VALUE_TABLE ? "{%s}" : "[%s]", text);
	return clip_text(a, text, strlen(text), max);
}

const char *value_text(Arena *a, const Value *v) { return value_spelling(a, v, MAX_TEXT_BYTES); }

const char *did_you_mean(Arena *a, const char *close)
{
	return close ? arena_printf(a, ": did you mean %s?", close) : "";
}

bool value_equal(const Value *a, const Value *b)
{
	bool numbers = (a->kind == VALUE_INT || a->kind == VALUE_REAL) && (b->kind == VALUE_INT || b->kind == VALUE_REAL);
	if (numbers && a->kind != b->kind)
		return (a->kind == VALUE_INT ? (double)a->integer : a->real) ==
			(b->kind == VALUE_INT ? (double)b->integer : b->real);
	if (a->kind != b->kind || (a->kind >= VALUE_STRING && a->n != b->n))
		return false;
	switch (a->kind) {
	case VALUE_NULL: return true;
	case VALUE_BOOL: return a->boolean == b->boolean;
	case VALUE_INT: return a->integer == b->integer;
	case VALUE_REAL: return a->real == b->real;
	case VALUE_NONFINITE:
		return a->source_bytes == b->source_bytes && memcmp(a->source, b->source, (size_t)a->source_bytes) == 0;
	case VALUE_STRING: return strcmp(a->string, b->string) == 0;
	case VALUE_ARRAY:
		for (const Value *x = a->first, *y = b->first; x; x = x->next, y = y->next)
			if (!value_equal(x, y))
				return false;
		return true;
	case VALUE_TABLE:
		for (const Value *x = a->first; x; x = x->next) {
			const Value *y = value_get(b, x->key);
			if (!y || !value_equal(x, y))
				return false;
		}
		return true;
	}
	return false;
}

static bool want(Diags *d, Code code, const char *name, const Value *v, const char *what)
{
	return fail_at(d, code, v->at, "%s = %s: expected %s", name, value_text(d->arena, v), what);
}

bool want_int(Diags *d, Code code, const char *name, const Value *v, int64_t lo, int64_t hi, int *out)
{
	if (v->kind != VALUE_INT || v->integer < lo || v->integer > hi)
		return want(d, code, name, v, arena_printf(d->arena, "an integer from %lld to %lld",
			(long long)lo, (long long)hi));
	*out = (int)v->integer;
	return true;
}

bool want_bool(Diags *d, Code code, const char *name, const Value *v, bool *out)
{
	if (v->kind != VALUE_BOOL)
		return want(d, code, name, v, "true or false");
	*out = v->boolean;
	return true;
}

bool want_string(Diags *d, Code code, const char *name, const Value *v, const char **out)
{
	if (v->kind != VALUE_STRING)
		return want(d, code, name, v, "a string");
	*out = v->string;
	return true;
}

bool want_real(Diags *d, Code code, const char *name, const Value *v, double lo, bool above, double hi,
	double *out)
{
	double x = v->kind == VALUE_INT ? (double)v->integer : v->kind == VALUE_REAL ? v->real : NAN;
	if (!(above ? x > lo : x >= lo) || !(x <= hi))
		return want(d, code, name, v, arena_printf(d->arena, "a number %s %g%s%.6g", above ? "above" : "from", lo,
			above ? " up to " : " to ", hi));
	*out = x;
	return true;
}

bool want_table(Diags *d, Code code, const char *name, const Value *v)
{
	return v->kind == VALUE_TABLE || want(d, code, name, v, "a table");
}

bool want_array(Diags *d, Code code, const char *name, const Value *v)
{
	return v->kind == VALUE_ARRAY || want(d, code, name, v, "a list");
}

const char *value_text_without_folders(Arena *a, const char *text, const Value *const *paths, int n_paths)
{
	const char *kept = "", *from = text;
	for (;;) { /* in the order of the file */
		const Value *next = NULL;
		for (int i = 0; i < n_paths; i++)
			if (paths[i] && paths[i]->kind == VALUE_STRING && paths[i]->source >= from &&
				(!next || paths[i]->source < next->source))
				next = paths[i];
		if (!next)
			return arena_printf(a, "%s%s", kept, from);
		int base = next->source_bytes;
		while (base > 1 && next->source[base - 1] != '/')
			base--;
		kept = arena_printf(a, "%s%.*s%c", kept, (int)(next->source - from), from, next->source[0]);
		from = next->source + base;
	}
}
