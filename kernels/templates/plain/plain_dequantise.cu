// what      y[t,k] = x[t,k] * x_scale[k / 128, t], of codes of e4m3
// numerics  f32, one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone: products of codes read them as they are
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_dequantise, dequantise)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(K, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (K + ceil_div(K, 128) * 4))
WRITES(ROWS * K * 2)
FLOPS(ROWS * K)
struct Args {
	IN(e4m3, x, "ROWS, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS");
	OUT(bf16, y, "ROWS, K");
};

extern "C" __global__ void __launch_bounds__(128) plain_dequantise(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= K)
		return;
	const uint2 codes = *reinterpret_cast<const uint2 *>(a.x + i64(t) * K + n);
	const float scale = a.x_scale[i64(n / 128) * ROWS + t];
	float v[8];
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] = e4m3_to_f32((e < 4 ? codes.x : codes.y) >> e % 4 * 8 & 0xff) * scale;
	*reinterpret_cast<uint4 *>(a.y + i64(t) * K + n) = pack8(v);
}
