/* chat_strings.c - strings of a chat template: Python's str, counted in code points.
 *
 * Parts of a string share its bytes; what is put together is new. Every byte keeps its mark.
 */
#include "runtime/text/chat_machine.h"
#include "runtime/text/case_tables.h"

static size_t take(const Str *s, size_t at, uint32_t *cp)
{
	return utf8_take((const unsigned char *)s->p + at, s->n - at, cp);
}
static size_t back(const Str *s, size_t end, uint32_t *cp)
{
	const size_t k = utf8_back((const unsigned char *)s->p, end);
	utf8_take((const unsigned char *)s->p + end - k, k, cp);
	return k;
}

size_t string_length(const Str *s)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++)
		n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
	return n;
}

size_t string_offset(const Str *s, size_t points)
{
	size_t at = 0;
	while (points-- && at < s->n)
		for (at++; at < s->n && ((unsigned char)s->p[at] & 0xC0) == 0x80; at++)
			;
	return at;
}

size_t string_find(const Str *s, const Str *what, size_t from)
{
	const char *at = from > s->n ? NULL : what->n ? memmem(s->p + from, s->n - from, what->p, what->n) : s->p + from;
	return at ? (size_t)(at - s->p) : SIZE_MAX;
}

static bool is_white(uint32_t cp)
{
	return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
		(cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static bool is_line_end(uint32_t cp)
{
	return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The range of a table that a code point is in; 0 = none. */
static uint32_t range_of(const uint32_t *ranges, size_t n_ranges, uint32_t cp)
{
	size_t low = 0, high = n_ranges;
	while (low < high) { /* the first range that begins after cp */
		const size_t mid = (low + high) / 2;
		if (ranges[mid] >> 11 <= cp)
			low = mid + 1;
		else
			high = mid;
	}
	const uint32_t range = low ? ranges[low - 1] : 0, n = range & 0x3ff;
	return cp - (range >> 11) < (range & 0x400 ? n << 10 : n) ? range : 0;
}

bool is_printable(uint32_t cp) { return !range_of(hidden_ranges, COUNT(hidden_ranges), cp); }

char *string_number(Machine *m, const Str *s)
{
	char *out = chat_work(m, s->n / 16) ? chat_alloc(m, s->n + 1) : NULL;
	size_t n = 0, end = 0;
	for (size_t at = 0, k; out && at < s->n; at += k) {
		uint32_t cp;
		k = take(s, at, &cp);
		const uint32_t digits = cp < 0x80 ? 0 : range_of(digit_ranges, COUNT(digit_ranges), cp);
		const bool blank = cp < 0x80 ? cp == ' ' || (cp >= 9 && cp <= 13) : is_white(cp);
		const uint32_t ascii = digits ? '0' + (cp - (digits >> 11)) % 10 : blank ? ' ' : cp && cp < 0x80 ? cp : '?';
		if (!blank || n)
			out[n++] = (char)ascii;
		end = blank ? end : n;
	}
	if (out)
		out[end] = 0;
	return end ? out : NULL;
}

/* Stripping, splitting ------------------------------------------------------------------------- */

static bool is_of(const Str *set, const char *p, size_t n, uint32_t cp)
{
	if (!set)
		return is_white(cp);
	const Str one = {.p = p, .n = n};
	return string_find(set, &one, 0) != SIZE_MAX;
}

Val string_strip(Machine *m, const Str *s, const Str *set, int sides)
{
	size_t from = 0, to = s->n, k;
	uint32_t cp;
	while (sides & STRIP_LEFT && from < to && (k = take(s, from, &cp), is_of(set, s->p + from, k, cp)))
		from += k;
	while (sides & STRIP_RIGHT && to > from && (k = back(s, to, &cp), is_of(set, s->p + to - k, k, cp)))
		to -= k;
	chat_work(m, (s->n - (to - from)) / 16);
	return string_part(m, s, from, to - from);
}

static size_t skip(const Str *s, size_t at, bool white)
{
	uint32_t cp;
	size_t k;
	while (at < s->n && (k = take(s, at, &cp), is_white(cp) == white))
		at += k;
	return at;
}

static size_t skip_back(const Str *s, size_t at, bool white)
{
	uint32_t cp;
	size_t k;
	while (at && (k = back(s, at, &cp), is_white(cp) == white))
		at -= k;
	return at;
}

static size_t find_back(const Str *s, const Str *what, size_t end) /* where one begins that ends at or before `end` */
{
	for (size_t at = end; at >= what->n; at--) {
		if (memcmp(s->p + at - what->n, what->p, what->n) == 0)
			return at - what->n;
		if (!at)
			break;
	}
	return SIZE_MAX;
}

static void turn(List *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		const Val v = l->at[i];
		l->at[i] = l->at[l->n - 1 - i];
		l->at[l->n - 1 - i] = v;
	}
}

static void split_right(Machine *m, const Str *s, const Str *by, int64_t most, List *out)
{
	size_t end = s->n;
	if (!by)
		end = skip_back(s, end, true);
	while (!failed(m) && (by || end)) {
		size_t at = most-- == 0 ? SIZE_MAX : by ? find_back(s, by, end) : skip_back(s, end, false);
		if (at == SIZE_MAX) {
			list_push(m, out, string_part(m, s, 0, end));
			break;
		}
		const size_t begin = by ? at + by->n : at;
		list_push(m, out, string_part(m, s, begin, end - begin));
		end = by ? at : skip_back(s, at, true);
	}
	turn(out);
}

static void split_left(Machine *m, const Str *s, const Str *by, int64_t most, List *out)
{
	size_t from = by ? 0 : skip(s, 0, true);
	while (!failed(m) && (by || from < s->n)) {
		size_t end = most-- == 0 ? SIZE_MAX : by ? string_find(s, by, from) : skip(s, from, false);
		if (end == SIZE_MAX) {
			list_push(m, out, string_part(m, s, from, s->n - from));
			break;
		}
		list_push(m, out, string_part(m, s, from, end - from));
		from = by ? end + by->n : skip(s, end, true);
	}
}

/* by NULL: runs of white space. most < 0: everywhere. */
static Val string_split(Machine *m, const Str *s, const Str *by, int64_t most, bool from_right)
{
	Val out = list_new(m, V_LIST, 0);
	if (by && !by->n)
		return chat_fail(m, CHAT_BAD_VALUE, "split by an empty text");
	if (!chat_work(m, s->n / 16))
		return out;
	(from_right ? split_right : split_left)(m, s, by, most, out.list);
	return out;
}

Val string_lines(Machine *m, const Str *s, bool keep_ends)
{
	Val out = list_new(m, V_LIST, 0);
	chat_work(m, s->n / 16);
	for (size_t from = 0, at = 0, k; at < s->n && !failed(m); from = at) {
		uint32_t cp = 0;
		size_t end = at;
		while (at < s->n) {
			k = take(s, at, &cp);
			end = at;
			at += k;
			if (is_line_end(cp))
				break;
			end = at;
		}
		if (cp == '\r' && at < s->n && s->p[at] == '\n')
			at++;
		list_push(m, out.list, string_part(m, s, from, (keep_ends ? at : end) - from));
	}
	return out;
}

Val string_replace(Machine *m, const Str *s, const Str *old, const Str *new, int64_t most)
{
	Text t = {0};
	size_t from = 0;
	uint32_t cp;
	if (!chat_work(m, s->n / 16))
		return (Val){.tag = V_UNDEFINED};
	for (size_t at = 0; most-- != 0 && !failed(m);) {
		if (!old->n) { /* before every code point, and at the end */
			const size_t k = at < s->n ? take(s, at, &cp) : 0;
			text_put_str(m, &t, new);
			text_put_part(m, &t, s, at, k);
			from = at += k;
			if (!k)
				break;
			continue;
		}
		at = string_find(s, old, from);
		if (at == SIZE_MAX)
			break;
		text_put_part(m, &t, s, from, at - from);
		text_put_str(m, &t, new);
		from = at + old->n;
	}
	if (!from && !t.n)
		return string_part(m, s, 0, s->n);
	text_put_part(m, &t, s, from, s->n - from);
	return text_value(m, &t);
}

/* Escaped for HTML. */
void put_markup(Machine *m, Text *t, const Str *s)
{
	static const char from[] = "&<>'\"";
	static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
	size_t plain = 0;
	for (size_t i = 0; i < s->n && !failed(m); i++) {
		const char *known = s->p[i] ? strchr(from, s->p[i]) : NULL;
		if (!known)
			continue;
		text_put_part(m, t, s, plain, i - plain);
		text_put(m, t, to[known - from], strlen(to[known - from]), string_is_mixed(s) ? s->m[i] : s->has_marked);
		plain = i + 1;
	}
	text_put_part(m, t, s, plain, s->n - plain);
}

Val string_join(Machine *m, const Str *between, List *items, const Str *attribute)
{
	Text t = {0};
	for (size_t i = 0; i < items->n && !failed(m); i++) {
		if (i)
			text_put_str(m, &t, between);
		put_value(m, &t, attribute ? get_path(m, items->at[i], attribute) : items->at[i]);
	}
	return text_value(m, &t);
}

/* Case ----------------------------------------------------------------------------------------- */

static const char *case_text(const CaseText *texts, size_t n, uint32_t cp)
{
	for (size_t i = 0; i < n && texts[i].cp <= cp; i++)
		if (texts[i].cp == cp)
			return texts[i].to;
	return NULL;
}

/* The row of a code point; NULL = none. */
static const CaseRow *case_row(const CaseRow *rows, size_t n, uint32_t cp)
{
	size_t low = 0, high = n;
	while (low < high) {
		const size_t mid = (low + high) / 2;
		if (rows[mid].last < cp)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && cp >= rows[low].first && (cp - rows[low].first) % rows[low].step == 0 ? &rows[low] : NULL;
}

static uint32_t to_case(uint32_t cp, CaseMap map, const char **text)
{
	*text = NULL;
	if (cp < 0x80)
		return map == CASE_LOWER ? cp >= 'A' && cp <= 'Z' ? cp + 32 : cp : cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
	const CaseRow *row = NULL;
	if (map == CASE_LOWER) {
		*text = case_text(lower_texts, COUNT(lower_texts), cp);
		row = case_row(lower_rows, COUNT(lower_rows), cp);
	} else if (map != CASE_UPPER) { /* where it is not the upper case */
		*text = case_text(title_texts, COUNT(title_texts), cp);
		row = case_row(title_rows, COUNT(title_rows), cp);
	}
	if (map != CASE_LOWER && !*text && !row) {
		*text = case_text(upper_texts, COUNT(upper_texts), cp);
		row = case_row(upper_rows, COUNT(upper_rows), cp);
	}
	return row ? cp + (uint32_t)row->delta : cp;
}

/* CASE_LOWER, CASE_UPPER or CASE_TITLE: what the letter itself is; -1 = it has no case. */
static int letter_case(uint32_t cp)
{
	const char *text, *other;
	const bool has_lower = to_case(cp, CASE_LOWER, &text) != cp || text;
	const bool has_upper = to_case(cp, CASE_UPPER, &other) != cp || other;
	if (has_lower || has_upper)
		return has_lower && has_upper ? CASE_TITLE : has_lower ? CASE_UPPER : CASE_LOWER;
	return cp < 0x80 ? -1
		: range_of(small_ranges, COUNT(small_ranges), cp) ? CASE_LOWER
		: range_of(capital_ranges, COUNT(capital_ranges), cp) ? CASE_UPPER : -1;
}

static bool is_ignorable(uint32_t cp) { return range_of(ignorable_ranges, COUNT(ignorable_ranges), cp); }

/* Is the capital sigma at `at` the end of a word that begins at or after `from`? It has a small letter of its own then.
 * Marks, apostrophes and full stops are looked through. */
static bool ends_word(const Str *s, size_t from, size_t at)
{
	uint32_t cp = 0x27;
	size_t end = at + 2;
	while (at > from && is_ignorable(cp))
		at -= back(s, at, &cp);
	if (is_ignorable(cp) || letter_case(cp) < 0)
		return false;
	for (cp = 0x27; end < s->n && is_ignorable(cp);)
		end += take(s, end, &cp);
	return is_ignorable(cp) || letter_case(cp) < 0;
}

Val string_case(Machine *m, const Str *s, CaseMap map)
{
	Text t = {0};
	bool in_word = false;
	size_t from = 0; /* what is turned to lower case as one: of the filter `title`, a word without its first letter */
	for (size_t at = 0, k; at < s->n && !failed(m); at += k) {
		uint32_t cp;
		const char *text = NULL;
		unsigned char out[UTF8_MAX];
		k = take(s, at, &cp);
		const bool marked = string_is_mixed(s) ? s->m[at] : s->has_marked;
		CaseMap to = map == CASE_UPPER || map == CASE_LOWER ? map : in_word ? CASE_LOWER : CASE_TITLE;
		if (map == CASE_WORDS && !in_word) {
			to = CASE_UPPER;
			from = at + k;
		}
		const bool is_final = to == CASE_LOWER && cp == 0x3A3 && ends_word(s, from, at);
		const uint32_t turned = is_final ? 0x3C2 : to_case(cp, to, &text);
		in_word = map == CASE_CAPITAL || (map == CASE_TITLE && letter_case(cp) >= 0) ||
			(map == CASE_WORDS && !is_white(cp) && !(cp && cp < 0x80 && strchr("-({[<", (int)cp)));
		if (text)
			text_put(m, &t, text, strlen(text), marked);
		else
			text_put(m, &t, (const char *)out, (size_t)utf8_write(out, turned), marked);
	}
	return text_value(m, &t);
}

/* islower, isupper: a letter of that case is there, and none of another. */
bool string_is_case(Machine *m, const Str *s, CaseMap map)
{
	bool any = false;
	chat_work(m, s->n / 16);
	for (size_t at = 0, k; at < s->n; at += k) {
		uint32_t cp;
		k = take(s, at, &cp);
		const int has = letter_case(cp);
		if (has >= 0 && has != (int)map)
			return false;
		any |= has >= 0;
	}
	return any;
}

/* Methods -------------------------------------------------------------------------------------- */

static Val bad_argument(Machine *m, const char *method, Val v, const char *expected)
{
	return chat_fail(m, CHAT_BAD_VALUE, "%s: expected %s, not '%s'", method, expected, type_name(v));
}

static const char *const method_names[] = {
#define CHAT_ROW(name, text) text,
	CHAT_METHODS(CHAT_ROW)
#undef CHAT_ROW
};

/* startswith, endswith: a text or a tuple of them. */
static Val affix(Machine *m, const Str *s, ChatMethod method, Val what)
{
	const bool is_end = method == CHAT_M_ENDSWITH;
	const List one = {.at = &what, .n = 1};
	const List *all = what.tag == V_TUPLE ? what.list : &one;
	bool found = false;
	for (size_t i = 0; i < all->n; i++) {
		if (all->at[i].tag != V_STRING)
			return bad_argument(m, method_names[method], all->at[i], "a text or a tuple of texts");
		const Str *k = all->at[i].str;
		found |= k->n <= s->n && memcmp(s->p + (is_end ? s->n - k->n : 0), k->p, k->n) == 0;
	}
	return val_bool(found);
}

/* find, rfind, index, count, in code points; with a start and an end. */
static Val search(Machine *m, const Str *s, ChatMethod method, const Args *a)
{
	const Val what = argument(a, 0, NULL);
	int64_t n = (int64_t)string_length(s), from = 0, to = n;
	if (what.tag != V_STRING)
		return bad_argument(m, method_names[method], what, "a text");
	for (int i = 1; i < 3; i++) {
		const Val place = argument(a, i, NULL);
		if (is_given(place) && place.tag != V_NONE && !whole_number(m, place, i == 1 ? &from : &to))
			return bad_argument(m, method_names[method], place, "whole numbers");
	}
	from = from < 0 ? from + n < 0 ? 0 : from + n : from;
	to = to < 0 ? to + n < 0 ? 0 : to + n : to > n ? n : to;
	const size_t begin = string_offset(s, (size_t)from), end = string_offset(s, (size_t)to);
	const Str part = {.p = s->p + begin, .n = from > to || from > n ? 0 : end - begin};
	const bool none = from > to || from > n;
	size_t at = none ? SIZE_MAX : method == CHAT_M_RFIND ? find_back(&part, what.str, part.n)
		: string_find(&part, what.str, 0);
	if (!chat_work(m, s->n / 16))
		return val_none();
	if (method == CHAT_M_COUNT) {
		int64_t found = 0;
		if (!none && !what.str->n)
			return val_int((int64_t)string_length(&part) + 1);
		for (; at != SIZE_MAX; at = string_find(&part, what.str, at + what.str->n))
			found++;
		return val_int(found);
	}
	if (at == SIZE_MAX && method == CHAT_M_INDEX)
		return chat_fail(m, CHAT_BAD_VALUE, "index: substring not found");
	const Str before = {.p = part.p, .n = at};
	return val_int(at == SIZE_MAX ? -1 : from + (int64_t)string_length(&before));
}

static Val split(Machine *m, const Str *s, ChatMethod method, const Args *a)
{
	const Val by = argument(a, 0, "sep"), limit = argument(a, 1, "maxsplit");
	int64_t most = -1;
	if (is_given(by) && by.tag != V_NONE && by.tag != V_STRING)
		return bad_argument(m, method_names[method], by, "a text or none");
	if (is_given(limit) && !whole_number(m, limit, &most))
		return bad_argument(m, method_names[method], limit, "a whole number");
	return string_split(m, s, by.tag == V_STRING ? by.str : NULL, most, method == CHAT_M_RSPLIT);
}

static Val is_kind(Machine *m, const Str *s, ChatMethod method)
{
	bool all = s->n > 0;
	for (size_t i = 0; i < s->n; i++) {
		const unsigned char c = (unsigned char)s->p[i];
		if (c >= 0x80)
			return chat_fail(m, CHAT_BAD_VALUE, "%s of a text beyond ASCII is not implemented", method_names[method]);
		all &= method == CHAT_M_ISDIGIT ? c >= '0' && c <= '9' : (c | 32) >= 'a' && (c | 32) <= 'z';
	}
	return val_bool(all);
}

static Val replace(Machine *m, const Str *s, const Args *a)
{
	const Val old = argument(a, 0, NULL), new = argument(a, 1, NULL), count = argument(a, 2, "count");
	int64_t most = -1;
	if (old.tag != V_STRING || new.tag != V_STRING)
		return bad_argument(m, "replace", old.tag != V_STRING ? old : new, "two texts");
	if (is_given(count) && !whole_number(m, count, &most))
		return bad_argument(m, "replace", count, "a whole number");
	return string_replace(m, s, old.str, new.str, most);
}

/* str.format: {}, as str() writes the values. */
static Val format(Machine *m, const Str *s, const Args *a)
{
	Text t = {0};
	int next = 0;
	for (size_t at = 0; at < s->n && !failed(m);) {
		const char c = s->p[at], then = at + 1 < s->n ? s->p[at + 1] : 0;
		const bool is_brace = c == '{' || c == '}', is_value = c == '{' && then == '}';
		if (is_brace && then != c && !(is_value && next < a->n && !a->names[next]))
			return chat_fail(m, CHAT_BAD_VALUE, "format of other than {} is not implemented, or there is no value");
		if (is_value)
			put_value(m, &t, a->at[next++]);
		else
			text_put_part(m, &t, s, at, 1);
		at += is_brace ? 2 : 1;
	}
	return text_value(m, &t);
}

Val string_method(Machine *m, const Str *s, ChatMethod method, const Args *a)
{
	const Val first = argument(a, 0, NULL);
	const int sides = method == CHAT_M_LSTRIP ? STRIP_LEFT : method == CHAT_M_RSTRIP ? STRIP_RIGHT
		: STRIP_LEFT | STRIP_RIGHT;
	switch (method) {
	case CHAT_M_LOWER: return string_case(m, s, CASE_LOWER);
	case CHAT_M_UPPER: return string_case(m, s, CASE_UPPER);
	case CHAT_M_CAPITALIZE: return string_case(m, s, CASE_CAPITAL);
	case CHAT_M_TITLE: return string_case(m, s, CASE_TITLE);
	case CHAT_M_STRIP: case CHAT_M_LSTRIP: case CHAT_M_RSTRIP:
		if (is_given(first) && first.tag != V_NONE && first.tag != V_STRING)
			return bad_argument(m, method_names[method], first, "a text or none");
		return string_strip(m, s, first.tag == V_STRING ? first.str : NULL, sides);
	case CHAT_M_SPLIT: case CHAT_M_RSPLIT: return split(m, s, method, a);
	case CHAT_M_SPLITLINES: return string_lines(m, s, is_true(argument(a, 0, "keepends")));
	case CHAT_M_STARTSWITH: case CHAT_M_ENDSWITH:
		return a->n > 1 ? chat_fail(m, CHAT_BAD_VALUE, "%s: only one argument is implemented", method_names[method])
			: affix(m, s, method, first);
	case CHAT_M_FIND: case CHAT_M_RFIND: case CHAT_M_INDEX: case CHAT_M_COUNT: return search(m, s, method, a);
	case CHAT_M_REPLACE: return replace(m, s, a);
	case CHAT_M_ISALPHA: case CHAT_M_ISDIGIT: return is_kind(m, s, method);
	case CHAT_M_FORMAT: return format(m, s, a);
	case CHAT_M_REMOVEPREFIX: case CHAT_M_REMOVESUFFIX: {
		const Val has = affix(m, s, method == CHAT_M_REMOVEPREFIX ? CHAT_M_STARTSWITH : CHAT_M_ENDSWITH, first);
		const size_t n = has.tag == V_BOOL && has.truth && first.tag == V_STRING ? first.str->n : 0;
		return string_part(m, s, method == CHAT_M_REMOVEPREFIX ? n : 0, s->n - n);
	}
	case CHAT_M_JOIN: {
		List *items = elements(m, first);
		for (size_t i = 0; i < items->n; i++)
			if (items->at[i].tag != V_STRING)
				return bad_argument(m, "join", items->at[i], "texts");
		return string_join(m, s, items, NULL);
	}
	default: return chat_fail(m, CHAT_BAD_VALUE, "'str object' has no attribute '%s'", method_names[method]);
	}
}
