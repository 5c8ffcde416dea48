/* read_template.c - a template as libclang sees it.
 *
 * The file is parsed as plain C++ for the nvptx64 target with no headers but our own: contract.cuh turns the
 * contract's words into annotate attributes and CUDA's keywords into nothing. So no CUDA toolkit is needed, every
 * libclang from 14 to 19 reads it alike, and it takes milliseconds. The target makes inline PTX legal.
 *
 * After an error libclang goes on with types it made up, so any error ends the reading of this file. Locations
 * are expansion locations: where the contract word is, not where its macro was defined. The walk relies on
 * attributes and names only: versions differ in the order of attributes and in the kind of `extern "C"`.
 *
 * Templates of one family share their code in an include, so "the kernel uses this argument" must not be
 * answered by another kernel's function. Hence only functions that this kernel may call count.
 */
#include "compiler/kernelgen/kernelgen.h"

#include <clang-c/Index.h>
#include <stdio.h>
#include <string.h>

typedef struct Function { /* one with a body */
	const char *name;
	Names members;  /* of struct Args, that its body evaluates */
	bool is_named;  /* else it is called without being named, or is a kernel */
} Function;

typedef struct Walk {
	Gen *g;
	RawTemplate *raw;
	CXTranslationUnit unit;
	VEC(Function) functions;
	int function; /* the one whose body is being read, -1 = outside of all */
} Walk;

static const char *keep(Gen *g, CXString s)
{
	const char *text = clang_getCString(s);
	const char *copy = arena_strdup(&g->arena, text ? text : "");
	clang_disposeString(s);
	return copy;
}

static Loc location(Gen *g, CXSourceLocation where)
{
	CXFile file;
	unsigned line, col;
	clang_getExpansionLocation(where, &file, &line, &col, NULL);
	return (Loc){file ? keep(g, clang_getFileName(file)) : NULL, (int)line, (int)col};
}

static Clause split_clause(Gen *g, const char *text, Loc at)
{
	Clause c = {.at = at};
	char *s = arena_strdup(&g->arena, text), *save = NULL;
	c.word = strtok_r(s, ";", &save);
	for (char *p = s; *p; p++)
		*p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
	c.kind = find_word(c.word);
	/* Parts may be empty, which strtok_r would skip. */
	for (char *part = save; part && c.n_parts < MAX_PARTS; ) {
		char *end = strchr(part, ';');
		if (end)
			*end = 0;
		c.parts[c.n_parts++] = part;
		part = end ? end + 1 : NULL;
	}
	return c;
}

typedef struct Search { Gen *g; const char *text, *found; } Search;

static enum CXChildVisitResult find_annotation(CXCursor c, CXCursor parent, CXClientData data)
{
	(void)parent;
	Search *s = data;
	const char *text = clang_getCursorKind(c) == CXCursor_AnnotateAttr ? keep(s->g, clang_getCursorSpelling(c)) : NULL;
	if (!text || (s->text && strcmp(s->text, text) != 0))
		return CXChildVisit_Continue;
	s->found = text;
	return CXChildVisit_Break;
}

/* The first annotation of a declaration, or the first that is `text`; NULL when there is none. */
static const char *annotation(Gen *g, CXCursor decl, const char *text)
{
	Search s = {g, text, NULL};
	clang_visitChildren(decl, find_annotation, &s);
	return s.found;
}

/* Declarations ------------------------------------------------------------------------------------- */

static enum CXChildVisitResult read_field(CXCursor c, CXCursor parent, CXClientData data)
{
	(void)parent;
	Walk *w = data;
	if (clang_getCursorKind(c) != CXCursor_FieldDecl)
		return CXChildVisit_Continue;
	RawField *f = vec_push(&w->g->arena, &w->raw->fields);
	f->name = keep(w->g, clang_getCursorSpelling(c));
	f->at = location(w->g, clang_getCursorLocation(c));
	f->offset = (int)(clang_Cursor_getOffsetOfField(c) / 8);
	f->is_pointer = clang_getCanonicalType(clang_getCursorType(c)).kind == CXType_Pointer;
	const char *text = annotation(w->g, c, NULL);
	if (text)
		f->clause = split_clause(w->g, text, f->at);
	return CXChildVisit_Continue;
}

static void read_args(Walk *w, CXCursor c)
{
	w->raw->n_args_structs++;
	w->raw->args_at = location(w->g, clang_getCursorLocation(c));
	w->raw->args_bytes = (int)clang_Type_getSizeOf(clang_getCursorType(c));
	clang_visitChildren(c, read_field, w);
}

static bool is_args_type(Gen *g, CXType t)
{
	t = clang_getCanonicalType(t);
	if (t.kind != CXType_Record)
		return false;
	return strcmp(keep(g, clang_getCursorSpelling(clang_getTypeDeclaration(t))), "Args") == 0;
}

