// wgmma_experts_up.cuh - the contract and the work that wgmma_experts_up and wgmma_experts_up_shared share.
#pragma once
#include "shared/contract.cuh"
#include "experts/wgmma_experts.cuh"

ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma_fp8)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
ATTR_INT(TOPK, 8)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
FLAG(SCALE)
FLAG(ROW_SCALE)
DTYPES(WT, e4m3)
DTYPES(ST, bf16, f32, e8m0)
REQUIRE(TOPK <= EXPERTS && EXPERTS <= 1024)
REQUIRE(K % 16 == 0)
REQUIRE(N % 256 == 0)
REQUIRE(!SCALE || BLOCK_N == 128 && BLOCK_K == 128)
ORDER(wgmma_fp8)
GRID(min(SMS, ((ROWS * TOPK + 127 * min(EXPERTS, ROWS * TOPK)) / 128 + (SHARES - TOPK) * ceil_div(ROWS, 128))
	* (N / 256)), 1, 1)
BLOCK(384)
SMEM(230400 / (384 * 128) * (384 * 128) + 2048)
WRITES(ROWS * SHARES * (N / 2 + N / 256 * 4))
FLOPS(2 * ROWS * SHARES * N * K)
PIECES((max(min(EXPERTS, ROWS * TOPK), ceil_div(ROWS * TOPK, 128)) + (SHARES - TOPK) * ceil_div(ROWS, 128)) * (N / 256))
RATE(40)

// thread level: acc, of part p of 128 columns from n0 on, times the scales of their rows of w
__device__ __forceinline__ void scale_half(float (&acc)[32][4], int p, const float *scale, int n0)
{
#pragma unroll
	for (int j = 0; j < 16; j++) {
		const int n = n0 + j * 8 + threadIdx.x % 4 * 2;
		const float lo = scale[n], hi = scale[n + 1];
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[p * 16 + j][i] *= i % 2 ? hi : lo;
	}
}

// block level, all 384 threads. BLOCKS_, SHARED_BLOCKS_: experts, and the shared one, have scales of blocks
template <int ROWS_, int K_, int EXPERTS_, int N_, int TOPK_, bool SHARED_, bool BLOCKS_, bool SHARED_BLOCKS_,
	class Args_, class ST_, class SST_>
__device__ __forceinline__ void experts_up(const Args_ &a, uint4 *dynamic, const ExpertMatrix<ST_, SST_> &m,
	const float *by_row, const float *shared_by_row)
{
	constexpr int pairs = ROWS_ * TOPK_, size = ROWS_ * (TOPK_ + SHARED_), width = N_ / 2;
	__shared__ int ends[EXPERTS_ + SHARED_];
	Ring<256> ring;
	const Products<2> maps = { &a.x_map, { m.w, SHARED_ ? m.shared : m.w }, nullptr };
	const int group = wgmma_open<256, 1>(dynamic, maps, ring);
	inputs_ready();
	const int rows = min(a.step[0], ROWS_);
	count_expert_tiles<EXPERTS_, SHARED_>(a.first, rows, ends);
	__syncthreads();
	using Tiles_ = GroupedTiles<EXPERTS_, SHARED_, pairs, 128, width>;
	wgmma_expert_products<2, K_, width, size, BLOCKS_, SHARED_BLOCKS_>(ring, group, Tiles_(ends, a.first, rows),
		a.x_map, a.x_scale, m, [&](auto &acc, const Tiles_ &tile, int t0) {
			const int row = t0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
			const float *scale = tile.is_shared() ? shared_by_row : by_row;
			if (scale) {
				scale += tile.is_shared() ? 0 : i64(tile.expert) * N_;
				scale_half(acc, 0, scale, tile.column);
				scale_half(acc, 1, scale + width, tile.column);
			}
			float factor[2] = {}, largest[2] = {};
#pragma unroll
			for (int i = 0; i < 2; i++)
				if (row + 8 * i < tile.stop)
					factor[i] = a.share[share_of<pairs, TOPK_, SHARED_>(a.pair, row + 8 * i)];
			gate_halves(acc, factor, largest);
			store_codes<width, size>(a.h, a.h_scale, tile.stop, t0, tile.column, acc, largest);
		});
}
