// wgmma_e4m3_contract.cuh - contract fragment: products of bf16 rows by weights of e4m3, wgmma_e4m3_*.cu.
//
// MATRICES and RESIDUAL: operands.cuh. A tile of two matrices has as many rows of each. Any rows may be multiplied so,
// 17 to 256 are preferred. Clusters of more than two blocks do not fill the card: 96 and 108 blocks of an H200 run at
// once, 120 and 128 do not.
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 64)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
#define NORM 0
#define LOGITS 0
#define X_BITS 16
#define SCALES 1
#define MAPS 1
#include "products/operands.cuh"
TUNE(WARPGROUPS, 2, 3, 4)
TUNE(SPLIT, 1, 2, 3, 4)
FORMULA(bm(), ROWS <= 32 ? 32 : ROWS <= 64 ? 64 : 128)
FORMULA(tile_columns(), 64 / MATRICES * WARPGROUPS)
REQUIRE(K % 16 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(!scaled() || BLOCK_N == 128 && BLOCK_K == 128)
REQUIRE(bm() <= (WARPGROUPS == 2 ? 128 : WARPGROUPS == 3 ? 64 : 32))
REQUIRE(K > 128 * (SPLIT - 1))
REQUIRE(SPLIT == 1 || WARPGROUPS <= 3)
PREFER(ROWS > 16 && ROWS <= 256)
ORDER(wgmma_e4m3, SPLIT)
FORMULA(tiles(), ceil_div(ROWS, bm()) * ceil_div(N, tile_columns()))
FORMULA(pieces(), SPLIT * tiles())
PREFER(SPLIT == 1 || pieces() <= (SPLIT == 2 ? SMS : SMS * 9 / 10))
GRID(SPLIT > 1 ? pieces() : min(SMS, pieces()), 1, 1)
BLOCK(128 * (WARPGROUPS + 1))
SMEM(codes_smem())
PIECES(pieces())
RATE(bm() == 128 ? 57 : bm() == 64 ? 42 : 30)
FORMULA(x_box(), bm()) FORMULA(x_columns(), 64)
FORMULA(w_box(), tile_columns()) FORMULA(w_columns(), 128)
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())
static_assert(dynamic_smem() == CodeTile<bm(), WARPGROUPS, 8>::smem_bytes, "SMEM is what the rings and barriers take");
