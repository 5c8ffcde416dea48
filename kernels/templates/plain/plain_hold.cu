// what      held[s,:] = x[t,:], t the last row of slot s in the step; with slot_len, that at position slot_len[s] - 1
// numerics  a copy
// measured  not separately: bound by what it copies
// why       the op alone; with the norm before it and what follows follow_rows does all
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_hold, hold)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(K, 2048)
FLAG(SLOT_LEN)
REQUIRE(K % 8 == 0)
ORDER(plain)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (16 + K * 2))
WRITES(min(ROWS, SLOTS) * K * 2)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN_IF(SLOT_LEN, i32, slot_len, "SLOTS");
	INOUT(bf16, held, "SLOTS, K");
};

extern "C" __global__ void __launch_bounds__(128) plain_hold(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x, rows = a.step[0], slot = t < rows ? a.row_slot[t] : -1;
	if (slot < 0)
		return;
	if constexpr (SLOT_LEN) {
		if (a.slot_len[slot] != a.row_pos[t] + 1)
			return;
	} else if (t + 1 < rows && a.row_slot[t + 1] == slot) {
		return;
	}
	for (int i = threadIdx.x; i < K / 8; i += 128)
		reinterpret_cast<uint4 *>(a.held + i64(slot) * K)[i] = reinterpret_cast<const uint4 *>(a.x + i64(t) * K)[i];
}
