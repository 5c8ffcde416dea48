/* family.h - what a family is: facts that its class in transformers has and config.json does not say.
 *
 * They are read from one file a family, models/NAME.toml, all of which are embedded, or from the file of --family
 * (read_family.c). docs/families.md describes it.
 */
#ifndef ATLASC_FAMILY_H
#define ATLASC_FAMILY_H

#include "compiler/ir.h"

/* Names of tensors: ROLE(constant, key of [family.tensors], usual name or NULL). The first two are after the prefix,
 * those from MIXER_NORM on after that of the layer, those from DRAFT_FC on after the prefix of the drafting head. */
#define TENSOR_ROLES(ROLE) \
	ROLE(EMBEDDING, "embedding", "embed_tokens") ROLE(FINAL_NORM, "norm", "norm") ROLE(HEAD, "head", "lm_head") \
	ROLE(LAYERS, "layers", "layers") \
	ROLE(PLE_TABLE, "ple_table", NULL) ROLE(PLE_PROJECTION, "ple_projection", NULL) \
	ROLE(PLE_PROJECTION_NORM, "ple_projection_norm", NULL) \
	ROLE(MIXER_NORM, "mixer_norm", "input_layernorm") ROLE(MIXER_POST_NORM, "mixer_post_norm", NULL) \
	ROLE(MLP_NORM, "mlp_norm", "post_attention_layernorm") ROLE(MLP_POST_NORM, "mlp_post_norm", NULL) \
	ROLE(ATTENTION, "attention", "self_attn") \
	ROLE(QKV, "qkv", NULL) ROLE(GATE_UP, "gate_up", NULL) /* rows of one module, in place of the three, of the two */ \
	ROLE(Q, "q", "self_attn.q_proj") ROLE(K, "k", "self_attn.k_proj") ROLE(V, "v", "self_attn.v_proj") \
	ROLE(O, "o", "self_attn.o_proj") ROLE(HEAD_GATE, "head_gate", NULL) ROLE(Q_NORM, "q_norm", "self_attn.q_norm") \
	ROLE(K_NORM, "k_norm", "self_attn.k_norm") ROLE(SINKS, "sinks", "self_attn.sinks") /* the tensor */ \
	ROLE(LAYER_SCALE, "layer_scale", NULL) /* the tensor: what the layer's output is multiplied by */ \
	ROLE(GATE, "gate", "mlp.gate_proj") ROLE(UP, "up", "mlp.up_proj") ROLE(DOWN, "down", "mlp.down_proj") \
	ROLE(ROUTER, "router", "mlp.gate") ROLE(ROUTER_BIAS, "router_bias", NULL) /* the tensor */ \
	ROLE(ROUTER_SCALE, "router_scale", NULL) ROLE(SHARE_SCALE, "share_scale", NULL) /* tensors */ \
	ROLE(EXPERTS, "experts", "mlp.experts") \
	ROLE(EXPERTS_NORM, "experts_norm", NULL) ROLE(EXPERTS_POST_NORM, "experts_post_norm", NULL) \
	ROLE(DENSE_POST_NORM, "dense_post_norm", NULL) /* of the MLP next to experts */ \
	ROLE(EXPERT_GATE, "expert_gate", "gate_proj") ROLE(EXPERT_UP, "expert_up", "up_proj") \
	ROLE(EXPERT_DOWN, "expert_down", "down_proj") ROLE(EXPERTS_GATE_UP, "experts_gate_up", "gate_up_proj") \
	ROLE(EXPERTS_DOWN, "experts_down", "down_proj") \
	ROLE(EXPERTS_GATE, "experts_gate", NULL) ROLE(EXPERTS_UP, "experts_up", NULL) /* in place of the one of both */ \
	ROLE(SHARED_GATE, "shared_gate", "mlp.shared_expert.gate_proj") \
	ROLE(SHARED_UP, "shared_up", "mlp.shared_expert.up_proj") \
	ROLE(SHARED_DOWN, "shared_down", "mlp.shared_expert.down_proj") \
	ROLE(SHARED_SHARE, "shared_share", "mlp.shared_expert_gate") \
	ROLE(PLE_GATE, "ple_gate", NULL) ROLE(PLE_OUT, "ple_out", NULL) ROLE(PLE_NORM, "ple_norm", NULL) \
	ROLE(DELTA_QKV, "delta_qkv", "linear_attn.in_proj_qkv") ROLE(DELTA_Z, "delta_z", "linear_attn.in_proj_z") \
	ROLE(DELTA_B, "delta_b", "linear_attn.in_proj_b") ROLE(DELTA_A, "delta_a", "linear_attn.in_proj_a") \
	ROLE(DELTA_QKVZ, "delta_qkvz", NULL) ROLE(DELTA_BA, "delta_ba", NULL) /* rows by key head, in place of the four */ \
	ROLE(DELTA_CONV, "delta_conv", "linear_attn.conv1d") ROLE(DELTA_A_LOG, "delta_a_log", "linear_attn.A_log") \
	ROLE(DELTA_DT_BIAS, "delta_dt_bias", "linear_attn.dt_bias") ROLE(DELTA_NORM, "delta_norm", "linear_attn.norm") \
	ROLE(DELTA_OUT, "delta_out", "linear_attn.out_proj") \
	ROLE(DRAFT_FC, "draft_fc", "fc") ROLE(DRAFT_EMBEDDING_NORM, "draft_embedding_norm", "pre_fc_norm_embedding") \
	ROLE(DRAFT_HIDDEN_NORM, "draft_hidden_norm", "pre_fc_norm_hidden") ROLE(DRAFT_NORM, "draft_norm", "norm")

