/* chat_filter.c - filters and tests of jinja2, with its arguments and its rules for odd values. */
#include "runtime/text/chat_machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct { const char *name; int most; const char *names; } filters[] = {
#define CHAT_ROW(name, text, most, names) {text, most, names},
	CHAT_FILTERS(CHAT_ROW)
#undef CHAT_ROW
};
static const struct { const char *name; int most; } tests[] = {
#define CHAT_ROW(name, text, most) {text, most},
	CHAT_TESTS(CHAT_ROW)
#undef CHAT_ROW
};

/* Arguments ------------------------------------------------------------------------------------ */

Val argument(const Args *a, int i, const char *name)
{
	for (int k = 0; name && k < a->n; k++)
		if (a->names[k] && string_is(a->names[k], name))
			return a->at[k];
	return i < a->n && !a->names[i] ? a->at[i] : (Val){.tag = V_ABSENT};
}

bool whole_number(Machine *m, Val v, int64_t *out)
{
	(void)m;
	*out = v.tag == V_BOOL ? v.truth : v.tag == V_INT ? v.integer : 0;
	return v.tag == V_BOOL || v.tag == V_INT;
}

/* Puts the arguments into the order of their names: at[0..most). */
static bool bind(Machine *m, ChatFilter f, const Args *a, Val *at)
{
	const char *names[8] = {0};
	size_t lengths[8] = {0};
	int n = 0;
	for (const char *p = filters[f].names; *p && n < 8; n++) {
		names[n] = p;
		lengths[n] = strcspn(p, " ");
		p += lengths[n] + (p[lengths[n]] == ' ');
	}
	for (int i = 0; i < 8; i++)
		at[i] = (Val){.tag = V_ABSENT};
	for (int i = 0; i < a->n; i++) {
		int k = a->names[i] ? 0 : i;
		while (a->names[i] && k < n && (a->names[i]->n != lengths[k] || memcmp(a->names[i]->p, names[k], lengths[k])))
			k++;
		if (k >= n || is_given(at[k])) {
			chat_fail(m, CHAT_BAD_VALUE, "filter '%s': an argument that it does not take", filters[f].name);
			return false;
		}
		at[k] = a->at[i];
	}
	return true;
}

/* Sorting -------------------------------------------------------------------------------------- */

/* What an element is sorted or compared by. */
static Val key_of(Machine *m, Val v, const Str *attribute, bool fold)
{
	const Val key = attribute ? get_path(m, v, attribute) : v;
	return fold && key.tag == V_STRING ? string_case(m, key.str, CASE_LOWER) : key;
}

typedef struct Keyed { Val key, value; } Keyed;

static void merge_sort(Machine *m, Keyed *at, Keyed *spare, size_t n, bool reverse)
{
	const size_t half = n / 2;
	if (n < 2 || failed(m))
		return;
	merge_sort(m, at, spare, half, reverse);
	merge_sort(m, at + half, spare, n - half, reverse);
	memcpy(spare, at, half * sizeof *at);
	for (size_t i = 0, j = half, k = 0; i < half; k++) {
		int order = j < n ? compare(m, at[j].key, spare[i].key, 0) : 1;
		const bool right = j < n && (reverse ? order > 0 : order < 0);
		at[k] = right ? at[j++] : spare[i++];
	}
}

/* Stable, in both directions. in_lists: keys are compared as lists of one are, whose equal elements need no order. */
List *sorted_list(Machine *m, const List *l, const Str *attribute, bool in_lists, bool fold, bool reverse)
{
	Val out = list_new(m, V_LIST, l->n);
	Keyed *at = chat_alloc(m, (l->n + 1) * sizeof *at), *spare = chat_alloc(m, (l->n + 1) * sizeof *at);
	for (size_t i = 0; at && spare && i < l->n && !failed(m); i++) {
		Val key = key_of(m, l->at[i], attribute, fold);
		if (in_lists) {
			const Val list = list_new(m, V_LIST, 1);
			list_push(m, list.list, key);
			key = list;
		}
		at[i] = (Keyed){key, l->at[i]};
	}
	if (!failed(m))
		merge_sort(m, at, spare, l->n, reverse);
	for (size_t i = 0; i < l->n && !failed(m); i++)
		list_push(m, out.list, at[i].value);
	return out.list;
}

