// gemm_gated_contract.cuh - contract fragment: experts whose activation is gated(gate, up), for any number of rows, by
// tiles of pairs that stand in order by expert, gemm_experts_up_*.cu. Rows in no pair stay as they are.
//
// numerics, codes, tiles, bytes  as gemm_experts_up
#pragma once
#include "experts/experts.cuh"
#include "products/gemm_codes.cuh"
#include "shared/activation.cuh"

ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
DIM(WIDTH, 4096)
ATTR_INT(TOPK, 8) ATTR_INT(BLOCK_N, 128) ATTR_INT(BLOCK_K, 128)
FLAG(SCALE) FLAG(ROW_SCALE)
DTYPES(WT, bf16, f16, f32, e4m3, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
TUNE(BM, 16, 32, 64, 128)
TUNE(BN, 64, 128)
REQUIRE(TOPK <= EXPERTS && EXPERTS <= 1024 && N % 2 == 0 && WIDTH == TOPK * N / 2)
REQUIRE(BM == (ROWS * TOPK <= 16 * EXPERTS ? 16 : ROWS * TOPK <= 40 * EXPERTS ? 32
	: ROWS * TOPK <= 128 * EXPERTS ? 64 : 128))
REQUIRE(WT_BITS < 16 || !SCALE && !ROW_SCALE)
REQUIRE(WT_BITS != 4 || SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
REQUIRE(K % 8 == 0 && (WT_BITS >= 16 || K * WT_BITS % 128 == 0))
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K >= K || BLOCK_K % 32 == 0 && (BM < 128 || BN < 128))
ORDER(gemm)
GRID((ROWS * TOPK + min(EXPERTS, ROWS * TOPK) * (BM - 1)) / BM * ceil_div(N, BN), 1, 1)
BLOCK(32 * (BM / min(BM, BM == 128 ? 64 : 32)) * (BN / (BM < 64 || (BM == 128 && BN == 64) ? 32 : 64)))
SMEM((BM <= 32 ? (BN == 64 ? 8 : 4) : 3) * (WT_BITS < 16 ? BM * 128 + BN * 8 * WT_BITS + 256 : (BM + BN) * 144 + 256))
FORMULA(expert_bytes(), N * (K * WT_BITS / 8 + ROW_SCALE * 4)
	+ SCALE * 2 * ceil_div(N / 2, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8)
READS(max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, BM)) * expert_bytes()
	+ ROWS * TOPK * ceil_div(N, BN) * K * 2 + ROWS * TOPK * 8)
WRITES(ROWS * WIDTH * 2)
FLOPS(4 * ROWS * WIDTH * K)
struct Args {
	IN(bf16, n, "ROWS, K");
	IN(i32, pair, "ROWS * TOPK");
	IN(i32, first, "EXPERTS + 1");
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
	IN(f32, share, "ROWS, TOPK");
	OUT(bf16, h, "ROWS, WIDTH");
};

#include "experts/gemm_experts_up.cuh"

// block level: the whole kernel; gated(gate, up) of two f32
template <class Gated> __device__ __forceinline__ void gated_experts(const Args &a, Gated gated)
{
	using C = Codes<WT, SCALE != 0, ST, BLOCK_N, BLOCK_K>;
	constexpr int across = ceil_div(N, BN);
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const ExpertTile tile = expert_tile<EXPERTS, BM>(a.first, int(blockIdx.x) / across);
	if (tile.expert < 0)
		return;
	for (int r = threadIdx.x; r < BM; r += Tile<BM, BN>::threads)
		pairs[r] = r < tile.count ? a.pair[tile.start + r] : -1;
	__syncthreads();
	gated_tile<C, N / 2, ROW_SCALE != 0, TOPK>(a, ring, matrix_at<WT, N, K>(a.gate_up, tile.expert),
		scales_at<2, N / 2, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, tile.expert),
		ROW_SCALE ? a.gate_up_row_scale + i64(tile.expert) * N : nullptr, int(blockIdx.x) % across * (BN / 2),
		gated);
}
