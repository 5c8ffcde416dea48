// what      row_token[t] = slot_token[row_slot[t]]; row_pos[t] = slot_len[row_slot[t]]; x[t,:] = table[row_token[t],:]
//           idle rows (slot -1) and ended slots (slot_token -1): token 0, position 0
// numerics  a copy; f16 and f32 tables are rounded to bf16
// measured  H100 SXM: 2.4 us for one row, little more than any launch takes
// why       the first kernel of a decode step takes its tokens from the device, so the host never waits for one
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(embed_next, embed_next)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(H, 576)
DTYPES(WT, bf16, f16, f32)
REQUIRE(H % 8 == 0)
ORDER(exact)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (12 + H * WT_BYTES))
WRITES(ROWS * (8 + H * 2))
FLOPS(0)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(WT, table, "V, H");
	OUT(i32, row_token, "ROWS");
	OUT(i32, row_pos, "ROWS");
	OUT(bf16, x, "ROWS, H");
};

static_assert(H % 8 == 0, "rows of the table are read 8 elements at a time");

extern "C" __global__ void __launch_bounds__(128) embed_next(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x;
	const int slot = a.row_slot[t];
	const int last = slot < 0 ? -1 : a.slot_token[slot], token = max(last, 0);
	if (threadIdx.x == 0) {
		a.row_token[t] = token;
		a.row_pos[t] = last < 0 ? 0 : a.slot_len[slot];
	}
	for (int i = threadIdx.x; i < H / 8; i += 128) {
		float v[8];
		unpack(load8(a.table + i64(token) * H + i * 8), v);
		reinterpret_cast<uint4 *>(a.x + i64(t) * H)[i] = pack8(v);
	}
}
