/* reach.c - the code that a kernel reaches, as one hash.
 *
 * Measured times belong to what runs (compiler/pick/time_key.c), so their hash covers what the kernel can come to, and
 * nothing else: its own function, struct Args, and each function, method, class, constant, type and macro that is
 * named by what was reached before, in whatever file. Neither comments, blanks, files nor order count; nor does the
 * contract, whose constants are part of a time's place in its file and whose formulas count by their values.
 *
 * The tokens of each file are dealt out to items: libclang says where a declaration begins and ends and what it
 * declares; a #define is an item of its own. Names alone lead from item to item: overloads and specialisations are
 * one, a local variable leads to a function of its name. So more may count than the kernel reaches, never less:
 *
 *   - a method is reached when its class is and something names it; operators and constructors belong to the class
 *   - an overload or specialisation for a number type, to_f32(e4m3), is reached when the type is too: code names it, or
 *     the contract as one of an operand's
 *   - a conditional group outside of declarations, #if to #endif, is one item, with the names of all its branches
 *   - tokens that libclang takes for no declaration, as in a branch that it skips, declare each name that is
 *     outside of brackets and that nothing else declares; an item without a name always counts
 *   - a namespace is one item, which its name leads to
 *   - of a FORMULA its head and expression count, not the macro; of other words of a contract nothing, and a
 *     conditional group of these alone, as a fragment of contracts has them, is no code
 *   - of what #ifdef KERNELGEN parts, the half that NVRTC reads counts
 */
#include "artifacts/hash.h"
#include "compiler/kernelgen/kernelgen.h"

#include <clang-c/Index.h>
#include <stdlib.h>
#include <string.h>

enum { FREE = -1, DROPPED = -2 }; /* owner of a token that no item has yet, and of one that is not code */

typedef struct Item {
	Names names;         /* that it declares */
	Names maybe;         /* names that it may declare: they count if no other item has them */
	Names mentions;      /* in addition to the names among its tokens */
	VEC(Token) tokens;
	int parent;          /* the class of a method, -1 = none */
	int source;          /* index in RawTemplate.sources */
	int first, end;      /* its tokens there: of a declaration at file scope */
	bool is_clause;      /* a word of the contract: in a conditional group, no part of that */
	bool is_contract;    /* a clause that is a constant of the kernel: part of a time's place, not of the code */
	bool is_args, is_number; /* struct Args; a struct of one number, a dtype */
	Names numbers;       /* of an overload or specialisation: those that it is for */
	bool is_named, is_reached;
	char *text; size_t bytes; /* its tokens, each and a line's end */
} Item;

typedef struct Reach {
	Gen *g;
	const RawTemplate *raw;
	CXTranslationUnit unit;
	VEC(Item) items;
	int **owner; /* [sources][tokens] */
} Reach;

/* Tokens ------------------------------------------------------------------------------------------ */

/* Does a line end between a and b, other than after a backslash? */
static bool ends_line(const char *text, size_t a, size_t b)
{
	for (size_t i = a; i < b; i++)
		if (text[i] == '\n' && !(i > 0 && text[i - 1] == '\\'))
			return true;
	return false;
}

static const char *kept(Gen *g, CXString s)
{
	const char *text = clang_getCString(s), *copy = arena_strdup(&g->arena, text ? text : "");
	clang_disposeString(s);
	return copy;
}

static bool is_text(const Token *t, const char *text) { return strcmp(t->text, text) == 0; }

