// what      slot_draft[s, row_pos[t] + 1 - slot_len[s]] = row_token[t] = drawn[t], 0 for -1; row_pos[t] += 1. Rows
//           whose place is none, of idle rows and ended sequences, stay as they are
// numerics  integers
// measured  not separately: what any launch takes
// why       the op alone; with the draw before it draw_draft does both
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_keep_draft, keep_draft)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(DRAFTS, 2)
ORDER(plain)
GRID(ceil_div(ROWS, 128), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * 16)
WRITES(ROWS * 12)
FLOPS(0)
struct Args {
	IN(i32, drawn, "ROWS");
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_len, "SLOTS");
	INOUT(i32, slot_draft, "SLOTS, DRAFTS");
	INOUT(i32, row_token, "ROWS");
	INOUT(i32, row_pos, "ROWS");
};

extern "C" __global__ void __launch_bounds__(128) plain_keep_draft(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x * 128 + threadIdx.x;
	if (t >= ROWS)
		return;
	const int slot = a.row_slot[t], i = slot < 0 ? -1 : a.row_pos[t] + 1 - a.slot_len[slot];
	if (i < 0 || i >= DRAFTS)
		return;
	const int token = max(a.drawn[t], 0);
	a.slot_draft[i64(slot) * DRAFTS + i] = token;
	a.row_token[t] = token;
	a.row_pos[t]++;
}
