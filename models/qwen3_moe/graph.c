/* Qwen3, experts: Qwen3's attention, experts in place of the MLP. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_qwen3_moe(Compile *c)
{
	bool bias = c->model.config.attention_bias;
	build_dense(c, &(DenseTraits){.qkv_bias = bias, .o_bias = bias, .head_norm = true});
}
