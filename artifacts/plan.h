/* plan.h - plan.bin: the format's specification, and its nouns for both sides.
 *
 * A plan holds what a model means (graph section) and how one or several GPUs do it (a plan section each; without
 * any, only the reference device runs it). The compiler fills these structs and writes them; the runtime reads and
 * checks them. Pointers are symbolic, (arena, offset); the file is relocatable and holds no time stamp, host name or
 * absolute path.
 *
 * FILE (little-endian)
 *
 *   offset 0    magic "ATLASPLN"
 *          8    u32 format version (PLAN_VERSION; any other is refused with both numbers)
 *         12    u32 manifest length in bytes
 *         16    32 bytes root hash (artifacts/tree.h), over bytes 0..15 and the manifest
 *         48    manifest, MessagePack (below), then zeros up to the first section
 *   sections    each starts at a multiple of 4096, in manifest order, without overlap; gaps are zero
 *   signatures  at the next multiple of 4096: any number of {32 bytes Ed25519 public key, 64 bytes signature}, keys
 *               ascending, then u32 their number, u32 0, "ATLASSIG", which end the file. What is signed is the root
 *               hash, in the domain "plan" (artifacts/sign.h). Without any, the other bytes are the same
 *
 *   The manifest is a map: "sections" = array of {"name", "offset", "bytes", "hash"}.
 *   As every section's hash is in the manifest, the root hash seals the file up to the signatures, and each of
 *   those must hold for its own key. So no byte can change unnoticed.
 *
 * SECTIONS
 *
 *   options      map: every resolved option of MODEL.toml and of the command line, by dotted name; and what else made
 *                the plan: input.* (MODEL.toml as it was, but for the folder of its file of scales), tool.*, tuning.*;
 *                and target.TARGET.ran_on: cards that plans for it had run on by then, or PLAN_NEVER_RAN
 *   graph        Graph (MessagePack)
 *   ranks        Ranks (MessagePack); absent where one rank runs the graph
 *   plan.TARGET  TargetPlan (MessagePack), one for each target, e.g. plan.sm_90a
 *   audit.TARGET Decision ledger of that target: array of Slot (MessagePack)
 *   contracts    Contracts of all templates that implement an op of a ledger: array of Contract (MessagePack)
 *   provenance   what the plan was made of, and with: array of Origin
 *   candidates.TARGET  what `atlas tune` times, where asked for: a TargetPlan whose kernels are admissible ones of the
 *                ledger, whose phase i launches kernel i alone, and whose arenas hold one phase's buffers (named as
 *                the operands) at a time: weights, state, and in scratch the rest. Sessions do not look at it
 *   cubins       the cubins (ELF files, artifacts/cubin.c), each at a multiple of 16; Kernel.cubin_offset points here.
 *                Equal ones are stored once. What a Kernel says of its cubin is compared with the cubin
 *   weights      embedded weights: Weight.offset is an offset in this section and in the device's weight
 *                arena alike, and its length is weight_arena_bytes. With `--weights ref` it is shorter and holds
 *                only the weights the compiler made (rope frequencies, stop tokens: Weight.file is NULL), which
 *                come first in the arena: Weight.offset holds alike. The others are read from the checkpoint's
 *                files, or are random and made when a session opens (Weight.made): such bytes follow from the weight's
 *                name, shape and dtype, its `made` and `made_cols`, and option weights.random_seed alone
 *                (artifacts/random_weights.h), so no hash is of them: it is 32 zeros, and they have no leaves
 *   leaves       hashes of the leaves of all weights, in order of Graph.weights and there of bytes, so that weights
 *                can be checked piece by piece and by many threads, wherever their bytes are
 *   tokenizer    compiled tokenizer (artifacts/tokenizer_format.h), absent when the checkpoint has none
 *   chat_template  UTF-8 text, absent when the checkpoint has none
 *   chat_program  that template compiled, or why it could not be (artifacts/chat_format.h); absent without a template
 *                and in plans of compilers before it
 *
 * MessagePack is written in one canonical form: maps have the keys of the struct's fields in the order
 * of declaration (artifacts/schema.h is that form as data), integers are minimal, strings are UTF-8, depth <= 16.
 * The reader's validator (msgpack_check.c) bounds everything by the bytes present before anything is unpacked.
 * Unknown sections whose name starts with "x-" are ignored, other unknown ones are refused.
 *
 * Ownership: all pointers of a parsed Artifact point into its one arena or into the mapped file.
 */
