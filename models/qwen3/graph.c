/* Qwen3, dense: q and k are normalised per head before rope; head_dim * n_heads may differ from hidden_dim. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_qwen3(Compile *c)
{
	bool bias = c->model.config.attention_bias;
	build_dense(c, &(DenseTraits){.qkv_bias = bias, .o_bias = bias, .head_norm = true});
}
