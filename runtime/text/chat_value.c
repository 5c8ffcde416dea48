/* chat_value.c - values of a chat template: their memory, and what Python does with any of them.
 *
 * Memory is bump-allocated and freed as a whole. Text lies in chunks of its own, with as many bytes of marks: a
 * string to which another is added grows where it lies if it was the last one made, so that a text that is put
 * together piece by piece costs what it is long.
 */
#include "runtime/text/chat_machine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 16 };

/* Failing, memory ------------------------------------------------------------------------------ */

Val chat_fail(Machine *m, ChatFault fault, const char *fmt, ...)
{
	va_list args;
	ChatFailure *f = &m->failure;
	if (!f->fault) {
		f->fault = fault;
		int n = m->line && fault != CHAT_RAISED ? snprintf(f->text, sizeof f->text, "line %u of the chat template: ",
			m->line) : 0;
		va_start(args, fmt);
		vsnprintf(f->text + n, sizeof f->text - (size_t)n, fmt, args);
		va_end(args);
	}
	return (Val){.tag = V_UNDEFINED};
}

bool chat_work(Machine *m, size_t n)
{
	m->fuel -= n > INT32_MAX ? INT32_MAX : (int64_t)n;
	if (m->fuel < 0)
		chat_fail(m, CHAT_LIMIT, "the template takes more than %lld steps", (long long)m->limits.fuel);
	return !failed(m);
}

static Chunk *new_chunk(Machine *m, Chunk **chunks, size_t size, size_t factor)
{
	size_t bytes = sizeof(Chunk) + size * factor;
	if (failed(m))
		return NULL;
	if (bytes > m->limits.memory_bytes - m->memory || size > SIZE_MAX / 4) {
		chat_fail(m, CHAT_LIMIT, "the template takes more than %zu MiB of memory", m->limits.memory_bytes >> 20);
		return NULL;
	}
	Chunk *c = malloc(bytes);
	if (!c) {
		chat_fail(m, CHAT_NO_MEMORY, "no memory for the chat");
		return NULL;
	}
	m->memory += bytes;
	*c = (Chunk){.next = *chunks, .size = size};
	*chunks = c;
	return c;
}

void *chat_alloc(Machine *m, size_t bytes)
{
	Chunk *c = m->objects;
	bytes = (bytes + 15) & ~(size_t)15;
	if (!c || c->size - c->used < bytes)
		c = new_chunk(m, &m->objects, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, 1);
	if (!c)
		return NULL;
	char *p = (char *)(c + 1) + c->used;
	c->used += bytes;
	return memset(p, 0, bytes);
}

static char *text_chunk_bytes(Chunk *c) { return (char *)(c + 1); }

/* Room for n bytes of text in a row; *marks is where theirs are. */
static char *text_alloc(Machine *m, size_t n, uint8_t **marks)
{
	Chunk *c = m->texts;
	if (!c || c->size - c->used < n)
		c = new_chunk(m, &m->texts, n > CHUNK_BYTES ? n : CHUNK_BYTES, 2);
	if (!c)
		return NULL;
	char *p = text_chunk_bytes(c) + c->used;
	*marks = (uint8_t *)p + c->size;
	c->used += n;
	return p;
}

/* Makes the last text of the arena, which ends at p + n, longer by `more` where it lies. */
static bool text_extend(Machine *m, const char *p, size_t n, size_t more)
{
	Chunk *c = m->texts;
	if (!c || p + n != text_chunk_bytes(c) + c->used || p < text_chunk_bytes(c) || c->size - c->used < more)
		return false;
	c->used += more;
	return true;
}

static bool text_room(Machine *m, Text *t, size_t n)
{
	if (failed(m))
		return false;
	if (n <= t->cap - t->n)
		return true;
	size_t cap = t->n + n + (t->n + n) / 2 + 32;
	uint8_t *marks;
	if (t->p && text_extend(m, t->p, t->cap, cap - t->cap)) {
		t->cap = cap;
		return true;
	}
	char *p = text_alloc(m, cap, &marks);
	if (!p)
		return false;
	if (t->n) {
		memcpy(p, t->p, t->n);
		memcpy(marks, t->m, t->n);
	}
	t->p = p;
	t->m = marks;
	t->cap = cap;
	return true;
}

