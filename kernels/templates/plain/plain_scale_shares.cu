// what      y[t,j] = share[t,j] * w[expert[t,j]]
// numerics  f32, one rounding; batch-invariant
// measured  not yet
// why       the op alone: shares of a router whose experts have a factor each
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_scale_shares, scale_shares)
ARCH(80)
NUMERICS(f32, batch_invariant)
ORDER(plain)
DIM(ROWS, 1)
DIM(J, 8)
DIM(EXPERTS, 128)
DTYPES(WT, bf16, f16, f32)
GRID(ceil_div(ROWS * J, 256), 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * J * 8 + min(ROWS * J, EXPERTS) * WT_BYTES)
WRITES(ROWS * J * 4)
FLOPS(ROWS * J)
struct Args {
	IN(f32, share, "ROWS, J");
	IN(i32, expert, "ROWS, J");
	IN(WT, w, "EXPERTS");
	OUT(f32, y, "ROWS, J");
};

extern "C" __global__ void __launch_bounds__(256) plain_scale_shares(const Args a)
{
	let_next_start();
	inputs_ready();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i < ROWS * J)
		a.y[i] = a.share[i] * to_f32(a.w[a.expert[i]]);
}
