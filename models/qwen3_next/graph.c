/* Qwen3-Next: Gated DeltaNet, every fourth layer gated attention, experts and a shared one. */
#include "models/dense/dense.h"
#include "models/families.h"

void build_qwen3_next(Compile *c)
{
	build_dense(c, &(DenseTraits){.head_norm = true, .norm_one = true, .gate = true, .grouped = true});
}