bool text_put(Machine *m, Text *t, const char *p, size_t n, bool marked)
{
	if (!n || !text_room(m, t, n) || !chat_work(m, n / 16))
		return !failed(m);
	if (t == m->out && t->n + n > m->limits.output_bytes) {
		chat_fail(m, CHAT_LIMIT, "the template writes more than %zu bytes", m->limits.output_bytes);
		return false;
	}
	memcpy(t->p + t->n, p, n);
	memset(t->m + t->n, marked, n);
	t->n += n;
	t->has_marked |= marked;
	t->has_plain |= !marked;
	return true;
}

bool text_put_part(Machine *m, Text *t, const Str *s, size_t at, size_t n)
{
	if (!n || !text_put(m, t, s->p + at, n, s->has_marked))
		return !failed(m);
	if (string_is_mixed(s)) {
		memcpy(t->m + t->n - n, s->m + at, n);
		t->has_plain = true;
	}
	return true;
}

bool text_put_str(Machine *m, Text *t, const Str *s) { return text_put_part(m, t, s, 0, s->n); }
bool text_plain(Machine *m, Text *t, const char *literal) { return text_put(m, t, literal, strlen(literal), false); }

static Val new_str(Machine *m, Str s)
{
	Str *out = chat_alloc(m, sizeof *out);
	if (!out)
		return (Val){.tag = V_UNDEFINED};
	*out = s;
	return (Val){.tag = V_STRING, .str = out};
}

Val text_value(Machine *m, Text *t)
{
	Chunk *c = m->texts;
	if (failed(m))
		return (Val){.tag = V_UNDEFINED};
	if (t->p && t->p + t->cap == text_chunk_bytes(c) + c->used) /* what was not needed goes back */
		c->used -= t->cap - t->n;
	return new_str(m, (Str){t->p ? t->p : "", t->m, t->n, t->has_marked, t->has_plain, false});
}

Val chat_literal(Machine *m, const char *p, size_t n, bool marked)
{
	return new_str(m, (Str){.p = p, .n = n, .has_marked = marked && n, .has_plain = !marked && n});
}

Val string_part(Machine *m, const Str *s, size_t at, size_t n)
{
	return new_str(m, (Str){s->p + at, s->m ? s->m + at : NULL, n, s->has_marked && n, s->has_plain && n, false});
}

Val chat_concat(Machine *m, const Str *a, const Str *b)
{
	Text t = {.p = (char *)(uintptr_t)a->p, .m = (uint8_t *)(uintptr_t)a->m, .n = a->n, .cap = a->n,
		.has_marked = a->has_marked, .has_plain = a->has_plain};
	if (!a->m || !b->n || !text_extend(m, a->p, a->n, b->n)) {
		t = (Text){0};
		if (!text_room(m, &t, a->n + b->n))
			return (Val){.tag = V_UNDEFINED};
		text_put_str(m, &t, a);
	} else
		t.cap += b->n;
	text_put_str(m, &t, b);
	return text_value(m, &t);
}

bool string_is(const Str *s, const char *text) { return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0; }

/* Lists and dicts ------------------------------------------------------------------------------ */

static void *grown(Machine *m, const void *from, size_t n, size_t *cap, size_t elem_bytes)
{
	const size_t more = *cap < 8 ? 8 : *cap * 2;
	void *to = chat_alloc(m, more * elem_bytes);
	if (to && n)
		memcpy(to, from, n * elem_bytes);
	if (to)
		*cap = more;
	return to;
}

Val list_new(Machine *m, Tag tag, size_t room)
{
	List *l = chat_alloc(m, sizeof *l);
	if (l && room) {
		l->at = chat_alloc(m, room * sizeof *l->at);
		l->cap = l->at ? room : 0;
	}
	return (Val){.tag = tag, .list = l ? l : &m->no_list};
}

bool list_push(Machine *m, List *l, Val v)
{
	if (failed(m))
		return false;
	if (l->n == l->cap) {
		Val *at = grown(m, l->at, l->n, &l->cap, sizeof *at);
		if (!at)
			return false;
		l->at = at;
	}
	l->at[l->n++] = v;
	return chat_work(m, 1);
}

Val dict_new(Machine *m, Tag tag)
{
	Dict *d = chat_alloc(m, sizeof *d);
	return (Val){.tag = tag, .dict = d ? d : &m->no_dict};
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15u;
	return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *p, size_t n)
{
	uint64_t h = n;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001B3u;
	return mix(h, 1);
}

