// what      of each row t in use, n = rmsnorm(x[t,:]): z[t,:] = rmsnorm of table[row_next[t],:] by embedding_norm,
//           behind it that of n by hidden_norm; held[s,:] = n of the last row of slot s in the step, or with slot_len
//           that at position slot_len[s] - 1
// numerics  norms in f32, one rounding: n is not rounded but in held. Same bits every run; batch-invariant
// measured  H100 SXM, in a chain of its own kind, three rows of 2048: 2.5 us, little more than any launch takes
// why       a block a row makes all that stands between the model's rows and the head's product
#include "shared/contract.cuh"
#include "shared/join.cuh"

KERNEL(follow_rows, follow_rows)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(H, 2048)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
FLAG(SLOT_LEN)
DTYPES(WT, bf16, f16, f32)
DTYPES(NT, bf16, f16, f32)
DTYPES(ET, bf16, f16, f32)
DTYPES(HT, bf16, f16, f32)
REQUIRE(H % 8 == 0 && H <= 16384)
ORDER(norm_join)
GRID(ROWS, 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * (16 + H * (WT_BYTES + 2)) + H * (NT_BYTES + ET_BYTES + HT_BYTES))
WRITES(ROWS * H * 4 + min(ROWS, SLOTS) * H * 2)
FLOPS(ROWS * H * 12)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, H");
	IN(NT, norm, "H");
	IN(i32, row_next, "ROWS");
	IN(WT, table, "V, H");
	IN(ET, embedding_norm, "H");
	IN(HT, hidden_norm, "H");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN_IF(SLOT_LEN, i32, slot_len, "SLOTS");
	INOUT(bf16, held, "SLOTS, H");
	OUT(bf16, z, "ROWS, 2 * H");
};

extern "C" __global__ void __launch_bounds__(256) follow_rows(const Args a)
{
	__shared__ float scratch[8];
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x, rows = a.step[0];
	if (t >= rows)
		return;
	const int slot = a.row_slot[t];
	bool holds = slot >= 0;
	if (holds) {
		if constexpr (SLOT_LEN)
			holds = a.slot_len[slot] == a.row_pos[t] + 1;
		else
			holds = t + 1 >= rows || a.row_slot[t + 1] != slot;
	}
	BlockRow<H, 256> embedded, row;
	embedded.load(a.table + i64(a.row_next[t]) * H);
	row.load(a.x + i64(t) * H);
	embedded.norm<NORM_ONE != 0>(a.embedding_norm, float(EPS), scratch);
	row.norm<NORM_ONE != 0>(a.norm, float(EPS), scratch);
	if (holds)
		row.store_to(a.held + i64(slot) * H);
	row.norm<NORM_ONE != 0>(a.hidden_norm, float(EPS), scratch);
	embedded.store_to(a.z + i64(t) * 2 * H);
	row.store_to(a.z + i64(t) * 2 * H + H);
}
