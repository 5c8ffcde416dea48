// what      state[s,:] = 0 for each slot s with acquire[s] = 1
// numerics  zeros
// measured  not separately: it runs once a request
// why       a slot's state is set before anything reads it, so nothing of the sequence before can be seen
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(zero_slots, zero_slots)
ARCH(80)
NUMERICS(exact)
DIM(SLOTS, 8)
DIM(N, 524288)
DTYPES(ST, f32, bf16)
REQUIRE(ceil_div(N, 8192) <= 65535)
ORDER(exact)
GRID(SLOTS, ceil_div(N, 8192), 1)
BLOCK(256)
SMEM(0)
READS(SLOTS * 4)
WRITES(SLOTS * N * ST_BYTES)
FLOPS(0)
struct Args {
	IN(i32, acquire, "SLOTS");
	INOUT(ST, state, "SLOTS, N");
};

extern "C" __global__ void __launch_bounds__(256) zero_slots(const Args a)
{
	const int s = blockIdx.x, end = min(int(blockIdx.y + 1) * 8192, N);
	if (a.acquire[s] != 1)
		return;
	for (int i = blockIdx.y * 8192 + threadIdx.x; i < end; i += 256)
		store(a.state + i64(s) * N + i, 0.0f);
}