/* False: it cannot be a key. Equal keys have equal hashes: 1, 1.0 and true are one. */
static bool hash_of(Val v, uint64_t *h)
{
	double f = v.tag == V_BOOL ? v.truth : v.tag == V_INT ? (double)v.integer : v.tag == V_FLOAT ? v.real : 0;
	uint64_t bits;
	switch (v.tag) {
	case V_STRING: *h = hash_bytes(v.str->p, v.str->n); return true;
	case V_NONE: *h = 2; return true;
	case V_UNDEFINED: *h = 5; return true;
	case V_BOOL: case V_INT: case V_FLOAT:
		f = f == 0 ? 0 : f;
		memcpy(&bits, &f, sizeof bits);
		*h = mix(3, bits);
		return true;
	case V_TUPLE:
		*h = 4;
		for (size_t i = 0; i < v.list->n; i++) {
			uint64_t k;
			if (v.list->at[i].tag == V_TUPLE || !hash_of(v.list->at[i], &k)) /* tuples of tuples are not needed */
				return false;
			*h = mix(*h, k);
		}
		return true;
	default: return false;
	}
}

/* Entry of a key; SIZE_MAX = none. */
static size_t dict_at(Machine *m, const Dict *d, Val key, uint64_t h)
{
	for (size_t i = 0; !d->index && i < d->n; i++)
		if (d->at[i].hash == h && is_equal(m, d->at[i].key, key, 0))
			return i;
	for (size_t i = h; d->index; i++) {
		uint32_t k = d->index[i & (d->n_index - 1)];
		if (!k)
			break;
		if (d->at[k - 1].hash == h && is_equal(m, d->at[k - 1].key, key, 0))
			return k - 1;
	}
	return SIZE_MAX;
}

static void index_entry(Dict *d, size_t i)
{
	size_t at = d->at[i].hash;
	while (d->index[at & (d->n_index - 1)])
		at++;
	d->index[at & (d->n_index - 1)] = (uint32_t)i + 1;
}

static bool dict_reindex(Machine *m, Dict *d)
{
	if (d->cap < 16 || d->n_index >= d->cap * 2)
		return true;
	d->index = chat_alloc(m, d->cap * 2 * sizeof *d->index);
	d->n_index = d->index ? d->cap * 2 : 0;
	for (size_t i = 0; d->index && i < d->n; i++)
		index_entry(d, i);
	return d->index != NULL;
}

bool dict_put(Machine *m, Dict *d, Val key, Val value)
{
	uint64_t h;
	if (failed(m) || !chat_work(m, 1))
		return false;
	if (!hash_of(key, &h)) {
		chat_fail(m, CHAT_BAD_VALUE, "unhashable type: '%s'", type_name(key));
		return false;
	}
	size_t i = dict_at(m, d, key, h);
	if (i != SIZE_MAX) {
		d->at[i].value = value;
		return true;
	}
	if (d->n == d->cap) {
		Entry *at = grown(m, d->at, d->n, &d->cap, sizeof *at);
		if (!at)
			return false;
		d->at = at;
		if (!dict_reindex(m, d))
			return false;
	}
	d->at[d->n++] = (Entry){key, value, h};
	if (d->index)
		index_entry(d, d->n - 1);
	return true;
}

const Val *dict_get(Machine *m, const Dict *d, Val key)
{
	uint64_t h;
	size_t i = hash_of(key, &h) ? dict_at(m, d, key, h) : SIZE_MAX;
	return i == SIZE_MAX ? NULL : &d->at[i].value;
}

const Val *dict_find(const Dict *d, const char *key, size_t n)
{
	const Str s = {.p = key, .n = n};
	return dict_get(NULL, d, (Val){.tag = V_STRING, .str = &s});
}

/* Any value ------------------------------------------------------------------------------------ */

const char *type_name(Val v)
{
	static const char *const names[] = {[V_ABSENT] = "nothing", [V_UNDEFINED] = "Undefined", [V_NONE] = "NoneType",
		[V_BOOL] = "bool", [V_INT] = "int", [V_FLOAT] = "float", [V_STRING] = "str", [V_LIST] = "list",
		[V_TUPLE] = "tuple", [V_RANGE] = "range", [V_VIEW] = "dict view", [V_ITERATOR] = "generator",
		[V_DICT] = "dict", [V_NAMESPACE] = "Namespace", [V_LOOP] = "LoopContext", [V_MACRO] = "Macro",
		[V_METHOD] = "method", [V_FUNCTION] = "function"};
	return names[v.tag];
}

