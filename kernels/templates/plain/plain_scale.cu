// what      y = FACTOR * x
// numerics  f32 from the input to the one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone: embeddings of a decoder that scales them
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_scale, scale)
ARCH(80)
NUMERICS(f32, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(N, 4096)
ATTR_FLOAT(FACTOR, 48.0f)
DTYPES(XT, f32, bf16)
REQUIRE(ROWS <= 65535)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * N * XT_BYTES)
WRITES(ROWS * N * XT_BYTES)
FLOPS(ROWS * N)
struct Args {
	IN(XT, x, "ROWS, N");
	OUT(XT, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256) plain_scale(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 row = i64(blockIdx.y) * N;
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int n = first; n < first + 1024; n += 256)
		if (n < N)
			store(a.y + row + n, float(FACTOR) * to_f32(a.x[row + n]));
}
