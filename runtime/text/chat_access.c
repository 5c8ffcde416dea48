/* chat_access.c - attributes, items and slices of values, as jinja2's sandbox gives them.
 *
 * x.name looks for an attribute of Python's type first, so that `.items` of a dict is its method whatever keys it has,
 * then for an item; x[key] the other way round. What neither finds is undefined. Methods that change a value are
 * undefined, too: the sandbox of transformers is immutable.
 */
#include "runtime/text/chat_machine.h"

static const char *const method_names[] = {
#define CHAT_ROW(name, text) text,
	CHAT_METHODS(CHAT_ROW)
#undef CHAT_ROW
};

/* All attributes without an underscore, with blanks around; `changing`: those that the sandbox refuses. */
static const char of_str[] = " capitalize casefold center count encode endswith expandtabs find format format_map "
	"index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
	"isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust "
	"rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill ";
static const char of_dict[] = " copy fromkeys get items keys values ", changes_dict[] = " clear pop popitem setdefault "
	"update ";
static const char of_list[] = " copy count index ";
static const char changes_list[] = " append clear extend insert pop remove reverse sort ";
static const char of_tuple[] = " count index ";

static bool is_among(const char *names, const Str *name)
{
	if (!names || !name->n || name->n > 20 || memchr(name->p, ' ', name->n))
		return false;
	for (const char *at = names; (at = memmem(at, strlen(at), name->p, name->n)) != NULL; at++)
		if (at > names && at[-1] == ' ' && at[name->n] == ' ')
			return true;
	return false;
}

static Val bind(Machine *m, Val self, const Str *name)
{
	Bound *b = chat_alloc(m, sizeof *b);
	if (!b)
		return val_none();
	*b = (Bound){self, -1, name};
	for (size_t i = 0; i < sizeof method_names / sizeof *method_names; i++)
		if (string_is(name, method_names[i]))
			b->method = (int)i;
	return (Val){.tag = V_METHOD, .bound = b};
}

/* A method of the value's type: true, with it or, where it changes the value, with undefined. */
static bool get_method(Machine *m, Val of, const Str *name, Val *out)
{
	const char *names = NULL, *changing = NULL;
	switch (of.tag) {
	case V_STRING: names = of_str; break;
	case V_DICT: names = of_dict; changing = changes_dict; break;
	case V_LIST: names = of_list; changing = changes_list; break;
	case V_TUPLE: case V_RANGE: names = of_tuple; break;
	default: return false;
	}
	if (is_among(changing, name))
		*out = chat_undefined(m, of, (Val){.tag = V_STRING, .str = name});
	else if (is_among(names, name))
		*out = bind(m, of, name);
	else
		return false;
	return true;
}

static Val loop_attribute(Machine *m, Val of, const Str *name)
{
	const Loop *l = of.loop;
	const int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
	const Val string = {.tag = V_STRING, .str = name};
	const struct { const char *name; int64_t value; } numbers[] = {{"index0", at}, {"index", at + 1}, {"length", n},
		{"revindex", n - at}, {"revindex0", n - at - 1}, {"depth", 1}, {"depth0", 0}};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (string_is(name, numbers[i].name))
			return val_int(numbers[i].value);
	if (string_is(name, "first") || string_is(name, "last"))
		return val_bool(name->p[0] == 'f' ? at == 0 : at == n - 1);
	if (string_is(name, "previtem") || string_is(name, "nextitem")) {
		const int64_t i = name->p[0] == 'p' ? at - 1 : at + 1;
		return i >= 0 && i < n ? l->items->at[i] : chat_undefined(m, (Val){.tag = V_ABSENT}, string);
	}
	if (string_is(name, "cycle") || string_is(name, "changed"))
		return bind(m, of, name);
	return chat_undefined(m, of, string);
}

Val get_attribute(Machine *m, Val of, const Str *name)
{
	const Val *found = NULL;
	const Val string = {.tag = V_STRING, .str = name};
	Val out;
	if (failed(m) || of.tag == V_UNDEFINED)
		return chat_undefined_fail(m, of);
	if (get_method(m, of, name, &out))
		return out;
	if (of.tag == V_LOOP)
		return loop_attribute(m, of, name);
	if (of.tag == V_DICT || of.tag == V_NAMESPACE)
		found = dict_find(of.dict, name->p, name->n);
	if (of.tag == V_MACRO && string_is(name, "name")) {
		const ChatText t = m->p->funcs[of.macro->func].name;
		return chat_literal(m, m->p->text + t.at, t.n, false);
	}
	return found ? *found : chat_undefined(m, of, string);
}

