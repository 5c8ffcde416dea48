// what      row t is the j-th in a run of rows of slot s = row_slot[t]: row_token[t] = slot_token[s] of the
//           first, slot_draft[s, j - 1] of the others; row_pos[t] = slot_len[s] + j; x[t,:] = table[row_token[t],:]
//           idle rows (slot -1): token 0, position 0; ended slots (slot_token -1): token 0, position j
// numerics  a copy; f16 and f32 tables are rounded to bf16
// measured  H100 SXM, in a chain of its own kind, three rows of 2048: 1.5 us, what any launch takes
// why       the first kernel of a verify step takes its tokens from the device, where the drafts of the step lie
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(embed_verify, embed_verify)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(DRAFTS, 2)
DIM(V, 49152)
DIM(H, 576)
DTYPES(WT, bf16, f16, f32)
REQUIRE(H % 8 == 0)
ORDER(exact)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (16 + H * WT_BYTES))
WRITES(ROWS * (8 + H * 2))
FLOPS(0)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(i32, slot_draft, "SLOTS, DRAFTS");
	IN(WT, table, "V, H");
	OUT(i32, row_token, "ROWS");
	OUT(i32, row_pos, "ROWS");
	OUT(bf16, x, "ROWS, H");
};

static_assert(H % 8 == 0, "rows of the table are read 8 elements at a time");

extern "C" __global__ void __launch_bounds__(128) embed_verify(const Args a)
{
	let_next_start();
	const int t = blockIdx.x, slot = a.row_slot[t];
	int j = 0; // rows of the slot before it
#pragma unroll
	for (int i = 1; i <= DRAFTS; i++)
		j += j == i - 1 && t >= i && a.row_slot[t - i] == slot;
	inputs_ready();
	const int last = slot < 0 ? -1 : a.slot_token[slot];
	const int token = last < 0 ? 0 : j ? a.slot_draft[i64(slot) * DRAFTS + j - 1] : last;
	if (threadIdx.x == 0) {
		a.row_token[t] = token;
		a.row_pos[t] = slot < 0 ? 0 : last < 0 ? j : a.slot_len[slot] + j;
	}
	for (int i = threadIdx.x; i < H / 8; i += 128) {
		float v[8];
		unpack(load8(a.table + i64(token) * H + i * 8), v);
		reinterpret_cast<uint4 *>(a.x + i64(t) * H)[i] = pack8(v);
	}
}
