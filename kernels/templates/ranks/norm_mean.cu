// what      y[t,k] = x[t,k] / sqrt(m[t,0] / RANKS + EPS) * (w[k] or 1 + w[k]): a rank's columns of a norm over those of
//           all ranks, of whose mean squares m is the sum
// numerics  f32, one rounding; batch-invariant
// measured  not separately: a few KiB are read
// why       the second half of the norm, behind the ranks' sum
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(norm_mean, norm_mean)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
DTYPES(NT, bf16, f16, f32)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(RANKS, 2)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS <= 65535)
ORDER(exact)
GRID(ceil_div(K, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (K * 2 + 4) + K * NT_BYTES)
WRITES(ROWS * K * 2)
FLOPS(ROWS * K * 3)
struct Args {
	IN(bf16, x, "ROWS, K");
	IN(f32, m, "ROWS, 1");
	IN(NT, w, "K");
	OUT(bf16, y, "ROWS, K");
};

extern "C" __global__ void __launch_bounds__(128) norm_mean(const Args a)
{
	let_next_start();
	inputs_ready();
	const int k = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (k >= K)
		return;
	const float scale = rsqrtf(a.m[t] / RANKS + float(EPS));
	float v[8], w[8];
	unpack(load8(a.x + i64(t) * K + k), v);
	unpack(load8(a.w + k), w);
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] *= scale * ((NORM_ONE ? 1.0f : 0.0f) + w[e]);
	*reinterpret_cast<uint4 *>(a.y + i64(t) * K + k) = pack8(v);
}
