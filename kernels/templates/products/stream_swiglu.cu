// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]); gate and up
//           may be codes with scales
// numerics  bf16(x * norm) times w, whose codes are decoded exactly, accumulated in f32; norm, scales of rows, biases,
//           silu and product in f32; one rounding. Same bits every run, whatever the rows beside
// measured  H100 SXM, in a chain of its own kind: 94 % of the read rate at one row of 8192 x 2048, 99 % at
//           14336 x 4096, which has 98 % for 8 rows, 97 % for 16, 88 % for 32; no spills
// codes     one row, H200, 8B gate and up: FP8 29.4 us, NVFP4 27.3 us with a ring of two turns; 44 and 43 with four
// why       how, and why so: stream_gated.cuh
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_swiglu, norm_swiglu)
#define MATRICES 2
#define NORM 1
#define RESIDUAL 0
#define LOGITS 0
#include "products/stream_contract.cuh"
#include "products/stream_gated.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_swiglu(const Args a)
{
	stream_gated(a, [](float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; });
}