static const Str *attribute_of(Machine *m, Val v)
{
	if (!is_given(v) || v.tag == V_NONE)
		return NULL;
	const Str *s = to_str(m, v);
	if (memchr(s->p, ',', s->n))
		chat_fail(m, CHAT_BAD_VALUE, "several attributes in one filter are not implemented");
	return s;
}

static Val pairs_of(Machine *m, Val v, Tag tag)
{
	Val out = list_new(m, tag, 0);
	for (size_t i = 0; i < v.dict->n && !failed(m); i++) {
		Val pair = list_new(m, V_TUPLE, 2);
		list_push(m, pair.list, v.dict->at[i].key);
		list_push(m, pair.list, v.dict->at[i].value);
		list_push(m, out.list, pair);
	}
	return out;
}

static Val dictsort(Machine *m, Val v, const Val *a)
{
	if (v.tag != V_DICT)
		return v.tag == V_UNDEFINED ? chat_undefined_fail(m, v) : chat_fail(m, CHAT_BAD_VALUE,
			"'%s object' has no attribute 'items'", type_name(v));
	Val pairs = pairs_of(m, v, V_LIST);
	const bool by_value = a[1].tag == V_STRING && string_is(a[1].str, "value");
	if (is_given(a[1]) && !by_value && !(a[1].tag == V_STRING && string_is(a[1].str, "key")))
		return chat_fail(m, CHAT_BAD_VALUE, "dictsort: by is neither 'key' nor 'value'");
	const Str path = {.p = by_value ? "1" : "0", .n = 1};
	pairs.list = sorted_list(m, pairs.list, &path, false, !is_true(a[0]), is_true(a[2]));
	return pairs;
}

/* Of an empty list. */
static Val no_item(Machine *m)
{
	return chat_undefined(m, (Val){.tag = V_ABSENT}, chat_literal(m, "the first item", 14, false));
}

static Val extreme(Machine *m, Val v, const Val *a, int sign)
{
	const List *l = elements(m, v);
	const Str *attribute = attribute_of(m, a[1]);
	Val best = {.tag = V_ABSENT}, best_key = best;
	for (size_t i = 0; i < l->n && !failed(m); i++) {
		const Val key = key_of(m, l->at[i], attribute, !is_true(a[0]));
		if (!is_given(best) || compare(m, key, best_key, 0) * sign > 0) {
			best = l->at[i];
			best_key = key;
		}
	}
	return is_given(best) ? best : no_item(m);
}

static Val unique(Machine *m, Val v, const Val *a)
{
	const List *l = elements(m, v);
	const Str *attribute = attribute_of(m, a[1]);
	Val seen = dict_new(m, V_DICT), out = list_new(m, V_ITERATOR, 0);
	for (size_t i = 0; i < l->n && !failed(m); i++) {
		const Val key = key_of(m, l->at[i], attribute, !is_true(a[0]));
		const size_t before = seen.dict->n;
		if (dict_put(m, seen.dict, key, val_none()) && seen.dict->n > before)
			list_push(m, out.list, l->at[i]);
	}
	return out;
}

/* Lists ---------------------------------------------------------------------------------------- */

static int find_name(const Str *s, bool filter)
{
	const int n = filter ? CHAT_FILTER_COUNT : CHAT_TEST_COUNT;
	for (int i = 0; i < n; i++)
		if (string_is(s, filter ? filters[i].name : tests[i].name))
			return i;
	return -1;
}

/* The arguments from number `from` on. */
static Args rest_of(const Args *a, int from)
{
	Args rest = {.n = a->n - from};
	for (int i = 0; i < rest.n; i++) {
		rest.at[i] = a->at[from + i];
		rest.names[i] = a->names[from + i];
	}
	return rest;
}

