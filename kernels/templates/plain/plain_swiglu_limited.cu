// what      y = min(silu(gate), GATE_LIMIT) * (up, within -GATE_LIMIT and GATE_LIMIT)
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone: of gate and up that two products have written
#include "shared/contract.cuh"
#include "shared/activation.cuh"

KERNEL(plain_swiglu_limited, swiglu_limited)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
ATTR_FLOAT(GATE_LIMIT, 7.0f)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * N * 4)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N * 8)
struct Args {
	IN(bf16, gate, "ROWS, N");
	IN(bf16, up, "ROWS, N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_swiglu_limited(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= N)
		return;
	float v[8], up[8];
	unpack(load8(a.gate + i64(t) * N + n), v);
	unpack(load8(a.up + i64(t) * N + n), up);
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] = limited_swiglu(v[e], up[e], float(GATE_LIMIT));
	*reinterpret_cast<uint4 *>(a.y + i64(t) * N + n) = pack8(v);
}
