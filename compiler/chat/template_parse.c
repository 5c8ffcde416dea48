/* template_parse.c - tokens of a chat template to a tree, by the grammar of jinja2 3.1.
 *
 * What that grammar knows and this compiler does not (include, import, extends, block, call, recursive loops, * and **
 * in calls) is a remark, A0521, and no program. Filters, tests and methods are looked up here: A0522, A0523. After such
 * a remark parsing goes on, so that all of them are reported; a mistake of syntax, A0520, ends it.
 */
#include "artifacts/closest.h"
#include "compiler/chat/template.h"

#include <string.h>

enum { MAX_DEPTH = 120 };

static const Token *now(const Template *t) { return &t->tokens.at[t->at]; }
static const Token *look(const Template *t) { return &t->tokens.at[t->at + (now(t)->kind != T_END)]; }
static const Token *step(Template *t)
{
	const Token *k = now(t);
	t->at += k->kind != T_END;
	return k;
}

static bool same(const Token *k, TokenKind kind, const char *text)
{
	return k->kind == kind && (size_t)k->n == strlen(text) && memcmp(k->text, text, strlen(text)) == 0;
}
static bool is_op(const Template *t, const char *op) { return same(now(t), T_OP, op); }
static bool is_word(const Template *t, const char *word) { return same(now(t), T_NAME, word); }
static bool skip_op(Template *t, const char *op) { return is_op(t, op) && step(t); }
static bool skip_word(Template *t, const char *word) { return is_word(t, word) && step(t); }

static bool syntax(Template *t, const char *expected)
{
	static const char *const kinds[] = {"the end of the template", "text", "{%", "%}", "{{", "}}", "a name", "a number",
		"a number", "a string", "an operator"};
	const Token *k = now(t);
	if (k->kind == T_NAME || k->kind == T_OP)
		return template_fail(t, A0520, k->line, k->col, "'%.*s': expected %s", k->n < 40 ? k->n : 40,
			k->text, expected);
	return template_fail(t, A0520, k->line, k->col, "%s: expected %s", kinds[k->kind], expected);
}

static bool want_op(Template *t, const char *op)
{
	char quoted[8] = "'";
	if (skip_op(t, op))
		return true;
	strcat(strcat(quoted, op), "'");
	return syntax(t, quoted);
}

static TNode *node(Template *t, ChatKind kind, const Token *at)
{
	TNode *n = ARENA_NEW(t->arena, TNode);
	n->kind = kind;
	n->line = at->line;
	n->col = at->col;
	return n;
}

static TNode *named(Template *t, ChatKind kind, const Token *at, const Token *name)
{
	TNode *n = node(t, kind, at);
	n->name = name->text;
	n->n_name = name->n;
	return n;
}

/* What is deep only by its length, such as a + b + c, is limited here; what is by its brackets, by `depth`. */
static bool add(Template *t, TNode *n, TNode *kid)
{
	if (!kid)
		return false;
	*vec_push(t->arena, &n->kids) = kid;
	n->height = kid->height + 1 > n->height ? kid->height + 1 : n->height;
	return n->height < CHAT_MAX_TREE - 1 || template_fail(t, A0524, kid->line, kid->col,
		"operators, filters or parts in a row of more than %d", CHAT_MAX_TREE - 2);
}

static TNode *unary(Template *t, ChatKind kind, const Token *at, TNode *a)
{
	TNode *n = node(t, kind, at);
	return add(t, n, a) ? n : NULL;
}

static TNode *pair(Template *t, ChatKind kind, int op, const Token *at, TNode *a, TNode *b)
{
	TNode *n = node(t, kind, at);
	n->op = op;
	return add(t, n, a) && add(t, n, b) ? n : NULL;
}

static TNode *absent(Template *t) { return node(t, CHAT_ABSENT, now(t)); }

static TNode *parse_expression(Template *t, bool with_cond);
static TNode *parse_tuple(Template *t, bool with_cond, bool explicit, const char *end_word);
static TNode *parse_postfix(Template *t, TNode *n);

/* Primaries ---------------------------------------------------------------------------------------------- */

