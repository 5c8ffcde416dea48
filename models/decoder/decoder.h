/* decoder.h - the one builder: a decoder of the layers in Config.layers.
 *
 *   x += mixer(norm(x))    attention (attention.c) or Gated DeltaNet (delta.c)
 *   x += mlp(norm(x))      an MLP, or experts (experts.c), or both, which are added
 *   x += out(gelu(gate(x)) * e)    e: of the token and the layer, where there are such embeddings (layer_embeddings.c)
 *   x *= a number of the layer's, where it has one
 *
 * A norm is before a part, after it, or both, as LayerSpec says. Formulas: the modeling files of the families in
 * Hugging Face transformers.
 */
#ifndef MODELS_DECODER_H
#define MODELS_DECODER_H

#include "compiler/graph/builder.h"
#include "compiler/read/family.h"

enum { BOTH = 0 }; /* phases of a layer's ops: those that the layer is built for */

typedef struct Decoder {
	const char *prefix; /* of tensor names: "model", "model.language_model" or "mtp" */
	const char *const *names; /* of tensors, by role */
	int first;          /* layer of the graph that is layer 0 of the prefix */
	int inv_freq[MAX_ROPES]; /* tensors f32 [rotary_dim / 2] */
	Cache *caches;      /* [n_layers], of the layers that are built */
	int ple;            /* bf16 [ROWS, n_layers * ple_dim]: per-layer embeddings of rows; -1 = there are none */
	/* of the layer that is built */
	LayerSpec spec;
	Attrs attrs;
} Decoder;

/* Names of layer l's module or tensor; weights and activations of it. */
const char *d_name(Compile *c, const Decoder *d, int l, const char *name);
const char *d_part(Compile *c, const Decoder *d, int l, TensorRole role);
int d_vector(Compile *c, const Decoder *d, int l, TensorRole role, int n); /* "MODULE.weight" */
int d_bias(Compile *c, const Decoder *d, int l, bool is_there, TensorRole role, int n); /* "MODULE.bias"; -1 = none */
int d_act(Compile *c, int l, const char *name, Dtype dtype, int64_t cols);
/* Weights of n <= 4 modules of a layer, which read the same [ROWS, cols]. */
void d_products(Compile *c, const Decoder *d, int l, int n, const TensorRole *roles, const int64_t *rows, int cols,
	Product *out);
/* The same of n <= 4 products whose rows follow each other in one module; names: of their tensors. */
void d_parts(Compile *c, const Decoder *d, int l, int n, TensorRole module, const char *const *names,
	const int64_t *rows, int cols, Product *out);
int d_linear(Compile *c, int l, int x, const Product *w, int bias, const char *name, int64_t cols);
int d_rmsnorm(Compile *c, const Decoder *d, int l, int x, int w, const char *name);
int d_add(Compile *c, int l, int x, int y, const char *name);
/* y: up, gated by the layer's activation, of an MLP or of the expert that all rows go to. */
void d_gate(Compile *c, const Decoder *d, int l, int gate, int up, int y);
/* What a part of the layer reads of x: w < 0 = x itself. */
int d_before(Compile *c, const Decoder *d, int l, int x, int w, const char *name);
/* x and what a part gives, after its norm if there is one. */
int d_after(Compile *c, const Decoder *d, int l, int x, int y, TensorRole norm, const char *name);
int d_pre_norm(Compile *c, const Decoder *d, int l, TensorRole role); /* its weight, -1 = there is none */

/* What the layers add of a row's token besides (layer_embeddings.c), of rows x0 as they come from the embedding: for
 * all layers at once; -1 = the model has none. Then x plus a layer's part of it. */
int d_layer_embeddings(Compile *c, const StepTensors *s, const Decoder *d, int x0);
int d_layer_embedding(Compile *c, const Decoder *d, int l, int x);

/* Parts of a layer that read x and return it with what they add. */
int d_attention(Compile *c, const StepTensors *s, const Decoder *d, int l, int x);
int d_delta(Compile *c, const StepTensors *s, const Decoder *d, int l, int x);
int d_mlp(Compile *c, const Decoder *d, int l, int x); /* or experts */
/* What they make of n, not added; x: the stream, which a router with a norm of its own reads. */
int d_experts(Compile *c, const Decoder *d, int l, int n, int x);
/* The part of d_attention that leaves keys and values of rows in the cache. */
void d_keys(Compile *c, const StepTensors *s, const Decoder *d, int l, int x);

/* The head that drafts (draft.c): before all tensors, whether there is one and how many rows are verified; and what
 * follows on sampling. */
void d_speculate(Compile *c);
void d_draft(Compile *c, const StepTensors *s, const DecoderEnds *ends, const Decoder *d);

#endif
