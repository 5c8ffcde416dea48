// what      z = x + y
// numerics  f32, one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone: a sum after a norm, or of two branches, which no product can take along
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_add, add)
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
READS(ROWS * N * 4)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(bf16, y, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_add(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= N)
		return;
	float v[8], y[8];
	unpack(load8(a.x + i64(t) * N + n), v);
	unpack(load8(a.y + i64(t) * N + n), y);
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] += y[e];
	*reinterpret_cast<uint4 *>(a.z + i64(t) * N + n) = pack8(v);
}
