// what      row t is the j-th in a run of rows of its slot: row_token[t] = slot_token[s], or draft j - 1;
//           row_pos[t] = slot_len[s] + j. Ended slots: 0, j; idle rows: 0, 0
// numerics  integers
// measured  not separately: what any launch takes
// why       the op alone; with the embedding after it embed_verify does both
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_verify_rows, verify_rows)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(DRAFTS, 2)
ORDER(plain)
GRID(ceil_div(ROWS, 128), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * 16)
WRITES(ROWS * 8)
FLOPS(0)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(i32, slot_draft, "SLOTS, DRAFTS");
	OUT(i32, row_token, "ROWS");
	OUT(i32, row_pos, "ROWS");
};

extern "C" __global__ void __launch_bounds__(128) plain_verify_rows(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x * 128 + threadIdx.x;
	if (t >= ROWS)
		return;
	const int slot = a.row_slot[t], last = slot < 0 ? -1 : a.slot_token[slot];
	int j = 0; // rows of the slot before it
#pragma unroll
	for (int i = 1; i <= DRAFTS; i++)
		j += j == i - 1 && t >= i && a.row_slot[t - i] == slot;
	a.row_token[t] = last < 0 ? 0 : j ? a.slot_draft[i64(slot) * DRAFTS + j - 1] : last;
	a.row_pos[t] = slot < 0 ? 0 : last < 0 ? j : a.slot_len[slot] + j;
}
