// paged.cuh - keys and values of one slot and one kv head, gathered from their pages into shared memory.
//
// kv is [PAGES, 2, NKV, PAGE, HDIM]; position p of a slot stands in page table[p / PAGE], line p % PAGE.
#pragma once
#include "mma.cuh"

// block level: the tiles of KEYS positions from p0 on, K then V, each KEYS rows of tile_stride(HDIM) bytes; positions
// from `end` on become zeros. cp.async: the caller commits and waits.
template <int THREADS_, int KEYS_, int HDIM_, int NKV_, int PAGE_>
__device__ __forceinline__ void fill_keys_values(u32 tile, const bf16 *kv, const i32 *table, int head, int p0, int end)
{
	constexpr int per_row = HDIM_ / 8, pieces = KEYS_ * per_row, stride = tile_stride(HDIM_);
#pragma unroll 4
	for (int i = threadIdx.x; i < pieces; i += THREADS_) {
		const int row = i / per_row, piece = i % per_row, p = p0 + row;
		const bool inside = p < end;
		const i64 page = inside ? table[p / PAGE_] : 0;
		const bf16 *k = kv + ((page * 2 * NKV_ + head) * PAGE_ + p % PAGE_) * HDIM_ + piece * 8;
		if (!inside)
			k = kv;
		const u32 to = tile + row * stride + piece * 16;
		copy_async(to, k, inside);
		copy_async(to + KEYS_ * stride, inside ? k + i64(NKV_) * PAGE_ * HDIM_ : kv, inside);
	}
}

// warp level: the same for the 16 positions from p0 on, a multiple of 16.
template <int HDIM_, int NKV_, int PAGE_>
__device__ __forceinline__ void fill_sixteen(u32 tile, const bf16 *kv, const i32 *table, int head, int p0, int end)
{
	constexpr int per_row = HDIM_ / 8, stride = tile_stride(HDIM_);
	constexpr bool one_page = PAGE_ % 16 == 0;
	const i64 first = one_page && p0 < end ? table[u32(p0) / PAGE_] : 0;
#pragma unroll
	for (int j = 0; j < HDIM_ / 16; j++) {
		const int i = threadIdx.x % 32 + 32 * j, row = i / per_row, piece = i % per_row, p = p0 + row;
		const bool inside = p < end;
		i64 page = first;
		if constexpr (!one_page)
			page = inside ? table[u32(p) / PAGE_] : 0;
		const bf16 *k = kv + ((page * 2 * NKV_ + head) * PAGE_ + u32(p) % PAGE_) * HDIM_ + piece * 8;
		if (!inside)
			k = kv;
		const u32 to = tile + row * stride + piece * 16;
		copy_async(to, k, inside);
		copy_async(to + 16 * stride, inside ? k + i64(NKV_) * PAGE_ * HDIM_ : kv, inside);
	}
}
