// mma.cuh - bf16 tensor core products through mma.sync, and the copies that feed them (warp level, sm_80 and later).
//
// Fragments of mma.m16n8k16, with g = lane / 4 and q = lane % 4:
//   a[0..3]  rows g, g + 8, g, g + 8; columns 2q, 2q, 2q + 8, 2q + 8 (two elements each)
//   b[0..1]  column g of the product; k = 2q, 2q + 8
//   c[0..3]  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
//
// Tiles lie in shared memory row by row, each row padded by 16 bytes: then the rows that ldmatrix reads together
// start in different banks for every width that is a multiple of 16 elements.
#pragma once
#include "shared/types.cuh"

constexpr int tile_stride(int columns) { return columns * 2 + 16; } // bytes from row to row

__device__ __forceinline__ u32 shared_address(const void *p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// 16 bytes from global to shared memory; zeros when `inside` is false (the address must be valid all the same).
__device__ __forceinline__ void copy_async(u32 to, const void *from, bool inside)
{
	const u32 bytes = inside ? 16 : 0;
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same of 4 or 8 bytes.
template <int BYTES> __device__ __forceinline__ void copy_few_async(u32 to, const void *from, bool inside)
{
	const u32 bytes = inside ? BYTES : 0;
	asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" :: "r"(to), "l"(from), "r"(bytes), "n"(BYTES)
		: "memory");
}

// A word, of which so many bytes are copied and the others become zeros.
__device__ __forceinline__ void copy_word_async(u32 to, const void *from, int bytes)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups are under way.
template <int PENDING> __device__ __forceinline__ void copy_wait()
{
	asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

__device__ __forceinline__ void store_shared(u32 to, uint4 v)
{
	asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
		: "memory");
}

// Loads of fragments are volatile, so they stay behind the barrier that announces their tile; products are not, so
// the compiler may spread them.

// Four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

__device__ __forceinline__ void load_matrices_transposed(u32 (&r)[4], u32 address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

// a: rows row0..row0+15, columns col0..col0+15 of a tile
__device__ __forceinline__ void load_a(u32 (&a)[4], u32 tile, int stride, int row0, int col0)
{
	const int lane = threadIdx.x % 32;
	load_matrices(a, tile + (row0 + lane % 16) * stride + (col0 + lane / 16 * 8) * 2);
}

// b of two neighbouring n8 tiles: rows row0..row0+15 of a tile that holds b's columns as rows, k = col0..col0+15.
// b[0..1] belong to rows row0..row0+7, b[2..3] to the next eight.
__device__ __forceinline__ void load_b(u32 (&b)[4], u32 tile, int stride, int row0, int col0)
{
	const int lane = threadIdx.x % 32;
	load_matrices(b, tile + (row0 + lane / 16 * 8 + lane % 8) * stride + (col0 + lane / 8 % 2 * 8) * 2);
}

// The same when the tile holds k as rows: k = row0..row0+15, columns col0..col0+15.
__device__ __forceinline__ void load_b_transposed(u32 (&b)[4], u32 tile, int stride, int row0, int col0)
{
	const int lane = threadIdx.x % 32;
	load_matrices_transposed(b, tile + (row0 + lane % 16) * stride + (col0 + lane / 16 * 8) * 2);
}

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
