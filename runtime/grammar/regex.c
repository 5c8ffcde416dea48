/* regex.c - regular expressions in the syntax of ECMAScript, parsed to a tree and from there to an automaton.
 *
 * Classes \d, \w and \s are ECMAScript's; '.' is any character but line ends; \p{...} is a general category, by the
 * table of characters that the tokenizer has. What needs memory of the text or a look at what is before a place is
 * refused: back references, (?<=...), \b. What looks ahead becomes the automaton of the rest together with that of what
 * is looked for, or without it.
 */
#include "runtime/grammar/nfa.h"
#include "runtime/text/encoder.h"

#include <stdlib.h>
#include <string.h>

typedef enum TreeKind {
	TREE_SET, TREE_LIST, TREE_EITHER, TREE_REPEAT, TREE_START, TREE_END,
	TREE_AHEAD, TREE_NOT_AHEAD, /* (?=child) and (?!child) */
} TreeKind;

typedef struct TreeNode {
	TreeKind kind;
	uint32_t lo, hi;         /* of REPEAT; hi UINT32_MAX = no limit. Of SET: first range and how many */
	uint32_t child, sibling; /* 0 = none */
} TreeNode;

enum { MOST_REPEATS = 65535 };

typedef struct Parser {
	const unsigned char *text;
	size_t n, at;
	int depth;
	TreeNode *nodes; uint32_t n_nodes, nodes_cap;
	Range *ranges; uint32_t n_ranges, ranges_cap;
	Effort *e;
} Parser;

static bool refuse(Parser *p, const char *why) { return effort_refuse(p->e, why, (int)p->at); }

static uint32_t add_node(Parser *p, TreeNode node)
{
	if (!GROW(p->e, p->nodes, p->nodes_cap, p->n_nodes + 1))
		return 0;
	p->nodes[p->n_nodes] = node;
	return p->n_nodes++;
}

static bool add_range(Parser *p, uint32_t lo, uint32_t hi)
{
	if (!GROW(p->e, p->ranges, p->ranges_cap, p->n_ranges + 1))
		return false;
	p->ranges[p->n_ranges++] = (Range){lo, hi};
	return true;
}

