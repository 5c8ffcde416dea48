/* read_tokenizer.h - tokenizer.json and the files next to it to the compiled tokenizer section. */
#ifndef ATLASC_READ_TOKENIZER_H
#define ATLASC_READ_TOKENIZER_H

#include "compiler/base.h"
#include "compiler/chat/template.h"

struct Families; /* ir.h; of a model: which class of the library is whose. NULL = none */

#include <stdbool.h>
#include <stddef.h>

typedef struct TokenizerImage {
	void *bytes;    /* artifacts/tokenizer_format.h; arena memory */
	size_t n_bytes;
	int n_tokens;   /* largest id of a token that is a row of the vocabulary, + 1: rows from here on have no token */
	bool *has_token; /* [n_tokens] */
	int bos_id, eos_id; /* as AutoTokenizer has them; -1 = none. May be no row of the vocabulary */
	Loc eos_at;     /* the file that says so */
	const NamedText *special; int n_special; /* bos_token and its like, as chat templates know them */
} TokenizerImage;

/* Reads model_dir/tokenizer.json and, where they are there, tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json. `config_json`: path of config.json, whose model_type has a say in what a tokenizer class does;
 * NULL = none. `vocab_rows` is the number of rows of the embedding: every id of the vocabulary must be below it.
 * On success `out` is filled, with memory of `a`. On failure at least one error is in `d`:
 * A0102 not readable, A0501 not JSON, A0502 a part this compiler does not implement, A0503 the file contradicts itself
 * or the model, A0504 a value of the wrong type, A0507 a class and A0508 a key that are not implemented. */
bool read_tokenizer(Arena *a, Diags *d, const char *model_dir, const char *config_json, const struct Families *families,
	int vocab_rows, TokenizerImage *out);

#endif
