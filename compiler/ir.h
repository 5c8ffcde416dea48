/* ir.h - all nouns of the compiler, in the order in which a model becomes bytes.
 *
 *   Model     what the files said, validated, every value with its place     read/, tokenizer/, chat/
 *   Graph     ops over typed tensors: what the model means                   graph/, models/, artifacts/plan.h
 *   Lowered   per phase: the ops of one step, fused, ready to be given kernels   lower/
 *   TargetPlan   launches, buffers, kernels of one GPU                       pick/, kernels/, plan/, artifacts/plan.h
 *   Artifact  bytes                                                          emit/, artifacts/plan_write.c
 *
 * Glossary (the same word from config to kernel; a synonym is a bug)
 *
 *   row        one token of one sequence in one step         slot      one sequence's state on the device
 *   out        a row whose logits are wanted                 page      PAGE tokens of K and V of one slot
 *   phase      prefill, decode, draft, verify, acquire, ...  bucket    (rows, outs) a phase is compiled for
 *   hidden_dim elements of the residual stream               head_dim  elements of one attention head
 *   n_heads    query heads                                   n_kv_heads  key/value heads
 *   ffn_dim    width of the MLP (intermediate_size)          vocab     rows of the embedding
 *   template   one NAME.cu of kernels/templates                contract  what its head declares
 *   tunable    a constant the compiler may choose            dim       a constant the operands decide
 *   predicate  REQUIRE of a contract: what is legal          kernel    a template with every constant decided
 *   preference  PREFER or PRUNE of a contract: what is       pruned    legal, and left out where another template or
 *              worthwhile                                              combination is preferred
 *   formula    of a contract: its code computes the same     order     on what the order of a row's sums depends:
 *              by the same text                                        equal orders, equal bits
 *   fragment   of a contract: what templates of a family     set       of phases that share their orders: those of
 *              have in common, a file they include                     prompts, those of answers
 *   launch     one kernel node of a graph                    slab      the one allocation of an arena
 *   candidate  a template considered for an op               ledger    all candidates with their verdicts
 *   target     a GPU architecture, "sm_90a"                  waiver    a line of MODEL.toml that permits something
 *   ring       results of a slot's last steps, which the     probe     the phase that only atlas bench and tune run:
 *              host watches                                            what the GPU does at best
 *   flight     decode steps that are on the device before    tuning    measured times of kernels, a file a card;
 *              the first one's token was seen                          what atlasc chooses by, what atlas tune writes
 *   module     "model.layers.0.mlp.up_proj": tensors with    product   x w^T; its weight is pieces of modules, in one
 *              that name and a dot before their own                    format
 *   piece      some rows of a module that follow each other  made product  whose bytes are made while compiling
 *   rule       a line of [quant] about modules; a pin or     stated    what the files say of a module (QuantTarget)
 *              a ban of [[kernels.*]] is a KernelRule
 *   code       an element of e4m3, e2m1 or u4; what it is    block scale  of block_n rows and block_k columns of
 *              worth times its scales is the value                     codes; those of one row are a group
 *   row scale  of all codes of one row                       early     read before the launches before have ended
 *   zero       what codes of u4 are worth less               draft head  the model's, rows of it or a copy in codes
 *   expert     one of an MLP's alternatives; a row goes      slot state   of a slot and not of a page, which acquire
 *              through the n_active likeliest                          sets to zero: Gated DeltaNet's
 *   draft      a token proposed for after a slot's last;     version    slot state after one row of a verify step;
 *              the phase in which a head makes them                     the slot's version is that of its last token
 *   turn       pairs of a head's elements by a position      rotate    q and k of a head, by the Hadamard matrix
 *   grid       of positions at which a prompt may be cut     cell      between two of them: read in one step
 *   verify     the phase that reads a slot's last token      accept     a draft is accepted where it is the token that
 *              and its drafts                                           the step draws in its place
 *   each       rows of a slot in a step of draft or          ladder     each by the slots of a step; a rung of it:
 *              verify: 3 in verify[4x3], of 4 slots                     up to that many slots, that many rows
 *   n-gram     some tokens in a row; a text's last one       mixed step  a step of phase prefill with a row for each
 *              that was there before gives drafts                       answer besides, whose next token it makes
 *   gap        between two tokens of an answer; max_gap:     chunk      the cells of prompts that one step reads
 *              rows that a step may read in it
 *
 * References between objects are indices into arrays of the level, never pointers.
 */
#ifndef ATLASC_IR_H
#define ATLASC_IR_H

#include "artifacts/expr.h"
#include "artifacts/plan.h"
#include "artifacts/tuning.h"
#include "compiler/base.h"