#ifndef ATLAS_PLAN_H
#define ATLAS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PLAN_VERSION = 18,
	PLAN_ALIGN = 4096,       /* of sections, bytes */
	PLAN_BUF_ALIGN = 256,    /* of buffers and weights inside an arena, bytes */
	PLAN_MAX_DIMS = 5,
	PLAN_MAX_OPERANDS = 18,  /* of one op */
	PLAN_MAX_PARAM_BYTES = 512, /* of one kernel's argument struct */
	PLAN_TENSOR_MAP_BYTES = 128, /* of one CUtensorMap in it, at a multiple of 64 */
	PLAN_MAX_SIGNATURES = 16,
	PLAN_MAX_LAYERS = 1024,
	PLAN_MAX_SLOTS = 1024,
	PLAN_MAX_SNAPSHOTS = 4096,
	PLAN_MAX_VERIFY = 4,     /* rows of a slot in a verify step */
	PLAN_MAX_NGRAM = 8,      /* tokens of an n-gram by which the host drafts */
	PLAN_DELTA_CELL = 64,    /* rows that delta_rule solves together, from a segment's first one on (ops.h) */
	PLAN_RING_ENTRIES = 64, PLAN_RING_WORDS = 4, /* of a slot's results (ops.h, ring); of one entry */
	PLAN_IN_PROMPT = 1 << 30, /* in counts (ops.h): the token is in the prompt */
	PLAN_RULES = 384, PLAN_RULE_WORDS = 4, /* of a slot (ops.h, rules); of one rule */
};
#define PLAN_MAGIC "ATLASPLN"
#define PLAN_END "ATLASSIG"
#define PLAN_DOMAIN "plan" /* of signatures */
#define PLAN_NEVER_RAN "compiled, never run"

/* Tables ---------------------------------------------------------------------------------- */

typedef enum Dtype {
#define DTYPE(name, bits, st, tol) DT_##name,
#include "artifacts/dtypes.h"
#undef DTYPE
	DT_COUNT
} Dtype;
const char *dtype_name(Dtype d);
int dtype_bytes(Dtype d);                 /* of one element; 0 where that is less than one */
int64_t dtype_count(Dtype d, int64_t bytes); /* elements in `bytes` bytes */
int64_t dtype_span(Dtype d, int64_t n);   /* bytes of n elements in a row: 4-bit ones in pairs, n is even */
double dtype_tolerance(Dtype d);
bool dtype_from_name(const char *name, Dtype *out);        /* "bf16" */
bool dtype_from_safetensors(const char *name, Dtype *out); /* "BF16" */

typedef int OpKind; /* OP_linear, ...: artifacts/op_table.h */

typedef enum OperandRole {
	OPERAND_IN, OPERAND_IN_OPT, OPERAND_INOUT, OPERAND_INOUT_OPT, OPERAND_OUT, OPERAND_ROLES
} OperandRole;
const char *operand_role_name(OperandRole r); /* "in?" */
static inline bool operand_is_written(OperandRole r) { return r >= OPERAND_INOUT; }
static inline bool operand_may_be_absent(OperandRole r) { return r == OPERAND_IN_OPT || r == OPERAND_INOUT_OPT; }

typedef struct Attrs { /* fields the op does not list are 0 */
#define ATTR(NAME, field, type, meaning) type field;
#include "artifacts/attrs.h"
#undef ATTR
} Attrs;
/* Value of an attribute by its upper-case name; false when there is none of that name. */
bool attr_value(const Attrs *a, const char *name, double *value, bool *is_float);

/* Graph: what the model means ---------------------------------------------------------------
 *
 * Invariants: a tensor of role ACTIVATION is written by exactly one op of each phase that reads it, before
 * the reads; WEIGHT is never written; STATE lives as long as the slot; INPUT is written by the host
 * before a step, OUTPUT read by it as the device writes it. Ops are in execution order. Operands of an op are
 * tensor indices in the order of its row in ops.h; an absent optional operand is -1.
 */
enum { DIM_ROWS = -1, DIM_OUTS = -2 }; /* dims that vary with the phase's bucket */

