// paged.cuh - keys and values of one slot and one kv head, gathered from their pages into shared memory.
//
// kv is [PAGES, 2, NKV, PAGE, HDIM]; position p of a slot stands in page table[p / PAGE], line p % PAGE.
#pragma once
#include "attention/kv.cuh"

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

// The same tiles from a cache of either kind (block level). Codes take two steps: a thread decodes the runs that it has
// fetched itself, which lie behind `raw` in between, each with the four bytes of memory that its block scale is among.
// Pages have a multiple of four positions, so that which byte it is does not depend on the page.
template <class T, int THREADS_, int KEYS_, int HDIM_, int NKV_, int PAGE_> struct PagedTiles {
	static_assert(HDIM_ % NVFP4_GROUP == 0 && (bits_of<T> != 4 || PAGE_ % 4 == 0), "whole runs; see above");
	static constexpr int per_row = HDIM_ / NVFP4_GROUP, runs = 2 * KEYS_ * per_row;
	static constexpr int run_bytes = kv_bytes<T>(NVFP4_GROUP);
	static constexpr int stride = tile_stride(HDIM_), blocks_at = runs * run_bytes;

	// cp.async: the caller commits, and waits before it calls `decode`
	static __device__ __forceinline__ void fetch(u32 raw, const T *kv, const e4m3 *kv_block, const i32 *table, int head,
		int p0, int end)
	{
#pragma unroll 4
		for (int i = threadIdx.x; i < runs; i += THREADS_) {
			const int row = i / per_row, p = p0 + row % KEYS_;
			const bool inside = p < end;
			const i64 page = inside ? table[p / PAGE_] : 0;
			const i64 line = ((page * 2 + row / KEYS_) * NKV_ + head) * PAGE_ + p % PAGE_;
			const i64 run = inside ? line * per_row + i % per_row : 0;
			copy_run_async(raw + i * run_bytes, kv_at(kv, run * NVFP4_GROUP), inside);
			if constexpr (bits_of<T> == 4)
				copy_few_async<4>(raw + blocks_at + i * 4, kv_block + run / 4 * 4, inside);
		}
	}

	static __device__ __forceinline__ void decode(u32 tile, u32 raw, int p0)
	{
#pragma unroll 2
		for (int i = threadIdx.x; i < runs; i += THREADS_) {
			const int row = i / per_row, column = i % per_row;
			uint4 y[2];
			u32 block = 0;
			if constexpr (bits_of<T> == 4)
				block = byte_of_word(raw + blocks_at + i * 4, (p0 + row % KEYS_) % 4 * per_row + column);
			decode_run<T>(raw + i * run_bytes, block, y);
			store_shared(tile + row * stride + column * 32, y[0]);
			store_shared(tile + row * stride + column * 32 + 16, y[1]);
		}
	}
};

template <int THREADS_, int KEYS_, int HDIM_, int NKV_, int PAGE_>
struct PagedTiles<bf16, THREADS_, KEYS_, HDIM_, NKV_, PAGE_> {
	static __device__ __forceinline__ void fetch(u32 tile, const bf16 *kv, const e4m3 *, const i32 *table, int head,
		int p0, int end)
	{
		fill_keys_values<THREADS_, KEYS_, HDIM_, NKV_, PAGE_>(tile, kv, table, head, p0, end);
	}
	static __device__ __forceinline__ void decode(u32, u32, int) {} // as they come
};

// warp level: the same for the 16 positions from p0 on, a multiple of 16. Of values, part `part` of V_ columns.
template <int HDIM_, int V_, int NKV_, int PAGE_>
__device__ __forceinline__ void fill_sixteen(u32 tile, const bf16 *kv, const i32 *table, int head, int part, int p0,
	int end)
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
		if (V_ == HDIM_ || piece / (V_ / 8) == part)
			copy_async(V_ == HDIM_ ? to + 16 * stride
				: tile + 16 * stride + row * tile_stride(V_) + piece % (V_ / 8) * 16,
				inside ? k + i64(NKV_) * PAGE_ * HDIM_ : kv, inside);
	}
}
