/* unicode.h - Unicode data of the compiler, from which each compiled tokenizer gets its tables.
 *
 * The runtime holds no Unicode data at all: what a character is was decided when the plan was
 * made, so that a newer runtime cannot change the ids of an old plan. The versions are those of
 * the `tokenizers` library (see scripts/unicode_tables.py).
 */
#ifndef ATLASC_UNICODE_H
#define ATLASC_UNICODE_H

#include "artifacts/tokenizer_format.h"
#include "compiler/base.h"

#include <stdbool.h>
#include <stdint.h>

/* Runs: an entry holds its first code point and the value of all points up to the next entry. */
extern const uint32_t unicode_category_runs[]; /* point << 5 | TokCategory */
extern const int unicode_category_runs_n;
extern const uint32_t unicode_ccc_runs[]; /* point << 8 | canonical combining class */
extern const int unicode_ccc_runs_n;
/* Pairs first, last (both inside): numeric in 17.0, not N in 16.0; word characters besides L M Nd Nl Pc */
extern const uint32_t unicode_numeric_extra[];
extern const int unicode_numeric_extra_n;
extern const uint32_t unicode_word_extra[];
extern const int unicode_word_extra_n;
/* Full decompositions, as records: point, length, result. Hangul syllables are not listed.
 * unicode_compat has those whose compatibility form differs from the canonical one. */
extern const uint32_t unicode_canonical[];
extern const int unicode_canonical_n;
extern const uint32_t unicode_compat[];
extern const int unicode_compat_n;
extern const uint32_t unicode_compositions[]; /* first, second, composite; ascending */
extern const int unicode_compositions_n;

/* Character classes in the form of TOK_SEC_CLASS: one byte a code point, category and flags.
 * `blocks` is arena memory of 256 bytes a block. */
typedef struct CharTable {
	uint16_t *index; /* [TOK_CHAR_BLOCKS]: block of code point >> 8 */
	uint8_t *blocks; /* [n_blocks][256] */
	int n_blocks;
} CharTable;

/* Normalisation data of one form, in the form of the TOK_SEC_NORM sections. */
typedef struct NormTables {
	CharTable props; /* value: index into props_list */
	TokNormProps *props_list;
	int n_props;
	TokDecomposition *decompositions; /* ascending code points */
	int n_decompositions;
	uint32_t *points; /* results of the decompositions */
	int n_points;
	TokComposition *compositions; /* ascending (first, second); none for NFD and NFKD */
	int n_compositions;
} NormTables;

CharTable unicode_classes(Arena *a);
NormTables unicode_normalisation(Arena *a, TokForm form);

/* The text, UTF-8 of n bytes, in the tables' normal form; *n_out: its bytes. Quadratic in consecutive marks. */
const char *unicode_normalised(Arena *a, const NormTables *t, const char *text, size_t n, size_t *n_out);

/* TokCategory of a two-letter name ("Lu"), or -1. */
int unicode_category_named(const char *name, int len);

#endif
