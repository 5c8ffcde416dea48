/* Qwen2 and Qwen2.5: q, k and v have a bias, always; o_proj has none. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_qwen2(Compile *c)
{
	build_dense(c, &(DenseTraits){.qkv_bias = true});
}
