// history.cuh - chunks of a slot's keys and values in shared memory as the cache has them, and a few rows of q that
// look at them (warp level): History<T> for a cache of bf16, e4m3 or e2m1.
//
// Codes stay codes until they are in registers. The order of the elements inside a product of 16 is ours to choose, as
// long as both operands agree, so a lane decodes whole bytes and nothing is moved: four lanes share the 16 bytes that
// ldmatrix gives of a key, each takes its four bytes, and q lies in its tile in that order (`column`). For values
// ldmatrix transposes pairs of bytes, which are two or four neighbouring elements of a value: what belongs to one
// product are those at the same place in their pair, so that a column of the result stands for two or four interleaved
// elements, and take() puts them in order.
#pragma once
#include "attend.cuh"
#include "paged.cuh"

// What the kinds share: T, a head of HDIM_ elements, chunks of KEYS_ positions, each row of a chunk `stride` bytes.
template <class T, int HDIM_, int NKV_, int PAGE_> struct History {
	static_assert(HDIM_ % KV_RUN == 0, "whole runs");
	static constexpr bool has_blocks = Kv<T>::bits == 4;
	static constexpr int keys = 32, row_bytes = kv_bytes<T>(HDIM_), piece = 128 / Kv<T>::bits; // elements of 16 bytes
	static constexpr int pieces = ceil_div(row_bytes, 16), width = pieces * piece; // of q, zeros behind the head
	static constexpr int stride = (pieces / 2 * 2 + 1) * 16; // odd: the rows of a matrix lie in different banks
	static constexpr int runs = HDIM_ / KV_RUN, blocks_at = 2 * keys * stride;
	static constexpr int stage_bytes = blocks_at + (has_blocks ? 2 * keys * runs : 0);
	static constexpr int fresh_bytes = 10 * HDIM_ + 32; // the new k and v: as f32, as codes, their blocks
	using State = Attention<width, 1>;

	// where element d of a head stands in q's tile
	static __device__ __forceinline__ int column(int d)
	{
		constexpr int each = piece / 4;
		const int lane = d % piece / each, e = d % each;
		return d / piece * piece + e / 4 * 16 + e % 4 / 2 * 8 + lane * 2 + e % 2;
	}

	static __device__ __forceinline__ i64 line(i64 page, int which, int head, int p)
	{
		return ((page * 2 + which) * NKV_ + head) * PAGE_ + u32(p) % PAGE_;
	}

	// Positions p0 to p0 + keys - 1, p0 a multiple of that; from `end` on zeros, but for blocks of the last 16.
	static __device__ __forceinline__ void fill(u32 stage, const T *kv, const e4m3 *kv_block, const i32 *table, int head,
		int p0, int end)
	{
		constexpr int part = row_bytes % 16 ? 8 : 16, per_row = row_bytes / part;
		constexpr bool one_page = PAGE_ % keys == 0;
		const i64 first = one_page && p0 < end ? table[u32(p0) / PAGE_] : 0;
		const char *from = reinterpret_cast<const char *>(kv);
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int j = 0; j < per_row; j++) {
			const int i = lane + 32 * j, row = i / per_row, at = i % per_row * part, p = p0 + row;
			const bool inside = p < end;
			i64 page = first;
			if constexpr (!one_page)
				page = inside ? table[u32(p) / PAGE_] : 0;
			const char *k = inside ? from + line(page, 0, head, p) * row_bytes + at : from;
			const char *v = inside ? k + i64(NKV_) * PAGE_ * row_bytes : from;
			const u32 to = stage + row * stride + at;
			if constexpr (part == 16) {
				copy_async(to, k, inside);
				copy_async(to + keys * stride, v, inside);
			} else {
				copy_eight(to, k, inside);
				copy_eight(to + keys * stride, v, inside);
			}
		}
		if constexpr (has_blocks) {
			static_assert(PAGE_ % 16 == 0, "16 positions of a page are neighbours, their blocks whole pieces of 16 bytes");
			constexpr int n = keys / 8 * runs; // pieces: of k, then of v
#pragma unroll
			for (int j = 0; j < ceil_div(n, 32); j++) {
				const int i = lane + 32 * j, half = i / runs, p = p0 + half % (keys / 16) * 16;
				if (n % 32 && i >= n)
					break;
				const bool inside = p < end;
				i64 page = first;
				if constexpr (!one_page)
					page = inside ? table[u32(p) / PAGE_] : 0;
				const e4m3 *b = kv_block + (inside ? line(page, half / (keys / 16), head, p) * runs + i % runs * 16 : 0);
				copy_async(stage + blocks_at + i * 16, b, inside);
			}
		}
	}

	// where all lanes leave the new k (which = 0) or v
	static __device__ __forceinline__ float *room(char *fresh, int which)
	{
		return reinterpret_cast<float *>(fresh) + which * HDIM_;
	}

	// What lies there gets its codes and blocks beside it and, where `kv` is not NULL, in line `to` of the cache.
	static __device__ __forceinline__ void keep(char *fresh, int which, float scale, T *kv, e4m3 *kv_block, i64 to)
	{
		char *codes = fresh + 8 * HDIM_ + which * row_bytes, *blocks = fresh + 10 * HDIM_ + which * 16;
		const int lane = threadIdx.x % 32;
		__syncwarp();
		keep_head<T, HDIM_>(room(fresh, which), scale, reinterpret_cast<T *>(codes), reinterpret_cast<e4m3 *>(blocks), nullptr);
		__syncwarp();
		if (!kv)
			return;
		for (int i = lane; i < row_bytes / 4; i += 32)
			reinterpret_cast<u32 *>(reinterpret_cast<char *>(kv) + to * row_bytes)[i] = reinterpret_cast<u32 *>(codes)[i];
		if constexpr (has_blocks)
			if (lane < runs)
				kv_block[to * runs + lane].bits = static_cast<unsigned char>(blocks[lane]);
	}

	// The new position becomes its row of a chunk; blocks of the positions behind it become 0.
	static __device__ __forceinline__ void insert(u32 stage, int row, const char *fresh)
	{
		const int lane = threadIdx.x % 32;
		const u32 codes = shared_address(fresh) + 8 * HDIM_, blocks = shared_address(fresh) + 10 * HDIM_;
		for (int i = lane; i < 2 * row_bytes / 4; i += 32) {
			const int which = i / (row_bytes / 4), at = i % (row_bytes / 4) * 4;
			store_word(stage + (which * keys + row) * stride + at, load_word(codes + i * 4));
		}
		if constexpr (has_blocks)
			for (int i = lane; i < 2 * (keys - row) * runs; i += 32) {
				const int which = i / ((keys - row) * runs), at = i % ((keys - row) * runs);
				store_byte(stage + blocks_at + (which * keys + row) * runs + at,
					at < runs ? load_byte(blocks + which * 16 + at) : 0);
			}
		__syncwarp();
	}

	// The chunk's keys and values under the rows of q; `masked`: positions behind `last` are not seen.
	static __device__ __forceinline__ void look(State &s, u32 q_tile, u32 stage, int p0, int last, bool masked,
		float scale_log2)
	{
		float p[keys / 8][4] = {};
		scores(s, q_tile, stage, p);
		if (masked) {
			const int column0 = p0 + threadIdx.x % 4 * 2;
#pragma unroll
			for (int j = 0; j < keys / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (column0 + j * 8 + i % 2 > last)
						p[j][i] = minus_infinity();
		}
		attention_softmax<keys>(s, 0, p, scale_log2);
#pragma unroll
		for (int j = 0; j < keys / 16; j++) {
			const u32 a[4] = { pack_bf16(p[2 * j][0], p[2 * j][1]), pack_bf16(p[2 * j][2], p[2 * j][3]),
				pack_bf16(p[2 * j + 1][0], p[2 * j + 1][1]), pack_bf16(p[2 * j + 1][2], p[2 * j + 1][3]) };
			values(s, a, stage, j * 16);
		}
	}

	// Row i of the two that a lane has of the result: put(d, four elements from d on).
	template <class Put> static __device__ __forceinline__ void take(const State &s, int i, Put put)
	{
		const int quad = threadIdx.x % 4;
#pragma unroll
		for (int n = 0; n < pieces; n++)
			if constexpr (has_blocks) {
				const int d = n * piece + quad * 8;
#pragma unroll
				for (int e = 0; e < 2; e++)
					if (width == HDIM_ || d < HDIM_)
						put(d + 4 * e, make_float4(s.o[0][4 * n][2 * i + e], s.o[0][4 * n + 1][2 * i + e],
							s.o[0][4 * n + 2][2 * i + e], s.o[0][4 * n + 3][2 * i + e]));
			} else {
				put(n * piece + quad * 4, make_float4(s.o[0][2 * n][2 * i], s.o[0][2 * n + 1][2 * i],
					s.o[0][2 * n][2 * i + 1], s.o[0][2 * n + 1][2 * i + 1]));
			}
	}

private:
	static __device__ __forceinline__ u32 load_byte(u32 at)
	{
		u32 x;
		asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
		return x;
	}
	static __device__ __forceinline__ u32 load_word(u32 at)
	{
		u32 x;
		asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
		return x;
	}
	static __device__ __forceinline__ void store_byte(u32 at, u32 x)
	{
		asm volatile("st.shared.u8 [%0], %1;" :: "r"(at), "r"(x) : "memory");
	}
	static __device__ __forceinline__ void store_word(u32 at, u32 x)
	{
		asm volatile("st.shared.u32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
	}
	static __device__ __forceinline__ void copy_eight(u32 to, const void *from, bool inside)
	{
		const u32 bytes = inside ? 8 : 0;
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
	}

	// what multiplies codes: a pair of block scales, of two values or twice of one
	static __device__ __forceinline__ u32 scale_pair(u32 a, u32 b)
	{
		return __byte_perm(e2m1_scale(a), e2m1_scale(b), 0x5410);
	}

	static __device__ __forceinline__ void step_of_q(u32 (&q)[4], const State &s, u32 q_tile, int step)
	{
		if constexpr (State::q_in_registers)
#pragma unroll
			for (int i = 0; i < 4; i++)
				q[i] = s.q[step][0][i];
		else
			load_a(q, q_tile, tile_stride(width), 0, step * 16);
	}

	static __device__ __forceinline__ void scores(const State &s, u32 q_tile, u32 stage, float (&p)[keys / 8][4])
	{
		constexpr int steps = piece / 16; // products of a piece
		const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
		for (int n = 0; n < pieces; n += 2) {
			u32 q[2 * steps][4];
#pragma unroll
			for (int i = 0; i < 2 * steps; i++)
				if (n * steps + i < pieces * steps)
					step_of_q(q[i], s, q_tile, n * steps + i);
#pragma unroll
			for (int j = 0; j < keys / 16; j++) {
				u32 b[4];
				load_b(b, stage, stride, j * 16, n * 8);
#pragma unroll
				for (int i = 0; i < 4; i++) { // keys of octet i / 2, piece n + i % 2
					if (n + i % 2 >= pieces)
						continue;
					float (&sum)[4] = p[2 * j + i / 2];
					if constexpr (has_blocks) {
						const int run = (n + i % 2) * 2 + quad / 2, key = j * 16 + i / 2 * 8 + g;
						const bool there = width == HDIM_ || run < runs;
						const u32 block = load_byte(stage + blocks_at + key * runs + (there ? run : 0));
						u32 y[4];
						e2m1_to_bf16(b[i], there ? e2m1_scale(block) : 0, y);
						mma(sum, q[i % 2 * 2], y[0], y[1]);
						mma(sum, q[i % 2 * 2 + 1], y[2], y[3]);
					} else {
						u32 lo, hi;
						e4m3_to_bf16(b[i], lo, hi);
						mma(sum, q[i % 2], lo, hi);
					}
				}
			}
		}
	}

	// the values of 16 positions from row0 of the chunk on
	static __device__ __forceinline__ void values(State &s, const u32 (&a)[4], u32 stage, int row0)
	{
		const u32 v = stage + keys * stride, blocks = stage + blocks_at + (keys + row0) * runs;
		const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
		for (int n = 0; n < pieces; n += 2) {
			u32 b[4];
			load_b_transposed(b, v, stride, row0, n * 8);
#pragma unroll
			for (int i = 0; i < 2; i++) {
				if (n + i >= pieces)
					continue;
				if constexpr (has_blocks) {
					const int run = min((n + i) * 2 + g / 4, runs - 1);
					u32 scale[2];
#pragma unroll
					for (int half = 0; half < 2; half++) {
						const u32 at = blocks + (quad * 2 + half * 8) * runs + run;
						scale[half] = scale_pair(load_byte(at), load_byte(at + runs));
					}
#pragma unroll
					for (int e = 0; e < 4; e++) {
						u32 y[2];
#pragma unroll
						for (int half = 0; half < 2; half++) {
							const u32 pair = b[2 * i + half] << (12 - 4 * e); // codes in bits 12.. and 28..
							y[half] = multiply_bf16((pair & 0x80008000u) | (pair >> 6 & 0x01c001c0u), scale[half]);
						}
						mma(s.o[0][(n + i) * 4 + e], a, y[0], y[1]);
					}
				} else {
					u32 y[2][2]; // even and odd elements; positions of a half
#pragma unroll
					for (int half = 0; half < 2; half++)
						e4m3_to_bf16(__byte_perm(b[2 * i + half], 0, 0x3120), y[0][half], y[1][half]);
					mma(s.o[0][(n + i) * 2], a, y[0][0], y[0][1]);
					mma(s.o[0][(n + i) * 2 + 1], a, y[1][0], y[1][1]);
				}
			}
		}
	}
};

// bf16: as it lies there.
template <int HDIM_, int NKV_, int PAGE_> struct History<bf16, HDIM_, NKV_, PAGE_> {
	static constexpr int keys = 16, width = HDIM_, stride = tile_stride(HDIM_), stage_bytes = 2 * keys * stride;
	static constexpr int fresh_bytes = 4 * HDIM_;
	using State = Attention<HDIM_, 1>;

	static __device__ __forceinline__ int column(int d) { return d; }

	static __device__ __forceinline__ i64 line(i64 page, int which, int head, int p)
	{
		return ((page * 2 + which) * NKV_ + head) * PAGE_ + u32(p) % PAGE_;
	}

	static __device__ __forceinline__ void fill(u32 stage, const bf16 *kv, const e4m3 *, const i32 *table, int head,
		int p0, int end)
	{
		fill_sixteen<HDIM_, NKV_, PAGE_>(stage, kv, table, head, p0, end);
	}

	static __device__ __forceinline__ bf16 *room(char *fresh, int which)
	{
		return reinterpret_cast<bf16 *>(fresh) + which * HDIM_;
	}

	static __device__ __forceinline__ void keep(char *fresh, int which, float, bf16 *kv, e4m3 *, i64 to)
	{
		__syncwarp();
		if (kv)
			for (int i = threadIdx.x % 32; i < HDIM_ / 4; i += 32)
				reinterpret_cast<uint2 *>(kv + to * HDIM_)[i] = reinterpret_cast<const uint2 *>(room(fresh, which))[i];
	}

	static __device__ __forceinline__ void insert(u32 stage, int row, const char *fresh)
	{
		constexpr int pieces = HDIM_ / 8;
		for (int i = threadIdx.x % 32; i < 2 * pieces; i += 32)
			store_shared(stage + (i / pieces * keys + row) * stride + i % pieces * 16,
				reinterpret_cast<const uint4 *>(fresh)[i]);
		__syncwarp();
	}

	static __device__ __forceinline__ void look(State &s, u32 q_tile, u32 stage, int p0, int last, bool masked,
		float scale_log2)
	{
		const int rows[1][2] = { { last, last } };
		attention_step<keys>(s, q_tile, 0, stage, stage + keys * stride, p0, rows, masked, scale_log2);
	}

	template <class Put> static __device__ __forceinline__ void take(const State &s, int i, Put put)
	{
#pragma unroll
		for (int d = 0; d < HDIM_ / 8; d++)
			put(d * 8 + threadIdx.x % 4 * 2, make_float2(s.o[0][d][2 * i], s.o[0][d][2 * i + 1]));
	}
};
