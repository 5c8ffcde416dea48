/* template_scope.c - the tree of a chat template to its program.
 *
 * What a name means is decided here, as jinja2's idtracking decides it, so that programs have slots instead of names. A
 * scope (the template, a macro, the body of a loop, a block that is captured) is looked through once before anything of
 * it is written: a name that is read first belongs to the scope around that defines it, else to the caller; a name
 * that is assigned first is the scope's own, a copy of the outer one of that name if there is one. Branches of an if
 * are no scopes: what only one of them assigns is, in the others, what the caller gave by that name.
 *
 * A slot is a pair of name and level: sibling scopes share slots, and each fills its own when it begins.
 */
#include "compiler/chat/template.h"
#include "compiler/text/input.h"
#include "compiler/text/value.h"

#include <string.h>

typedef struct Ref { const char *name; int n; uint32_t slot; ChatLoad load; bool has_load, is_stored; } Ref;
typedef struct Slot { const char *name; int n, level; } Slot;

typedef struct Func {
	struct Func *outer;
	uint32_t index;
	VEC(Slot) slots;
} Func;

typedef struct Symbols {
	struct Symbols *parent;
	Func *func;
	int level;
	VEC(Ref) refs;
} Symbols;

enum { MAX_NAMES = 4096, MAX_COPIES = 1 << 20 }; /* of one scope; of names, for all branches together */

typedef struct Emitter {
	Template *t;
	Arena *a;
	Func root;
	int n_copies;
	bool stops; /* beyond a limit: nothing more is looked at */
	VEC(ChatNode) nodes;
	VEC(uint32_t) kids;
	VEC(ChatScope) scopes;
	VEC(ChatLoad) loads;
	VEC(ChatFunc) funcs;
	VEC(ChatParam) params;
	VEC(ChatGlobal) globals;
	VEC(char) text;
	VEC(ChatText) known; /* texts that are in `text` already */
} Emitter;

static bool same_name(const char *a, int n, const char *b, int m) { return n == m && memcmp(a, b, (size_t)n) == 0; }

static ChatText put_text(Emitter *e, const char *text, int n)
{
	for (int i = 0; i < e->known.n; i++) {
		ChatText k = e->known.at[i];
		if (k.n == (uint32_t)n && memcmp(e->text.at + k.at, text, (size_t)n) == 0)
			return k;
	}
	const ChatText put = {(uint32_t)e->text.n, (uint32_t)n};
	for (int i = 0; i < n; i++)
		*vec_push(e->a, &e->text) = text[i];
	if (e->known.n < 4096)
		*vec_push(e->a, &e->known) = put;
	return put;
}

/* Names -------------------------------------------------------------------------------------------------- */

static Ref *own_ref(Symbols *s, const char *name, int n)
{
	for (int i = 0; i < s->refs.n; i++)
		if (same_name(s->refs.at[i].name, s->refs.at[i].n, name, n))
			return &s->refs.at[i];
	return NULL;
}

static Ref *find_ref(Symbols *s, const char *name, int n, Func **owner)
{
	for (; s; s = s->parent) {
		Ref *r = own_ref(s, name, n);
		*owner = s->func;
		if (r)
			return r;
	}
	return NULL;
}

static uint32_t functions_out(const Func *from, const Func *to)
{
	uint32_t n = 0;
	for (; from != to; from = from->outer)
		n++;
	return n;
}

static Ref *define(Emitter *e, Symbols *s, const char *name, int n)
{
	if (s->refs.n == MAX_NAMES + 1)
		e->stops = !template_fail(e->t, A0524, 1, 1, "more than %d names in one scope", MAX_NAMES);
	Ref *r = vec_push(e->a, &s->refs);
	uint32_t slot = 0;
	while ((int)slot < s->func->slots.n && (s->func->slots.at[slot].level != s->level ||
		!same_name(s->func->slots.at[slot].name, s->func->slots.at[slot].n, name, n)))
		slot++;
	if ((int)slot == s->func->slots.n)
		*vec_push(e->a, &s->func->slots) = (Slot){name, n, s->level};
	*r = (Ref){.name = name, .n = n, .slot = slot};
	return r;
}

