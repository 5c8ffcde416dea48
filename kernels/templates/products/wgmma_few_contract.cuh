// wgmma_few_contract.cuh - contract fragment: products of up to 256 rows, columns divided, wgmma_few_*.cu.
//
// MATRICES, RESIDUAL and SCALES (0 or 1): operands.cuh. A tile of two matrices has as many rows of each: half as
// many columns of y, by 64 rows of x; of codes these are 128 columns, which share a scale. P is the form of the product
// (wgmma_few.cuh).
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 64)
DIM(K, 4096)
DIM(N, 6144)
#if SCALES
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
#define X_BITS 8
#else
DTYPES(WT, bf16)
#define X_BITS 16
#endif
#define NORM 0
#define LOGITS 0
#define MAPS 1
#include "products/operands.cuh"
#if MATRICES == 1
TUNE(BN, 128, 64) FORMULA(tile(), BN)
TUNE(SPLIT, 1, 2, 3, 4) FORMULA(split(), SPLIT)
REQUIRE(ROWS <= 256)
#elif SCALES
TUNE(SPLIT, 1, 2) FORMULA(split(), SPLIT) FORMULA(tile(), 256)
REQUIRE(ROWS <= 64)
#else
TUNE(BN, 256, 128) FORMULA(tile(), BN) FORMULA(split(), 1)
REQUIRE(ROWS <= 64)
#endif
FORMULA(x_box(), ROWS <= 64 ? 64 : 128) FORMULA(w_box(), (ROWS <= 64 ? tile() / 2 : tile()) / MATRICES)
FORMULA(blocks(), split() * ceil_div(ROWS, x_box()) * ceil_div(N, tile() / MATRICES))
REQUIRE(N % (X_BITS == 8 ? 8 * MATRICES : 8) == 0)
PREFER(ROWS > 32) // of fewer wgmma_slim, or stream
// Columns are divided where all blocks then run at once. Two matrices have more tiles than that, and divide them where
// the last round of whole ones would be nearly empty, which times tell.
#if MATRICES == 1
REQUIRE(split() == 1 || blocks() <= SMS)
// Clusters of three leave multiprocessors of a group over, and those that find no three free are a second round.
PREFER(split() != 3 || blocks() <= SMS * 3 / 4)
#endif
#if SCALES
MATRIX(wgmma_fp8)
#if MATRICES == 1
PREFER(tile() == 128 || ROWS > 64)
#endif
REQUIRE(K % 16 == 0)
REQUIRE(!scaled() || BLOCK_N == 128 && BLOCK_K == 128)
REQUIRE(K > 128 * (split() - 1))
ORDER(wgmma_few_fp8, split())
FORMULA(x_columns(), 128) FORMULA(w_columns(), 128)
RATE(MATRICES == 2 ? 50 : tile() == 128 ? 65 : 50)
#else
MATRIX(wgmma)
REQUIRE(K % 8 == 0)
#if MATRICES == 1
REQUIRE(K >= 64 * SPLIT)
#endif
ORDER(wgmma_few, split())
FORMULA(x_columns(), 64) FORMULA(w_columns(), 64)
RATE(tile() == 128 * MATRICES ? 65 : 50)
#endif
GRID(blocks(), 1, 1)
BLOCK(384)
SMEM(231424)
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())

using P = FewProducts<ROWS, K, N, tile(), split(), MATRICES, x_columns()>;
static_assert(P::smem_bytes <= dynamic_smem(), "the ring, its barriers, and what aligns it; then the sums of a tile");
