// stream_contract.cuh - contract fragment: products of few rows whose weights are streamed, stream_*.cu.
//
//   MATRICES   1: x w^T. 2: silu(x gate^T) * (x up^T)
//   NORM       1: of x, before
//   RESIDUAL   1: z = residual + the product
//   LOGITS     1: of the rows that out_row names, over the vocabulary, with the best of each part
//
// A block has 8 warps, split() of which share the columns of 16 * TILES rows of the matrices; a warp takes turn()
// columns at a time. S is the form of the product (stream.cuh).
PARAM(MATRICES, 1, 2)
PARAM(NORM, 0, 1)
PARAM(RESIDUAL, 0, 1)
PARAM(LOGITS, 0, 1)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
#if LOGITS
DIM(OUTS, 1) DIM(V, 128256) FORMULA(rows(), OUTS) FORMULA(columns(), V)
ATTR_INT(N_VALID, 128256)
#else
DIM(N, 3072) FORMULA(rows(), ROWS) FORMULA(columns(), N)
DTYPES(BT, bf16, f16, f32)
#endif
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
#if LOGITS || MATRICES == 2
TUNE(SPLIT, 8, 4) FORMULA(split(), SPLIT)
#else
FORMULA(split(), 8)
#endif
#if MATRICES == 2
FLAG(GATE_SCALE) FLAG(GATE_ROW_SCALE) FORMULA(scaled(), GATE_SCALE) FORMULA(row_scaled(), GATE_ROW_SCALE)
REQUIRE(GATE_SCALE == UP_SCALE && GATE_ROW_SCALE == UP_ROW_SCALE)
FLAG(UP_SCALE) FLAG(UP_ROW_SCALE) FLAG(GATE_BIAS) FLAG(UP_BIAS)
FORMULA(bias_bytes(), (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
TUNE(TILES, 2, 4) TUNE(COLS, 64, 128) TUNE(DEPTH, 4, 2)
#else
FLAG(W_SCALE) FLAG(W_ROW_SCALE) FORMULA(scaled(), W_SCALE) FORMULA(row_scaled(), W_ROW_SCALE)
TUNE(TILES, 1, 2) TUNE(COLS, 64, 128) TUNE(DEPTH, 6, 4, 2)
#if LOGITS
FORMULA(bias_bytes(), 0)
#else
FLAG(BIAS) FORMULA(bias_bytes(), BIAS * N * BT_BYTES)
#endif
#endif
TUNE(CHAINS, 2, 1)
FORMULA(turn(), COLS * 16 / WT_BITS)
FORMULA(staged(), stream_stages(rows(), K, WT_BITS, turn(), split()))
ORDER(stream, split(), turn(), CHAINS)
#if NORM
ATTR_FLOAT(EPS, 1e-5f) ATTR_INT(NORM_ONE, 0) DTYPES(NT, bf16, f16, f32) FORMULA(norm_size(), NT_BYTES)
using StreamNorm = NT;
TUNE(SQUARES, 0, 1) FORMULA(by_steps(), SQUARES)
ORDER(squares, SQUARES ? 2 : staged())
REQUIRE(SQUARES == 0 || WT_BITS < 16)
PRUNE(SQUARES == 0)
#else
FORMULA(norm_size(), 0) FORMULA(by_steps(), 0)
using StreamNorm = void;
#endif
#if LOGITS
ORDER(parts, 128 * TILES / SPLIT)
#endif
REQUIRE(rows() <= 64)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !scaled() && !row_scaled())
REQUIRE(WT_BITS != 8 || !scaled() || stream_takes_blocks(K, turn(), BLOCK_K))
REQUIRE(WT_BITS != 4 || scaled() && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && stream_takes_blocks(K, turn(), BLOCK_K)))
REQUIRE(ceil_div(rows(), 8) * 8 * (16 * TILES + 5) * 4 <= DEPTH * TILES * 32 * COLS)
REQUIRE((CHAINS + scaled()) * TILES * ceil_div(rows(), 8) <= 32)
PRUNE(CHAINS == 2 || ceil_div(rows(), 8) * TILES > 2)
PREFER(CHAINS == 1 || ceil_div(rows(), 8) * TILES <= 2)
PREFER(COLS == 64 || DEPTH == 2 && rows() <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(rows() > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
#if LOGITS || MATRICES == 2
PREFER(rows() <= 32)
PREFER(rows() <= 8 && WT_BITS == 16 || DEPTH == 2)
PREFER(SPLIT == 8 || rows() > 16)
PREFER(WT_BITS == 16 || rows() > 8 || COLS == 64 && TILES == 2 || has_little_smem())
#else
PREFER(ROWS <= 8 || DEPTH == (ROWS <= 48 ? 2 : 4))
#if NORM
PREFER(WT_BITS == 16 || ROWS > 8 || DEPTH == 2 && TILES == 2 && COLS == 64 || has_little_smem())
PREFER(ROWS <= 16 || TILES == 2)
#else
PREFER(WT_BITS != 8 || ROWS > 8 || DEPTH == 4 || has_little_smem())
PREFER(WT_BITS != 4 || ROWS > 8 || DEPTH == 2 && COLS == 128 && TILES == 1 || has_little_smem())
#endif
#endif
FORMULA(blocks(), ceil_div(columns(), 128 * TILES / split() / MATRICES))
GRID(blocks(), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * TILES * 16 * (COLS * 2 + stream_group_bytes(WT_BITS, turn(), BLOCK_K, ST_BITS))
	+ (staged() ? rows() * stream_row_bytes(K, turn(), split()) : 8 * DEPTH * turn() * norm_size()))
READS(MATRICES * (columns() * K * WT_BITS / 8 + row_scaled() * columns() * 4
	+ scaled() * ceil_div(columns(), max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8)
	+ K * norm_size() + rows() * (K * 2 + LOGITS * 4 + RESIDUAL * columns() * 2) + bias_bytes())
WRITES(LOGITS ? rows() * (columns() * 4 + blocks() * 12) : rows() * columns() * 2)
FLOPS(2 * MATRICES * rows() * columns() * K)
RATE(16)

#define BLOCK_SCALES "ceil_div(columns(), BLOCK_N), ceil_div(K, BLOCK_K)"
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
#if LOGITS
	IN(i32, out_row, "OUTS");
#endif
#if NORM
	IN(NT, norm, "K");
#endif
#if MATRICES == 1
	IN(WT, w, "columns(), K");
	IN_IF(W_SCALE, ST, w_scale, BLOCK_SCALES);
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "columns()");
#if !LOGITS
	IN_IF(BIAS, BT, bias, "N");
#endif
#else
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN_IF(GATE_SCALE, ST, gate_scale, BLOCK_SCALES);
	IN_IF(GATE_ROW_SCALE, f32, gate_row_scale, "N");
	IN_IF(UP_SCALE, ST, up_scale, BLOCK_SCALES);
	IN_IF(UP_ROW_SCALE, f32, up_row_scale, "N");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
#endif
#if LOGITS
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, 128 * TILES / SPLIT), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, 128 * TILES / SPLIT)");
#elif RESIDUAL
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
#else
	OUT(bf16, y, "ROWS, N");
#endif
};

using Scales = typename TypeIf<scaled() != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<rows(), K, split(), TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS, by_steps() != 0>;
static_assert(stream_bytes<S, StreamNorm>() <= dynamic_smem(), "the rings of all warps, and rows of x that wait");
