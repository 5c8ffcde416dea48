// what      n = rmsnorm(x); logits = n . router; the TOPK largest of each row, with their shares of the softmax; with
//           shared_gate also sigmoid(n . shared_gate). For steps of up to some hundred rows; rows beyond step[0] stay
//           as they are
// numerics  x times norm * router in f32, 1 / rms at the end, in an order that K alone decides; the softmax in f32; n
//           is rounded once. Same bits every run; a row's bits do not depend on the other rows
// measured  H200, 256 experts of 2048, in a chain of its own kind: 3.5 us at one row, 4.3 at 8, 4.6 at 16, 6.3 at 32,
//           9.1 at 64, 24 at 256 (route_tiles: 15.6 at 16, 17.1 at 64, 22 at 256)
// why       how, and why so: route_rows.cuh
#include "shared/contract.cuh"

KERNEL(route_rows, norm_route)
#define SIGMOID 0
#define BIASED 0
#define SCALED 0
DIM(ROWS, 16)
#include "experts/route_contract.cuh"
#include "experts/route_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) route_rows(const Args a) { route_rows_of(a); }
