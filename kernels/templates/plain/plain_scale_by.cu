// what      y = w[0] * x
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  not yet
// why       the op alone: a layer's output times a number that the checkpoint has, one kernel for all layers
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_scale_by, scale_by)
ARCH(80)
NUMERICS(f32, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(N, 4096)
DTYPES(WT, bf16, f16, f32)
REQUIRE(ROWS <= 65535)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * N * 2 + WT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(WT, w, "1");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256) plain_scale_by(const Args a)
{
	let_next_start();
	const float factor = to_f32(a.w[0]);
	inputs_ready();
	const i64 row = i64(blockIdx.y) * N;
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int n = first; n < first + 1024; n += 256)
		if (n < N)
			store(a.y + row + n, factor * to_f32(a.x[row + n]));
}
