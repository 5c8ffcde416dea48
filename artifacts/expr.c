/* expr.c - the integer expressions of kernel contracts: predicates, geometry, byte counts, shapes.
 *
 * A predicate such as `K % 8 == 0 && ROWS <= 8` is text in a template and must mean the same to the
 * program that reads templates, to the compiler that chooses kernels, and to a person who knows C. So the
 * grammar is C's for integers, with C's precedence, and four functions. It is evaluated straight from the
 * text in one descent: expressions are short, and a tree would be a second form to keep right.
 *
 * Values are int64_t; every operation is checked for overflow. The branch that `?:`, `&&` or `||` does not
 * take is parsed with `live` off: its names must exist, but its divisions and overflows do not count, as in
 * C. Depth is bounded by MAX_DEPTH nested parentheses, calls, conditionals and unary operators, so hostile text
 * cannot exhaust the stack.
 */
#include "artifacts/expr.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

typedef struct Parser {
	const char *text, *at;
	const ExprEnv *env; /* NULL = names are listed, not looked up */
	void (*seen)(void *ctx, const char *name, int n);
	void *ctx;
	int depth;
	bool failed;
	char *why;
	size_t why_bytes;
} Parser;

static int64_t conditional(Parser *p, bool live);

__attribute__((format(printf, 3, 4)))
static int64_t refuse(Parser *p, const char *at, const char *fmt, ...)
{
	if (p->failed)
		return 0;
	p->failed = true;
	int n = snprintf(p->why, p->why_bytes, "column %d: ", (int)(at - p->text) + 1);
	if (n < 0 || (size_t)n >= p->why_bytes)
		return 0;
	va_list args;
	va_start(args, fmt);
	vsnprintf(p->why + n, p->why_bytes - (size_t)n, fmt, args);
	va_end(args);
	return 0;
}

/* Lexer: bytes of ASCII, whatever the locale says ---------------------------------------------- */

static bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }
static bool is_letter(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static const char *skip_space(const char *s)
{
	while (*s == ' ' || *s == '\t' || *s == '\n')
		s++;
	return s;
}

static int name_length(const char *s)
{
	int n = 0;
	if (is_letter(*s))
		while (is_letter(s[n]) || is_digit(s[n]))
			n++;
	return n;
}

static bool take(Parser *p, char ch)
{
	p->at = skip_space(p->at);
	if (*p->at != ch)
		return false;
	p->at++;
	return true;
}

static int64_t expected(Parser *p, const char *what)
{
	const char *at = skip_space(p->at);
	if (!*at)
		return refuse(p, at, "expected %s, found the end", what);
	int n = name_length(at);
	return refuse(p, at, "expected %s, found '%.*s'", what, n ? n : 1, at);
}

static int64_t number(Parser *p)
{
	const char *start = p->at;
	int64_t v = 0;
	for (; is_digit(*p->at); p->at++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p->at - '0', &v))
			return refuse(p, start, "the number does not fit in 64 bits");
	if (is_letter(*p->at) || *p->at == '.')
		return refuse(p, start, "only whole decimal numbers are known here");
	if (*start == '0' && p->at - start > 1)
		return refuse(p, start, "a number does not start with 0");
	return v;
}

/* Names -------------------------------------------------------------------------------------------- */

bool env_find(const ExprEnv *env, const char *name, size_t n, int64_t *value)
{
	for (; env; env = env->outer)
		for (int i = 0; i < env->n; i++)
			if (*env->names[i].name == *name && strncmp(env->names[i].name, name, n) == 0 &&
				env->names[i].name[n] == 0)
				return *value = env->names[i].value, true;
	return false;
}

/* Is this name in the text before `name` already? */
static bool is_repeated(const Parser *p, const char *name, int n)
{
	for (const char *s = p->text; s < name;) {
		int m = name_length(s);
		if (m == n && memcmp(s, name, (size_t)n) == 0)
			return true;
		s += m ? m : 1;
	}
	return false;
}

