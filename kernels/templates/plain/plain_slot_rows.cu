// what      row_token[t], row_pos[t] = slot_token[s], slot_len[s] of the row's slot s; 0, 0 of idle rows and ended
//           slots
// numerics  integers
// measured  not separately: what any launch takes
// why       the op alone; with the embedding after it embed_next does both
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_slot_rows, slot_rows)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 8)
DIM(SLOTS, 8)
ORDER(plain)
GRID(ceil_div(ROWS, 128), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * 12)
WRITES(ROWS * 8)
FLOPS(0)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	OUT(i32, row_token, "ROWS");
	OUT(i32, row_pos, "ROWS");
};

extern "C" __global__ void __launch_bounds__(128) plain_slot_rows(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x * 128 + threadIdx.x;
	if (t >= ROWS)
		return;
	const int slot = a.row_slot[t], token = slot < 0 ? -1 : a.slot_token[slot];
	a.row_token[t] = max(token, 0);
	a.row_pos[t] = token < 0 ? 0 : a.slot_len[slot];
}