static TNode *parse_name(Template *t)
{
	static const struct { const char *name; ChatKind kind; int op; } words[] = {{"true", CHAT_BOOL, 1},
		{"True", CHAT_BOOL, 1}, {"false", CHAT_BOOL, 0}, {"False", CHAT_BOOL, 0}, {"none", CHAT_NONE_VALUE, 0},
		{"None", CHAT_NONE_VALUE, 0}};
	const Token *k = step(t);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (same(k, T_NAME, words[i].name)) {
			TNode *n = node(t, words[i].kind, k);
			n->op = words[i].op;
			return n;
		}
	return named(t, CHAT_SLOT, k, k);
}

static TNode *parse_string(Template *t)
{
	TNode *n = named(t, CHAT_STRING, now(t), now(t));
	const int first = t->at;
	size_t all = 0;
	for (; now(t)->kind == T_STRING; step(t))
		all += (size_t)now(t)->n;
	if (t->at == first + 1)
		return n;
	char *text = arena_alloc(t->arena, all + 1);
	n->name = text;
	n->n_name = (int)all;
	for (int i = first; i < t->at; text += t->tokens.at[i++].n)
		memcpy(text, t->tokens.at[i].text, (size_t)t->tokens.at[i].n);
	return n;
}

static TNode *parse_list(Template *t)
{
	TNode *n = node(t, CHAT_LIST, step(t));
	while (!is_op(t, "]")) {
		if (n->kids.n && !want_op(t, ","))
			return NULL;
		if (is_op(t, "]"))
			break;
		if (!add(t, n, parse_expression(t, true)))
			return NULL;
	}
	step(t);
	return n;
}

static TNode *parse_dict(Template *t)
{
	TNode *n = node(t, CHAT_DICT, step(t));
	while (!is_op(t, "}")) {
		if (n->kids.n && !want_op(t, ","))
			return NULL;
		if (is_op(t, "}"))
			break;
		if (!add(t, n, parse_expression(t, true)) || !want_op(t, ":") || !add(t, n, parse_expression(t, true)))
			return NULL;
	}
	step(t);
	return n;
}

static TNode *parse_primary(Template *t)
{
	const Token *k = now(t);
	TNode *n;
	switch (k->kind) {
	case T_NAME: return parse_name(t);
	case T_STRING: return parse_string(t);
	case T_INT: case T_FLOAT:
		n = node(t, k->kind == T_INT ? CHAT_INT : CHAT_FLOAT, step(t));
		n->integer = k->integer;
		n->real = k->real;
		return n;
	default: break;
	}
	if (is_op(t, "["))
		return parse_list(t);
	if (is_op(t, "{"))
		return parse_dict(t);
	if (!skip_op(t, "("))
		return syntax(t, "an expression"), NULL;
	n = parse_tuple(t, true, true, NULL);
	return n && want_op(t, ")") ? n : NULL;
}

/* Calls, filters, tests ---------------------------------------------------------------------------------- */

static bool parse_arguments(Template *t, TNode *call)
{
	bool keyword = false;
	step(t);
	for (int i = 0; !is_op(t, ")"); i++) {
		if (i && !want_op(t, ","))
			return false;
		if (is_op(t, ")"))
			break;
		const Token *k = now(t);
		if (is_op(t, "*") || is_op(t, "**")) {
			template_fail(t, A0521, k->line, k->col, "'%.*s' before an argument", k->n, k->text);
			step(t);
			if (!parse_expression(t, true))
				return false;
		} else if (k->kind == T_NAME && same(look(t), T_OP, "=")) {
			TNode *n = named(t, CHAT_KEYWORD, k, k);
			step(t);
			step(t);
			keyword = true;
			if (!add(t, n, parse_expression(t, true)) || !add(t, call, n))
				return false;
		} else if (keyword)
			return syntax(t, "name = value");
		else if (!add(t, call, parse_expression(t, true)))
			return false;
	}
	step(t);
	return true;
}

static const char *const filter_names[] = {
#define CHAT_ROW(name, text, ...) text,
	CHAT_FILTERS(CHAT_ROW)
#undef CHAT_ROW
};
static const char *const test_names[] = {
#define CHAT_ROW(name, text, ...) text,
	CHAT_TESTS(CHAT_ROW)
#undef CHAT_ROW
};
static const char *const method_names[] = {
#define CHAT_ROW(name, text) text,
	CHAT_METHODS(CHAT_ROW)
#undef CHAT_ROW
};
/* Refused by the sandbox of jinja2 when they are called: a program may have them. */
static const char *const mutators[] = {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse",
	"setdefault", "sort", "update"};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static int find(const char *const *names, int n, const char *name, int length)
{
	for (int i = 0; i < n; i++)
		if (strlen(names[i]) == (size_t)length && memcmp(names[i], name, (size_t)length) == 0)
			return i;
	return -1;
}