typedef enum TensorRole {
#define ROLE(constant, key, usual) NAME_##constant,
	TENSOR_ROLES(ROLE)
#undef ROLE
	N_NAMES
} TensorRole;

enum { MAX_TYPES = 4, MAX_PREFIXES = 4, MAX_WORDS = 4 };

/* What a word of layer_types means. Positions turn by the first table, by one of its own, which files must state or
 * need not, or by none; or by none only where there are windows. */
typedef enum WordRope { WORD_ROPE_FIRST, WORD_ROPE_OWN, WORD_ROPE_STATED, WORD_ROPE_NONE, WORD_ROPE_NONE_NEXT_TO_WINDOWS
} WordRope;
typedef struct LayerWord { const char *word; Mixer mixer; bool is_windowed, is_chunked; WordRope rope;
} LayerWord;

typedef struct Family {
	const char *name;
	const char *model_types[MAX_TYPES + 1], *architectures[MAX_TYPES + 1]; /* of config.json; ended by NULL */
	const struct ConfigKey *keys; /* of config.json: config_keys.h; the last has no name */
	LayerSpec layer;              /* what its layers have whatever the keys say */
	LayerWord words[MAX_WORDS]; int n_words;
	double rotary_part;           /* of a head that rope turns where config.json does not say; 0 = always all of it */
	bool scale_embeddings;        /* Config's */
	bool is_last_full;            /* the last layer has no window, whatever config.json says */
	bool is_rope_stated;          /* a config without rope parameters is refused: the class has others than usual */
	bool is_shared_as_wide;       /* the expert for all rows, as the others */
	bool has_mrope;               /* rope parameters of images may be there */
	const char *prefixes[MAX_PREFIXES + 1]; /* of tensor names, "model": the first whose embedding is there */
	const char *draft_prefix;     /* of its drafting head; NULL = it has none */
	const char *names[N_NAMES];   /* NULL = it has no such tensor */
	const char *tokenizer;        /* class of the library for it; "" = tokenizer.json unchanged; NULL = it has none */
	bool is_tokenizer_final;      /* that class, whatever the checkpoint names */
	const char *file, *input;     /* as messages call its file, "models/llama.toml"; as the plan does */
	const char *text; size_t n_text; /* of the file */
	const struct Value *facts;    /* the same, parsed */
	bool is_users;                /* the file is that of --family */
} Family;

/* Compile.families: those that are embedded, and before them that of --family. Once. Records A0102, A0104, A0106,
 * A0216, A0301. */
void load_families(Compile *c);
const Family *family_by_model_type(const Families *families, const char *model_type);
bool has_delta(const Family *f);   /* it may have layers of Gated DeltaNet */
bool has_experts(const Family *f);
bool has_own_rope(const LayerWord *word); /* a table of its own */
bool has_draft(const Family *f);   /* its checkpoints may have a drafting head */
/* "a, b and c": the names of those of which it is true. */
const char *families_text(Arena *a, const Families *families, bool is(const Family *f));

/* Config.layers, of Config.each; what differs by layer (mixer, window, chunked, kv, rotate) stays where it is. */
void lay_layers(Compile *c);
/* Of a layer that shares keys and values: how far back those are, 0 = there are none. */
int layers_back(const Config *cf, int l);
/* What layer l of the graph is; those after the last are the drafting head's. */
LayerSpec layer_spec(const Config *cf, int l);

#endif