static void set_load(Ref *r, ChatLoadKind kind, uint32_t a, uint32_t b)
{
	r->has_load = true;
	r->load = (ChatLoad){.kind = kind, .slot = r->slot, .a = a, .b = b};
}

/* A name that only helpers of jinja2 have. */
static void check_name(Emitter *e, const TNode *n)
{
	static const char *const foreign[] = {"caller", "cycler", "joiner", "kwargs", "lipsum", "self", "super", "varargs"};
	for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
		if (same_name(n->name, n->n_name, foreign[i], (int)strlen(foreign[i])))
			template_fail(e->t, A0521, n->line, n->col, "'%s'", foreign[i]);
}

static void name_load(Emitter *e, Symbols *s, const TNode *n)
{
	Func *owner;
	if (find_ref(s, n->name, n->n_name, &owner))
		return;
	check_name(e, n);
	set_load(define(e, s, n->name, n->n_name), CHAT_LOAD_RESOLVE, 0, 0);
}

static void name_store(Emitter *e, Symbols *s, const TNode *n)
{
	Func *owner = NULL;
	Ref *r = own_ref(s, n->name, n->n_name), *outer;
	if (!r) {
		outer = s->parent ? find_ref(s->parent, n->name, n->n_name, &owner) : NULL;
		const uint32_t slot = outer ? outer->slot : 0;
		r = define(e, s, n->name, n->n_name);
		if (outer)
			set_load(r, CHAT_LOAD_ALIAS, functions_out(s->func, owner), slot);
		else
			set_load(r, CHAT_LOAD_UNDEFINED, 0, 0);
	}
	r->is_stored = true;
}

static uint32_t declare(Emitter *e, Symbols *s, const char *name, int n)
{
	Ref *r = own_ref(s, name, n);
	if (!r)
		r = define(e, s, name, n);
	r->has_load = false;
	r->is_stored = true;
	return r->slot;
}

static void declare_targets(Emitter *e, Symbols *s, const TNode *target)
{
	if (target->kind == CHAT_TO_SLOT)
		declare(e, s, target->name, target->n_name);
	for (int i = 0; i < target->kids.n; i++)
		declare_targets(e, s, target->kids.at[i]);
}

static void analyze(Emitter *e, Symbols *s, const TNode *n);

static void copy_refs(Emitter *e, Symbols *to, const Symbols *from)
{
	*to = (Symbols){.parent = from->parent, .func = from->func, .level = from->level};
	e->n_copies += from->refs.n;
	if (e->n_copies > MAX_COPIES && !e->stops)
		e->stops = !template_fail(e->t, A0524, 1, 1, "too many names in too many branches");
	if (e->stops)
		return;
	for (int i = 0; i < from->refs.n; i++)
		*vec_push(e->a, &to->refs) = from->refs.at[i];
}

/* After a branch of an if: takes its names over. A name that it assigns first is, without the branch, the outer
 * variable of that name or what the caller gave. */
static void join_branch(Emitter *e, Symbols *s, const Symbols *before, Symbols *branch)
{
	for (int i = 0; i < branch->refs.n; i++) {
		const Ref *from = &branch->refs.at[i];
		const Ref *old = own_ref((Symbols *)(uintptr_t)before, from->name, from->n);
		Func *owner = NULL;
		Ref *r = own_ref(s, from->name, from->n);
		if (!r)
			r = vec_push(e->a, &s->refs);
		const bool was_stored = r->name && r->is_stored;
		if (!(r->name && was_stored && old && old->is_stored))
			*r = *from;
		r->is_stored |= was_stored;
		if (!from->is_stored || (old && old->is_stored))
			continue;
		const Ref *outer = s->parent ? find_ref(s->parent, from->name, from->n, &owner) : NULL;
		if (outer)
			set_load(r, CHAT_LOAD_ALIAS, functions_out(s->func, owner), outer->slot);
		else
			set_load(r, CHAT_LOAD_RESOLVE, 0, 0);
	}
}

