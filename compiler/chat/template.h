/* template.h - the parts of the compiler of chat templates: text to tokens (template_lex.c), tokens to a tree
 * (template_parse.c), the tree to the program of artifacts/chat_format.h (template_scope.c, which knows what a name
 * means). The language is that of jinja2 3.1 in the settings of transformers 5.17: trim_blocks, lstrip_blocks,
 * loopcontrols, {% generation %}.
 *
 *     ChatImage image;
 *     compile_template(arena, diags, at, text, n, &image);
 */
#ifndef ATLASC_TEMPLATE_H
#define ATLASC_TEMPLATE_H

#include "artifacts/chat_format.h"
#include "compiler/base.h"

#include <stdio.h>

/* Tokens ------------------------------------------------------------------------------------------------- */

typedef enum TokenKind {
	T_END, T_DATA, T_BLOCK_BEGIN, T_BLOCK_END, T_OUTPUT_BEGIN, T_OUTPUT_END, T_NAME, T_INT, T_FLOAT, T_STRING, T_OP
} TokenKind;

typedef struct Token {
	TokenKind kind;
	int line, col;
	const char *text; /* of DATA, NAME, STRING; of OP the operator */
	int n;
	int64_t integer;
	double real;
} Token;

/* The tree ----------------------------------------------------------------------------------------------- */

typedef struct TNode {
	ChatKind kind;
	int op;
	int line, col;
	const char *name; /* [n_name]; of a NAME (kind CHAT_SLOT), string, text, attribute, keyword, macro */
	int n_name;
	int64_t integer;
	double real;
	VEC(struct TNode *) kids; /* as in ChatKind; of a macro: its parameters (SLOTs), then defaults; the body is last */
	int n_params;
	int height; /* nodes on the longest way down, besides it */
} TNode;

typedef struct Template {
	Arena *arena;
	Diags *diags;
	const char *file;   /* for messages */
	VEC(Token) tokens;
	int at;             /* the token being looked at */
	int depth, n_loops;
	bool failed;        /* a message was made: there will be no program */
	char why[300];      /* the first of them, with its place */
} Template;

/* A message at a place of the template; the template has no program then. Returns false. */
bool template_fail(Template *t, Code code, int line, int col, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
bool template_lex(Template *t, const char *text, size_t n);
/* NULL after a failure. */
TNode *template_parse(Template *t);

typedef struct ChatImage { void *bytes; size_t n; } ChatImage; /* section chat_program; arena memory */
typedef struct NamedText { const char *name, *value; } NamedText;

/* All of the above. Remarks A0520 to A0524 say what cannot be compiled. */
void compile_template(Arena *a, Diags *d, const char *file, const char *text, size_t n, const NamedText *globals,
	int n_globals, ChatImage *out);

#endif