Val chat_undefined(Machine *m, Val of, Val name)
{
	Missing *u = chat_alloc(m, sizeof *u);
	if (u)
		*u = (Missing){of, name};
	return (Val){.tag = V_UNDEFINED, .missing = u};
}

Val chat_undefined_fail(Machine *m, Val v)
{
	const Missing *u = v.missing;
	if (failed(m) || !u)
		return chat_fail(m, CHAT_BAD_VALUE, "a value is undefined");
	const Str *name = to_str(m, u->name);
	const int n = name->n < 80 ? (int)name->n : 80;
	if (!is_given(u->of))
		return chat_fail(m, CHAT_BAD_VALUE, "'%.*s' is undefined", n, name->p);
	if (u->of.tag == V_NONE)
		return chat_fail(m, CHAT_BAD_VALUE, "'None' has no attribute '%.*s'", n, name->p);
	return chat_fail(m, CHAT_BAD_VALUE, "'%s object' has no %s '%.*s'", type_name(u->of),
		u->name.tag == V_STRING ? "attribute" : "element", n, name->p);
}

bool is_true(Val v)
{
	switch (v.tag) {
	case V_ABSENT: case V_UNDEFINED: case V_NONE: return false;
	case V_BOOL: return v.truth;
	case V_INT: return v.integer != 0;
	case V_FLOAT: return v.real != 0;
	case V_STRING: return v.str->n > 0;
	case V_LIST: case V_TUPLE: case V_RANGE: case V_VIEW: return v.list->n > 0;
	case V_DICT: return v.dict->n > 0;
	default: return true;
	}
}

static bool equal_dicts(Machine *m, const Dict *a, const Dict *b, int depth)
{
	bool same = a->n == b->n;
	for (size_t i = 0; same && i < a->n; i++) {
		const Val *other = dict_get(m, b, a->at[i].key);
		same = other && is_equal(m, a->at[i].value, *other, depth + 1);
	}
	return same;
}

/* m NULL: of strings only. */
bool is_equal(Machine *m, Val a, Val b, int depth)
{
	if (m && (failed(m) || !chat_work(m, 1)))
		return false;
	if (depth > CHAT_MAX_VALUE)
		return chat_fail(m, CHAT_LIMIT, "values of more than %d lists inside each other", CHAT_MAX_VALUE), false;
	if (is_number(a) && is_number(b))
		return a.tag == V_FLOAT || b.tag == V_FLOAT ? real_of(a) == real_of(b) : integer_of(a) == integer_of(b);
	if (a.tag != b.tag)
		return false;
	switch (a.tag) {
	case V_ABSENT: case V_UNDEFINED: case V_NONE: return true;
	case V_STRING: return a.str->n == b.str->n && memcmp(a.str->p, b.str->p, a.str->n) == 0;
	case V_LIST: case V_TUPLE: case V_RANGE: case V_VIEW:
		if (a.list->n != b.list->n)
			return false;
		for (size_t i = 0; i < a.list->n; i++)
			if (!is_equal(m, a.list->at[i], b.list->at[i], depth + 1))
				return false;
		return true;
	case V_DICT: return equal_dicts(m, a.dict, b.dict, depth);
	case V_ITERATOR: return a.list == b.list;
	case V_NAMESPACE: return a.dict == b.dict;
	case V_FUNCTION: return a.integer == b.integer;
	default: return a.list == b.list;
	}
}

int compare(Machine *m, Val a, Val b, int depth)
{
	if (!chat_work(m, 1))
		return 0;
	if (is_number(a) && is_number(b)) {
		if (a.tag == V_FLOAT || b.tag == V_FLOAT)
			return (real_of(a) > real_of(b)) - (real_of(a) < real_of(b));
		return (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b));
	}
	if (a.tag == V_STRING && b.tag == V_STRING) { /* UTF-8 sorts as code points do */
		size_t n = a.str->n < b.str->n ? a.str->n : b.str->n;
		int k = memcmp(a.str->p, b.str->p, n);
		return k ? (k > 0) - (k < 0) : (a.str->n > b.str->n) - (a.str->n < b.str->n);
	}
	if (a.tag == b.tag && (a.tag == V_LIST || a.tag == V_TUPLE) && depth < CHAT_MAX_VALUE) {
		for (size_t i = 0; i < a.list->n && i < b.list->n; i++)
			if (!is_equal(m, a.list->at[i], b.list->at[i], depth + 1))
				return compare(m, a.list->at[i], b.list->at[i], depth + 1);
		return (a.list->n > b.list->n) - (a.list->n < b.list->n);
	}
	if (a.tag == V_UNDEFINED || b.tag == V_UNDEFINED)
		chat_undefined_fail(m, a.tag == V_UNDEFINED ? a : b);
	chat_fail(m, CHAT_BAD_VALUE, "'%s' and '%s' cannot be compared", type_name(a), type_name(b));
	return 0;
}

