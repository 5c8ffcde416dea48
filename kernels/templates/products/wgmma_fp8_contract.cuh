// wgmma_fp8_contract.cuh - contract fragment: products of codes of e4m3 for long prompts, wgmma_fp8_*.cu.
//
// MATRICES and RESIDUAL: operands.cuh. Two matrices have tiles of 128 rows of each, and make codes.
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
#define NORM 0
#define LOGITS 0
#define X_BITS 8
#define SCALES 1
#define MAPS 2
#include "products/operands.cuh"
#if MATRICES == 1
TUNE(BN, 256, 128)
FORMULA(tile(), BN)
#else
FORMULA(tile(), 256)
#endif
TUNE(CLUSTER, 2, 1)
REQUIRE(K % 16 == 0)
REQUIRE(N % (8 * MATRICES) == 0)
PREFER(CLUSTER == 1 || ROWS > 128)
PREFER(ROWS > 64)
ORDER(wgmma_fp8)
FORMULA(tiles(), ceil_div(ROWS, 128) * ceil_div(N, tile() / MATRICES))
GRID(min(SMS / CLUSTER * CLUSTER, wgmma_pieces(ROWS, N, tile() / MATRICES, CLUSTER)), 1, 1)
BLOCK(384)
SMEM(wgmma_smem(tile()))
PIECES(wgmma_pieces(ROWS, N, tile() / MATRICES, CLUSTER))
RATE((tile() == 256 ? 58 : 43)
	+ (CLUSTER == 2 ? 0 : MATRICES == 2 ? -4 : tiles() <= SMS ? 1 : tile() == 256 ? -5 : 0))
FORMULA(x_box(), 128) FORMULA(x_columns(), 128)
FORMULA(w_box(), tile() / max(CLUSTER, MATRICES)) FORMULA(w_columns(), 128)
REQUIRE(!scaled() || BLOCK_N == 128 && BLOCK_K == 128)
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())
static_assert(dynamic_smem() == WideTile<tile()>::smem_bytes, "SMEM is what the ring and its barriers take");
