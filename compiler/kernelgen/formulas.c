/* formulas.c - FORMULA and PARAM, written out where a contract names them.
 *
 * A FORMULA is a function to the code that includes it and a piece of text to a contract: a call of it becomes its
 * expression, with the values for the parameters. A PARAM becomes its number. So a plan's contracts are expressions of
 * dims, attributes and tunables alone, which anyone can evaluate.
 *
 * A formula knows those before it, so none calls itself. Its expression is C++ too: libclang has refused names that are
 * not declared.
 */
#include "artifacts/expr.h"
#include "compiler/kernelgen/kernelgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const word_names[N_WORDS] = {"KERNEL", "ARCH", "NUMERICS", "GRID", "BLOCK", "READS", "WRITES", "FLOPS",
	"SMEM", "PIECES", "RATE", "MATRIX", "EARLY", "DIM", "ATTR_INT", "ATTR_FLOAT", "DTYPES", "TUNE", "FLAG", "PARAM",
	"FORMULA", "ORDER", "REQUIRE", "PREFER", "PRUNE"};

Word find_word(const char *name)
{
	int i = 0;
	while (i < N_WORDS && strcmp(word_names[i], name) != 0)
		i++;
	return (Word)i;
}

typedef struct Expander {
	Gen *g;
	const RawTemplate *raw;
	const char *what; /* the word whose text this is, for messages: "SMEM" */
	Loc at;
} Expander;

typedef struct Values { const Names *args; const char **values; } Values; /* of the formula whose text is written out */

static bool is_name_start(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static size_t word_length(const char *s)
{
	return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
}

bool is_identifier(const char *s) { return is_name_start(*s) && !s[word_length(s)]; }

static const char *skip_blanks(const char *s) { return s + strspn(s, " \t"); }

/* The parenthesis that closes the one at s; NULL = none does. */
static const char *closing(const char *s)
{
	int depth = 0;
	for (; *s; s++) {
		depth += (*s == '(') - (*s == ')');
		if (!depth)
			return s;
	}
	return NULL;
}

static bool is_atom(const char *text)
{
	const char *end = *text == '(' ? closing(text) : NULL;
	return text[word_length(text)] == 0 || (end && !end[1]);
}

static const RawFormula *find_formula(const RawTemplate *raw, const char *name, size_t n)
{
	for (int i = 0; i < raw->formulas.n; i++)
		if (strncmp(raw->formulas.at[i].name, name, n) == 0 && raw->formulas.at[i].name[n] == 0)
			return &raw->formulas.at[i];
	return NULL;
}

static const char *write_out(Expander *e, const char *text, const Values *values);

/* "(a, b(c, d))" from `open` to `close`, each written out; NULL with an error when they are not as many as f has. */
static const char **take_values(Expander *e, const RawFormula *f, const char *open, const char *close,
	const Values *values)
{
	const char *text = arena_strndup(&e->g->arena, open + 1, (size_t)(close - open - 1));
	const char **given = ARENA_ARRAY(&e->g->arena, const char *, f->args.n + 1);
	char *item = arena_alloc(&e->g->arena, strlen(text) + 1);
	int n = 0;
	while (expr_next(&text, item, strlen(text) + 1)) {
		if (n < f->args.n)
			given[n] = write_out(e, arena_strdup(&e->g->arena, item), values);
		n++;
	}
	if (n == f->args.n)
		return given;
	fail_at(&e->g->diags, A0904, e->at, "%s: %s takes %d values, found %d", e->what, f->name, f->args.n, n);
	return NULL;
}

/* The text for the word of n bytes at s, and *end after it; NULL = the word itself. */
static const char *meaning(Expander *e, const char *s, size_t n, const Values *values, const char **end)
{
	for (int i = 0; values && i < values->args->n; i++)
		if (strncmp(values->args->at[i], s, n) == 0 && values->args->at[i][n] == 0)
			return values->values[i];
	const RawFormula *f = find_formula(e->raw, s, n);
	if (!f || f->is_param)
		return f ? f->text : NULL;
	const char *open = skip_blanks(*end), *close = *open == '(' ? closing(open) : NULL;
	if (!close)
		return NULL;
	*end = close + 1;
	const char **given = take_values(e, f, open, close, values);
	return given ? write_out(e, f->text, &(Values){&f->args, given}) : "0"; /* an error, which is enough */
}

/* The text with each parameter, PARAM and call of a FORMULA replaced by what it means. */
static const char *write_out(Expander *e, const char *text, const Values *values)
{
	char *out = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&out, &bytes);
	if (!f)
		bug("no memory for a formula of %s", e->raw->name);
	for (const char *s = text; *s;) {
		const size_t n = word_length(s);
		const char *end = s + n, *text_of = n && is_name_start(*s) ? meaning(e, s, n, values, &end) : NULL;
		if (text_of) {
			const bool is_all = s == skip_blanks(text) && !*skip_blanks(end);
			fprintf(f, is_all || is_atom(text_of) ? "%s" : "(%s)", text_of);
			s = end;
		} else {
			fwrite(s, 1, n ? n : 1, f);
			s += n ? n : 1;
		}
	}
	if (fclose(f) != 0)
		bug("no memory for a formula of %s", e->raw->name);
	const char *kept = arena_strndup(&e->g->arena, out, bytes);
	free(out);
	return kept;
}