static void unknown(Template *t, Code code, const TNode *n, const char *what, const char *const *names, int count)
{
	char *name = arena_strndup(t->arena, n->name, (size_t)n->n_name);
	const char *close = closest_name(name, names, count);
	template_fail(t, code, n->line, n->col, "%s '%.40s' is not implemented%s%s%s", what, name,
		close ? " (there is '" : "", close ? close : "", close ? "')" : "");
}

static TNode *parse_filter(Template *t, TNode *of, bool inline_start)
{
	while (is_op(t, "|") || inline_start) {
		if (!inline_start)
			step(t);
		inline_start = false;
		const Token *k = now(t);
		if (k->kind != T_NAME)
			return syntax(t, "the name of a filter"), NULL;
		TNode *n = named(t, CHAT_FILTER, k, step(t));
		n->op = find(filter_names, COUNT(filter_names), n->name, n->n_name);
		if (n->op < 0) {
			unknown(t, A0522, n, "filter", filter_names, COUNT(filter_names));
			n->op = 0;
		}
		if (!add(t, n, of) || (is_op(t, "(") && !parse_arguments(t, n)))
			return NULL;
		of = n;
	}
	return of;
}

static TNode *parse_test(Template *t, TNode *of)
{
	const Token *is = step(t);
	const bool negated = skip_word(t, "not");
	const Token *k = now(t);
	if (k->kind != T_NAME)
		return syntax(t, "the name of a test"), NULL;
	TNode *n = named(t, CHAT_TEST, k, step(t));
	n->op = find(test_names, COUNT(test_names), n->name, n->n_name);
	if (n->op < 0) {
		unknown(t, A0522, n, "test", test_names, COUNT(test_names));
		n->op = 0;
	}
	if (!add(t, n, of))
		return NULL;
	k = now(t);
	if (is_op(t, "(")) {
		if (!parse_arguments(t, n))
			return NULL;
	} else if ((k->kind == T_NAME && !is_word(t, "else") && !is_word(t, "or") && !is_word(t, "and")) ||
		k->kind == T_STRING || k->kind == T_INT || k->kind == T_FLOAT || is_op(t, "[") || is_op(t, "{")) {
		if (is_word(t, "is"))
			return syntax(t, "one test: tests cannot be chained"), NULL;
		TNode *argument = parse_primary(t);
		if (!argument || !add(t, n, parse_postfix(t, argument)))
			return NULL;
	}
	return negated ? unary(t, CHAT_NOT, is, n) : n;
}

static TNode *parse_call(Template *t, TNode *callee)
{
	TNode *n = unary(t, CHAT_CALL, now(t), callee);
	if (n && callee->kind == CHAT_ATTR && find(method_names, COUNT(method_names), callee->name, callee->n_name) < 0 &&
		find(mutators, COUNT(mutators), callee->name, callee->n_name) < 0 &&
		!(callee->kids.at[0]->kind == CHAT_SLOT && callee->kids.at[0]->n_name == 4 && memcmp(callee->kids.at[0]->name,
		"loop", 4) == 0))
		unknown(t, A0523, callee, "method", method_names, COUNT(method_names));
	return n && parse_arguments(t, n) ? n : NULL;
}

/* Postfix, operators ------------------------------------------------------------------------------------- */

static TNode *parse_bound(Template *t) /* of a slice */
{
	return is_op(t, ":") || is_op(t, "]") || is_op(t, ",") ? absent(t) : parse_expression(t, true);
}

