// what      z[n] = residual[n] + sum_k x[k] w[n,k] + bias[n], for one row; w are codes of e4m3 or e2m1 with scales
// numerics  x, as f16 times a power of two for each warp's columns, so that elements below 2^-28 of the largest lose
//           bits, times codes, decoded exactly, accumulated in f32; scales of blocks, groups and rows in f32; one
//           rounding. The order of additions depends on K, COLS, CHAINS and PAIR. Same bits every run
// measured  H200 SXM, in a chain of its own kind: FP8 4096 x 4096 4.8 us, 5120 x 6144 8.3, 5120 x 17408 23.3; NVFP4
//           4096 x 4096 4.8, 4096 x 14336 13.0. stream_residual takes 5.9, 11.5, 27.0; 5.6, 16.0. No spills
// why       decoding to f16 takes an instruction for two codes of e4m3 and leaves scales of groups to the sums; and two
//           blocks that share 16 rows of w even out what N / 16 blocks leave to a few multiprocessors at the end. Where
//           a norm stands in front, or gate and up beside each other, stream_norm and stream_swiglu are as fast
#include "shared/contract.cuh"
#include "products/stream_row.cuh"

KERNEL(stream_row_residual, linear_residual)
#define MATRICES 1
#define NORM 0
#define RESIDUAL 1
#define LOGITS 0
#define X_BITS 16
#define SCALES 1
#define MAPS 0
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 4096)
DIM(N, 4096)
DTYPES(WT, e4m3, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
#include "products/operands.cuh"
TUNE(TILES, 1, 2)
TUNE(COLS, 64, 128)
TUNE(DEPTH, 3, 2)
TUNE(CHAINS, 2, 1)
TUNE(PAIR, 1, 2)
FORMULA(turn(), COLS * 16 / WT_BITS)
ORDER(stream_row, turn(), CHAINS, PAIR)
REQUIRE(ROWS == 1)
REQUIRE(K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS == 4 ? scaled() && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32)
	&& K % (4 * BLOCK_K) == 0 : !scaled() || BLOCK_N % 16 == 0 && (BLOCK_K >= K || BLOCK_K % turn() == 0))
REQUIRE(stream_stages(1, K, WT_BITS, turn(), 8 * PAIR))
REQUIRE(K > 8 * (PAIR - 1) * turn())
PREFER(TILES == 1)
PREFER(COLS == 64 || WT_BITS == 4 && PAIR == 1)
PREFER(DEPTH == (WT_BITS == 8 ? 3 : 2))
PREFER(PAIR == (K > 8192 ? 2 : 1))
GRID(PAIR * ceil_div(N, 16 * TILES), 1, 1)
BLOCK(256)
SMEM(8 * DEPTH * TILES * 16 * (COLS * 2 + stream_group_bytes(WT_BITS, K, turn(), BLOCK_K, ST_BITS))
	+ 16 * turn() * ceil_div(K, 8 * PAIR * turn()) + 4096)
READS(matrix_bytes() + x_row_bytes() + added_bytes())
RATE(16)

using Scales = typename TypeIf<scaled() != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<1, K, 8 * PAIR, TILES, COLS, DEPTH, WT, Scales, stream_ahead, CHAINS>;
static_assert(stream_bytes<S, void>() <= dynamic_smem(), "the rings of all warps, and the row that waits");
#if PAIR > 1
#define TOGETHER __cluster_dims__(PAIR, 1, 1)
#else
#define TOGETHER // nor does a cluster of one have to be placed
#endif

extern "C" __global__ void TOGETHER __launch_bounds__(256, 3) stream_row_residual(const Args a)
{
	let_next_start();
	const bool some = a.step[0] > 0;
	DYNAMIC_SMEM(ring);
	const int n0 = blockIdx.x / PAIR * (16 * TILES), n = n0 + threadIdx.x;
	const bool has_result = threadIdx.x < 16 * TILES && n < N;
	float rest = 0.0f, row_scale = 1.0f;
	if constexpr (W_ROW_SCALE)
		row_scale = a.w_row_scale[min(n, N - 1)];
	RowSums sums;
	if (!stream_row_of<S, PAIR, N % (16 * TILES) == 0>(
		ring, [&](int m) { return stream_tile<S>(a.w, a.w_scale, n0 + m * 16, N); }, a.x, some, [&] {
			if (!has_result)
				return;
			rest = to_f32(a.residual[n]);
			if constexpr (BIAS)
				rest += to_f32(a.bias[n]);
		}, sums))
		return;
	if (has_result)
		store(a.z + n, fmaf(sums.at(threadIdx.x), row_scale, rest));
}
