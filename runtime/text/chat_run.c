/* chat_run.c - runs the program of a chat template: expressions to values, statements to text.
 *
 * The tree is walked. Each node takes a step of fuel, and how deep the walk may go is bounded, so that every program
 * ends and none needs more than a fraction of a megabyte of stack.
 */
#include "runtime/text/chat_machine.h"

#include <math.h>

typedef enum Flow { GO, BREAK, CONTINUE } Flow;

static const char *const function_names[] = {
#define CHAT_ROW(name, text) text,
	CHAT_GLOBAL_FUNCS(CHAT_ROW)
#undef CHAT_ROW
};

static Val eval(Machine *m, Frame *f, uint32_t node);
static Flow run(Machine *m, Frame *f, uint32_t node);

static const ChatNode *at(const Machine *m, uint32_t node) { return &m->p->nodes[node]; }
static uint32_t kid(const Machine *m, const ChatNode *n, uint32_t i) { return m->p->kids[n->kid + i]; }
static bool is_absent(const Machine *m, const ChatNode *n, uint32_t i)
{
	return at(m, kid(m, n, i))->kind == CHAT_ABSENT;
}

static bool enter(Machine *m)
{
	if (++m->evals > CHAT_MAX_EVALS)
		chat_fail(m, CHAT_LIMIT, "the template nests deeper than %d", CHAT_MAX_EVALS);
	return chat_work(m, 1);
}

static Val text_of(Machine *m, ChatText t) { return chat_literal(m, m->p->text + t.at, t.n, false); }

/* The string that a node names. */
static const Str *name_of(Machine *m, uint32_t node)
{
	static const Str empty = {.p = ""};
	if (!m->literals[node])
		m->literals[node] = text_of(m, at(m, node)->name).str;
	return failed(m) ? &empty : m->literals[node];
}

/* Variables ------------------------------------------------------------------------------------ */

static Val resolve(Machine *m, ChatText name)
{
	const char *p = m->p->text + name.at;
	const Val *given = dict_find(m->given, p, name.n);
	if (given)
		return *given;
	for (uint32_t i = 0; i < m->p->header->n_globals; i++) {
		const ChatGlobal *g = &m->p->globals[i];
		if (g->name.n == name.n && memcmp(m->p->text + g->name.at, p, name.n) == 0)
			return text_of(m, g->value);
	}
	for (size_t i = 0; i < CHAT_GLOBAL_FUNC_COUNT; i++)
		if (strlen(function_names[i]) == name.n && memcmp(function_names[i], p, name.n) == 0)
			return (Val){.tag = V_FUNCTION, .integer = (int64_t)i};
	return chat_undefined(m, (Val){.tag = V_ABSENT}, text_of(m, name));
}

static Val *slot(Frame *f, uint32_t out, uint32_t k)
{
	while (out--)
		f = f->outer;
	return &f->slots[k];
}

static void begin_scope(Machine *m, Frame *f, uint32_t scope)
{
	const ChatScope *s = &m->p->scopes[scope];
	for (uint32_t i = 0; i < s->n_loads && !failed(m); i++) {
		const ChatLoad *l = &m->p->loads[s->load + i];
		Val v = {.tag = V_ABSENT};
		if (l->kind == CHAT_LOAD_RESOLVE)
			v = resolve(m, l->name);
		else if (l->kind == CHAT_LOAD_ALIAS)
			v = *slot(f, l->a, l->b);
		f->slots[l->slot] = is_given(v) ? v : chat_undefined(m, v, text_of(m, l->name));
	}
}

static void assign(Machine *m, Frame *f, uint32_t target, Val v)
{
	const ChatNode *n = at(m, target);
	if (failed(m))
		return;
	if (n->kind == CHAT_TO_SLOT) {
		f->slots[n->b] = v;
		return;
	}
	if (n->kind == CHAT_TO_FIELD) {
		const Val space = eval(m, f, kid(m, n, 0));
		if (space.tag != V_NAMESPACE)
			chat_fail(m, CHAT_BAD_VALUE, "cannot assign attribute on non-namespace object");
		else
			dict_put(m, space.dict, (Val){.tag = V_STRING, .str = name_of(m, target)}, v);
		return;
	}
	const List *l = elements(m, v);
	if (l->n != n->n_kids)
		chat_fail(m, CHAT_BAD_VALUE, "%zu values for %u variables", l->n, n->n_kids);
	for (uint32_t i = 0; i < n->n_kids && !failed(m); i++)
		assign(m, f, kid(m, n, i), l->at[i]);
}

