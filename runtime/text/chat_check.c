/* chat_check.c - chat_open: one look at every count, index, kind and depth of a compiled chat template.
 *
 * After it, the interpreter indexes the tables without asking again. What is shown: each node hangs on one parent with
 * a higher index, or is a root of one function, so that a walk ends; no path is longer than CHAT_MAX_TREE; every kid is
 * of a kind that its parent expects; every slot is one of the function it is said to be in. What a template computes
 * with values is not looked at: that is checked while it runs.
 */
#include "runtime/text/chat.h"
#include "runtime/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Owner { uint32_t func; uint16_t depth; bool is_owned; } Owner;

typedef struct Check {
	const ChatProgram *p;
	const ChatHeader *h;
	Owner *owners;  /* [n_nodes] */
	uint8_t *nest;  /* [n_funcs] functions around it */
	bool *declared; /* [n_funcs] */
	char *why;
	size_t why_bytes;
} Check;

static bool bad(const Check *c, const char *what)
{
	snprintf(c->why, c->why_bytes, "compiled chat template: %s", what);
	return false;
}

/* The kinds that kids may be of, in order. e an expression, t a target, s a statement, k an argument, o an operand,
 * v a variable; capital: or ABSENT. A group in parentheses may be repeated, or missing. */
static const char *const kids_of[CHAT_KIND_COUNT] = {
	[CHAT_NONE_VALUE] = "", [CHAT_ABSENT] = "", [CHAT_BOOL] = "", [CHAT_INT] = "", [CHAT_FLOAT] = "",
	[CHAT_STRING] = "", [CHAT_SLOT] = "", [CHAT_ATTR] = "e", [CHAT_ITEM] = "ee", [CHAT_SLICE] = "eEEE",
	[CHAT_CALL] = "e(k)",
	[CHAT_KEYWORD] = "e", [CHAT_FILTER] = "e(k)", [CHAT_TEST] = "e(k)", [CHAT_BINARY] = "ee", [CHAT_NOT] = "e",
	[CHAT_NEGATE] = "e", [CHAT_PLUS] = "e", [CHAT_AND] = "ee", [CHAT_OR] = "ee", [CHAT_COND] = "eeE",
	[CHAT_COMPARE] = "eo(o)", [CHAT_OPERAND] = "e", [CHAT_CONCAT] = "(e)", [CHAT_LIST] = "(e)", [CHAT_TUPLE] = "(e)",
	[CHAT_DICT] = "(ee)", [CHAT_CAPTURED] = "", [CHAT_TO_SLOT] = "", [CHAT_TO_TUPLE] = "(t)", [CHAT_TO_FIELD] = "v",
	[CHAT_SEQUENCE] = "(s)", [CHAT_TEXT] = "", [CHAT_OUTPUT] = "e", [CHAT_IF] = "es(es)S", [CHAT_FOR] = "teTEsS",
	[CHAT_SET] = "te", [CHAT_SET_BLOCK] = "tes", [CHAT_FILTER_BLOCK] = "es", [CHAT_SCOPED] = "s", [CHAT_WITH] = "(te)s",
	[CHAT_MACRO] = "t", [CHAT_BREAK] = "", [CHAT_CONTINUE] = ""
};

static bool is_expression(uint8_t kind) { return kind < CHAT_TO_SLOT && kind != CHAT_ABSENT && kind != CHAT_KEYWORD &&
	kind != CHAT_OPERAND; }

static bool fits(uint8_t kind, char class)
{
	switch (class) {
	case 'e': return is_expression(kind);
	case 'E': return is_expression(kind) || kind == CHAT_ABSENT;
	case 't': return kind >= CHAT_TO_SLOT && kind <= CHAT_TO_FIELD;
	case 'T': return (kind >= CHAT_TO_SLOT && kind <= CHAT_TO_FIELD) || kind == CHAT_ABSENT;
	case 's': return kind >= CHAT_SEQUENCE && kind < CHAT_KIND_COUNT;
	case 'S': return (kind >= CHAT_SEQUENCE && kind < CHAT_KIND_COUNT) || kind == CHAT_ABSENT;
	case 'k': return is_expression(kind) || kind == CHAT_KEYWORD;
	case 'o': return kind == CHAT_OPERAND;
	default: return kind == CHAT_SLOT;
	}
}

/* Class of kid i of n; 0 = there is no kid of that number in a list of that length. */
static char class_of(const char *pattern, uint32_t i, uint32_t n)
{
	const char *open = strchr(pattern, '(');
	const uint32_t length = (uint32_t)strlen(pattern);
	if (!open)
		return n == length ? pattern[i] : 0;
	const uint32_t before = (uint32_t)(open - pattern), group = (uint32_t)strcspn(open + 1, ")");
	const uint32_t after = length - before - group - 2;
	if (n < before + after || (n - before - after) % group)
		return 0;
	return i < before ? pattern[i] : i >= n - after ? pattern[length - (n - i)] : open[1 + (i - before) % group];
}

