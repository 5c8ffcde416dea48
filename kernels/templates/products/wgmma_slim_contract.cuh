// wgmma_slim_contract.cuh - contract fragment: products of up to 64 rows in blocks of a part of a multiprocessor,
// wgmma_slim_*.cu.
//
// MATRICES, RESIDUAL and SCALES (0 or 1): operands.cuh. P is the form of the product (wgmma_slim.cuh).
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 32)
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
TUNE(BLOCKS, 2, 1) // of a multiprocessor
#if MATRICES == 1
TUNE(SPLIT, 1, 2, 3, 4, 6) FORMULA(split(), SPLIT)
#else
TUNE(SPLIT, 1, 2) FORMULA(split(), SPLIT)
#endif
FORMULA(x_box(), slim_rows(ROWS)) FORMULA(w_box(), 128)
FORMULA(blocks(), split() * ceil_div(N, 128))
REQUIRE(ROWS <= 64)
REQUIRE(N % 8 == 0)
REQUIRE(MATRICES == 1 || ROWS <= 32 || BLOCKS == 1 || split() == 1)
// Columns are divided where all blocks then run at once, and as far as they do: half a card of blocks is a card half
// used where two launches meet. Of more than 32 rows a block waits for its tensor cores, and wgmma_few is faster.
REQUIRE(split() == 1 || blocks() <= BLOCKS * SMS)
FORMULA(next_split(), split() == 4 ? 6 : split() + 1)
PREFER(split() == (MATRICES == 1 ? 6 : 2) || next_split() * ceil_div(N, 128) > BLOCKS * SMS)
PREFER(BLOCKS == 2 && ROWS <= 32)
#if SCALES
MATRIX(wgmma_fp8)
REQUIRE(K % 16 == 0)
REQUIRE(!scaled() || BLOCK_N == 128 && BLOCK_K == 128)
REQUIRE(K > 128 * (split() - 1))
ORDER(wgmma_slim_fp8, split())
FORMULA(x_columns(), 128) FORMULA(w_columns(), 128)
#else
MATRIX(wgmma)
REQUIRE(K % 8 == 0)
REQUIRE(K >= 64 * split())
#if MATRICES == 1
PREFER(ROWS > 24)
#endif
ORDER(wgmma_slim, split())
FORMULA(x_columns(), 64) FORMULA(w_columns(), 64)
#endif
RATE(50)
GRID(blocks(), 1, 1)
BLOCK(288)
SMEM(slim_smem(BLOCKS))
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())

#if SPLIT > 1 // NVRTC has a macro here, a block alone is no cluster
#define TOGETHER __cluster_dims__(SPLIT, 1, 1)
#else
#define TOGETHER
#endif

using P = SlimProducts<ROWS, K, N, split(), BLOCKS, MATRICES, x_columns()>;
static_assert(P::smem_bytes <= dynamic_smem(), "the ring, its barriers, and what aligns it; then the sums of a tile");
