/* compile_pattern.c - the regular expressions of tokenizers to small backtracking programs.
 *
 * Patterns of tokenizer.json are written for Oniguruma. Tokenizers use a small part of it, and
 * exactly that part is understood here, so that no construct can quietly mean something else:
 *
 *   characters, .          escapes \r \n \t \f \s \S \d \D \xHH \x{H..} \uHHHH, \ before punctuation
 *   \p{..} \P{..} \p{^..}  general categories, one or two letters
 *   [..] [^..]             of the above and ranges; no nesting, no &&, no [:posix:]
 *   ( ) (?: ) (?i: )       groups, alternatives with |; captures capture nothing
 *   ? * + {n} {n,} {n,m}   greedy; ?+ *+ ++ never give back, on single characters
 *   (?= ) (?! )            around a single character or class
 *   $                      before a newline or at the end, as in Ruby
 *
 * A pattern that can match nothing at all is refused, as is one whose loop could turn without
 * moving. Under (?i: ) only ASCII is allowed; s and k also match U+017F and U+212A, as they fold.
 *
 * The pattern becomes a tree, the tree a program (see TokOp). Loops over one class, nearly all
 * loops there are, become a single instruction.
 */
#include "compiler/tokenizer/tokenizer_spec.h"
#include "compiler/tokenizer/unicode.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATTERN_BYTES = 4096, MAX_DEPTH = 32, MAX_INSTRS = 4096, MAX_REPEAT = 1000 };
#define NO_LIMIT UINT32_MAX

typedef enum NodeKind { N_SET, N_CAT, N_ALT, N_REPEAT, N_PEEK, N_LINE_END } NodeKind;

typedef struct Node {
	NodeKind kind;
	struct Node *child, *next; /* CAT and ALT: list; REPEAT: the one */
	int set;                   /* PEEK; SET when it is a class */
	uint32_t point;            /* SET of this one point; NO_LIMIT = a class */
	uint32_t min, max;         /* REPEAT */
	bool possessive, negative; /* REPEAT; PEEK */
} Node;

typedef struct Parser {
	Arena *arena;
	TokenizerSpec *spec;
	const char *start, *at, *end;
	bool fold; /* inside (?i: ) */
	int depth;
	char *why;
	size_t why_bytes;
	bool failed;
} Parser;

static Node *parse_alternatives(Parser *p);

static Node *fail(Parser *p, const char *what)
{
	if (!p->failed)
		snprintf(p->why, p->why_bytes, "%s at byte %d of the pattern", what, (int)(p->at - p->start));
	p->failed = true;
	return NULL;
}

int utf8_next(const char *s, uint32_t *cp)
{
	const unsigned char *u = (const unsigned char *)s;
	if (u[0] < 0x80)
		return *cp = u[0], 1;
	if (u[0] < 0xE0)
		return *cp = (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu), 2;
	if (u[0] < 0xF0)
		return *cp = (u[0] & 0xFu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu), 3;
	return *cp = (u[0] & 7u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu), 4;
}

static Node *new_node(Parser *p, NodeKind kind)
{
	Node *n = ARENA_NEW(p->arena, Node);
	n->kind = kind;
	n->point = NO_LIMIT;
	return n;
}

/* Sets ------------------------------------------------------------------------------------ */

static void add_range(Parser *p, TokSet *s, uint32_t first, uint32_t last)
{
	*vec_push(p->arena, &p->spec->ranges) = first;
	*vec_push(p->arena, &p->spec->ranges) = last;
	s->n_ranges++;
}

static TokSet begin_set(const Parser *p)
{
	return (TokSet){.range = (uint32_t)p->spec->ranges.n};
}