static int by_start(const void *a, const void *b)
{
	const Range *x = a, *y = b;
	return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Ranges from `first` on become ascending and apart; with `not`, those between them. */
static bool tidy(Parser *p, uint32_t first, bool is_not)
{
	Range *r = p->ranges + first;
	uint32_t n = p->n_ranges - first, kept = 0;
	if (n > 1)
		qsort(r, n, sizeof *r, by_start);
	for (uint32_t i = 0; i < n; i++)
		if (kept && r[i].lo <= r[kept - 1].hi + 1)
			r[kept - 1].hi = r[i].hi > r[kept - 1].hi ? r[i].hi : r[kept - 1].hi;
		else
			r[kept++] = r[i];
	p->n_ranges = first + kept;
	if (!is_not)
		return true;
	uint32_t from = 0;
	for (uint32_t i = 0; i < kept; i++) {
		const Range gone = p->ranges[first + i];
		if (gone.lo > from && !add_range(p, from, gone.lo - 1))
			return false;
		from = gone.hi + 1;
	}
	if (from <= MOST_POINT && !add_range(p, from, MOST_POINT))
		return false;
	const uint32_t made = p->n_ranges - first - kept;
	memmove(p->ranges + first, p->ranges + first + kept, made * sizeof *r);
	p->n_ranges = first + made;
	return true;
}

/* The set of \d, \D, \w, \W, \s or \S; false and no reason if `letter` is none of these. */
static bool add_class(Parser *p, int letter)
{
	static const Range digit[] = {{'0', '9'}}, word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
		space[] = {{9, 13}, {32, 32}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
			{0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
	const uint32_t first = p->n_ranges;
	const int lower = letter | 32;
	const Range *from = lower == 'd' ? digit : lower == 'w' ? word : lower == 's' ? space : NULL;
	const size_t n = lower == 'd' ? 1 : lower == 'w' ? 4 : 10;
	if (!from)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!add_range(p, from[i].lo, from[i].hi))
			return false;
	return tidy(p, first, letter != lower);
}

static int peek(const Parser *p);
static bool take(Parser *p, int c);

#define BIT(category) ((uint32_t)1 << TOK_##category)
static const struct Property { const char *name, *other; uint32_t categories; } properties[] = {
	{"L", "Letter", BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO)},
	{"LC", "Cased_Letter", BIT(LU) | BIT(LL) | BIT(LT)},
	{"Lu", "Uppercase_Letter", BIT(LU)}, {"Ll", "Lowercase_Letter", BIT(LL)}, {"Lt", "Titlecase_Letter", BIT(LT)},
	{"Lm", "Modifier_Letter", BIT(LM)}, {"Lo", "Other_Letter", BIT(LO)},
	{"M", "Mark", BIT(MN) | BIT(MC) | BIT(ME)}, {"Mn", "Nonspacing_Mark", BIT(MN)}, {"Mc", "Spacing_Mark", BIT(MC)},
	{"Me", "Enclosing_Mark", BIT(ME)}, {"N", "Number", BIT(ND) | BIT(NL) | BIT(NO)}, {"Nd", "Decimal_Number", BIT(ND)},
	{"Nl", "Letter_Number", BIT(NL)}, {"No", "Other_Number", BIT(NO)},
	{"P", "Punctuation", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
	{"Pc", "Connector_Punctuation", BIT(PC)}, {"Pd", "Dash_Punctuation", BIT(PD)}, {"Ps", "Open_Punctuation", BIT(PS)},
	{"Pe", "Close_Punctuation", BIT(PE)}, {"Pi", "Initial_Punctuation", BIT(PI)},
	{"Pf", "Final_Punctuation", BIT(PF)}, {"Po", "Other_Punctuation", BIT(PO)},
	{"S", "Symbol", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)}, {"Sm", "Math_Symbol", BIT(SM)},
	{"Sc", "Currency_Symbol", BIT(SC)}, {"Sk", "Modifier_Symbol", BIT(SK)}, {"So", "Other_Symbol", BIT(SO)},
	{"Z", "Separator", BIT(ZS) | BIT(ZL) | BIT(ZP)}, {"Zs", "Space_Separator", BIT(ZS)},
	{"Zl", "Line_Separator", BIT(ZL)}, {"Zp", "Paragraph_Separator", BIT(ZP)},
	{"C", "Other", BIT(CC) | BIT(CF) | BIT(CN) | BIT(CO) | BIT(CS)},
	{"Cc", "Control", BIT(CC)}, {"Cf", "Format", BIT(CF)},
	{"Cn", "Unassigned", BIT(CN)}, {"Co", "Private_Use", BIT(CO)}, {"Any", "Any", UINT32_MAX},
};

static bool add_categories(Parser *p, uint32_t categories)
{
	uint32_t from = 0;
	bool is_in = false;
	if (!effort_spend(p->e, MOST_POINT))
		return false;
	for (uint32_t cp = 0; cp <= MOST_POINT + 1; cp++) {
		const bool is = cp <= MOST_POINT && categories >> (tok_class(p->e->tok, cp) & TOK_CATEGORY_MASK) & 1;
		if (is && !is_in)
			from = cp;
		if (!is && is_in && !add_range(p, from, cp - 1))
			return false;
		is_in = is;
	}
	return true;
}

/* After \p or \P: {L}, {Letter}, {gc=L} or {General_Category=L}. */
static bool add_property(Parser *p, bool is_not)
{
	const uint32_t first = p->n_ranges;
	if (!p->e->tok)
		return refuse(p, "classes of Unicode properties need a tokenizer's table");
	if (!take(p, '{'))
		return refuse(p, "'{' is expected");
	const char *name = (const char *)p->text + p->at, *end = strchr(name, '}');
	const char *equals = memchr(name, '=', end ? (size_t)(end - name) : 0);
	const size_t before = equals ? (size_t)(equals - name) : 0;
	if (!end)
		return refuse(p, "'}' is expected");
	if ((before == 2 && memcmp(name, "gc", 2) == 0) || (before == 16 && memcmp(name, "General_Category", 16) == 0))
		name = equals + 1;
	const size_t n = (size_t)(end - name);
	for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
		const struct Property *o = &properties[i];
		if (!(strlen(o->name) == n && memcmp(o->name, name, n) == 0) &&
			!(strlen(o->other) == n && memcmp(o->other, name, n) == 0))
			continue;
		p->at = (size_t)(end + 1 - (const char *)p->text);
		return add_categories(p, o->categories) && tidy(p, first, is_not);
	}
	return refuse(p, "of Unicode properties only general categories are supported");
}

