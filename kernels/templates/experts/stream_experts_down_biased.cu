// what      z[t,n] = residual[t,n] + sum_j (down of row t's j-th expert)[n,:] . h[t, part j] + share[t,j] times its
//           bias[n]; weights may be codes with scales
// numerics  each expert's product accumulated in f32, to which its bias is added, these added in the order of the row's
//           choice, then the residual; one rounding. Same bits every run, whatever the rows beside
// measured  H200, MXFP4 2880 x 2880, 4 of 32 experts, alone and with a cold cache: 30 us at one row, 13 % of the read
//           rate, for the reason that stream_experts_up_clamped has
// why       how, and why so: stream_experts_down.cuh
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_down_biased, experts_down)
#define UP 0
#define LISTED 0
#define ALIKE 0
#define BIASED 1
DIM(ROWS, 1)
DIM(K, 2880)
DIM(EXPERTS, 32)
DIM(N, 1440)
DIM(WIDTH, 11520)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(SWT, bf16, e4m3, e2m1)
DTYPES(BT, bf16, f16, f32)
FORMULA(bias_bytes(), K * BT_BYTES)
#include "experts/experts_contract.cuh"
#include "experts/stream_experts_down.cuh"

extern "C" __global__ void __launch_bounds__(threads())
stream_experts_down_biased(const Args a)
{
	experts_down(a);
}