static void read_kernel(Walk *w, CXCursor c)
{
	RawKernel *k = vec_push(&w->g->arena, &w->raw->kernels);
	k->name = keep(w->g, clang_getCursorSpelling(c));
	k->at = location(w->g, clang_getCursorLocation(c));
	k->is_extern_c = strcmp(keep(w->g, clang_Cursor_getMangling(c)), k->name) == 0;
	k->is_void = clang_getCursorResultType(c).kind == CXType_Void;
	k->takes_args = clang_Cursor_getNumArguments(c) == 1 &&
		is_args_type(w->g, clang_getCursorType(clang_Cursor_getArgument(c, 0)));
}

/* Uses ------------------------------------------------------------------------------------------- */

bool has_name(const Names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (strcmp(names->at[i], name) == 0)
			return true;
	return false;
}

void add_name(Gen *g, Names *names, const char *name)
{
	if (*name && !has_name(names, name))
		*vec_push(&g->arena, names) = name;
}

/* The last name in the text of a cursor. */
static const char *last_name(Walk *w, CXCursor c)
{
	CXToken *tokens = NULL;
	unsigned n = 0;
	const char *last = "";
	clang_tokenize(w->unit, clang_getCursorExtent(c), &tokens, &n);
	for (unsigned i = 0; i < n; i++)
		if (clang_getTokenKind(tokens[i]) == CXToken_Identifier)
			last = keep(w->g, clang_getTokenSpelling(w->unit, tokens[i]));
	clang_disposeTokens(w->unit, tokens, n);
	return last;
}

/* In a function template `a.x` refers to no field yet: the field is the last name of the expression. */
static void use_member(Walk *w, CXCursor c)
{
	Function *f = &w->functions.at[w->function];
	CXCursor field = clang_getCursorReferenced(c);
	if (clang_Cursor_isNull(field)) {
		add_name(w->g, &f->members, last_name(w, c));
		return;
	}
	CXCursor owner = clang_getCursorSemanticParent(field);
	if (strcmp(keep(w->g, clang_getCursorSpelling(owner)), "Args") == 0)
		add_name(w->g, &f->members, keep(w->g, clang_getCursorSpelling(field)));
}

/* `(void)a.x` and `sizeof a.x` silence compilers; they are no use. */
static bool is_unevaluated(CXCursor c)
{
	enum CXCursorKind kind = clang_getCursorKind(c);
	return kind == CXCursor_StaticAssert || kind == CXCursor_UnaryExpr ||
		(kind == CXCursor_CStyleCastExpr && clang_getCursorType(c).kind == CXType_Void);
}

static bool is_function(enum CXCursorKind kind)
{
	return kind == CXCursor_FunctionDecl || kind == CXCursor_FunctionTemplate || kind == CXCursor_CXXMethod ||
		kind == CXCursor_Constructor || kind == CXCursor_Destructor || kind == CXCursor_ConversionFunction;
}

/* An operator or destructor is called without being named. */
static bool is_named(enum CXCursorKind kind, const char *name)
{
	return kind != CXCursor_Destructor && kind != CXCursor_ConversionFunction && strncmp(name, "operator", 8) != 0;
}

static void begin_function(Walk *w, CXCursor c)
{
	Function f = {.name = keep(w->g, clang_getCursorSpelling(c))};
	bool is_kernel = annotation(w->g, c, "global") != NULL;
	f.is_named = !is_kernel && is_named(clang_getCursorKind(c), f.name);
	if (clang_getCursorKind(c) == CXCursor_Constructor) /* of a template: "Tile<BM>", called as Tile */
		f.name = arena_strndup(&w->g->arena, f.name, strcspn(f.name, "<"));
	if (is_kernel)
		read_kernel(w, c);
	w->function = w->functions.n;
	*vec_push(&w->g->arena, &w->functions) = f;
}

static enum CXChildVisitResult visit(CXCursor c, CXCursor parent, CXClientData data)
{
	(void)parent;
	Walk *w = data;
	enum CXCursorKind kind = clang_getCursorKind(c);
	const int outer = w->function;
	if (is_unevaluated(c))
		return CXChildVisit_Continue;
	if (outer >= 0) {
		if (kind == CXCursor_MemberRefExpr)
			use_member(w, c);
	} else if (kind == CXCursor_VarDecl) {
		const char *text = annotation(w->g, c, NULL);
		if (text)
			*vec_push(&w->g->arena, &w->raw->clauses) =
				split_clause(w->g, text, location(w->g, clang_getCursorLocation(c)));
	} else if (kind == CXCursor_StructDecl && clang_isCursorDefinition(c)) {
		if (strcmp(keep(w->g, clang_getCursorSpelling(c)), "Args") == 0)
			read_args(w, c);
	} else if (is_function(kind) && clang_isCursorDefinition(c)) {
		begin_function(w, c);
	}
	clang_visitChildren(c, visit, w);
	w->function = outer;
	return CXChildVisit_Continue;
}

/* Calls are matched by name alone, so overloads and templates count as one function: it may find too many callees,
 * never too few. */
