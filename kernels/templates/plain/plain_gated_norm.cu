// what      y = rmsnorm of x over each head of HDIM elements, one w for all heads, * silu(z)
// numerics  squares summed in f32, in an order that HDIM alone decides; one rounding. Same bits every run; batch-
//           invariant
// measured  not separately: what any launch takes
// why       the op alone; after the delta rule the templates of that do it
#include "shared/contract.cuh"
#include "shared/activation.cuh"
#include "shared/reduce.cuh"

KERNEL(plain_gated_norm, gated_norm)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
ATTR_INT(HDIM, 128)
ATTR_FLOAT(EPS, 1e-6f)
DTYPES(NT, bf16, f16, f32)
REQUIRE(N % HDIM == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N / HDIM, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * N * 4 + HDIM * NT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N * 6)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(bf16, z, "ROWS, N");
	IN(NT, w, "HDIM");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_gated_norm(const Args a)
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
		store(a.y + at + d, to_f32(a.x[at + d]) * scale * to_f32(a.w[d]) * silu(to_f32(a.z[at + d])));
}