/* Operators ------------------------------------------------------------------------------------ */

static Val too_large(Machine *m) { return chat_fail(m, CHAT_BAD_VALUE, "a whole number beyond 64 bits"); }

static Val power(Machine *m, int64_t base, int64_t n)
{
	int64_t all = 1;
	if (n < 0)
		return base ? val_float(pow((double)base, (double)n)) : chat_fail(m, CHAT_BAD_VALUE, "0 to a negative power");
	for (; n && !(base == 0 || base == 1); n--)
		if (!chat_work(m, 1) || __builtin_mul_overflow(all, base, &all))
			return too_large(m);
	return val_int(n ? base : all);
}

static Val whole(Machine *m, ChatBinary op, int64_t a, int64_t b)
{
	int64_t out = 0;
	if ((op == CHAT_DIV || op == CHAT_FLOORDIV || op == CHAT_MOD) && b == 0)
		return chat_fail(m, CHAT_BAD_VALUE, "division by zero");
	switch (op) {
	case CHAT_ADD: return __builtin_add_overflow(a, b, &out) ? too_large(m) : val_int(out);
	case CHAT_SUB: return __builtin_sub_overflow(a, b, &out) ? too_large(m) : val_int(out);
	case CHAT_MUL: return __builtin_mul_overflow(a, b, &out) ? too_large(m) : val_int(out);
	case CHAT_DIV: return val_float((double)a / (double)b);
	case CHAT_FLOORDIV:
		if (b == -1)
			return a == INT64_MIN ? too_large(m) : val_int(-a);
		return val_int(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
	case CHAT_MOD:
		out = b == -1 ? 0 : a % b;
		return val_int(out && (out < 0) != (b < 0) ? out + b : out);
	default: return power(m, a, b);
	}
}

static Val real(Machine *m, ChatBinary op, double a, double b)
{
	double out;
	if ((op == CHAT_DIV || op == CHAT_FLOORDIV || op == CHAT_MOD) && b == 0)
		return chat_fail(m, CHAT_BAD_VALUE, "float division by zero");
	switch (op) {
	case CHAT_ADD: return val_float(a + b);
	case CHAT_SUB: return val_float(a - b);
	case CHAT_MUL: return val_float(a * b);
	case CHAT_DIV: return val_float(a / b);
	case CHAT_POW: return val_float(pow(a, b));
	default: break;
	}
	out = fmod(a, b);
	if (out != 0 && (out < 0) != (b < 0))
		out += b;
	if (op == CHAT_MOD)
		return val_float(out != 0 ? out : copysign(0, b));
	return val_float(floor((a - out) / b + 0.5));
}

static Val repeat(Machine *m, Val v, int64_t n)
{
	const size_t one = v.tag == V_STRING ? v.str->n : v.list->n;
	if (v.tag != V_STRING) {
		Val out = list_new(m, v.tag, 0);
		for (; n > 0 && one && !failed(m); n--)
			for (size_t i = 0; i < one && list_push(m, out.list, v.list->at[i]); i++)
				;
		return out;
	}
	Text t = {0};
	for (; n > 0 && one && chat_work(m, 1); n--)
		text_put_str(m, &t, v.str);
	return text_value(m, &t);
}

/* What `safe` gives is markup: + with it escapes the other text, and gives markup. */
static Val add_texts(Machine *m, const Str *a, const Str *b)
{
	if (!a->safe && !b->safe)
		return chat_concat(m, a, b);
	Text t = {0};
	for (int i = 0; i < 2; i++) {
		const Str *s = i ? b : a;
		if (s->safe)
			text_put_str(m, &t, s);
		else
			put_markup(m, &t, s);
	}
	return mark_safe(m, text_value(m, &t));
}

Val binary(Machine *m, ChatBinary op, Val a, Val b)
{
	static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
	const bool left = is_number(a), right = is_number(b);
	if (failed(m))
		return val_none();
	if (left && right)
		return a.tag == V_FLOAT || b.tag == V_FLOAT ? real(m, op, real_of(a), real_of(b))
			: whole(m, op, integer_of(a), integer_of(b));
	if (op == CHAT_ADD && a.tag == V_STRING && b.tag == V_STRING)
		return add_texts(m, a.str, b.str);
	if (op == CHAT_ADD && a.tag == b.tag && (a.tag == V_LIST || a.tag == V_TUPLE)) {
		Val out = list_new(m, a.tag, a.list->n + b.list->n);
		for (size_t k = 0; k < a.list->n + b.list->n && !failed(m); k++)
			list_push(m, out.list, k < a.list->n ? a.list->at[k] : b.list->at[k - a.list->n]);
		return out;
	}
	const bool is_row = a.tag == V_STRING || a.tag == V_LIST || a.tag == V_TUPLE;
	const bool other_row = b.tag == V_STRING || b.tag == V_LIST || b.tag == V_TUPLE;
	if (op == CHAT_MUL && ((is_row && right && b.tag != V_FLOAT) || (other_row && left && a.tag != V_FLOAT)))
		return is_row ? repeat(m, a, integer_of(b)) : repeat(m, b, integer_of(a));
	if (op == CHAT_MOD && a.tag == V_STRING)
		return chat_fail(m, CHAT_BAD_VALUE, "%% of a text is not implemented");
	if (a.tag == V_UNDEFINED || b.tag == V_UNDEFINED)
		return chat_undefined_fail(m, a.tag == V_UNDEFINED ? a : b);
	return chat_fail(m, CHAT_BAD_VALUE, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], type_name(a),
		type_name(b));
}