static int64_t name_value(Parser *p, const char *name, int n)
{
	int64_t v = 1;
	if (p->env && !env_find(p->env, name, (size_t)n, &v))
		return refuse(p, name, "unknown name %.*s", n, name);
	if (p->seen && !is_repeated(p, name, n))
		p->seen(p->ctx, name, n);
	return v;
}

typedef enum Function { CEIL_DIV, MIN, MAX, ALIGN, N_FUNCTIONS } Function;
static const char *const functions[N_FUNCTIONS] = {"ceil_div", "min", "max", "align"};

/* ceil(a / b) for b > 0 and any sign of a. */
static int64_t divide_up(int64_t a, int64_t b)
{
	return a / b + (a % b > 0);
}

static int64_t apply(Parser *p, const char *at, Function f, int64_t a, int64_t b)
{
	int64_t v = 0;
	switch (f) {
	case MIN:
		return a < b ? a : b;
	case MAX:
		return a > b ? a : b;
	case CEIL_DIV:
	case ALIGN:
		if (b <= 0)
			return refuse(p, at, "%s by %lld, which is not positive", functions[f], (long long)b);
		v = divide_up(a, b);
		if (f == ALIGN && __builtin_mul_overflow(v, b, &v))
			return refuse(p, at, "the result does not fit in 64 bits");
		return v;
	case N_FUNCTIONS:
		break;
	}
	return v;
}

static int64_t call(Parser *p, const char *name, int n, bool live)
{
	int f = 0;
	while (f < N_FUNCTIONS && (strlen(functions[f]) != (size_t)n || memcmp(functions[f], name, (size_t)n)))
		f++;
	if (f == N_FUNCTIONS)
		return refuse(p, name, "unknown function %.*s: expected ceil_div, min, max or align", n, name);
	int64_t a = conditional(p, live);
	if (!take(p, ','))
		return expected(p, "','");
	int64_t b = conditional(p, live);
	if (!take(p, ')'))
		return expected(p, "')'");
	return live && !p->failed ? apply(p, name, (Function)f, a, b) : 1;
}

/* Grammar -------------------------------------------------------------------------------------------- */

static int64_t primary(Parser *p, bool live)
{
	p->at = skip_space(p->at);
	const char *at = p->at;
	if (is_digit(*at))
		return number(p);
	int n = name_length(at);
	if (n) {
		p->at += n;
		return take(p, '(') ? call(p, at, n, live) : name_value(p, at, n);
	}
	if (take(p, '(')) {
		int64_t v = conditional(p, live);
		return take(p, ')') ? v : expected(p, "')'");
	}
	return expected(p, "a value");
}

static int64_t unary(Parser *p, bool live)
{
	p->at = skip_space(p->at);
	const char *at = p->at;
	if (*at != '-' && *at != '!' && *at != '+')
		return primary(p, live);
	p->at++;
	if (++p->depth > MAX_DEPTH)
		return refuse(p, at, "nested deeper than %d", MAX_DEPTH);
	int64_t v = unary(p, live);
	p->depth--;
	if (*at == '!')
		return !v;
	if (*at == '-' && __builtin_sub_overflow(0, v, &v) && live)
		return refuse(p, at, "the result does not fit in 64 bits");
	return v;
}

typedef enum BinaryKind { OR, AND, EQ, NE, LE, GE, LT, GT, ADD, SUB, MUL, DIV, MOD, N_BINARY } BinaryKind;
static const struct { int length, precedence; } binary_ops[N_BINARY] = {
	[OR] = {2, 1}, [AND] = {2, 2}, [EQ] = {2, 3}, [NE] = {2, 3}, [LE] = {2, 4}, [GE] = {2, 4}, [LT] = {1, 4},
	[GT] = {1, 4}, [ADD] = {1, 5}, [SUB] = {1, 5}, [MUL] = {1, 6}, [DIV] = {1, 6}, [MOD] = {1, 6},
};

