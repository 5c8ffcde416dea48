// what      z[t,:] = x[t,:] followed by y[t,:]
// numerics  a copy
// measured  not separately: bound by what it copies
// why       the op alone; with the norms before it draft_first, draft_next or follow_rows does all
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_join, join)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 3)
DIM(N, 2048)
DIM(M, 2048)
REQUIRE(N % 8 == 0 && M % 8 == 0)
ORDER(plain)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (N + M) * 2)
WRITES(ROWS * (N + M) * 2)
FLOPS(0)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(bf16, y, "ROWS, M");
	OUT(bf16, z, "ROWS, N + M");
};

extern "C" __global__ void __launch_bounds__(128) plain_join(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 t = blockIdx.x;
	const uint4 *const x = reinterpret_cast<const uint4 *>(a.x + t * N), *const y =
		reinterpret_cast<const uint4 *>(a.y + t * M);
	uint4 *const z = reinterpret_cast<uint4 *>(a.z + t * (N + M));
	for (int i = threadIdx.x; i < (N + M) / 8; i += 128)
		z[i] = i < N / 8 ? x[i] : y[i - N / 8];
}
