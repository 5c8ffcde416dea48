/* Qwen3.5 and later: Gated DeltaNet, every fourth layer gated attention; an MLP, or experts and a shared one. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_qwen3_5(Compile *c)
{
	build_dense(c, &(DenseTraits){.head_norm = true, .norm_one = true, .gate = true});
}
