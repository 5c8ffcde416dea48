// what      p = softmax(logits[t,:]); expert[t,:] = the TOPK largest, the lowest id among equals; share[t,j] = their
//           p, with NORM_TOPK over the sum of these
// numerics  f32; the choice is exact. Same bits every run; batch-invariant
// measured  not separately: what any launch takes
// why       the op alone; with the norm and the router's product before it route_rows or route_tiles does all
#include "shared/contract.cuh"
#include "experts/route.cuh"

KERNEL(plain_route, route)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(EXPERTS, 128)
ATTR_INT(TOPK, 8)
ATTR_INT(NORM_TOPK, 1)
REQUIRE(TOPK <= EXPERTS && TOPK <= 32 && EXPERTS <= 1024)
ORDER(plain)
GRID(ceil_div(ROWS, 4), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * EXPERTS * 4)
WRITES(ROWS * TOPK * 8)
FLOPS(ROWS * EXPERTS * 4)
struct Args {
	IN(f32, logits, "ROWS, EXPERTS");
	OUT(i32, expert, "ROWS, TOPK");
	OUT(f32, share, "ROWS, TOPK");
};

extern "C" __global__ void __launch_bounds__(128) plain_route(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 t = blockIdx.x * 4 + threadIdx.x / 32;
	if (t < ROWS)
		route_row<EXPERTS, TOPK, NORM_TOPK != 0>(a.logits + t * EXPERTS, a.expert + t * TOPK, a.share + t * TOPK);
}
