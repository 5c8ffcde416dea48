// wgmma_experts_down.cuh - the contract and the work that wgmma_experts_down and wgmma_experts_down_shared share.
#pragma once
#include "shared/contract.cuh"
#include "experts/wgmma_experts.cuh"

ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 512)
ATTR_INT(TOPK, 8)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(SCALE)
FLAG(ROW_SCALE)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
REQUIRE(TOPK <= EXPERTS && EXPERTS <= 1024)
REQUIRE(K % 8 == 0)
REQUIRE(N % 16 == 0)
REQUIRE(!SCALE || BLOCK_N == 128 && BLOCK_K == 128)
ORDER(wgmma_fp8)
GRID(min(SMS, ((ROWS * TOPK + 127 * min(EXPERTS, ROWS * TOPK)) / 128 + (SHARES - TOPK) * ceil_div(ROWS, 128))
	* ceil_div(K, 256)), 1, 1)
BLOCK(384)
SMEM(230400 / (384 * 128) * (384 * 128) + 2048)
WRITES(ROWS * SHARES * K * 2)
FLOPS(2 * ROWS * SHARES * N * K)
PIECES((max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, 128)) + (SHARES - TOPK) * ceil_div(ROWS, 128))
	* ceil_div(K, 256))
RATE(29)

// block level, all 384 threads: y has K_ columns, h has N_
template <int ROWS_, int K_, int EXPERTS_, int N_, int TOPK_, bool SHARED_, bool BLOCKS_, bool SHARED_BLOCKS_,
	class Args_, class ST_, class SST_>
__device__ __forceinline__ void experts_down(const Args_ &a, uint4 *dynamic, const ExpertMatrix<ST_, SST_> &m,
	const float *by_row, const float *shared_by_row)
{
	constexpr int pairs = ROWS_ * TOPK_, size = ROWS_ * (TOPK_ + SHARED_);
	__shared__ int ends[EXPERTS_ + SHARED_];
	Ring<256> ring;
	const Products<2> maps = { &a.h_map, { m.w, SHARED_ ? m.shared : m.w }, nullptr };
	const int group = wgmma_open<256, 1>(dynamic, maps, ring);
	inputs_ready();
	const int rows = min(a.step[0], ROWS_);
	count_expert_tiles<EXPERTS_, SHARED_>(a.first, rows, ends);
	__syncthreads();
	using Tiles_ = GroupedTiles<EXPERTS_, SHARED_, pairs, 256, K_>;
	wgmma_expert_products<1, N_, K_, size, BLOCKS_, SHARED_BLOCKS_>(ring, group, Tiles_(ends, a.first, rows),
		a.h_map, a.h_scale, m, [&](auto &acc, const Tiles_ &tile, int t0) {
			const int row = t0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
			const float *scale = tile.is_shared() ? shared_by_row : by_row;
			if (scale)
				scale_columns<K_>(acc, scale + (tile.is_shared() ? 0 : i64(tile.expert) * K_), tile.column);
			store_rows<K_>(acc, tile.column, [&](int i) {
				const int r = row + 8 * i;
				return r < tile.stop ? a.y + i64(share_of<pairs, TOPK_, SHARED_>(a.pair, r)) * K_ : nullptr;
			});
		});
}
