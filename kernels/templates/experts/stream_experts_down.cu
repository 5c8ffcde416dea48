// what      z[t,n] = residual[t,n] + sum_j (down of row t's j-th expert)[n,:] . h[t, part j], the shared expert's part
//           last; weights may be codes with scales
// numerics  each expert's product accumulated in f32, these added in the order of the row's choice, then the residual;
//           one rounding. Same bits every run, whatever the rows beside
// why       how, and why so: stream_experts_down.cuh
// measured  H100 SXM, in a chain of its own kind, one row: FP8 2048 x 512 with the shared expert 5.7 us, 54 % of the
//           read rate, NVFP4 5.0 us; bf16 2048 x 768 10.8 us, 76 %; FP8 8 rows 99 %. Two turns cost codes of one row
//           half as much again, four cost more rows a fifth
// rows      up to 8 that chose the same expert read its weights at the same time, all but one from the L2 cache: READS
//           counts an expert once
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_down, experts_down)
#define UP 0
#define LISTED 0
#define ALIKE 0
#define BIASED 0
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

extern "C" __global__ void __launch_bounds__(threads()) stream_experts_down(const Args a)
{
	experts_down(a);
}