bool is_in(Machine *m, Val what, Val where)
{
	if (where.tag == V_STRING) {
		if (what.tag != V_STRING) {
			chat_fail(m, CHAT_BAD_VALUE, "'in <string>' requires string as left operand, not %s", type_name(what));
			return false;
		}
		return chat_work(m, where.str->n / 16) && string_find(where.str, what.str, 0) != SIZE_MAX;
	}
	if (where.tag == V_DICT) {
		uint64_t h;
		if (!hash_of(what, &h))
			chat_fail(m, CHAT_BAD_VALUE, "unhashable type: '%s'", type_name(what));
		return dict_get(m, where.dict, what) != NULL;
	}
	if (where.tag == V_ITERATOR) { /* read up to what is found */
		List *l = where.list;
		while (l->next < l->n && !failed(m))
			if (is_equal(m, l->at[l->next++], what, 0))
				return true;
		return false;
	}
	const List *l = elements(m, where);
	for (size_t i = 0; i < l->n && !failed(m); i++)
		if (is_equal(m, l->at[i], what, 0))
			return true;
	return false;
}

List *elements(Machine *m, Val v)
{
	Val out = list_new(m, V_LIST, 0);
	if (v.tag == V_ITERATOR) {
		if (!v.list->n)
			return out.list;
		out.list->at = v.list->at + v.list->next;
		out.list->n = out.list->cap = v.list->n - v.list->next;
		v.list->next = v.list->n;
	} else if (is_listed(v))
		return v.list;
	else if (v.tag == V_DICT)
		for (size_t i = 0; i < v.dict->n; i++)
			list_push(m, out.list, v.dict->at[i].key);
	else if (v.tag == V_STRING)
		for (size_t i = 0, k; i < v.str->n && !failed(m); i += k) {
			uint32_t cp;
			k = utf8_take((const unsigned char *)v.str->p + i, v.str->n - i, &cp);
			list_push(m, out.list, string_part(m, v.str, i, k));
		}
	else if (v.tag != V_UNDEFINED)
		chat_fail(m, CHAT_BAD_VALUE, "'%s' object is not iterable", type_name(v));
	return out.list;
}

/* Numbers -------------------------------------------------------------------------------------- */

locale_t chat_locale(Machine *m)
{
	if (!m->c_locale)
		m->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	return m->c_locale;
}

double chat_strtod(Machine *m, const char *text, char **end)
{
	return chat_locale(m) ? strtod_l(text, end, m->c_locale) : strtod(text, end);
}

/* As text -------------------------------------------------------------------------------------- */