static bool set_has_ascii(const TokenizerSpec *spec, const TokSet *s, uint32_t cp)
{
	bool space = cp == ' ' || (cp >= 9 && cp <= 13), numeric = cp >= '0' && cp <= '9', in = false;
	uint32_t run = 0;
	for (int i = 0; i < unicode_category_runs_n && unicode_category_runs[i] >> 5 <= cp; i++)
		run = unicode_category_runs[i];
	in = s->categories >> (run & 31) & 1;
	in |= (s->flags & TOK_SET_SPACE) && space;
	in |= (s->flags & TOK_SET_NOT_SPACE) && !space;
	in |= (s->flags & TOK_SET_NUMERIC) && numeric;
	for (uint32_t i = 0; i < s->n_ranges; i++)
		in |= spec->ranges.at[s->range + 2 * i] <= cp && cp <= spec->ranges.at[s->range + 2 * i + 1];
	return in != (bool)(s->flags & TOK_SET_NOT);
}

/* Case folding of what is in the set so far; ASCII only. */
static bool fold_set(Parser *p, TokSet *s)
{
	if (s->categories || s->flags & ~(uint32_t)TOK_SET_NOT)
		return fail(p, "a class with \\p, \\s or \\d inside (?i: )"), false;
	bool has[128] = {false};
	for (uint32_t i = 0; i < s->n_ranges; i++) {
		const uint32_t *r = p->spec->ranges.at + s->range + 2 * i;
		if (r[1] >= 128)
			return fail(p, "a character outside ASCII inside (?i: )"), false;
		for (uint32_t cp = r[0]; cp <= r[1]; cp++)
			has[cp] = true;
	}
	for (uint32_t cp = 'A'; cp <= 'Z'; cp++) {
		if (has[cp] && !has[cp + 32])
			add_range(p, s, cp + 32, cp + 32);
		if (has[cp + 32] && !has[cp])
			add_range(p, s, cp, cp);
	}
	if (has['s'] || has['S'])
		add_range(p, s, 0x17F, 0x17F); /* LATIN SMALL LETTER LONG S */
	if (has['k'] || has['K'])
		add_range(p, s, 0x212A, 0x212A); /* KELVIN SIGN */
	return true;
}

static int end_set(Parser *p, TokSet *s)
{
	for (uint32_t cp = 0; cp < 128; cp++)
		if (set_has_ascii(p->spec, s, cp))
			s->ascii[cp / 32] |= 1u << cp % 32;
	*vec_push(p->arena, &p->spec->sets) = *s;
	return p->spec->sets.n - 1;
}

static Node *set_node(Parser *p, TokSet *s)
{
	if (p->fold && !fold_set(p, s))
		return NULL;
	Node *n = new_node(p, N_SET);
	n->set = end_set(p, s);
	return n;
}

static Node *point_node(Parser *p, uint32_t cp)
{
	bool letter = (cp | 32) >= 'a' && (cp | 32) <= 'z';
	if (p->fold && (letter || cp >= 128)) {
		TokSet s = begin_set(p);
		add_range(p, &s, cp, cp);
		return set_node(p, &s);
	}
	Node *n = new_node(p, N_SET);
	n->point = cp;
	return n;
}

/* The set of a SET node; that of a single point is made when it is wanted. */
static int set_of(Parser *p, const Node *n)
{
	if (n->point == NO_LIMIT)
		return n->set;
	TokSet s = begin_set(p);
	add_range(p, &s, n->point, n->point);
	return end_set(p, &s);
}

/* Parsing --------------------------------------------------------------------------------- */