static int peek(const Parser *p) { return p->at < p->n ? p->text[p->at] : -1; }
static bool take(Parser *p, int c) { return peek(p) == c ? p->at++, true : false; }

static bool take_point(Parser *p, uint32_t *point)
{
	const int n = p->at < p->n ? utf8_read(p->text + p->at, p->n - p->at, point) : 0;
	if (n <= 0)
		return refuse(p, p->at < p->n ? "the expression is not UTF-8" : "the expression ends too early");
	p->at += (size_t)n;
	return true;
}

static bool take_hex(Parser *p, int least, int most, uint32_t *value)
{
	int n = 0;
	for (*value = 0; n < most; n++, p->at++) {
		const int c = peek(p), lower = c | 32;
		const int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
		if (digit < 0)
			break;
		*value = *value << 4 | (uint32_t)digit;
	}
	return n >= least || refuse(p, "more hexadecimal digits are expected");
}

/* What follows "\u". */
static bool take_unicode(Parser *p, uint32_t *point)
{
	if (take(p, '{'))
		return take_hex(p, 1, 6, point) && (take(p, '}') || refuse(p, "'}' is expected")) &&
			(*point <= MOST_POINT || refuse(p, "there is no such character"));
	if (!take_hex(p, 4, 4, point))
		return false;
	const bool is_half = *point >= 0xd800 && *point < 0xdc00;
	if (is_half && p->at + 1 < p->n && p->text[p->at] == '\\' && p->text[p->at + 1] == 'u') {
		uint32_t low;
		p->at += 2;
		if (!take_hex(p, 4, 4, &low))
			return false;
		if (low < 0xdc00 || low > 0xdfff)
			return refuse(p, "half a character is alone");
		*point = 0x10000 + ((*point - 0xd800) << 10) + (low - 0xdc00);
	}
	return true;
}

/* A single character that an escape, whose '\' was taken, stands for. */
static bool take_escape(Parser *p, bool in_class, uint32_t *point)
{
	static const char names[] = "tnvfr0", values[] = "\t\n\v\f\r";
	const int c = peek(p);
	const char *name = c > 0 ? strchr(names, c) : NULL;
	if (c < 0)
		return refuse(p, "the expression ends too early");
	if (in_class && c == 'b') {
		p->at++;
		*point = '\b';
		return true;
	}
	if (c == 'b' || c == 'B')
		return refuse(p, "borders of words are not supported");
	if ((c >= '1' && c <= '9') || c == 'k')
		return refuse(p, "references back are not supported");
	p->at++;
	if (name) {
		*point = (unsigned char)values[name - names];
		return true;
	}
	if (c == 'x')
		return take_hex(p, 2, 2, point);
	if (c == 'u')
		return take_unicode(p, point);
	if (c == 'c') {
		const int letter = peek(p) | 32;
		if (letter < 'a' || letter > 'z')
			return refuse(p, "a letter is expected after \\c");
		p->at++;
		*point = (uint32_t)letter & 31;
		return true;
	}
	p->at--;
	if ((c | 32) >= 'a' && (c | 32) <= 'z')
		return refuse(p, "there is no such escape");
	return take_point(p, point);
}

static bool is_class_letter(int c) { return c > 0 && strchr("dDwWsSpP", c); }

/* Its letter and what belongs to it. */
static bool take_class(Parser *p)
{
	const int c = p->text[p->at++];
	return (c | 32) == 'p' ? add_property(p, c == 'P') : add_class(p, c);
}

/* A member of [...]: a class, which is added, or a point. */
static bool take_member(Parser *p, uint32_t *point, bool *is_class)
{
	*is_class = false;
	if (!take(p, '\\'))
		return take_point(p, point);
	if ((*is_class = is_class_letter(peek(p))))
		return take_class(p);
	return take_escape(p, true, point);
}