static void find_used_fields(Walk *w)
{
	for (int i = 0; i < w->functions.n; i++) {
		const Function *f = &w->functions.at[i];
		for (int j = 0; j < w->raw->fields.n && (!f->is_named || has_name(&w->raw->used_names, f->name)); j++)
			w->raw->fields.at[j].is_used |= has_name(&f->members, w->raw->fields.at[j].name);
	}
}

/* Files ------------------------------------------------------------------------------------------- */

const char *source_name(const Gen *g, const char *path)
{
	size_t n = strlen(g->include_dir);
	if (strncmp(path, g->include_dir, n) == 0 && path[n] == '/')
		return path + n + 1;
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int source_index(Gen *g, const char *path, const char *text, size_t bytes)
{
	const char *name = source_name(g, path);
	for (int i = 0; i < g->sources.n; i++) {
		const Source *s = &g->sources.at[i];
		if (strcmp(s->name, name) != 0)
			continue;
		if (s->bytes != bytes || memcmp(s->text, text, bytes) != 0)
			fail_at(&g->diags, A0906, (Loc){path, 1, 1}, "a file of this name is also at %s", s->path);
		return i;
	}
	*vec_push(&g->arena, &g->sources) = (Source){.name = name, .path = path,
		.text = arena_strndup(&g->arena, text, bytes), .bytes = bytes};
	return g->sources.n - 1;
}

static void add_file(CXFile file, CXSourceLocation *stack, unsigned depth, CXClientData data)
{
	(void)stack;
	(void)depth;
	Walk *w = data;
	size_t bytes;
	const char *text = clang_getFileContents(w->unit, file, &bytes);
	if (!text)
		return;
	int i = source_index(w->g, keep(w->g, clang_getFileName(file)), text, bytes);
	for (int j = 0; j < w->raw->sources.n; j++)
		if (w->raw->sources.at[j] == i)
			return;
	/* Insert by name after the file itself, which comes first. */
	*vec_push(&w->g->arena, &w->raw->sources) = i;
	int *s = w->raw->sources.at;
	const Source *all = w->g->sources.at;
	for (int j = w->raw->sources.n - 1; j > 1 && strcmp(all[s[j - 1]].name, all[i].name) > 0; j--) {
		s[j] = s[j - 1];
		s[j - 1] = i;
	}
}

void name_template(Gen *g, const RawTemplate *raw, int first)
{
	for (int i = first; i < g->diags.n; i++) {
		Diag *d = &g->diags.list[i];
		if (strcmp(d->at.file, raw->path) != 0)
			d->text = arena_printf(&g->arena, "%s (template %s)", d->text, raw->name);
	}
}

static bool report_errors(Walk *w)
{
	bool ok = true;
	for (unsigned i = 0; i < clang_getNumDiagnostics(w->unit); i++) {
		CXDiagnostic d = clang_getDiagnostic(w->unit, i);
		if (clang_getDiagnosticSeverity(d) >= CXDiagnostic_Error) {
			Loc at = location(w->g, clang_getDiagnosticLocation(d));
			if (!at.file)
				at.file = w->raw->path;
			ok = fail_at(&w->g->diags, A0901, at, "%s", keep(w->g, clang_getDiagnosticSpelling(d)));
		}
		clang_disposeDiagnostic(d);
	}
	return ok;
}

bool read_template(Gen *g, const char *path, RawTemplate *out)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const char *dot = strrchr(name, '.');
	*out = (RawTemplate){.path = path,
		.name = arena_strndup(&g->arena, name, dot ? (size_t)(dot - name) : strlen(name))};
	const char *const args[] = {"-x", "c++", "-std=c++17", "--target=nvptx64-nvidia-cuda", "-nostdinc",
		"-DKERNELGEN", "-I", g->include_dir};
	Walk w = {.g = g, .raw = out, .function = -1};
	CXIndex index = clang_createIndex(0, 0);
	enum CXErrorCode rc = clang_parseTranslationUnit2(index, path, args, sizeof args / sizeof args[0],
		NULL, 0, CXTranslationUnit_None, &w.unit);
	bool ok = false;
	if (rc == CXError_Success) {
		ok = report_errors(&w);
		if (ok) {
			clang_getInclusions(w.unit, add_file, &w);
			clang_visitChildren(clang_getTranslationUnitCursor(w.unit), visit, &w);
			hash_reached(g, w.unit, out);
			find_used_fields(&w);
		}
		clang_disposeTranslationUnit(w.unit);
	} else {
		fail_at(&g->diags, A0102, (Loc){path, 0, 0}, "libclang cannot read this file (code %d)", (int)rc);
	}
	clang_disposeIndex(index);
	return ok;
}

const char *libclang_text(Gen *g)
{
	CXString s = clang_getClangVersion();
	const char *text = clang_getCString(s), *at = text ? text + strcspn(text, "0123456789") : "";
	const char *version = arena_strndup(&g->arena, at, strspn(at, "0123456789."));
	clang_disposeString(s);
	return version;
}
