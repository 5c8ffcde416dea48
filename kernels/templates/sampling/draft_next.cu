// what      z[t,:] = rmsnorm of table[row_token[t],:] by embedding_norm, behind it that of rmsnorm(x[t,:]) by
//           hidden_norm
// numerics  norms in f32, one rounding: the first norm's result is not rounded. Same bits every run; batch-invariant
// measured  H100 SXM, in a chain of its own kind, one row of 2048: 2.2 us, little more than any launch takes
// why       a block a row makes all that stands before the head's product, since each launch costs more than this
#include "shared/contract.cuh"
#include "shared/join.cuh"

KERNEL(draft_next, draft_next)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(V, 49152)
DIM(H, 2048)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
DTYPES(WT, bf16, f16, f32)
DTYPES(NT, bf16, f16, f32)
DTYPES(ET, bf16, f16, f32)
DTYPES(HT, bf16, f16, f32)
REQUIRE(H % 8 == 0 && H <= 16384)
ORDER(norm_join)
GRID(ROWS, 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * (4 + H * (WT_BYTES + 2)) + H * (NT_BYTES + ET_BYTES + HT_BYTES))
WRITES(ROWS * H * 4)
FLOPS(ROWS * H * 12)
struct Args {
	IN(bf16, x, "ROWS, H");
	IN(NT, norm, "H");
	IN(i32, row_token, "ROWS");
	IN(WT, table, "V, H");
	IN(ET, embedding_norm, "H");
	IN(HT, hidden_norm, "H");
	OUT(bf16, z, "ROWS, 2 * H");
};

extern "C" __global__ void __launch_bounds__(256) draft_next(const Args a)
{
	__shared__ float scratch[8];
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x;
	BlockRow<H, 256> embedded, row;
	embedded.load(a.table + i64(a.row_token[t]) * H);
	row.load(a.x + i64(t) * H);
	embedded.norm<NORM_ONE != 0>(a.embedding_norm, float(EPS), scratch);
	row.norm<NORM_ONE != 0>(a.norm, float(EPS), scratch);
	row.norm<NORM_ONE != 0>(a.hidden_norm, float(EPS), scratch);
	embedded.store_to(a.z + i64(t) * 2 * H);
	row.store_to(a.z + i64(t) * 2 * H + H);
}