/* Model -------------------------------------------------------------------------------------
 *
 * Invariants (check_model): all dims positive and below 2^31; of each layer n_heads % n_kv_heads == 0; every tensor's
 * bytes = product of shape * dtype bytes and lie inside its file; names unique.
 */
typedef enum RopeKind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE,
	ROPE_PROPORTIONAL } RopeKind;

typedef struct Rope {
	RopeKind kind;
	double theta;
	double factor;                 /* linear, llama3, yarn, proportional; longrope: max_position / original_context
									  when absent */
	double low_freq, high_freq;    /* llama3 */
	double beta_fast, beta_slow;   /* yarn, 32 and 1 when absent */
	double mscale, mscale_all_dim; /* yarn, 0 = absent */
	double attention_factor;       /* yarn, longrope; 0 = absent: of factor, or of the mscales */
	const double *short_factor, *long_factor; /* longrope [rotary_dim / 2]: up to original_context tokens, beyond it */
	bool truncate;                 /* yarn: floor and ceil the correction range (default true) */
	int original_context;          /* llama3, yarn, longrope: original_max_position_embeddings */
	int rotary_dim;                /* leading elements of a head that it turns */
	int n_turned;                  /* proportional: the first pairs of these; the others have frequency 0 */
	Loc at;
} Rope;

enum { MAX_EOS = 16, MAX_BUCKETS = 16, MAX_ROPES = 4 };

typedef enum Mixer { MIXER_ATTENTION, MIXER_DELTA } Mixer; /* what mixes rows of a sequence; delta: Gated DeltaNet */
/* over each head; over all of q, of k; over each head that rope turns, without a weight */
typedef enum QkNorm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE, QK_NORM_TURNED } QkNorm;

typedef enum HeadGate { HEAD_GATE_NONE, HEAD_GATE_SIGMOID, HEAD_GATE_SOFTPLUS } HeadGate;
typedef enum Act { ACT_SILU, ACT_GELU_TANH, ACT_CLAMPED /* of experts */, ACT_RELU_SQUARED /* of no gate */ } Act;
typedef enum Router { ROUTER_SOFTMAX, ROUTER_SIGMOID } Router;

/* A layer is a mixer and an MLP, each of which is added to the residual stream. All sizes are in elements. */
typedef struct LayerSpec {
	Mixer mixer;
	/* of attention */
	int n_heads, n_kv_heads, head_dim;
	int rope;               /* index in Config.ropes; -1: positions turn nothing */
	bool neighbours;        /* rope turns pairs (2i, 2i + 1); else (i, i + rotary_dim / 2) */
	int window; bool chunked; /* tokens a row may look back at, itself included, 0 = all; of its own chunk alone */
	QkNorm qk_norm;         /* before rope */
	bool v_norm;            /* each head of v is normalised, without a weight */
	bool v_is_k;            /* v is what k_proj gives, before k's norm and rope */
	int kv_back;            /* layers back to the one whose keys and values it reads; 0 = it has its own */
	bool has_gate;          /* q_proj has, after the rows of each head, those of a gate of its output */
	bool qkv_bias, o_bias; double query_scale; /* q.k is over its root; 0 = head_dim's */
	bool sinks; HeadGate head_gate; /* a score a head besides those of positions; one number a head, of a module */
	/* of Gated DeltaNet */
	int n_k_heads, n_v_heads, k_dim, v_dim, n_taps; /* rows before its own that its convolution reads */
	/* norms of the stream: what mixer and MLP read, what they give, or both */
	bool pre_norm, post_norm;
	int ple_dim;            /* of its per-layer embedding, which is added last; 0 = there is none */
	bool norm_one;          /* norms multiply by 1 + w, but for the gated one of Gated DeltaNet */
	/* MLP, or experts in its place */
	int ffn_dim;            /* its width, or an expert's */
	bool mlp_bias;          /* of gate, up and down */
	int dense_dim;         /* width of an MLP that the layer has besides experts; 0 = there is none */
	int n_experts, n_active; /* 0 = an MLP; those that a row is given to */
	int shared_dim;         /* width of the expert that every row is given to as well; 0 = there is none */
	bool is_dense;          /* an MLP all the same, where the model has experts */
	bool is_listed_dense; int listed_heads; /* what lists of the config say of the layer; false, 0 = nothing */
	bool may_be_turned;     /* matrices of all experts in one tensor may be transposed */
	bool shared_gate;       /* that expert has a share of its own, by a sigmoid; else all of it is added */
	bool norm_topk, share_input; /* a row's shares add up to 1; its one expert reads the row times its share */
	Act act;                /* of gate */
	double gate_slope;      /* of ACT_CLAMPED */
	double gate_limit, shared_limit; /* GATE_LIMIT of experts, and of the MLP or of the expert for all rows; 0 = none */
	Router router;
	int n_groups, top_groups; /* of the router by sigmoids: ops.h */
	double share_eps, share_scale;
	/* filled by read-options */
	Dtype kv;               /* of its keys and values: bf16, e4m3 or e2m1 */
	bool rotate;            /* q and k; only where kv is codes */
} LayerSpec;

