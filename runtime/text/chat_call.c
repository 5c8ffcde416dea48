/* chat_call.c - what a chat template can call: methods of values, functions that every template has, macros. */
#include "runtime/text/chat_machine.h"

#include <time.h>

/* Methods of lists, dicts and loops ------------------------------------------------------------ */

static Val dict_view(Machine *m, const Dict *d, ChatMethod method)
{
	Val out = list_new(m, V_VIEW, d->n);
	for (size_t i = 0; i < d->n && !failed(m); i++) {
		Val one = method == CHAT_M_KEYS ? d->at[i].key : d->at[i].value;
		if (method == CHAT_M_ITEMS) {
			one = list_new(m, V_TUPLE, 2);
			list_push(m, one.list, d->at[i].key);
			list_push(m, one.list, d->at[i].value);
		}
		list_push(m, out.list, one);
	}
	return out;
}

static Val list_method(Machine *m, const List *l, ChatMethod method, Val what)
{
	int64_t n = 0;
	for (size_t i = 0; i < l->n && !failed(m); i++) {
		if (!is_equal(m, l->at[i], what, 0))
			continue;
		if (method == CHAT_M_INDEX)
			return val_int((int64_t)i);
		n++;
	}
	return method == CHAT_M_COUNT ? val_int(n) : chat_fail(m, CHAT_BAD_VALUE, "index: the value is not in the list");
}

static Val loop_method(Machine *m, Loop *l, const Str *name, const Args *a)
{
	if (string_is(name, "cycle"))
		return a->n ? a->at[l->at % (size_t)a->n] : chat_fail(m, CHAT_BAD_VALUE, "no items for cycling given");
	Val now = list_new(m, V_TUPLE, (size_t)a->n);
	for (int i = 0; i < a->n; i++)
		list_push(m, now.list, a->at[i]);
	const bool changed = l->changed.tag != V_TUPLE || !is_equal(m, l->changed, now, 0);
	l->changed = now;
	return val_bool(changed);
}

static Val call_method(Machine *m, const Bound *b, const Args *a)
{
	static const Args none = {.n = 0};
	const Val self = b->self, first = argument(a, 0, NULL);
	const ChatMethod method = (ChatMethod)b->method;
	if (self.tag == V_LOOP)
		return loop_method(m, self.loop, b->name, a);
	if (b->method >= 0 && self.tag == V_STRING)
		return string_method(m, self.str, method, a);
	if (self.tag == V_DICT && method == CHAT_M_GET && is_given(first)) {
		uint64_t known = first.tag == V_LIST || first.tag == V_DICT;
		const Val *found = known ? NULL : dict_get(m, self.dict, first), other = argument(a, 1, NULL);
		return known ? chat_fail(m, CHAT_BAD_VALUE, "unhashable type: '%s'", type_name(first)) : found ? *found
			: is_given(other) ? other : val_none();
	}
	if (self.tag == V_DICT && (method == CHAT_M_ITEMS || method == CHAT_M_KEYS || method == CHAT_M_VALUES) &&
		a->n == none.n)
		return dict_view(m, self.dict, method);
	if ((self.tag == V_LIST || self.tag == V_TUPLE || self.tag == V_RANGE) && is_given(first) &&
		(method == CHAT_M_COUNT || method == CHAT_M_INDEX))
		return list_method(m, self.list, method, first);
	return chat_fail(m, CHAT_BAD_VALUE, "%s.%.*s with these arguments is not implemented", type_name(self),
		b->name->n < 40 ? (int)b->name->n : 40, b->name->p);
}

/* Functions ------------------------------------------------------------------------------------ */

