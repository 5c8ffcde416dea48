// what      y[t,n] = x[t,n] * log(1 + e^gate[t, n / (N / G)])
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  not separately: bound by what it reads and writes
// why       the op alone, with a gate for each element, each head or the whole row
#include "shared/contract.cuh"
#include "shared/activation.cuh"

KERNEL(plain_softplus_gate, softplus_gate)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
DIM(G, 1)
REQUIRE(N % 8 == 0 && N % G == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N, 1024), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (N + G) * 2)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N * 5)
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(bf16, gate, "ROWS, G");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(128) plain_softplus_gate(const Args a)
{
	let_next_start();
	inputs_ready();
	const int n = (blockIdx.x * 128 + threadIdx.x) * 8, t = blockIdx.y;
	if (n >= N)
		return;
	float v[8];
	unpack(load8(a.x + i64(t) * N + n), v);
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] *= softplus(to_f32(a.gate[i64(t) * G + (n + e) / (N / G)]));
	*reinterpret_cast<uint4 *>(a.y + i64(t) * N + n) = pack8(v);
}
