// what      h[t,:] = for each of row t's experts share * gelu(gate n[t]) * (up n[t]); weights may be codes with scales
// numerics  as stream_experts_up
// measured  H200, FP8 1408 x 2816, 8 of 128 experts, alone and with a cold cache: 14.4 us at one row, 48 % of the
//           read rate, 137 us at 32 rows, 80 %
// why       as stream_experts_up
#include "shared/contract.cuh"

KERNEL(stream_experts_up_gelu, experts_up_gelu)
#define CLAMPED 0
#include "experts/stream_gated_contract.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(1, tiles(), bits_of<WT>))
stream_experts_up_gelu(const Args a)
{
	stream_gated(a, [](float gate, float up) { return gelu(gate) * up; });
}
