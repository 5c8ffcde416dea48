/* decode.c - from validated MessagePack to the structs of plan.h, by the tables of schema.h.
 *
 * The bytes are one canonical value (msgpack_check.c), so lengths are true and nothing here can run past the end;
 * what is left to check is that each value has the kind and the key that the schema says. The walk is made
 * twice: first to measure, then, into one block of exactly that size, to store.
 */
#include "artifacts/reader.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Value { /* one MessagePack value; containers: n values (map: n pairs) follow */
	enum { V_NIL, V_INT, V_FLOAT, V_DOUBLE, V_STR, V_BIN, V_ARRAY, V_MAP, V_OTHER } kind;
	int64_t number; /* INT; above INT64_MAX: OTHER */
	double real;
	const uint8_t *bytes;
	size_t n;
} Value;

bool say_why(char *why, size_t n, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, n, fmt, ap);
	va_end(ap);
	return false;
}

static bool bad(Decoder *d, const Schema *schema, const char *field, const char *what)
{
	return why_not(d->why, READ_MALFORMED, "section %s, byte %td: %s.%s: %s", d->section,
		d->at - d->start, schema ? schema->name : "value", field, what);
}

static void sized(Value *v, int kind, const uint8_t *bytes, uint64_t n)
{
	v->kind = kind;
	v->bytes = bytes;
	v->n = n;
}

static Value number(const uint8_t *p, uint8_t tag)
{
	int bytes = 1 << ((tag - 0xcc) & 3);
	uint64_t u = big_endian(p, bytes);
	Value v = {.kind = V_INT, .number = (int64_t)u};
	if (tag >= 0xd0 && bytes < 8)
		v.number = (int64_t)(u << (64 - 8 * bytes)) >> (64 - 8 * bytes);
	if (tag == 0xcf && u > INT64_MAX)
		v.kind = V_OTHER;
	return v;
}

static Value real(const uint8_t *p, uint8_t tag)
{
	Value v = {.kind = tag == 0xca ? V_FLOAT : V_DOUBLE};
	uint64_t bits = big_endian(p, tag == 0xca ? 4 : 8);
	uint32_t bits32 = (uint32_t)bits;
	float f;
	memcpy(&f, &bits32, 4);
	memcpy(&v.real, &bits, 8);
	if (tag == 0xca)
		v.real = f;
	return v;
}

static Value next(Decoder *d)
{
	uint8_t tag = *d->at++;
	const uint8_t *p = d->at;
	Value v = {.kind = V_OTHER};
	if (tag <= 0x7f || tag >= 0xe0) {
		v.kind = V_INT;
		v.number = (int8_t)tag;
	} else if (tag <= 0x9f) {
		sized(&v, tag <= 0x8f ? V_MAP : V_ARRAY, p, tag & 15);
	} else if (tag <= 0xbf) {
		sized(&v, V_STR, p, tag & 31);
	} else if (tag == 0xc0) {
		v.kind = V_NIL;
	} else if (tag >= 0xc4 && tag <= 0xc6) {
		int n = 1 << (tag - 0xc4);
		sized(&v, V_BIN, p + n, big_endian(p, n));
	} else if (tag >= 0xca && tag <= 0xcb) {
		v = real(p, tag);
		d->at += tag == 0xca ? 4 : 8;
	} else if (tag >= 0xcc && tag <= 0xd3) {
		v = number(p, tag);
		d->at += 1 << ((tag - 0xcc) & 3);
	} else if (tag >= 0xd9 && tag <= 0xdb) {
		int n = 1 << (tag - 0xd9);
		sized(&v, V_STR, p + n, big_endian(p, n));
	} else if (tag >= 0xdc) {
		int n = tag & 1 ? 4 : 2;
		sized(&v, tag <= 0xdd ? V_ARRAY : V_MAP, p + n, big_endian(p, n));
	}
	if (v.bytes)
		d->at = v.kind == V_STR || v.kind == V_BIN ? v.bytes + v.n : v.bytes;
	return v;
}

void *decode_take(Decoder *d, size_t bytes)
{
	void *at = d->memory ? d->memory + d->used : NULL;
	d->used += (bytes + 15) & ~(size_t)15;
	return at;
}

static bool is_text(const Value *v, const char *text)
{
	return v->kind == V_STR && strncmp((const char *)v->bytes, text, v->n) == 0 && text[v->n] == 0;
}

/* Takes a key, which is in nearly all cases the expected one. */
static bool take_key(Decoder *d, const char *name)
{
	size_t n = strlen(name);
	if (n < 32 && *d->at == (0xa0 | n) && memcmp(d->at + 1, name, n) == 0) {
		d->at += 1 + n;
		return true;
	}
	Value key = next(d);
	return is_text(&key, name);
}