typedef struct Config { /* config.json (its text_config when there is one) and generation_config.json */
	const char *model_type; /* "llama", "qwen3_5_text" */
	const struct Family *family; /* of it; NULL = unknown */
	int hidden_dim, n_layers, vocab;
	int max_position;       /* tokens the model was trained for, yarn's factor put in */
	double norm_eps;
	bool scale_embeddings;  /* by the root of hidden_dim, in their own dtype */
	int n_dense, dense_dim; /* the first layers have an MLP of that width in place of experts */
	int n_after;           /* layers after the last, which draft and are not read: lists may go on for them */
	int n_shared;           /* experts for all rows, as wide as the others: together one; 0 = shared_dim says it */
	bool has_experts; int expert_dim; /* false: no layer has; their width where ffn_dim is of an MLP next to them */
	int full_head_dim, full_kv_heads; bool full_v_is_k; /* of layers without a window; 0: as in the others. The heads
														count where v is k */
	int n_kv_shared; bool is_double_wide; /* the last layers read keys and values of others; their MLPs are twice as
											wide */
	int ple_dim, ple_vocab; /* elements of a per-layer embedding, 0 = there are none; tokens that have some */
	bool scales_late; int scales_from; /* from that length on the class multiplies q, which no op does */
	double logit_cap;       /* logits become cap * tanh(logit / cap); 0 = they stay */
	bool has_qk_norm;       /* else the family's qk_norm is left out */
	bool tie_embeddings;
	Dtype dtype;            /* torch_dtype; read for --random-weights alone, where no tensor says it */
	LayerSpec each;         /* what holds for all layers: lay_layers makes them of it, and nothing else reads it */
	LayerSpec *layers;      /* [PLAN_MAX_LAYERS], those after n_layers by the same pattern; NULL = not laid yet */
	Rope ropes[MAX_ROPES]; int n_ropes;
	Dtype state_dtype;      /* mamba_ssm_dtype: f32, also when it is absent, or bf16 */
	int rotary_dim;         /* leading elements of a head that rope turns, where a key says so; 0 = none does */
	int n_mtp;              /* layers of the head that drafts the token after the next; 0 = none is promised */
	int bos;                /* -1 = none */
	int eos[MAX_EOS], n_eos; Loc at_eos[MAX_EOS]; /* union of the configs' and the tokenizer's; ascending */
	/* generation_config.json; do_sample false = temperature 0. -1 = the file does not say. Resolved: Options */
	double temperature, top_p, min_p, repetition_penalty;
	int top_k;              /* 0 = all */
	int max_new_tokens;
	Loc at_hidden_dim, at_n_layers, at_max_position, at_vocab, at_head_dim, at_tie, at_experts, at_state_dtype, at_mtp,
		at_bos;
	const struct ConfigValue *values; int n_values; /* of each key that is read: config_keys.h */
} Config;

typedef struct Shard { const char *name, *path; int64_t bytes; } Shard; /* base name; as opened */

typedef struct StTensor { /* a tensor as a safetensors header describes it */
	const char *name;
	Dtype dtype;           /* DT_COUNT when it is not supported */
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS];
	int shard;
	int64_t offset, bytes; /* from the shard's start */
	bool is_supported;      /* dtype is one of ours; else only dtype_text says what it is */
	const char *dtype_text; /* as the header spells it: "BF16", "F8_E4M3" */
	int used_by;           /* weights of the graph that read it; 0 after build-graph = an error */
} StTensor;

/* MODEL.toml, resolved over the family's own file. Every field has a default there, none here. */
typedef struct RuleTunable { const char *name; int value; } RuleTunable; /* of the rule's template, one it takes */

typedef struct KernelRule { /* [[kernels.pin]] or [[kernels.ban]] */
	bool is_pin;
	const char *template_name;
	const char *op;      /* NULL = any */
	const char *phase;   /* NULL = any */
	int layer_first, layer_last; /* inclusive; no `layers` key = -1..n_layers, all ops */
	const RuleTunable *tunables; int n_tunables; /* by name; those that are not named may have any value */
	Loc at;
	bool was_met;         /* filled by pick-kernels: there was an op that it is about */
} KernelRule;

typedef struct NamePattern { /* [weights] ignore */
	const char *text;  /* a tensor name, or a pattern with one '*' */
	Loc at;
	bool must_match;   /* written by the user: matching no tensor is a mistake */
} NamePattern;

