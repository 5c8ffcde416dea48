/* fuse.h - what the parts of fuse share: the state of one phase's lowering, and how operands of new ops are bound. */
#ifndef ATLASC_FUSE_H
#define ATLASC_FUSE_H

#include "artifacts/op_table.h"
#include "compiler/ir.h"

typedef struct View { int tensor; int64_t col; } View; /* LTensor and first column; tensor -1 = not yet made */

typedef struct Codes { int tensor, scale, block; } Codes; /* LTensors; tensor -1 = there are none; block: of e2m1 */

enum { MAX_MEMBERS = 16 }; /* of a fusion */

typedef struct Fuser {
	Compile *c;
	const Target *target;
	Lowered *low;
	int *ops, n_ops; /* graph ops of this phase */
	bool *is_lowered; /* [n_ops] */
	int at[MAX_MEMBERS], n_at; /* of the fusion at hand, its members: index in ops, -1 = absent */
	View *views;     /* by graph tensor */
	Codes *codes;    /* by graph tensor: the quantised form of rows */
	int *uses;       /* by graph tensor: how many operands of this phase read it */
	const char *note; /* why the last attempt failed */
	const char *split; /* why the linears after the last norm are several products; NULL = they are one */
} Fuser;

/* A member of a fusion and how it is found: its operand `in` is the tensor that member `from` has as `out`. */
typedef struct Member {
	OpKind kind;
	int from;           /* -1: the anchor, one in each fusion */
	const char *out, *in;
	bool is_optional;
	bool stays;         /* it is looked at alone: another launch does it */
} Member;
enum { COLUMNS_OF_ANSWERS = 2 }; /* of different slots, keys no codes; plans neither invariant nor of ranks */
typedef struct Fusion {
	const char *name;
	bool (*apply)(Fuser *f, int i); /* members from i = 0 on; what it finds missing it may drop from f->at */
	int reads_columns; /* of tensors that joined products write; COLUMNS_OF_ANSWERS: of no other rows */
	int n;
	Member members[MAX_MEMBERS];
} Fusion;

/* bind.c: ops of the graph. */
const GraphOp *op_at(const Fuser *f, int i);
const GraphOp *member(const Fuser *f, int k); /* of the fusion at hand; NULL when it is absent */
int operand(const GraphOp *op, const char *name); /* the graph's tensor, -1 = absent; the op has that operand */
int input_named(const Fuser *f, const char *name);
const Tensor *weight_tensor(const Fuser *f, const GraphOp *op, const char *name); /* NULL = absent */
/* Does op `to` read, as `in`, what `from` writes as `out`, and no other op? Then it may disappear between them. */
bool flows(const Fuser *f, const GraphOp *from, const char *out, const GraphOp *to, const char *in);
/* Are the operands of that name, of two neighbours, absent or read as one? *step: how many weights lie between. */
bool joins(Fuser *f, const GraphOp *a, const GraphOp *b, const char *name, int *step);
/* The size of blocks, which is one for gate and up. False when their formats or their blocks differ. */
bool block_of_two(Fuser *f, const GraphOp *gate, const GraphOp *up, Attrs *attrs);
bool fail_note(Fuser *f, const char *note); /* false */

/* Lowered ops and their operands. */
LOp *new_op(Fuser *f, OpKind kind, const GraphOp *from); /* of its layer; all operands absent */
int lower_tensor(Fuser *f, int t); /* the LTensor of a graph tensor, made on first use */
void merge_attrs(LOp *op, const GraphOp *from);
void bind_tensor(Fuser *f, LOp *op, const char *name, int graph_tensor);
void bind_same(Fuser *f, LOp *op, const GraphOp *from); /* operands of the same name, and the attributes */
/* The weight of a linear and its scales, as operands of which `name` is the weight. */
void bind_weight(Fuser *f, LOp *op, const char *name, const GraphOp *linear);
/* A buffer of a launch that the graph does not know. A dim that the kernel decides is 0. is_shared: one for all layers,
 * which follow each other; not where it is touched early. */
void bind_own(Fuser *f, LOp *op, const char *name, Role role, bool is_shared, Dtype dtype, int n_dims,
	const int64_t *shape);

/* The target's templates for an op: the next one after `last`, NULL at first and at the end. And what they take. */
const KernelTemplate *next_template(const Fuser *f, OpKind op, const KernelTemplate *last);
bool takes_dtype(const KernelTemplate *t, const char *field, Dtype dtype);
bool takes_field(const KernelTemplate *t, const char *field);

/* rows_of_products.c: what the rows of a product are: besides bf16, codes with scales of their own. */
typedef enum Rows { ROWS_PLAIN, ROWS_E4M3, ROWS_E2M1 } Rows;

/* Has this step as many rows as products of codes of e4m3 by codes take? Where all buckets shall give a row the same
 * bits, all of them are lowered as the smallest. */
bool has_rows_for_codes(const Fuser *f);
/* Has the phase as many rows as this takes, and does a template of the target multiply them as `product`, whose operand
 * `weights` is the w of `linear`? Rows as they are, in tiles that come straight from memory: rows of the operands, and
 * of the `columns` that are made, are whole steps of 16 bytes. */