typedef enum Role { ROLE_WEIGHT, ROLE_STATE, ROLE_ACTIVATION, ROLE_INPUT, ROLE_OUTPUT, ROLE_COUNT } Role;
const char *role_name(Role r);

typedef struct Tensor {
	const char *name; /* unique: "l3.q", "kv.3", "row_token", "model.layers.3.mlp.up_proj.weight" */
	Dtype dtype;
	Role role;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS]; /* elements; DIM_ROWS or DIM_OUTS where they vary */
	int weight;                   /* index in Graph.weights for ROLE_WEIGHT, else -1 */
	int n_weights;                /* that many from it on, one after the other, are its bytes; 0 without any */
} Tensor;

enum { PHASE_PREFILL = 1, PHASE_DECODE = 2, PHASE_ACQUIRE = 4, PHASE_DRAFT = 8, PHASE_VERIFY = 16,
	PHASE_ALL = 31 }; /* bits of GraphOp.phases */

typedef struct GraphOp {
	OpKind kind;
	int layer;  /* 0-based; -1 = before the first layer, n_layers = after the last */
	int phases; /* PHASE_ bits: the phases in which it runs */
	int operands[PLAN_MAX_OPERANDS];
	Attrs attrs;
} GraphOp;

/* What a weight of random bytes is part of; MADE_NO: its bytes are stored somewhere. */
typedef enum MadeAs {
	MADE_NO,
	MADE_NUMBERS,      /* bf16, f16 or f32, nearly normal */
	MADE_CODES,        /* of a quantised product: e4m3, e2m1 or u4 */
	MADE_E4M3_SCALES,  /* f32, of codes of e4m3: by blocks or rows, each another one */
	MADE_E4M3_SCALE,   /* f32, all the same */
	MADE_E2M1_SCALES,  /* e4m3 or e8m0, of codes of e2m1 by blocks */
	MADE_E2M1_SCALE,   /* f32, all the same, with the former in e4m3 */
	MADE_U4_SCALES,    /* f32z, of codes of u4 by groups */
	MADE_COUNT
} MadeAs;
const char *made_name(MadeAs m); /* "e4m3_scales" */

/* A weight: where its bytes lie on disk and on the device. */
typedef struct Weight {
	const char *name;   /* of the checkpoint tensor; "atlas.inv_freq" and the like for made ones */
	Dtype dtype;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS];
	int64_t bytes;
	int64_t offset;      /* in the weight arena, multiple of PLAN_BUF_ALIGN, except where joined to the
							one before (several weights that are read as one, or make one tensor) */
	const char *file;    /* base name of the checkpoint file it comes from; NULL = made by the compiler, or at open */
	int64_t file_offset; /* bytes from that file's start */
	MadeAs made;          /* not MADE_NO: when a session opens */
	int64_t made_cols;   /* elements of a row of the product, of scales (but e4m3 ones of codes of e2m1); else 0 */
	uint8_t hash[32];    /* top of the leaves of its bytes (artifacts/tree.h); of one made at open 0 */
} Weight;

/* Tensors that a graph has under these names, if at all, with these types: the host and the state of slots. An operand
 * of an op that has such a name is this tensor. Dims: DIM_ROWS, DIM_OUTS, DIM_SLOTS, DIM_MAX_PAGES, DIM_VOCAB,
 * DIM_DRAFTS, DIM_MASK. */
enum { DIM_SLOTS = -3, DIM_MAX_PAGES = -4, DIM_VOCAB = -5, DIM_DRAFTS = -6 /* verify_rows - 1 */, DIM_MASK = -7 };
typedef struct FrameTensor { const char *name; Role role; Dtype dtype; int n_dims; int64_t shape[3]; } FrameTensor;
extern const FrameTensor frame_table[];
extern const int n_frame_table;

/* A step of at most `slots` slots reads `rows` of each: its last token and the drafts. */
typedef struct Rung { int slots, rows; } Rung;