static bool integer(Decoder *d, int64_t low, int64_t high, int64_t *out)
{
	if (d->at == d->end)
		return false;
	if (*d->at <= 0x7f) {
		*out = *d->at++;
		return *out >= low && *out <= high;
	}
	Value v = next(d);
	*out = v.number;
	return v.kind == V_INT && v.number >= low && v.number <= high;
}

static bool count(Decoder *d, int64_t max, int *n)
{
	Value v = next(d);
	*n = (int)v.n;
	return v.kind == V_ARRAY && v.n <= (uint64_t)max;
}

static const char *decode_text(Decoder *d, const char **out)
{
	Value v = next(d);
	if (v.kind != V_STR)
		return "not a string";
	char *copy = decode_take(d, v.n + 1);
	if (copy) {
		memcpy(copy, v.bytes, v.n);
		*out = copy;
	} else {
		*out = "";
	}
	return NULL;
}

static const char *decode_enum(Decoder *d, int kind, void *field)
{
	Value v = next(d);
	for (int i = 0; i < enum_count((EnumKind)kind); i++)
		if (is_text(&v, enum_name((EnumKind)kind, i))) {
			memcpy(field, &i, sizeof i); /* enums of plan.h are as wide as int */
			return NULL;
		}
	return "not a name of this version";
}
_Static_assert(sizeof(Dtype) == sizeof(int) && sizeof(OpKind) == sizeof(int) &&
	sizeof(Role) == sizeof(int) && sizeof(ArenaKind) == sizeof(int) &&
	sizeof(PhaseKind) == sizeof(int) && sizeof(Verdict) == sizeof(int), "enums are stored as ints");

static const char *decode_ints(Decoder *d, int expected, int max, void *out, bool wide, int *n_out)
{
	int n;
	int64_t v;
	if (!count(d, max, &n) || (expected >= 0 && n != expected))
		return "not an array of the right length";
	for (int i = 0; i < n; i++) {
		if (!integer(d, wide ? INT64_MIN : INT_MIN, wide ? INT64_MAX : INT_MAX, &v))
			return "an element that is not an integer in range";
		if (wide)
			((int64_t *)out)[i] = v;
		else
			((int *)out)[i] = (int)v;
	}
	*n_out = n;
	return NULL;
}

static const char *decode_int_list(Decoder *d, int **list, int *n)
{
	const uint8_t *start = d->at;
	int64_t v;
	if (!count(d, INT_MAX / 8, n))
		return "not an array";
	*list = decode_take(d, sizeof(int) * (size_t)*n);
	if (*list) {
		d->at = start;
		return decode_ints(d, -1, INT_MAX / 8, *list, false, n);
	}
	for (int i = 0; i < *n; i++)
		if (!integer(d, INT_MIN, INT_MAX, &v))
			return "an element that is not an integer in range";
	return NULL;
}

static const char *decode_real(Decoder *d, FieldKind kind, void *field)
{
	Value v = next(d);
	if ((int)v.kind != (kind == F_FLOAT ? (int)V_FLOAT : (int)V_DOUBLE) || !isfinite(v.real))
		return "not a finite number of the right width";
	float f = (float)v.real;
	if (kind == F_FLOAT)
		memcpy(field, &f, sizeof f);
	else
		memcpy(field, &v.real, sizeof v.real);
	return NULL;
}

static const char *decode_attrs(Decoder *d, OpKind op, Attrs *attrs)
{
	Value map = next(d);
	size_t seen = 0;
	if (map.kind != V_MAP)
		return "not a map";
	for (int i = 0; i < n_attr_fields; i++) {
		const AttrField *f = &attr_fields[i];
		if (!op_has_attr(op, f->label))
			continue;
		if (seen++ == map.n)
			return "an attribute is missing";
		if (!take_key(d, f->name))
			return "not the attributes of the op";
		uint8_t *field = (uint8_t *)attrs + f->offset;
		int64_t v = 0;
		const char *wrong = NULL;
		if (f->kind == F_FLOAT) {
			wrong = decode_real(d, F_FLOAT, field);
		} else if (!integer(d, INT_MIN, INT_MAX, &v)) {
			wrong = "an attribute that is not an integer";
		} else {
			int narrow = (int)v;
			memcpy(field, &narrow, sizeof narrow);
		}
		if (wrong)
			return wrong;
	}
	return seen == map.n ? NULL : "an attribute too many";
}

