// what      pair = the numbers t * TOPK + j of rows in use, those of expert 0 first, then those of expert 1 and so on,
//           each in ascending order, -1 behind the last; first[e] = where those of expert e begin
// numerics  whole numbers: the same order every run
// why       a block is an expert's: it counts the pairs of lower experts and writes its own, so that no block waits for
//           another. All read all ids, which is little and lies in the L2 cache
#include "contract.cuh"
#include "types.cuh"

KERNEL(group_rows, group_rows)
ARCH(80)
NUMERICS(exact)
DIM(ROWS, 512)
DIM(FIRSTS, 257)
ATTR_INT(TOPK, 8)
REQUIRE(FIRSTS >= 2)
GRID(FIRSTS - 1, 1, 1)
BLOCK(256)
READS(ROWS * TOPK * 4)
WRITES(ROWS * TOPK * 4 + FIRSTS * 4)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, expert, "ROWS, TOPK");
	OUT(i32, pair, "ROWS * TOPK");
	OUT(i32, first, "FIRSTS");
};

extern "C" __global__ void __launch_bounds__(256) group_rows(const Args a)
{
	constexpr int warps = 8, each = ceil_div(ROWS * TOPK, 256);
	__shared__ int lower_of[warps], own_of[warps];
	let_next_start();
	inputs_ready();
	const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int pairs = min(a.step[0], ROWS) * TOPK, begin = threadIdx.x * each, end = min(begin + each, pairs);
	int lower = 0, own = 0;
	for (int p = begin; p < end; p++) {
		const int e = a.expert[p];
		lower += e < expert;
		own += e == expert;
	}
	int upto = own; // of the warp's threads up to this one
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		const int before = __shfl_up_sync(~0u, upto, m);
		upto += lane >= m ? before : 0;
		lower += __shfl_xor_sync(~0u, lower, m);
	}
	if (lane == 31) {
		lower_of[warp] = lower;
		own_of[warp] = upto;
	}
	__syncthreads();
	int start = 0, at = upto - own;
#pragma unroll
	for (int i = 0; i < warps; i++) {
		start += lower_of[i];
		at += i < warp ? own_of[i] : 0;
	}
	at += start;
	for (int p = begin; p < end; p++)
		if (a.expert[p] == expert)
			a.pair[at++] = p;
	for (int p = pairs + expert * 256 + int(threadIdx.x); p < ROWS * TOPK; p += int(gridDim.x) * 256)
		a.pair[p] = -1;
	if (threadIdx.x == 0)
		a.first[expert] = start;
	if (threadIdx.x == 0 && expert == FIRSTS - 2)
		a.first[FIRSTS - 1] = pairs;
}
