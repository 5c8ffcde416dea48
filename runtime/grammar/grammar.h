/* grammar.h - structured output: which token may follow, so that an answer is of a JSON schema, a regular expression or
 * a choice of texts.
 *
 *	GrammarVocab *vocab = grammar_vocab_open(tok, vocab_of_the_logits);           once a plan
 *	Grammar *g = grammar_compile(&(GrammarSource){.kind = GRAMMAR_SCHEMA, .json = schema}, &error);
 *	GrammarText *t = grammar_text_open(g, vocab, ends, n_ends);                   once an answer
 *	for each token { grammar_text_mask(t, words); ...draw...; grammar_text_push(t, token); }
 *
 * A grammar is compiled to lexemes (deterministic automata over bytes: a string, a number, a key) and to nodes that
 * put them in order: sequence, alternative, repetition with counters, rule. The state of a text is a set of items, each
 * a state of a lexeme and what follows it: a stack, whose cells are shared (match.c). The language is never wider than
 * what was asked for: what cannot be compiled is refused with its place. From every state that a text can reach, some
 * text ends it.
 *
 * JSON is written compactly: nothing between its signs but one space that may follow ',' and ':'. Properties come in
 * the order of the schema, others after them.
 */
#ifndef ATLAS_GRAMMAR_H
#define ATLAS_GRAMMAR_H

#include "runtime/text/tokenizer.h"

#include <jansson.h>

enum {
	GRAMMAR_MAX_BYTES = 64 << 10, /* of a schema, an expression or all choices, as compact JSON or text */
	GRAMMAR_MAX_DEPTH = 32,       /* of schemas inside each other */
	GRAMMAR_MAX_CHOICES = 4096,   /* and values of an enum */
};

typedef struct GrammarError {
	char pointer[200]; /* JSON pointer into the source, "" = all of it; "#/..." is not used */
	char text[240];    /* one sentence */
} GrammarError;

typedef enum GrammarKind {
	GRAMMAR_SCHEMA, /* json: a JSON schema, an object or a boolean */
	GRAMMAR_OBJECT, /* any JSON object */
	GRAMMAR_REGEX,  /* text: an expression that the whole answer matches */
	GRAMMAR_CHOICE, /* json: a list of strings, one of which is the answer */
	/* json: {"form", "schemas"}. A form is a text; a list of forms, one after the other; {"schema": S}, JSON of it,
	 * whose errors are at pointers after "at", if that is there too; {"regex": R}; {"either": [forms]};
	 * {"optional": form}; {"many": form, "least": n, "most": n}, where -1 is any number. References of its schemas lead
	 * to "schemas": "#/schemas/0/$defs/a". */
	GRAMMAR_FORM,
} GrammarKind;

typedef struct GrammarSource {
	GrammarKind kind;
	json_t *json;     /* read only while it is compiled */
	const char *text; /* zero-terminated UTF-8 */
	const char *before; /* that the answer begins with, before what `kind` says; NULL = nothing */
	const Tok *tok;     /* by whose table of characters classes as \p{L} are; NULL: such are refused */
	json_t *head;       /* a form that comes before these, without schemas; NULL = nothing */
} GrammarSource;

/* Constant after it is compiled: any number of threads may read it. */
typedef struct Grammar Grammar;
/* NULL after filling *error. Takes less than half a second. Any thread. */
Grammar *grammar_compile(const GrammarSource *source, GrammarError *error);
Grammar *grammar_keep(Grammar *g); /* one owner more; any thread */
void grammar_free(Grammar *g);     /* one owner less; NULL is fine */

/* What a reference, "#" or "#/..." as a part of a URI, points to in `root`; NULL: nothing. Borrowed. */
json_t *grammar_at(json_t *root, const char *pointer);

/* The bytes of a tokenizer's tokens as a tree, for any number of texts in any thread. */
typedef struct GrammarVocab GrammarVocab;
/* n_ids: columns of the model's scores. NULL: no memory, or the tokenizer has no tree, as it puts spaces between its
 * tokens. `tok` must outlive it. Takes some 10 ms per 100,000 tokens. */
GrammarVocab *grammar_vocab_open(const Tok *tok, int n_ids);
void grammar_vocab_close(GrammarVocab *v); /* NULL is fine */
/* Makes what the first masks of texts need, so that each of them takes less time; some ms. Masks are the same with and
 * without it. Any thread. */
void grammar_prepare(const Grammar *g, const GrammarVocab *v);
/* 32-bit words of a mask: token t is bit t % 32 of word t / 32. */
static inline int grammar_mask_words(int n_ids) { return (n_ids + 31) / 32; }

/* A text in the making. Of one thread at a time; grammar and vocabulary must outlive it. */
typedef struct GrammarText GrammarText;
/* ends [n_ends]: tokens that end the text, allowed where it is whole and nowhere else; copied. NULL: no memory. */
GrammarText *grammar_text_open(const Grammar *g, const GrammarVocab *v, const int32_t *ends, int n_ends);
void grammar_text_close(GrammarText *t); /* NULL is fine */
/* Bits of the tokens that may come next; ids without a token never. False: no memory, or the grammar is so ambiguous
 * here that its states do not fit; the text cannot go on. */
bool grammar_text_mask(GrammarText *t, uint32_t *words);
/* Appends a token's bytes. False where they do not fit, which is never so for a token of the mask; the text stays as it
 * was. */
bool grammar_text_push(GrammarText *t, int32_t token);
bool grammar_text_push_bytes(GrammarText *t, const void *bytes, size_t n);
/* Until grammar_text_back, which makes the text what it is now, tokens are only tried. */
void grammar_text_try(GrammarText *t);
void grammar_text_back(GrammarText *t);
/* Could it, outside of a list whose items must differ? */
bool grammar_text_takes(GrammarText *t, const void *bytes, size_t n);
bool grammar_text_is_whole(const GrammarText *t); /* may the text end here? */
bool grammar_text_is_over(const GrammarText *t);  /* must it? */

#endif
