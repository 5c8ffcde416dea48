// what      h[t,:] = for each of row t's experts share * (silu(gate n[t]) * (up n[t])), then the same of the expert
//           that all rows go to; weights may be codes with scales
// numerics  n times w, whose codes are decoded exactly, accumulated in f32; scales of rows, silu, products and the
//           share in f32; one rounding. Same bits every run, whatever the rows beside
// why       which rows an expert has is known only when the launch before is done (stream_experts_up.cuh); the shared
//           expert's weights are on their way by then
// measured  H100 SXM, in a chain of its own kind, one row: FP8 1024 x 2048 with the shared expert 9.5 us, 64 % of the
//           read rate, NVFP4 7.0 us; bf16 1536 x 2048 18.7 us, 87 %; FP8 4 rows 90 %, 8 rows 106 %: they share experts
// one       launch for both halves, in which down's blocks wait with their weights in place, took 17.4 us where the two
//           take 15.2
// ring      of two turns: four leave room for one block where three are wanted and cost 5 to 30 %; 32 rows of codes a
//           block, 64 of bf16
// rows      up to 8 that chose the same expert read its weights at the same time, all but one from the L2 cache: READS
//           counts an expert once
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_up, experts_up)
#define UP 1
#define LISTED 0
#define ALIKE 0
#define BIASED 0
DIM(ROWS, 1)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
DIM(WIDTH, 4096)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(SWT, bf16, e4m3, e2m1)
#include "experts/experts_contract.cuh"
// 3: two, of each of two groups of warps, in whole numbers (stream_whole.cuh), but for the shared expert
TUNE(TILES, 2, 4, 3)
FORMULA(tiles(), TILES == 3 ? 2 : TILES) FORMULA(groups(), TILES == 3 ? 2 : 1)
REQUIRE(ROWS <= 256 && ROWS * TOPK <= 4096)
REQUIRE(K % 8 == 0 && K * WT_BITS % 128 == 0 && K * SWT_BITS % 128 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(K, 128, BLOCK_K))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || stream_takes_blocks(K, 128, SHARED_BLOCK_K))
FORMULA(takes_whole(), ROWS <= 8 && WT_BITS == 4)
REQUIRE(WT_BITS == 16 ? TILES != 3 : TILES == 2 || TILES == 3 && takes_whole())
PREFER(takes_whole() == (TILES == 3))
PREFER(ROWS <= 8 || WT_BITS == 16)
ORDER(stream, 8 / groups(), 1024 / WT_BITS, TILES == 4 ? 1 : TILES)
GRID(max(ceil_div(N / 2, 8 * tiles() * groups()), ceil_div(WIDTH - TOPK * N / 2, 8 * tiles())),
	SHARED * ceil_div(ROWS, 8) + (ROWS <= 8 ? ROWS * TOPK : min(EXPERTS, ROWS * TOPK)), 1)
BLOCK(256)
SMEM(max(16 * tiles() * 16 * (128 + stream_group_bytes(WT_BITS, K, 1024 / WT_BITS, BLOCK_K, ST_BITS))
		+ (TILES == 3 ? stream_whole_bytes(1024 / WT_BITS)
			: (WT_BITS < 16 && ROWS <= 8 && 16384 / WT_BITS * ceil_div(K, 8192 / WT_BITS) + 4096 + 75776 <= SMEM_MAX)
			* (16384 / WT_BITS * ceil_div(K, 8192 / WT_BITS) + 4096)),
	SHARED * (16 * tiles() * 16
			* (128 + stream_group_bytes(SWT_BITS, K, 1024 / SWT_BITS, SHARED_BLOCK_K, SST_BITS))
		+ (SWT_BITS < 16 && ROWS <= 4
			&& ROWS * (16384 / SWT_BITS * ceil_div(K, 8192 / SWT_BITS) + 4096) + 75776 <= SMEM_MAX)
			* ROWS * (16384 / SWT_BITS * ceil_div(K, 8192 / SWT_BITS) + 4096))))
READS(min(EXPERTS, ROWS * TOPK) * each_bytes() + SHARED * shared_bytes() + ROWS * (K * 2 + TOPK * 8))

#include "experts/stream_experts_up.cuh"

extern "C" __global__ void __launch_bounds__(256, stream_blocks(1, tiles(), bits_of<WT>))
stream_experts_up(const Args a)
{
	constexpr int width = N / 2, shared_width = WIDTH - TOPK * width, shares = TOPK + SHARED;
	constexpr int tile = ROWS < 8 ? ROWS : 8, shared_tiles = SHARED * ceil_div(ROWS, 8);
	const auto act = [](float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; };
	DYNAMIC_SMEM(ring);
	let_next_start();
	const int rows = a.step[0], n0 = blockIdx.x * 8 * tiles(), pair = int(blockIdx.y) - shared_tiles;
	if constexpr (SHARED) {
		using Scales = typename TypeIf<SHARED_SCALE != 0, BlockScales<SST, SHARED_BLOCK_N, SHARED_BLOCK_K>,
			NoScales>::Type;
		using S = Stream<tile, K, stream_warps, tiles(), 64, 2, SWT, Scales>;
		if (pair < 0) {
			const int t0 = ROWS > 8 ? int(blockIdx.y) * 8 : 0;
			if (n0 < shared_width)
				gated<S, shared_width, SHARED_ROW_SCALE != 0>(ring, a.shared, a.shared_scale, a.shared_row_scale, n0,
					rows > t0,
					[&](int t) { return ROWS % tile == 0 || t0 + t < ROWS ? a.n + i64(t0 + t) * K : nullptr; }, act,
					[&](int t, int n, float y) {
						if (ROWS % tile == 0 || t0 + t < ROWS)
							store(a.h + i64(t0 + t) * WIDTH + TOPK * width + n, y * a.share[(t0 + t) * shares + TOPK]);
					});
			return;
		}
	}
	using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<ROWS <= 8 ? 1 : 8, K, stream_warps / groups(), tiles(), 64, 2, WT, Scales, stream_ahead,
		stream_chains(ROWS <= 8 ? 1 : 8, tiles()), false, TILES == 3>;
	up_of_pairs<width, shares>(a, rows, pair, n0 * groups(), [&](int e, auto x_row, auto out) {
		gated<S, width, ROW_SCALE != 0>(ring, matrix_at<WT, N, K>(a.gate_up, e),
			scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
			ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr, n0 * groups(), true, x_row, act, out);
	});
}
