/* option_table.h - the keys of MODEL.toml: their types, ranges and meanings. */
#ifndef ATLASC_OPTION_TABLE_H
#define ATLASC_OPTION_TABLE_H

#include "compiler/base.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum OptionType { T_INT, T_REAL, T_BOOL, T_WORD, T_BUCKETS, T_TOKENS, T_NAMES, T_FORMATS, T_CHOICE,
	T_RULES, T_COUNT, T_KEYS, T_SWITCH, T_PAIRS } OptionType; /* from T_FORMATS on, a family's file need not have it */

typedef struct OptionRow {
	const char *key;
	OptionType type;
	double lo, hi; /* inclusive; of T_REAL with `above` lo < x */
	bool above;
	const char *meaning;
} OptionRow;

enum { /* rows */
	FAMILY, SLOTS, MAX_CONTEXT, KV_DTYPE, KV_BF16_FIRST, KV_BF16_LAST, KV_ROTATE, KV_SCALES, KV_PAGE,
	KV_POOL_TOKENS, KV_ROLLING, CACHE_SNAPSHOTS, PREFILL_ROWS, PROMPT_GRID, DECODE_ROWS, TEMPERATURE, TOP_K, TOP_P,
	MIN_P, REPETITION_PENALTY, MAX_NEW_TOKENS, STOP, IGNORE, QUANT, FP4, FUSE, KV_LAYERS, PIN, BAN, SPECULATE_ROWS,
	SPECULATE_HEAD, SPECULATE_VOCABULARY, SPECULATE_VOCABULARY_FILE,
	SPECULATE_LADDER, SPECULATE_DRAFTER, SPECULATE_NGRAM, STATE_DTYPE, CONFIG, CARD, INVARIANT, FP8_ROWS,
	PARALLEL_RANKS, PARALLEL_EXPERTS, PARALLEL_NCCL,
	N_OPTIONS,
};

extern const OptionRow option_table[N_OPTIONS];

/* Is it the part of a key before a dot? */
bool is_option_section(const char *name);
/* The key meant by one that does not exist: one of the same last part, else one spelled alike. NULL = none. */
const char *suggest_option(Arena *a, const char *seen);
void print_option_page(FILE *f); /* every key as an item of a manual page */

#endif
