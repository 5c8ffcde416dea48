// what      y[t,n] = sum_k rmsnorm(x)[t,k] w[n,k] + bias[n]
// numerics  bf16(x * norm) times w, accumulated in f32; 1 / rms and the bias in f32; one rounding. The order of
//           additions depends on K, the tunables and how many rows the kernel is made for, not on how many are in use:
//           same bits every run and for every batch of one bucket
// measured  H100 SXM, in a chain of its own kind: 76 % of the read rate at one row of 3072 x 2048, 94 % at 6144 x 4096;
//           at 6144 x 4096 90 % for 8 rows, 84 % for 16, 75 % for 32; no spills
// why       the norm is recomputed by every warp: it is a few KB from the caches behind a stream of weights, and a
//           kernel of its own would cost a launch and a round trip
#include "contract.cuh"
#include "stream.cuh"

KERNEL(stream_norm, norm_linear)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(N, 3072)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(BIAS)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(TILES, 1, 2)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 6, 4, 2)
REQUIRE(ROWS <= 64)
REQUIRE(K % 8 == 0)
REQUIRE(COLS == 64 || DEPTH == 2 && ROWS <= 16)
REQUIRE(DEPTH * TILES <= 8)
REQUIRE(ROWS > 8 || COLS * DEPTH * TILES >= 256)
REQUIRE(ROWS <= 8 || DEPTH == (ROWS <= 48 ? 2 : 4))
REQUIRE(ROWS <= 16 || TILES == 2)
GRID(ceil_div(N, 16 * TILES), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * COLS * (TILES * 16 * 2 + NT_BYTES))
READS(N * K * 2 + K * NT_BYTES + ROWS * K * 2 + BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(bf16, w, "N, K");
	IN_IF(BIAS, BT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES)) stream_norm(const Args a)
{
	using S = Stream<ROWS, K, stream_warps, TILES, COLS, DEPTH>;
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x * 16 * TILES;
	StreamSums<S> sums;
	if (!stream<S, N % (16 * TILES) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) { return stream_tile(a.w, K, n0 + m * 16, N); },
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<S, 16 * TILES>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		float bias = 0.0f;
		if constexpr (BIAS)
			bias = to_f32(a.bias[n]);
		store(a.y + i64(t) * N + n, fmaf(sums.at(t, row), sums.inverse_rms(t, float(EPS)), bias));
	});
}