static Val negate(Machine *m, Val v, bool minus)
{
	if (v.tag == V_UNDEFINED)
		return chat_undefined_fail(m, v);
	if (!is_number(v))
		return chat_fail(m, CHAT_BAD_VALUE, "bad operand type for unary %c: '%s'", minus ? '-' : '+', type_name(v));
	if (v.tag == V_FLOAT)
		return val_float(minus ? -v.real : v.real);
	const int64_t i = integer_of(v);
	return minus && i == INT64_MIN ? too_large(m) : val_int(minus ? -i : i);
}

static bool holds(Machine *m, ChatCompare op, Val a, Val b)
{
	switch (op) {
	case CHAT_EQ: return is_equal(m, a, b, 0);
	case CHAT_NE: return !is_equal(m, a, b, 0);
	case CHAT_IN: return is_in(m, a, b);
	case CHAT_NOT_IN: return !is_in(m, a, b);
	default: break;
	}
	const bool nan = (a.tag == V_FLOAT && isnan(a.real)) || (b.tag == V_FLOAT && isnan(b.real));
	const int order = compare(m, a, b, 0);
	return !nan && (op == CHAT_LT ? order < 0 : op == CHAT_LE ? order <= 0 : op == CHAT_GT ? order > 0 : order >= 0);
}

/* Expressions ---------------------------------------------------------------------------------- */

static Val compare_all(Machine *m, Frame *f, const ChatNode *n)
{
	Val left = eval(m, f, kid(m, n, 0));
	for (uint32_t i = 1; i < n->n_kids && !failed(m); i++) {
		const ChatNode *operand = at(m, kid(m, n, i));
		const Val right = eval(m, f, kid(m, operand, 0));
		if (failed(m) || !holds(m, (ChatCompare)operand->op, left, right))
			return val_bool(false);
		left = right;
	}
	return val_bool(true);
}

/* The arguments from kid 1 on. */
static bool take_arguments(Machine *m, Frame *f, const ChatNode *n, Args *a)
{
	a->n = 0;
	for (uint32_t i = 1; i < n->n_kids; i++) {
		const uint32_t k = kid(m, n, i);
		const bool keyword = at(m, k)->kind == CHAT_KEYWORD;
		if (a->n == CHAT_MAX_ARGS)
			chat_fail(m, CHAT_LIMIT, "more than %d arguments", CHAT_MAX_ARGS);
		const Val v = eval(m, f, keyword ? kid(m, at(m, k), 0) : k);
		if (failed(m))
			return false;
		a->names[a->n] = keyword ? name_of(m, k) : NULL;
		a->at[a->n++] = v;
	}
	return true;
}

static Val eval_call(Machine *m, Frame *f, const ChatNode *n)
{
	Args a;
	const Val first = eval(m, f, kid(m, n, 0));
	if (!take_arguments(m, f, n, &a))
		return val_none();
	if (n->kind == CHAT_FILTER)
		return apply_filter(m, (ChatFilter)n->op, first, &a);
	return n->kind == CHAT_TEST ? val_bool(apply_test(m, (ChatTest)n->op, first, &a)) : chat_call(m, first, &a);
}

