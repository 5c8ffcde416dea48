// what      of row t of slot s: row_token[t] = slot_token[s], row_pos[t] = slot_len[s] - 1, and z[t,:] = rmsnorm of
//           table[row_token[t],:] by embedding_norm, behind it that of held[s,:] by hidden_norm; of every slot
//           draft_len = slot_len - 1, at least 0. Ended slots: token 0, position 0; idle rows besides: zeros for held
// numerics  norms in f32, one rounding. Same bits every run; batch-invariant
// measured  H100 SXM, in a chain of its own kind, one row of 2048: 2.3 us, little more than any launch takes
// why       a block a row makes all that stands before the head's first product, since each launch costs more than this
#include "shared/contract.cuh"
#include "shared/join.cuh"

KERNEL(draft_first, draft_first)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(H, 2048)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
DTYPES(WT, bf16, f16, f32)
DTYPES(ET, bf16, f16, f32)
DTYPES(HT, bf16, f16, f32)
REQUIRE(H % 8 == 0 && H <= 16384)
ORDER(norm_join)
GRID(ROWS, 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * (12 + H * (WT_BYTES + 2)) + H * (ET_BYTES + HT_BYTES) + SLOTS * 4)
WRITES(ROWS * (8 + H * 4) + SLOTS * 4)
FLOPS(ROWS * H * 8)
struct Args {
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(bf16, held, "SLOTS, H");
	IN(WT, table, "V, H");
	IN(ET, embedding_norm, "H");
	IN(HT, hidden_norm, "H");
	OUT(i32, row_token, "ROWS");
	OUT(i32, row_pos, "ROWS");
	OUT(i32, draft_len, "SLOTS");
	OUT(bf16, z, "ROWS, 2 * H");
};

extern "C" __global__ void __launch_bounds__(256) draft_first(const Args a)
{
	__shared__ float scratch[8];
	let_next_start();
	const int t = blockIdx.x, slot = a.row_slot[t];
	inputs_ready();
	const int last = slot < 0 ? -1 : a.slot_token[slot], token = max(last, 0);
	if (threadIdx.x == 0) {
		a.row_token[t] = token;
		a.row_pos[t] = last < 0 ? 0 : max(a.slot_len[slot] - 1, 0);
	}
	for (int s = threadIdx.x; t == 0 && s < SLOTS; s += 256)
		a.draft_len[s] = max(a.slot_len[s] - 1, 0);
	BlockRow<H, 256> embedded, row;
	embedded.load(a.table + i64(token) * H);
	if (slot < 0)
		row.clear();
	else
		row.load(a.held + i64(slot) * H);
	embedded.norm<NORM_ONE != 0>(a.embedding_norm, float(EPS), scratch);
	row.norm<NORM_ONE != 0>(a.hidden_norm, float(EPS), scratch);
	embedded.store_to(a.z + i64(t) * 2 * H);
	row.store_to(a.z + i64(t) * 2 * H + H);
}
