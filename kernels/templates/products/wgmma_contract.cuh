// wgmma_contract.cuh - contract fragment: products of bf16 of more than 32 rows, wgmma_linear, _residual, _swiglu.
//
// MATRICES and RESIDUAL: operands.cuh. A tile of two matrices has as many rows of each: BN / 2 columns of y.
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
DTYPES(WT, bf16)
#define NORM 0
#define LOGITS 0
#define X_BITS 16
#define SCALES 0
#define MAPS 2
#include "products/operands.cuh"
#if MATRICES == 1
TUNE(BN, 256, 192, 128, 64)
#else
TUNE(BN, 256, 192, 128)
#endif
TUNE(CLUSTER, 2, 1)
REQUIRE(K % 8 == 0)
REQUIRE(N % 8 == 0)
#if MATRICES == 1
PREFER(ROWS > 32)
#endif
PREFER(CLUSTER == 1 || ROWS > 128)
PREFER(BN > 64 || ROWS <= 256 && CLUSTER == 1)
PREFER(BN <= 128 || 2 * N * MATRICES > BN) // half of a tile and more would be columns that are not there
ORDER(wgmma)
FORMULA(tiles(), ceil_div(ROWS, 128) * ceil_div(N, BN / MATRICES))
GRID(min(SMS / CLUSTER * CLUSTER, wgmma_pieces(ROWS, N, BN / MATRICES, CLUSTER)), 1, 1)
BLOCK(384)
SMEM(wgmma_smem(BN))
PIECES(wgmma_pieces(ROWS, N, BN / MATRICES, CLUSTER))
RATE((BN == 256 ? 74 : BN == 192 ? 69 : BN == 128 ? 65 : 50)
	+ (CLUSTER == 2 ? 0 : tiles() <= SMS ? 1 : BN == 256 ? -1 : BN == 192 ? -4 : -8))
FORMULA(x_box(), 128) FORMULA(x_columns(), 64)
FORMULA(w_box(), BN / max(CLUSTER, MATRICES)) FORMULA(w_columns(), 64)
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())
static_assert(dynamic_smem() == WideTile<BN>::smem_bytes, "SMEM is what the ring and its barriers take");
