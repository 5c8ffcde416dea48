// what      n = rmsnorm(x); logits = n . router + router_bias; the TOPK largest of each row, with their shares of the
//           softmax; with shared_gate also sigmoid(n . shared_gate). Rows beyond step[0] stay as they are
// numerics  as route_rows; the bias is added in f32
// measured  H200, with a cold cache: see route_rows_sigmoid
// why       how, and why so: route_rows.cuh
#include "shared/contract.cuh"

KERNEL(route_rows_biased, norm_route)
#define SIGMOID 0
#define BIASED 1
#define SCALED 0
DIM(ROWS, 16)
#include "experts/route_contract.cuh"
#include "experts/route_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) route_rows_biased(const Args a) { route_rows_of(a); }