/* dict(...) and namespace(...): a mapping or pairs, then names. */
static Val make_dict(Machine *m, Tag tag, const Args *a)
{
	Val out = dict_new(m, tag);
	for (int i = 0; i < a->n && !failed(m); i++) {
		if (a->names[i]) {
			dict_put(m, out.dict, (Val){.tag = V_STRING, .str = a->names[i]}, a->at[i]);
			continue;
		}
		if (i)
			return chat_fail(m, CHAT_BAD_VALUE, "dict expected at most 1 argument, got %d", i + 1);
		if (a->at[i].tag == V_DICT) {
			const Dict *from = a->at[i].dict;
			for (size_t k = 0; k < from->n && !failed(m); k++)
				dict_put(m, out.dict, from->at[k].key, from->at[k].value);
			continue;
		}
		const List *pairs = elements(m, a->at[i]);
		for (size_t k = 0; k < pairs->n && !failed(m); k++) {
			const List *pair = elements(m, pairs->at[k]);
			if (pair->n != 2)
				return chat_fail(m, CHAT_BAD_VALUE, "dict: an element is no pair");
			dict_put(m, out.dict, pair->at[0], pair->at[1]);
		}
	}
	return out;
}

static Val make_range(Machine *m, const Args *a)
{
	int64_t bounds[3] = {0, 0, 1};
	for (int i = 0; i < a->n && i < 3; i++)
		if (!whole_number(m, a->at[i], &bounds[a->n == 1 ? 1 : i]))
			return chat_fail(m, CHAT_BAD_VALUE, "'%s' object cannot be interpreted as an integer", type_name(a->at[i]));
	const int64_t from = bounds[0], to = bounds[1], step = bounds[2];
	if (a->n < 1 || a->n > 3 || !step)
		return chat_fail(m, CHAT_BAD_VALUE, "range: expected one to three numbers, the third not 0");
	const double n = ((double)to - (double)from) / (double)step;
	if (n > CHAT_MAX_RANGE)
		return chat_fail(m, CHAT_BAD_VALUE, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
			CHAT_MAX_RANGE);
	Val out = list_new(m, V_RANGE, 0);
	for (int64_t i = from; (step > 0 ? i < to : i > to) && list_push(m, out.list, val_int(i));)
		if (__builtin_add_overflow(i, step, &i))
			break;
	out.list->next = (size_t)to;
	return out;
}

static Val time_text(Machine *m, const Args *a)
{
	char out[512];
	struct tm tm;
	const time_t now = (time_t)m->now;
	const Val format = argument(a, 0, "format");
	if (format.tag != V_STRING || a->n != 1)
		return chat_fail(m, CHAT_BAD_VALUE, "strftime_now: expected one text");
	if (!format.str->n)
		return format;
	char *pattern = chat_alloc(m, format.str->n + 1);
	if (!pattern)
		return val_none();
	memcpy(pattern, format.str->p, format.str->n);
	const locale_t c = chat_locale(m);
	const size_t n = c && gmtime_r(&now, &tm) ? strftime_l(out, sizeof out, pattern, &tm, c) : 0;
	if (!n || format.str->n > 200)
		return chat_fail(m, CHAT_BAD_VALUE, "strftime_now: the time cannot be written like that");
	Text t = {0};
	text_put(m, &t, out, n, format.str->has_marked);
	return text_value(m, &t);
}

static Val call_function(Machine *m, ChatGlobalFunc f, const Args *a)
{
	const Str *words;
	switch (f) {
	case CHAT_G_DICT: return make_dict(m, V_DICT, a);
	case CHAT_G_NAMESPACE: return make_dict(m, V_NAMESPACE, a);
	case CHAT_G_RANGE: return make_range(m, a);
	case CHAT_G_STRFTIME: return time_text(m, a);
	case CHAT_G_RAISE:
		if (a->n != 1)
			return chat_fail(m, CHAT_BAD_VALUE, "raise_exception takes one argument");
		words = to_str(m, a->at[0]);
		return chat_fail(m, CHAT_RAISED, "%.*s", words->n < 500 ? (int)words->n : 500, words->p);
	default: return chat_fail(m, CHAT_BAD_VALUE, "a function that is not known");
	}
}

Val chat_call(Machine *m, Val callee, const Args *a)
{
	if (failed(m))
		return val_none();
	switch (callee.tag) {
	case V_MACRO: return run_macro(m, callee.macro, a);
	case V_METHOD: return call_method(m, callee.bound, a);
	case V_FUNCTION: return call_function(m, (ChatGlobalFunc)callee.integer, a);
	case V_UNDEFINED: return chat_undefined_fail(m, callee);
	default: return chat_fail(m, CHAT_BAD_VALUE, "'%s' object is not callable", type_name(callee));
	}
}
