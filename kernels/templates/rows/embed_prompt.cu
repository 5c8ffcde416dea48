// what      x[t,:] = table[row_token[t],:]; for rows in use, unless scoring: counts[row_slot[t], row_token[t]] |= 2^30
// numerics  a copy; f16 and f32 tables are rounded to bf16. The mark is an integer or: any order, same bits
// measured  not separately: bound by the table rows it copies
// why       marking the prompt here costs no launch, and penalties need it before the first sample
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(embed_prompt, embed_prompt)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 128)
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
WRITES(ROWS * (4 + H * 2))
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, row_token, "ROWS");
	IN(i32, row_slot, "ROWS");
	IN(WT, table, "V, H");
	INOUT(i32, counts, "SLOTS, V");
	OUT(bf16, x, "ROWS, H");
};

static_assert(H % 8 == 0, "rows of the table are read 8 elements at a time");

extern "C" __global__ void __launch_bounds__(128) embed_prompt(const Args a)
{
	let_next_start();
	inputs_ready();
	const int t = blockIdx.x;
	const int token = a.row_token[t], slot = a.row_slot[t];
	const bool in_use = t < a.step[0] && slot >= 0, scoring = a.step[3] & 1;
	if (threadIdx.x == 0 && in_use && !scoring)
		atomicOr(&a.counts[i64(slot) * V + token], 1 << 30);
	for (int i = threadIdx.x; i < H / 8; i += 128) {
		float v[8];
		unpack(load8(a.table + i64(token) * H + i * 8), v);
		reinterpret_cast<uint4 *>(a.x + i64(t) * H)[i] = pack8(v);
	}
}