/* How the weight of a product is stored: what its tensors show (products.c), and what [quant] may ask for. */
typedef enum WeightFormat { FORMAT_PLAIN, FORMAT_FP8_BLOCK, FORMAT_FP8_TENSOR, FORMAT_FP8_CHANNEL /* a scale a row */,
	FORMAT_NVFP4, FORMAT_NVFP4_OVER /* scale divides */, FORMAT_MXFP4, FORMAT_INT4, FORMAT_COUNT } WeightFormat;

typedef struct QuantPattern { /* names modules; quant_matches */
	const char *text;    /* as written: "lm_head", "model.layers.0*", "re:.*gate$" */
	const char *regex;   /* of "re:", as a POSIX extended one; NULL = names and stars */
	Loc at;
} QuantPattern;

typedef struct QuantRule { /* a line of [quant] */
	QuantPattern modules;
	WeightFormat format; /* FORMAT_PLAIN: stays as the checkpoint has it, or, is_bf16, is decoded to bf16 */
	bool is_bf16;
	bool was_met, decides; /* filled by build-graph: a product is named, and by no earlier line */
	int n_decoded; const char *decoded; /* likewise: products that were decoded, the first of them */
	int n_in_parts; const char *in_parts; /* likewise: modules that it names, read as parts of products; the first */
} QuantRule;

typedef struct Options {
	int slots;             /* [runtime] slots */
	int max_context;       /* [runtime] max_context, tokens a slot */
	int page;              /* [kv] page, tokens; power of two */
	Dtype state;           /* [state] dtype, else the checkpoint's: what delta_rule keeps, f32 or bf16 */
	const char *kv_scales; /* [kv] scales: path of a file, NULL = what the checkpoint has */
	int pool_tokens;       /* [kv] pool_tokens: tokens of KV in all pages; 0 = slots * max_context */
	bool rolling;          /* [kv] rolling: caches of windows may have pages of slots (artifacts/rolling.h) */
	int snapshots;         /* [cache] snapshots, of models with recurrent states or such caches */
	int prefill[MAX_BUCKETS], n_prefill, prompt_grid; /* [phases] prefill rows, ascending; grid (Graph) */
	int decode[MAX_BUCKETS], n_decode;   /* [phases] decode rows, ascending; the last >= slots */
	int verify_rows;       /* [speculate] rows: of a slot in a verify step, or the ladder's most; 1: there are none;
							  0: the family has no drafting head */
	Rung ladder[MAX_BUCKETS]; int n_ladder; /* [speculate] ladder, up to all slots; without one, verify_rows for all */
	int ngram_min, ngram_max; /* [speculate] drafter = "ngram", ngram: tokens; 0 = the drafting head is used */
	const char *asks_head; /* what of the user's file asks for one, "speculate.rows = 3"; NULL = nothing does */
	/* [speculate] head, vocabulary, vocabulary_file: by what drafts are scored, if not by the model's own head */
	WeightFormat draft_format; /* FORMAT_PLAIN: as that head is */
	int n_draft_ids;       /* 0 = all ids; with a file, filled by build-graph */
	const char *draft_ids_file; /* path, NULL = the first n_draft_ids ids */
	const int32_t *draft_ids; /* of that file, ascending; filled by build-graph */
	/* [sampling]: overrides generation_config when present */
	double temperature, top_p, min_p, repetition_penalty;
	int top_k, max_new_tokens;
	int stop[MAX_EOS], n_stop; /* [sampling] stop: token ids besides eos */
	VEC(KernelRule) rules;
	VEC(NamePattern) ignore_tensors; /* [weights] ignore: no op must consume these */
	bool native_fp4, no_fusion, is_invariant; /* [kernels] fp4 = "native", fuse = false; [numerics] invariant */
	int n_ranks, nccl_above; bool cuts_experts; /* [parallel] ranks, 1 to PLAN_MAX_RANKS; -1 = never; experts = "cut" */
	int fp8_rows;          /* [numerics] fp8_rows: of decode and verify, from which on rows are e4m3; 0 = never */
	VEC(QuantRule) quant;  /* [quant]: modules to quantise now; the first that names a module decides */
	const char *text;      /* the user's MODEL.toml as the plan records it; "" = there is none */
	VEC(Option) resolved;  /* every option by dotted name, for the plan; sorted by name */
	Loc at_max_context, at_snapshots, at_kv, at_kv_scales, at_asks_head, at_draft_format, at_draft_ids, at_stop;
	Loc at_invariant, at_ranks;
} Options;

/* What the files say about quantised weights (read_quant.c). A module's tensors decide; this gives the size of FP8
 * blocks, and what the tensors are compared with. */
