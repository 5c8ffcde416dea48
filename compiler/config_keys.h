/* config_keys.h - what the keys of config.json are to a family, and what the checkpoint's file said of them.
 *
 * A family owns its keys: models/<family>/facts.c lists every one that its class in transformers 5.17 reads, with what
 * it means there when the file leaves it out. Keys in no such list are handled by foreign_keys.c: keys that change
 * the arithmetic of other families are errors unless their value changes nothing; unknown keys are a note.
 *
 * A null is what the class makes of it: the same as absent where its type allows None, an error where it does not.
 */
#ifndef ATLASC_CONFIG_KEYS_H
#define ATLASC_CONFIG_KEYS_H

#include "compiler/family.h"

/* Largest values a checkpoint may claim. Far beyond any model, and small enough that products of two fit
 * an int64 and every single one an int. */
enum { MAX_DIM = 1 << 20, MAX_VOCAB = 1 << 20, MAX_POSITION = 1 << 28, MAX_HEADS = 4096, MAX_EXPERTS = 1 << 14 };

/* Values that change nothing. Null passes always but in a key that a family reads. */
enum { FREE = 1, IS_FALSE = 2, IS_ZERO = 4, IS_ONE = 8, IS_EMPTY = 16, IS_TRUE = 32,
	IS_FULL = 64, /* a list of nothing but "full_attention" */
	IF_NO_WINDOW = 128, /* any, where no layer has a window */
	IS_FIFTY = 256 };   /* what older writers of config.json wrote for top_k */

typedef struct SpareKey { const char *name; int pass; } SpareKey; /* one that is there and not used */

typedef enum KeyRule {
	KEY_INT, KEY_REAL, KEY_BOOL, /* into a field of Config */
	KEY_ID,      /* a token id; `absent` is used where no file names any */
	KEY_CODE,    /* read by a function of its own: read_config.c, read_rope.c, read_layer_kinds.c */
	KEY_MUST,    /* what the family always does: any other value is an error */
	KEY_IGNORED, /* its class does not read it: a note where the value is not of `pass` */
} KeyRule;

enum { SHARED = 1 /* may be next to text_config */, NEEDED = 2 /* has no default that could be trusted */,
	MAY_BE_NULL = 4, OTHER_NAME = 8 /* of a key that the class maps to it */ };

typedef struct ConfigKey {
	const char *name;
	KeyRule rule;
	int flags;
	size_t to, also, at; /* in Config: of the value, of the same once more, and of its place; 0 = is not kept */
	double lo, hi;      /* inclusive; of KEY_REAL lo < x */
	double absent;      /* the class's default; of KEY_INT 0 = derived from other keys */
	int pass;           /* of KEY_MUST and KEY_IGNORED */
	const char *word;   /* of KEY_MUST: the words that pass besides, "swish or silu"; NULL = none */
} ConfigKey;

#define KEY_FIELD(field) .to = offsetof(Config, field)
#define KEY_PLACE(field) .at = offsetof(Config, field)
#define INT_KEY(key, field, most, default, traits, ...) {.name = key, .rule = KEY_INT, .flags = traits, \
	KEY_FIELD(field), .lo = 1, .hi = most, .absent = default, __VA_ARGS__}
/* Sizes have no meaningful default: a file without them is incomplete. */
#define SIZE_KEY(key, field, most) {.name = key, .rule = KEY_INT, .flags = NEEDED, KEY_FIELD(field), .lo = 1, \
	.hi = most}
#define BOOL_KEY(key, field, default, ...) {.name = key, .rule = KEY_BOOL, KEY_FIELD(field), .absent = default, \
	__VA_ARGS__}
#define BIAS_KEY BOOL_KEY("attention_bias", each.qkv_bias, 0, .also = offsetof(Config, each.o_bias))
#define ID_KEY(key, default) {.name = key, .rule = KEY_ID, .flags = SHARED | MAY_BE_NULL, .absent = default}
#define CODE_KEY(key) {.name = key, .rule = KEY_CODE}
#define SHARED_KEY(key) {.name = key, .rule = KEY_CODE, .flags = SHARED}
#define MUST_KEY(key, values) {.name = key, .rule = KEY_MUST, .pass = values}
#define WORD_KEY(key, words) {.name = key, .rule = KEY_MUST, .word = words}
#define IGNORED_KEY(key, values) {.name = key, .rule = KEY_IGNORED, .pass = values}
/* Where a family has the key for something that it never does, or that changes no result. */
#define FREE_KEY(key) {.name = key, .rule = KEY_IGNORED, .pass = FREE}

