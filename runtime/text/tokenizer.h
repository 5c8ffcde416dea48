/* tokenizer.h - text to token ids and back, with a compiled tokenizer used where it lies.
 *
 *     Tok tok;
 *     if (tok_open(&tok, bytes, n_bytes, why, sizeof why)) ...refuse the plan, saying why...
 *     int n = tok_encode(&tok, text, text_bytes, true, true, ids, cap);
 *
 *     TokStream s;
 *     tok_stream_start(&s, &tok, true);
 *     for each new id { tok_stream_push(&s, id, &text, &n_bytes); write text }
 *     tok_stream_finish(&s, &text, &n_bytes);
 *     tok_stream_free(&s);
 *
 * The format is artifacts/tokenizer_format.h. A Tok owns nothing and is constant after tok_open:
 * any number of threads may use it. Functions that can fail return a negative TokError.
 */
#ifndef ATLAS_TOKENIZER_H
#define ATLAS_TOKENIZER_H

#include "artifacts/tokenizer_format.h"
#include "runtime/text/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum TokError {
	TOK_E_FORMAT = -1, /* not a compiled tokenizer, damaged, or of another version */
	TOK_E_MEMORY = -2, /* malloc failed */
	TOK_E_SIZE = -3,   /* the text, as given or as normalised, is over TOK_MAX_TEXT bytes */
	TOK_E_EFFORT = -4, /* a pattern of this tokenizer takes too long on this text */
} TokError;

enum { TOK_MAX_TEXT = 1 << 28 };

typedef struct TokList { /* a section: n elements at `at` */
	const void *at;
	uint32_t n;
} TokList;

/* All pointers lead into the caller's bytes. Fields are for runtime/text only. */
typedef struct Tok {
	const TokHeader *header;
	const unsigned char *strings;
	const TokToken *tokens;
	const uint32_t *vocab_hash, *merge_hash, *byte_ids;
	const TokMerge *merges;
	const TokFirst *firsts;
	const TokAdded *added;
	const TokNode *nodes[2]; /* [0] matched in the text as given, [1] in normalised text */
	const uint32_t *edges[2];
	const TokStep *steps;
	const TokInstr *code;
	const TokSet *sets;
	const uint32_t *ranges;
	const uint16_t *class_index, *norm_index;
	const uint8_t *class_blocks, *norm_blocks;
	const TokNormProps *props;
	const TokDecomposition *decompositions;
	const uint32_t *points;
	const TokComposition *compositions;
	const uint32_t *prefix, *suffix;
	const uint32_t *tree, *tree_ids;
	const TokSame *tree_same;
	uint32_t count[TOK_SEC_COUNT]; /* elements of each section */
} Tok;

/* Checks `bytes` (aligned to 8, they must outlive `t`) and fills `t`. Takes about a millisecond
 * per 100,000 tokens. Returns 0, or TOK_E_FORMAT with a sentence in `why` (why_bytes > 0). */
int tok_open(Tok *t, const void *bytes, size_t n_bytes, char *why, size_t why_bytes);

int tok_n_ids(const Tok *t); /* largest id + 1 */
int tok_n_vocab_ids(const Tok *t); /* largest id of a text piece + 1: only added tokens have larger ids */
int tok_n_tokens(const Tok *t, int below); /* ids < below that have a token */
int tok_bos(const Tok *t);   /* -1 = none */
int tok_eos(const Tok *t);   /* -1 = none */

/* Encodes text. Bytes that are not UTF-8 count as U+FFFD, one for each maximal part of a sequence.
 * `add_special`: ids that the template prepends and appends (BOS, EOS).
 * `parse_special`: "<|im_end|>" in the text is that token; false: it is just these characters.
 * Returns the number of ids; the first `cap` of them are stored in `ids` (NULL when cap is 0).
 * Time is n log n at worst. Allocates and frees scratch memory. Errors: MEMORY, SIZE, EFFORT. */
int tok_encode(const Tok *t, const char *text, size_t n_bytes, bool add_special, bool parse_special,
	int32_t *ids, int cap);

/* The same with special tokens inside spans alone: spans [n_spans] are ascending and apart, and "<|im_end|>" is that
 * token where all of its bytes are in one of them, else just these characters. The text is encoded as a whole. */
int tok_encode_spans(const Tok *t, const char *text, size_t n_bytes, bool add_special, const TextRange *spans,
	size_t n_spans, int32_t *ids, int cap);

/* What an id gives when decoded in the middle of a text: bytes, not always UTF-8. Returns false
 * if no token has this id. */
bool tok_token_bytes(const Tok *t, int32_t id, const char **bytes, size_t *n_bytes, bool *special);

/* Decoding, id by id. The texts returned hold whole code points and, put together, are the
 * same as decoding all ids at once. Ids without a token give nothing. */
typedef struct TokStream {
	const Tok *tok;
	bool skip_special;     /* leave out special tokens */
	bool started;          /* a token was taken */
	bool in_run;           /* `held` are bytes of byte tokens (TOK_DECODE_FALLBACK) */
	uint32_t strip_left;   /* code points that may still be left out at the start */
	unsigned char *held;   /* bytes that wait for others */
	size_t n_held, held_cap;
	unsigned char *out;    /* what was returned last */
	size_t n_out, out_cap;
} TokStream;

void tok_stream_start(TokStream *s, const Tok *t, bool skip_special);
/* On success 0; *text (zero-terminated, owned by the stream, until the next call) has *n_bytes
 * bytes, perhaps none. Error: MEMORY. */
int tok_stream_push(TokStream *s, int32_t id, const char **text, size_t *n_bytes);
/* The rest: an unfinished code point becomes U+FFFD. The stream may then only be freed. */
int tok_stream_finish(TokStream *s, const char **text, size_t *n_bytes);
void tok_stream_free(TokStream *s);

/* Decodes n ids at once into out[0, cap). Returns the length of the whole text in bytes, which may
 * be more than cap (then the first cap bytes are stored), or a negative TokError. */
int64_t tok_decode(const Tok *t, const int32_t *ids, size_t n, bool skip_special, char *out, size_t cap);

#endif