typedef struct QuantTarget {
	QuantPattern modules;
	WeightFormat format; /* as the files say; FORMAT_PLAIN = they do not */
	int block_n, block_k; /* of FP8 in blocks; block_k of INT4 too, 0 = a row's; else 0 */
	bool has_zeros, has_index; /* of INT4: zeros are not all 8; columns may be out of order */
	bool is_class, was_met; /* "Linear", all products; of Quant.layers: a product has that name */
} QuantTarget;

typedef struct Quant {
	const char *name;      /* of the format: "fp8", "NVFP4", "compressed-tensors", "awq"; NULL = no file names one */
	bool is_less_one;      /* of GPTQ: the file has zeros as one less than they are */
	bool has_head;         /* of AWQ and GPTQ: the head is quantised too */
	VEC(QuantTarget) targets, layers; /* quantised where no `ignore` says otherwise; by their own names, sorted */
	VEC(QuantPattern) ignore;
	const char *kv; Loc at_kv; /* "kv_cache_quant_algo = ...": what is said of keys and values, NULL = nothing */
	Loc at;
} Quant;

typedef struct Model {
	const char *dir;
	Config config;
	Quant quant;
	Options options;
	VEC(Shard) shards;
	VEC(StTensor) tensors;  /* sorted by name */
	VEC(StTensor) kv_scales; /* of the file that kv.scales names */
	const void *tokenizer; size_t tokenizer_bytes; /* compiled; NULL when the checkpoint has none */
	int n_tokens; const bool *has_token; /* [n_tokens], NULL = all. Ids below are drawn; = vocab when no tokenizer */
	const char *chat_template; void *chat_program; size_t chat_program_bytes; /* NULL = none; artifacts/chat_format.h */
	const struct Value *toml; /* the user's MODEL.toml; NULL = there is none, or it cannot be read */
} Model;

/* Contracts: build/gen/kernel_table.c, written by kernelgen ------------------------------------ */

enum { MAX_FIELDS = 18, MAX_MAPS = 3, MAX_TUNABLES = 8, MAX_TUNE_VALUES = 8, MAX_REQUIRES = 24, MAX_ARCHS = 8,
	MAX_CONSTS = 24, MAX_DTYPES = 5, MAX_ORDERS = 4 };

typedef struct ContractField {
	const char *name;   /* operand of the op */
	OperandRole role;   /* IN, INOUT, OUT; IN_OPT when `flag` is set */
	const char *flag;   /* constant that is 1 when the operand is there, 0 when absent; else NULL */
	const char *dtype;  /* "bf16" or a dtype variable, "WT" */
	const char *shape;  /* "ROWS, K" in the template's dims */
	int offset;         /* bytes in the argument struct */
	const char *file; int line; /* where it is: in the template, or in a fragment that this includes */
	bool early;         /* EARLY names it: the code reads it before inputs_ready */
} ContractField;

typedef struct ContractMap { /* TENSOR_MAP: a CUtensorMap of an operand that is always there */
	const char *name;    /* of the field */
	int field;           /* index of the operand's own field */
	const char *box[2];  /* formulas: rows and columns of a tile */
	int offset;
	const char *file; int line;
} ContractMap;

typedef struct ContractTunable { const char *name; int n_values; int values[MAX_TUNE_VALUES]; } ContractTunable;
typedef struct ContractDtype { const char *var; int n; Dtype allowed[DT_COUNT]; } ContractDtype;
typedef struct ContractRequire {
	const char *text, *file;
	int line;
	bool is_preference, is_pruning; /* PREFER or PRUNE; the second alone */
} ContractRequire;

typedef struct KernelTemplate {
	const char *name;   /* = file name without .cu = symbol */
	const char *file;   /* "kernels/templates/products/gemv_norm.cu" */
	int line;           /* of KERNEL(...) */
	OpKind op;
	const char *archs[MAX_ARCHS]; int n_archs; /* "80": sm_80 and later; "90a": sm_90a alone */
	const char *numerics;
	const char *matrix; /* "mma", "wgmma" or "wgmma_fp8": the instruction that decides the rate of the cost model */
	bool overlaps;      /* its code calls inputs_ready (types.cuh): on sm_90 and later it may start while its
						   predecessors finish, and until that call touches nothing but weights, inputs of the host
						   and fields that are early */
	const char *dims[MAX_CONSTS]; int n_dims;   /* bound from operand shapes */
	const char *attrs[MAX_CONSTS]; int n_attrs; /* taken from the op */
	ContractDtype dtypes[MAX_DTYPES]; int n_dtypes;
	ContractTunable tunables[MAX_TUNABLES]; int n_tunables;
	ContractRequire requires[MAX_REQUIRES]; int n_requires; /* and preferences */
	ContractTerm orders[MAX_ORDERS]; int n_orders; /* at least one: artifacts/order.h; as a plan has them */
	const char *grid[3], *block, *smem, *reads, *writes, *flops; /* formulas */
	const char *pieces; /* formula: equal pieces of work that the blocks take in turns; 0 = a block is one */
	const char *rate;   /* formula: percent of the matrix rate that a full card reaches */
	ContractField fields[MAX_FIELDS]; int n_fields;
	ContractMap maps[MAX_MAPS]; int n_maps;
	int param_bytes;
	const char *const *sources; int n_sources; /* indices by name into template_sources: itself, then includes */
	uint8_t source_sha256[32], code_sha256[32]; /* of all of them, without comments; of what the kernel reaches there */
} KernelTemplate;