static bool is_text(const Check *c, ChatText t)
{
	return t.at <= c->h->n_text && t.n <= c->h->n_text - t.at;
}

static bool is_range(uint32_t at, uint32_t n, uint32_t all) { return at <= all && n <= all - at; }

static bool set_pointers(ChatProgram *p, Check *c, size_t n_bytes)
{
	const ChatHeader *h = p->header;
	const char *at = (const char *)(h + 1);
	const struct { const void **place; uint32_t n; size_t bytes; } tables[] = {
		{(const void **)&p->nodes, h->n_nodes, sizeof *p->nodes}, {(const void **)&p->kids, h->n_kids, sizeof *p->kids},
		{(const void **)&p->scopes, h->n_scopes, sizeof *p->scopes},
		{(const void **)&p->loads, h->n_loads, sizeof *p->loads},
		{(const void **)&p->funcs, h->n_funcs, sizeof *p->funcs},
		{(const void **)&p->params, h->n_params, sizeof *p->params},
		{(const void **)&p->globals, h->n_globals, sizeof *p->globals}, {(const void **)&p->text, h->n_text, 1}};
	size_t left = n_bytes - sizeof *h;
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
		if (tables[i].n > (i == 7 ? CHAT_MAX_TEXT : CHAT_MAX_COUNT) || tables[i].n * tables[i].bytes > left)
			return bad(c, "a table that is longer than its file, or than a table may be");
		*tables[i].place = at;
		at += tables[i].n * tables[i].bytes;
		left -= tables[i].n * tables[i].bytes;
	}
	return left == 0 || bad(c, "bytes after the last table");
}

static bool check_utf8(const Check *c)
{
	const unsigned char *s = (const unsigned char *)c->p->text;
	for (size_t at = 0; at < c->h->n_text;) {
		uint32_t cp;
		const int n = utf8_read(s + at, c->h->n_text - at, &cp);
		if (n <= 0)
			return bad(c, "text that is not UTF-8");
		at += (size_t)n;
	}
	return true;
}

/* Makes a node one of a function. */
static bool own(Check *c, uint32_t node, uint32_t below, uint32_t func, uint32_t depth)
{
	if (node >= below || c->owners[node].is_owned)
		return bad(c, "a node in two places, or none");
	if (depth > CHAT_MAX_TREE)
		return bad(c, "nodes too deep inside each other");
	c->owners[node] = (Owner){func, (uint16_t)depth, true};
	return true;
}

/* The functions `out` of them around: does that one have this slot? */
static bool is_slot(const Check *c, uint32_t func, uint32_t out, uint32_t slot)
{
	if (out > c->nest[func])
		return false;
	while (out--)
		func = c->p->funcs[func].outer;
	return slot < c->p->funcs[func].n_slots;
}

static bool check_scope(const Check *c, uint32_t scope, uint32_t func)
{
	bool ok = scope < c->h->n_scopes;
	const ChatScope s = ok ? c->p->scopes[scope] : (ChatScope){0};
	ok = ok && is_range(s.load, s.n_loads, c->h->n_loads);
	for (uint32_t i = 0; ok && i < s.n_loads; i++) {
		const ChatLoad *l = &c->p->loads[s.load + i];
		ok = l->kind < CHAT_LOAD_COUNT && is_slot(c, func, 0, l->slot) && is_text(c, l->name) &&
			(l->kind != CHAT_LOAD_ALIAS || is_slot(c, func, l->a, l->b));
	}
	return ok || bad(c, "a scope with a variable that is not there");
}

static bool check_func(Check *c, uint32_t index, uint32_t below, uint32_t around)
{
	const ChatFunc *f = &c->p->funcs[index];
	if (c->declared[index] || f->outer != around || (index && f->outer >= index))
		return bad(c, "a macro in two places");
	c->declared[index] = true;
	c->nest[index] = index ? (uint8_t)(c->nest[f->outer] + 1) : 0;
	if (c->nest[index] > CHAT_MAX_NEST)
		return bad(c, "macros too deep inside each other");
	if (f->n_slots > CHAT_MAX_COUNT || !is_text(c, f->name) || !is_range(f->param, f->n_params, c->h->n_params))
		return bad(c, "a macro with wrong numbers");
	for (uint32_t i = 0; i < f->n_params; i++) {
		const ChatParam *p = &c->p->params[f->param + i];
		if (!is_slot(c, index, 0, p->slot) || !is_text(c, p->name))
			return bad(c, "an argument of a macro that is not there");
		if (p->init == CHAT_NONE)
			continue;
		if (!own(c, p->init, below, index, 1))
			return false;
		if (!is_expression(c->p->nodes[p->init].kind))
			return bad(c, "an argument whose value is no expression");
	}
	if (!own(c, f->body, below, index, 1))
		return false;
	return fits(c->p->nodes[f->body].kind, 's') ? check_scope(c, f->scope, index) : bad(c, "a macro without a body");
}

