/* encoder.h - what the parts of encoding share: growing scratch memory and pieces of text.
 *
 * An Encoder lives for one tok_encode. Its first failure stays in `error`; functions that meet
 * it return quickly and what they return is then not looked at.
 */
#ifndef ATLAS_ENCODER_H
#define ATLAS_ENCODER_H

#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

#include <string.h>

typedef struct Bytes {
	unsigned char *at;
	size_t n, cap;
} Bytes;

typedef struct Piece { /* of the text at Encoder.base */
	uint32_t at, n; /* bytes */
} Piece;

typedef struct Pieces {
	Piece *at;
	size_t n, cap;
} Pieces;

typedef struct Frame { /* where matching goes on when it fails: see program.c */
	uint32_t pc, at, low;
} Frame;

typedef struct Symbol { /* of a word during byte-pair encoding: see bpe.c */
	uint32_t id, rank;
	uint32_t prev, next;
} Symbol;

typedef struct Encoder {
	const Tok *tok;
	bool parse_special;
	bool by_spans;       /* special tokens are where spans[tree] say, in the text that is matched */
	int error; /* TokError, 0 so far */

	TextRange *spans[2]; /* [n_spans] of the text as given, and as normalised */
	size_t n_spans[2], spans_cap[2];

	Bytes valid;         /* the text, if it had to be made UTF-8 */
	const unsigned char *whole; /* the text, valid */
	Bytes normal[2];     /* normaliser steps write from one into the other */
	Bytes spaced[2];     /* so do pre-tokenizer steps that change text */
	Pieces pieces[2];
	const unsigned char *base; /* of the pieces */
	bool at_start;       /* pieces[0] begins where the text begins */
	uint32_t *points;    /* one segment being normalised: code point | class << 24 */
	uint32_t *sorted;
	size_t points_cap, sorted_cap;
	Frame *frames;
	size_t frames_cap;
	int64_t fuel;        /* instructions that programs may still take */
	Symbol *symbols;
	size_t symbols_cap;
	uint64_t *heap;
	size_t heap_n, heap_cap;

	int32_t *ids;        /* the caller's */
	size_t n_ids, cap;   /* ids so far, also those that did not fit */
} Encoder;

/* Makes room for n elements; false (and error set) if that is impossible. */
bool encoder_reserve(Encoder *e, void **at, size_t *cap, size_t n, size_t elem_bytes);
#define RESERVE(e, at, cap, n) encoder_reserve((e), (void **)&(at), &(cap), (n), sizeof *(at))

void bytes_put(Encoder *e, Bytes *b, const void *from, size_t n);

static inline void encoder_put_id(Encoder *e, uint32_t id)
{
	if (e->n_ids < e->cap)
		e->ids[e->n_ids] = (int32_t)id;
	e->n_ids++;
}

static inline uint8_t tok_class(const Tok *t, uint32_t cp)
{
	return t->class_blocks[(uint32_t)t->class_index[cp >> 8] * 256 + (cp & 255)];
}

/* program.c: finds the first match of a program at or after `from` in text[0, n), as
 * [*start, *end), not empty. False if there is none. */
bool program_find(Encoder *e, uint32_t code, const unsigned char *text, size_t n, size_t from,
	size_t *start, size_t *end);

/* normalize.c: appends the normal form of text[0, n) to `out`. */
void normalize(Encoder *e, const unsigned char *text, size_t n, Bytes *out);
/* The first place at or after `at` on both sides of which the normal form is that of each side. */
size_t normal_border(const Tok *t, const unsigned char *text, size_t n, size_t at);

/* pretokenize.c: all normaliser steps on a text (returns where the result is and sets *n, and
 * clears e->at_start if the beginning is gone; prepends: also those that put something in front); all
 * pre-tokenizer steps on a piece, whose result is e->base and *pieces. */
const unsigned char *run_normalizers(Encoder *e, const unsigned char *text, size_t *n, bool prepends);
const Pieces *run_pre_tokenizers(Encoder *e, const unsigned char *text, size_t n);

/* bpe.c: ids of one piece. */
void encode_word(Encoder *e, const unsigned char *text, size_t n);

#endif
