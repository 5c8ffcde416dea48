// gemm_contract.cuh - contract fragment: products of many rows by mma.sync, gemm_*.cu.
//
// MATRICES, NORM, RESIDUAL and LOGITS: operands.cuh. A tile of two matrices has as many rows of each: BN / 2 columns of
// y. T is the tile, C how a weight is stored.
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 16)
#if LOGITS
DIM(OUTS, 16) DIM(K, 2048) DIM(V, 128256)
#else
DIM(K, 2048) DIM(N, 2048)
#endif
DTYPES(WT, bf16, f16, f32, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
#define X_BITS 16
#define SCALES 1
#define MAPS 0
#include "products/operands.cuh"
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
#if MATRICES == 2
REQUIRE(GATE_ROW_SCALE == UP_ROW_SCALE)
#endif
REQUIRE(K % 8 == 0)
REQUIRE(WT_BITS >= 16 || K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !scaled() && !n_row_scales())
REQUIRE(WT_BITS != 8 || !scaled() || BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
REQUIRE(WT_BITS != 4 || scaled() && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))))
// A tile is wanted when at least 88 blocks are left to keep a large GPU busy, as BN = 64 always is, and when the next
// larger BM would leave fewer: larger tiles ask less of the L2 cache.
FORMULA(columns_of(int bn), ceil_div(n_columns(), bn / MATRICES))
PREFER(n_rows() >= 9)
PREFER(BM == 16 || n_rows() > BM / 2)
PREFER(BN == 64 || ceil_div(n_rows(), BM) * columns_of(BN) >= 88)
PREFER(BM == 128 || n_rows() <= BM || ceil_div(n_rows(), 2 * BM) * columns_of(64) < 88)
ORDER(gemm)
#if LOGITS
FORMULA(part_ids(), BN)
ORDER(parts, part_ids())
#endif
GRID(ceil_div(n_rows(), BM), columns_of(BN), 1)
BLOCK(gemm_threads(BM, BN))
#if LOGITS
SMEM(max(BM * (BN + 8) * 4, gemm_ring(BM, BN, WT_BITS)))
#else
SMEM(gemm_ring(BM, BN, WT_BITS))
#endif
READS(ceil_div(n_rows(), BM) * matrix_bytes() + K * norm_size() + columns_of(BN) * n_rows() * (x_row_bytes()
	+ LOGITS * 4) + added_bytes())

using T = Tile<BM, BN>;
using C = Codes<WT, scaled() != 0, ST, BLOCK_N, BLOCK_K>;
static_assert(gemm_threads(BM, BN) == T::threads, "BLOCK is the warps of a tile");
static_assert(T::stages * (C::bits < 16 ? CodeStage<BM, BN, C>::bytes : T::stage_bytes) <= dynamic_smem(),
	"SMEM is what the ring takes");