static BinaryKind peek_binary(Parser *p)
{
	p->at = skip_space(p->at);
	const bool is_doubled = *p->at && p->at[1] == *p->at, is_equal = *p->at && p->at[1] == '=';
	switch (*p->at) {
	case '|': return is_doubled ? OR : N_BINARY;
	case '&': return is_doubled ? AND : N_BINARY;
	case '=': return is_equal ? EQ : N_BINARY;
	case '!': return is_equal ? NE : N_BINARY;
	case '<': return is_equal ? LE : LT;
	case '>': return is_equal ? GE : GT;
	case '+': return ADD;
	case '-': return SUB;
	case '*': return MUL;
	case '/': return DIV;
	case '%': return MOD;
	default: return N_BINARY;
	}
}

static int64_t combine(Parser *p, const char *at, BinaryKind k, int64_t a, int64_t b)
{
	int64_t v = 0;
	bool over = false;
	switch (k) {
	case OR: return a || b;
	case AND: return a && b;
	case EQ: return a == b;
	case NE: return a != b;
	case LE: return a <= b;
	case GE: return a >= b;
	case LT: return a < b;
	case GT: return a > b;
	case ADD: over = __builtin_add_overflow(a, b, &v); break;
	case SUB: over = __builtin_sub_overflow(a, b, &v); break;
	case MUL: over = __builtin_mul_overflow(a, b, &v); break;
	case DIV:
	case MOD:
		if (b == 0)
			return refuse(p, at, "division by zero");
		over = a == INT64_MIN && b == -1;
		v = over ? 0 : k == DIV ? a / b : a % b;
		break;
	case N_BINARY:
		break;
	}
	return over ? refuse(p, at, "the result does not fit in 64 bits") : v;
}

static int64_t binary(Parser *p, int least, bool live)
{
	int64_t a = unary(p, live);
	while (!p->failed) {
		BinaryKind k = peek_binary(p);
		if (k == N_BINARY || binary_ops[k].precedence < least)
			break;
		const char *at = p->at;
		p->at += binary_ops[k].length;
		bool decided = (k == OR && a) || (k == AND && !a);
		int64_t b = binary(p, binary_ops[k].precedence + 1, live && !decided);
		if (!p->failed)
			a = live ? combine(p, at, k, a, b) : 1;
	}
	return a;
}

static int64_t conditional(Parser *p, bool live)
{
	if (++p->depth > MAX_DEPTH)
		return refuse(p, p->at, "nested deeper than %d", MAX_DEPTH);
	int64_t v = binary(p, 1, live);
	if (!p->failed && take(p, '?')) {
		int64_t yes = conditional(p, live && v);
		if (!p->failed && !take(p, ':'))
			expected(p, "':'");
		int64_t no = p->failed ? 0 : conditional(p, live && !v);
		v = v ? yes : no;
	}
	p->depth--;
	return v;
}

static bool parse(Parser *p, int64_t *value, bool live)
{
	p->at = p->text;
	*value = conditional(p, live);
	if (!p->failed && *skip_space(p->at))
		expected(p, "an operator or the end");
	return !p->failed;
}

bool expr_names(const char *text, void (*seen)(void *ctx, const char *name, int n), void *ctx,
	char *why, size_t why_bytes)
{
	Parser p = {.text = text, .seen = seen, .ctx = ctx, .why = why, .why_bytes = why_bytes};
	int64_t ignored;
	return parse(&p, &ignored, false);
}

bool expr_eval(const char *text, const ExprEnv *env, int64_t *value, char *why, size_t why_bytes)
{
	static const ExprEnv no_names = {0};
	Parser p = {.text = text, .env = env ? env : &no_names, .why = why, .why_bytes = why_bytes};
	return parse(&p, value, true);
}

bool expr_next(const char **list, char *item, size_t bytes)
{
	const char *s = skip_space(*list), *end = s;
	if (!*s)
		return false;
	for (int depth = 0; *end && (depth || *end != ','); end++)
		depth += (*end == '(') - (*end == ')');
	*list = *end ? end + 1 : end;
	while (end > s && skip_space(end - 1) != end - 1)
		end--;
	size_t n = (size_t)(end - s) < bytes ? (size_t)(end - s) : bytes - 1;
	memcpy(item, s, n);
	item[n] = 0;
	return true;
}
