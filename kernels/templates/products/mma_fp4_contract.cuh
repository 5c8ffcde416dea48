// mma_fp4_contract.cuh - contract fragment: products of codes of e2m1 by mma.sync, for long prompts, mma_fp4_*.cu.
//
// MATRICES and RESIDUAL: operands.cuh. A tile of two matrices has 64 rows of each. T is the tile.
ARCH(120a, 121a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
DTYPES(WT, e2m1)
DTYPES(ST, e4m3)
ATTR_INT(BLOCK_N, 1) ATTR_INT(BLOCK_K, 16)
#define NORM 0
#define LOGITS 0
#define X_BITS 4
#define SCALES 2
#define MAPS 0
#include "products/operands.cuh"
TUNE(BM, 128, 64)
FORMULA(tiles(), ceil_div(N, 128 / MATRICES))
REQUIRE(K % 64 == 0)
PREFER(ROWS > 64)
REQUIRE(BLOCK_N == 1 && BLOCK_K == 16)
PREFER(BM == 64 || ceil_div(ROWS, BM) * tiles() >= 88)
ORDER(mma_fp4)
GRID(ceil_div(ROWS, BM), tiles(), 1)
BLOCK(256)
SMEM(code_ring(BM, 128, 144))
READS(ceil_div(ROWS, BM) * matrix_bytes() + tiles() * ROWS * x_row_bytes() + added_bytes())

using T = Fp4Tile<BM, 128>;
static_assert(T::stages * T::stage_bytes == dynamic_smem(), "SMEM is what the ring takes");
