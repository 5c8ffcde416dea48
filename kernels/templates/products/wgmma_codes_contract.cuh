// wgmma_codes_contract.cuh - contract fragment: products of codes in groups, more than 16 rows, wgmma_codes_*.cu.
//
// MATRICES and RESIDUAL: operands.cuh. A tile of two matrices has as many rows of each.
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
DTYPES(WT, e2m1, u4)
DTYPES(ST, e4m3, e8m0, f32z)
ATTR_INT(BLOCK_N, 1) ATTR_INT(BLOCK_K, 16)
#define NORM 0
#define LOGITS 0
#define X_BITS 16
#define SCALES 2
#define MAPS 1
#include "products/operands.cuh"
TUNE(BM, 256, 128, 64, 32)
TUNE(WARPGROUPS, 2, 3, 4)
TUNE(CLUSTER, 2, 1)
TUNE(SPLIT, 1, 2, 4)
FORMULA(tile_columns(), 64 / MATRICES * WARPGROUPS)
REQUIRE(K % 32 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(BM <= 128 || WARPGROUPS == 2)
REQUIRE(WARPGROUPS < 4 || BM == 32 && ST_BITS == 8)
REQUIRE(CLUSTER == 1 || N > tile_columns())
REQUIRE(SPLIT == 1 || CLUSTER == 1 && BM <= 128 && K >= 256 * SPLIT)
PREFER(BM == 32 ? ROWS > 16 && ROWS <= 32 && ST_BITS == 8 && CLUSTER == 1
	&& (MATRICES == 2 ? WARPGROUPS == 4 && SPLIT == 1 : WARPGROUPS < 4 && SPLIT > 1)
	: BM == 64 ? ROWS > 32 && ROWS <= 64 : ROWS > (BM == 256 ? 128 : 64))
ORDER(wgmma_codes, SPLIT)
FORMULA(tiles(), ceil_div(ROWS, BM) * ceil_div(N, tile_columns()))
FORMULA(pieces(), CLUSTER * SPLIT * ceil_div(ROWS, BM) * ceil_div(ceil_div(N, tile_columns()), CLUSTER))
GRID(SPLIT > 1 ? pieces() : min(SMS / CLUSTER * CLUSTER, pieces()), 1, 1)
BLOCK(128 * (WARPGROUPS + 1))
SMEM(codes_smem())
PIECES(pieces())
RATE((SPLIT == 4 ? (4 * tiles() <= SMS * 10 / 13 ? 46 : 26)
	: SPLIT == 2 ? 48 : BM == 256 ? 74 : WARPGROUPS == 3 ? 56 : 52) - (ST_BITS == 32 ? 5 : 0)
	+ (CLUSTER * SPLIT > 1 ? 0 : tiles() <= SMS ? 1 : BM == 256 ? -8 : -1))
FORMULA(x_box(), BM / CLUSTER) FORMULA(x_columns(), 64)
FORMULA(w_box(), tile_columns()) FORMULA(w_columns(), 256)
REQUIRE(BLOCK_N == 1
	&& (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
		: BM <= 128 && WARPGROUPS == 2 && (BLOCK_K >= K || BLOCK_K % 32 == 0)))
READS(matrix_bytes() + ROWS * x_row_bytes() + added_bytes())
static_assert(dynamic_smem() == CodeTile<BM, WARPGROUPS>::smem_bytes, "SMEM is what the rings and their barriers take");
