/* schema_number.c - numbers between bounds, and multiples, as they are written in decimal.
 *
 * Without a bound a number may have an exponent; with one it has none, and is compared digit by digit.
 */
#include "runtime/grammar/nfa.h"
#include "runtime/grammar/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 340, MOST_REMAINDERS = 4000 };

/* A bound's size: digits before and after the point, "0" before at least, no final zeros after. */
typedef struct Decimal { bool is_negative; char whole[MOST_DIGITS], part[MOST_DIGITS]; } Decimal;

static void to_decimal(json_t *number, Decimal *d)
{
	char s[40];
	int digits = 1;
	double x = json_number_value(number);
	memset(d, 0, sizeof *d);
	if (json_is_integer(number)) { /* of more digits than a double has */
		const json_int_t whole = json_integer_value(number);
		d->is_negative = whole < 0;
		snprintf(d->whole, sizeof d->whole, "%llu",
			whole < 0 ? 0ull - (unsigned long long)whole : (unsigned long long)whole);
		return;
	}
	d->is_negative = x < 0;
	x = fabs(x);
	for (snprintf(s, sizeof s, "%.0e", x); strtod(s, NULL) != x && digits < 18; digits++)
		snprintf(s, sizeof s, "%.*e", digits, x);
	const char *e = strchr(s, 'e');
	int power = atoi(e + 1), n = 0;
	char all[40];
	for (const char *c = s; c < e; c++)
		if (*c != '.')
			all[n++] = *c;
	while (n > 1 && all[n - 1] == '0')
		n--;
	int w = 0, p = 0;
	for (int i = 0; i <= power && w < MOST_DIGITS - 1; i++)
		d->whole[w++] = i < n ? all[i] : '0';
	if (w == 0)
		d->whole[w++] = '0';
	for (int i = power + 1; i < 0; i++)
		if (p < MOST_DIGITS - 1)
			d->part[p++] = '0';
	for (int i = power < 0 ? 0 : power + 1; i < n && p < MOST_DIGITS - 1; i++)
		d->part[p++] = all[i];
	if (x == 0)
		p = 0;
	d->whole[w] = d->part[p] = 0;
}

/* Text that grows. */
typedef struct Text { char *at; size_t n, cap; bool failed; } Text;

