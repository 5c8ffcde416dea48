// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]); gate and up may be codes
//           with scales. For so few rows that tiles do not take them
// numerics  as stream_swiglu, without a norm
// measured  H200, alone and with a cold cache, one row: 27648 x 5120 in bf16 133.6 us, 91 % of the read rate
// why       how, and why so: stream_gated.cuh
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_linear_swiglu, linear_swiglu)
#define MATRICES 2
#define NORM 0
#define RESIDUAL 0
#define LOGITS 0
#include "products/stream_contract.cuh"
REQUIRE(ROWS <= 16)
#include "products/stream_gated.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_linear_swiglu(const Args a)
{
	stream_gated(a, [](float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; });
}
