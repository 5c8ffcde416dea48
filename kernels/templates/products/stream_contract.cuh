// stream_contract.cuh - contract fragment: products of few rows whose weights are streamed, stream_*.cu.
//
// MATRICES, NORM, RESIDUAL and LOGITS: operands.cuh. A block has 8 warps, split() of which share the columns of
// 16 * TILES rows of the matrices; a warp takes turn() columns at a time. S is the form of the product (stream.cuh).
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
#if LOGITS
DIM(OUTS, 1) DIM(V, 128256)
#else
DIM(N, 3072)
#endif
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
#define X_BITS 16
#define SCALES 1
#define MAPS 0
#include "products/operands.cuh"
#if LOGITS || MATRICES == 2
TUNE(SPLIT, 8, 4) FORMULA(split(), SPLIT)
#else
FORMULA(split(), 8)
#endif
#if MATRICES == 2
REQUIRE(GATE_ROW_SCALE == UP_ROW_SCALE)
TUNE(TILES, 2, 4) TUNE(COLS, 64, 128) TUNE(DEPTH, 4, 2)
#else
TUNE(TILES, 1, 2) TUNE(COLS, 64, 128) TUNE(DEPTH, 6, 4, 2)
#endif
// 3: no chains, but products in whole numbers (stream_whole.cuh)
TUNE(CHAINS, 2, 1, 3)
FORMULA(takes_whole(), n_rows() == 1 && WT_BITS == 4 && ST_BITS == 8 && scaled())
REQUIRE(CHAINS < 3 || takes_whole())
PREFER(takes_whole() == (CHAINS == 3))
FORMULA(turn(), COLS * 16 / WT_BITS)
FORMULA(staged(), stream_stages(n_rows(), K, WT_BITS, turn(), split()))
ORDER(stream, split(), turn(), CHAINS)
#if NORM
using StreamNorm = NT;
TUNE(SQUARES, 0, 1) FORMULA(by_steps(), SQUARES)
ORDER(squares, SQUARES ? 2 : staged())
REQUIRE(SQUARES == 0 || WT_BITS < 16)
PRUNE(SQUARES == 0)
#else
FORMULA(by_steps(), 0)
using StreamNorm = void;
#endif
#if LOGITS
FORMULA(part_ids(), 128 * TILES / SPLIT)
ORDER(parts, part_ids())
#endif
#if NARROW
// Blocks of 16 columns of the second matrix, in front: 8 warps, 64 columns a turn, as many turns as have room in what
// the others need.
FORMULA(turns_narrow(), ceil_div(K, 512) < 4 ? max(ceil_div(K, 512), 2) : 4)
FORMULA(blocks_narrow(), ceil_div(M, 16))
FORMULA(bytes_narrow(), 8 * turns_narrow() * (16 * 128 + 64 * norm_size()))
ORDER(narrow, 8, 64)
#else
FORMULA(blocks_narrow(), 0)
FORMULA(bytes_narrow(), 0)
#endif
REQUIRE(n_rows() <= 64)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !scaled() && !n_row_scales())
REQUIRE(WT_BITS != 8 || !scaled() || stream_takes_blocks(K, turn(), BLOCK_K))
REQUIRE(WT_BITS != 4 || scaled() && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && stream_takes_blocks(K, turn(), BLOCK_K)))
REQUIRE(ceil_div(n_rows(), 8) * 8 * (16 * TILES + 5) * 4 <= DEPTH * TILES * 32 * COLS)
REQUIRE((CHAINS + scaled()) * TILES * ceil_div(n_rows(), 8) <= 32)
PRUNE(CHAINS > 1 || ceil_div(n_rows(), 8) * TILES > 2)
PREFER(CHAINS != 2 || ceil_div(n_rows(), 8) * TILES <= 2)
PREFER(COLS == 64 || DEPTH == 2 && n_rows() <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(n_rows() > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
#if LOGITS || MATRICES == 2
PREFER(n_rows() <= 32)
PREFER(n_rows() <= 8 && WT_BITS == 16 || DEPTH == 2)
PREFER(SPLIT == 8 || n_rows() > 16)
PREFER(WT_BITS == 16 || n_rows() > 8 || COLS == 64 && TILES == 2 || has_little_smem())
#else
PREFER(ROWS <= 8 || DEPTH == (ROWS <= 48 ? 2 : 4))
#if NORM
PREFER(WT_BITS == 16 || ROWS > 8 || DEPTH == 2 && TILES == 2 && COLS == 64 || has_little_smem())
PREFER(ROWS <= 16 || TILES == 2)
#else
PREFER(WT_BITS != 8 || ROWS > 8 || DEPTH == 4 || has_little_smem())
PREFER(WT_BITS != 4 || ROWS > 8 || DEPTH == 2 && COLS == 128 && TILES == (CHAINS == 3 ? 2 : 1) || has_little_smem())
#endif
#endif
FORMULA(blocks(), ceil_div(n_columns(), 128 * TILES / split() / MATRICES))
GRID(blocks() + blocks_narrow(), 1, 1)
BLOCK(256)
SMEM(max(bytes_narrow(), 8 * DEPTH * TILES * 16 * (COLS * 2 + stream_group_bytes(WT_BITS, K, turn(), BLOCK_K, ST_BITS))
	+ (CHAINS == 3 ? stream_whole_bytes(turn())
		: staged() ? n_rows() * stream_row_bytes(K, turn(), split()) : 8 * DEPTH * turn() * norm_size())))
READS(matrix_bytes() + narrow() * K * 2 + K * norm_size() + n_rows() * (x_row_bytes() + LOGITS * 4) + added_bytes())
RATE(16)

using Scales = typename TypeIf<scaled() != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<n_rows(), K, split(), TILES, COLS, DEPTH, WT, Scales, stream_ahead,
	CHAINS == 3 ? 2 : CHAINS, by_steps() != 0, CHAINS == 3>;
static_assert(stream_bytes<S, StreamNorm>() <= dynamic_smem(), "the rings of all warps, and rows of x that wait");
