// what      h[t,:] = for each of row t's experts share * min(silu(gate n[t]), GATE_LIMIT) * (up n[t], within
//           -GATE_LIMIT and GATE_LIMIT), of pairs of row and expert that stand in order by expert. Rows in no pair stay
//           as they are
// numerics  as gemm_experts_up
// codes     as gemm_experts_up
// tiles     as gemm_experts_up
// bytes     as gemm_experts_up
// measured  not yet: no GPU has run it
// why       of few rows stream_experts_up_limited streams the weights
#include "shared/contract.cuh"

KERNEL(gemm_experts_up_limited, experts_up_limited)
ATTR_FLOAT(GATE_LIMIT, 7.0f)
#include "experts/gemm_gated_contract.cuh"

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_up_limited(const Args a)
{
	gated_experts(a, [](float gate, float up) { return limited_swiglu(gate, up, float(GATE_LIMIT)); });
}