static bool at_index(Val key, size_t n, size_t *at)
{
	if (key.tag != V_INT && key.tag != V_BOOL)
		return false;
	int64_t i = key.tag == V_BOOL ? key.truth : key.integer;
	i = i < 0 ? i + (int64_t)n : i;
	*at = (size_t)i;
	return i >= 0 && i < (int64_t)n;
}

Val get_item(Machine *m, Val of, Val key)
{
	size_t at;
	Val out;
	if (failed(m) || of.tag == V_UNDEFINED)
		return chat_undefined_fail(m, of);
	if (of.tag == V_DICT) {
		const Val *found = dict_get(m, of.dict, key);
		if (found)
			return *found;
	} else if ((of.tag == V_LIST || of.tag == V_TUPLE || of.tag == V_RANGE) && at_index(key, of.list->n, &at))
		return of.list->at[at];
	else if (of.tag == V_STRING && (key.tag == V_INT || key.tag == V_BOOL)) {
		chat_work(m, of.str->n / 16);
		if (at_index(key, string_length(of.str), &at))
			return get_slice(m, of, val_int((int64_t)at), val_int((int64_t)at + 1), val_none());
	}
	if (key.tag == V_STRING && (of.tag == V_LOOP || of.tag == V_NAMESPACE || of.tag == V_MACRO))
		return get_attribute(m, of, key.str);
	if (key.tag == V_STRING && get_method(m, of, key.str, &out))
		return out;
	return chat_undefined(m, of, key);
}

Val get_path(Machine *m, Val of, const Str *path)
{
	for (size_t from = 0; from <= path->n && !failed(m);) {
		const char *dot = memchr(path->p + from, '.', path->n - from);
		const size_t n = dot ? (size_t)(dot - path->p) - from : path->n - from;
		int64_t index = 0;
		bool digits = n > 0 && n < 10;
		for (size_t i = 0; digits && i < n; i++) {
			const char c = path->p[from + i];
			digits = c >= '0' && c <= '9';
			index = index * 10 + c - '0';
		}
		of = get_item(m, of, digits ? val_int(index) : string_part(m, path, from, n));
		from += n + 1;
	}
	return of;
}

/* A bound of a slice, as Python clips it: from 0 to n, or -1 to n - 1 where it goes down. */
static bool bound_of(Machine *m, Val v, int64_t n, bool down, int64_t missing, int64_t *out)
{
	*out = missing;
	if (!is_given(v) || v.tag == V_NONE)
		return true;
	if (!whole_number(m, v, out)) {
		chat_fail(m, CHAT_BAD_VALUE, "a slice by '%s'", type_name(v));
		return false;
	}
	const int64_t low = down ? -1 : 0, high = down ? n - 1 : n;
	if (*out < 0)
		*out = *out + n < low ? low : *out + n;
	*out = *out > high ? high : *out;
	return true;
}

Val get_slice(Machine *m, Val of, Val from, Val to, Val step)
{
	int64_t by = 1, begin, end;
	const bool text = of.tag == V_STRING;
	if (failed(m) || of.tag == V_UNDEFINED)
		return chat_undefined_fail(m, of);
	if (!text && of.tag != V_LIST && of.tag != V_TUPLE && of.tag != V_RANGE) /* not undefined: jinja2 asks Python */
		return chat_fail(m, CHAT_BAD_VALUE, "'%s' object cannot be sliced", type_name(of));
	const int64_t n = text ? (int64_t)string_length(of.str) : (int64_t)of.list->n;
	if (is_given(step) && step.tag != V_NONE && !whole_number(m, step, &by))
		return chat_fail(m, CHAT_BAD_VALUE, "a slice by '%s'", type_name(step));
	if (!by)
		return chat_fail(m, CHAT_BAD_VALUE, "slice step cannot be zero");
	if (!bound_of(m, from, n, by < 0, by < 0 ? n - 1 : 0, &begin) ||
		!bound_of(m, to, n, by < 0, by < 0 ? -1 : n, &end) || !chat_work(m, text ? of.str->n / 16 : 1))
		return val_none();
	if (text && by == 1) {
		const size_t a = string_offset(of.str, (size_t)begin);
		const Str rest = {.p = of.str->p + a, .n = of.str->n - a};
		return string_part(m, of.str, a, end > begin ? string_offset(&rest, (size_t)(end - begin)) : 0);
	}
	const List *all = text ? elements(m, of) : of.list;
	Val out = list_new(m, of.tag == V_TUPLE ? V_TUPLE : V_LIST, 0);
	by = by > n ? n + 1 : by < -n ? -n - 1 : by;
	for (int64_t i = begin; (by > 0 ? i < end : i > end) && !failed(m) && (size_t)i < all->n; i += by)
		list_push(m, out.list, all->at[i]);
	return text ? string_join(m, &(Str){.p = ""}, out.list, NULL) : out;
}