/* The file's tokens without comments, branches that the preprocessor skips included. */
static void read_tokens(Reach *r, Source *s)
{
	CXFile file = clang_getFile(r->unit, s->path);
	CXToken *tokens = NULL;
	unsigned n = 0;
	size_t end = 0;
	bool begins = true;
	s->has_tokens = true;
	clang_tokenize(r->unit, clang_getRange(clang_getLocationForOffset(r->unit, file, 0),
		clang_getLocationForOffset(r->unit, file, (unsigned)s->bytes)), &tokens, &n);
	for (unsigned i = 0; i < n; i++) {
		unsigned at, stop;
		clang_getFileLocation(clang_getTokenLocation(r->unit, tokens[i]), NULL, NULL, NULL, &at);
		clang_getFileLocation(clang_getRangeEnd(clang_getTokenExtent(r->unit, tokens[i])), NULL, NULL, NULL, &stop);
		begins |= ends_line(s->text, end, at);
		end = stop;
		if (clang_getTokenKind(tokens[i]) == CXToken_Comment)
			continue;
		Token *t = vec_push(&r->g->arena, &s->tokens);
		const bool is_apart = s->tokens.n > 3 && is_text(&t[-3], "#") && is_text(&t[-2], "define") &&
			s->text[at] == '(' && t[-1].at + strlen(t[-1].text) < at; /* in "#define F (x)", not "#define F(x)" */
		*t = (Token){is_apart ? "( " : arena_strndup(&r->g->arena, s->text + at, stop - at), at,
			clang_getTokenKind(tokens[i]) == CXToken_Identifier, begins};
		begins = false;
	}
	clang_disposeTokens(r->unit, tokens, n);
}

static Source *source_of(const Reach *r, int i) { return &r->g->sources.at[r->raw->sources.at[i]]; }

