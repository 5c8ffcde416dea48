// what      by value head, row after row of a slot: S = delta[s,h] e^(-e^a_log softplus(a + dt_bias)); S += k
//           (sigmoid(b) (v - k.S)); o = q.S; delta[s,h] = S; q and k over their lengths, q over sqrt(DK) besides
// numerics  f32; S in bf16 is rounded after each 64th row of a slot and after the last. Same bits every run; batch-
//           invariant
// measured  not yet
// why       the op alone: a block has a value head of a slot, each of its threads a column of the state in registers
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_delta_rule, delta_rule)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
DTYPES(AT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
DTYPES(DT, f32, bf16)
REQUIRE(NV % NK == 0 && DK <= 256 && DV <= 1024)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(NV, ROWS, 1)
BLOCK(ceil_div(DV, 32) * 32)
SMEM(0)
READS(ROWS * (2 * NK * DK + NV * DV + 2 * NV) * 2 + min(ROWS, SLOTS) * NV * DK * DV * DT_BYTES)
WRITES(ROWS * NV * DV * 2 + min(ROWS, SLOTS) * NV * DK * DV * DT_BYTES)
FLOPS(ROWS * NV * DK * DV * 7)
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, a, "ROWS, NV");
	IN(bf16, b, "ROWS, NV");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(i32, row_slot, "ROWS");
	INOUT(DT, delta, "SLOTS, NV * DK * DV");
	OUT(bf16, o, "ROWS, NV * DV");
};

#include "plain/plain_delta.cuh"

extern "C" __global__ void __launch_bounds__(ceil_div(DV, 32) * 32) plain_delta_rule(const Args a)
{
	__shared__ DeltaShared s;
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x, first = blockIdx.y, rows = a.step[0], slot = first < rows ? a.row_slot[first] : -1;
	if (slot < 0 || (first > 0 && a.row_slot[first - 1] == slot))
		return; // the block of the slot's first row does them all
	float state[DK];
	DT *const delta = a.delta + (i64(slot) * NV + h) * DK * DV;
	load_state(state, delta);
	for (int t = first; t < rows && a.row_slot[t] == slot; t++) {
		delta_row(s, a, t, h, state);
		if ((t + 1 - first) % 64 == 0)
			round_state<DT>(state);
	}
	store_state(delta, state);
}
