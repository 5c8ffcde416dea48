// mma_fp8_contract.cuh - contract fragment: products of codes of e4m3 by mma.sync, for long prompts, mma_fp8_*.cu.
//
// MATRICES and RESIDUAL: operands.cuh. A tile has 128 columns of y: two matrices have tiles of 128 rows of each. T is
// the tile.
ARCH(89)
NUMERICS(f32_accumulate, batch_invariant)
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
#define MAPS 0
#include "products/operands.cuh"
#if MATRICES == 1
TUNE(BM, 128, 64) FORMULA(tile_rows(), BM)
PREFER(BM == 64 || ceil_div(ROWS, BM) * ceil_div(N, 128) >= 88)
#else
FORMULA(tile_rows(), 64)
REQUIRE(N % 2 == 0)
#endif
REQUIRE(K % 16 == 0)
REQUIRE(!scaled() || BLOCK_N % 8 == 0 && (BLOCK_K >= K || BLOCK_K % 128 == 0))
ORDER(mma_fp8)
GRID(ceil_div(ROWS, tile_rows()), ceil_div(N, 128), 1)
BLOCK(256)
SMEM(code_ring(tile_rows(), 128 * MATRICES, 128))
READS(ceil_div(ROWS, tile_rows()) * matrix_bytes() + ceil_div(N, 128) * ROWS * x_row_bytes() + added_bytes())

using T = CodeTile<tile_rows(), 128 * MATRICES>;
static_assert(T::stages * T::stage_bytes == dynamic_smem(), "SMEM is what the ring takes");
