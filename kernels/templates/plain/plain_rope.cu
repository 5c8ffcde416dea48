// what      y[t,h,:] = x[t,h,:] with the pairs (i, i + ROTARY/2), or where NEIGHBOURS (2i, 2i + 1), turned by
//           row_pos[t] * inv_freq[i]; cos and sin times ROPE_FACTOR. Where ROTATE, the head is multiplied by the
//           Hadamard matrix then (ops.h)
// numerics  f32 from the bf16 input to the one rounding. The angle is the f32 product, as in the models' own code;
//           its sine and cosine are good to 1e-7 up to 6e6 radians. Batch-invariant
// measured  not separately: what any launch takes
// why       the op alone; with the cache's write after it rope_write does both
#include "shared/contract.cuh"
#include "attention/rope.cuh"

KERNEL(plain_rope, rope)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(N, 4096)
ATTR_INT(HDIM, 128)
ATTR_INT(ROTARY, 128)
ATTR_INT(NEIGHBOURS, 0)
ATTR_INT(ROTATE, 0)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
REQUIRE(HDIM % 2 == 0 && N % HDIM == 0 && HDIM <= 1024)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(!ROTATE || HDIM % 16 == 0 && HDIM <= 256)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(N / HDIM, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (N * 2 + 4) + ROTARY * 2)
WRITES(ROWS * N * 2)
FLOPS(ROWS * N / HDIM * (ROTARY * 3 + ROTATE * HDIM * 6))
struct Args {
	IN(bf16, x, "ROWS, N");
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_pos, "ROWS");
	OUT(bf16, y, "ROWS, N");
};

using H = Head<HDIM, ROTARY, NEIGHBOURS, ROTATE>;

extern "C" __global__ void __launch_bounds__(128) plain_rope(const Args a)
{
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x * 4 + threadIdx.x / 32, t = blockIdx.y;
	if (h >= N / HDIM)
		return;
	const i64 at = i64(t) * N + i64(h) * HDIM;
	float frequency[H::pairs];
	H::Pairs x, turn;
	H::load(x, a.x + at);
	H::load_frequencies(frequency, a.inv_freq);
	H::angles(turn, frequency, a.row_pos[t], float(ROPE_FACTOR));
	H::rope(x, turn);
	H::store_to(a.y + at, x);
}