typedef struct Graph {
	const char *family; /* "llama" */
	int n_layers, vocab, hidden_dim;
	int slots, max_context, page, pages; /* sequences, tokens a slot, tokens a page, pages in the pool */
	int max_pages;                       /* entries of a slot's page table: ceil(positions / page); positions are
											max_context, and verify_rows - 1 more where there are drafts */
	int verify_rows;                     /* most rows of a slot in a verify step; 0 = nothing is drafted */
	Rung *ladder; int n_ladder;          /* how many it is: that of the first rung which holds a step's slots. Slots
											ascend up to all, rows descend from verify_rows; 1: nothing is drafted, but
											versions and the head's keys go on. Empty where verify_rows is 0 */
	int ngram_min, ngram_max;            /* 1 to PLAN_MAX_NGRAM: the host drafts, by n-grams of these lengths, and
											slot_draft is an input; a step may read one row of each slot, whatever
											the ladder says. 0: a head drafts, in phase DRAFT */
	int prompt_grid;                     /* a prompt is cut at positions that are multiples of it, and nowhere else, so
											that no cut depends on load. What lies between two is a cell, which is read
											in one step. A multiple of PLAN_DELTA_CELL where prompts run delta_rule,
											unless it is at least max_context: no prompt is cut then */
	int snapshots;                       /* of the states that zero_slots clears when a slot is acquired, and of its
											windows (rolling.h), all of a slot each: the host keeps them after parts of
											prompts, in memory that is no tensor's. 0 where there is neither */
	Tensor *tensors; int n_tensors;
	GraphOp *ops; int n_ops;
	Weight *weights; int n_weights;
	int64_t weight_arena_bytes;
	int *stop_tokens; int n_stop_tokens;
	int bos_token; /* -1 = none */
	/* sampling defaults of generation_config.json and MODEL.toml */
	float temperature, top_p, min_p, repetition_penalty;
	int top_k, max_new_tokens;
} Graph;

/* Ranks: one graph for several GPUs -----------------------------------------------------------
 *
 * Each rank runs the graph with its own part of what is cut, and with its number in input `rank`; nothing else differs.
 * A tensor that is cut has the shape of a rank's part in the graph. Its weights are whole in the file, where each rank
 * takes what is its own: rank r has part r * parts / n of each run's equal parts. Fewer parts than ranks: heads of keys
 * and values that several ranks have. artifacts/rank_check.c proves that each tensor is whole, a part or cut as ranks.h
 * says: no part of a sum is read as the sum, and nothing is added once a rank.
 */
typedef struct CutRun { int64_t n; int parts; } CutRun; /* elements along the axis, of all ranks */
enum { PLAN_MAX_RANKS = 8, PLAN_MAX_RUNS = 3 };
typedef struct Cut {
	int tensor; /* of role WEIGHT */
	int axis;   /* dim of it */
	CutRun *runs; int n_runs; /* one after the other along the axis */
} Cut;
/* The collectives of a phase, in order: equal on all ranks, which compare the digest before they run anything. */
typedef struct RankPhase {
	int phase;          /* a PHASE_ bit */
	int n_collectives;
	int64_t row_bytes;  /* of all of them: what a rank gives for each row, or out, in f32 */
	uint8_t digest[32]; /* artifacts/ranks.h */
} RankPhase;
typedef struct RankPlace { int64_t offset; } RankPlace; /* of a rank's part of a weight, in its weight arena */
typedef struct Ranks {
	int n;                           /* 2, 4 or 8; 0 = there is no such section: one rank */
	Cut *cuts; int n_cuts;           /* by tensor, ascending; other weights are whole on each rank */
	RankPhase *phases; int n_phases; /* those with collectives, ascending */
	RankPlace *places; int n_places; /* of each weight of ranks_view, which has the arenas of a rank */
	int64_t weight_bytes;            /* of a rank's weight arena */
	int64_t peer_bytes;              /* of a rank's ARENA_PEER; 0 where there are no launches */
} Ranks;

/* Plan: how one GPU does it ----------------------------------------------------------------- */

