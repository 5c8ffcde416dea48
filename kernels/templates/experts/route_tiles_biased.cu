// what      n = rmsnorm(x); logits = n . router + router_bias; the TOPK largest of each row, with their shares of the
//           softmax; with shared_gate also sigmoid(n . shared_gate). Rows beyond step[0] stay as they are
// numerics  as route_tiles
// measured  not yet: no GPU has run it
// why       how, and why so: route_tiles.cuh
#include "shared/contract.cuh"

KERNEL(route_tiles_biased, norm_route)
#define SIGMOID 0
#define BIASED 1
#define SCALED 0
DIM(ROWS, 512)
#include "experts/route_contract.cuh"
#include "experts/route_tiles.cuh"

extern "C" __global__ void __launch_bounds__(256) route_tiles_biased(const Args a) { route_tiles_of(a); }