static uint32_t set_node(Parser *p, uint32_t first)
{
	return add_node(p, (TreeNode){.kind = TREE_SET, .lo = first, .hi = p->n_ranges - first});
}

static uint32_t parse_set(Parser *p) /* after '[' */
{
	const uint32_t first = p->n_ranges;
	const bool is_not = take(p, '^');
	while (!take(p, ']')) {
		uint32_t lo, hi;
		bool is_class;
		if (peek(p) < 0)
			return refuse(p, "']' is missing");
		if (!take_member(p, &lo, &is_class))
			return 0;
		if (is_class)
			continue;
		hi = lo;
		if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
			p->at++;
			if (!take_member(p, &hi, &is_class))
				return 0;
			if (is_class) { /* "a-\d" is the three of them */
				if (!add_range(p, '-', '-'))
					return 0;
				hi = lo;
			}
			if (hi < lo)
				return refuse(p, "a range ends before it begins");
		}
		if (!add_range(p, lo, hi))
			return 0;
	}
	return tidy(p, first, is_not) ? set_node(p, first) : 0;
}

static uint32_t parse_either(Parser *p);

/* After '('; *kind: of what looks ahead, else LIST. */
static bool open_group(Parser *p, TreeKind *kind)
{
	*kind = TREE_LIST;
	if (!take(p, '?') || take(p, ':'))
		return true;
	if (peek(p) == '=' || peek(p) == '!') {
		*kind = peek(p) == '=' ? TREE_AHEAD : TREE_NOT_AHEAD;
		p->at++;
		return true;
	}
	take(p, 'P');
	if (peek(p) == '<' && p->at + 1 < p->n && p->text[p->at + 1] != '=' && p->text[p->at + 1] != '!') {
		while (peek(p) >= 0 && peek(p) != '>')
			p->at++;
		return take(p, '>') || refuse(p, "'>' is missing");
	}
	return refuse(p, "looking back, and flags, are not supported");
}

static uint32_t parse_atom(Parser *p)
{
	const uint32_t first = p->n_ranges;
	uint32_t point, node;
	TreeKind kind;
	if (take(p, '(')) {
		if (++p->depth > GRAMMAR_MAX_DEPTH)
			return refuse(p, "groups are too deep");
		if (!open_group(p, &kind) || !(node = parse_either(p)))
			return 0;
		p->depth--;
		if (kind != TREE_LIST)
			node = add_node(p, (TreeNode){.kind = kind, .child = node});
		return take(p, ')') ? node : refuse(p, "')' is missing");
	}
	if (take(p, '['))
		return parse_set(p);
	if (take(p, '^'))
		return add_node(p, (TreeNode){.kind = TREE_START});
	if (take(p, '$'))
		return add_node(p, (TreeNode){.kind = TREE_END});
	if (take(p, '.'))
		return add_range(p, '\n', '\n') && add_range(p, '\r', '\r') && add_range(p, 0x2028, 0x2029) &&
			tidy(p, first, true) ? set_node(p, first) : 0;
	if (strchr("*+?", peek(p)))
		return refuse(p, "there is nothing to repeat");
	if (take(p, '\\')) {
		const int c = peek(p);
		if (c == 'A' || c == 'z' || c == 'Z') {
			p->at++;
			return add_node(p, (TreeNode){.kind = c == 'A' ? TREE_START : TREE_END});
		}
		if (is_class_letter(c))
			return take_class(p) ? set_node(p, first) : 0;
		if (!take_escape(p, false, &point))
			return 0;
	} else if (!take_point(p, &point))
		return 0;
	return add_range(p, point, point) ? set_node(p, first) : 0;
}