/* Kids: test, body, test, body, .., else. An elif is an if of its own in the branch of all elifs. */
static void analyze_if(Emitter *e, Symbols *s, const TNode *n, int first)
{
	Symbols before, branch[3];
	analyze(e, s, n->kids.at[first]);
	copy_refs(e, &before, s);
	for (int i = 0; i < 3; i++)
		copy_refs(e, &branch[i], s);
	analyze(e, &branch[0], n->kids.at[first + 1]);
	for (int i = first + 2; i + 1 < n->kids.n; i += 2) { /* one after the other, as jinja2 does */
		Symbols inner_before, body;
		analyze(e, &branch[1], n->kids.at[i]);
		copy_refs(e, &inner_before, &branch[1]);
		copy_refs(e, &body, &branch[1]);
		analyze(e, &body, n->kids.at[i + 1]);
		join_branch(e, &branch[1], &inner_before, &body);
	}
	analyze(e, &branch[2], n->kids.at[n->kids.n - 1]);
	for (int i = 0; i < 3; i++)
		join_branch(e, s, &before, &branch[i]);
}

/* What a statement or an expression says about the names of the scope that it is in. */
static void analyze(Emitter *e, Symbols *s, const TNode *n)
{
	if (e->stops)
		return;
	switch (n->kind) {
	case CHAT_SLOT: name_load(e, s, n); return;
	case CHAT_TO_SLOT: name_store(e, s, n); return;
	case CHAT_MACRO: name_store(e, s, n->kids.at[0]); return;
	case CHAT_FOR: analyze(e, s, n->kids.at[1]); return;
	case CHAT_IF: analyze_if(e, s, n, 0); return;
	case CHAT_SCOPED: return;
	case CHAT_SET: analyze(e, s, n->kids.at[1]); analyze(e, s, n->kids.at[0]); return;
	case CHAT_SET_BLOCK: case CHAT_FILTER_BLOCK: analyze(e, s, n->kids.at[0]); return;
	case CHAT_WITH:
		for (int i = 1; i < n->kids.n; i += 2)
			analyze(e, s, n->kids.at[i]);
		return;
	default:
		for (int i = 0; i < n->kids.n; i++)
			analyze(e, s, n->kids.at[i]);
	}
}

static Symbols inner(Symbols *s) { return (Symbols){.parent = s, .func = s->func, .level = s->level + 1}; }

static uint32_t put_scope(Emitter *e, const Symbols *s)
{
	const ChatScope scope = {(uint32_t)e->loads.n, 0};
	for (int pass = 0; pass < 2; pass++) /* copies of outer variables first: slots are read before they are lost */
		for (int i = 0; i < s->refs.n; i++) {
			const Ref *r = &s->refs.at[i];
			if (!r->has_load || (r->load.kind == CHAT_LOAD_ALIAS) != (pass == 0))
				continue;
			ChatLoad *l = vec_push(e->a, &e->loads);
			*l = r->load;
			l->slot = r->slot;
			l->name = put_text(e, r->name, r->n);
		}
	*vec_push(e->a, &e->scopes) = (ChatScope){scope.load, (uint32_t)e->loads.n - scope.load};
	return (uint32_t)e->scopes.n - 1;
}

/* Nodes -------------------------------------------------------------------------------------------------- */

static uint32_t emit_node(Emitter *e, Symbols *s, const TNode *n);

