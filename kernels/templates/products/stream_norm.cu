// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n]; w may be codes with scales
// numerics  bf16(x * norm) times w, whose codes are decoded exactly, accumulated in f32; 1 / rms, scales of rows and
//           the bias in f32; one rounding. The order of additions depends on K, COLS, CHAINS and SQUARES (of codes also
//           on whether rows of x wait in shared memory, if SQUARES is 0): with these, a row has the same bits in every
//           bucket
// measured  H100 SXM, in a chain of its own kind: 76 % of the read rate at one row of 3072 x 2048, 94 % at 6144 x 4096;
//           at 6144 x 4096 90 % for 8 rows, 84 % for 16, 75 % for 32; no spills
// codes     one row, H200, 8B qkv: FP8 8.1 us, NVFP4 8.2 us with a ring of two turns and two tiles; deeper ones 9.7 to
//           12.8, since decoding wants warps more than bytes under way
// why       the norm is recomputed by every warp: it is a few KB from the caches behind a stream of weights, and a
//           kernel of its own would cost a launch and a round trip
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_norm, norm_linear)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(N, 3072)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(TILES, 1, 2)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 6, 4, 2)
TUNE(CHAINS, 2, 1)
TUNE(SQUARES, 0, 1)
REQUIRE(ROWS <= 64)
REQUIRE(K % 8 == 0)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !W_SCALE && !W_ROW_SCALE)
REQUIRE(WT_BITS != 8 || !W_SCALE || BLOCK_K >= K || 2 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (2 * COLS) == 0)
REQUIRE(WT_BITS != 4 || W_SCALE && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || 4 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (4 * COLS) == 0)))
REQUIRE(ceil_div(ROWS, 8) * 8 * (16 * TILES + 5) * 4 <= DEPTH * TILES * 32 * COLS)
REQUIRE((CHAINS + W_SCALE) * TILES * ceil_div(ROWS, 8) <= 32)
REQUIRE(SQUARES == 0 || WT_BITS < 16)
PRUNE(CHAINS == 2 || ceil_div(ROWS, 8) * TILES > 2)
PREFER(CHAINS == 1 || ceil_div(ROWS, 8) * TILES <= 2)
PRUNE(SQUARES == 0)
PREFER(COLS == 64 || DEPTH == 2 && ROWS <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(ROWS > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
PREFER(ROWS <= 8 || DEPTH == (ROWS <= 48 ? 2 : 4))
PREFER(WT_BITS == 16 || ROWS > 8 || DEPTH == 2 && TILES == 2 && COLS == 64 || SMEM_MAX < 200000)
PREFER(ROWS <= 16 || TILES == 2)
ORDER(stream, 8, COLS * 16 / WT_BITS, CHAINS)
ORDER(squares, SQUARES ? 2 : WT_BITS < 16 && ROWS <= 4
	&& ROWS * (256 * COLS / WT_BITS * ceil_div(K, 128 * COLS / WT_BITS) + 4096) + 75776 <= SMEM_MAX)
GRID(ceil_div(N, 16 * TILES), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * (COLS * TILES * 16 * 2
	+ (WT_BITS == 4) * TILES * 16 * (4 * COLS / min(4 * COLS, max(BLOCK_K, 1)) * ST_BITS / 8))
	+ (WT_BITS < 16 && ROWS <= 4
		&& ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096) + 75776 <= SMEM_MAX
		? ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096)
		: 8 * DEPTH * COLS * 16 / WT_BITS * NT_BYTES))
READS(N * K * WT_BITS / 8 + W_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8
	+ W_ROW_SCALE * N * 4 + K * NT_BYTES + ROWS * K * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
RATE(16)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_norm(const Args a)
{
	using Scales = typename TypeIf<W_SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<ROWS, K, stream_warps, TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS, SQUARES != 0>;
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n0 + stream_row<S, 16 * TILES>(), N - 1)];
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float bias = 0.0f;
		if constexpr (BIAS)
			bias = to_f32(a.bias[n]);
		float scale = sums.inverse_rms(t, float(EPS));
		if constexpr (W_ROW_SCALE)
			scale *= row_scale;
		store(a.y + i64(t) * N + n, fmaf(sums.at(t, row), scale, bias));
	});
}
