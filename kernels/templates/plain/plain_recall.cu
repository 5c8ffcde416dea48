// what      y[t,:] = held[row_slot[t],:]; idle rows: 0
// numerics  a copy
// measured  not separately: bound by what it copies
// why       the op alone; with what is around it draft_first does all
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_recall, recall)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(K, 4096)
REQUIRE(K % 8 == 0)
ORDER(plain)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (4 + K * 2))
WRITES(ROWS * K * 2)
FLOPS(0)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(bf16, held, "SLOTS, K");
	OUT(bf16, y, "ROWS, K");
};

extern "C" __global__ void __launch_bounds__(128) plain_recall(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x;
	const int slot = a.row_slot[t];
	const uint4 *from = slot < 0 ? nullptr : reinterpret_cast<const uint4 *>(a.held + i64(slot) * K);
	for (int i = threadIdx.x; i < K / 8; i += 128)
		reinterpret_cast<uint4 *>(a.y + i64(t) * K)[i] = from ? from[i] : make_uint4(0, 0, 0, 0);
}
