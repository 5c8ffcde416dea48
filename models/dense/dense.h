/* dense.h - the decoder that all families here share; a family states only what differs.
 *
 *   x += o_proj(attention(rope(q), rope(k), v))   with q, k, v = linears of rmsnorm(x)
 *   x += down(silu(gate(n)) * up(n))              with n = rmsnorm(x)
 *
 * Gated DeltaNet (delta.c) may replace the first, experts the second (experts.c), where
 * config.json has them. Tensor names and formulas: the families' modeling files in Hugging Face transformers.
 */
#ifndef MODELS_DENSE_H
#define MODELS_DENSE_H

#include "compiler/ir.h"

typedef struct DenseTraits {
	bool qkv_bias;  /* q_proj, k_proj, v_proj have a bias */
	bool o_bias;    /* o_proj has one */
	bool mlp_bias;  /* gate_proj, up_proj, down_proj have one */
	bool head_norm; /* q and k are normalised per head (q_norm, k_norm) before rope */
	bool norm_one;  /* norms multiply by 1 + w, but the gated one of Gated DeltaNet */
	bool gate;      /* q_proj has, after the rows of each head, those of a gate of what attention gives for it */
	bool grouped;   /* in_proj_qkvz and in_proj_ba, by key head, in place of in_proj_qkv, _z, _b and _a */
} DenseTraits;

void build_dense(Compile *c, const DenseTraits *traits);

/* Inside models/dense only ------------------------------------------------------------------------------- */

enum { BOTH = 0 }; /* phases of a layer's ops: those that the layer is built for */

typedef struct Dense {
	const DenseTraits *has;
	const char *prefix; /* of tensor names: "model", "model.language_model" or "mtp" */
	int first;          /* layer of the graph that is layer 0 of the prefix */
	int inv_freq;       /* tensor f32 [rotary_dim / 2] */
	Attrs attrs;
} Dense;

/* Names of layer l's module or tensor; weights and activations of it. */
const char *d_name(Compile *c, const Dense *d, int l, const char *name);
int d_vector(Compile *c, const Dense *d, int l, const char *name, int n);
int d_act(Compile *c, int l, const char *name, Dtype dtype, int64_t cols);
/* Weights of n <= 4 modules of a layer, which read the same [ROWS, cols]. */
void d_products(Compile *c, const Dense *d, int l, int n, const char *const *modules, const int64_t *rows, int cols,
	Product *out);
int d_linear(Compile *c, int l, int x, const Product *w, int bias, const char *name, int64_t cols);
int d_rmsnorm(Compile *c, const Dense *d, int l, int x, int w, const char *name);
int d_add(Compile *c, int l, int x, int y, const char *name);

/* Parts of a layer that read x and return it with what they add. */
int d_attention(Compile *c, const StepTensors *s, const Dense *d, int l, int x);
int d_mlp(Compile *c, const Dense *d, int l, int x);
int d_delta(Compile *c, const StepTensors *s, const Dense *d, int l, int x);
int d_experts(Compile *c, const Dense *d, int l, int x);
/* The part of d_attention that leaves keys and values of rows in the cache. */
void d_keys(Compile *c, const StepTensors *s, const Dense *d, int l, int x);

/* The head that drafts (draft.c): before all tensors, whether there is one and how many rows are verified; and what
 * follows on sampling. */
void d_speculate(Compile *c);
g_behind_fn d_draft;

#endif