static Val eval_list(Machine *m, Frame *f, const ChatNode *n)
{
	Val out = list_new(m, n->kind == CHAT_LIST ? V_LIST : V_TUPLE, n->n_kids);
	for (uint32_t i = 0; i < n->n_kids && !failed(m); i++)
		list_push(m, out.list, eval(m, f, kid(m, n, i)));
	return out;
}

static Val eval_dict(Machine *m, Frame *f, const ChatNode *n)
{
	Val out = dict_new(m, V_DICT);
	for (uint32_t i = 0; i + 1 < n->n_kids && !failed(m); i += 2) {
		const Val key = eval(m, f, kid(m, n, i));
		dict_put(m, out.dict, key, eval(m, f, kid(m, n, i + 1)));
	}
	return out;
}

static Val eval_concat(Machine *m, Frame *f, const ChatNode *n)
{
	Val all = chat_literal(m, "", 0, false);
	for (uint32_t i = 0; i < n->n_kids && !failed(m); i++)
		all = chat_concat(m, all.str, to_str(m, eval(m, f, kid(m, n, i))));
	return all;
}

static Val eval_slice(Machine *m, Frame *f, const ChatNode *n)
{
	const Val of = eval(m, f, kid(m, n, 0)), from = eval(m, f, kid(m, n, 1)), to = eval(m, f, kid(m, n, 2));
	return get_slice(m, of, from, to, eval(m, f, kid(m, n, 3)));
}

static Val eval_cond(Machine *m, Frame *f, const ChatNode *n)
{
	if (is_true(eval(m, f, kid(m, n, 0))))
		return eval(m, f, kid(m, n, 1));
	if (failed(m) || !is_absent(m, n, 2))
		return eval(m, f, kid(m, n, 2));
	return chat_undefined(m, (Val){.tag = V_ABSENT}, chat_literal(m, "an if without else", 18, false));
}

static Val eval_slot(Machine *m, Frame *f, const ChatNode *n)
{
	const Val v = *slot(f, n->a, n->b);
	return is_given(v) ? v : chat_undefined(m, v, text_of(m, n->name));
}

static Val eval_node(Machine *m, Frame *f, uint32_t node)
{
	const ChatNode *n = at(m, node);
	const uint64_t bits = n->a | (uint64_t)n->b << 32;
	Val v = {.tag = V_ABSENT};
	switch ((ChatKind)n->kind) {
	case CHAT_ABSENT: return v;
	case CHAT_NONE_VALUE: return val_none();
	case CHAT_BOOL: return val_bool(n->op);
	case CHAT_INT: return val_int((int64_t)bits);
	case CHAT_FLOAT: v.tag = V_FLOAT; memcpy(&v.real, &bits, sizeof bits); return v;
	case CHAT_STRING: return (Val){.tag = V_STRING, .str = name_of(m, node)};
	case CHAT_SLOT: return eval_slot(m, f, n);
	case CHAT_ATTR: v = eval(m, f, kid(m, n, 0)); return get_attribute(m, v, name_of(m, node));
	case CHAT_ITEM: v = eval(m, f, kid(m, n, 0)); return get_item(m, v, eval(m, f, kid(m, n, 1)));
	case CHAT_SLICE: return eval_slice(m, f, n);
	case CHAT_CALL: case CHAT_FILTER: case CHAT_TEST: return eval_call(m, f, n);
	case CHAT_BINARY: v = eval(m, f, kid(m, n, 0)); return binary(m, (ChatBinary)n->op, v, eval(m, f, kid(m, n, 1)));
	case CHAT_NOT: return val_bool(!is_true(eval(m, f, kid(m, n, 0))));
	case CHAT_NEGATE: case CHAT_PLUS: return negate(m, eval(m, f, kid(m, n, 0)), n->kind == CHAT_NEGATE);
	case CHAT_AND: case CHAT_OR:
		v = eval(m, f, kid(m, n, 0));
		return is_true(v) == (n->kind == CHAT_AND) ? eval(m, f, kid(m, n, 1)) : v;
	case CHAT_COND: return eval_cond(m, f, n);
	case CHAT_COMPARE: return compare_all(m, f, n);
	case CHAT_CONCAT: return eval_concat(m, f, n);
	case CHAT_LIST: case CHAT_TUPLE: return eval_list(m, f, n);
	case CHAT_DICT: return eval_dict(m, f, n);
	case CHAT_CAPTURED: return is_given(m->captured) ? m->captured : chat_literal(m, "", 0, false);
	default: return chat_fail(m, CHAT_BAD_VALUE, "a statement in an expression");
	}
}