static TNode *parse_subscript(Template *t, TNode *of)
{
	const Token *k = step(t), *name = now(t);
	if (same(k, T_OP, ".")) {
		if (name->kind == T_INT) {
			TNode *index = node(t, CHAT_INT, step(t));
			index->integer = name->integer;
			return pair(t, CHAT_ITEM, 0, k, of, index);
		}
		if (name->kind != T_NAME)
			return syntax(t, "a name or a number"), NULL;
		TNode *n = named(t, CHAT_ATTR, name, step(t));
		if (n->n_name > 2 && memcmp(n->name, "__", 2) == 0)
			template_fail(t, A0521, n->line, n->col, "attribute %.*s", n->n_name < 40 ? n->n_name : 40, n->name);
		return add(t, n, of) ? n : NULL;
	}
	TNode *first = parse_bound(t);
	if (!first)
		return NULL;
	if (!is_op(t, ":")) {
		if (first->kind == CHAT_ABSENT)
			return syntax(t, "an index"), NULL;
		if (is_op(t, ",")) {
			TNode *tuple = unary(t, CHAT_TUPLE, k, first);
			while (tuple && skip_op(t, ","))
				if (!add(t, tuple, parse_expression(t, true)))
					return NULL;
			first = tuple;
		}
		return want_op(t, "]") ? pair(t, CHAT_ITEM, 0, k, of, first) : NULL;
	}
	TNode *n = pair(t, CHAT_SLICE, 0, k, of, first);
	step(t);
	if (!add(t, n, parse_bound(t)) || !add(t, n, skip_op(t, ":") ? parse_bound(t) : absent(t)))
		return NULL;
	return want_op(t, "]") ? n : NULL;
}

static TNode *parse_postfix(Template *t, TNode *n)
{
	while (n && (is_op(t, ".") || is_op(t, "[") || is_op(t, "(")))
		n = is_op(t, "(") ? parse_call(t, n) : parse_subscript(t, n);
	return n;
}

static TNode *parse_unary(Template *t, bool with_filter)
{
	const Token *k = now(t);
	TNode *n;
	if (++t->depth > MAX_DEPTH) {
		template_fail(t, A0524, k->line, k->col, "more than %d expressions and blocks inside each other", MAX_DEPTH);
		return NULL;
	}
	if (skip_op(t, "-"))
		n = unary(t, CHAT_NEGATE, k, parse_unary(t, false));
	else if (skip_op(t, "+"))
		n = unary(t, CHAT_PLUS, k, parse_unary(t, false));
	else
		n = parse_primary(t);
	n = parse_postfix(t, n);
	while (n && with_filter && (is_op(t, "|") || is_word(t, "is") || is_op(t, "(")))
		n = is_op(t, "|") ? parse_filter(t, n, false) : is_op(t, "(") ? parse_call(t, n) : parse_test(t, n);
	t->depth--;
	return n;
}

static int operator_of(const Template *t, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (is_op(t, names[i]))
			return i;
	return -1;
}

static TNode *binary(Template *t, int op, const Token *at, TNode *a, TNode *b)
{
	if (a && op == CHAT_MOD && a->kind == CHAT_STRING)
		template_fail(t, A0521, at->line, at->col, "%% with a text on its left");
	return pair(t, CHAT_BINARY, op, at, a, b);
}

static TNode *parse_power(Template *t)
{
	TNode *n = parse_unary(t, true);
	while (n && is_op(t, "**")) {
		const Token *k = step(t);
		n = binary(t, CHAT_POW, k, n, parse_unary(t, true));
	}
	return n;
}

static TNode *parse_product(Template *t)
{
	static const char *const names[] = {"*", "/", "//", "%"};
	TNode *n = parse_power(t);
	for (int op; n && (op = operator_of(t, names, 4)) >= 0;) {
		const Token *k = step(t);
		n = binary(t, CHAT_MUL + op, k, n, parse_power(t));
	}
	return n;
}

static TNode *parse_concat(Template *t)
{
	TNode *first = parse_product(t);
	if (!first || !is_op(t, "~"))
		return first;
	TNode *n = unary(t, CHAT_CONCAT, now(t), first);
	while (skip_op(t, "~"))
		if (!add(t, n, parse_product(t)))
			return NULL;
	return n;
}

static TNode *parse_sum(Template *t)
{
	static const char *const names[] = {"+", "-"};
	TNode *n = parse_concat(t);
	for (int op; n && (op = operator_of(t, names, 2)) >= 0;) {
		const Token *k = step(t);
		n = binary(t, CHAT_ADD + op, k, n, parse_concat(t));
	}
	return n;
}

