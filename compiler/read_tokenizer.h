/* read_tokenizer.h - tokenizer.json and tokenizer_config.json to the compiled tokenizer section. */
#ifndef ATLASC_READ_TOKENIZER_H
#define ATLASC_READ_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "compiler/base.h"

typedef struct TokenizerImage {
	void *bytes;    /* artifacts/tokenizer_format.h; arena memory */
	size_t n_bytes;
	int n_tokens;   /* largest id + 1: rows of the head from here on have no token */
	int bos_id, eos_id; /* of tokenizer_config.json; -1 = none */
} TokenizerImage;

/* Reads model_dir/tokenizer.json and, if there is one, model_dir/tokenizer_config.json.
 * `vocab_rows` is the number of rows of the embedding: every id must be below it.
 * On success `out` is filled, with memory of `a`. On failure at least one error is in `d`:
 * A0102 not readable, A0501 not JSON, A0502 a part this compiler does not implement,
 * A0503 the file contradicts itself or the model, A0504 a value of the wrong type. */
bool read_tokenizer(Arena *a, Diags *d, const char *model_dir, int vocab_rows,
	TokenizerImage *out);

#endif
