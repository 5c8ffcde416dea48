// what      delta_rows, as delta_chunks has it, with the columns of a value head in TEAM blocks of a cluster
// numerics  those of delta_chunks, but for the order in which squares of o are added: same bits as with TEAM 1
// measured  H100 SXM, 48 value heads of 128 x 128, 2048 rows: two blocks 496 us, where one takes 501; four 724 to 1367,
//           so they are no candidate
// why       the heads of one segment are too few for the card, and the chain of its chunks is what it takes: columns
//           of a head are independent but for the sum of squares behind them, which blocks write into each other's
//           shared memory. Each relates all keys for itself
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(delta_chunks_team, delta_rows)
ARCH(90)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
ATTR_FLOAT(EPS, 1e-6f)
FLAG(BA)
DTYPES(AT, f32, bf16, f16)
DTYPES(BT, f32, bf16, f16)
DTYPES(NT, bf16, f16, f32)
DTYPES(ST, f32, bf16)
TUNE(STAGES, 2, 1)
TUNE(TEAM, 2)
REQUIRE(NV % NK == 0)
REQUIRE(DK % 16 == 0 && DK <= 128 && DV % (16 * TEAM) == 0 && DV <= 128)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV) && COLS % 8 == 0)
REQUIRE(SEGS <= 65535)
ORDER(delta_chunks, 64, TEAM)
GRID(NV * TEAM, SEGS, 1)
BLOCK(2 * DV / TEAM)
SMEM(STAGES * 64 * (4 * DK + 2 * DV / TEAM + 48) + 4 * 64 * 144 + 4096 + 2048 + 32 * DV)
READS(ROWS * NV * (2 * DK * TEAM + 2 * DV + 2 * TEAM) * 2 + SEGS * NV * DK * DV * ST_BYTES)
WRITES(ROWS * NV * DV * 2 + SEGS * NV * DK * DV * ST_BYTES)
FLOPS(2 * ROWS * NV * (128 * DK * TEAM + 384 * DV + 6 * DK * DV))
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, x, "ROWS, COLS");
	IN_IF(BA, bf16, ba, "ROWS, 2 * NV");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(NT, norm, "DV");
	IN(i32, row_slot, "ROWS");
	IN(i32, seg, "SEGS, 4");
	INOUT(ST, delta, "SLOTS, NV * DK * DV");
	OUT(bf16, y, "ROWS, NV * DV");
};

#include "delta/delta_chunks.cuh"

#if __CUDA_ARCH__ >= 900
#define TOGETHER __cluster_dims__(TEAM, 1, 1)
#else
#define TOGETHER
#endif

extern "C" __global__ void TOGETHER __launch_bounds__(2 * DV / TEAM, 1) delta_chunks_team(const Args a)
{
	DYNAMIC_SMEM(smem);
	go_through_segment(a, smem);
}
