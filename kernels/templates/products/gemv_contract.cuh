// gemv_contract.cuh - contract fragment: products of a few rows with weights in f16 and f32, gemv_*.cu.
//
// MATRICES, NORM, RESIDUAL and LOGITS: operands.cuh. A block's WARPS warps own PER_WARP rows of each matrix.
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
#if LOGITS
DIM(OUTS, 1) DIM(K, 2048) DIM(V, 128256)
#else
DIM(K, 2048) DIM(N, 8192)
#endif
DTYPES(WT, f16, f32)
#define X_BITS 16
#define SCALES 0
#define MAPS 0
#include "products/operands.cuh"
TUNE(WARPS, 4, 8)
TUNE(PER_WARP, 1, 2)
REQUIRE(n_rows() <= 8)
#if MATRICES == 1
REQUIRE(PER_WARP == 2 || n_rows() <= 4)
#endif
REQUIRE(K % 8 == 0)
ORDER(gemv)
#if NORM
ORDER(squares, WARPS)
#endif
#if LOGITS
FORMULA(part_ids(), WARPS * PER_WARP)
ORDER(parts, part_ids())
#endif
GRID(ceil_div(n_columns(), WARPS * PER_WARP), 1, 1)
BLOCK(32 * WARPS)
SMEM(n_rows() * gemv_chunk(n_rows(), K) * 2)
READS(matrix_bytes() + K * norm_size() + n_rows() * (x_row_bytes() + LOGITS * 4) + added_bytes())

static_assert(n_rows() <= 8, "above 8 rows the products belong on the tensor cores: use a gemm");