static uint32_t push(Emitter *e, const TNode *n, ChatNode out, const uint32_t *kids, int n_kids)
{
	out.kind = (uint8_t)n->kind;
	out.line = (uint32_t)n->line;
	out.kid = (uint32_t)e->kids.n;
	out.n_kids = (uint32_t)n_kids;
	for (int i = 0; i < n_kids; i++)
		*vec_push(e->a, &e->kids) = kids[i];
	*vec_push(e->a, &e->nodes) = out;
	return (uint32_t)e->nodes.n - 1;
}

static ChatNode variable(Emitter *e, Symbols *s, const TNode *n)
{
	Func *owner = NULL;
	const Ref *r = find_ref(s, n->name, n->n_name, &owner);
	if (!r) { /* in the filter of a captured block alone, where jinja2 does not look either */
		template_fail(e->t, A0521, n->line, n->col, "'%.*s' in the filter of a block", n->n_name < 40 ? n->n_name : 40,
			n->name);
		owner = s->func;
	}
	return (ChatNode){.name = put_text(e, n->name, n->n_name), .a = functions_out(s->func, owner),
		.b = r ? r->slot : 0};
}

static uint32_t emit_for(Emitter *e, Symbols *s, const TNode *n)
{
	Symbols body = inner(s), test = inner(s), other = inner(s);
	TNode *const *k = n->kids.at;
	const TNode nothing = {.kind = CHAT_ABSENT, .line = n->line};
	uint32_t kids[6];
	ChatNode out = {.d = declare(e, &body, "loop", 4)};
	declare_targets(e, &body, k[0]);
	analyze(e, &body, k[3]);
	analyze(e, &other, k[4]);
	if (k[2]->kind != CHAT_ABSENT) {
		declare_targets(e, &test, k[0]);
		analyze(e, &test, k[2]);
	}
	kids[0] = emit_node(e, &body, k[0]);
	kids[1] = emit_node(e, s, k[1]);
	kids[2] = k[2]->kind == CHAT_ABSENT ? emit_node(e, s, &nothing) : emit_node(e, &test, k[0]);
	kids[3] = emit_node(e, k[2]->kind == CHAT_ABSENT ? s : &test, k[2]);
	kids[4] = emit_node(e, &body, k[3]);
	kids[5] = emit_node(e, &other, k[4]);
	out.a = put_scope(e, &body);
	out.b = put_scope(e, &test);
	out.c = put_scope(e, &other);
	return push(e, n, out, kids, 6);
}

static uint32_t emit_macro(Emitter *e, Symbols *s, const TNode *n)
{
	Func *func = ARENA_NEW(e->a, Func);
	Symbols body = {.parent = s, .func = func, .level = s->level + 1};
	const int k = n->n_params;
	func->outer = s->func;
	func->index = (uint32_t)e->funcs.n;
	if (func->index - s->func->index > 1 << 16)
		bug("%u macros", func->index);
	*vec_push(e->a, &e->funcs) = (ChatFunc){0};
	int nest = 1;
	for (const Func *f = func; f->outer; f = f->outer)
		nest++;
	if (nest > CHAT_MAX_NEST)
		template_fail(e->t, A0524, n->line, n->col, "more than %d macros inside each other", CHAT_MAX_NEST);
	ChatParam *params = ARENA_ARRAY(e->a, ChatParam, k + 1);
	for (int i = 0; i < k; i++) {
		const TNode *p = n->kids.at[1 + i];
		params[i] = (ChatParam){put_text(e, p->name, p->n_name), declare(e, &body, p->name, p->n_name), CHAT_NONE};
		for (int j = 0; j < i; j++)
			if (params[j].slot == params[i].slot)
				template_fail(e->t, A0520, p->line, p->col, "two arguments '%.*s'",
					p->n_name < 40 ? p->n_name : 40, p->name);
	}
	for (int i = 0; i < k; i++)
		analyze(e, &body, n->kids.at[1 + k + i]);
	analyze(e, &body, n->kids.at[1 + 2 * k]);
	for (int i = 0; i < k; i++)
		if (n->kids.at[1 + k + i]->kind != CHAT_ABSENT)
			params[i].init = emit_node(e, &body, n->kids.at[1 + k + i]);
	const uint32_t root = emit_node(e, &body, n->kids.at[1 + 2 * k]), scope = put_scope(e, &body);
	e->funcs.at[func->index] = (ChatFunc){put_text(e, n->name, n->n_name), s->func->index,
		(uint32_t)func->slots.n, scope, root, (uint32_t)e->params.n, (uint32_t)k};
	for (int i = 0; i < k; i++)
		*vec_push(e->a, &e->params) = params[i];
	const uint32_t target = emit_node(e, s, n->kids.at[0]);
	return push(e, n, (ChatNode){.a = func->index}, &target, 1);
}