/* Python's repr of a float: the fewest digits that give it back. */
void put_float(Machine *m, Text *t, double f)
{
	char e[40], digits[24], out[48];
	int n = 0, k = 0, exponent = 0;
	if (isnan(f) || isinf(f)) {
		text_plain(m, t, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	for (int precision = 0; precision < 17; precision++) {
		snprintf(e, sizeof e, "%.*e", precision, f);
		if (strtod(e, NULL) == f)
			break;
	}
	for (n = 0, k = 0; e[n] && e[n] != 'e'; n++)
		if (e[n] >= '0' && e[n] <= '9') /* whatever the locale puts between them */
			digits[k++] = e[n];
	exponent = (int)strtol(e + n + 1, NULL, 10);
	char *to = out;
	if (signbit(f))
		*to++ = '-';
	if (exponent < -4 || exponent >= 16) {
		*to++ = digits[0];
		if (k > 1)
			*to++ = '.';
		memcpy(to, digits + 1, (size_t)(k - 1));
		to += k - 1;
		to += snprintf(to, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
	} else {
		for (int i = exponent < 0 ? exponent : 0; i < k || i <= exponent + 1; i++) {
			if (i == exponent + 1)
				*to++ = '.';
			*to++ = i >= 0 && i < k ? digits[i] : '0';
		}
	}
	text_put(m, t, out, (size_t)(to - out), false);
}

static void put_quoted(Machine *m, Text *t, const Str *s)
{
	const bool single = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n);
	const char quote = single ? '"' : '\'';
	text_put(m, t, &quote, 1, false);
	for (size_t i = 0, k; i < s->n && !failed(m); i += k) {
		uint32_t cp;
		char out[16] = "\\";
		k = utf8_take((const unsigned char *)s->p + i, s->n - i, &cp);
		const bool marked = string_is_mixed(s) ? s->m[i] : s->has_marked;
		if (cp == '\n' || cp == '\r' || cp == '\t')
			out[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't';
		else if (cp == '\\' || cp == (uint32_t)quote)
			out[1] = (char)cp;
		else if (is_printable(cp)) {
			text_put_part(m, t, s, i, k);
			continue;
		} else
			snprintf(out, sizeof out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
		text_put(m, t, out, strlen(out), marked);
	}
	text_put(m, t, &quote, 1, false);
}

static void put_list(Machine *m, Text *t, Val v, int depth)
{
	const bool tuple = v.tag == V_TUPLE;
	m->misfits |= (int)v.list->misfit;
	text_plain(m, t, tuple ? "(" : "[");
	for (size_t i = 0; i < v.list->n && !failed(m); i++) {
		if (i)
			text_plain(m, t, ", ");
		put_repr(m, t, v.list->at[i], depth + 1);
	}
	text_plain(m, t, tuple ? v.list->n == 1 ? ",)" : ")" : "]");
}

static void put_dict(Machine *m, Text *t, Val v, int depth)
{
	m->misfits |= (int)v.dict->misfit;
	text_plain(m, t, v.tag == V_NAMESPACE ? "<Namespace {" : "{");
	for (size_t i = 0; i < v.dict->n && !failed(m); i++) {
		if (i)
			text_plain(m, t, ", ");
		put_repr(m, t, v.dict->at[i].key, depth + 1);
		text_plain(m, t, ": ");
		put_repr(m, t, v.dict->at[i].value, depth + 1);
	}
	text_plain(m, t, v.tag == V_NAMESPACE ? "}>" : "}");
}

static void put_range(Machine *m, Text *t, const List *l)
{
	char out[80];
	const int64_t from = l->n ? l->at[0].integer : 0, step = l->n > 1 ? l->at[1].integer - from : 1;
	const int64_t to = (int64_t)l->next; /* where it ends, as it was given */
	if (step == 1)
		snprintf(out, sizeof out, "range(%lld, %lld)", (long long)from, (long long)to);
	else
		snprintf(out, sizeof out, "range(%lld, %lld, %lld)", (long long)from, (long long)to, (long long)step);
	text_plain(m, t, out);
}

bool put_repr(Machine *m, Text *t, Val v, int depth)
{
	char number[32];
	if (depth > CHAT_MAX_VALUE)
		chat_fail(m, CHAT_LIMIT, "values of more than %d lists inside each other", CHAT_MAX_VALUE);
	if (failed(m))
		return false;
	switch (v.tag) {
	case V_ABSENT: break;
	case V_UNDEFINED: text_plain(m, t, "Undefined"); break;
	case V_NONE:
		m->misfits |= v.integer ? MISFIT_NULL : 0;
		text_plain(m, t, "None");
		break;
	case V_BOOL: text_plain(m, t, v.truth ? "True" : "False"); break;
	case V_INT:
		snprintf(number, sizeof number, "%lld", (long long)v.integer);
		text_plain(m, t, number);
		break;
	case V_FLOAT: put_float(m, t, v.real); break;
	case V_STRING: put_quoted(m, t, v.str); break;
	case V_LIST: case V_TUPLE: put_list(m, t, v, depth); break;
	case V_RANGE: put_range(m, t, v.list); break;
	case V_DICT: case V_NAMESPACE: put_dict(m, t, v, depth); break;
	default: chat_fail(m, CHAT_BAD_VALUE, "a '%s' is written as text: that is not implemented", type_name(v));
	}
	return !failed(m);
}

bool put_value(Machine *m, Text *t, Val v)
{
	if (v.tag == V_STRING)
		return text_put_str(m, t, v.str);
	return v.tag == V_UNDEFINED ? !failed(m) : put_repr(m, t, v, 0);
}

const Str *to_str(Machine *m, Val v)
{
	static const Str empty = {.p = ""};
	Text t = {0};
	if (v.tag == V_STRING)
		return v.str;
	put_value(m, &t, v);
	v = text_value(m, &t);
	return v.tag == V_STRING ? v.str : &empty;
}
