// what      own[t,j] = expert[t,j] - rank * OWN where that is one of OWN experts, else -1
// numerics  whole numbers
// measured  not separately: a few KiB are read
// why       each rank has OWN whole experts; pairs of a row and another rank's expert are in no order of this one
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_own_experts, own_experts)
ARCH(80)
NUMERICS(exact)
DIM(ROWS, 1)
DIM(TOPK, 8)
ATTR_INT(OWN, 64)
ORDER(exact)
GRID(ceil_div(ROWS * TOPK, 256), 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * TOPK * 4 + 4)
WRITES(ROWS * TOPK * 4)
FLOPS(0)
struct Args {
	IN(i32, rank, "1");
	IN(i32, expert, "ROWS, TOPK");
	OUT(i32, own, "ROWS, TOPK");
};

extern "C" __global__ void __launch_bounds__(256) plain_own_experts(const Args a)
{
	let_next_start();
	inputs_ready();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= ROWS * TOPK)
		return;
	const int own = a.expert[i] - a.rank[0] * OWN;
	a.own[i] = u32(own) < u32(OWN) ? own : -1;
}