static TNode *parse_comparison(Template *t)
{
	static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
	TNode *n = parse_sum(t), *all = NULL;
	while (n) {
		const Token *k = now(t);
		int op = operator_of(t, names, 6);
		if (op >= 0)
			step(t);
		else if (skip_word(t, "in"))
			op = CHAT_IN;
		else if (is_word(t, "not") && same(look(t), T_NAME, "in")) {
			step(t);
			step(t);
			op = CHAT_NOT_IN;
		} else
			break;
		TNode *operand = unary(t, CHAT_OPERAND, k, parse_sum(t));
		all = all ? all : unary(t, CHAT_COMPARE, k, n);
		if (!operand || !add(t, all, operand))
			return NULL;
		operand->op = op;
	}
	return n ? all ? all : n : NULL;
}

static TNode *parse_not(Template *t)
{
	const Token *k = now(t);
	if (!skip_word(t, "not"))
		return parse_comparison(t);
	if (++t->depth > MAX_DEPTH) {
		template_fail(t, A0524, k->line, k->col, "more than %d expressions and blocks inside each other", MAX_DEPTH);
		return NULL;
	}
	TNode *n = unary(t, CHAT_NOT, k, parse_not(t));
	t->depth--;
	return n;
}

static TNode *parse_or(Template *t)
{
	TNode *n = NULL;
	do {
		const Token *k = now(t);
		TNode *both = parse_not(t);
		while (both && is_word(t, "and")) {
			const Token *and = step(t);
			both = pair(t, CHAT_AND, 0, and, both, parse_not(t));
		}
		n = n ? pair(t, CHAT_OR, 0, k, n, both) : both;
	} while (n && skip_word(t, "or"));
	return n;
}

static TNode *parse_expression(Template *t, bool with_cond)
{
	const Token *k = now(t);
	if (++t->depth > MAX_DEPTH) {
		template_fail(t, A0524, k->line, k->col, "more than %d expressions and blocks inside each other", MAX_DEPTH);
		return NULL;
	}
	TNode *n = parse_or(t);
	while (n && with_cond && skip_word(t, "if")) {
		TNode *test = parse_or(t), *other = NULL;
		if (test)
			other = skip_word(t, "else") ? parse_expression(t, true) : absent(t);
		n = test && other ? add(t, test = unary(t, CHAT_COND, k, test), n) && add(t, test, other) ? test : NULL : NULL;
	}
	t->depth--;
	return n;
}

static TNode *parse_tuple(Template *t, bool with_cond, bool explicit, const char *end_word)
{
	TNode *all = node(t, CHAT_TUPLE, now(t));
	bool is_tuple = false;
	for (;;) {
		if (all->kids.n && !want_op(t, ","))
			return NULL;
		const TokenKind kind = now(t)->kind;
		if (kind == T_BLOCK_END || kind == T_OUTPUT_END || is_op(t, ")") || (end_word && is_word(t, end_word)))
			break;
		if (!add(t, all, parse_expression(t, with_cond)))
			return NULL;
		if (!is_op(t, ","))
			break;
		is_tuple = true;
	}
	if (is_tuple || (explicit && !all->kids.n))
		return all;
	return all->kids.n ? all->kids.at[0] : (syntax(t, "an expression"), NULL);
}

/* Statements --------------------------------------------------------------------------------------------- */

static TNode *parse_body(Template *t, const char *const *ends);
static TNode *parse_until(Template *t, const char *end)
{
	TNode *body = parse_body(t, (const char *const[]){end, NULL});
	if (body)
		step(t);
	return body;
}

static bool want_block_end(Template *t)
{
	if (now(t)->kind != T_BLOCK_END)
		return syntax(t, "%}");
	step(t);
	return true;
}

static TNode *parse_target_name(Template *t)
{
	static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
	const Token *k = now(t);
	if (k->kind != T_NAME || find(reserved, COUNT(reserved), k->text, k->n) >= 0)
		return syntax(t, "the name of a variable"), NULL;
	step(t);
	return named(t, CHAT_TO_SLOT, k, k);
}

static TNode *parse_target(Template *t, bool with_field, const char *end_word)
{
	const Token *k = now(t);
	if (with_field && k->kind == T_NAME && same(look(t), T_OP, ".")) {
		TNode *space = named(t, CHAT_SLOT, k, step(t));
		step(t);
		if (now(t)->kind != T_NAME)
			return syntax(t, "a name"), NULL;
		TNode *n = named(t, CHAT_TO_FIELD, k, step(t));
		return add(t, n, space) ? n : NULL;
	}
	const bool parens = skip_op(t, "(");
	TNode *first = parse_target_name(t);
	if (!first || !is_op(t, ","))
		return !first || (parens && !want_op(t, ")")) ? NULL : first;
	TNode *all = unary(t, CHAT_TO_TUPLE, k, first);
	while (skip_op(t, ",")) {
		if (is_op(t, "=") || is_op(t, ")") || (end_word && is_word(t, end_word)))
			break;
		if (!add(t, all, is_op(t, "(") ? parse_target(t, false, NULL) : parse_target_name(t)))
			return NULL;
	}
	return parens && !want_op(t, ")") ? NULL : all;
}

