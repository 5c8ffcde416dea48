// what      y[o,k] = rmsnorm(x[out_row[o],:])[k], for so many outs that their logits want operands that are done; idle
//           outs (-1): 0; outs beyond step[1] stay as they are
// numerics  squares summed in f32, in an order that K alone decides; one rounding. Same bits every run; an out's bits
//           do not depend on the others
// measured  not separately: one block an out
// why       as norm_rows
#include "shared/contract.cuh"
#include "shared/join.cuh"

KERNEL(norm_outs, norm_outs)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(OUTS, 128)
DIM(K, 4096)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
DTYPES(NT, bf16, f16, f32)
REQUIRE(K % 8 == 0)
ORDER(norm)
GRID(OUTS, 1, 1)
BLOCK(K < 32768 ? ceil_div(K, 1024) * 32 : 1024)
READS(OUTS * (K * 2 + 4) + K * NT_BYTES)
WRITES(OUTS * K * 2)
FLOPS(4 * OUTS * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(i32, out_row, "OUTS");
	IN(NT, norm, "K");
	OUT(bf16, y, "OUTS, K");
};

constexpr int threads = K < 32768 ? ceil_div(K, 1024) * 32 : 1024;

extern "C" __global__ void __launch_bounds__(threads) norm_outs(const Args a)
{
	__shared__ float sums[threads / 32];
	const int out = blockIdx.x, outs = a.step[1], from = a.out_row[out];
	let_next_start();
	inputs_ready();
	if (out >= outs)
		return;
	BlockRow<K, threads> row;
	if (from >= 0 && from < ROWS)
		row.load(a.x + i64(from) * K);
	else
		row.clear();
	row.template norm<NORM_ONE != 0>(a.norm, float(EPS), sums);
	row.store_to(a.y + i64(out) * K);
}
