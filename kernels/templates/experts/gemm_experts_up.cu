// what      h[t,:] = for each of row t's experts share * (silu(gate n[t]) * (up n[t])), then the same of the expert
//           that all rows go to; for batches and prompts, whose pairs of row and expert stand in order by expert. Rows
//           beyond step[0] stay as they are
// numerics  n times bf16(w), accumulated in f32 in ascending k; silu, products and the share in f32; one rounding. Same
//           bits every run; a row's bits do not depend on the other rows
// codes     e4m3 and e2m1 become bf16 exactly, e2m1 with the scale of its group; scales of blocks multiply the f32
//           sums of their columns, those of rows the end (gemm_codes.cuh)
// tiles     BM pairs of one expert; BM follows from how many an expert has on average. Blocks of one tile stand
//           together, and tiles of one expert: its weights are asked of the memory once
// bytes     READS is what tiles ask for if pairs are spread evenly
// measured  H100 SXM, 128 experts of 1536 x 2048, 8 a row, 2048 rows: FP8 126 TFLOP/s, bf16 166; 32 rows of FP8 80 % of
//           the read rate
// why       the w tile takes eight rows of gate, eight of up and so on: then both halves of an output stand in one
//           thread's accumulators and no value crosses threads
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/gemm_codes.cuh"

KERNEL(gemm_experts_up, experts_up)
#define UP 1
#define LISTED 1
#define ALIKE 0
#define BIASED 0
DIM(ROWS, 512)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
DIM(WIDTH, 4096)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1)
DTYPES(SWT, bf16, f16, f32, e4m3, e2m1)
#include "experts/experts_contract.cuh"
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(EXPERTS <= 1024)
REQUIRE(BM == (ROWS * TOPK <= 16 * EXPERTS ? 16 : ROWS * TOPK <= 40 * EXPERTS ? 32
	: ROWS * TOPK <= 128 * EXPERTS ? 64 : 128))
REQUIRE(K % 8 == 0 && (WT_BITS >= 16 || K * WT_BITS % 128 == 0) && (SWT_BITS >= 16 || K * SWT_BITS % 128 == 0))
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || SHARED_BLOCK_K >= K || SHARED_BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
ORDER(gemm)
GRID((ROWS * TOPK + min(EXPERTS, ROWS * TOPK) * (BM - 1)) / BM * ceil_div(N, BN)
	+ SHARED * ceil_div(ROWS, BM) * ceil_div(2 * WIDTH - TOPK * N, BN), 1, 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * (max(WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS : (BM + BN) * 144,
	SHARED * (SWT_BITS < 16 ? BM * 128 + BN * 8 * SWT_BITS : (BM + BN) * 144)) + 256))
READS(max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, BM)) * each_bytes()
	+ SHARED * ceil_div(ROWS, BM) * shared_bytes()
	+ ROWS * (TOPK * ceil_div(N, BN) + SHARED * ceil_div(2 * WIDTH - TOPK * N, BN)) * K * 2 + ROWS * TOPK * 8)

#include "experts/gemm_experts_up.cuh"

// as the quotient that it was measured with
__device__ __forceinline__ float silu_times(float gate, float up)
{
	return gate / (1.0f + __expf(-gate)) * up;
}

extern "C" __global__ void __launch_bounds__(Tile<BM, BN>::threads) gemm_experts_up(const Args a)
{
	using C = Codes<WT, SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	constexpr int shares = TOPK + SHARED, width = N / 2, across = ceil_div(N, BN);
	constexpr int shared_width = WIDTH - TOPK * width, shared_across = ceil_div(2 * shared_width, BN);
	constexpr int shared_blocks = SHARED * ceil_div(ROWS, BM) * shared_across;
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int rows = min(a.step[0], ROWS);
	if constexpr (SHARED) {
		using D = Codes<SWT, SHARED_SCALE != 0, SST, SHARED_BLOCK_N, SHARED_BLOCK_K>;
		if (int(blockIdx.x) < shared_blocks) {
			const int t0 = blockIdx.x / shared_across * BM;
			if (t0 >= rows)
				return;
			for (int r = threadIdx.x; r < BM; r += Tile<BM, BN>::threads)
				pairs[r] = t0 + r < rows ? (t0 + r) * shares + TOPK : -1;
			__syncthreads();
			gated_tile<D, shared_width, SHARED_ROW_SCALE != 0, shares>(a, ring, a.shared, a.shared_scale,
				a.shared_row_scale, blockIdx.x % shared_across * (BN / 2), silu_times);
			return;
		}
	}
	const int block = int(blockIdx.x) - shared_blocks;
	const ExpertTile tile = expert_tile<EXPERTS, BM>(a.first, block / across);
	if (tile.expert < 0)
		return;
	for (int r = threadIdx.x; r < BM; r += Tile<BM, BN>::threads) {
		const int p = r < tile.count ? a.pair[tile.start + r] : -1;
		pairs[r] = p < 0 ? -1 : p / TOPK * shares + p % TOPK;
	}
	__syncthreads();
	const int e = tile.expert;
	gated_tile<C, width, ROW_SCALE != 0, shares>(a, ring, matrix_at<WT, N, K>(a.gate_up, e),
		scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
		ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr,
		block % across * (BN / 2), silu_times);
}
