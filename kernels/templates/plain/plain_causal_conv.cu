// what      y[t,c] = silu(sum_j w[c,0,j] x[j rows on from TAPS before t, c]) over the rows of t's slot: of this step,
//           before them conv[s], which then holds the slot's last TAPS rows. Idle rows stay as they are
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  not yet
// why       the op alone: a thread goes down the rows of a slot in one column, so that no other thread touches what
//           it keeps
#include "shared/contract.cuh"
#include "shared/activation.cuh"

KERNEL(plain_causal_conv, causal_conv)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 8)
DIM(SLOTS, 8)
DIM(C, 8192)
ATTR_INT(TAPS, 3)
DTYPES(CT, bf16, f16, f32)
REQUIRE(TAPS >= 1 && TAPS <= 7)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(C, 128), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * C * 2 + min(ROWS, SLOTS) * C * TAPS * 2 + C * (TAPS + 1) * CT_BYTES)
WRITES(ROWS * C * 2 + min(ROWS, SLOTS) * C * TAPS * 2)
FLOPS(2 * ROWS * C * (TAPS + 1))
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, C");
	IN(CT, w, "C, 1, TAPS + 1");
	IN(i32, row_slot, "ROWS");
	INOUT(bf16, conv, "SLOTS, TAPS * C");
	OUT(bf16, y, "ROWS, C");
};

extern "C" __global__ void __launch_bounds__(128) plain_causal_conv(const Args a)
{
	let_next_start();
	inputs_ready();
	const int c = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y, rows = a.step[0];
	const int slot = c < C && first < rows ? a.row_slot[first] : -1;
	if (slot < 0 || (first > 0 && a.row_slot[first - 1] == slot))
		return; // what begins at the slot's first row does them all
	float w[TAPS + 1], past[TAPS];
	bf16 *const conv = a.conv + i64(slot) * TAPS * C + c;
#pragma unroll
	for (int j = 0; j <= TAPS; j++)
		w[j] = to_f32(a.w[c * (TAPS + 1) + j]);
#pragma unroll
	for (int j = 0; j < TAPS; j++)
		past[j] = to_f32(conv[j * C]);
	for (int t = first; t < rows && a.row_slot[t] == slot; t++) {
		const float now = to_f32(a.x[i64(t) * C + c]);
		float sum = w[TAPS] * now;
#pragma unroll
		for (int j = 0; j < TAPS; j++)
			sum = fmaf(w[j], past[j], sum);
		store(a.y + i64(t) * C + c, silu(sum));
#pragma unroll
		for (int j = 0; j + 1 < TAPS; j++)
			past[j] = past[j + 1];
		past[TAPS - 1] = now;
	}
#pragma unroll
	for (int j = 0; j < TAPS; j++)
		store(conv + j * C, past[j]);
}
