/* config_keys.h - what the keys of config.json are to a family, and what the checkpoint's file said of them.
 *
 * A family owns its keys: its file lists every one that its class in transformers reads, with what it means there when
 * config.json leaves it out; those that all have with one meaning are common_keys (read_family.c). Whatever is in no
 * such list is handled by foreign_keys.c: keys that change the arithmetic of other families are errors unless their
 * value changes nothing; unknown keys are a note.
 *
 * A null is what the class makes of it: the same as absent where its type allows None, an error where it does not.
 */
#ifndef ATLASC_CONFIG_KEYS_H
#define ATLASC_CONFIG_KEYS_H

#include "compiler/read/family.h"

/* Largest values a checkpoint may claim. Far beyond any model, and small enough that products of two fit
 * an int64 and every single one an int. */
enum { MAX_DIM = 1 << 20, MAX_VOCAB = 1 << 20, MAX_POSITION = 1 << 28, MAX_HEADS = 4096, MAX_EXPERTS = 1 << 14,
	MAX_ALSO = 2 /* switches that a key is besides */ };

/* Values that change nothing. Null passes always but in a key that a family reads. */
enum { FREE = 1, IS_FALSE = 2, IS_ZERO = 4, IS_ONE = 8, IS_EMPTY = 16, IS_TRUE = 32,
	IS_FULL = 64, /* a list of nothing but "full_attention" */
	IF_NO_WINDOW = 128, /* any, where no layer has a window */
	IS_FIFTY = 256 };   /* what older writers of config.json wrote for top_k */

typedef struct SpareKey { const char *name; int pass; } SpareKey; /* one that is there and not used */

typedef enum KeyRule {
	KEY_INT, KEY_REAL, KEY_BOOL, /* into a field of Config */
	KEY_ID,      /* a token id; `absent` is used where no file names any */
	KEY_ALIAS,   /* another name of the key `word`, which a file may have in its place */
	KEY_CODE,    /* read by a function of its own: read_config.c, read_rope.c, read_layer_kinds.c */
	KEY_MUST,    /* what the family always does: any other value is an error */
	KEY_IGNORED, /* its class does not read it: a note where the value is not of `pass` */
} KeyRule;

enum { SHARED = 1 /* may be next to text_config */, NEEDED = 2 /* has no default that could be trusted */,
	MAY_BE_NULL = 4 };

/* Which function reads a KEY_CODE that a family may call as it likes. */
typedef enum KeyReader { READER_NONE, READER_WINDOW, READER_HAS_WINDOW, READER_FIRST_WINDOW, READER_LAYER_TYPES,
	READER_INTERVAL, READER_EXPERTS, READER_EXPERTS_CHECK /* says the same */, READER_TAPS, READER_STATE_DTYPE,
	READER_DRAFT_LAYERS, READER_TIE, READER_THETA, READER_OWN_THETA, READER_FULL_INTERVAL, READER_ROPE_LAYERS,
	READER_MLP_TYPES, READER_LAYER_HEADS, READER_CODE,
	READER_ROPE_INTERVAL,
	/* lists and tables of layers: read_layer_lists.c */
	READER_SPARSE_LAYERS, READER_SPARSE_INTERVAL, READER_WINDOW_HEADS, READER_WINDOW_TABLE, READER_LAYER_TABLES,
	READER_ROTARY_PARTS, READER_GATE_LIMITS, READER_SHARED_LIMITS } KeyReader;

typedef struct ConfigKey {
	const char *name;
	KeyRule rule;
	KeyReader reader;
	int flags;
	size_t to, also[MAX_ALSO], at; /* in Config: of the value, of others that are equal, of its place; 0 = none */
	double lo, hi;      /* inclusive; of KEY_REAL lo < x */
	double absent;      /* the class's default; of KEY_INT 0 = derived from other keys */
	int pass;           /* of KEY_MUST and KEY_IGNORED */
	const char *word;   /* of KEY_MUST: the words that pass besides, "swish or silu"; NULL = none. Of KEY_ALIAS */
} ConfigKey;

/* What the file said, or the class's default where it says nothing; in the order of the family's list. */
typedef struct ConfigValue {
	const char *key;
	const char *text;  /* "128", "null", "[...]" */
	Loc at;            /* of the value; of the config where the key is absent */
	bool is_default;   /* the file does not have the key, or has a null for it */
	const char *from;  /* "hidden_size / num_attention_heads": what such a value is made of; NULL = the class's own */
} ConfigValue;

/* "head_dim = 64", "head_dim = 128, the default of qwen3", "head_dim = 64, hidden_size / num_attention_heads": for
 * messages, which never present a default as if a file had it. The key is one that the family reads. */
const char *config_said(Arena *a, const Config *cf, const char *key);
Loc config_place(const Config *cf, const char *key);

/* The family, each of whose keys has the name that this table calls it by: an alias where that alone is there. Records
 * A0205 where both are and say different things. */
const Family *family_as_written(Compile *c, const Family *family, const struct Value *text);

const ConfigKey *find_config_key(const Family *family, const char *name);
const ConfigKey *key_of_reader(const Family *family, KeyReader reader); /* NULL = it has none */
const ConfigKey *key_of_field(const Family *family, size_t to);   /* the one that is read into that field of Config */

/* Keys that are no family's own: what is printed about one (foreign_keys.c). */
typedef enum ForeignKind { KEY_UNKNOWN, KEY_OTHER_ARITHMETIC, KEY_NO_RESULT, KEY_GENERATION, KEY_WRAPPER } ForeignKind;
ForeignKind foreign_key(const char *name, int *pass, const char **word);
/* After errors of build_graph: where one value of config.json with another in its place explains them, that value's
 * line replaces them (blame_config.c); A0214. before: the state in which `build` was called. */
void blame_config(Compile *c, const Compile *before, void (*build)(Compile *c));
/* Any family's, or of foreign_keys.c. */
bool is_config_key(const Families *families, const char *name);
/* The key meant by one that does not exist, or NULL. */
const char *suggest_config_key(Arena *a, const Families *families, const char *seen);

#endif
