// what      logits = FACTOR times rmsnorm(x) . router; the TOPK largest of each row, with their shares of the softmax,
//           each times what its expert has in `by`. Rows beyond step[0] stay as they are
// numerics  as route_tiles
// measured  not yet: no GPU has run it
// why       how, and why so: route_tiles.cuh
#include "shared/contract.cuh"

KERNEL(route_tiles_scaled, norm_route_scaled)
#define SIGMOID 0
#define BIASED 0
#define SCALED 1
DIM(ROWS, 512)
#include "experts/route_contract.cuh"
#include "experts/route_tiles.cuh"

extern "C" __global__ void __launch_bounds__(256) route_tiles_scaled(const Args a) { route_tiles_of(a); }
