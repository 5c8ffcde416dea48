/* tokenizer_format.h - the compiled tokenizer: the section "tokenizer" of a plan, byte by byte.
 *
 * atlasc reads tokenizer.json and writes this; libatlas uses it where it lies, in mapped memory,
 * after one check of every count, offset and id. Everything that could be decided early is:
 * hash tables are filled, normalised forms of added tokens are computed, patterns are small
 * programs, and the Unicode data they need travels along. So opening costs a scan, and no
 * runtime can read the same text differently.
 *
 * Layout. Little-endian; a TokHeader at offset 0, then the sections in the order of TokSection,
 * each starting at the next multiple of 8 after the previous one (zeros between), absent ones
 * with offset and bytes 0. total_bytes is the end of the last one, rounded up to 8. No pointers,
 * no time, no host: the same tokenizer.json gives the same bytes. A change of any structure here
 * changes TOK_VERSION, and the reader takes its own version only.
 *
 * Encoding text. (1) Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a
 * sequence. (2) Added tokens without `normalized` are cut out of the text, leftmost and longest
 * first. (3) Each piece between them goes through the normaliser steps, and added tokens with
 * `normalized` are cut out. (4) Each piece goes through the pre-tokenizer steps. (5) The pieces
 * become tokens by byte-pair encoding. (6) Template ids are prepended and appended, if asked for.
 *
 * Decoding. The texts of the ids are joined and bytes that are not UTF-8 become U+FFFD; see
 * TokDecode for what else happens.
 */
#ifndef ATLAS_TOKENIZER_FORMAT_H
#define ATLAS_TOKENIZER_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define TOK_MAGIC "ATLTOKEN" /* eight bytes, no final zero */

enum { TOK_VERSION = 2, TOK_MAX_IDS = 1 << 24, TOK_MAX_BYTES = 1 << 30, TOK_MAX_STEPS = 64,
	TOK_MAX_STRING = 65535, TOK_MAX_PLACES = (1 << 24) - 1, TOK_MAX_DEPTH = 1024 };

typedef enum TokSection {
	TOK_SEC_STRINGS,       /* bytes: every string below is an offset and a length in here */
	TOK_SEC_TOKENS,        /* TokToken[n_ids], indexed by id */
	TOK_SEC_VOCAB_HASH,    /* uint32[power of two]: id + 1 at the slot of its key, 0 = empty */
	TOK_SEC_MERGES,        /* TokMerge[], index = rank */
	TOK_SEC_MERGE_HASH,    /* uint32[power of two]: rank + 1 at the slot of (left, right), 0 = empty */
	TOK_SEC_BYTE_IDS,      /* uint32[256]: id + 1 of the token of a byte (byte level: of a text
							* byte; else of "<0xNN>", for byte fallback), 0 = none */
	TOK_SEC_FIRST,         /* TokFirst[], ascending ids: texts at the very start of the output */
	TOK_SEC_ADDED,         /* TokAdded[] */
	TOK_SEC_RAW_NODES,     /* TokNode[]: tree of the added tokens matched in the text as given */
	TOK_SEC_RAW_EDGES,     /* uint32[]: byte << 24 | node, ascending within a node */
	TOK_SEC_NORMAL_NODES,  /* the same for those matched in normalised text */
	TOK_SEC_NORMAL_EDGES,
	TOK_SEC_STEPS,         /* TokStep[]: n_normalizers of the normaliser, then the pre-tokenizer's */
	TOK_SEC_CODE,          /* TokInstr[]: programs of the steps; the last instruction is a match */
	TOK_SEC_SETS,          /* TokSet[] */
	TOK_SEC_RANGES,        /* uint32[]: first, last code point (both inside) */
	TOK_SEC_CLASS_INDEX,   /* uint16[TOK_CHAR_BLOCKS]: block of code point >> 8 */
	TOK_SEC_CLASS_BLOCKS,  /* uint8[][256]: TokCategory | TOK_IS_ flags */
	TOK_SEC_NORM_INDEX,    /* the same two for normalisation: values index TOK_SEC_NORM_PROPS */
	TOK_SEC_NORM_BLOCKS,
	TOK_SEC_NORM_PROPS,    /* TokNormProps[] */
	TOK_SEC_DECOMPOSITIONS,/* TokDecomposition[], ascending points */
	TOK_SEC_POINTS,        /* uint32[]: code points of the decompositions */
	TOK_SEC_COMPOSITIONS,  /* TokComposition[], ascending (first, second) */
	TOK_SEC_PREFIX,        /* uint32[]: ids the template puts in front */
	TOK_SEC_SUFFIX,        /* uint32[]: ids the template appends */
	TOK_SEC_TREE,          /* uint32[]: places of the vocabulary's tree, in the order of a walk that goes down
							* first: byte that leads there << 24 | places from there on that are it and below it.
							* Its tokens are those that a text is made of, tok_is_in_tree, but for added ones.
							* Absent with TOK_DECODE_SPACED, and where there are more than TOK_MAX_PLACES */
	TOK_SEC_TREE_IDS,      /* uint32[]: of each place the least id of the tokens that end there + 1, 0 = none */
	TOK_SEC_TREE_SAME,     /* TokSame[]: pairs of tokens with the same text, each with the next one */
	TOK_SEC_COUNT
} TokSection;

