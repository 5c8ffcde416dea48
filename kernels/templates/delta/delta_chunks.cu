// what      for the rows of each segment, in order, of slot s and each value head h:
//             S = delta[s,h], decayed and corrected by the row's k and v;  o = q.S
//             y[t,h,:] = rmsnorm(o) * norm * silu(z)
//           then delta[s,h] = S. Other rows stay as they are
// numerics  64 rows at a time, by tensor cores: with G the summed logs of decay, A[i,j] = b_i k_i.k_j e^(G_i - G_j) of
//           j < i, changes X solve (1 + A) X = b (v - e^G k.S), and o = e^G q.S + (q.k e^(G_i - G_j), j <= i) X,
//           S = e^G_last S + (k e^(G_last - G)) X. q and k are exact in bf16, every other operand is two bf16, so a
//           product is good to 2^-16; sums, S and the inverses of blocks of 16 rows in f32; a state of bf16 is
//           rounded behind each chunk as if it were stored, so that a prompt may be cut there. Exponents are never
//           positive. Same bits every run; a row's bits depend on those before it in its segment alone
// measured  H100 SXM, 48 value heads of 128 x 128: 2048 rows 503 us, 64 rows 19.6; row after row they take 2867 and 109
// why       a block is a value head of a segment (delta_chunks.cuh)
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(delta_chunks, delta_rows)
ARCH(80)
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
REQUIRE(NV % NK == 0)
REQUIRE(DK % 16 == 0 && DK <= 128 && DV % 16 == 0 && DV <= 128)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV) && COLS % 8 == 0)
REQUIRE(SEGS <= 65535)
ORDER(delta_chunks, 64, 1)
GRID(NV, SEGS, 1)
BLOCK(2 * DV)
SMEM(STAGES * 64 * (4 * DK + 2 * DV + 48) + 4 * 64 * 144 + 4096 + 2048 + 32 * DV)
READS(ROWS * NV * (2 * DK + 2 * DV + 2) * 2 + SEGS * NV * DK * DV * ST_BYTES)
WRITES(ROWS * NV * DV * 2 + SEGS * NV * DK * DV * ST_BYTES)
FLOPS(2 * ROWS * NV * (128 * DK + 384 * DV + 6 * DK * DV))
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

constexpr int TEAM = 1;
#include "delta/delta_chunks.cuh"

extern "C" __global__ void __launch_bounds__(2 * DV, 1) delta_chunks(const Args a)
{
	DYNAMIC_SMEM(smem);
	go_through_segment(a, smem);
}