/* A statement with a scope of its own around its body, the last kid. */
static uint32_t emit_block(Emitter *e, Symbols *s, const TNode *n)
{
	Symbols block = inner(s);
	uint32_t *kids = ARENA_ARRAY(e->a, uint32_t, n->kids.n);
	const int last = n->kids.n - 1;
	if (n->kind == CHAT_WITH)
		for (int i = 0; i < last; i += 2)
			declare_targets(e, &block, n->kids.at[i]);
	analyze(e, &block, n->kids.at[last]);
	if (n->kind == CHAT_FILTER_BLOCK)
		analyze(e, &block, n->kids.at[0]);
	for (int i = 0; i <= last; i++) {
		const bool is_outer = n->kind == CHAT_WITH ? i % 2 == 1 && i < last : n->kind == CHAT_SET_BLOCK && i == 0;
		kids[i] = emit_node(e, is_outer ? s : &block, n->kids.at[i]);
	}
	return push(e, n, (ChatNode){.a = put_scope(e, &block)}, kids, n->kids.n);
}

static uint32_t emit_node(Emitter *e, Symbols *s, const TNode *n)
{
	ChatNode out = {.op = (uint8_t)n->op};
	uint64_t bits = (uint64_t)n->integer;
	if (e->stops)
		return 0;
	switch (n->kind) {
	case CHAT_FOR: return emit_for(e, s, n);
	case CHAT_MACRO: return emit_macro(e, s, n);
	case CHAT_SCOPED: case CHAT_SET_BLOCK: case CHAT_FILTER_BLOCK: case CHAT_WITH: return emit_block(e, s, n);
	case CHAT_SLOT: case CHAT_TO_SLOT: out = variable(e, s, n); break;
	case CHAT_FLOAT:
		memcpy(&bits, &n->real, sizeof bits); /* fall through */
	case CHAT_INT:
		out.a = (uint32_t)bits;
		out.b = (uint32_t)(bits >> 32);
		break;
	case CHAT_STRING: case CHAT_TEXT: case CHAT_ATTR: case CHAT_KEYWORD: case CHAT_TO_FIELD:
		out.name = put_text(e, n->name, n->n_name);
		break;
	default: break;
	}
	uint32_t *kids = ARENA_ARRAY(e->a, uint32_t, n->kids.n + 1);
	for (int i = 0; i < n->kids.n; i++)
		kids[i] = emit_node(e, s, n->kids.at[i]);
	return push(e, n, out, kids, n->kids.n);
}

/* The section -------------------------------------------------------------------------------------------- */

static char *append(char *to, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(to, from, bytes);
	return to + bytes;
}