static bool check_op(const ChatNode *n)
{
	switch ((ChatKind)n->kind) {
	case CHAT_BOOL: return n->op <= 1;
	case CHAT_FILTER: return n->op < CHAT_FILTER_COUNT;
	case CHAT_TEST: return n->op < CHAT_TEST_COUNT;
	case CHAT_BINARY: return n->op < CHAT_BINARY_COUNT;
	case CHAT_OPERAND: return n->op < CHAT_COMPARE_COUNT;
	default: return n->op == 0;
	}
}

static bool check_node(Check *c, uint32_t index)
{
	const ChatNode *n = &c->p->nodes[index];
	const Owner o = c->owners[index];
	if (!o.is_owned)
		return bad(c, "a node in two places, or none");
	if (n->kind >= CHAT_KIND_COUNT || n->zero || !check_op(n) || !is_text(c, n->name) ||
		!is_range(n->kid, n->n_kids, c->h->n_kids))
		return bad(c, "a node of no kind");
	if (!n->n_kids && kids_of[n->kind][0] && kids_of[n->kind][0] != '(')
		return bad(c, "a node without what belongs to it");
	for (uint32_t i = 0; i < n->n_kids; i++) {
		const uint32_t k = c->p->kids[n->kid + i];
		const char class = class_of(kids_of[n->kind], i, n->n_kids);
		if (!own(c, k, index, o.func, o.depth + 1u))
			return false;
		if (!class || !fits(c->p->nodes[k].kind, class))
			return bad(c, "a node of a kind that does not belong there");
	}
	switch ((ChatKind)n->kind) {
	case CHAT_SLOT: return is_slot(c, o.func, n->a, n->b) || bad(c, "a variable that is not there");
	case CHAT_TO_SLOT: return is_slot(c, o.func, 0, n->b) || bad(c, "a variable that is not there");
	case CHAT_FOR:
		return check_scope(c, n->a, o.func) && check_scope(c, n->b, o.func) && check_scope(c, n->c, o.func) &&
			(is_slot(c, o.func, 0, n->d) || bad(c, "a variable that is not there"));
	case CHAT_SET_BLOCK: case CHAT_FILTER_BLOCK: case CHAT_SCOPED: case CHAT_WITH: return check_scope(c, n->a, o.func);
	case CHAT_MACRO:
		return n->a && n->a < c->h->n_funcs ? check_func(c, n->a, index, o.func) : bad(c, "a macro that is not there");
	default: return true;
	}
}

static bool check_all(Check *c)
{
	const uint32_t n = c->h->n_nodes;
	bool ok = check_utf8(c);
	for (uint32_t i = 0; ok && i < c->h->n_globals; i++)
		ok = (is_text(c, c->p->globals[i].name) && is_text(c, c->p->globals[i].value)) || bad(c, "a text outside");
	if (!ok || !n)
		return ok;
	if (!c->h->n_funcs || !check_func(c, 0, n, 0))
		return c->h->n_funcs ? false : bad(c, "no template");
	for (uint32_t i = n; ok && i-- > 0;)
		ok = check_node(c, i);
	for (uint32_t i = 0; ok && i < c->h->n_funcs; i++)
		ok = c->declared[i] || bad(c, "a macro that is nowhere");
	return ok;
}

bool chat_open(ChatProgram *p, const void *bytes, size_t n_bytes, char *why, size_t why_bytes)
{
	const ChatHeader *h = bytes;
	Check c = {.p = p, .h = h, .why = why, .why_bytes = why_bytes};
	*p = (ChatProgram){.header = h};
	if ((uintptr_t)bytes % 8 || n_bytes < sizeof *h || h->magic != CHAT_MAGIC)
		return bad(&c, "not one");
	if (h->version != CHAT_VERSION) {
		snprintf(why, why_bytes, "compiled chat template: version %u, expected %d", h->version, CHAT_VERSION);
		return false;
	}
	if (h->n_bytes != n_bytes)
		return bad(&c, "cut off, or too long");
	if (!set_pointers(p, &c, n_bytes))
		return false;
	c.owners = calloc((size_t)h->n_nodes + 1, sizeof *c.owners);
	c.nest = calloc((size_t)h->n_funcs + 1, sizeof *c.nest);
	c.declared = calloc((size_t)h->n_funcs + 1, sizeof *c.declared);
	const bool ok = c.owners && c.nest && c.declared ? check_all(&c) : bad(&c, "no memory to check it");
	free(c.owners);
	free(c.nest);
	free(c.declared);
	return ok;
}
