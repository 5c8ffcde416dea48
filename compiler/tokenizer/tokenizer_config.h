/* tokenizer_config.h - what the small files next to tokenizer.json say: tokenizer_config.json, special_tokens_map.json
 * and added_tokens.json (read_tokenizer_config.c), and what a tokenizer class does with it all (tokenizer_class.c).
 */
#ifndef ATLASC_TOKENIZER_CONFIG_H
#define ATLASC_TOKENIZER_CONFIG_H

#include "compiler/text/value.h"
#include "compiler/tokenizer/tokenizer_json.h"

struct Families;

/* A class of the library that builds normalizer, pre_tokenizer, decoder and the flags of the model itself, and takes
 * from tokenizer.json vocabulary, merges and post_processor only. */
typedef struct TokenizerClass {
	const char *name;
	const char *unk, *bos, *eos, *pad, *mask; /* special tokens where the config has no such key; NULL = none */
	bool readds;     /* every special token is added once more in the end, without flags */
	bool keeps_pad;  /* pad_token is the constructor's, padding of tokenizer.json names none */
	/* JSON of the parts, made of the config: {"normalizer": .., "pre_tokenizer": .., "decoder": .., "model": {..}},
	 * and "post_processor" if that is of the class, too. NULL after having recorded an error. */
	const char *(*parts)(Arena *a, Diags *d, const Value *config);
} TokenizerClass;

typedef struct DeclaredToken {
	Str content;
	uint32_t flags;    /* TOK_ADDED_ */
	bool normalized;
	bool has_normalized; /* the file says so; else it is what `special` is not, also when that changes later */
	bool is_plain;     /* a string, not an object */
	bool is_late;      /* becomes a token only after added_tokens.json was read: such a name marks no token there */
	int64_t id;        /* that the file says, -1 = none; only orders the tokens */
	Loc at;
} DeclaredToken;

typedef struct NamedToken {
	const char *key;
	int order, value_order; /* precedence of their sources, NAMED_STANDARD .. */
	bool is_given, is_set;  /* the key is there; it is not null */
	DeclaredToken token;
} NamedToken;
enum { NAMED_STANDARD, NAMED_OBJECT, NAMED_STRING };
enum { NAMED_BOS, NAMED_EOS, NAMED_UNK, NAMED_SEP, NAMED_PAD, NAMED_CLS, NAMED_MASK, NAMED_COUNT };

typedef struct TokenizerConfig {
	const char *file;             /* tokenizer_config.json, as the user would name it */
	const Value *top;             /* of it; NULL = there is none, or it has a mistake */
	const TokenizerClass *class;  /* NULL = tokenizer.json is taken unchanged */
	bool has_decoder;             /* added_tokens_decoder is there: the two old files are not read */
	VEC(DeclaredToken) decoder;   /* added_tokens_decoder or added_tokens.json, in the order of the file */
	VEC(NamedToken) named;        /* the seven in the order above, then those of other names */
	VEC(DeclaredToken) extra;     /* extra_special_tokens, a list */
} TokenizerConfig;

/* Fills `t` from the files of model_dir; config_json: path of config.json, which names the class where
 * tokenizer_config.json does not, NULL = none. False after having recorded an error: A0102, A0501, A0504, A0507, A0508.
 * Unknown keys are named in a note, A0509. */
bool read_tokenizer_config(Arena *a, Diags *d, const char *model_dir, const char *config_json,
	const struct Families *families, TokenizerConfig *t);

bool is_tokenizer_class(const char *name); /* is it one of those that are implemented? */
/* The class that the library takes, in *out, NULL = tokenizer.json unchanged. False after A0507. config: the tree of
 * config.json or NULL. */
bool find_tokenizer_class(Diags *d, const struct Families *families, const Value *config,
	const Value *tokenizer_config, const TokenizerClass **out);
/* Puts the class's parts into the tree of tokenizer.json. A note, A0510, names what differs. A class that cannot be
 * meant becomes NULL. */
bool apply_tokenizer_class(Reader *r, TokenizerConfig *t, json_t *root);

/* The effective added tokens into Reader.spec: those of `root` (tokenizer.json), then what `t` declares. Every id below
 * `rows`, or reported by a note (A0511). */
bool add_tokens(Reader *r, const TokenizerConfig *t, json_t *root, int rows);
/* Most tokens that add_tokens can add. */
int most_added(const TokenizerConfig *t, const json_t *root);

#endif