static Val map(Machine *m, Val v, const Args *a)
{
	const List *l = is_true(v) ? elements(m, v) : &m->no_list;
	const Val attribute = argument(a, CHAT_MAX_ARGS, "attribute"), other = argument(a, CHAT_MAX_ARGS, "default");
	const bool by_attribute = is_given(attribute);
	const Val name = by_attribute ? attribute : argument(a, 0, NULL);
	Val out = list_new(m, V_ITERATOR, l->n);
	if (!is_true(v)) /* none, for one: jinja2 asks before it iterates */
		return out;
	if (!is_given(name) || (by_attribute && a->n > 1 + is_given(other)))
		return chat_fail(m, CHAT_BAD_VALUE, "map: expected the name of a filter, or attribute=");
	const Str *s = to_str(m, name);
	const int filter = by_attribute ? 0 : find_name(s, true);
	if (filter < 0)
		return chat_fail(m, CHAT_BAD_VALUE, "map: there is no filter '%.*s'", s->n < 40 ? (int)s->n : 40, s->p);
	const Args rest = rest_of(a, by_attribute ? a->n : 1);
	for (size_t i = 0; i < l->n && !failed(m); i++) {
		Val one = by_attribute ? get_path(m, l->at[i], s) : apply_filter(m, (ChatFilter)filter, l->at[i], &rest);
		if (by_attribute && one.tag == V_UNDEFINED && is_given(other))
			one = other;
		list_push(m, out.list, one);
	}
	return out;
}

/* select, reject, selectattr, rejectattr */
static Val choose(Machine *m, Val v, const Args *a, bool by_attribute, bool keeps)
{
	const List *l = is_true(v) ? elements(m, v) : &m->no_list;
	const int first = by_attribute ? 1 : 0;
	Val out = list_new(m, V_ITERATOR, 0);
	if (!is_true(v))
		return out;
	if (by_attribute && (!a->n || a->names[0]))
		return chat_fail(m, CHAT_BAD_VALUE, "expected the name of an attribute");
	const Str *attribute = by_attribute ? to_str(m, a->at[0]) : NULL, *name = NULL;
	int test = -1;
	if (a->n > first && !a->names[first]) {
		name = to_str(m, a->at[first]);
		test = find_name(name, false);
		if (test < 0)
			return chat_fail(m, CHAT_BAD_VALUE, "there is no test '%.*s'", name->n < 40 ? (int)name->n : 40, name->p);
	}
	const Args rest = rest_of(a, a->n > first ? first + 1 : a->n);
	for (size_t i = 0; i < l->n && !failed(m); i++) {
		const Val one = attribute ? get_path(m, l->at[i], attribute) : l->at[i];
		const bool holds = name ? apply_test(m, (ChatTest)test, one, &rest) : is_true(one);
		if (holds == keeps)
			list_push(m, out.list, l->at[i]);
	}
	return out;
}

static Val reverse(Machine *m, Val v)
{
	const List *l;
	Val out = list_new(m, v.tag == V_STRING ? V_LIST : V_ITERATOR, 0);
	l = elements(m, v);
	for (size_t i = l->n; i-- > 0 && !failed(m);)
		list_push(m, out.list, l->at[i]);
	return v.tag == V_STRING ? string_join(m, &(Str){.p = ""}, out.list, NULL) : out;
}

static Val length_of(Machine *m, Val v)
{
	switch (v.tag) {
	case V_STRING: chat_work(m, v.str->n / 16); return val_int((int64_t)string_length(v.str));
	case V_UNDEFINED: return val_int(0);
	case V_LIST: case V_TUPLE: case V_RANGE: case V_VIEW: return val_int((int64_t)v.list->n);
	case V_DICT: return val_int((int64_t)v.dict->n);
	case V_LOOP: return val_int((int64_t)v.loop->items->n);
	default: return chat_fail(m, CHAT_BAD_VALUE, "object of type '%s' has no len()", type_name(v));
	}
}

static Val end_of(Machine *m, Val v, bool last)
{
	if (last && v.tag == V_ITERATOR)
		return chat_fail(m, CHAT_BAD_VALUE, "'generator' object is not reversible");
	if (!last && v.tag == V_ITERATOR) /* takes one */
		return v.list->next < v.list->n ? v.list->at[v.list->next++] : no_item(m);
	const List *l = elements(m, v);
	return l->n ? l->at[last ? l->n - 1 : 0] : no_item(m);
}

static Val sum(Machine *m, Val v, const Val *a)
{
	const List *l = elements(m, v);
	const Str *attribute = attribute_of(m, a[0]);
	Val all = is_given(a[1]) ? a[1] : val_int(0);
	if (all.tag == V_STRING)
		return chat_fail(m, CHAT_BAD_VALUE, "sum() can't sum strings");
	for (size_t i = 0; i < l->n && !failed(m); i++)
		all = binary(m, CHAT_ADD, all, attribute ? get_path(m, l->at[i], attribute) : l->at[i]);
	return all;
}

/* Texts and numbers ---------------------------------------------------------------------------- */