/* {n}, {n,} or {n,m}; false without a reason when it is not one of these, and '{' is a character. */
static bool take_counts(Parser *p, uint32_t *lo, uint32_t *hi)
{
	const size_t begin = p->at;
	uint32_t value[2] = {0, UINT32_MAX};
	bool has_comma = false, any = false;
	for (p->at++; peek(p) >= 0; p->at++) {
		const int c = peek(p);
		if (c >= '0' && c <= '9') {
			uint32_t *v = &value[has_comma];
			*v = (*v == UINT32_MAX ? 0 : *v) * 10 + (uint32_t)(c - '0');
			any = true;
			if (*v > MOST_REPEATS)
				return refuse(p, "it is repeated too often");
		} else if (c == ',' && !has_comma && any)
			has_comma = true;
		else
			break;
	}
	if (!any || !take(p, '}')) {
		p->at = begin;
		return false;
	}
	*lo = value[0];
	*hi = has_comma ? value[1] : value[0];
	return *lo <= *hi || refuse(p, "a range ends before it begins");
}

static uint32_t parse_item(Parser *p)
{
	uint32_t node = parse_atom(p);
	for (int repeats = 0; node && p->at < p->n; repeats++) {
		uint32_t lo = 0, hi = UINT32_MAX;
		if (take(p, '+'))
			lo = 1;
		else if (take(p, '?'))
			hi = 1;
		else if (peek(p) == '{') {
			if (!take_counts(p, &lo, &hi))
				return p->e->why ? 0 : node;
		} else if (!take(p, '*'))
			break;
		if (repeats >= GRAMMAR_MAX_DEPTH)
			return refuse(p, "repetitions are too deep");
		take(p, '?'); /* which of several matches makes no difference to whether there is one */
		node = add_node(p, (TreeNode){.kind = TREE_REPEAT, .lo = lo, .hi = hi, .child = node});
	}
	return node;
}

static uint32_t parse_list(Parser *p)
{
	const uint32_t list = add_node(p, (TreeNode){.kind = TREE_LIST});
	uint32_t last = 0;
	while (list && p->at < p->n && peek(p) != '|' && peek(p) != ')') {
		const uint32_t item = parse_item(p);
		if (!item)
			return 0;
		if (last)
			p->nodes[last].sibling = item;
		else
			p->nodes[list].child = item;
		last = item;
	}
	return list;
}

static uint32_t parse_either(Parser *p)
{
	const uint32_t either = add_node(p, (TreeNode){.kind = TREE_EITHER});
	uint32_t last = 0;
	do {
		const uint32_t list = either ? parse_list(p) : 0;
		if (!list)
			return 0;
		if (last)
			p->nodes[last].sibling = list;
		else
			p->nodes[either].child = list;
		last = list;
	} while (take(p, '|'));
	return either;
}

/* To the automaton ------------------------------------------------------------ */

typedef struct Builder { const Parser *tree; Nfa a; Writing writing; int loops; /* that lead back */ } Builder;

static uint32_t build(Builder *b, uint32_t node, uint32_t next);

static uint32_t build_repeat(Builder *b, const TreeNode *t, uint32_t next)
{
	uint32_t at = next;
	if (t->hi == UINT32_MAX) {
		at = nfa_add(&b->a, (NfaNode){.kind = NFA_SPLIT, .other = next});
		b->loops++;
		const uint32_t body = build(b, t->child, at);
		b->loops--;
		if (!b->a.effort->why)
			b->a.nodes[at].next = body;
	}
	for (uint32_t i = t->lo; t->hi != UINT32_MAX && i < t->hi && !b->a.effort->why; i++)
		at = nfa_either(&b->a, build(b, t->child, at), next);
	for (uint32_t i = 0; i < t->lo && !b->a.effort->why; i++)
		at = build(b, t->child, at);
	return at;
}

/* Children of a list, of which the last is built first: their order is turned round in place, and back. */
static uint32_t build_list(Builder *b, const TreeNode *t, uint32_t next)
{
	uint32_t n = 0, *items = NULL, cap = 0;
	for (uint32_t i = t->child; i; i = b->tree->nodes[i].sibling) {
		if (!GROW(b->a.effort, items, cap, n + 1))
			break;
		items[n++] = i;
	}
	while (n > 0 && !b->a.effort->why)
		next = build(b, items[--n], next);
	free(items);
	return next;
}

static uint32_t build_any(Builder *b, uint32_t next)
{
	const uint32_t at = nfa_add(&b->a, (NfaNode){.kind = NFA_SPLIT, .other = next});
	const uint32_t body = nfa_range(&b->a, 0, MOST_POINT, at);
	if (!b->a.effort->why)
		b->a.nodes[at].next = body;
	return at;
}