static int token_at(const Source *s, size_t offset) /* the first from there on */
{
	int low = 0, high = s->tokens.n;
	while (low < high) {
		int middle = (low + high) / 2;
		if (s->tokens.at[middle].at < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Declarations ------------------------------------------------------------------------------------ */

/* The end of the macro call that begins at a token. */
static int call_end(const Source *s, int first)
{
	int depth = 0, i = first + 1;
	if (i < s->tokens.n && is_text(&s->tokens.at[i], "("))
		do
			depth += is_text(&s->tokens.at[i], "(") - is_text(&s->tokens.at[i], ")");
		while (++i < s->tokens.n && depth);
	return i;
}

/* The semicolon of the declaration that goes on at a token, outside of its brackets. */
static int declaration_end(const Source *s, int i)
{
	for (int depth = 0; i < s->tokens.n && depth >= 0 && (depth || !is_text(&s->tokens.at[i], ";")); i++)
		depth += (strchr("({[", s->tokens.at[i].text[0]) != NULL) - (strchr(")}]", s->tokens.at[i].text[0]) != NULL);
	return i;
}

/* The tokens of a declaration; false when it is in none of the template's files. Where one ends in the argument of a
 * macro, libclang says that it ends where the macro begins. */
static bool find_place(const Reach *r, CXCursor c, int *source, int *first, int *end)
{
	CXSourceRange range = clang_getCursorExtent(c);
	CXFile file, last;
	unsigned from, to, spelled;
	clang_getExpansionLocation(clang_getRangeStart(range), &file, NULL, NULL, &from);
	clang_getSpellingLocation(clang_getRangeStart(range), NULL, NULL, NULL, &spelled);
	clang_getExpansionLocation(clang_getRangeEnd(range), &last, NULL, NULL, &to);
	for (int i = 0; file && last && i < r->raw->sources.n; i++) {
		const Source *s = source_of(r, i);
		if (strcmp(s->name, source_name(r->g, kept(r->g, clang_getFileName(file)))) != 0)
			continue;
		*source = i;
		*first = token_at(s, from);
		*end = token_at(s, to);
		if (spelled != from && *end <= call_end(s, *first)) /* a macro makes all of it */
			*end = call_end(s, *first);
		else if (*end <= *first || !is_text(&s->tokens.at[*end - 1], "}"))
			*end = declaration_end(s, *end > *first ? *end : *first);
		return true;
	}
	return false;
}

static int add_item(Reach *r, int source, int first, int end)
{
	*vec_push(&r->g->arena, &r->items) = (Item){.parent = -1, .source = source, .first = first, .end = end};
	for (int i = first; i < end; i++)
		r->owner[source][i] = r->items.n - 1;
	return r->items.n - 1;
}

static bool is_class(enum CXCursorKind kind)
{
	return kind == CXCursor_StructDecl || kind == CXCursor_ClassDecl || kind == CXCursor_UnionDecl ||
		kind == CXCursor_ClassTemplate || kind == CXCursor_ClassTemplatePartialSpecialization;
}

typedef struct Inside { Reach *r; int item; const char *name; } Inside;

/* Constants of an enum are its names. A method is an item of its own, with what comes before its declaration:
 * "__device__", which is nothing to libclang. */
static enum CXChildVisitResult visit_member(CXCursor c, CXCursor parent, CXClientData data)
{
	(void)parent;
	Inside *in = data;
	Reach *r = in->r;
	enum CXCursorKind kind = clang_getCursorKind(c);
	const char *name = kept(r->g, clang_getCursorSpelling(c));
	int source, first, end;
	if (kind == CXCursor_EnumConstantDecl)
		add_name(r->g, &r->items.at[in->item].names, name);
	const size_t n = strcspn(name, "<");
	if ((kind != CXCursor_CXXMethod && kind != CXCursor_FunctionTemplate) || strncmp(name, "operator", 8) == 0 ||
		(strncmp(name, in->name, n) == 0 && !in->name[n]) || !find_place(r, c, &source, &first, &end))
		return CXChildVisit_Continue;
	const Token *tokens = source_of(r, source)->tokens.at;
	while (first > 0 && r->owner[source][first - 1] == in->item && !strchr(";{}:", tokens[first - 1].text[0]))
		first--;
	int method = add_item(r, source, first, end);
	r->items.at[method].parent = in->item;
	add_name(r->g, &r->items.at[method].names, name);
	return CXChildVisit_Continue;
}

/* "int a = 1, b = 2;" and all that one macro declares share their tokens: one item. */
static int item_at(Reach *r, int source, int first, int end)
{
	int before = first < end ? r->owner[source][first] : FREE;
	if (before < 0)
		return add_item(r, source, first, end);
	Item *p = &r->items.at[before];
	for (; p->end < end; p->end++)
		r->owner[source][p->end] = before;
	return before;
}

static enum CXChildVisitResult visit_declaration(CXCursor c, CXCursor parent, CXClientData data)
{
	(void)parent;
	Reach *r = data;
	enum CXCursorKind kind = clang_getCursorKind(c);
	int source, first, end;
	if (kind == CXCursor_LinkageSpec || kind == CXCursor_UnexposedDecl)
		return CXChildVisit_Recurse;
	if (!clang_isDeclaration(kind) || kind == CXCursor_TemplateTypeParameter ||
		kind == CXCursor_NonTypeTemplateParameter || !find_place(r, c, &source, &first, &end))
		return CXChildVisit_Continue;
	if (kind == CXCursor_StaticAssert) {
		for (int i = first; i < end; i++)
			r->owner[source][i] = DROPPED;
		return CXChildVisit_Continue;
	}
	const char *name = kept(r->g, clang_getCursorSpelling(c));
	Token *begin = &source_of(r, source)->tokens.at[first];
	const Word word = strncmp(name, "contract_", strlen("contract_")) == 0 ? find_word(begin->text) : N_WORDS;
	int at = item_at(r, source, first, end);
	r->items.at[at].is_clause |= word != N_WORDS;
	r->items.at[at].is_contract |= word >= DIM_ && word <= FLAG_; /* in a time's place in its file */
	r->items.at[at].is_args |= is_class(kind) && strcmp(name, "Args") == 0;
	r->items.at[at].is_number |= is_class(kind) && dtype_from_name(name, &(Dtype){0});
	if (word != N_WORDS) { /* by the name of its word, so that the item has one: nothing mentions it */
		add_name(r->g, &r->items.at[at].names, name);
		begin->is_name = false; /* it leads to no macro */
	} else if (strncmp(name, "operator", 8) != 0) {
		add_name(r->g, &r->items.at[at].names, arena_strndup(&r->g->arena, name, strcspn(name, "<")));
	}
	if (is_class(kind) || kind == CXCursor_EnumDecl)
		clang_visitChildren(c, visit_member, &(Inside){r, at, name});
	return CXChildVisit_Continue;
}

/* Directives -------------------------------------------------------------------------------------- */

typedef struct Lines { /* directives of one file, one after the other */
	Reach *r;
	int source;
	int depth;            /* of conditionals */
	int guard, skipped;   /* the depth of #ifdef KERNELGEN, 0 = outside; is this the half that NVRTC skips? */
	int group, group_depth; /* the item of a conditional group, or -1 */
	bool has_code;        /* it covers more than words of a contract */
} Lines;

static void own(Lines *l, int first, int end, int owner)
{
	for (int i = first; i < end; i++)
		l->r->owner[l->source][i] = owner;
}

/* What a group covers becomes a part of it, but for words of a contract: those of a branch that libclang skips are
 * nothing to it. */
static void join_group(Lines *l, int first, int end)
{
	Reach *r = l->r;
	const Source *s = source_of(r, l->source);
	const Token *t = s->tokens.at;
	int brackets = 0;
	for (int i = first; i < end; i++) {
		int *owner = &r->owner[l->source][i];
		if (*owner >= 0 && r->items.at[*owner].is_clause)
			continue;
		if (*owner == FREE && brackets == 0 && find_word(t[i].text) != N_WORDS) {
			int after = call_end(s, i);
			own(l, i, after, DROPPED);
			i = after - 1;
			continue;
		}
		l->has_code = true;
		if (*owner >= 0 && *owner != l->group)
			for (int k = 0; k < r->items.at[*owner].names.n; k++)
				add_name(r->g, &r->items.at[l->group].names, r->items.at[*owner].names.at[k]);
		brackets += (strchr("({[", t[i].text[0]) != NULL) - (strchr(")}]", t[i].text[0]) != NULL);
		if (*owner == FREE && t[i].is_name && brackets <= 0)
			add_name(r->g, &r->items.at[l->group].maybe, t[i].text);
		*owner = l->group;
	}
}

static void take_define(Lines *l, int first, int end)
{
	Reach *r = l->r;
	const Token *t = source_of(r, l->source)->tokens.at;
	if (l->group >= 0) {
		l->has_code = true;
		own(l, first, end, l->group);
		add_name(r->g, &r->items.at[l->group].names, t[first + 2].text);
		return;
	}
	*vec_push(&r->g->arena, &r->items) = (Item){.parent = -1};
	Item *p = &r->items.at[r->items.n - 1];
	add_name(r->g, &p->names, t[first + 2].text);
	for (int i = first + 1; i < end; i++)
		*vec_push(&r->g->arena, &p->tokens) = t[i];
	if (r->owner[l->source][first] < 0)
		own(l, first, end, DROPPED); /* from the tokens that are dealt out: the item has them */
}

/* One line that begins with #, its tokens first to end. */
static void take_directive(Lines *l, int first, int end)
{
	Reach *r = l->r;
	const Token *t = source_of(r, l->source)->tokens.at;
	const char *word = end - first > 1 ? t[first + 1].text : "";
	bool is_inside = r->owner[l->source][first] >= 0 && l->group < 0; /* a declaration */
	bool begins = strncmp(word, "if", 2) == 0, ends = strcmp(word, "endif") == 0;
	l->depth += begins;
	if (begins && !l->guard && end - first == 3 && is_text(&t[first + 2], "KERNELGEN")) {
		l->guard = l->depth;
		l->skipped = strcmp(word, "ifdef") == 0;
		own(l, first, end, DROPPED);
	} else if (l->guard && l->guard == l->depth && (ends || strcmp(word, "else") == 0)) {
		own(l, first, end, DROPPED);
		l->skipped = !l->skipped && !ends;
		l->guard = ends ? 0 : l->guard;
	} else if (!l->skipped) {
		if (begins && !is_inside && l->group < 0) {
			*vec_push(&r->g->arena, &r->items) = (Item){.parent = -1};
			l->group = r->items.n - 1;
			l->group_depth = l->depth;
			l->has_code = false;
		}
		if ((strcmp(word, "define") == 0 || strcmp(word, "undef") == 0) && end - first > 2)
			take_define(l, first, end);
		else if (l->group >= 0)
			own(l, first, end, l->group);
		else if (!is_inside && (strcmp(word, "include") == 0 || (strcmp(word, "pragma") == 0 && end - first > 2 &&
			is_text(&t[first + 2], "once"))))
			own(l, first, end, DROPPED);
		if (ends && l->group >= 0 && l->group_depth == l->depth) {
			for (int i = 0; i < end && !l->has_code; i++)
				if (r->owner[l->source][i] == l->group)
					r->owner[l->source][i] = DROPPED;
			l->group = -1;
		}
	}
	l->depth -= ends;
}

static void take_lines(Reach *r, int source)
{
	const Source *s = source_of(r, source);
	Lines l = {.r = r, .source = source, .group = -1};
	for (int i = 0, end; i < s->tokens.n; i = end) {
		bool is_directive = s->tokens.at[i].begins_line && is_text(&s->tokens.at[i], "#");
		for (end = i + 1; end < s->tokens.n && !(s->tokens.at[end].begins_line &&
			(is_directive || is_text(&s->tokens.at[end], "#"))); end++)
			;
		if (is_directive)
			take_directive(&l, i, end);
		if (l.skipped)
			own(&l, i, end, DROPPED);
		else if (!is_directive && l.group >= 0)
			join_group(&l, i, end);
	}
}

/* Pieces ------------------------------------------------------------------------------------------ */

/* Tokens first to end, which no declaration has: one that libclang did not see. */
static void add_loose(Reach *r, int source, int first, int end)
{
	const Token *t = source_of(r, source)->tokens.at;
	int item = add_item(r, source, first, end), brackets = 0;
	for (int i = first; i < end; i++) {
		brackets += (strchr("({[", t[i].text[0]) != NULL) - (strchr(")}]", t[i].text[0]) != NULL);
		if (t[i].is_name && brackets <= 0)
			add_name(r->g, &r->items.at[item].maybe, t[i].text);
	}
}

/* Free tokens before a declaration belong to it, "__device__" or "extern"; others become an item. */
static void deal_rest(Reach *r, int source)
{
	const Source *s = source_of(r, source);
	int *owner = r->owner[source], first = -1, braces = 0;
	for (int i = 0; i <= s->tokens.n; i++) {
		const Token *t = &s->tokens.at[i];
		if (i < s->tokens.n && owner[i] == FREE) {
			bool opens = is_text(t, "{"), closes = is_text(t, "}");
			if (first < 0 && (closes || is_text(t, ";"))) {
				owner[i] = DROPPED;
				continue;
			}
			first = first < 0 ? i : first;
			braces += opens - closes;
			if (braces <= 0 && (closes || is_text(t, ";"))) {
				add_loose(r, source, first, i + 1);
				first = -1;
				braces = 0;
			}
		} else if (first >= 0) {
			if (i < s->tokens.n && owner[i] >= 0)
				for (int k = first; k < i; k++)
					owner[k] = owner[i];
			else
				add_loose(r, source, first, i);
			first = -1;
			braces = 0;
		}
	}
	for (int i = 0; i < s->tokens.n; i++)
		if (owner[i] >= 0)
			*vec_push(&r->g->arena, &r->items.at[owner[i]].tokens) = s->tokens.at[i];
}

/* Of an argument counts what NVRTC makes of it: a pointer to constants or not, the type, the name. */
static void write_args(Reach *r, Item *args)
{
	args->tokens.n = 0;
	for (int i = 0; i < r->raw->fields.n; i++) {
		const RawField *f = &r->raw->fields.at[i];
		const char *word = f->clause.word ? f->clause.word : "";
		bool is_map = strcmp(word, "MAP") == 0, is_const = strncmp(word, "IN_", 3) == 0 || strcmp(word, "IN") == 0;
		const char *type = is_map ? "TensorMap" : f->clause.n_parts ? f->clause.parts[0] : "";
		add_name(r->g, &args->mentions, is_map ? "TENSOR_MAP" : word);
		add_name(r->g, &args->mentions, type);
		*vec_push(&r->g->arena, &args->tokens) = (Token){.text = arena_printf(&r->g->arena, "%s%s %s",
			is_const ? "const " : "", type, f->name)};
	}
}

/* Names ------------------------------------------------------------------------------------------- */

typedef struct Named { const char *name; int item; } Named;

static int by_name(const void *x, const void *y)
{
	const Named *a = x, *b = y;
	int order = strcmp(a->name, b->name);
	return order ? order : a->item - b->item;
}

typedef VEC(Named) Index;

static void sort_index(Index *index)
{
	if (index->n)
		qsort(index->at, (size_t)index->n, sizeof index->at[0], by_name);
}

static void add_to_index(Reach *r, Index *index, const Names *names, int item)
{
	for (int i = 0; i < names->n; i++)
		*vec_push(&r->g->arena, index) = (Named){names->at[i], item};
}

static int first_named(const Index *index, const char *name)
{
	int low = 0, high = index->n;
	while (low < high) {
		int middle = (low + high) / 2;
		if (strcmp(index->at[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_indexed(const Index *index, const char *name)
{
	int i = first_named(index, name);
	return i < index->n && strcmp(index->at[i].name, name) == 0;
}

static Index index_names(Reach *r)
{
	Index index = {0}, constants = {0}, more = {0};
	for (int i = 0; i < r->items.n; i++)
		add_to_index(r, r->items.at[i].is_contract ? &constants : &index, &r->items.at[i].names, i);
	sort_index(&index);
	sort_index(&constants);
	for (int i = 0; i < r->items.n; i++)
		for (int k = 0; k < r->items.at[i].maybe.n; k++) {
			const char *name = r->items.at[i].maybe.at[k];
			if (!is_indexed(&index, name) && !is_indexed(&constants, name))
				*vec_push(&r->g->arena, &more) = (Named){name, i};
		}
	for (int i = 0; i < more.n; i++) {
		add_name(r->g, &r->items.at[more.at[i].item].names, more.at[i].name);
		*vec_push(&r->g->arena, &index) = more.at[i];
	}
	sort_index(&index);
	return index;
}

static const Item *number_named(const Reach *r, const Index *index, const char *name)
{
	for (int i = first_named(index, name); i < index->n && strcmp(index->at[i].name, name) == 0; i++)
		if (r->items.at[index->at[i].item].is_number)
			return &r->items.at[index->at[i].item];
	return NULL;
}

/* Number types after the name of a declaration, in its parameters or as arguments of a specialisation: without a value
 * of such a type no code calls it. Where a name has one declaration alone, a null pointer might. */
static void find_numbers(Reach *r, const Index *index, Item *p)
{
	const char *name = p->names.n ? p->names.at[0] : "";
	const int next = first_named(index, name) + 1;
	if (p->parent >= 0 || next >= index->n || strcmp(index->at[next].name, name) != 0)
		return;
	bool is_after = false;
	for (int i = 0; i < p->tokens.n; i++) {
		const Token *t = &p->tokens.at[i];
		if (is_text(t, "{") || is_text(t, "=") || is_text(t, "#"))
			return;
		if (is_after && t->is_name && number_named(r, index, t->text))
			add_name(r->g, &p->numbers, t->text);
		is_after |= is_text(t, name);
	}
}

static void reach(Reach *r, const Index *index, int item);

static void reach_if_ready(Reach *r, const Index *index, int item)
{
	const Item *p = &r->items.at[item];
	bool is_ready = p->is_named && !p->is_reached && (p->parent < 0 || r->items.at[p->parent].is_reached);
	for (int i = 0; i < p->numbers.n; i++)
		is_ready = is_ready && number_named(r, index, p->numbers.at[i])->is_reached;
	if (is_ready)
		reach(r, index, item);
}

static void follow_name(Reach *r, const Index *index, const char *name)
{
	for (int i = first_named(index, name); i < index->n && strcmp(index->at[i].name, name) == 0; i++) {
		r->items.at[index->at[i].item].is_named = true;
		reach_if_ready(r, index, index->at[i].item);
	}
}

/* As deep as calls lead from function to function: a few dozen. */
static void reach(Reach *r, const Index *index, int item)
{
	Item *p = &r->items.at[item];
	if (p->is_reached)
		return;
	p->is_reached = true;
	for (int i = 0; i < p->mentions.n; i++)
		follow_name(r, index, p->mentions.at[i]);
	for (int i = 0; i < p->tokens.n; i++)
		if (p->tokens.at[i].is_name)
			follow_name(r, index, p->tokens.at[i].text);
		else if (is_text(&p->tokens.at[i], "##")) /* it may name anything */
			for (int k = 0; k < r->items.n; k++)
				reach(r, index, k);
	for (int i = 0; i < r->items.n; i++) /* that waited for this one */
		reach_if_ready(r, index, i);
}

/* What the contract lets the kernel's operands be. */
static void follow_dtypes(Reach *r, const Index *index)
{
	for (int i = 0; i < r->raw->clauses.n; i++) {
		const Clause *c = &r->raw->clauses.at[i];
		if (c->kind != DTYPES_)
			continue;
		char *save = NULL;
		for (char *name = strtok_r(arena_strdup(&r->g->arena, c->parts[1]), ", ", &save); name;
			name = strtok_r(NULL, ", ", &save))
			follow_name(r, index, name);
	}
}

/* Hash -------------------------------------------------------------------------------------------- */

static int by_text(const void *x, const void *y)
{
	return strcmp((*(const Item *const *)x)->text, (*(const Item *const *)y)->text);
}

static void write_text(Reach *r, Item *p)
{
	for (int i = 0; i < p->tokens.n; i++)
		p->bytes += strlen(p->tokens.at[i].text) + 1;
	char *at = p->text = arena_alloc(&r->g->arena, p->bytes + 1);
	for (int i = 0; i < p->tokens.n; i++) {
		at = stpcpy(at, p->tokens.at[i].text);
		*at++ = '\n';
	}
	*at = 0;
}

/* Of each file, the template's own and then its includes by name: the name, a zero byte, its code token by token, a
 * zero byte. A line's end counts where it ends a directive; what a compiler makes of it is the same. */
static void hash_sources(const Reach *r, uint8_t sha256[32])
{
	Sha256 h;
	sha256_start(&h);
	for (int i = 0; i < r->raw->sources.n; i++) {
		const Source *s = source_of(r, i);
		bool is_directive = false;
		sha256_add(&h, s->name, strlen(s->name) + 1);
		for (int n = 0; n < s->tokens.n; n++) {
			const Token *t = &s->tokens.at[n];
			const bool begins = t->begins_line && *t->text == '#', parts = begins || (t->begins_line && is_directive);
			is_directive = parts ? begins : is_directive;
			sha256_add(&h, parts ? "\n" : " ", 1);
			sha256_add(&h, t->text, strlen(t->text));
		}
		sha256_add(&h, "", 1);
	}
	sha256_end(&h, sha256);
}

static void hash_items(Reach *r, uint8_t sha256[32])
{
	Item **list = ARENA_ARRAY(&r->g->arena, Item *, r->items.n + 1);
	int n = 0;
	for (int i = 0; i < r->items.n; i++)
		if (r->items.at[i].is_reached && r->items.at[i].tokens.n) {
			write_text(r, &r->items.at[i]);
			list[n++] = &r->items.at[i];
		}
	qsort(list, (size_t)n, sizeof list[0], by_text);
	Sha256 h;
	sha256_start(&h);
	for (int i = 0; i < n; i++)
		sha256_add(&h, list[i]->text, list[i]->bytes + 1); /* its end is a part of it */
	sha256_end(&h, sha256);
}

void hash_reached(Gen *g, struct CXTranslationUnitImpl *unit, RawTemplate *raw)
{
	Reach r = {.g = g, .raw = raw, .unit = unit, .owner = ARENA_ARRAY(&g->arena, int *, raw->sources.n)};
	for (int i = 0; i < raw->sources.n; i++) {
		if (!source_of(&r, i)->has_tokens)
			read_tokens(&r, source_of(&r, i));
		r.owner[i] = ARENA_ARRAY(&g->arena, int, source_of(&r, i)->tokens.n + 1);
		for (int k = 0; k <= source_of(&r, i)->tokens.n; k++)
			r.owner[i][k] = FREE;
	}
	clang_visitChildren(clang_getTranslationUnitCursor(unit), visit_declaration, &r);
	for (int i = 0; i < raw->sources.n; i++) {
		take_lines(&r, i);
		deal_rest(&r, i);
	}
	const Index index = index_names(&r);
	for (int i = 0; i < r.items.n; i++) {
		find_numbers(&r, &index, &r.items.at[i]);
		if (r.items.at[i].is_args)
			write_args(&r, &r.items.at[i]);
	}
	follow_dtypes(&r, &index);
	for (int i = 0; i < r.items.n; i++)
		if (r.items.at[i].names.n == 0 && !r.items.at[i].is_contract)
			reach(&r, &index, i);
	for (int i = 0; i < raw->kernels.n; i++)
		follow_name(&r, &index, raw->kernels.at[i].name);
	hash_sources(&r, raw->source_sha256);
	hash_items(&r, raw->code_sha256);
	for (int i = 0; i < r.items.n; i++)
		for (int k = 0; k < r.items.at[i].tokens.n && r.items.at[i].is_reached && !r.items.at[i].is_contract; k++)
			if (r.items.at[i].tokens.at[k].is_name)
				add_name(g, &raw->used_names, r.items.at[i].tokens.at[k].text);
}
