/* Mistral, dense: Llama's decoder without biases; full attention only. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_mistral(Compile *c)
{
	build_dense(c, &(DenseTraits){.qkv_bias = false});
}