static TNode *parse_if(Template *t, const Token *at)
{
	TNode *n = node(t, CHAT_IF, at);
	for (;;) {
		if (!add(t, n, parse_tuple(t, false, false, NULL)) ||
			!add(t, n, parse_body(t, (const char *const[]){"elif", "else", "endif", NULL})))
			return NULL;
		if (skip_word(t, "elif"))
			continue;
		if (skip_word(t, "endif"))
			return add(t, n, absent(t)) ? n : NULL;
		step(t);
		return add(t, n, parse_until(t, "endif")) ? n : NULL;
	}
}

static bool writes_loop(const TNode *target)
{
	bool found = target->kind == CHAT_TO_SLOT && target->n_name == 4 && memcmp(target->name, "loop", 4) == 0;
	for (int i = 0; i < target->kids.n; i++)
		found |= writes_loop(target->kids.at[i]);
	return found;
}

static TNode *parse_for(Template *t, const Token *at)
{
	TNode *n = node(t, CHAT_FOR, at), *target = parse_target(t, false, "in");
	if (!add(t, n, target))
		return NULL;
	if (writes_loop(target))
		return template_fail(t, A0520, target->line, target->col, "'loop' cannot be a loop's own variable"), NULL;
	if (!skip_word(t, "in"))
		return syntax(t, "'in'"), NULL;
	if (!add(t, n, parse_tuple(t, false, false, "recursive")))
		return NULL;
	if (!add(t, n, skip_word(t, "if") ? parse_expression(t, true) : absent(t)))
		return NULL;
	if (is_word(t, "recursive")) {
		template_fail(t, A0521, now(t)->line, now(t)->col, "a recursive loop");
		step(t);
	}
	t->n_loops++;
	TNode *body = parse_body(t, (const char *const[]){"endfor", "else", NULL});
	t->n_loops--;
	if (!add(t, n, body))
		return NULL;
	if (skip_word(t, "else"))
		return add(t, n, parse_until(t, "endfor")) ? n : NULL;
	step(t);
	return add(t, n, absent(t)) ? n : NULL;
}

static TNode *captured(Template *t) { return node(t, CHAT_CAPTURED, now(t)); }

static TNode *parse_set(Template *t, const Token *at)
{
	TNode *target = parse_target(t, true, NULL), *n;
	if (!target)
		return NULL;
	if (skip_op(t, "="))
		return pair(t, CHAT_SET, 0, at, target, parse_tuple(t, true, false, NULL));
	n = unary(t, CHAT_SET_BLOCK, at, target);
	return add(t, n, parse_filter(t, captured(t), false)) && add(t, n, parse_until(t, "endset")) ? n : NULL;
}

static TNode *parse_macro(Template *t, const Token *at)
{
	const Token *name = now(t);
	TNode *target = parse_target_name(t);
	if (!target)
		return NULL;
	TNode *n = named(t, CHAT_MACRO, at, name);
	VEC(TNode *) defaults = {0};
	add(t, n, target);
	if (!want_op(t, "("))
		return NULL;
	for (; !is_op(t, ")"); n->n_params++) {
		if (n->n_params && !want_op(t, ","))
			return NULL;
		TNode *param = parse_target_name(t), *init;
		if (!add(t, n, param))
			return NULL;
		if (skip_op(t, "=")) {
			if (!(init = parse_expression(t, true)))
				return NULL;
		} else if (defaults.n && defaults.at[defaults.n - 1]->kind != CHAT_ABSENT)
			return syntax(t, "a default: an argument before has one"), NULL;
		else
			init = absent(t);
		*vec_push(t->arena, &defaults) = init;
	}
	step(t);
	for (int i = 0; i < defaults.n; i++)
		add(t, n, defaults.at[i]);
	const int loops = t->n_loops;
	t->n_loops = 0;
	TNode *body = parse_until(t, "endmacro");
	t->n_loops = loops;
	return add(t, n, body) ? n : NULL;
}

