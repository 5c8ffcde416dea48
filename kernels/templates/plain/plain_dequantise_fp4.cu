// what      y[t,k] = x[t,k] * x_block[t, k / 16] * x_row_scale[t], of codes of e2m1
// numerics  f32, one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone: products of codes read them as they are
#include "shared/contract.cuh"
#include "plain/plain_codes.cuh"

KERNEL(plain_dequantise_fp4, dequantise_fp4)
ARCH(120a, 121a)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
REQUIRE(K % 8 == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(K, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (K / 2 + ceil_div(K, 16) + 4))
WRITES(ROWS * K * 2)
FLOPS(ROWS * K * 2)
struct Args {
	IN(e2m1, x, "ROWS, K");
	IN(e4m3, x_block, "ROWS, ceil_div(K, 16)");
	IN(f32, x_row_scale, "ROWS");
	OUT(bf16, y, "ROWS, K");
};

extern "C" __global__ void __launch_bounds__(128) plain_dequantise_fp4(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= K)
		return;
	const u32 codes = *reinterpret_cast<const u32 *>(a.x + (i64(t) * K + n) / 2);
	const float block = to_f32(a.x_block[i64(t) * ceil_div(K, 16) + n / 16]), scale = a.x_row_scale[t];
	float v[8];
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] = e2m1_to_f32(codes >> 4 * e & 15) * block * scale;
	*reinterpret_cast<uint4 *>(a.y + i64(t) * K + n) = pack8(v);
}