typedef struct TemplateSource { const char *name; const char *text; } TemplateSource; /* "gemv.cuh" */

extern const KernelTemplate kernel_table[];
extern const int n_kernel_table;
extern const TemplateSource template_sources[];
extern const int n_template_sources;
extern const char libclang_version[]; /* that read them */

typedef struct Families { struct Family *at; int n; } Families; /* family.h */

/* Facts of families, embedded by the build: name "llama", text; "defaults": options of MODEL.toml that all share. */
extern const TemplateSource family_toml[];
extern const int n_family_toml;

/* The measured times of kernels/tuning/, embedded by the build: name "sm_90a.h100", text. */
extern const TemplateSource tuning_toml[];
extern const int n_tuning_toml;

/* Lowered: one phase and bucket as a list of ops that each become one launch --------------------
 *
 * Invariants (check_lowered): every operand of an op is a tensor of `tensors` with a shape of positive dims,
 * except dims that the producer's tunables decide (0 until picked); each is written before it is read.
 */
typedef struct LTensor {
	const char *name;
	Dtype dtype; Role role;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS];
	int tensor;      /* graph tensor, or -1 for an intermediate of a fused op */
	int weight, n_weights; /* ROLE_WEIGHT: first weight and how many joined ones replace it */
	bool is_peer;    /* of role STATE: what ranks show each other */
} LTensor;

typedef struct LOp {
	OpKind kind;
	int layer;
	int operands[PLAN_MAX_OPERANDS]; /* LTensor index, -1 = absent */
	Attrs attrs;
	int produces_layer; /* layer whose output this op completes, or -1 */
	const char *note, *alone; /* of a refusal; why a fusion that would have covered it did not apply; or NULL */
	/* filled by pick-kernels */
	int pick;           /* index in Lowered.picks */
} LOp;

/* A template with every constant decided, for one op. */
typedef struct Pick {
	int template_index, values[MAX_TUNABLES]; /* of its tunables */
	const char *defines; /* sorted "K=576 ROWS=1 ..." without dtype of target */
	int grid[3], block[3], smem_bytes;
	int box[MAX_MAPS][2]; /* of the template's tensor maps */
	int64_t read_bytes, write_bytes, flops, pieces, rate;
	int kernel;          /* index in TargetPlan.kernels, filled by make-kernels */
	int slot;            /* index in the ledger */
	int chosen;          /* the winner among that slot's candidates */
} Pick;

/* --candidates: a kernel that `atlas tune` shall time, with one op that it was considered for. */
typedef struct Trial {
	Pick pick;           /* kernel: index in TargetWork.candidates.kernels, -1 = it breaks a limit of the target */
	OpKind op;
	int layer;
	PhaseKind phase;
	int rows, outs, each;
	LTensor operands[PLAN_MAX_OPERANDS]; /* with the dims that this candidate decides; n_dims 0 = absent */
} Trial;

typedef struct Lowered {
	PhaseKind kind;
	int rows, outs, each; /* as of Phase */
	VEC(LTensor) tensors;
	VEC(LOp) ops;
	VEC(Pick) picks;
} Lowered;

/* What the compiler knows of a GPU: inputs of checks and of the cost model. */
typedef struct Target {
	const char *name;        /* "sm_90a" */
	int cc_major, cc_minor;
	bool is_exact;           /* "...a": cubins run on this capability only */
	int n_sms, smem_block_bytes /* largest dynamic + static, opt-in */, registers_sm, threads_sm;
	/* typical card of the kind, for ranking only; TFLOP/s of bf16 with its best instruction, and with mma.sync */
	double read_gbps, best_tflops, mma_tflops, launch_us;
	const char *card;        /* the typical card, in the word that files of kernels/tuning/ have for it: "h100" */
	const char *ran_on;      /* cards that plans for it have run on, "H100, H200"; NULL = compiled, never run */
} Target;
extern const Target target_table[];
extern const int n_target_table;
const Target *target_by_name(const char *name);
const char *target_ran(const Target *t); /* ran_on, or that it never ran */
/* Does one of the contract's archs cover this target? "80" covers sm_80 and later, "90a" only sm_90a. */
bool template_serves(const KernelTemplate *k, const Target *t);
bool multiplies_fp4(const Target *t); /* rows of e2m1 by weights of e2m1 */

