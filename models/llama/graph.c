/* Llama 2 and 3, SmolLM2: no biases unless config.json's attention_bias and mlp_bias say so. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_llama(Compile *c)
{
	const Config *cf = &c->model.config;
	build_dense(c, &(DenseTraits){.qkv_bias = cf->attention_bias, .o_bias = cf->attention_bias,
		.mlp_bias = cf->mlp_bias});
}
