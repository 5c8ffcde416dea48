// what      y[t,m] = x[t, FIRST + m]
// numerics  a copy; batch-invariant
// measured  not yet
// why       the op alone: of rows that hold what every layer reads, the columns of one
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_columns, columns)
ARCH(80)
NUMERICS(exact, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(N, 8960)
DIM(M, 256)
ATTR_INT(FIRST, 0)
REQUIRE(ROWS <= 65535)
REQUIRE(FIRST >= 0 && FIRST + M <= N)
GRID(ceil_div(M, 1024), ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * M * 2)
WRITES(ROWS * M * 2)
FLOPS(0)
struct Args {
	IN(bf16, x, "ROWS, N");
	OUT(bf16, y, "ROWS, M");
};

extern "C" __global__ void __launch_bounds__(256) plain_columns(const Args a)
{
	let_next_start();
	inputs_ready();
	const bf16 *const x = a.x + i64(blockIdx.y) * N + FIRST;
	bf16 *const y = a.y + i64(blockIdx.y) * M;
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int m = first; m < first + 1024; m += 256)
		if (m < M)
			y[m] = x[m];
}