typedef enum Arena_ {
	ARENA_WEIGHTS, ARENA_STATE, ARENA_SCRATCH,
	ARENA_IO,    /* inputs, which the host writes from its own image */
	ARENA_RING,  /* outputs, in memory of the host that the device writes to */
	ARENA_PROBE, /* the buffers of phase PROBE: only who measures allocates it */
	ARENA_PEER,  /* what several ranks show each other (artifacts/peers.h) */
	ARENA_COUNT,
	ARENA_STORED = ARENA_PEER, /* those whose size a TargetPlan's section has; of the peers' it is Ranks.peer_bytes */
} ArenaKind;
const char *arena_name(ArenaKind a);
/* What drafts, by the names of [speculate] drafter and --speculate. */
#define DRAFTER_HEAD "mtp"
#define DRAFTER_NGRAM "ngram"
/* NULL where nothing does. */
static inline const char *drafter_of(const Graph *g)
{
	return g->ngram_max ? DRAFTER_NGRAM : g->verify_rows ? DRAFTER_HEAD : NULL;
}
/* 32-bit words of a slot's mask. */
static inline int mask_words(const Graph *g) { return (g->vocab + 31) / 32; }
/* Are drafts those of a head, in phase DRAFT on the device? */
static inline bool head_drafts(const Graph *g) { return g->verify_rows && !g->ngram_max; }
/* How often a session has the io arena: where a head drafts, the two phases of a step have each its own inputs. */
static inline int io_images(const Graph *g) { return head_drafts(g) ? 2 : 1; }
/* Rows of each slot in a step that speculates, of that many slots. */
int ladder_rows(const Graph *g, int slots);

typedef struct Buf {
	const char *name; /* the graph tensor's name, or that of a fused op's intermediate */
	ArenaKind arena;
	Dtype dtype;
	int n_dims;
	int64_t shape[PLAN_MAX_DIMS]; /* all positive: the phase's bucket is put in */
	int64_t bytes, offset;        /* offset in the arena, multiple of PLAN_BUF_ALIGN for arenas but weights */
	int first, last; /* live from launch first to launch last of its phase; state, io and ring: 0..n-1 */
	int tensor;      /* graph tensor it stores, or -1: an intermediate, or state of launches alone (counters), which */
					 /* is zero when a session starts and which every launch leaves as it found it */
} Buf;

typedef struct Kernel {
	const char *name;     /* template name */
	const char *defines;  /* "HDIM=64 K=2048 ROWS=1 ...", sorted: with the template, all that decides the code */
	int64_t cubin_offset, cubin_bytes; /* in section cubins */
	const char *entry;    /* symbol in the cubin */
	int param_bytes;      /* size of the argument struct */
	int block[3];         /* threads */
	int smem_bytes;       /* dynamic shared memory */
	int registers, spill_bytes, static_smem_bytes; /* read from the cubin */
	uint8_t source_sha256[32]; /* of the code that it reaches, and of its launch: compiler/pick/time_key.c */
} Kernel;

typedef struct Arg { /* one pointer of the argument struct; all fields are pointers */
	int field_offset; /* bytes, multiple of 8 */
	int buf;          /* index in Phase.bufs; -1 = NULL (absent optional operand) */
	int operand;      /* index in the op's row */
	int early;        /* 1: the kernel may read it before the launches it waits for are done: state that no launch
						 before it in its phase writes, so it finds the bytes of the steps before (see Launch) */
} Arg;

typedef struct TensorMap { /* a CUtensorMap in the argument struct, by which the kernel has tiles of a buffer copied */
	int field_offset; /* bytes, multiple of 64 */
	int buf;          /* one that is an argument of this launch too, seen as a matrix: [all dims but the last, last] */
	int box[2];       /* rows and columns of a tile; a row of it is 128 bytes, the span of the swizzle */
} TensorMap;

typedef struct Launch {
	int kernel; /* index in TargetPlan.kernels */
	OpKind op;
	int layer;
	int grid[3];
	Arg *args; int n_args;
	TensorMap *maps; int n_maps; /* 128-byte swizzle; what lies outside the matrix reads as zeros */
	int *deps; int n_deps; /* earlier launches of the phase it waits for (edges of the CUDA graph) */
	int overlaps; /* 1: these edges are programmatic: the kernel may start before they are done and waits itself
					 (griddepcontrol.wait) before it touches anything but weights, inputs and early arguments; 0: it
					 starts after them. The same holds for edges from the step before in a row of steps, which a launch
					 without deps waits for: in a phase with early arguments it does not overlap, so that all of the
					 step before is done when any launch of a step starts */
	int64_t read_bytes, write_bytes, flops; /* from the contract, all rows in use */
	int slot;   /* index in the ledger of the decision that chose it */
	int produces_layer; /* -1, or the layer whose output (hidden state) it completes */
} Launch;

