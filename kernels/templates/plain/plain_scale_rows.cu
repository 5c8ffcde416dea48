// what      y[t,n] = share[t,0] * x[t,n]
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  not yet
// why       the op alone: rows times their one share before an expert reads them
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_scale_rows, scale_rows)
ARCH(80)
NUMERICS(f32, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(N, 4096)
REQUIRE(ROWS <= 65535)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * (N * 2 + 4))
WRITES(ROWS * N * 2)
FLOPS(ROWS * N)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(f32, share, "ROWS, 1");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256) plain_scale_rows(const Args a)
{
	let_next_start();
	inputs_ready();
	const float factor = a.share[blockIdx.y];
	const i64 row = i64(blockIdx.y) * N;
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int n = first; n < first + 1024; n += 256)
		if (n < N)
			store(a.y + row + n, factor * to_f32(a.x[row + n]));
}
