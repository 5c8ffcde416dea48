// what      logits[o,v] = sum_k rmsnorm(x[out_row[o],:])[k] w[v,k], in f32; idle outs (-1): 0. And the best of each
//           part of the vocabulary: a block's ids. w may be codes with scales
// numerics  bf16(x * norm) times w, accumulated in f32; not rounded. Same bits every run, whatever the rows beside
// measured  H100 SXM: the read rate itself at one out of 128256 x 2048, 98 % for 8 outs of 128256 x 4096, 95 % for 16,
//           91 % for 32; no spills
// codes     one row, H200, 8B head in FP8: 119 us with a ring of two turns, 150 to 174 with four
// why       a step that wants no logits (a chunk in the middle of a prompt) leaves before the first product
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/stream.cuh"

KERNEL(stream_logits, norm_logits)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(OUTS, 1)
DIM(K, 2048)
DIM(V, 128256)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(N_VALID, 128256)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(NT, bf16, f16, f32)
TUNE(SPLIT, 8, 4)
TUNE(TILES, 1, 2)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 6, 4, 2)
TUNE(CHAINS, 2, 1)
TUNE(SQUARES, 0, 1)
REQUIRE(OUTS <= 64)
REQUIRE(K % 8 == 0)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !W_SCALE && !W_ROW_SCALE)
REQUIRE(WT_BITS != 8 || !W_SCALE || BLOCK_K >= K || 2 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (2 * COLS) == 0)
REQUIRE(WT_BITS != 4 || W_SCALE && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || 4 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (4 * COLS) == 0)))
REQUIRE(ceil_div(OUTS, 8) * 8 * (16 * TILES + 5) * 4 <= DEPTH * TILES * 32 * COLS)
REQUIRE((CHAINS + W_SCALE) * TILES * ceil_div(OUTS, 8) <= 32)
REQUIRE(SQUARES == 0 || WT_BITS < 16)
PREFER(OUTS <= 32)
PRUNE(CHAINS == 2 || ceil_div(OUTS, 8) * TILES > 2)
PREFER(CHAINS == 1 || ceil_div(OUTS, 8) * TILES <= 2)
PRUNE(SQUARES == 0)
PREFER(COLS == 64 || DEPTH == 2 && OUTS <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(OUTS > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
PREFER(OUTS <= 8 && WT_BITS == 16 || DEPTH == 2)
PREFER(WT_BITS == 16 || OUTS > 8 || COLS == 64 && TILES == 2 || SMEM_MAX < 200000)
PREFER(SPLIT == 8 || OUTS > 16)
ORDER(stream, SPLIT, COLS * 16 / WT_BITS, CHAINS)
ORDER(squares, SQUARES ? 2 : WT_BITS < 16 && OUTS <= 4
	&& OUTS * (256 * COLS / WT_BITS * ceil_div(K, 128 * COLS / WT_BITS) + 4096) + 75776 <= SMEM_MAX)
ORDER(parts, 128 * TILES / SPLIT)
GRID(ceil_div(V, 128 * TILES / SPLIT), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * (COLS * TILES * 16 * 2
	+ (WT_BITS == 4) * TILES * 16 * (4 * COLS / min(4 * COLS, max(BLOCK_K, 1)) * ST_BITS / 8))
	+ (WT_BITS < 16 && OUTS <= 4
		&& OUTS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096) + 75776 <= SMEM_MAX
		? OUTS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096)
		: 8 * DEPTH * COLS * 16 / WT_BITS * NT_BYTES))
READS(V * K * WT_BITS / 8 + W_SCALE * ceil_div(V, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8
	+ W_ROW_SCALE * V * 4 + K * NT_BYTES + OUTS * (K * 2 + 4))
WRITES(OUTS * (V * 4 + ceil_div(V, 128 * TILES / SPLIT) * 12))
FLOPS(2 * OUTS * V * K)
RATE(16)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(i32, out_row, "OUTS");
	IN(NT, norm, "K");
	IN(WT, w, "V, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(V, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "V");
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, 128 * TILES / SPLIT), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, 128 * TILES / SPLIT)");
};

extern "C" __global__ void __launch_bounds__(256, stream_blocks(OUTS, TILES, bits_of<WT>, CHAINS))
stream_logits(const Args a)
{
	using Scales = typename TypeIf<W_SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<OUTS, K, SPLIT, TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS, SQUARES != 0>;
	let_next_start();
	const bool some = a.step[1] > 0;
	DYNAMIC_SMEM(ring);
	const int v0 = (blockIdx.x * S::groups + threadIdx.x / (32 * SPLIT)) * 16 * TILES;
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(v0 + stream_row<S, 16 * TILES>(), V - 1)];
	StreamSums<S> sums;
	if (!stream<S, V % (S::groups * 16 * TILES) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, v0 + m * 16, V); },
		[&](int o) {
			const int r = a.out_row[o];
			return r < 0 || r >= ROWS ? nullptr : a.x + i64(r) * K;
		},
		a.norm, some, [] {}, sums))
		return;
	constexpr int ids = S::groups * 16 * TILES, parts = (V + ids - 1) / ids;
	__shared__ float part[OUTS][ids];
	stream_each<S, 16 * TILES>([&](int, int o, int row) {
		float logit = sums.at(o, row) * sums.inverse_rms(o, float(EPS));
		if constexpr (W_ROW_SCALE)
			logit *= row_scale;
		if (v0 + row < V)
			a.logits[i64(o) * V + v0 + row] = logit;
		part[o][(v0 + row) % ids] = logit;
	});
	__syncthreads();
	for (int o = threadIdx.x / 32; o < OUTS; o += stream_warps)
		best_of_part<ids>(blockIdx.x * ids, N_VALID, [&](int i) { return part[o][i]; },
			a.best + (i64(o) * parts + blockIdx.x) * 2, a.best_id + i64(o) * parts + blockIdx.x);
}