/* A step that speculates is DRAFT, then VERIFY: the head drafts `each` - 1 tokens for each slot, and the model reads
 * them after the slot's last token. Where the host drafts, or `each` is 1, there is no DRAFT. There are both for each
 * rung of the graph's ladder, for its slots; rows of VERIFY are `each` for each slot, one after the other. A DRAFT
 * runs the graph's ops up to its last draft (phase_ops). Logits are of all rows in either: out_row[t] = t, or -1 where
 * the row is idle.
 *
 * PROBE computes nothing of the model: its launches, none of which reads what another wrote, measure what the GPU
 * does at best: a product of large matrices (linear_residual, all operands in ARENA_PROBE but `step`), one read
 * of much memory (read_probe), one of next to none (read_probe); then, where other phases multiply codes of e4m3 by
 * codes of e4m3, or of e2m1 by e2m1, the same product of such. Sessions neither load nor run it. */
typedef enum PhaseKind { PREFILL, DECODE, DRAFT, VERIFY, ACQUIRE, PROBE, PHASE_KINDS } PhaseKind;
int phase_bit(PhaseKind p); /* PHASE_DECODE; 0 of PROBE */
/* The tensor of a step's logits that the host may read after it. Of a VERIFY step it has all rows, not outs alone. */
const char *logits_name(PhaseKind p);
const char *phase_name(PhaseKind p);
/* "decode[8]"; of phases that a ladder has several of, "verify[4x3]": slots and rows of each. */
typedef struct PhaseLabel { char text[32]; } PhaseLabel;
PhaseLabel phase_label(PhaseKind kind, int rows, int each);
#define PHASE_LABEL(p) phase_label((p)->kind, (p)->rows, (p)->each).text
#define LEDGER_LABEL(s) phase_label((s)->phase, (s)->rows, (s)->each).text
/* Index after the last of the graph's ops that may run in a phase of that kind. */
int phase_ops(const Graph *g, PhaseKind kind, int each);

typedef struct Phase {
	PhaseKind kind;
	int rows, outs; /* bucket: rows of a step, rows with logits (ACQUIRE: 0, 0; PROBE: of the product, 0) */
	int each;       /* VERIFY: rows of a slot; DRAFT: in the step after it; others: 0 */
	Buf *bufs; int n_bufs;
	Launch *launches; int n_launches;
} Phase;

typedef struct TargetPlan {
	const char *target; /* "sm_90a" */
	int cc_major, cc_minor; /* the device must have exactly this (…a) or the same major and at least the minor */
	Kernel *kernels; int n_kernels;
	Phase *phases; int n_phases; /* by kind, then by each and by rows, ascending */
	int smem_block_bytes;        /* most shared memory of a block there: what launches were checked against */
	int n_sms;                   /* multiprocessors of the card that kernels were chosen for */
	int64_t arena_bytes[ARENA_COUNT];
} TargetPlan;

/* Decision ledger ------------------------------------------------------------------------------ */

/* PRUNED: it is admissible, but its contract does not prefer it. */
typedef enum Verdict { CHOSEN, SLOWER, REJECTED, BANNED, PRUNED, VERDICT_COUNT } Verdict;
const char *verdict_name(Verdict v);

typedef struct Candidate {
	const char *kernel;   /* template */
	const char *tunables; /* "WARPS=8 ..." or "" */
	Verdict verdict;
	int predicate;        /* of its contract's terms `requires` and `prefers`, counted from 0, the one that the verdict
							 is about; -1 = none. REJECTED: false; PRUNED, CHOSEN: a preference that is false */
	const char *reason;   /* REJECTED, PRUNED: "HDIM == 64 || HDIM == 128 is false: HDIM = 80"; BANNED: by whom;
							 CHOSEN: what it does not keep ("adds in another order than decode[1], ..."); else "" */
	double cost_us;       /* 0 when it was not compared */
	const char *cost_from; /* "model", "measured", "pin" */
	const char *order;    /* in which it adds (artifacts/order.h); "" where its contract does not admit it */
} Candidate;

typedef struct Slot {
	PhaseKind phase;
	int rows, outs, each;
	int layer_first, layer_last; /* equal decisions of equal layers are one entry */
	OpKind op;
	const char *operands; /* "x bf16 [1,576], w bf16 [960,576], ..."; a dim that the candidate decides is * */
	const char *attrs;    /* whole-number attributes of the op: "BLOCK_K=0 BLOCK_N=0 NORM_ONE=0" */
	Candidate *candidates; int n_candidates;
} Slot;

