// wgmma_fp8_contract.cuh - contract fragment: products of codes of e4m3 for long prompts, wgmma_fp8_*.cu.
//
// MATRICES and RESIDUAL: wgmma_operands.cuh. Two matrices have tiles of 128 rows of each, and make codes.
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
PARAM(MATRICES, 1, 2)
PARAM(RESIDUAL, 0, 1)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
#if MATRICES == 1
FLAG(W_SCALE) FORMULA(block_scales(), W_SCALE)
TUNE(BN, 256, 128)
FORMULA(tile(), BN)
#else
FLAG(GATE_SCALE) FLAG(UP_SCALE) FORMULA(block_scales(), GATE_SCALE + UP_SCALE)
FORMULA(tile(), 256)
REQUIRE(GATE_SCALE == UP_SCALE)
#endif
TUNE(CLUSTER, 2, 1)
REQUIRE(K % 16 == 0)
REQUIRE(N % (8 * MATRICES) == 0)
REQUIRE(block_scales() == 0 || BLOCK_N == 128 && BLOCK_K == 128)
PREFER(CLUSTER == 1 || ROWS > 128)
ORDER(wgmma_fp8)
FORMULA(tiles(), ceil_div(ROWS, 128) * ceil_div(N, tile() / MATRICES))
GRID(min(SMS / CLUSTER * CLUSTER, wgmma_pieces(ROWS, N, tile() / MATRICES, CLUSTER)), 1, 1)
BLOCK(384)
SMEM(wgmma_smem(tile()))
PIECES(wgmma_pieces(ROWS, N, tile() / MATRICES, CLUSTER))
RATE((tile() == 256 ? 58 : 43)
	+ (CLUSTER == 2 ? 0 : MATRICES == 2 ? -4 : tiles() <= SMS ? 1 : tile() == 256 ? -5 : 0))
#define SCALES 1
FORMULA(x_box(), 128) FORMULA(x_columns(), 128)
FORMULA(w_box(), tile() / max(CLUSTER, MATRICES)) FORMULA(w_columns(), 128)
#define RESIDUAL_MAP RESIDUAL
#include "products/wgmma_operands.cuh"
READS(MATRICES * N * K + block_scales() * ceil_div(N, 128) * ceil_div(K, 128) * ST_BYTES + row_scales() * N * 4
	+ ROWS * (K + ceil_div(K, 128) * 4) + added_bytes())
WRITES(MATRICES == 1 ? ROWS * N * 2 : ROWS * N + ROWS * ceil_div(N, 128) * 4)
static_assert(dynamic_smem() == WideTile<tile()>::smem_bytes, "SMEM is what the ring and its barriers take");
