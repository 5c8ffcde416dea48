/* builder.h - what a decoder's builder (models/decoder) may call, in the order in which it does. Tensors and ops are
 * appended to Compile.graph; a tensor is its index there.
 */
#ifndef ATLASC_BUILDER_H
#define ATLASC_BUILDER_H

#include "artifacts/op_table.h"
#include "compiler/ir.h"

/* The whole model, from Config.layers: models/decoder. */
void build_decoder(Compile *c);

/* Graph tensors every decoder has: see artifacts/ops.h for their meaning. */
typedef struct StepTensors {
	int step, row_slot, row_token, row_pos, out_row, seg;
	int page_table, rolling_table, slot_len, slot_token, sampling, limits, rules, masks, counts;
	int row_next, slot_draft, slot_version, masks_later; /* -1 where nothing is drafted */
	int ring, stop_tokens;
	int rolling_pages; /* of a slot; 0, and rolling_table -1: all layers have pages of the pool */
} StepTensors;

/* Rows [first, first + n) of a module ("model.layers.0.mlp.up_proj") that has `of` rows. */
typedef struct Piece { const char *module; int64_t of, first, n; Module *stored; /* products.c */ } Piece;

/* x w^T (products.c): a weight [rows, cols] of pieces of modules, all in one format, with its scales. */
typedef struct Product {
	const char *name;  /* of the tensor: unique where it is no whole module's */
	int n_pieces;
	Piece *pieces;     /* in order; the caller's, NULL after g_products_of */
	int64_t cols;
	int64_t experts;   /* not 0: the rows are those of that many matrices, and the tensor has three dims */
	bool is_fused;     /* a module is a tensor of that very name and three dims, its scales one of that name and
						  "_scale_inv"; in MXFP4 codes of that name and "_blocks", scales "_scales" */
	bool is_turned;    /* of is_fused: matrices of numbers are stored transposed */
	/* filled by products.c */
	int64_t rows;
	bool is_right;     /* else its tensors are only there so that the graph can go on */
	int w, scale, row_scale; /* tensors, -1 = absent */
	int block_n, block_k; /* rows and columns of a block; 0 = there are none. The file's may have a multiple of rows */
} Product;

/* What is around the layers (frame.c). Before all tensors: a head drafts, and how many rows of a slot a step verifies.
 * Then the step's tensors and the embedding, whose output is DecoderEnds.x; after the layers the final norm, the head
 * and sampling; at the end acquire. prefix: "model". */
typedef struct DecoderEnds { int table, x, norm; Product head; } DecoderEnds; /* the last layer's output is x then */
void g_speculate(Compile *c, int verify_rows);
void g_begin(Compile *c, const char *prefix, StepTensors *s, DecoderEnds *ends);
void g_head(Compile *c, const char *prefix, const Attrs *attrs, StepTensors *s, DecoderEnds *ends);
/* Logits f32 [rows, those of the head] as they are drawn from: capped, where the model caps them. */
int g_logits(Compile *c, int layer, int phases, const Product *head, int x, const char *name, int64_t rows);
void g_acquire(Compile *c, const StepTensors *s);

/* Weights (builder.c). One that is missing or has another shape: an error naming both sides, and a usable index all the
 * same. A name that is there already is the same tensor. */
StTensor *g_find_tensor(Compile *c, const char *name); /* of the checkpoint, or NULL */
int g_weight(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1);
int g_weight_of(Compile *c, const char *name, int n_dims, const int64_t *shape); /* of any dims */
int g_constant(Compile *c, const char *name, Dtype dtype, int n, const void *values); /* a weight made here */
int g_table(Compile *c, const char *name, Dtype dtype, int rows, int cols, const void *values); /* one of two dims */

/* Those of n modules ("model.layers.0.mlp.up_proj") that read the same input, placed so that they can be read as one:
 * first the weights, then block scales, then row scales. Errors as of g_weight. */
void g_products(Compile *c, int n, const char *const *modules, const int64_t *rows, int64_t cols, Product *out);
void g_products_of(Compile *c, int n, Product *p); /* of the pieces that p has */
/* One whose weight is a tensor that is there already as `table`, unless [quant] asks for it in another format. */
void g_tied_product(Compile *c, const char *module, const char *tensor, int table, int64_t rows, int64_t cols,
	Product *out);

/* Activations, state and ops (builder.c). phases 0: those of Compile.layer_phases. A layer after the last one counts as
 * the end. */
int g_tensor(Compile *c, Role role, Dtype dtype, const char *name, int n_dims, const int64_t *shape);
int g_activation(Compile *c, const char *name, int64_t cols); /* bf16 [ROWS, cols] */
int g_slot_state(Compile *c, const char *name, Dtype dtype, int64_t cols); /* [slots, cols], zeroed at acquire */
int g_later_state(Compile *c, const char *name, Dtype dtype, int64_t cols); /* [slots, drafts, cols]: versions 1 ... */
void g_op(Compile *c, OpKind kind, int layer, int phases, const Attrs *attrs, const int *operands);
void g_linear(Compile *c, int layer, int phases, const Product *p, int x, int bias, int y); /* y = x w + bias */

/* The cache of a layer (kv_cache.c), its tensors and its page table; -1 = absent. module: "model.layers.0.self_attn".
 * Errors as of g_weight. */
typedef struct Cache { int kv, scale, block, table; } Cache;
Cache g_cache(Compile *c, const StepTensors *s, int layer, const char *module, const LayerSpec *spec);
/* Before all caches: which layers have pages of slots (artifacts/rolling.h), and their page table. */
void g_roll(Compile *c, StepTensors *s);

/* By what drafts are scored: the model's head, or a copy of rows of it as [speculate] asks. They are those of ids 0 to
 * n - 1, or of the ids in a tensor. */
typedef struct DraftHead { Product rows; int n, ids; /* tensor, -1 = absent */ } DraftHead;
void read_draft_ids(Compile *c); /* draft_ids.c: the file of speculate.vocabulary_file; A0102, A0106, A0306 */
DraftHead g_draft_head(Compile *c, const DecoderEnds *ends);

#endif
