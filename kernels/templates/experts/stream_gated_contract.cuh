// stream_gated_contract.cuh - contract fragment: experts on the way up of an activation of their own, for few rows,
// whose weights are streamed as they come, stream_experts_up_*.cu.
//
//   CLAMPED   0: rows of gate come before those of up. 1: they alternate, and each has a bias
#pragma once
#include "experts/experts.cuh"
#include "products/stream.cuh"
#include "shared/activation.cuh"

PARAM(CLAMPED, 0, 1)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2880)
DIM(EXPERTS, 32)
DIM(N, 5760)
DIM(WIDTH, 11520)
ATTR_INT(TOPK, 4) ATTR_INT(BLOCK_N, 1) ATTR_INT(BLOCK_K, 32)
FLAG(SCALE)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
#if CLAMPED
DTYPES(BT, bf16, f16, f32)
FORMULA(halves(), 1) FORMULA(row_bytes(), BT_BYTES)
REQUIRE(WT_BITS != 8)
#else
FLAG(ROW_SCALE)
FORMULA(halves(), 2) FORMULA(row_bytes(), ROW_SCALE * 4)
REQUIRE(WT_BITS < 16 || !ROW_SCALE)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(K, 128, BLOCK_K))
#endif
// 3: two, of each of two groups of warps, in whole numbers (stream_whole.cuh)
TUNE(TILES, 2, 4, 3)
FORMULA(tiles(), TILES == 3 ? 2 : TILES) FORMULA(groups(), TILES == 3 ? 2 : 1)
REQUIRE(TOPK <= EXPERTS && N % 2 == 0 && WIDTH == TOPK * N / 2)
REQUIRE(ROWS <= 256 && ROWS * TOPK <= 4096)
REQUIRE(K % 8 == 0 && K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS < 16 || !SCALE)
REQUIRE(WT_BITS != 4 || SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
FORMULA(takes_whole(), ROWS <= 8 && WT_BITS == 4)
REQUIRE(WT_BITS == 16 ? TILES != 3 : TILES == 2 || TILES == 3 && takes_whole())
PREFER(takes_whole() == (TILES == 3))
PREFER(ROWS <= 8 || WT_BITS != 8)
ORDER(stream, 8 / groups(), 1024 / WT_BITS, TILES == 4 ? 1 : TILES)
GRID(ceil_div(N / 2, 8 * tiles() * groups()), ROWS <= 8 ? ROWS * TOPK : min(EXPERTS, ROWS * TOPK), 1)
BLOCK(256)
FORMULA(rows_each(), ROWS <= 8 ? 1 : 8)
SMEM(16 * tiles() * 16 * (128 + stream_group_bytes(WT_BITS, K, 1024 / WT_BITS, BLOCK_K, ST_BITS))
	+ (TILES == 3 ? stream_whole_bytes(1024 / WT_BITS)
		: stream_stages(rows_each(), K, WT_BITS, 1024 / WT_BITS, 8) * stream_row_bytes(K, 1024 / WT_BITS, 8)))
READS(min(EXPERTS, ROWS * TOPK) * (N * (K * WT_BITS / 8 + row_bytes())
		+ SCALE * halves() * ceil_div(N / halves(), max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8)
	+ ROWS * (K * 2 + TOPK * 8))
WRITES(ROWS * WIDTH * 2)
FLOPS(4 * ROWS * WIDTH * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, n, "ROWS, K");
	IN(i32, expert, "ROWS, TOPK");
	IN(f32, share, "ROWS, TOPK");
	IN(WT, gate_up, "EXPERTS, N, K");
#if CLAMPED
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN(BT, gate_up_bias, "EXPERTS, N");
#else
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
#endif
	OUT(bf16, h, "ROWS, WIDTH");
};

#include "experts/stream_experts_up.cuh"

constexpr int width = N / 2;
using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<ROWS <= 8 ? 1 : 8, K, stream_warps / groups(), tiles(), 64, 2, WT, Scales, stream_ahead,
	stream_chains(ROWS <= 8 ? 1 : 8, tiles()), false, TILES == 3>;

#if !CLAMPED
// block level: the whole kernel; act(gate, up) of two f32
template <class Act> __device__ __forceinline__ void stream_gated(const Args &a, Act act)
{
	DYNAMIC_SMEM(ring);
	let_next_start();
	const int n0 = blockIdx.x * 8 * tiles() * groups();
	up_of_pairs<width, TOPK>(a, a.step[0], int(blockIdx.y), n0, [&](int e, auto x_row, auto out) {
		gated<S, width, ROW_SCALE != 0>(ring, matrix_at<WT, N, K>(a.gate_up, e),
			scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
			ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr, n0, true, x_row, act, out);
	});
}
#endif
