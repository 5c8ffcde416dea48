// what      z[t,n] = sum_j (down of row t's j-th expert)[n,:] . h[t, part j], the shared expert's part last; weights
//           may be codes with scales. For what is normed before it is added to anything
// numerics  as stream_experts_down
// measured  H200, FP8 2816 x 704, 8 of 128 experts, alone and with a cold cache: 11.4 us at one row, 100 us at 32
// why       how, and why so: stream_experts_down.cuh
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_sum, experts_down)
#define UP 0
#define LISTED 0
#define ALIKE 0
#define BIASED 0
#define RESIDUAL 0
DIM(ROWS, 1)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 512)
DIM(WIDTH, 4096)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(SWT, bf16, e4m3, e2m1)
FORMULA(bias_bytes(), 0)
#include "experts/experts_contract.cuh"
#include "experts/stream_experts_down.cuh"

extern "C" __global__ void __launch_bounds__(threads()) stream_experts_sum(const Args a)
{
	experts_down(a);
}
