// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n]; w may be codes with scales
// numerics  x times w, accumulated in f32; one rounding. The order of additions depends on K, COLS and CHAINS alone: a
//           row has the same bits every run and, with these, in every bucket
// measured  H100 SXM, in a chain of its own kind, one row: 72 % of the read rate at 2048 x 2048, 88 % at 2048 x 8192,
//           92 % at 4096 x 4096, 95 % at 4096 x 14336, which has 94 % for 8 rows, 91 % for 16, 84 % for 32; no spills
// codes     one row, H200: FP8 4096 x 4096 6.1 us, 4096 x 14336 16.1 us with a ring of four turns; NVFP4 5.7 and 16.0
//           with two turns of twice the columns; other depths cost 3 to 40 % more
// why       the residual is read as soon as it may be, beside the stream of weights, so that the tail waits for nothing
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_residual, linear_residual)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 8192)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(W_SCALE)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(BT, bf16, f16, f32)
TUNE(TILES, 1, 2)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 6, 4, 2)
TUNE(CHAINS, 2, 1)
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
PRUNE(CHAINS == 2 || ceil_div(ROWS, 8) * TILES > 2)
PREFER(CHAINS == 1 || ceil_div(ROWS, 8) * TILES <= 2)
PREFER(COLS == 64 || DEPTH == 2 && ROWS <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(ROWS > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
PREFER(ROWS <= 8 || DEPTH == (ROWS <= 48 ? 2 : 4))
PREFER(WT_BITS != 8 || ROWS > 8 || DEPTH == 4 || SMEM_MAX < 200000)
PREFER(WT_BITS != 4 || ROWS > 8 || DEPTH == 2 && COLS == 128 && TILES == 1 || SMEM_MAX < 200000)
ORDER(stream, 8, COLS * 16 / WT_BITS, CHAINS)
GRID(ceil_div(N, 16 * TILES), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * TILES * 16 * (COLS * 2
	+ (WT_BITS == 4) * (4 * COLS / min(4 * COLS, max(BLOCK_K, 1)) * ST_BITS / 8))
	+ (WT_BITS < 16 && ROWS <= 4
		&& ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096) + 75776 <= SMEM_MAX)
		* ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096))
READS(N * K * WT_BITS / 8 + W_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8
	+ W_ROW_SCALE * N * 4 + ROWS * (K + N) * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
RATE(16)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN_IF(W_SCALE, ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_residual(const Args a)
{
	using Scales = typename TypeIf<W_SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<ROWS, K, stream_warps, TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS>;
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	constexpr int count = ceil_div(16 * TILES * ROWS, 256);
	constexpr bool early = count <= 4;
	float rest[early ? count : 1];
	const auto read_rest = [&](int t, int n) {
		float r = to_f32(a.residual[i64(t) * N + n]);
		if constexpr (BIAS)
			r += to_f32(a.bias[n]);
		return r;
	};
	float row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n0 + stream_row<S, 16 * TILES>(), N - 1)];
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, false, void>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, static_cast<const void *>(nullptr), some, [&] {
			if constexpr (early)
				stream_each<S, 16 * TILES>([&](int i, int t, int row) {
					rest[i] = n0 + row < N ? read_rest(t, n0 + row) : 0.0f;
				});
		}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int i, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float r;
		if constexpr (early)
			r = rest[i];
		else
			r = read_rest(t, n);
		const float sum = sums.at(t, row);
		store(a.z + i64(t) * N + n, W_ROW_SCALE ? fmaf(sum, row_scale, r) : sum + r);
	});
}
