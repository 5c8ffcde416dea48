// what      counts[row_slot[t], row_token[t]] |= 2^30 for rows in use, unless scoring
// numerics  integers
// measured  not separately: what any launch takes
// why       the op alone; with the embedding after it embed_prompt does both
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_note_prompt, note_prompt)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 128)
DIM(SLOTS, 8)
DIM(V, 49152)
ORDER(plain)
GRID(ceil_div(ROWS, 128), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * 12)
WRITES(ROWS * 4)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, row_token, "ROWS");
	IN(i32, row_slot, "ROWS");
	INOUT(i32, counts, "SLOTS, V");
};

extern "C" __global__ void __launch_bounds__(128) plain_note_prompt(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x * 128 + threadIdx.x;
	if (t >= ROWS)
		return;
	const int slot = a.row_slot[t];
	if (t < a.step[0] && slot >= 0 && !(a.step[3] & 1))
		atomicOr(&a.counts[i64(slot) * V + a.row_token[t]], 1 << 30);
}