typedef struct TargetWork { /* everything made for one target */
	const Target *target;
	VEC(Lowered) phases;
	VEC(Slot) ledger;
	TargetPlan plan;
	VEC(Trial) trials;     /* --candidates: each kernel once */
	TargetPlan candidates; /* the same for the plan */
} TargetWork;

/* The times that pick-kernels goes by for one target. */
typedef struct TargetTuning {
	const char *file, *sha256; /* hash of its text, hexadecimal */
	Tuning times;   /* in the compile's arena */
	bool *was_told; /* [n_kernel_table] that they are of another version of a template */
	bool *has_others; /* [n_kernel_table] with other tunables than the template has now */
} TargetTuning;

typedef struct Module { /* as the checkpoint holds it: modules.c */
	const char *name;   /* "lm_head" */
	int64_t rows, cols;
	int experts;        /* of whose matrices it is one tensor; 0 = it is one matrix */
	bool is_turned;     /* which are transposed there */
	WeightFormat format;
	StTensor *codes;
	StTensor *scale;    /* of blocks, or of rows */
	StTensor *second;   /* one value: for the tensor, or the second level */
	int block_n, block_k;
	int made;           /* index in Compile.made, -1 = it is stored so */
} Module;

typedef struct Misfit { const StTensor *t; int n_dims; int64_t want[PLAN_MAX_DIMS]; } Misfit; /* its shape is another */
typedef struct Constant { int weight; const void *bytes; } Constant; /* index in Graph.weights */

/* A product's weight that is made while it is written: codes and scales of `source`, as [quant] asks, or rows of it as
 * they are, or its columns (requant.c); INT4 as other tools lay it out (int4.c); or random codes and scales
 * (made_weights.c). */
typedef struct MadeProduct {
	WeightFormat format;          /* FORMAT_PLAIN: rows as they are, in `codes` */
	int64_t rows, cols;
	int block_n, block_k;         /* of the block scales; 0 = there are none */
	int codes, scale, row_scale;  /* indices in Graph.weights, -1 = absent */
	Weight source;                /* BF16, F16, F32 [rows, cols], or INT4; file NULL = --random-weights */
	int turned;                   /* matrices [cols, rows / turned] of the source; 0 = it has none that is transposed */
	const int32_t *ids;           /* [rows]: which rows of the source these are; NULL = the first ones */
	int layout; Weight scales, zeros; bool has_zeros, is_less_one; /* of INT4: int4.h */
	struct DecodedPiece *pieces; int n_pieces; /* decoded to bf16, of these: decode.h; 0 = it is not */
} MadeProduct;

/* Compile: the context, first argument of every pass ---------------------------------------------- */

typedef struct CommandLine {
	const char *model_dir, *output, *model_toml, *family, *cache_dir; /* NULL = not given */
	const char *targets[8]; int n_targets;
	bool embed_weights, dry_run, json, quiet, verbose, timings;
	bool list, machine_code; /* of `atlasc explain`: all codes; of `atlasc times`: hashes of what NVRTC makes */
	const char *help_as, *color; /* "man", "bash", ..., NULL = text; "always", "never", NULL or "auto" */
	bool estimate;          /* end after plan_memory, without kernels, and print the items of memory */
	int64_t memory_budget;  /* most bytes on a device; 0 = any number */
	int jobs;
	const char *dump;       /* letters of passes after which to print */
	const char *stop_after; /* pass name */
	const char *tuning;     /* file of measured times, or "none"; NULL = the embedded ones */
	const char *cards;      /* of the embedded times, with commas; NULL = target.card, or the typical ones */
	int context, slots;     /* before runtime.max_context and runtime.slots of MODEL.toml; 0 = as that says */
	int candidates; bool pruned; /* kernels of each template that the plan carries for each op, for atlas tune; as
								many that contracts do not prefer */
	bool random_weights;    /* no weights are read: those that the family asks for are made up */
	uint64_t seed; bool has_seed; /* of them; it was given */
	const char *text;       /* of calibrate: caches are kept in bf16, whatever MODEL.toml says; else NULL */
	const char *config_file; /* the config.json that was named itself; NULL = the folder's */
	bool hash_files;        /* SHA-256 of the weights' files into the plan */
	const char *sign[8]; int n_sign; /* files of private keys that sign the plan */
} CommandLine;