typedef struct TokSpan {
	uint32_t offset; /* from the start of the header */
	uint32_t bytes;
} TokSpan;

enum { /* TokHeader.flags */
	TOK_BYTE_LEVEL = 1,    /* symbols are bytes; else code points */
	TOK_IGNORE_MERGES = 2, /* a piece that is a token is that token, whatever the merges say */
	TOK_BYTE_FALLBACK = 4, /* an unknown code point becomes its bytes, if all have tokens */
	TOK_FUSE_UNK = 8,      /* neighbouring unknown symbols are one unknown token */
	TOK_FLAGS = 15,
};

typedef enum TokDecode {
	TOK_DECODE_BYTES,    /* texts are bytes, joined */
	TOK_DECODE_FALLBACK, /* so, but a run of byte tokens is UTF-8 as a whole, or a U+FFFD each */
	TOK_DECODE_SPACED,   /* texts are joined with a space between */
	TOK_DECODE_COUNT
} TokDecode;

typedef struct TokHeader {
	char magic[8];
	uint32_t version;     /* TOK_VERSION */
	uint32_t total_bytes; /* of the whole section, <= TOK_MAX_BYTES */
	uint32_t n_ids;       /* largest id + 1, <= TOK_MAX_IDS */
	uint32_t flags;
	int32_t unk_id, bos_id, eos_id; /* -1 = none */
	uint32_t decode;        /* TokDecode */
	uint32_t strip_count;   /* most strip_point at the start of the output that are left out */
	uint32_t strip_point;   /* code point */
	uint32_t n_normalizers; /* how many steps, the first ones, work on a piece as a whole */
	uint32_t zero;
	TokSpan sections[TOK_SEC_COUNT];
} TokHeader;

enum { /* TokToken.flags */
	TOK_EXISTS = 1,  /* the id has a token; others are holes, which decode to nothing */
	TOK_SPECIAL = 2, /* left out when decoding skips special tokens */
	TOK_KEYED = 4,   /* key is in the hash table */
	TOK_BYTE = 8,    /* text is the one byte of a "<0xNN>" token (TOK_DECODE_FALLBACK) */
	TOK_FIRST = 16,  /* has another text at the start of the output: TOK_SEC_FIRST */
	TOK_TOKEN_FLAGS = 31,
};

typedef struct TokToken {
	uint32_t key, text; /* offsets of strings: what encoding looks up; what decoding gives */
	uint16_t key_bytes, text_bytes;
	uint32_t flags;
} TokToken;

typedef struct TokMerge {
	uint32_t left, right, result; /* ids */
} TokMerge;

typedef struct TokSame {
	uint32_t id, next; /* next > id */
} TokSame;

typedef struct TokFirst {
	uint32_t id, text, text_bytes;
} TokFirst;

enum { /* TokAdded.flags */
	TOK_ADDED_LSTRIP = 1,      /* white space in front belongs to the match */
	TOK_ADDED_RSTRIP = 2,      /* white space after it belongs to the match */
	TOK_ADDED_SINGLE_WORD = 4, /* no match next to a word character */
	TOK_ADDED_SPECIAL = 8,     /* no match when text may not name special tokens */
	TOK_ADDED_FLAGS = 15,
};

typedef struct TokAdded {
	uint32_t id, flags;
} TokAdded;

typedef struct TokNode {
	uint32_t edge, n_edges; /* edges [edge, edge + n_edges) lead to nodes of greater index */
	uint32_t accept;        /* index into TOK_SEC_ADDED + 1, 0 = no token ends here */
} TokNode;

typedef enum TokStepKind {
	TOK_STEP_NORMALIZE, /* to the form of the normalisation tables; flags: TokForm */
	TOK_STEP_REPLACE,   /* each match of `code` by the string */
	TOK_STEP_PREPEND,   /* the string before a piece that is not empty */
	TOK_STEP_SPLIT,     /* at the matches of `code`; flags: TokBehaviour, TOK_SPLIT_INVERT */
	TOK_STEP_SPACE,     /* U+0020 before a piece that does not start with one */
	TOK_STEP_METASPACE, /* spaces become the string; put before a piece by TokScheme in flags */
	TOK_STEP_COUNT
} TokStepKind;

typedef enum TokForm { TOK_NFC, TOK_NFD, TOK_NFKC, TOK_NFKD, TOK_FORM_COUNT } TokForm;

typedef enum TokBehaviour { /* what becomes of a match */
	TOK_ISOLATED,      /* a piece of its own */
	TOK_REMOVED,       /* nothing */
	TOK_WITH_PREVIOUS, /* the end of the piece before */
	TOK_WITH_NEXT,     /* the start of the next piece */
	TOK_CONTIGUOUS,    /* neighbouring matches are one piece */
	TOK_BEHAVIOUR_COUNT
} TokBehaviour;
enum { TOK_SPLIT_INVERT = 8 }; /* matches and gaps change places */

