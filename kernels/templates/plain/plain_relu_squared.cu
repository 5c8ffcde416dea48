// what      y = max(x, 0)^2
// numerics  f32 from the input to the one rounding; NaN stays NaN; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone, of what a product has written
#include "shared/contract.cuh"
#include "shared/activation.cuh"

KERNEL(plain_relu_squared, relu_squared)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * N * 2)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N * 2)
struct Args {
	IN(bf16, x, "ROWS, N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_relu_squared(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= N)
		return;
	float v[8];
	unpack(load8(a.x + i64(t) * N + n), v);
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] = v[e] < 0.0f ? 0.0f : v[e] * v[e];
	*reinterpret_cast<uint4 *>(a.y + i64(t) * N + n) = pack8(v);
}
