/* builder.h - what models/decoder puts tensors and ops into Compile.graph with. */
#ifndef ATLASC_BUILDER_H
#define ATLASC_BUILDER_H

#include "compiler/ir.h"

/* Graph tensors every decoder has: see artifacts/ops.h for their meaning. */
typedef struct StepTensors {
	int step, row_slot, row_token, row_pos, out_row, seg;
	int page_table, slot_len, slot_token, sampling, limits, rules, counts;
	int row_next, slot_draft, slot_version, ring, stop_tokens; /* the first three: -1 where no head drafts */
} StepTensors;

/* Tensors and ops are appended to Compile.graph. */
int g_weight(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1); /* tensor index; missing or of
								   another shape: an error naming both sides, and a usable index all the same */
/* What a weight without file and value is of --random-weights: Weight.made and made_cols of it (made_weights.c). */
Weight random_weight_of(const Compile *c, int w);
void mark_made_weights(Compile *c); /* with --weights ref, those are made when a session opens */
/* Bytes [at, at + n) of weight w, a part of p, quantised from p->source (requant.c). False after having said why not.
 * A Requant keeps what it read last; one thread at a time. */
typedef struct Requant Requant;
typedef struct SourceReader {
	bool (*read)(void *ctx, const Weight *source, int64_t at, void *dst, size_t n);
	void *ctx;
} SourceReader;
Requant *requant_new(Arena *a);
void requant_release(Requant *r); /* its buffers; r can be used on */
bool requant_bytes(Compile *c, Requant *r, const MadeProduct *p, int w, int64_t at, void *dst, size_t n,
	const SourceReader *source);
/* Products (products.c): weights [rows, cols] in whatever format the checkpoint holds them, with their scales. */
typedef struct Product { int w, scale, row_scale; /* tensors, -1 = absent */ int block_n, block_k; } Product;
/* What is around the layers: the embedding, the last layer's output, the norm after it and the head. */
typedef struct DecoderEnds { int table, x, norm; Product head; } DecoderEnds;
/* Those of n modules ("model.layers.0.mlp.up_proj") that read the same input, placed so that they can be read as one:
 * first the weights, then block scales, then row scales. Errors as of g_weight. */
void g_products(Compile *c, int n, const char *const *modules, const int64_t *rows, int64_t cols, Product *out);
/* The same where a weight is put together: rows [first, first + n) of modules that have `of` rows, in order, all in one
 * format. experts > 0: rows are those of that many matrices, and the tensor has three dims. is_fused: the one module is
 * a tensor of that very name and three dims, its scales one of that name and "_scale_inv". */
typedef struct Piece { const char *module; int64_t of, first, n; } Piece;
typedef struct ProductSpec {
	const char *name; /* of the tensor: unique where it is no whole module's */
	int n_pieces;
	const Piece *pieces;
	int64_t experts;
	bool is_fused;
} ProductSpec;
void g_products_of(Compile *c, int n, const ProductSpec *specs, int64_t cols, Product *out);
/* One whose weight is a tensor that is there already as `table`, unless [quant] asks for it in another format. */
void g_tied_product(Compile *c, const char *module, const char *tensor, int table, int64_t rows, int64_t cols,
	Product *out);
/* By what drafts are scored: the model's head, or a copy of rows of it as [speculate] asks. They are those of ids 0 to
 * n - 1, or of the ids in a tensor. */
typedef struct DraftHead { Product rows; int n, ids; /* tensor, -1 = absent */ } DraftHead;
DraftHead g_draft_head(Compile *c, const DecoderEnds *ends);
void read_draft_ids(Compile *c); /* draft_ids.c: the file of speculate.vocabulary_file; A0102, A0106, A0306 */
void g_linear(Compile *c, int layer, int phases, const Product *p, int x, int bias, int y); /* y = x w + bias */
/* The cache of a layer (kv_cache.c), its tensors; -1 = absent. module: "model.layers.0.self_attn". Errors as of
 * g_weight. */
typedef struct Cache { int kv, scale, block; } Cache;
Cache g_cache(Compile *c, int layer, const char *module, const LayerSpec *spec);
/* notes and errors about what was missing and what is left over; A0604, A0607, A0610 */
void check_kv_scales(Compile *c);
/* For an unused tensor: what is expected if it is meant as such a scale, else "". */
const char *kv_scale_hint(Compile *c, const char *name);
/* What builders share: the checkpoint's tensor of that name, or NULL; a weight, as a tensor; "[64, 128]". */
StTensor *g_find_tensor(Compile *c, const char *name);
int g_add_weight(Compile *c, const Weight *w);
/* A tensor whose bytes are those of n >= 1 weights of one dtype, one after the other. */
int g_add_weights(Compile *c, const char *name, int n_dims, const int64_t *shape, int n, const Weight *w);
bool g_misfit(Compile *c, const StTensor *t, int n_dims, const int64_t *want); /* A0602; false */
const char *g_shape_text(Compile *c, int n_dims, const int64_t *shape);
/* Around the layers (build_graph.c): the step's tensors and the embedding, whose output is DecoderEnds.x; the final
 * norm, the head and sampling; acquire. prefix: "model". */
void g_begin(Compile *c, const char *prefix, StepTensors *s, DecoderEnds *ends);
void g_head(Compile *c, const char *prefix, const Attrs *attrs, StepTensors *s, DecoderEnds *ends);
void g_acquire(Compile *c, const StepTensors *s);
void build_decoder(Compile *c); /* models/decoder: all of it, from Config.layers */
/* Before all tensors: a head drafts; how many rows of a slot a step verifies. */
void g_speculate(Compile *c, int verify_rows);
int g_weight_of(Compile *c, const char *name, int n_dims, const int64_t *shape); /* the same, of any dims */
int g_slot_state(Compile *c, const char *name, Dtype dtype, int64_t cols); /* [slots, cols], zeroed at acquire */
int g_later_state(Compile *c, const char *name, Dtype dtype, int64_t cols); /* [slots, drafts, cols]: versions 1 ... */
int g_weight_opt(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1); /* -1 when absent */
int g_constant(Compile *c, const char *name, Dtype dtype, int n, const void *values); /* a weight made here */
int g_table(Compile *c, const char *name, Dtype dtype, int rows, int cols, const void *values); /* one of two dims */
int g_tensor(Compile *c, Role role, Dtype dtype, const char *name, int n_dims, const int64_t *shape);
int g_activation(Compile *c, const char *name, int64_t cols); /* bf16 [ROWS, cols] */
/* phases 0: those of Compile.layer_phases. A layer after the last one counts as the end. */
void g_op(Compile *c, OpKind kind, int layer, int phases, const Attrs *attrs, const int *operands);

#endif