static Val indent(Machine *m, Val v, const Val *a)
{
	const Str *s = to_str(m, v), *by;
	int64_t n = 4;
	Text blanks = {0}, t = {0};
	if (v.tag != V_STRING)
		return v.tag == V_UNDEFINED ? chat_undefined_fail(m, v) : chat_fail(m, CHAT_BAD_VALUE,
			"indent: expected a text, not '%s'", type_name(v));
	if (is_given(a[0]) && a[0].tag != V_STRING && !whole_number(m, a[0], &n))
		return chat_fail(m, CHAT_BAD_VALUE, "indent: expected a number or a text");
	for (int64_t i = 0; i < n && a[0].tag != V_STRING && !failed(m); i++)
		text_plain(m, &blanks, " ");
	by = a[0].tag == V_STRING ? a[0].str : to_str(m, text_value(m, &blanks));
	const Str newline = {.p = "\n", .n = 1, .has_plain = true};
	const Val whole = chat_concat(m, s, &newline);
	if (failed(m))
		return whole;
	const Val lines = string_lines(m, whole.str, false);
	if (is_true(a[1]))
		text_put_str(m, &t, by);
	for (size_t i = 0; i < lines.list->n && !failed(m); i++) {
		const Str *line = lines.list->at[i].str;
		if (i) {
			text_plain(m, &t, "\n");
			if (line->n || is_true(a[2]))
				text_put_str(m, &t, by);
		}
		text_put_str(m, &t, line);
	}
	return text_value(m, &t);
}

static int digit_of(char c) /* in the largest base; 99 = none */
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