typedef enum TokScheme { /* pieces that do not start with the replacement and get it */
	TOK_PREPEND_ALWAYS,
	TOK_PREPEND_FIRST, /* only at the very start of the text */
	TOK_PREPEND_NEVER,
	TOK_SCHEME_COUNT
} TokScheme;

typedef struct TokStep {
	uint32_t kind, flags;
	uint32_t code;               /* first instruction, for REPLACE and SPLIT */
	uint32_t string, string_bytes; /* UTF-8 */
	uint32_t zero;
} TokStep;

/* Programs match like a backtracking regular expression: the first alternative that leads to a
 * match wins, loops take as much as they can and give back one by one. */
typedef enum TokOp {
	TOK_OP_MATCH,    /* done */
	TOK_OP_CHAR,     /* the code point a */
	TOK_OP_SET,      /* a code point of set a */
	TOK_OP_LOOP,     /* b to c code points of set a (c = UINT32_MAX: no limit), as many as possible */
	TOK_OP_POSSESS,  /* the same, never giving back */
	TOK_OP_SPLIT,    /* go on with the next instruction; if that fails, at a */
	TOK_OP_JUMP,     /* go on at a */
	TOK_OP_PEEK,     /* the next code point is of set a; takes nothing */
	TOK_OP_NOT_PEEK, /* it is not, or the piece ends */
	TOK_OP_LINE_END, /* the piece ends or U+000A is next */
	TOK_OP_COUNT
} TokOp;

typedef struct TokInstr {
	uint32_t op, a, b, c;
} TokInstr;

enum { /* TokSet.flags; a point is of the set if anything here says so, then TOK_SET_NOT turns it */
	TOK_SET_NOT = 1,
	TOK_SET_SPACE = 2,     /* White_Space */
	TOK_SET_NOT_SPACE = 4,
	TOK_SET_NUMERIC = 8,   /* TOK_IS_NUMERIC */
	TOK_SET_FLAGS = 15,
};

typedef struct TokSet {
	uint32_t categories; /* bit 1 << TokCategory */
	uint32_t flags;
	uint32_t range, n_ranges; /* pairs in TOK_SEC_RANGES: index of the first, count */
	uint32_t ascii[4]; /* the final answer for points below 128 */
} TokSet;

typedef enum TokCategory { /* Unicode's general category, in the order of unicode_tables.py */
	TOK_CN, TOK_LU, TOK_LL, TOK_LT, TOK_LM, TOK_LO, TOK_MN, TOK_MC, TOK_ME, TOK_ND, TOK_NL, TOK_NO,
	TOK_PC, TOK_PD, TOK_PS, TOK_PE, TOK_PI, TOK_PF, TOK_PO, TOK_SM, TOK_SC, TOK_SK, TOK_SO,
	TOK_ZS, TOK_ZL, TOK_ZP, TOK_CC, TOK_CF, TOK_CO, TOK_CS,
	TOK_CATEGORY_COUNT
} TokCategory;
enum { TOK_CATEGORY_MASK = 31, TOK_IS_SPACE = 32, TOK_IS_NUMERIC = 64, TOK_IS_WORD = 128 };
enum { TOK_CHAR_BLOCKS = 0x1100 };

enum { /* TokNormProps.flags */
	TOK_NORM_DECOMPOSES = 1, /* has a TokDecomposition */
	TOK_NORM_SECOND = 2,     /* may combine with what is before it */
};

typedef struct TokNormProps {
	uint8_t ccc, flags; /* canonical combining class */
} TokNormProps;

typedef struct TokDecomposition {
	uint32_t point, first, n; /* becomes n points of TOK_SEC_POINTS, fully decomposed */
} TokDecomposition;

typedef struct TokComposition {
	uint32_t first, second, composite;
} TokComposition;

static_assert(sizeof(TokHeader) == 56 + 8 * TOK_SEC_COUNT && sizeof(TokHeader) % 8 == 0, "header");
static_assert(sizeof(TokToken) == 16 && sizeof(TokMerge) == 12 && sizeof(TokStep) == 24, "layout");
static_assert(sizeof(TokInstr) == 16 && sizeof(TokSet) == 32, "layout");
static_assert(sizeof(TokNormProps) == 2, "layout");
static_assert((int)TOK_CATEGORY_COUNT <= (int)TOK_CATEGORY_MASK, "five bits");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "used in place: a little-endian host");

/* Of those that are not added. */
static inline int tok_is_in_tree(const TokToken *t)
{
	return t->flags & TOK_EXISTS && !(t->flags & TOK_SPECIAL) && t->text_bytes > 0 && t->text_bytes <= TOK_MAX_DEPTH;
}

/* The two hash functions. A slot is hash & (slots - 1); on collision the next slot, cyclically.
 * At least a quarter of the slots is empty. */
static inline uint32_t tok_hash_string(const void *bytes, size_t n)
{
	const unsigned char *p = bytes; /* FNV-1a, 64 bits, folded */
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return (uint32_t)(h ^ h >> 32);
}

static inline uint32_t tok_hash_pair(uint32_t left, uint32_t right)
{
	uint64_t x = (uint64_t)left << 32 | right;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return (uint32_t)(x ^ x >> 32);
}

#endif
