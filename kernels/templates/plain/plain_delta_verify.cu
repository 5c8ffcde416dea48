// what      delta_rule of versions: the slot goes on from slot_version, and row j of it leaves its state as version j
// numerics  f32; S in bf16 is rounded after each row. Same bits every run; batch-invariant
// measured  not yet
// why       the op alone: a block has a value head of a slot, each of its threads a column of the state in registers
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_delta_verify, delta_verify)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(DRAFTS, 2)
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
WRITES(ROWS * NV * DV * 2 + ROWS * NV * DK * DV * DT_BYTES)
FLOPS(ROWS * NV * DK * DV * 7)
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, a, "ROWS, NV");
	IN(bf16, b, "ROWS, NV");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_version, "SLOTS");
	INOUT(DT, delta, "SLOTS, NV * DK * DV");
	INOUT(DT, delta_later, "SLOTS, DRAFTS, NV * DK * DV");
	OUT(bf16, o, "ROWS, NV * DV");
};

#include "plain/plain_delta.cuh"

// The state of value head h that version j of a slot is; version 0 where there is none.
__device__ __forceinline__ DT *version(const Args &a, int slot, int j, int h)
{
	const i64 at = i64(h) * DK * DV;
	return at + (j < 1 || j > DRAFTS ? a.delta + i64(slot) * NV * DK * DV
		: a.delta_later + (i64(slot) * DRAFTS + j - 1) * NV * DK * DV);
}

extern "C" __global__ void __launch_bounds__(ceil_div(DV, 32) * 32) plain_delta_verify(const Args a)
{
	__shared__ DeltaShared s;
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x, first = blockIdx.y, rows = a.step[0], slot = first < rows ? a.row_slot[first] : -1;
	if (slot < 0 || (first > 0 && a.row_slot[first - 1] == slot))
		return; // the block of the slot's first row does them all
	float state[DK];
	load_state(state, version(a, slot, a.slot_version[slot], h));
	for (int t = first; t < rows && a.row_slot[t] == slot; t++) {
		delta_row(s, a, t, h, state);
		round_state<DT>(state);
		if (t - first <= DRAFTS)
			store_state(version(a, slot, t - first, h), state);
	}
}
