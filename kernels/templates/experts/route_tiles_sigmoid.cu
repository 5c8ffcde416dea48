// what      n = rmsnorm(x); logits = n . router; the experts of each row by route_sigmoid; where a row has one share
//           more, it is 1. Rows beyond step[0] stay as they are
// numerics  as route_tiles
// measured  not yet: no GPU has run it
// why       how, and why so: route_tiles.cuh
#include "shared/contract.cuh"

KERNEL(route_tiles_sigmoid, norm_route_sigmoid)
#define SIGMOID 1
#define BIASED 0
#define SCALED 0
DIM(ROWS, 512)
#include "experts/route_contract.cuh"
#include "experts/route_tiles.cuh"

extern "C" __global__ void __launch_bounds__(256) route_tiles_sigmoid(const Args a) { route_tiles_of(a); }