/* What a template asks for, by which verdicts can be checked again. Kinds of terms, in this order:
 *
 *   arch       name "80": targets from sm_80 on; "90a": sm_90a alone. One of them must serve
 *   dim        a name that operands' shapes bind    attr  a name that the op gives
 *   dtype      a variable and the dtypes it may stand for; gives VAR_BITS, and VAR_BYTES of whole bytes
 *   tunable    a name and its values
 *   operand    text "WT [N, K]": dtype or its variable, shape. The first plain mention of a dim decides it, all others
 *              must agree, and expressions are compared when all dims are bound. Operands of the op that no term names
 *              must be absent; those named must be there, but for those with a term `flag` of the same name, whose
 *              text is a constant: 1 when the operand is there, else 0. Dims that only absent ones would bind are 0
 *   map.rows, map.columns  a tile of that operand: 1 to 256 rows of 128 bytes; its own rows: a multiple of 16 bytes
 *   requires   must not be 0; name: where it is, "kernels/templates/products/gemm_norm.cu:31"
 *   prefers    taste, not a condition: a candidate for which it is 0 is chosen where a pin or an order asks for it, or
 *              where no other is left
 *   order      a word, and in text formulas, with commas between them: on what the order of sums depends
 *   grid.x grid.y grid.z  1 to 2^31 - 1, 65535, 65535     block  1 to 1024
 *   smem       0 to smem_block_bytes of the target
 *   reads writes flops  of the launch
 *
 * Formulas are C expressions of int64 with ceil_div, min, max and align. Next to the names above they know SMEM_MAX and
 * SMS, the smem_block_bytes and n_sms of the target.
 */
typedef struct ContractTerm { const char *kind, *name, *text; } ContractTerm;
typedef struct Contract { const char *name; OpKind op; ContractTerm *terms; int n_terms; } Contract;
const ContractTerm *contract_predicate(const Contract *c, int i); /* of its `requires` and `prefers`; NULL = none */

/* Provenance ------------------------------------------------------------------------------------ */

/* A thing that the plan was made of, or with. Kinds, in this order:
 *   compiler  atlasc                   tool      NVRTC, its ptxas; detail: options
 *   source    files of the templates that the plan has kernels of, from kernels/templates/
 *   input     files of the checkpoint and the user's that were read whole, and atlasc's own that took their place
 *   weights   files that weights were read from, hashed only where --hash-files asks for it
 */
typedef struct Origin {
	const char *kind, *name; /* a file's base name */
	const char *version;     /* "" = none */
	const char *licence;     /* SPDX expression, "" = not known here */
	const char *sha256;      /* of its bytes, 64 hexadecimal digits; "" = not computed */
	int64_t bytes;           /* 0 = no file */
	const char *detail;      /* "" = none */
} Origin;

/* A whole file ---------------------------------------------------------------------------------- */

typedef struct Section {
	const char *name;
	int64_t offset, bytes; /* in the file */
	uint8_t hash[32];
} Section;

typedef struct PlanSignature { uint8_t public_key[32], signature[64]; } PlanSignature;

typedef struct Option { const char *name, *value; } Option; /* "runtime.slots", "8" */

typedef struct Artifact {
	Section *sections; int n_sections;
	Option *options; int n_options; /* sorted by name */
	Graph graph;
	Ranks ranks;
	TargetPlan *targets; int n_targets;
	Slot **ledger; int *n_ledger; /* one list a target */
	Contract *contracts; int n_contracts; /* names are unique; each candidate of a ledger has one */
	Origin *origins; int n_origins;
	TargetPlan *candidates;       /* one a target, without kernels where there is no section; NULL = none at all */
	const uint8_t *file; int64_t file_bytes; /* the mapped file (reader) */
	uint8_t root[32];
	const PlanSignature *signatures; int n_signatures; /* in the file */
	const uint8_t *leaves; /* section leaves */
	int64_t *first_leaf;   /* [n_weights + 1] of each weight in it; the reader's, owned */
	void *memory; /* reader's arena: one block */
} Artifact;

