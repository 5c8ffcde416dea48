// what      y[o,:] = x[out_row[o],:]; idle outs (-1): 0
// numerics  a copy
// measured  not separately: bound by what it copies
// why       the op alone: the heads of the fused plans gather on the way
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_gather, gather)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 128)
DIM(OUTS, 8)
DIM(K, 4096)
REQUIRE(K % 8 == 0)
ORDER(plain)
GRID(OUTS, 1, 1)
BLOCK(128)
SMEM(0)
READS(OUTS * (4 + K * 2))
WRITES(OUTS * K * 2)
FLOPS(0)
struct Args {
	IN(bf16, x, "ROWS, K");
	IN(i32, out_row, "OUTS");
	OUT(bf16, y, "OUTS, K");
};

extern "C" __global__ void __launch_bounds__(128) plain_gather(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x;
	const int row = a.out_row[t];
	const uint4 *from = row < 0 ? nullptr : reinterpret_cast<const uint4 *>(a.x + i64(row) * K);
	for (int i = threadIdx.x; i < K / 8; i += 128)
		reinterpret_cast<uint4 *>(a.y + i64(t) * K)[i] = from ? from[i] : make_uint4(0, 0, 0, 0);
}
