/* dense.h - the decoder that llama, mistral, qwen2 and qwen3 share; a family states only what differs.
 *
 *   x += o_proj(attention(rope(q), rope(k), v))   with q, k, v = linears of rmsnorm(x)
 *   x += down(silu(gate(n)) * up(n))              with n = rmsnorm(x)
 *
 * Tensor names and formulas: the families' modeling files in Hugging Face transformers.
 */
#ifndef MODELS_DENSE_H
#define MODELS_DENSE_H

#include "compiler/ir.h"

typedef struct DenseTraits {
	bool qkv_bias;  /* q_proj, k_proj, v_proj have a bias */
	bool o_bias;    /* o_proj has one */
	bool mlp_bias;  /* gate_proj, up_proj, down_proj have one */
	bool head_norm; /* q and k are normalised per head (q_norm, k_norm) before rope */
} DenseTraits;

void build_dense(Compile *c, const DenseTraits *traits);

#endif