/* What all families have with one meaning and one default. */
#define DECODER_KEYS \
	SHARED_KEY("architectures"), SHARED_KEY("auto_map"), SHARED_KEY("quantization_config"), \
	SHARED_KEY("tie_word_embeddings"), CODE_KEY("model_type"), CODE_KEY("text_config"), \
	CODE_KEY("rope_parameters"), CODE_KEY("rope_scaling"), CODE_KEY("rope_theta"), CODE_KEY("partial_rotary_factor"), \
	CODE_KEY("original_max_position_embeddings"), \
	INT_KEY("hidden_size", hidden_dim, MAX_DIM, 0, NEEDED, KEY_PLACE(at_hidden_dim)), \
	INT_KEY("num_hidden_layers", n_layers, PLAN_MAX_LAYERS, 0, NEEDED, KEY_PLACE(at_n_layers)), \
	SIZE_KEY("num_attention_heads", each.n_heads, MAX_HEADS), \
	INT_KEY("vocab_size", vocab, MAX_VOCAB, 0, NEEDED | SHARED, KEY_PLACE(at_vocab)), \
	INT_KEY("max_position_embeddings", max_position, MAX_POSITION, 0, NEEDED, KEY_PLACE(at_max_position)), \
	{.name = "rms_norm_eps", .rule = KEY_REAL, KEY_FIELD(norm_eps), .lo = 0, .hi = 1, .absent = 1e-6}, \
	WORD_KEY("hidden_act", "silu")
/* default 0: hidden_size / num_attention_heads */
#define HEAD_DIM_KEY(flags, default) INT_KEY("head_dim", each.head_dim, 4096, default, flags, KEY_PLACE(at_head_dim))
/* default 0, and a null: num_attention_heads */
#define KV_HEADS_KEY(may_be_null, default) {.name = "num_key_value_heads", .rule = KEY_INT, .flags = may_be_null, \
	KEY_FIELD(each.n_kv_heads), .lo = 1, .hi = MAX_HEADS, .absent = default}
#define DELTA_KEYS \
	SIZE_KEY("linear_num_key_heads", each.n_k_heads, MAX_HEADS), SIZE_KEY("linear_num_value_heads", each.n_v_heads, MAX_HEADS), \
	SIZE_KEY("linear_key_head_dim", each.k_dim, 4096), SIZE_KEY("linear_value_head_dim", each.v_dim, 4096), \
	CODE_KEY("linear_conv_kernel_dim"), CODE_KEY("full_attention_interval"), CODE_KEY("layer_types"), \
	CODE_KEY("mamba_ssm_dtype"), CODE_KEY("mtp_num_hidden_layers"), \
	MUST_KEY("mtp_use_dedicated_embeddings", IS_FALSE), MUST_KEY("attention_bias", IS_FALSE), \
	MUST_KEY("attn_output_gate", IS_TRUE), WORD_KEY("output_gate_type", "swish or silu"), \
	IGNORED_KEY("sliding_window", 0), IGNORED_KEY("use_sliding_window", IS_FALSE), /* these classes have no windows */ \
	IGNORED_KEY("max_window_layers", IF_NO_WINDOW)
#define EXPERT_KEYS \
	SIZE_KEY("num_experts_per_tok", each.n_active, MAX_EXPERTS), SIZE_KEY("moe_intermediate_size", each.ffn_dim, MAX_DIM), \
	CODE_KEY("num_experts"), FREE_KEY("output_router_logits"), FREE_KEY("router_aux_loss_coef")
#define LAST_KEY {0}

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

const ConfigKey *find_config_key(const Family *family, const char *name);

/* Keys that are no family's own: what is printed about one (foreign_keys.c). */
typedef enum ForeignKind { KEY_UNKNOWN, KEY_OTHER_ARITHMETIC, KEY_NO_RESULT, KEY_GENERATION, KEY_WRAPPER } ForeignKind;
ForeignKind foreign_key(const char *name, int *pass, const char **word);
/* After errors of build_graph: where one value of config.json with another in its place explains them, that value's
 * line replaces them (blame_config.c); A0214. before: the state in which `build` was called. */
void blame_config(Compile *c, const Compile *before, void (*build)(Compile *c));
/* Any family's, or of foreign_keys.c. */
bool is_config_key(const char *name);
/* The key meant by one that does not exist, or NULL. */
const char *suggest_config_key(Arena *a, const char *seen);

#endif