static bool parse_hex(Parser *p, int min, int max, uint32_t *out)
{
	int n = 0;
	uint32_t v = 0;
	for (; n < max && p->at < p->end; n++, p->at++) {
		static const char digits[] = "0123456789abcdef";
		const char *d = memchr(digits, *p->at | 32, 16);
		if (!d)
			break;
		v = v * 16 + (uint32_t)(d - digits);
	}
	*out = v;
	if (n < min || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
		return fail(p, "a wrong hexadecimal code point"), false;
	return true;
}

/* \p{..} after the backslash; `negated` for \P. Adds to the categories of `s`. */
static bool parse_property(Parser *p, bool negated, TokSet *s)
{
	p->at++;
	const char *close = p->at < p->end && *p->at == '{' ? memchr(p->at, '}', (size_t)(p->end - p->at)) : NULL;
	if (!close)
		return fail(p, "\\p without {..}"), false;
	p->at++;
	if (*p->at == '^') {
		negated = !negated;
		p->at++;
	}
	int len = (int)(close - p->at);
	uint32_t mask = 0;
	if (len == 1)
		for (int second = 'a'; second <= 'z'; second++) {
			int c = unicode_category_named((char[]){*p->at, (char)second}, 2);
			mask |= c < 0 ? 0 : 1u << c;
		}
	else if (unicode_category_named(p->at, len) >= 0)
		mask = 1u << unicode_category_named(p->at, len);
	if (!mask)
		return fail(p, "a property that is not a general category"), false;
	s->categories |= negated ? ~mask & ((1u << TOK_CATEGORY_COUNT) - 1) : mask;
	p->at = close + 1;
	return true;
}

/* After a backslash. A class is added to `s` and *is_class set, a single point stored in *cp. */
static bool parse_escape(Parser *p, TokSet *s, bool *is_class, uint32_t *cp)
{
	const uint32_t all = (1u << TOK_CATEGORY_COUNT) - 1;
	*is_class = true;
	if (p->at == p->end)
		return fail(p, "a backslash at the end"), false;
	char c = *p->at;
	if (c == 'p' || c == 'P')
		return parse_property(p, c == 'P', s);
	p->at++;
	switch (c) {
	case 's': s->flags |= TOK_SET_SPACE; return true;
	case 'S': s->flags |= TOK_SET_NOT_SPACE; return true;
	case 'd': s->categories |= 1u << TOK_ND; return true;
	case 'D': s->categories |= all & ~(1u << TOK_ND); return true;
	default: break;
	}
	*is_class = false;
	switch (c) {
	case 'r': *cp = '\r'; return true;
	case 'n': *cp = '\n'; return true;
	case 't': *cp = '\t'; return true;
	case 'f': *cp = '\f'; return true;
	case 'u': return parse_hex(p, 4, 4, cp);
	case 'x':
		if (p->at == p->end || *p->at != '{')
			return parse_hex(p, 2, 2, cp);
		p->at++;
		if (!parse_hex(p, 1, 8, cp))
			return false;
		return p->at < p->end && *p->at++ == '}' ? true : (fail(p, "\\x{ without }"), false);
	default: break;
	}
	if ((unsigned char)c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
		return p->at--, fail(p, "an escape that is not supported"), false;
	*cp = (unsigned char)c;
	return true;
}

static bool parse_class_item(Parser *p, TokSet *s, bool *is_class, uint32_t *cp)
{
	*is_class = false;
	if (*p->at == '[')
		return fail(p, "a class inside a class"), false;
	if (*p->at == '&' && p->end - p->at > 1 && p->at[1] == '&')
		return fail(p, "the intersection &&"), false;
	if (*p->at == '\\') {
		p->at++;
		return parse_escape(p, s, is_class, cp);
	}
	p->at += utf8_next(p->at, cp);
	return true;
}

static Node *parse_class(Parser *p) /* after '[' */
{
	TokSet s = begin_set(p);
	if (p->at < p->end && *p->at == '^') {
		s.flags |= TOK_SET_NOT;
		p->at++;
	}
	if (p->at < p->end && *p->at == ']')
		return fail(p, "an empty class");
	while (p->at < p->end && *p->at != ']') {
		bool is_class, last_class;
		uint32_t cp, last;
		if (!parse_class_item(p, &s, &is_class, &cp))
			return NULL;
		bool range = p->end - p->at > 1 && *p->at == '-' && p->at[1] != ']';
		if (is_class && range)
			return fail(p, "a range that starts with a class");
		if (is_class)
			continue;
		last = cp;
		if (range) {
			p->at++;
			if (!parse_class_item(p, &s, &last_class, &last))
				return NULL;
			if (last_class || last < cp)
				return fail(p, "a range that ends before it starts");
		}
		add_range(p, &s, cp, last);
	}
	if (p->at == p->end)
		return fail(p, "a class without ]");
	p->at++;
	return set_node(p, &s);
}

/* What is alone in its groups. */
static Node *unwrap(Node *n)
{
	while ((n->kind == N_CAT || n->kind == N_ALT) && n->child && !n->child->next)
		n = n->child;
	return n;
}

static Node *parse_group(Parser *p) /* after '(' */
{
	static const struct { const char *open; bool peek, negative, fold; } kinds[] = {
		{"?:", false, false, false}, {"?i:", false, false, true},
		{"?=", true, false, false}, {"?!", true, true, false}};
	bool fold = p->fold;
	Node *peek = NULL;
	if (p->at < p->end && *p->at == '?') {
		size_t k = 0, n = sizeof kinds / sizeof kinds[0];
		while (k < n && strncmp(p->at, kinds[k].open, strlen(kinds[k].open)))
			k++;
		if (k == n)
			return fail(p, "a group of a kind that is not supported (lookbehind, atomic, named, flags)");
		p->at += strlen(kinds[k].open);
		p->fold |= kinds[k].fold;
		if (kinds[k].peek) {
			peek = new_node(p, N_PEEK);
			peek->negative = kinds[k].negative;
		}
	}
	Node *n = parse_alternatives(p);
	p->fold = fold;
	if (!n)
		return NULL;
	if (p->at == p->end || *p->at != ')')
		return fail(p, "a group without )");
	p->at++;
	if (!peek)
		return n;
	n = unwrap(n);
	if (n->kind != N_SET)
		return fail(p, "a lookahead at more than one character");
	peek->set = set_of(p, n);
	return peek;
}

static Node *parse_atom(Parser *p)
{
	char c = *p->at;
	if (c == '(' || c == '[') {
		p->at++;
		return c == '(' ? parse_group(p) : parse_class(p);
	}
	if (c == '$') {
		p->at++;
		return new_node(p, N_LINE_END);
	}
	if (strchr("^*+?{}]", c))
		return fail(p, "an unexpected ^ * + ? { } or ]");
	uint32_t cp;
	TokSet s = begin_set(p);
	if (c == '.') {
		p->at++;
		s.flags |= TOK_SET_NOT;
		add_range(p, &s, '\n', '\n');
		Node *n = new_node(p, N_SET);
		n->set = end_set(p, &s);
		return n;
	}
	if (c != '\\') {
		p->at += utf8_next(p->at, &cp);
		return point_node(p, cp);
	}
	bool is_class;
	p->at++;
	if (!parse_escape(p, &s, &is_class, &cp))
		return NULL;
	return is_class ? set_node(p, &s) : point_node(p, cp);
}

/* {n} {n,} {,m} {n,m} after '{' */
static bool parse_interval(Parser *p, uint32_t *min, uint32_t *max)
{
	uint32_t v[2] = {0, NO_LIMIT};
	bool seen[2] = {false, false}, comma = false;
	int k = 0;
	for (; p->at < p->end && *p->at != '}'; p->at++) {
		if (*p->at == ',' && !comma) {
			comma = true;
			k = 1;
		} else if (*p->at >= '0' && *p->at <= '9') {
			v[k] = (seen[k] ? v[k] * 10 : 0) + (uint32_t)(*p->at - '0');
			seen[k] = true;
			if (v[k] > MAX_REPEAT)
				return fail(p, "a repetition of more than 1000"), false;
		} else {
			return fail(p, "a malformed {n,m}"), false;
		}
	}
	if (p->at == p->end || (!seen[0] && !seen[1]))
		return fail(p, "a malformed {n,m}"), false;
	p->at++;
	*min = v[0];
	*max = comma ? v[1] : v[0];
	return *min <= *max ? true : (fail(p, "a {n,m} with n > m"), false);
}

/* Least number of code points a node takes. */
static uint32_t least(const Node *n)
{
	uint32_t sum = 0;
	switch (n->kind) {
	case N_SET: return 1;
	case N_PEEK: case N_LINE_END: return 0;
	case N_REPEAT: return n->min ? least(n->child) : 0;
	case N_CAT:
		for (const Node *c = n->child; c; c = c->next)
			sum |= least(c);
		return sum;
	case N_ALT:
		sum = NO_LIMIT;
		for (const Node *c = n->child; c; c = c->next)
			sum = least(c) < sum ? least(c) : sum;
		return sum;
	}
	return 0;
}

static Node *parse_repeat(Parser *p, Node *child)
{
	Node *n = new_node(p, N_REPEAT);
	n->child = child = unwrap(child);
	char c = *p->at++;
	n->min = c == '+';
	n->max = c == '?' ? 1 : NO_LIMIT;
	if (c == '{' && !parse_interval(p, &n->min, &n->max))
		return NULL;
	if (p->at < p->end && *p->at == '+' && c != '{') {
		n->possessive = true;
		p->at++;
	}
	if (p->at < p->end && strchr("?*+{", *p->at))
		return fail(p, "a lazy or doubled repetition");
	if (n->possessive && child->kind != N_SET)
		return fail(p, "a possessive repetition of more than one character");
	if (!least(child))
		return fail(p, "a repetition of what can match nothing");
	return n;
}

/* Folding joins some pairs of letters into one character (U+00DF is "ss"): not implemented. */
static bool pair_folds(const Parser *p)
{
	static const char pairs[] = "ss st ff fi fl";
	if (!p->fold || p->end - p->at < 2)
		return false;
	const char pair[3] = {(char)(p->at[0] | 32), (char)(p->at[1] | 32), 0};
	return pair[0] != ' ' && pair[1] != ' ' && strstr(pairs, pair);
}

static Node *parse_sequence(Parser *p)
{
	Node *cat = new_node(p, N_CAT), **tail = &cat->child;
	while (p->at < p->end && *p->at != '|' && *p->at != ')') {
		if (pair_folds(p))
			return fail(p, "ss, st, ff, fi or fl inside (?i: )");
		Node *n = parse_atom(p);
		if (n && p->at < p->end && strchr("?*+{", *p->at))
			n = parse_repeat(p, n);
		if (!n)
			return NULL;
		*tail = n;
		tail = &n->next;
	}
	return cat;
}

static Node *parse_alternatives(Parser *p)
{
	if (++p->depth > MAX_DEPTH)
		return fail(p, "groups nested too deeply");
	Node *alt = new_node(p, N_ALT), **tail = &alt->child;
	for (;;) {
		Node *n = parse_sequence(p);
		if (!n)
			return NULL;
		*tail = n;
		tail = &n->next;
		if (p->at == p->end || *p->at != '|')
			break;
		p->at++;
	}
	p->depth--;
	return alt;
}

/* Program --------------------------------------------------------------------------------- */

static int emit(Parser *p, TokOp op, uint32_t a)
{
	if (p->spec->code.n >= MAX_INSTRS)
		return fail(p, "a program of more than 4096 instructions"), 0;
	*vec_push(p->arena, &p->spec->code) = (TokInstr){op, a, 0, 0};
	return p->spec->code.n - 1;
}

static void emit_node(Parser *p, const Node *n);

static void emit_repeat(Parser *p, const Node *n)
{
	TokenizerSpec *spec = p->spec;
	if (n->child->kind == N_SET) {
		int i = emit(p, n->possessive ? TOK_OP_POSSESS : TOK_OP_LOOP, (uint32_t)set_of(p, n->child));
		spec->code.at[i].b = n->min;
		spec->code.at[i].c = n->max;
		return;
	}
	for (uint32_t k = 0; k < n->min && !p->failed; k++)
		emit_node(p, n->child);
	if (n->max == NO_LIMIT) {
		int loop = emit(p, TOK_OP_SPLIT, 0);
		emit_node(p, n->child);
		emit(p, TOK_OP_JUMP, (uint32_t)loop);
		spec->code.at[loop].a = (uint32_t)spec->code.n;
		return;
	}
	int first = spec->code.n;
	for (uint32_t k = n->min; k < n->max && !p->failed; k++) {
		emit(p, TOK_OP_SPLIT, NO_LIMIT);
		emit_node(p, n->child);
	}
	for (int i = first; i < spec->code.n; i++)
		if (spec->code.at[i].op == TOK_OP_SPLIT && spec->code.at[i].a == NO_LIMIT)
			spec->code.at[i].a = (uint32_t)spec->code.n;
}

static void emit_alternatives(Parser *p, const Node *n)
{
	TokenizerSpec *spec = p->spec;
	VEC(int) jumps = {0};
	for (const Node *c = n->child; c; c = c->next) {
		int split = c->next ? emit(p, TOK_OP_SPLIT, 0) : -1;
		emit_node(p, c);
		if (split < 0)
			break;
		*vec_push(p->arena, &jumps) = emit(p, TOK_OP_JUMP, 0);
		spec->code.at[split].a = (uint32_t)spec->code.n;
	}
	for (int i = 0; i < jumps.n; i++)
		spec->code.at[jumps.at[i]].a = (uint32_t)spec->code.n;
}

static void emit_node(Parser *p, const Node *n)
{
	if (p->failed)
		return;
	switch (n->kind) {
	case N_SET:
		emit(p, n->point == NO_LIMIT ? TOK_OP_SET : TOK_OP_CHAR,
			n->point == NO_LIMIT ? (uint32_t)n->set : n->point);
		break;
	case N_CAT:
		for (const Node *c = n->child; c; c = c->next)
			emit_node(p, c);
		break;
	case N_ALT: emit_alternatives(p, n); break;
	case N_REPEAT: emit_repeat(p, n); break;
	case N_PEEK: emit(p, n->negative ? TOK_OP_NOT_PEEK : TOK_OP_PEEK, (uint32_t)n->set); break;
	case N_LINE_END: emit(p, TOK_OP_LINE_END, 0); break;
	}
}

int compile_pattern(Arena *a, TokenizerSpec *spec, Str pattern, char *why, size_t why_bytes)
{
	Parser p = {.arena = a, .spec = spec, .start = pattern.at, .at = pattern.at,
		.end = pattern.at + pattern.n, .why = why, .why_bytes = why_bytes};
	if (pattern.n > MAX_PATTERN_BYTES)
		fail(&p, "more than 4096 bytes");
	if (!p.failed && memchr(pattern.at, 0, pattern.n))
		fail(&p, "a zero byte");
	Node *n = p.failed ? NULL : parse_alternatives(&p);
	if (n && p.at < p.end)
		fail(&p, "an unexpected )");
	if (!p.failed && !least(n))
		fail(&p, "a pattern that can match nothing");
	int first = spec->code.n;
	if (!p.failed) {
		emit_node(&p, n);
		emit(&p, TOK_OP_MATCH, 0);
	}
	return p.failed ? -1 : first;
}

int compile_literal(Arena *a, TokenizerSpec *spec, Str literal)
{
	int first = spec->code.n;
	assert(literal.n);
	for (size_t i = 0; i < literal.n;) {
		uint32_t cp;
		i += (size_t)utf8_next(literal.at + i, &cp);
		*vec_push(a, &spec->code) = (TokInstr){TOK_OP_CHAR, cp, 0, 0};
	}
	*vec_push(a, &spec->code) = (TokInstr){TOK_OP_MATCH, 0, 0, 0};
	return first;
}

int compile_numeric(Arena *a, TokenizerSpec *spec)
{
	Parser p = {.arena = a, .spec = spec};
	TokSet s = begin_set(&p);
	s.flags = TOK_SET_NUMERIC;
	int set = end_set(&p, &s), first = spec->code.n;
	*vec_push(a, &spec->code) = (TokInstr){TOK_OP_SET, (uint32_t)set, 0, 0};
	*vec_push(a, &spec->code) = (TokInstr){TOK_OP_MATCH, 0, 0, 0};
	return first;
}