static Val eval(Machine *m, Frame *f, uint32_t node)
{
	Val v = {.tag = V_UNDEFINED};
	if (enter(m))
		v = eval_node(m, f, node);
	m->evals--;
	return v;
}

/* Statements ----------------------------------------------------------------------------------- */

static Flow run_if(Machine *m, Frame *f, const ChatNode *n)
{
	uint32_t i = 0;
	for (; i + 1 < n->n_kids; i += 2) {
		const bool taken = is_true(eval(m, f, kid(m, n, i)));
		if (failed(m))
			return GO;
		if (taken)
			return run(m, f, kid(m, n, i + 1));
	}
	return is_absent(m, n, i) ? GO : run(m, f, kid(m, n, i));
}

/* The elements that the loop's own test lets through. */
static List *sieve(Machine *m, Frame *f, const ChatNode *n, const List *all)
{
	List *out = list_new(m, V_LIST, 0).list;
	for (size_t i = 0; i < all->n && !failed(m); i++) {
		begin_scope(m, f, n->b);
		assign(m, f, kid(m, n, 2), all->at[i]);
		if (is_true(eval(m, f, kid(m, n, 3))))
			list_push(m, out, all->at[i]);
	}
	return out;
}

/* The else runs where no iteration came to its end: there were none, or break and continue left each of them. */
static Flow run_for(Machine *m, Frame *f, const ChatNode *n)
{
	bool ended = false;
	List *items = elements(m, eval(m, f, kid(m, n, 1)));
	if (!is_absent(m, n, 3))
		items = sieve(m, f, n, items);
	Loop *loop = chat_alloc(m, sizeof *loop);
	for (size_t i = 0; loop && i < items->n && !failed(m); i++) {
		*loop = (Loop){items, i, loop->changed};
		begin_scope(m, f, n->a);
		f->slots[n->d] = (Val){.tag = V_LOOP, .loop = loop};
		assign(m, f, kid(m, n, 0), items->at[i]);
		const Flow flow = run(m, f, kid(m, n, 4));
		ended |= flow == GO;
		if (flow == BREAK)
			break;
	}
	if (ended || failed(m) || is_absent(m, n, 5))
		return GO;
	begin_scope(m, f, n->c);
	return run(m, f, kid(m, n, 5));
}

/* The text of a body, with a scope of its own. */
static Flow capture(Machine *m, Frame *f, uint32_t scope, uint32_t body, Val *text)
{
	Text t = {0}, *before = m->out;
	begin_scope(m, f, scope);
	m->out = &t;
	const Flow flow = run(m, f, body);
	m->out = before;
	*text = text_value(m, &t);
	return flow;
}

static Flow run_captured(Machine *m, Frame *f, const ChatNode *n)
{
	const bool sets = n->kind == CHAT_SET_BLOCK;
	const Val before = m->captured;
	Val text;
	const Flow flow = capture(m, f, n->a, kid(m, n, sets ? 2 : 1), &text);
	if (failed(m) || flow != GO) /* left by break: jinja2 forgets the text */
		return flow;
	m->captured = text;
	const Val v = eval(m, f, kid(m, n, sets ? 1 : 0));
	m->captured = before;
	if (sets)
		assign(m, f, kid(m, n, 0), v);
	else
		put_value(m, m->out, v);
	return GO;
}

static Flow run_with(Machine *m, Frame *f, const ChatNode *n)
{
	Val values = list_new(m, V_LIST, n->n_kids);
	for (uint32_t i = 1; i + 1 < n->n_kids && !failed(m); i += 2)
		list_push(m, values.list, eval(m, f, kid(m, n, i)));
	begin_scope(m, f, n->a);
	for (uint32_t i = 0; i + 1 < n->n_kids && !failed(m); i += 2)
		assign(m, f, kid(m, n, i), values.list->at[i / 2]);
	return run(m, f, kid(m, n, n->n_kids - 1));
}

static void set_macro(Machine *m, Frame *f, const ChatNode *n)
{
	Macro *macro = chat_alloc(m, sizeof *macro);
	if (!macro)
		return;
	*macro = (Macro){n->a, f};
	assign(m, f, kid(m, n, 0), (Val){.tag = V_MACRO, .macro = macro});
}