/* After the text. */
static uint32_t build_end(Builder *b)
{
	const uint32_t at = nfa_add(&b->a, (NfaNode){.kind = NFA_ACCEPT});
	return b->writing == AS_JSON_STRING ? nfa_range(&b->a, NFA_CLOSE, NFA_CLOSE, at) : at;
}

static uint32_t build_ahead(Builder *b, const TreeNode *t, uint32_t next)
{
	if (b->loops)
		return effort_refuse(b->a.effort, "looking ahead within a repetition is not supported", -1);
	const uint32_t seen = build(b, t->child, build_any(b, build_end(b)));
	bool has_start = false;
	for (uint32_t i = 0; i < b->a.n; i++)
		has_start |= b->a.nodes[i].kind == NFA_START;
	const uint32_t later = nfa_both(&b->a, next, seen, t->kind == TREE_NOT_AHEAD, false);
	if (!has_start || b->a.effort->why)
		return later;
	const uint32_t first = nfa_both(&b->a, next, seen, t->kind == TREE_NOT_AHEAD, true);
	uint32_t all = later ? nfa_add(&b->a, (NfaNode){.kind = NFA_LATER, .next = later}) : NFA_NOTHING;
	if (first)
		all = nfa_either(&b->a, all, nfa_add(&b->a, (NfaNode){.kind = NFA_START, .next = first}));
	return all;
}

static uint32_t build(Builder *b, uint32_t node, uint32_t next)
{
	const TreeNode *t = &b->tree->nodes[node];
	uint32_t all = NFA_NOTHING;
	if ((b->a.effort->left -= 10) < 0) /* an empty group adds no node, however often it is repeated */
		effort_refuse(b->a.effort, "it takes too long to compile", -1);
	switch (t->kind) {
	case TREE_START: return nfa_add(&b->a, (NfaNode){.kind = NFA_START, .next = next});
	case TREE_END: return nfa_add(&b->a, (NfaNode){.kind = NFA_END, .next = next});
	case TREE_REPEAT: return build_repeat(b, t, next);
	case TREE_AHEAD: case TREE_NOT_AHEAD: return build_ahead(b, t, next);
	case TREE_LIST: return build_list(b, t, next);
	case TREE_EITHER:
		for (uint32_t i = t->child; i && !b->a.effort->why; i = b->tree->nodes[i].sibling)
			all = nfa_either(&b->a, all, build(b, i, next));
		return all;
	case TREE_SET: return nfa_set(&b->a, b->tree->ranges + t->lo, t->hi, next);
	}
	return NFA_NOTHING;
}

/* Simplifications ------------------------------------------------------------ */

/* How many characters the node has, always; false: that depends, or it is more than characters. */
static bool has_fixed_length(const Parser *p, uint32_t node, uint64_t *n)
{
	const TreeNode *t = &p->nodes[node];
	uint64_t all = 0, one;
	switch (t->kind) {
	case TREE_SET: *n = 1; return true;
	case TREE_REPEAT:
		*n = has_fixed_length(p, t->child, &one) ? one * t->lo : 0;
		return t->lo == t->hi && has_fixed_length(p, t->child, &one) && *n < 1 << 20;
	case TREE_LIST:
		for (uint32_t i = t->child; i; i = p->nodes[i].sibling, all += one)
			if (!has_fixed_length(p, i, &one))
				return false;
		*n = all;
		return true;
	case TREE_EITHER:
		for (uint32_t i = t->child; i; i = p->nodes[i].sibling)
			if (!has_fixed_length(p, i, &one) || (i != t->child && one != all))
				return false;
			else
				all = one;
		*n = all;
		return true;
	default: return false;
	}
}

/* The list that is all of the expression, in any number of groups; 0 = there is none. */
static uint32_t only_list(const Parser *p, uint32_t node)
{
	while (p->nodes[node].kind == TREE_EITHER && !p->nodes[p->nodes[node].child].sibling) {
		const uint32_t list = p->nodes[node].child, only = p->nodes[list].child;
		if (!only || p->nodes[only].sibling || p->nodes[only].kind != TREE_EITHER)
			return list;
		node = only;
	}
	return 0;
}

