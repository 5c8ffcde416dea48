// what      y[t,0] = the mean of x[t,:]^2: what a rank gives of a norm over the columns of all ranks
// numerics  f32, in an order that K alone decides; batch-invariant
// measured  not separately: a few KiB are read
// why       a block a row; norm_mean does the rest when the ranks' values are added
#include "shared/contract.cuh"
#include "shared/reduce.cuh"

KERNEL(mean_squares, mean_squares)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
REQUIRE(K % 8 == 0)
ORDER(mean_squares)
GRID(ROWS, 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * K * 2)
WRITES(ROWS * 4)
FLOPS(ROWS * K * 2)
struct Args {
	IN(bf16, x, "ROWS, K");
	OUT(f32, y, "ROWS, 1");
};

extern "C" __global__ void __launch_bounds__(256) mean_squares(const Args a)
{
	__shared__ float sums[8];
	let_next_start();
	inputs_ready();
	const bf16 *x = a.x + i64(blockIdx.x) * K;
	float squares = 0.0f;
	for (int k = int(threadIdx.x) * 8; k < K; k += 256 * 8) {
		float v[8];
		unpack(load8(x + k), v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			squares = fmaf(v[e], v[e], squares);
	}
	squares = block_sum<8>(squares, sums);
	if (threadIdx.x == 0)
		a.y[blockIdx.x] = squares / K;
}
