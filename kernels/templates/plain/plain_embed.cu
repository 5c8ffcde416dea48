// what      x[t,:] = table[row_token[t],:]
// numerics  a copy; f16 and f32 tables are rounded to bf16
// measured  not separately: bound by the table rows it copies
// why       the op alone, for what no fusion covers
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_embed, embed)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 128)
DIM(V, 49152)
DIM(H, 576)
DTYPES(WT, bf16, f16, f32)
REQUIRE(H % 8 == 0)
ORDER(plain)
GRID(ROWS, 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (4 + H * WT_BYTES))
WRITES(ROWS * H * 2)
FLOPS(0)
struct Args {
	IN(i32, row_token, "ROWS");
	IN(WT, table, "V, H");
	OUT(bf16, x, "ROWS, H");
};

extern "C" __global__ void __launch_bounds__(128) plain_embed(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 t = blockIdx.x, token = a.row_token[t];
	for (int i = threadIdx.x; i < H / 8; i += 128) {
		float v[8];
		unpack(load8(a.table + token * H + i * 8), v);
		reinterpret_cast<uint4 *>(a.x + t * H)[i] = pack8(v);
	}
}