/* Python's float(text): digits, point, exponent, inf, nan, underscores between digits. */
static bool parse_float(Machine *m, const Str *s, double *out)
{
	char *text = string_number(m, s), *end;
	size_t kept = 0;
	for (size_t i = 0; text && text[i]; i++) {
		const char c = text[i];
		if (c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(') /* which strtod takes */
			return false;
		if (!(c == '_' && i && digit_of(text[i - 1]) < 10 && digit_of(text[i + 1]) < 10))
			text[kept++] = c;
	}
	if (!text)
		return false;
	text[kept] = 0;
	*out = chat_strtod(m, text, &end);
	return end == text + kept;
}

/* Python's int(text, base). */
static bool parse_int(Machine *m, const Str *s, int64_t base, int64_t *out)
{
	const char *p = string_number(m, s);
	if (!p)
		return false;
	const bool minus = *p == '-';
	const uint64_t most = (uint64_t)INT64_MAX + minus;
	uint64_t all = 0;
	bool digit = false, is_large = false;
	p += *p == '-' || *p == '+';
	const int letter = *p == '0' ? p[1] | 32 : 0;
	if ((letter == 'x' && base == 16) || (letter == 'o' && base == 8) || (letter == 'b' && base == 2))
		p += 2 + (p[2] == '_');
	for (; *p; p++) {
		const int d = digit_of(*p);
		if (*p == '_' && digit && p[1] && p[1] != '_')
			continue;
		if (d >= base)
			return false;
		is_large |= all > (most - (uint64_t)d) / (uint64_t)base;
		all = all * (uint64_t)base + (uint64_t)d;
		digit = true;
	}
	*out = (int64_t)(minus ? 0 - all : all);
	if (digit && is_large)
		chat_fail(m, CHAT_BAD_VALUE, "a whole number beyond 64 bits");
	return digit;
}

static Val whole_of(Machine *m, double f)
{
	return isfinite(f) && fabs(f) < 9.2e18 ? val_int((int64_t)f)
		: chat_fail(m, CHAT_BAD_VALUE, isfinite(f) ? "a whole number beyond 64 bits" : "no whole number is inf or nan");
}

static Val to_int(Machine *m, Val v, const Val *a)
{
	int64_t base = 10, i;
	double f = v.tag == V_FLOAT ? v.real : NAN;
	const bool is_base = !is_given(a[1]) || (whole_number(m, a[1], &base) && base >= 2 && base <= 36);
	if (v.tag == V_UNDEFINED)
		return chat_undefined_fail(m, v);
	if (v.tag == V_STRING && !base && is_given(a[1]) && is_number(a[1]))
		return chat_fail(m, CHAT_BAD_VALUE, "int: base 0 is not implemented");
	if (whole_number(m, v, &i) || (v.tag == V_STRING && is_base && parse_int(m, v.str, base, &i)))
		return val_int(i);
	if ((v.tag == V_STRING && (!parse_float(m, v.str, &f) || isinf(f))) || isnan(f))
		return is_given(a[0]) ? a[0] : val_int(0);
	return whole_of(m, f);
}

static Val to_float(Machine *m, Val v, const Val *a)
{
	int64_t i;
	double f;
	if (v.tag == V_FLOAT)
		return v;
	if (v.tag == V_UNDEFINED)
		return chat_undefined_fail(m, v);
	if (whole_number(m, v, &i))
		return val_float((double)i);
	if (v.tag == V_STRING && parse_float(m, v.str, &f))
		return val_float(f);
	return is_given(a[0]) ? a[0] : val_float(0);
}

static Val absolute(Machine *m, Val v)
{
	if (v.tag == V_FLOAT)
		return val_float(fabs(v.real));
	if ((v.tag != V_INT && v.tag != V_BOOL) || (v.tag == V_INT && v.integer == INT64_MIN))
		return v.tag == V_UNDEFINED ? chat_undefined_fail(m, v)
			: chat_fail(m, CHAT_BAD_VALUE, "bad operand type for abs(): '%s'", type_name(v));
	return val_int(v.tag == V_BOOL ? v.truth : v.integer < 0 ? -v.integer : v.integer);
}

/* Python's round, whose halves go to the even digit of the exact value, as printf has them. Of none, a whole number. */
static Val rounded(Machine *m, Val v, const Val *a)
{
	char text[400];
	int64_t n = 0;
	const bool is_whole = a[0].tag == V_NONE;
	const Str *method = a[1].tag == V_STRING ? a[1].str : &(Str){.p = is_given(a[1]) ? "" : "common", .n = 6};
	const bool is_up = string_is(method, "ceil"), is_common = string_is(method, "common");
	if ((is_given(a[0]) && !is_whole && !whole_number(m, a[0], &n)) || n < 0 || n > 17 || !is_number(v) ||
		(!is_common && (is_whole || (!is_up && !string_is(method, "floor")))))
		return chat_fail(m, CHAT_BAD_VALUE, "round of '%s' with these arguments is not implemented", type_name(v));
	if (v.tag != V_FLOAT)
		return is_common ? val_int(integer_of(v)) : val_float(real_of(v));
	if (is_whole)
		return whole_of(m, rint(v.real));
	if (!is_common) {
		double scale = 1, scaled;
		for (int64_t i = 0; i < n; i++)
			scale *= 10;
		scaled = is_up ? ceil(v.real * scale) : floor(v.real * scale);
		return isfinite(scaled) ? val_float(scaled / scale + 0.0) : whole_of(m, scaled); /* + 0: there is no -0 */
	}
	if (!isfinite(v.real))
		return v;
	snprintf(text, sizeof text, "%.*f", (int)n, v.real);
	return val_float(strtod(text, NULL)); /* of the locale of snprintf */
}

static Val trim(Machine *m, Val v, Val chars)
{
	if (is_given(chars) && chars.tag != V_NONE && chars.tag != V_STRING)
		return chat_fail(m, CHAT_BAD_VALUE, "trim: expected a text, not '%s'", type_name(chars));
	return string_strip(m, to_str(m, v), chars.tag == V_STRING ? chars.str : NULL, STRIP_LEFT | STRIP_RIGHT);
}

static Val replace(Machine *m, Val v, const Val *a)
{
	int64_t most = -1;
	if (!is_given(a[0]) || !is_given(a[1]) || (is_given(a[2]) && a[2].tag != V_NONE && !whole_number(m, a[2], &most)))
		return chat_fail(m, CHAT_BAD_VALUE, "replace: expected two texts and a number");
	return string_replace(m, to_str(m, v), to_str(m, a[0]), to_str(m, a[1]), most);
}

Val mark_safe(Machine *m, Val text)
{
	if (failed(m) || text.tag != V_STRING)
		return text;
	Val out = string_part(m, text.str, 0, text.str->n);
	if (!failed(m))
		((Str *)(uintptr_t)out.str)->safe = true;
	return out;
}

static Val tojson(Machine *m, Val v, const Val *a)
{
	Text t = {0};
	if (v.tag == V_UNDEFINED)
		return chat_fail(m, CHAT_BAD_VALUE, "Object of type Undefined is not JSON serializable");
	json_out(m, &t, v, is_true(a[0]), a[1], a[2], is_true(a[3]));
	return text_value(m, &t);
}

static Val from_json(Machine *m, Val v)
{
	Val out = val_none();
	if (v.tag != V_STRING)
		return chat_fail(m, CHAT_BAD_VALUE, "from_json: expected a text, not '%s'", type_name(v));
	json_in(m, v.str->p, v.str->n, false, &out);
	return out;
}

Val apply_filter(Machine *m, ChatFilter f, Val v, const Args *args)
{
	Val a[8];
	const bool binds = f != CHAT_F_MAP && f != CHAT_F_REJECT && f != CHAT_F_REJECTATTR && f != CHAT_F_SELECT &&
		f != CHAT_F_SELECTATTR;
	if (failed(m) || (binds && !bind(m, f, args, a)))
		return val_none();
	switch (f) {
	case CHAT_F_ABS: return absolute(m, v);
	case CHAT_F_CAPITALIZE: return string_case(m, to_str(m, v), CASE_CAPITAL);
	case CHAT_F_COUNT: case CHAT_F_LENGTH: return length_of(m, v);
	case CHAT_F_D: case CHAT_F_DEFAULT:
		if (v.tag != V_UNDEFINED && !(is_true(a[1]) && !is_true(v)))
			return v;
		return is_given(a[0]) ? a[0] : chat_literal(m, "", 0, false);
	case CHAT_F_DICTSORT: return dictsort(m, v, a);
	case CHAT_F_FIRST: case CHAT_F_LAST: return end_of(m, v, f == CHAT_F_LAST);
	case CHAT_F_FLOAT: return to_float(m, v, a);
	case CHAT_F_FROM_JSON: case CHAT_F_FROMJSON: return from_json(m, v);
	case CHAT_F_INDENT: return indent(m, v, a);
	case CHAT_F_INT: return to_int(m, v, a);
	case CHAT_F_ITEMS:
		return v.tag == V_DICT ? pairs_of(m, v, V_ITERATOR) : v.tag == V_UNDEFINED ? list_new(m, V_ITERATOR, 0)
			: chat_fail(m, CHAT_BAD_VALUE, "Can only get item pairs from a mapping.");
	case CHAT_F_JOIN:
		return string_join(m, is_given(a[0]) ? to_str(m, a[0]) : &(Str){.p = ""}, elements(m, v),
			attribute_of(m, a[1]));
	case CHAT_F_LIST: {
		const List *l = elements(m, v);
		Val out = list_new(m, V_LIST, l->n);
		for (size_t i = 0; i < l->n && !failed(m); i++)
			list_push(m, out.list, l->at[i]);
		return out;
	}
	case CHAT_F_LOWER: return string_case(m, to_str(m, v), CASE_LOWER);
	case CHAT_F_UPPER: return string_case(m, to_str(m, v), CASE_UPPER);
	case CHAT_F_MAP: return map(m, v, args);
	case CHAT_F_MAX: return extreme(m, v, a, 1);
	case CHAT_F_MIN: return extreme(m, v, a, -1);
	case CHAT_F_REJECT: return choose(m, v, args, false, false);
	case CHAT_F_REJECTATTR: return choose(m, v, args, true, false);
	case CHAT_F_SELECT: return choose(m, v, args, false, true);
	case CHAT_F_SELECTATTR: return choose(m, v, args, true, true);
	case CHAT_F_REPLACE: return replace(m, v, a);
	case CHAT_F_REVERSE: return reverse(m, v);
	case CHAT_F_ROUND: return rounded(m, v, a);
	case CHAT_F_SAFE: return mark_safe(m, (Val){.tag = V_STRING, .str = to_str(m, v)});
	case CHAT_F_SORT: {
		Val out = list_new(m, V_LIST, 0);
		out.list = sorted_list(m, elements(m, v), attribute_of(m, a[2]), true, !is_true(a[1]), is_true(a[0]));
		return out;
	}
	case CHAT_F_STRING: return (Val){.tag = V_STRING, .str = to_str(m, v)};
	case CHAT_F_SUM: return sum(m, v, a);
	case CHAT_F_TITLE: return string_case(m, to_str(m, v), CASE_WORDS);
	case CHAT_F_TOJSON: return tojson(m, v, a);
	case CHAT_F_TRIM: return trim(m, v, a[0]);
	case CHAT_F_UNIQUE: return unique(m, v, a);
	case CHAT_FILTER_COUNT: break;
	}
	return chat_fail(m, CHAT_BAD_VALUE, "a filter that is not known");
}

/* Tests ---------------------------------------------------------------------------------------- */

static bool is_same(Val a, Val b)
{
	if (a.tag != b.tag)
		return false;
	switch (a.tag) {
	case V_NONE: return true;
	case V_BOOL: return a.truth == b.truth;
	case V_INT: return a.integer == b.integer;
	case V_FLOAT: return a.real == b.real;
	default: return a.str == b.str;
	}
}

/* Does v % by leave so much? */
static bool leaves(Machine *m, Val v, Val by, int64_t rest)
{
	return is_equal(m, binary(m, CHAT_MOD, v, by), val_int(rest), 0);
}

bool apply_test(Machine *m, ChatTest test, Val v, const Args *a)
{
	const Val other = argument(a, 0, NULL);
	if (failed(m))
		return false;
	if (a->n != tests[test].most || (a->n && a->names[0])) {
		chat_fail(m, CHAT_BAD_VALUE, "test '%s' takes %d argument%s", tests[test].name, tests[test].most,
			tests[test].most == 1 ? "" : "s");
		return false;
	}
	switch (test) {
	case CHAT_T_BOOLEAN: return v.tag == V_BOOL;
	case CHAT_T_CALLABLE: return v.tag >= V_MACRO || v.tag == V_UNDEFINED || v.tag == V_LOOP;
	case CHAT_T_DEFINED: return v.tag != V_UNDEFINED;
	case CHAT_T_UNDEFINED: return v.tag == V_UNDEFINED;
	case CHAT_T_DIVISIBLEBY: return leaves(m, v, other, 0);
	case CHAT_T_EQ: case CHAT_T_EQUALTO: case CHAT_T_EQUALS: return is_equal(m, v, other, 0);
	case CHAT_T_NE: case CHAT_T_NE_SIGN: return !is_equal(m, v, other, 0);
	case CHAT_T_EVEN: return leaves(m, v, val_int(2), 0);
	case CHAT_T_ODD: return leaves(m, v, val_int(2), 1);
	case CHAT_T_FALSE: return v.tag == V_BOOL && !v.truth;
	case CHAT_T_TRUE: return v.tag == V_BOOL && v.truth;
	case CHAT_T_FLOAT: return v.tag == V_FLOAT;
	case CHAT_T_INTEGER: return v.tag == V_INT;
	case CHAT_T_NUMBER: return v.tag == V_INT || v.tag == V_FLOAT || v.tag == V_BOOL;
	case CHAT_T_GE: case CHAT_T_GE_SIGN: return compare(m, v, other, 0) >= 0;
	case CHAT_T_GREATERTHAN: case CHAT_T_GT: case CHAT_T_GT_SIGN: return compare(m, v, other, 0) > 0;
	case CHAT_T_LE: case CHAT_T_LE_SIGN: return compare(m, v, other, 0) <= 0;
	case CHAT_T_LESSTHAN: case CHAT_T_LT: case CHAT_T_LT_SIGN: return compare(m, v, other, 0) < 0;
	case CHAT_T_IN: return is_in(m, v, other);
	case CHAT_T_ITERABLE: return v.tag == V_STRING || is_listed(v) || v.tag == V_DICT || v.tag == V_UNDEFINED ||
		v.tag == V_LOOP;
	case CHAT_T_SEQUENCE: return v.tag == V_STRING || v.tag == V_LIST || v.tag == V_TUPLE || v.tag == V_RANGE ||
		v.tag == V_DICT || v.tag == V_UNDEFINED;
	case CHAT_T_LOWER: return string_is_case(m, to_str(m, v), CASE_LOWER);
	case CHAT_T_UPPER: return string_is_case(m, to_str(m, v), CASE_UPPER);
	case CHAT_T_MAPPING: return v.tag == V_DICT;
	case CHAT_T_NONE: return v.tag == V_NONE;
	case CHAT_T_SAMEAS: return is_same(v, other);
	case CHAT_T_STRING: return v.tag == V_STRING;
	case CHAT_TEST_COUNT: break;
	}
	chat_fail(m, CHAT_BAD_VALUE, "a test that is not known");
	return false;
}