static const char *decode_small(Decoder *d, const Schema *schema, const Field *f, uint8_t *base)
{
	uint8_t *field = base + f->offset;
	OpKind op = schema == NULL ? 0 : ((GraphOp *)(void *)base)->kind;
	int n = 0;
	int64_t v = 0;
	Value sha;
	const char *wrong;
	switch (f->kind) {
	case F_INT:
		if (!integer(d, INT_MIN, INT_MAX, &v))
			return "not an integer of 32 bits";
		*(int *)(void *)field = (int)v;
		return NULL;
	case F_INT64:
		return integer(d, INT64_MIN, INT64_MAX, (int64_t *)(void *)field) ? NULL : "not an integer";
	case F_FLOAT:
	case F_DOUBLE:
		return decode_real(d, f->kind, field);
	case F_STR_OPT:
		if (*d->at == 0xc0)
			return *(const char **)(void *)field = NULL, d->at++, NULL;
		return decode_text(d, (const char **)(void *)field);
	case F_STR:
		return decode_text(d, (const char **)(void *)field);
	case F_SHA:
		sha = next(d);
		if (sha.kind != V_BIN || sha.n != 32)
			return "not a hash of 32 bytes";
		memcpy(field, sha.bytes, 32);
		return NULL;
	case F_ENUM:
		return decode_enum(d, f->extra, field);
	case F_DIMS:
		wrong = decode_ints(d, -1, PLAN_MAX_DIMS, field, true, &n);
		*(int *)(void *)(base + f->count) = n;
		return wrong;
	case F_INTS:
		return decode_ints(d, f->extra, f->extra, field, false, &n);
	case F_INT64S:
		return decode_ints(d, f->extra, f->extra, field, true, &n);
	case F_OPERANDS:
		memset(field, -1, sizeof(int) * PLAN_MAX_OPERANDS);
		return decode_ints(d, op_table[op].n_operands, PLAN_MAX_OPERANDS, field, false, &n);
	case F_ATTRS:
		return decode_attrs(d, op, (Attrs *)(void *)field);
	default:
		return decode_int_list(d, (int **)(void *)field, (int *)(void *)(base + f->count));
	}
}

bool decode_list(Decoder *d, const Schema *schema, void **list, int *n)
{
	if (!count(d, INT_MAX / 256, n))
		return bad(d, schema, "[]", "not an array");
	uint8_t *at = decode_take(d, schema->bytes * (size_t)*n);
	*list = at;
	for (int i = 0; i < *n; i++)
		if (!decode_struct(d, schema, at ? at + schema->bytes * (size_t)i : NULL))
			return false;
	return true;
}

bool decode_struct(Decoder *d, const Schema *schema, void *dst)
{
	union { Graph g; TargetPlan t; Slot s; GraphOp o; Weight w; Kernel k; Launch l; uint8_t b[256]; } scratch;
	uint8_t *base = dst ? dst : scratch.b;
	memset(base, 0, schema->bytes);
	Value map = next(d);
	if (map.kind != V_MAP || map.n != (size_t)schema->n_fields)
		return bad(d, schema, "{}", "not a map of this version's keys");
	for (int i = 0; i < schema->n_fields; i++) {
		const Field *f = &schema->fields[i];
		if (!take_key(d, f->name))
			return bad(d, schema, f->name, "another key is in its place");
		if (f->kind == F_LIST) {
			void *list;
			int *n = (int *)(void *)(base + f->count);
			if (!decode_list(d, f->of, &list, n))
				return false;
			memcpy(base + f->offset, &list, sizeof list);
			continue;
		}
		const char *wrong = decode_small(d, schema, f, base);
		if (wrong)
			return bad(d, schema, f->name, wrong);
	}
	return true;
}

bool decode_options(Decoder *d, Option **list, int *n)
{
	Value map = next(d), key;
	if (map.kind != V_MAP || map.n > INT_MAX / 64)
		return bad(d, NULL, "options", "not a map");
	*n = (int)map.n;
	*list = decode_take(d, sizeof(Option) * map.n);
	const uint8_t *before = (const uint8_t *)"";
	size_t before_n = 0;
	for (int i = 0; i < *n; i++) {
		Option unused, *o = *list ? &(*list)[i] : &unused;
		const uint8_t *start = d->at;
		key = next(d);
		int order = memcmp(before, key.bytes, before_n < key.n ? before_n : key.n);
		if (i > 0 && (order > 0 || (order == 0 && before_n >= key.n)))
			return bad(d, NULL, "options", "names that are not in ascending order");
		before = key.bytes;
		before_n = key.n;
		d->at = start;
		const char *wrong = decode_text(d, &o->name);
		if (!wrong)
			wrong = decode_text(d, &o->value);
		if (wrong)
			return bad(d, NULL, "options", wrong);
	}
	return true;
}

bool decode_key(Decoder *d, const char *key)
{
	Value map = next(d);
	if (map.kind != V_MAP || map.n != 1)
		return bad(d, NULL, key, "not a map of this key alone");
	return take_key(d, key) || bad(d, NULL, key, "another key is in its place");
}