static TNode *parse_with(Template *t, const Token *at)
{
	TNode *n = node(t, CHAT_WITH, at);
	while (now(t)->kind != T_BLOCK_END) {
		if (n->kids.n && !want_op(t, ","))
			return NULL;
		if (!add(t, n, parse_target(t, false, NULL)) || !want_op(t, "=") || !add(t, n, parse_expression(t, true)))
			return NULL;
	}
	return add(t, n, parse_until(t, "endwith")) ? n : NULL;
}

static TNode *parse_generation(Template *t, const Token *at)
{
	const int loops = t->n_loops;
	t->n_loops = 0;
	TNode *n = unary(t, CHAT_SCOPED, at, parse_until(t, "endgeneration"));
	t->n_loops = loops;
	return n;
}

static TNode *parse_statement(Template *t)
{
	static const char *const elsewhere[] = {"autoescape", "block", "call", "extends", "from", "import", "include",
		"print"};
	const Token *k = now(t);
	if (k->kind != T_NAME)
		return syntax(t, "the name of a statement"), NULL;
	step(t);
	if (same(k, T_NAME, "if"))
		return parse_if(t, k);
	if (same(k, T_NAME, "for"))
		return parse_for(t, k);
	if (same(k, T_NAME, "set"))
		return parse_set(t, k);
	if (same(k, T_NAME, "macro"))
		return parse_macro(t, k);
	if (same(k, T_NAME, "with"))
		return parse_with(t, k);
	if (same(k, T_NAME, "generation"))
		return parse_generation(t, k);
	if (same(k, T_NAME, "filter")) {
		TNode *n = unary(t, CHAT_FILTER_BLOCK, k, parse_filter(t, captured(t), true));
		return n && add(t, n, parse_until(t, "endfilter")) ? n : NULL;
	}
	if (same(k, T_NAME, "break") || same(k, T_NAME, "continue")) {
		if (!t->n_loops)
			return template_fail(t, A0520, k->line, k->col, "'%.*s' outside of a loop", k->n, k->text), NULL;
		return node(t, same(k, T_NAME, "break") ? CHAT_BREAK : CHAT_CONTINUE, k);
	}
	const bool known = find(elsewhere, COUNT(elsewhere), k->text, k->n) >= 0;
	template_fail(t, known ? A0521 : A0520, k->line, k->col, known ? "statement '%.*s'" : "'%.*s' is not a statement",
		k->n < 40 ? k->n : 40, k->text);
	return NULL;
}

static bool parse_piece(Template *t, TNode *all)
{
	const Token *k = now(t);
	if (k->kind == T_DATA)
		return add(t, all, named(t, CHAT_TEXT, k, step(t)));
	step(t);
	if (k->kind == T_OUTPUT_BEGIN) {
		if (!add(t, all, unary(t, CHAT_OUTPUT, k, parse_tuple(t, true, false, NULL))))
			return false;
		if (now(t)->kind != T_OUTPUT_END)
			return syntax(t, "}}");
		step(t);
		return true;
	}
	return add(t, all, parse_statement(t)) && want_block_end(t);
}

/* From the %} of a statement up to {% END, and then END is the token looked at; ends NULL: the whole template. */
static TNode *parse_body(Template *t, const char *const *ends)
{
	TNode *all = node(t, CHAT_SEQUENCE, now(t));
	if (++t->depth > MAX_DEPTH) {
		template_fail(t, A0524, all->line, all->col,
			"more than %d expressions and blocks inside each other", MAX_DEPTH);
		return NULL;
	}
	if (ends && !want_block_end(t))
		return NULL;
	while (now(t)->kind != T_END) {
		for (int i = 0; ends && now(t)->kind == T_BLOCK_BEGIN && ends[i]; i++)
			if (same(look(t), T_NAME, ends[i])) {
				step(t);
				t->depth--;
				return all;
			}
		if (!parse_piece(t, all))
			return NULL;
	}
	t->depth--;
	if (!ends)
		return all;
	char expected[40] = "{% ";
	for (int i = 0; ends[i]; i++)
		strcat(strcat(expected, i ? ", " : ""), ends[i]);
	return syntax(t, expected), NULL;
}

TNode *template_parse(Template *t) { return parse_body(t, NULL); }