/* ^...X{m,n}...$ with a fixed length of all but X: without m and n, which *lo and *hi become for the whole. */
static void take_counts_out(Parser *p, uint32_t root, uint32_t *lo, uint32_t *hi)
{
	enum { MANY = 48 /* fewer are quicker as states, of which neighbours are alike */ };
	const uint32_t list = only_list(p, root);
	uint32_t long_one = 0, n = 0, last = 0;
	uint64_t fixed = 0, one;
	for (uint32_t i = list ? p->nodes[list].child : 0; i; i = p->nodes[i].sibling, n++) {
		TreeNode *t = &p->nodes[i];
		last = i;
		if ((n == 0 && t->kind == TREE_START) || (t->kind == TREE_END && !t->sibling))
			continue;
		if (has_fixed_length(p, i, &one))
			fixed += one;
		else if (!long_one && t->kind == TREE_REPEAT && has_fixed_length(p, t->child, &one) && one == 1)
			long_one = i;
		else
			return;
	}
	TreeNode *t = &p->nodes[long_one];
	if (!long_one || p->nodes[p->nodes[list].child].kind != TREE_START || p->nodes[last].kind != TREE_END ||
		(t->hi != UINT32_MAX ? t->hi : t->lo) < MANY || fixed > 1 << 20)
		return;
	*lo = (uint32_t)fixed + t->lo;
	*hi = t->hi == UINT32_MAX ? UINT32_MAX : (uint32_t)fixed + t->hi;
	t->lo = 0;
	t->hi = UINT32_MAX;
}

/* Where anything may be before and after, no more of a repetition at the ends is needed than must be. */
static void cut_ends(Parser *p, uint32_t root)
{
	uint64_t n;
	for (uint32_t list = p->nodes[root].child; list; list = p->nodes[list].sibling)
		for (uint32_t i = p->nodes[list].child; i; i = p->nodes[i].sibling) {
			TreeNode *t = &p->nodes[i];
			const bool at_end = i == p->nodes[list].child || !t->sibling;
			if (t->kind == TREE_REPEAT && at_end && has_fixed_length(p, t->child, &n))
				t->hi = t->lo;
		}
}

static bool compile(const char *text, Search search, Writing writing, uint32_t *lo, uint32_t *hi, Lexeme *l, Effort *e)
{
	Parser p = {.text = (const unsigned char *)text, .n = strlen(text), .e = e};
	*l = (Lexeme){0};
	add_node(&p, (TreeNode){0}); /* 0 is none */
	const uint32_t root = GROW(e, p.ranges, p.ranges_cap, 1) && !e->why ? parse_either(&p) : 0;
	if (root && p.at < p.n)
		refuse(&p, "')' is without '('");
	Builder b = {.tree = &p, .a.effort = e, .writing = writing};
	if (!e->why) {
		if (lo)
			take_counts_out(&p, root, lo, hi);
		if (search == PART)
			cut_ends(&p, root);
		nfa_add(&b.a, (NfaNode){.kind = NFA_PASS}); /* NFA_NOTHING */
		uint32_t at = build_end(&b);
		at = search == PART ? build_any(&b, at) : at;
		at = build(&b, root, at);
		at = search == PART ? build_any(&b, at) : at;
		nfa_written(&b.a, at, writing, l);
	}
	nfa_free(&b.a);
	free(p.nodes);
	free(p.ranges);
	if (e->why)
		lexeme_free(l);
	return !e->why;
}

bool lexeme_of_regex(const char *text, Search search, Writing writing, Lexeme *l, Effort *e)
{
	return compile(text, search, writing, NULL, NULL, l, e);
}

bool lexeme_of_pattern(const char *text, Lexeme *l, uint32_t *lo, uint32_t *hi, Effort *e)
{
	*lo = 0;
	*hi = UINT32_MAX;
	return compile(text, PART, AS_JSON_STRING, lo, hi, l, e);
}

bool lexeme_of_string(Lexeme *l, Effort *e) { return lexeme_of_regex("[^]*", WHOLE, AS_JSON_STRING, l, e); }