bool multiplies_tiles(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear, int64_t columns);
/* Rows of e4m3, in steps of 16 bytes too, with a scale where a block of the weight's begins. */
bool multiplies_codes(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear);
/* MODEL.toml asks for rows of e2m1, and the weights are in groups of 16. Scales of rows are read in fours. */
bool multiplies_e2m1(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear);
/* Rows as they are of which the head makes logits. */
bool multiplies_outs(const Fuser *f, const GraphOp *linear);
/* Why products of this phase by weights of that dtype take such rows, for the ledger. */
const char *note_of_rows(const Fuser *f, Rows rows, Dtype weights);

/* fuse_head.c: the op `drawing`, after logits of rows x [ROWS, K], of which out_row [OUTS] says which; both by graph
 * tensor. The linear has no bias. cap: soft_cap of its logits, NULL = none. */
typedef struct Head { const GraphOp *norm, *linear, *cap, *draw; int x, out_row; } Head;
LOp *fuse_head(Fuser *f, const Head *h, OpKind drawing);
bool fuse_head_of_ranks(Fuser *f, int i); /* with the logits of several ranks, from position i on */

/* fuse_experts.c: a layer's experts from position i on, without one that all rows go to, with one by a gate, with one
 * that counts whole. */
bool fuse_experts(Fuser *f, int i), fuse_experts_and_shared(Fuser *f, int i), fuse_experts_and_whole(Fuser *f, int i);
/* What chooses experts by rows of its own, and experts of which the norm or the sum is another's. */
bool fuse_scaled_route(Fuser *f, int i), fuse_lone_experts(Fuser *f, int i), fuse_route_of_ranks(Fuser *f, int i),
	fuse_experts_of_ranks(Fuser *f, int i);

/* fuse_delta.c: the ops of a layer of gated DeltaNet. */
bool fuse_delta(Fuser *f, int i);

/* fuse_norms.c: what is made of a product and the norm after it, and of gate and up without one. */
bool fuse_norm_residual(Fuser *f, int i), fuse_norm_geglu(Fuser *f, int i), fuse_linear_swiglu(Fuser *f, int i);

/* match_fusion.c: is op i, which is not lowered, the first of such members, and may the others move up to it? They are
 * f->at then. And: they are lowered. */
bool match_fusion(Fuser *f, const Fusion *x, int i);
bool find_fusion(Fuser *f, const Fusion *x, int i); /* is op i a member of it, wherever the others are? */
void take_members(Fuser *f, const Fusion *x);

/* lower_ranks.c: a collective alone, sum_ranks or gather_ranks; a sum over ranks and what it is added to, from position
 * i on. */
void lower_collective(Fuser *f, const GraphOp *op);
bool fuse_sum_peers(Fuser *f, int i);
/* Rows of the table of fusions. */
#define FUSIONS_OF_RANKS \
	{"norm_logits", fuse_head_of_ranks, false, 5, {ANCHOR(OP_gather), FOUND(OP_rmsnorm, 0, "y", "x"), \
		FOUND(OP_linear, 1, "y", "x"), FOUND(OP_gather_ranks, 2, "y", "part"), FOUND(OP_sample, 3, "z", "logits")}}, \
	{"sum_peers", fuse_sum_peers, false, 2, {ANCHOR(OP_sum_ranks), FOUND(OP_add, 0, "z", "y")}}, \
	{"norm_route", fuse_route_of_ranks, false, 3, {FOUND(OP_rmsnorm, 1, "x", "y"), FOUND(OP_linear, 2, "logits", "y"), \
		ANCHOR(OP_route)}}, \
	{"norm_route", fuse_route_of_ranks, false, 3, {FOUND(OP_rmsnorm, 1, "x", "y"), FOUND(OP_linear, 2, "logits", "y"), \
		ANCHOR(OP_route_sigmoid)}}, \
	{"experts", fuse_experts_of_ranks, false, 1, {ANCHOR(OP_experts)}}, \
	{"experts", fuse_experts_of_ranks, false, 1, {ANCHOR(OP_experts_limited)}},
/* fuse_attention.c: the same of new keys and values, and of what attends to them. And: has a gate a column for each of
 * what it is multiplied with? */
bool fuse_attention_step(Fuser *f, int i), fuse_rope_write(Fuser *f, int i), fuse_gate_rows(Fuser *f, int i);
bool is_gate_of_elements(const Fuser *f, const GraphOp *gate);

/* The op `experts` alone: a few launches. */
void lower_experts(Fuser *f, const GraphOp *op);

/* lower_op.c: a graph op alone, as launches of which each has a template whatever is around it. */
void lower_op(Fuser *f, const GraphOp *op, const char *note);
/* Elements of a head that the target's kernels of attention take; the plain one takes longer ones. */
int widest_head(const Fuser *f);

/* fuse_draft.c: what is around a head that drafts, from position i on; and the tensor draft_len of a draft step,
 * the positions of the rows of its slots. */
bool fuse_embed_verify(Fuser *f, int i), fuse_draft_first(Fuser *f, int i), fuse_follow_prompt(Fuser *f, int i),
	fuse_accept(Fuser *f, int i), fuse_accept_alone(Fuser *f, int i), fuse_draft(Fuser *f, int i),
	fuse_last_draft(Fuser *f, int i),
	fuse_keys(Fuser *f, int i);
int fuse_draft_len(Fuser *f);
/* fuse.c: is there a verify step of `each` rows of a slot for the slots that a decode bucket serves? */
bool fuse_has_step(const Compile *c, int bucket, int each);

#endif
