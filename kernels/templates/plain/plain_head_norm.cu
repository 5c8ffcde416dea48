// what      y = rmsnorm of x over each head of HDIM elements, one w (or 1 + w) for all heads
// numerics  squares summed in f32, in an order that HDIM alone decides; one rounding. Same bits every run; batch-
//           invariant
// measured  not separately: what any launch takes
// why       the op alone: a warp a head, whatever is before and after it
#include "shared/contract.cuh"
#include "shared/activation.cuh"
#include "shared/reduce.cuh"

KERNEL(plain_head_norm, head_norm)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
ATTR_INT(HDIM, 128)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
DTYPES(NT, bf16, f16, f32)
REQUIRE(N % HDIM == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N / HDIM, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * N * 2 + HDIM * NT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N * 6)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(NT, w, "HDIM");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_head_norm(const Args a)
{
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
	if (h >= N / HDIM)
		return;
	const i64 at = i64(blockIdx.y) * N + i64(h) * HDIM;
	float squares = 0.0f;
	for (int d = lane; d < HDIM; d += 32) {
		const float x = to_f32(a.x[at + d]);
		squares = fmaf(x, x, squares);
	}
	const float scale = rsqrtf(warp_sum(squares) / HDIM + float(EPS));
	for (int d = lane; d < HDIM; d += 32)
		store(a.y + at + d, to_f32(a.x[at + d]) * scale * ((NORM_ONE ? 1.0f : 0.0f) + to_f32(a.w[d])));
}