/* Section by name; NULL when absent. Its bytes are artifact->file + offset. */
const Section *artifact_section(const Artifact *a, const char *name);
/* Value of an option by its name; NULL when absent. _of: of the option of a target, "tuning.sm_90a.card". */
const char *artifact_option(const Artifact *a, const char *name);
const char *artifact_option_of(const Artifact *a, const char *what, const char *target, const char *which);

/* Whose plans are read: those that one of these keys has signed. */
typedef struct PlanTrust { const uint8_t (*keys)[32]; int n_keys; } PlanTrust;

/* Reader: maps nothing itself. `file` must stay valid and unchanged until artifact_free. Checks magic and version, the
 * root hash, signatures and, where `trust` is not NULL, that one of them is by a key of it; nothing of a plan that is
 * not trusted is looked at any further. Then the section table, hashes of all sections (of `weights`, those of the
 * leaves, but not the bytes: artifact_check_weights does that), and every count, offset, index, shape and launch
 * against this specification, each launch against its kernel's contract and the ledger, and what each phase touches
 * against the graph. On failure writes one sentence with the byte offset or the name of what is wrong into why. */
typedef enum ReadStatus {
	READ_OK, READ_NOT_A_PLAN, READ_VERSION, READ_INTEGRITY, READ_MALFORMED, READ_NO_MEMORY, READ_UNSIGNED,
	READ_UNTRUSTED
} ReadStatus;
ReadStatus artifact_read(const uint8_t *file, int64_t bytes, const PlanTrust *trust, Artifact *out, char *why,
	size_t why_bytes);
/* Where sections lie that are not read before they are used, or not at all: weights and those called x-. head [bytes]:
 * header and manifest, of which nothing was checked. places [most][2] get the first byte and the one after the last, in
 * the manifest's order. Returns how many; -1 when it is no manifest, -2 without memory. */
int artifact_large_sections(const uint8_t *head, int64_t bytes, int64_t (*places)[2], int most);
/* Copies mapped bytes so that a file that is cut meanwhile is no signal; false: they are not to be had. */
typedef bool ByteCopyFn(const void *ctx, const void *from, void *to, size_t n);
/* By several threads: the leaves of every weight whose bytes are there ([n_weights], NULL in it: not looked at; bytes
 * NULL: those in section weights), and the gaps of that section. copy: by which they are read; NULL = as memory. The
 * first error is reported. */
ReadStatus artifact_check_weights(const Artifact *a, const uint8_t *const *bytes, ByteCopyFn *copy, const void *ctx,
	char *why, size_t why_bytes);
/* Bytes at..at+n of a weight, at a multiple of TREE_LEAF_BYTES, up to another or to its end. */
bool artifact_leaves_hold(const Artifact *a, int weight, int64_t at, const uint8_t *bytes, int64_t n);
/* Are this weight's bytes in section weights? Else in the checkpoint's file, or nowhere: they are made. */
bool artifact_holds_weight(const Artifact *a, int weight);
void artifact_free(Artifact *a);

/* Validator: one loop, no recursion, no allocation. True when the bytes are exactly one canonical
 * MessagePack value; else false with the byte offset of the first offence and what it is. */
bool msgpack_check(const uint8_t *bytes, size_t n, size_t *at, const char **what);

/* Writer (plan_write.c, compiler only): to a temporary name next to `path`, fsync, rename. Copies
 * weights from `source` (called in order of offset; returns false on a read error, having said why). */
typedef struct PlanBlob { const char *name; const void *bytes; size_t n; } PlanBlob;
typedef struct WeightSource {
	void *ctx;
	/* Fills dst[0..n) with bytes `at`.. of weight index w. */
	bool (*read)(void *ctx, int w, int64_t at, void *dst, size_t n);
} WeightSource;
typedef struct PlanParts {
	const Artifact *artifact;      /* options, graph, targets, ledger */
	const PlanBlob *blobs; int n_blobs; /* cubins, tokenizer, chat_template, chat_program */
	bool embed_weights;
	WeightSource weights;
	const struct PrivateKey *keys; int n_keys; /* that sign it (artifacts/sign.h), each once */
} PlanParts;
bool artifact_write(const char *path, const PlanParts *parts, char *why, size_t why_bytes);
/* Could artifact_write make this file? Asked before a long compile; leaves nothing. False: with the reason. */
bool artifact_can_write(const char *path, char *why, size_t why_bytes);

#endif
