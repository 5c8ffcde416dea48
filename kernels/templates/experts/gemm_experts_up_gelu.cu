// what      h[t,:] = for each of row t's experts share * gelu(gate n[t]) * (up n[t]), of pairs of row and expert that
//           stand in order by expert. Rows in no pair stay as they are
// numerics  as gemm_experts_up
// codes     as gemm_experts_up
// tiles     as gemm_experts_up
// bytes     as gemm_experts_up
// measured  not yet: no GPU has run it
// why       of few rows stream_experts_up_gelu streams the weights
#include "shared/contract.cuh"

KERNEL(gemm_experts_up_gelu, experts_up_gelu)
#include "experts/gemm_gated_contract.cuh"

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_up_gelu(const Args a)
{
	gated_experts(a, [](float gate, float up) { return gelu(gate) * up; });
}