static Flow run_node(Machine *m, Frame *f, uint32_t node)
{
	const ChatNode *n = at(m, node);
	Flow flow = GO;
	m->line = n->line;
	switch ((ChatKind)n->kind) {
	case CHAT_SEQUENCE:
		for (uint32_t i = 0; i < n->n_kids && flow == GO && !failed(m); i++)
			flow = run(m, f, kid(m, n, i));
		return flow;
	case CHAT_TEXT: text_put(m, m->out, m->p->text + n->name.at, n->name.n, false); return GO;
	case CHAT_OUTPUT: put_value(m, m->out, eval(m, f, kid(m, n, 0))); return GO;
	case CHAT_IF: return run_if(m, f, n);
	case CHAT_FOR: return run_for(m, f, n);
	case CHAT_SET: assign(m, f, kid(m, n, 0), eval(m, f, kid(m, n, 1))); return GO;
	case CHAT_SET_BLOCK: case CHAT_FILTER_BLOCK: return run_captured(m, f, n);
	case CHAT_SCOPED: begin_scope(m, f, n->a); return run(m, f, kid(m, n, 0));
	case CHAT_WITH: return run_with(m, f, n);
	case CHAT_MACRO: set_macro(m, f, n); return GO;
	case CHAT_BREAK: return BREAK;
	case CHAT_CONTINUE: return CONTINUE;
	default: chat_fail(m, CHAT_BAD_VALUE, "an expression for a statement"); return GO;
	}
}

static Flow run(Machine *m, Frame *f, uint32_t node)
{
	Flow flow = GO;
	if (enter(m))
		flow = run_node(m, f, node);
	m->evals--;
	return flow;
}

/* Macros --------------------------------------------------------------------------------------- */

static Frame *new_frame(Machine *m, const ChatFunc *func, Frame *outer)
{
	Frame *f = chat_alloc(m, sizeof *f);
	if (!f)
		return NULL;
	f->outer = outer;
	f->slots = chat_alloc(m, ((size_t)func->n_slots + 1) * sizeof *f->slots);
	return f->slots ? f : NULL;
}

static void bind_arguments(Machine *m, Frame *f, const ChatFunc *func, const Args *a)
{
	const ChatParam *params = &m->p->params[func->param];
	for (int i = 0; i < a->n && !failed(m); i++) {
		uint32_t k = a->names[i] ? 0 : (uint32_t)i;
		while (a->names[i] && k < func->n_params && (params[k].name.n != a->names[i]->n ||
			memcmp(m->p->text + params[k].name.at, a->names[i]->p, a->names[i]->n) != 0))
			k++;
		if (k >= func->n_params)
			chat_fail(m, CHAT_BAD_VALUE, "macro '%.*s' takes not more than %u argument(s), or none of that name",
				(int)(func->name.n < 40 ? func->name.n : 40), m->p->text + func->name.at, func->n_params);
		else
			f->slots[params[k].slot] = a->at[i];
	}
}

Val run_macro(Machine *m, const Macro *macro, const Args *a)
{
	const ChatFunc *func = &m->p->funcs[macro->func];
	const ChatParam *params = &m->p->params[func->param];
	Text t = {0}, *before = m->out;
	const uint32_t line = m->line;
	Frame *f = new_frame(m, func, macro->outer);
	if (f && ++m->calls > CHAT_MAX_CALLS)
		chat_fail(m, CHAT_LIMIT, "more than %d macros run inside each other", CHAT_MAX_CALLS);
	if (!f || failed(m))
		return val_none();
	bind_arguments(m, f, func, a);
	m->out = &t;
	begin_scope(m, f, func->scope);
	for (uint32_t i = 0; i < func->n_params && !failed(m); i++) {
		Val *v = &f->slots[params[i].slot];
		if (!is_given(*v))
			*v = params[i].init != CHAT_NONE ? eval(m, f, params[i].init)
				: chat_undefined(m, (Val){.tag = V_ABSENT}, text_of(m, params[i].name));
	}
	if (!failed(m))
		run(m, f, func->body);
	m->out = before;
	m->line = line;
	m->calls--;
	return text_value(m, &t);
}

void chat_run(Machine *m)
{
	Frame *f = new_frame(m, &m->p->funcs[0], NULL);
	m->literals = chat_alloc(m, ((size_t)m->p->header->n_nodes + 1) * sizeof *m->literals);
	if (!f || !m->literals)
		return;
	begin_scope(m, f, m->p->funcs[0].scope);
	run(m, f, m->p->funcs[0].body);
}
