/* tokenizer_spec.h - a tokenizer between reading and writing: what tokenizer.json said, checked,
 * with patterns compiled. read_tokenizer.c fills it, compile_pattern.c adds the programs,
 * write_tokenizer.c lays it out as bytes.
 */
#ifndef ATLASC_TOKENIZER_SPEC_H
#define ATLASC_TOKENIZER_SPEC_H

#include "artifacts/tokenizer_format.h"
#include "compiler/base.h"
#include "compiler/tokenizer/unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Str { /* bytes, not zero-terminated by contract; NULL when absent */
	const char *at;
	size_t n;
} Str;

typedef struct SpecToken {
	Str name;     /* as in the file; NULL = no token has this id */
	Str key;      /* what encoding looks up: raw bytes at byte level, else the name */
	Str text;     /* what decoding gives */
	Str first;    /* what it gives at the start of the output; NULL = the same */
	uint32_t flags; /* TOK_EXISTS .. */
} SpecToken;

typedef struct SpecAdded {
	Str content, matched; /* as in the file; as it is in normalised text */
	uint32_t id, flags;   /* TOK_ADDED_ */
	bool normalized;
} SpecAdded;

typedef struct SpecStep {
	TokStepKind kind;
	uint32_t flags;
	int code;   /* index into TokenizerSpec.code */
	Str string;
	Str literal; /* what `code` matches, when it is one string; NULL else */
} SpecStep;

typedef struct TokenizerSpec {
	SpecToken *tokens; /* [n_ids], indexed by id */
	int n_ids;
	VEC(TokMerge) merges;
	uint32_t *merge_hash; /* [merge_slots], as in TOK_SEC_MERGE_HASH */
	uint32_t merge_slots;
	uint32_t byte_ids[256];
	VEC(SpecAdded) added;
	VEC(SpecStep) steps;
	int n_normalizers;
	VEC(TokInstr) code;
	VEC(TokSet) sets;
	VEC(uint32_t) ranges;
	VEC(uint32_t) prefix, suffix;
	uint32_t flags; /* TOK_BYTE_LEVEL .. */
	TokDecode decode;
	uint32_t strip_count, strip_point;
	int unk_id, bos_id, eos_id;
	int form; /* TokForm of the normaliser, -1 = none */
	NormTables *norm; /* when form >= 0 */
} TokenizerSpec;

/* Appends the program of a regular expression (Oniguruma's dialect, the subset listed in
 * compile_pattern.c) and returns its first instruction, or -1 with `why` filled:
 * a sentence without full stop, naming the construct and its place. */
int compile_pattern(Arena *a, TokenizerSpec *spec, Str pattern, char *why, size_t why_bytes);

/* The same for a string that matches itself. It must not be empty. */
int compile_literal(Arena *a, TokenizerSpec *spec, Str literal);

/* Program of one code point with TOK_IS_NUMERIC. */
int compile_numeric(Arena *a, TokenizerSpec *spec);

/* Decodes one code point of valid UTF-8; returns its length. */
int utf8_next(const char *s, uint32_t *cp);

/* The compiled section, arena memory; NULL if it would be larger than TOK_MAX_BYTES. */
void *write_tokenizer(Arena *a, const TokenizerSpec *spec, size_t *n_bytes);

/* vocab_tree.c: TOK_SEC_TREE and what belongs to it. */
typedef struct VocabTree {
	const uint32_t *words, *ids; /* [n] */
	uint32_t n;
	const TokSame *same;
	uint32_t n_same;
} VocabTree;
VocabTree vocab_tree(Arena *a, const TokenizerSpec *spec);

#endif