static void write_image(Emitter *e, ChatImage *out)
{
	ChatHeader h = {.magic = CHAT_MAGIC, .version = CHAT_VERSION, .n_nodes = (uint32_t)e->nodes.n,
		.n_kids = (uint32_t)e->kids.n, .n_scopes = (uint32_t)e->scopes.n, .n_loads = (uint32_t)e->loads.n,
		.n_funcs = (uint32_t)e->funcs.n, .n_params = (uint32_t)e->params.n, .n_globals = (uint32_t)e->globals.n,
		.n_text = (uint32_t)e->text.n};
#define BYTES(v) ((size_t)(v).n * sizeof *(v).at)
	out->n = sizeof h + BYTES(e->nodes) + BYTES(e->kids) + BYTES(e->scopes) + BYTES(e->loads) + BYTES(e->funcs) +
		BYTES(e->params) + BYTES(e->globals) + BYTES(e->text);
	h.n_bytes = (uint32_t)out->n;
	char *to = out->bytes = arena_alloc(e->a, out->n);
	to = append(to, &h, sizeof h);
	to = append(to, e->nodes.at, BYTES(e->nodes));
	to = append(to, e->kids.at, BYTES(e->kids));
	to = append(to, e->scopes.at, BYTES(e->scopes));
	to = append(to, e->loads.at, BYTES(e->loads));
	to = append(to, e->funcs.at, BYTES(e->funcs));
	to = append(to, e->params.at, BYTES(e->params));
	to = append(to, e->globals.at, BYTES(e->globals));
	append(to, e->text.at, BYTES(e->text));
#undef BYTES
}

/* The program of a tree; `tree` NULL: t->why is what the program holds. globals [n]: values that the tokenizer gives to
 * names, such as bos_token. */
static void template_emit(Template *t, const TNode *tree, const NamedText *globals, int n_globals, ChatImage *out)
{
	Emitter e = {.t = t, .a = t->arena};
	if (tree) {
		Symbols root = {.func = &e.root};
		*vec_push(e.a, &e.funcs) = (ChatFunc){0};
		analyze(&e, &root, tree);
		const uint32_t body = emit_node(&e, &root, tree), scope = put_scope(&e, &root);
		e.funcs.at[0] = (ChatFunc){.n_slots = (uint32_t)e.root.slots.n, .scope = scope, .body = body};
		for (int i = 0; i < n_globals; i++)
			*vec_push(e.a, &e.globals) = (ChatGlobal){put_text(&e, globals[i].name, (int)strlen(globals[i].name)),
				put_text(&e, globals[i].value, (int)strlen(globals[i].value))};
	}
	if (t->failed) {
		e = (Emitter){.t = t, .a = t->arena};
		put_text(&e, t->why, (int)strlen(t->why));
	}
	write_image(&e, out);
}

/* What was cut inside of a code point ends in question marks. */
static void mend_utf8(char *text)
{
	const size_t n = strlen(text);
	for (size_t k; (k = utf8_bad(text, n)) < n;)
		text[k] = '?';
}

bool template_fail(Template *t, Code code, int line, int col, const char *fmt, ...)
{
	va_list args;
	char text[240];
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	mend_utf8(text);
	const char *clean = clip_text(t->diags->arena, text, strlen(text), sizeof text);
	const char *what = code == A0521 ? ": a chat template with it is not compiled" : "";
	if (!t->failed) {
		snprintf(t->why, sizeof t->why, "line %d, column %d: %s%s", line, col, clean, what);
		mend_utf8(t->why);
	}
	t->failed = true;
	note_at(t->diags, code, (Loc){t->file, line, col}, "%s%s; the plan takes no chats", clean, what);
	return false;
}

void compile_template(Arena *a, Diags *d, const char *file, const char *text, size_t n, const NamedText *globals,
	int n_globals, ChatImage *out)
{
	Template t = {.arena = a, .diags = d, .file = file};
	char *clean = arena_alloc(a, n + 1);
	size_t k = 0;
	for (size_t i = 0; i < n; i++) /* ends of lines as jinja2 has them */
		if (text[i] != '\r')
			clean[k++] = text[i];
		else if (i + 1 == n || text[i + 1] != '\n')
			clean[k++] = '\n';
	TNode *tree = template_lex(&t, clean, k) ? template_parse(&t) : NULL;
	template_emit(&t, tree, globals, n_globals, out);
}
