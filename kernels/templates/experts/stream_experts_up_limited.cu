// what      h[t,:] = for each of row t's experts share * min(silu(gate n[t]), GATE_LIMIT) * (up n[t], within
//           -GATE_LIMIT and GATE_LIMIT); weights may be codes with scales
// numerics  as stream_experts_up
// measured  not yet; right on an H200
// why       as stream_experts_up
#include "shared/contract.cuh"

KERNEL(stream_experts_up_limited, experts_up_limited)
ATTR_FLOAT(GATE_LIMIT, 7.0f)
#define CLAMPED 0
#include "experts/stream_gated_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(1, tiles(), bits_of<WT>))
stream_experts_up_limited(const Args a)
{
	stream_gated(a, [](float gate, float up) { return limited_swiglu(gate, up, float(GATE_LIMIT)); });
}
