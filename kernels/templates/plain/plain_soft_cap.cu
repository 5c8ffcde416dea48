// what      y = CAP * tanh(x / CAP)
// numerics  f32 from the input to the one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       logits of a vocabulary of any size, so an element a thread
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_soft_cap, soft_cap)
ARCH(80)
NUMERICS(f32, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(N, 128256)
ATTR_FLOAT(CAP, 30.0f)
DTYPES(XT, f32, bf16)
REQUIRE(ROWS <= 65535)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * N * XT_BYTES)
WRITES(ROWS * N * XT_BYTES)
FLOPS(ROWS * N * 10)
struct Args {
	IN(XT, x, "ROWS, N");
	OUT(XT, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256) plain_soft_cap(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 row = i64(blockIdx.y) * N;
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int n = first; n < first + 1024; n += 256)
		if (n < N)
			store(a.y + row + n, float(CAP) * tanhf(to_f32(a.x[row + n]) / float(CAP)));
}
