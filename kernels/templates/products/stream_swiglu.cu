// what      n = rmsnorm(x); y[t,i] = silu(n[t,:].gate[i,:] + gate_bias[i]) * (n[t,:].up[i,:] + up_bias[i]); gate and up
//           may be codes with scales
// numerics  bf16(x * norm) times w, whose codes are decoded exactly, accumulated in f32; norm, scales of rows, biases,
//           silu and product in f32; one rounding. Same bits every run, whatever the rows beside
// measured  H100 SXM, in a chain of its own kind: 94 % of the read rate at one row of 8192 x 2048, 99 % at
//           14336 x 4096, which has 98 % for 8 rows, 97 % for 16, 88 % for 32; no spills
// codes     one row, H200, 8B gate and up: FP8 29.4 us, NVFP4 27.3 us with a ring of two turns; 44 and 43 with four
// why       a group of warps holds rows of gate and the same rows of up, so the product needs neither a second kernel
//           nor a layout of its own
#include "shared/contract.cuh"
#include "products/stream.cuh"

KERNEL(stream_swiglu, norm_swiglu)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(N, 8192)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(GATE_SCALE)
FLAG(GATE_ROW_SCALE)
FLAG(UP_SCALE)
FLAG(UP_ROW_SCALE)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
DTYPES(WT, bf16, e4m3, e2m1, u4)
DTYPES(ST, bf16, f32, e4m3, e8m0, f32z)
DTYPES(NT, bf16, f16, f32)
DTYPES(BT, bf16, f16, f32)
TUNE(SPLIT, 8, 4)
TUNE(TILES, 2, 4)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 4, 2)
TUNE(CHAINS, 2, 1)
TUNE(SQUARES, 0, 1)
REQUIRE(ROWS <= 64)
REQUIRE(K % 8 == 0)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !GATE_SCALE && !UP_SCALE && !GATE_ROW_SCALE && !UP_ROW_SCALE)
REQUIRE(WT_BITS != 8 || !GATE_SCALE || BLOCK_K >= K || 2 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (2 * COLS) == 0)
REQUIRE(WT_BITS != 4 || GATE_SCALE && BLOCK_N == 1 && (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
	: ST_BITS == 32 && (BLOCK_K >= K || 4 * COLS % max(BLOCK_K, 1) == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K % (4 * COLS) == 0)))
REQUIRE(GATE_SCALE == UP_SCALE && GATE_ROW_SCALE == UP_ROW_SCALE)
REQUIRE(ceil_div(ROWS, 8) * 8 * (16 * TILES + 5) * 4 <= DEPTH * TILES * 32 * COLS)
REQUIRE((CHAINS + GATE_SCALE) * TILES * ceil_div(ROWS, 8) <= 32)
REQUIRE(SQUARES == 0 || WT_BITS < 16)
PREFER(ROWS <= 32)
PRUNE(CHAINS == 2 || ceil_div(ROWS, 8) * TILES > 2)
PREFER(CHAINS == 1 || ceil_div(ROWS, 8) * TILES <= 2)
PRUNE(SQUARES == 0)
PREFER(COLS == 64 || DEPTH == 2 && ROWS <= 16)
PREFER(DEPTH * TILES <= 8)
PREFER(ROWS > 8 || COLS * DEPTH * TILES >= (WT_BITS < 16 ? 128 : 256))
PREFER(ROWS <= 8 && WT_BITS == 16 || DEPTH == 2)
PREFER(WT_BITS == 16 || ROWS > 8 || COLS == 64 && TILES == 2 || SMEM_MAX < 200000)
PREFER(SPLIT == 8 || ROWS > 16)
ORDER(stream, SPLIT, COLS * 16 / WT_BITS, CHAINS)
ORDER(squares, SQUARES ? 2 : WT_BITS < 16 && ROWS <= 4
	&& ROWS * (256 * COLS / WT_BITS * ceil_div(K, 128 * COLS / WT_BITS) + 4096) + 75776 <= SMEM_MAX)
GRID(ceil_div(N, 64 * TILES / SPLIT), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * (COLS * TILES * 16 * 2
	+ (WT_BITS == 4) * TILES * 16 * (4 * COLS / min(4 * COLS, max(BLOCK_K, 1)) * ST_BITS / 8))
	+ (WT_BITS < 16 && ROWS <= 4
		&& ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096) + 75776 <= SMEM_MAX
		? ROWS * (16 * COLS * 16 / WT_BITS * ceil_div(K, 8 * COLS * 16 / WT_BITS) + 4096)
		: 8 * DEPTH * COLS * 16 / WT_BITS * NT_BYTES))
READS(2 * N * K * WT_BITS / 8 + 2 * GATE_SCALE * ceil_div(N, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1))
	* ST_BITS / 8 + 2 * GATE_ROW_SCALE * N * 4 + K * NT_BYTES + ROWS * K * 2 + (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(4 * ROWS * N * K)
RATE(16)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN_IF(GATE_SCALE, ST, gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(GATE_ROW_SCALE, f32, gate_row_scale, "N");
	IN_IF(UP_SCALE, ST, up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(UP_ROW_SCALE, f32, up_row_scale, "N");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(256, stream_blocks(ROWS, TILES, bits_of<WT>, CHAINS))
stream_swiglu(const Args a)
{
	using Scales = typename TypeIf<GATE_SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<ROWS, K, SPLIT, TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS, SQUARES != 0>;
	constexpr int half = 8 * TILES; // rows of gate, then as many of up
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = (blockIdx.x * S::groups + threadIdx.x / (32 * SPLIT)) * half;
	float gate_row_scale = 1.0f, up_row_scale = 1.0f;
	if constexpr (GATE_ROW_SCALE && UP_ROW_SCALE) {
		const int n = min(n0 + stream_row<S, half>(), N - 1);
		gate_row_scale = a.gate_row_scale[n];
		up_row_scale = a.up_row_scale[n];
	}
	StreamSums<S> sums;
	if (!stream<S, N % (S::groups * half) == 0, NORM_ONE != 0, NT>(
		ring, [&](int m) {
			const bool first = m < TILES / 2;
			const int n = n0 + m % (TILES / 2) * 16;
			return stream_tile<S>(first ? a.gate : a.up, first ? a.gate_scale : a.up_scale, n, N);
		},
		[&](int t) { return a.x + i64(t) * K; }, a.norm, some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		const int n = n0 + row;
		if (n >= N)
			return;
		const float scale = sums.inverse_rms(t, float(EPS));
		float gate = sums.at(t, row) * scale, up = sums.at(t, half + row) * scale;
		if constexpr (GATE_ROW_SCALE)
			gate *= gate_row_scale;
		if constexpr (UP_ROW_SCALE)
			up *= up_row_scale;
		if constexpr (GATE_BIAS)
			gate += to_f32(a.gate_bias[n]);
		if constexpr (UP_BIAS)
			up += to_f32(a.up_bias[n]);
		store(a.y + i64(t) * N + n, gate / (1.0f + __expf(-gate)) * up);
	});
}