typedef struct Compile {
	Arena arena;   /* lives as long as the compile */
	Arena scratch; /* released after each pass */
	Diags diags;
	CommandLine cmd;
	Families families;
	Model model;
	VEC(TargetTuning) tunings;
	Graph graph, whole; Ranks ranks; /* n 0: one rank. Else graph is ranks_view of whole, from cut_ranks to emit */
	int graph_cap[3];      /* room in the graph's tensors, ops and weights */
	VEC(Constant) constants; /* values of the weights made here */
	VEC(int) slot_states;  /* tensors [slots, n] that acquire sets to zero */
	int layer_phases;      /* PHASE_ bits of the ops that are built now and name none themselves */
	VEC(Misfit) misfits;   /* tensors whose shape config.json contradicts */
	VEC(const struct Product *) products; /* one asked for again, by its name, is the same */
	VEC(Module) modules;   /* of which they are pieces */
	VEC(MadeProduct) made; /* those of them whose weights are made here */
	bool is_input_scale_told; /* that scales of activations are not used */
	struct { int n_unscaled, n_shared, n_plain; const char *unscaled, *shared, *plain; } kv_told; /* layers without
		scales of keys and values, scales that serve both, those of keys not rotated yet, and the first of each */
	VEC(TargetWork) work; /* one a target */
	VEC(uint8_t) cubins; const char *nvrtc; /* version of what made them; NULL = not asked yet */
	void (*progress)(struct Compile *c, const char *what, int64_t done, int64_t total); /* may be NULL */
} Compile;

/* Passes, in the order of the table in main.c ------------------------------------------------------- */

void read_config(Compile *c);    /* config.json, generation_config.json -> Model.config */
void read_options(Compile *c);   /* MODEL.toml -> Model.options */
void read_weights(Compile *c);   /* index, safetensors headers -> Model.shards, tensors */
void read_text(Compile *c);      /* tokenizer, chat template -> Model.tokenizer ... */
void build_graph(Compile *c), cut_ranks(Compile *c); /* Config.layers, tensors -> Graph; -> that of each rank */
void fuse(Compile *c);           /* Graph -> Lowered per target, phase and bucket */
void pick_kernels(Compile *c);   /* -> Pick, ledger */
void make_kernels(Compile *c);   /* NVRTC -> Kernel, cubins */
void plan_memory(Compile *c);    /* -> Phase.bufs with offsets, arenas */
void schedule(Compile *c);       /* -> Phase.launches with their edges */
void emit(Compile *c);           /* -> plan.bin */
Origin *list_origins(Compile *c, int *n); /* provenance.c: what this plan is made of, and with */
void check_keys(Compile *c);     /* can emit sign with the keys that are named? */

/* contracts.c: those of every template that implements an op of a ledger, in the order of the table. */
Contract *list_contracts(Compile *c, int *n);
double model_cost(const Target *t, const Pick *k), collective_cost(int ranks, int64_t bytes, int shots); /* us */
/* schedule.c: the launch of a pick; bufs [operands of the op] are buffers of its phase, -1 = absent. No edges. */
Launch launch_of(Compile *c, const Target *target, OpKind op, const Pick *pick, const int *bufs);
void lay_out_trials(Compile *c, TargetWork *work); /* candidates.c: TargetWork.trials -> candidates */
void record_tools(Compile *c);   /* make_kernels.c: tool versions and flags -> Options.resolved */

/* Printers and checkers, one a level. A checker reports by bug(): what it finds is our mistake, except check_model. */
void check_model(Compile *c);
void check_graph(Compile *c), check_cut_graph(Compile *c);
void check_lowered(Compile *c);
void check_plan(Compile *c);
void print_model(Compile *c, void *file);
const char *rule_tunables(Arena *a, const KernelRule *r); /* kernel_rules.c: "STAGES=2 WARPS=8", or "" */
void print_option_table(void *file); /* every key of MODEL.toml with type, range and meaning */
/* The bytes of a checkpoint tensor. False after having recorded that they cannot be read. */
bool read_tensor(Compile *c, const StTensor *t, void *dst);
Loc loc_of(const Compile *c, const StTensor *t), weight_loc(const Compile *c, const Weight *in_file); /* the shard */
/* Same dtype, shape and bytes on disk. False as well after having recorded that a file cannot be read. */
bool same_contents(Compile *c, const StTensor *a, const StTensor *b);
bool name_matches(const char *pattern, const char *name); /* at most one '*' in pattern */
void print_graph(Compile *c, void *file);
void print_lowered(Compile *c, void *file);
void print_plan(Compile *c, void *file);

#endif
