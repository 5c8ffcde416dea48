// what      logits = FACTOR times rmsnorm(x) . router; the TOPK largest of each row, with their shares of the softmax,
//           each times what its expert has in `by`. Rows beyond step[0] stay as they are
// numerics  as route_rows; factor and shares in f32
// measured  H200, 128 experts of 2816, alone and with a cold cache: 8.7 us at one row, 12.6 at 32
// why       how, and why so: route_rows.cuh
#include "shared/contract.cuh"

KERNEL(route_rows_scaled, norm_route_scaled)
#define SIGMOID 0
#define BIASED 0
#define SCALED 1
DIM(ROWS, 16)
#include "experts/route_contract.cuh"
#include "experts/route_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) route_rows_scaled(const Args a) { route_rows_of(a); }