/* "name(int a, int b)" */
static bool read_head(Gen *g, const char *head, RawFormula *f)
{
	static const char *const known[] = {"ceil_div", "min", "max", "align"};
	const size_t n = word_length(head);
	const char *open = skip_blanks(head + n), *close = *open == '(' ? closing(open) : NULL;
	f->name = arena_strndup(&g->arena, head, n);
	if (!is_name_start(*head) || !close || *skip_blanks(close + 1))
		return false;
	const char *list = arena_strndup(&g->arena, open + 1, (size_t)(close - open - 1));
	char *item = arena_alloc(&g->arena, strlen(list) + 1);
	while (expr_next(&list, item, strlen(list) + 1)) {
		const char *arg = strncmp(item, "int ", 4) == 0 ? skip_blanks(item + 4) : "";
		if (!is_identifier(arg))
			return false;
		*vec_push(&g->arena, &f->args) = arena_strdup(&g->arena, arg);
	}
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(f->name, known[i]) == 0)
			fail_at(&g->diags, A0906, f->at, "FORMULA %s: formulas have a function of that name", f->name);
	return true;
}

/* "param;RESIDUAL;1;0, 1": the number that the macro stands for, of those that may be. */
static void read_param(Gen *g, const Clause *c, RawFormula *f)
{
	const char *list = c->parts[2];
	char item[32];
	bool is_allowed = false;
	while (expr_next(&list, item, sizeof item))
		is_allowed |= strcmp(item, c->parts[1]) == 0;
	*f = (RawFormula){.name = c->parts[0], .text = c->parts[1], .at = c->at, .is_param = true};
	if (!is_allowed)
		fail_at(&g->diags, A0902, c->at,
			"PARAM %s: expected #define %s before this file is included, as one of %s: found %s", f->name, f->name,
			c->parts[2], f->text);
}

static void expand_clause(Gen *g, const RawTemplate *raw, Clause *c, int first)
{
	Expander e = {g, raw, c->word, c->at};
	for (int i = first; i < c->n_parts; i++)
		c->parts[i] = write_out(&e, c->parts[i], NULL);
}

void expand_formulas(Gen *g, RawTemplate *raw)
{
	for (int i = 0; i < raw->clauses.n; i++) {
		const Clause *c = &raw->clauses.at[i];
		RawFormula f = {.at = c->at};
		if (c->kind == PARAM_)
			read_param(g, c, &f);
		else if (c->kind != FORMULA_)
			continue;
		else if (!read_head(g, c->parts[0], &f)) {
			fail_at(&g->diags, A0902, c->at, "FORMULA(%s, ...): expected NAME(int A, ...)", c->parts[0]);
			continue;
		} else {
			Expander e = {g, raw, arena_printf(&g->arena, "FORMULA %s", f.name), c->at};
			f.text = write_out(&e, c->parts[1], NULL);
		}
		*vec_push(&g->arena, &raw->formulas) = f;
	}
	for (int i = 0; i < raw->clauses.n; i++) {
		const Word w = raw->clauses.at[i].kind;
		if ((w >= GRID_ && w <= RATE_) || (w >= ORDER_ && w < N_WORDS))
			expand_clause(g, raw, &raw->clauses.at[i], 0);
	}
	for (int i = 0; i < raw->fields.n; i++)
		if (raw->fields.at[i].clause.word)
			expand_clause(g, raw, &raw->fields.at[i].clause, 1);
}