static void put(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(Text *t, const char *fmt, ...)
{
	va_list args;
	if (t->n + 2 * MOST_DIGITS + 128 > t->cap) {
		t->cap = t->cap * 2 + 4096;
		char *grown = realloc(t->at, t->cap);
		t->failed |= !grown;
		t->at = grown ? grown : t->at;
	}
	if (t->failed)
		return;
	va_start(args, fmt);
	t->n += (size_t)vsnprintf(t->at + t->n, t->cap - t->n, fmt, args);
	va_end(args);
}

#define FRACTION "(\\.[0-9]+)?"
#define ANY_SIZE "(0|[1-9][0-9]*)" FRACTION

/* Numbers without a sign of at least d, or more than d. */
static void put_at_least(Text *t, const Decimal *d, bool is_strict)
{
	const int n = (int)strlen(d->whole), m = (int)strlen(d->part);
	put(t, "([1-9][0-9]{%d,}%s", n, FRACTION);
	for (int i = 0; i < n; i++)
		if (d->whole[i] < '9')
			put(t, "|%.*s[%c-9][0-9]{%d}%s", i, d->whole, d->whole[i] + 1, n - 1 - i, FRACTION);
	for (int i = 0; i < m; i++)
		if (d->part[i] < '9')
			put(t, "|%s\\.%.*s[%c-9][0-9]*", d->whole, i, d->part, d->part[i] + 1);
	if (is_strict)
		put(t, "|%s\\.%s[0-9]*[1-9][0-9]*)", d->whole, d->part);
	else if (m)
		put(t, "|%s\\.%s[0-9]*)", d->whole, d->part);
	else
		put(t, "|%s%s)", d->whole, FRACTION);
}

/* Numbers without a sign of at most d, or less than d. */
static void put_at_most(Text *t, const Decimal *d, bool is_strict)
{
	const int n = (int)strlen(d->whole), m = (int)strlen(d->part);
	put(t, "(");
	bool any = false;
	if (n > 1) {
		put(t, "(0|[1-9][0-9]{0,%d})%s", n - 2, FRACTION);
		any = true;
	}
	for (int i = 0; i < n; i++) {
		const char least = i == 0 && n > 1 ? '1' : '0';
		if (d->whole[i] <= least)
			continue;
		put(t, "%s%.*s[%c-%c][0-9]{%d}%s", any ? "|" : "", i, d->whole, least, d->whole[i] - 1, n - 1 - i, FRACTION);
		any = true;
	}
	/* the same whole part */
	for (int i = 0; i < m; i++) {
		put(t, "%s%s%s", any ? "|" : "", d->whole, i ? "" : "(\\.0+)?");
		any = true;
		if (i)
			put(t, "\\.%.*s0*", i, d->part); /* its fraction ends before that of d */
		if (d->part[i] > '0')
			put(t, "|%s\\.%.*s[0-%c][0-9]*", d->whole, i, d->part, d->part[i] - 1);
	}
	if (!is_strict) {
		put(t, "%s%s", any ? "|" : "", d->whole);
		put(t, "%s%s%s", m ? "\\." : "(\\.0+)?", d->part, m ? "0*" : "");
		any = true;
	}
	put(t, any ? ")" : "[])");
}

/* *l becomes what is in it and matches. */
static bool narrow(Schemas *b, const char *key, Text *t, Lexeme *l)
{
	Lexeme more = {0}, both = {0};
	Effort *e = &b->g->effort;
	bool ok = !t->failed || effort_refuse(e, "there is no memory", -1);
	ok = ok && lexeme_of_regex(t->at, WHOLE, AS_TEXT, &more, e) && lexeme_combine(l, &more, BOTH, &both, e);
	if (e->why)
		schema_refuse(b, key, "%s", e->why);
	lexeme_free(&more);
	free(t->at);
	if (!ok)
		return false;
	lexeme_free(l);
	*l = both;
	return true;
}

static bool bound(Schemas *b, const char *key, json_t *number, bool is_lower, bool is_strict, Lexeme *l)
{
	Decimal d;
	Text t = {0};
	if (!isfinite(json_number_value(number)))
		return schema_refuse(b, key, "a finite number is expected");
	to_decimal(number, &d);
	const bool is_zero = json_number_value(number) == 0;
	if (is_lower && d.is_negative) /* all without a sign, and small ones with it */
		put(&t, "(%s|-", ANY_SIZE), put_at_most(&t, &d, is_strict), put(&t, ")");
	else if (is_lower)
		put_at_least(&t, &d, is_strict);
	else if (d.is_negative)
		put(&t, "-"), put_at_least(&t, &d, is_strict);
	else if (is_zero && is_strict)
		put(&t, "-"), put_at_least(&t, &d, true);
	else
		put(&t, "(-%s|", ANY_SIZE), put_at_most(&t, &d, is_strict), put(&t, ")");
	return narrow(b, key, &t, l);
}

/* One digit from each remainder to the next: states (remainder, digits after the point). */
static bool multiples(Schemas *b, json_t *of, Lexeme *l)
{
	const double x = json_number_value(of);
	Decimal d;
	Effort *e = &b->g->effort;
	char digits[64];
	to_decimal(of, &d);
	const int k = (int)strlen(d.part);
	snprintf(digits, sizeof digits, "%.30s%.30s", d.whole, d.part);
	const double m = strtod(digits, NULL);
	if (!(x > 0) || strlen(d.whole) > 30 || k > 9 || m * (k + 1) > MOST_REMAINDERS)
		return schema_refuse(b, "multipleOf", "a number above 0 with at most %d remainders is expected",
			MOST_REMAINDERS);
	const uint32_t n = (uint32_t)m;
	Nfa a = {.effort = e};
	nfa_add(&a, (NfaNode){.kind = NFA_PASS});
	const uint32_t accept = nfa_add(&a, (NfaNode){.kind = NFA_ACCEPT});
	uint32_t base = a.n;
	/* the entry of remainder r after j digits of the fraction is node base + j * n + r; j = 0: before it */
	for (uint32_t i = 0; i < n * (uint32_t)(k + 1); i++)
		nfa_add(&a, (NfaNode){.kind = NFA_PASS});
	for (uint32_t j = 0; j <= (uint32_t)k && !e->why; j++)
		for (uint32_t r = 0; r < n && !e->why; r++) {
			uint64_t scaled = r;
			for (uint32_t i = j; i < (uint32_t)k; i++)
				scaled = scaled * 10 % n;
			uint32_t next = NFA_NOTHING;
			if (scaled == 0)
				next = accept;
			for (uint32_t c = 0; c < 10 && (j == 0 || j < (uint32_t)k); c++)
				next = nfa_either(&a, next, nfa_range(&a, '0' + c, '0' + c,
					base + (j ? j + 1 : 0) * n + (r * 10 + c) % n));
			if (j == 0 && k > 0) {
				uint32_t first = NFA_NOTHING;
				for (uint32_t c = 0; c < 10; c++)
					first = nfa_either(&a, first, nfa_range(&a, '0' + c, '0' + c,
						base + n + (r * 10 + c) % n));
				next = nfa_either(&a, next, nfa_range(&a, '.', '.', first));
			}
			if (!e->why)
				a.nodes[base + j * n + r].next = next;
		}
	uint32_t start = base;
	start = nfa_either(&a, nfa_range(&a, '-', '-', base), start);
	Lexeme more = {0}, both = {0};
	const bool ok = !e->why && nfa_lexeme(&a, start, &more) && lexeme_combine(l, &more, BOTH, &both, e);
	nfa_free(&a);
	lexeme_free(&more);
	if (!ok)
		return false;
	lexeme_free(l);
	*l = both;
	return true;
}

static bool add_multiples(Schemas *b, json_t *of, Lexeme *l)
{
	json_t *one;
	size_t i;
	if (json_is_array(of)) {
		json_array_foreach(of, i, one)
			if (!add_multiples(b, one, l))
				return false;
		return true;
	}
	if (!json_is_number(of))
		return schema_refuse(b, "multipleOf", "a number is expected");
	return multiples(b, of, l);
}

/* Without exponents and "-0"; and those of them that no double confounds with another. */
#define PLAIN "(0(\\.0+)?|-?(0\\.[0-9]*[1-9][0-9]*|[1-9][0-9]*(\\.[0-9]+)?))"

#define EXACT "(0(\\.0+)?|-?(0\\.[0-9]{0,9}[1-9][0-9]{0,5}|[1-9][0-9]*|[1-9][0-9]{0,9}\\.[0-9]{1,5}))"

/* In one way each. */
#define TIGHT "(0|-?(0\\.[0-9]*[1-9]|[1-9][0-9]*(\\.[0-9]*[1-9])?))"

static bool narrow_to(Schemas *b, const char *regex, Lexeme *l)
{
	Text t = {0};
	put(&t, "%s", regex);
	return narrow(b, NULL, &t, l);
}

/* *l becomes those of its numbers that const or enum has, however they are written. */
static bool narrow_to_values(Schemas *b, json_t *schema, Lexeme *l)
{
	json_t *constant = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
	Text t = {0};
	put(&t, "([]");
	for (size_t i = 0; i < (constant ? 1 : json_array_size(values)); i++) {
		json_t *one = constant ? constant : json_array_get(values, i);
		Decimal d;
		if (!json_is_number(one))
			continue;
		to_decimal(one, &d);
		put(&t, "|%s%s%s%s%s", d.is_negative ? "-" : "", d.whole, *d.part ? "\\." : "(\\.0+)?", d.part,
			*d.part ? "0*" : "");
	}
	put(&t, ")");
	return narrow(b, "enum", &t, l);
}

/* All numbers that it allows, without exponents, in every way to write them. */
static bool schema_numbers(Schemas *b, json_t *schema, Lexeme *l)
{
	*l = (Lexeme){0};
	if (!(schema = schema_resolve(b, schema)))
		return false;
	if (json_is_true(schema))
		return lexeme_of_regex(PLAIN, WHOLE, AS_TEXT, l, &b->g->effort);
	if (json_is_false(schema) || !schema_check(b, schema) || !schema_allows(schema, "integer"))
		return !schema_failed(b);
	if (b->in_not && json_object_get(schema, "multipleOf"))
		return schema_refuse(b, "multipleOf", "multipleOf is not supported in not, if and branches of oneOf that meet");
	bool ok = schema_number(b, schema, false, l) && narrow_to(b, PLAIN, l);
	if (ok && !schema_allows(schema, "number"))
		ok = narrow_to(b, "-?(0|[1-9][0-9]*)(\\.0+)?", l);
	if (ok && (json_object_get(schema, "const") || json_object_get(schema, "enum")))
		ok = narrow_to_values(b, schema, l);
	return ok && schema_of_branches(b, schema, schema_numbers, l);
}

bool schema_number(Schemas *b, json_t *schema, bool is_integer, Lexeme *l)
{
	static const struct { const char *key; bool is_lower, is_strict; } bounds[] = {{"minimum", true, false},
		{"exclusiveMinimum", true, true}, {"maximum", false, false}, {"exclusiveMaximum", false, true}};
	json_t *of = json_object_get(schema, "multipleOf");
	bool has_bound = of != NULL;
	*l = (Lexeme){0};
	for (int i = 0; i < 4; i++)
		has_bound |= json_is_number(json_object_get(schema, bounds[i].key));
	const char *regex = is_integer ? "-?(0|[1-9][0-9]*)" : has_bound ? "-?(0|[1-9][0-9]*)(\\.[0-9]+)?"
		: "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
	if (!lexeme_of_regex(regex, WHOLE, AS_TEXT, l, &b->g->effort))
		return false;
	bool ok = true;
	for (int i = 0; i < 4 && ok; i++) {
		json_t *x = json_object_get(schema, bounds[i].key);
		bool is_strict = bounds[i].is_strict;
		if (!x || (json_is_boolean(x) && is_strict)) /* draft 4: it says how the other bound is meant */
			continue;
		if (!json_is_number(x))
			ok = schema_refuse(b, bounds[i].key, "a number is expected");
		else if (!is_strict)
			is_strict = json_is_true(json_object_get(schema, bounds[i + 1].key));
		ok = ok && bound(b, bounds[i].key, x, bounds[i].is_lower, is_strict, l);
	}
	ok = ok && (!of || add_multiples(b, of, l)) &&
		(!json_object_get(schema, "not") || b->in_not || narrow_to(b, EXACT, l)) &&
		schema_without_not(b, schema, schema_numbers, l);
	if (ok && b->is_tight && !b->in_not)
		ok = narrow_to(b, TIGHT, l);
	if (!ok)
		lexeme_free(l);
	return ok;
}
