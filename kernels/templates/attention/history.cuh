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
#include "attention/attend.cuh"
#include "attention/paged.cuh"

// Two floats as two f16, the first in the low half.
__device__ __forceinline__ u32 pack_f16(float lo, float hi)
{
	u32 y;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

// Codes of e4m3 become f16, which one instruction does, so q and the probabilities are f16 there too: each head of q by
// a power of two that brings its largest element to between 128 and 256, as f16 reaches no further than 65504.
__device__ __forceinline__ void e4m3_to_f16(u32 codes, u32 &lo, u32 &hi)
{
#if __CUDA_ARCH__ >= 890
	asm("{\n"
		".reg .b16 l, h;\n"
		"mov.b32 {l, h}, %2;\n"
		"cvt.rn.f16x2.e4m3x2 %0, l;\n"
		"cvt.rn.f16x2.e4m3x2 %1, h;\n"
		"}" : "=r"(lo), "=r"(hi) : "r"(codes));
#else
	float x[4];
#pragma unroll
	for (int i = 0; i < 4; i++)
		x[i] = e4m3_to_f32(codes >> 8 * i & 0xff);
	lo = pack_f16(x[0], x[1]);
	hi = pack_f16(x[2], x[3]);
#endif
}

__device__ __forceinline__ void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What the kinds share: T, a head of HDIM_ elements, chunks of KEYS_ positions, each row of a chunk `stride` bytes. Of
// values a block takes v_columns, all or part 0 or 1 of them.
template <class T, int HDIM_, int NKV_, int PAGE_> struct History {
	static_assert(HDIM_ % NVFP4_GROUP == 0, "whole runs");
	static constexpr bool has_blocks = bits_of<T> == 4, is_half = !has_blocks; // q and probabilities are f16
	static constexpr int keys = 32, row_bytes = kv_bytes<T>(HDIM_), piece = 128 / bits_of<T>; // elements of 16 bytes
	static constexpr int pieces = ceil_div(row_bytes, 16), width = pieces * piece; // of q, zeros behind the head
	static constexpr int stride = (pieces / 2 * 2 + 1) * 16; // odd: the rows of a matrix lie in different banks
	static constexpr int runs = HDIM_ / NVFP4_GROUP, blocks_at = 2 * keys * stride;
	static constexpr int stage_bytes = blocks_at + (has_blocks ? 2 * keys * runs : 0);
	static constexpr int scratch_bytes = has_blocks ? 4 * keys * runs : 0; // a warp's: of one chunk, scales as bf16
	static constexpr int block_bytes = (runs + 15) / 16 * 16; // of a head
	static constexpr int fresh_bytes = 10 * HDIM_ + 2 * block_bytes; // the new k and v: as f32, as codes, their blocks
	static constexpr int v_columns = value_columns(HDIM_), v_pieces = v_columns == HDIM_ ? pieces : pieces / 2;
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
	static __device__ __forceinline__ void fill(u32 stage, const T *kv, const e4m3 *kv_block, const i32 *table,
		int head, int, int p0, int end)
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
				copy_few_async<8>(to, k, inside);
				copy_few_async<8>(to + keys * stride, v, inside);
			}
		}
		if constexpr (has_blocks) {
			static_assert(PAGE_ % 16 == 0, "16 positions of a page are neighbours, their blocks whole pieces");
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
				const i64 at = inside ? line(page, half / (keys / 16), head, p) * runs + i % runs * 16 : 0;
				copy_async(stage + blocks_at + i * 16, kv_block + at, inside);
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
		T *codes = reinterpret_cast<T *>(fresh + 8 * HDIM_ + which * row_bytes);
		e4m3 *blocks = reinterpret_cast<e4m3 *>(fresh + 10 * HDIM_ + which * block_bytes);
		const int lane = threadIdx.x % 32;
		__syncwarp();
		keep_head<T, HDIM_>(room(fresh, which), scale, codes, blocks);
		__syncwarp();
		if (!kv)
			return;
		u32 *line_at = reinterpret_cast<u32 *>(kv_at(kv, to * HDIM_));
		for (int i = lane; i < row_bytes / 4; i += 32)
			line_at[i] = reinterpret_cast<const u32 *>(codes)[i];
		if constexpr (has_blocks)
			if (lane < runs)
				kv_block[to * runs + lane] = blocks[lane];
	}

	// The new position becomes its row of a chunk; blocks of the positions behind it become 0.
	static __device__ __forceinline__ void insert(u32 stage, int row, const char *fresh, int)
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
					at < runs ? load_byte(blocks + which * block_bytes + at) : 0);
			}
		__syncwarp();
	}

	// The chunk's keys and values under the rows of q; `masked`: positions behind `last` are not seen, nor those before
	// the REACH_ (0: all) that end there. up: of a lane's two rows, what their q was divided by
	template <int REACH_> static __device__ __forceinline__ void look(State &s, u32 q_tile, u32 stage, u32 scratch,
		const float (&up)[2], int part, int p0, int last, bool masked, float scale_log2)
	{
		float p[keys / 8][4] = {};
		if constexpr (has_blocks)
			decode_blocks(stage + blocks_at, scratch);
		scores(s, q_tile, stage, scratch, p);
		if constexpr (is_half)
#pragma unroll
			for (int j = 0; j < keys / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					p[j][i] *= up[i / 2];
		if (masked) {
			const int column0 = p0 + threadIdx.x % 4 * 2;
#pragma unroll
			for (int j = 0; j < keys / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (is_hidden<REACH_>(column0 + j * 8 + i % 2, last))
						p[j][i] = minus_infinity();
		}
		attention_softmax<keys>(s, 0, p, scale_log2);
#pragma unroll
		for (int j = 0; j < keys / 16; j++) {
			u32 a[4];
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const float first = p[2 * j + i / 2][i % 2 * 2], second = p[2 * j + i / 2][i % 2 * 2 + 1];
				a[i] = is_half ? pack_f16(first, second) : pack_bf16(first, second);
			}
			values(s, a, stage, scratch + 2 * keys * runs, part, j * 16);
		}
	}

	// Row i of the two that a lane has of the result: put(d, four elements from d on).
	template <class Put> static __device__ __forceinline__ void take(const State &s, int i, Put put)
	{
		const int quad = threadIdx.x % 4;
#pragma unroll
		for (int n = 0; n < v_pieces; n++)
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

	// Block scales as what multiplies codes (e2m1_scale), once for all lanes: of keys [keys][runs], of values
	// [runs][keys], so that those of two neighbouring positions are a pair.
	static __device__ __forceinline__ void decode_blocks(u32 blocks, u32 scratch)
	{
		constexpr int words = keys * runs / 4; // of keys, of values
#pragma unroll
		for (int j = 0; j < ceil_div(2 * words, 32); j++) {
			const int i = threadIdx.x % 32 + 32 * j, first = i % words * 4;
			if (2 * words % 32 && i >= 2 * words)
				break;
			u32 lo, hi;
			e4m3_to_bf16(load_word(blocks + i * 4), lo, hi);
			lo = multiply_bf16(lo, 0x7b007b00u); // 2^119
			hi = multiply_bf16(hi, 0x7b007b00u);
			if (i < words) {
				store_word(scratch + first * 2, lo);
				store_word(scratch + first * 2 + 4, hi);
				continue;
			}
			const u32 x[4] = { lo, lo >> 16, hi, hi >> 16 };
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int key = (first + e) / runs, run = (first + e) % runs;
				store_half(scratch + 2 * (keys * runs + run * keys + key), x[e]);
			}
		}
		__syncwarp();
	}

	static __device__ __forceinline__ void store_half(u32 at, u32 x)
	{
		asm volatile("{\n"
			".reg .b16 l, h;\n"
			"mov.b32 {l, h}, %1;\n"
			"st.shared.b16 [%0], l;\n"
			"}" :: "r"(at), "r"(x) : "memory");
	}

	static __device__ __forceinline__ u32 load_half(u32 at)
	{
		u32 x;
		asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
		return x;
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

	static __device__ __forceinline__ void scores(const State &s, u32 q_tile, u32 stage, u32 scales,
		float (&p)[keys / 8][4])
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
						const u32 scale = there ? load_half(scales + (key * runs + run) * 2) : 0;
						u32 y[4];
						e2m1_to_bf16(b[i], __byte_perm(scale, 0, 0x1010), y);
						mma(sum, q[i % 2 * 2], y[0], y[1]);
						mma(sum, q[i % 2 * 2 + 1], y[2], y[3]);
					} else {
						u32 lo, hi;
						e4m3_to_f16(b[i], lo, hi);
						mma_f16(sum, q[i % 2], lo, hi);
					}
				}
			}
		}
	}

	// the values of 16 positions from row0 of the chunk on
	static __device__ __forceinline__ void values(State &s, const u32 (&a)[4], u32 stage, u32 scales, int part,
		int row0)
	{
		const u32 v = stage + keys * stride + part * (v_pieces * 16);
		const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
		for (int n = 0; n < v_pieces; n += 2) {
			u32 b[4];
			if (n + 1 < v_pieces)
				load_b_transposed(b, v, stride, row0, n * 8);
			else // twice: behind the last row's lies a chunk that is on its way
				load_matrices_transposed(b, v + (row0 + int(threadIdx.x % 16)) * stride + n * 16);
#pragma unroll
			for (int i = 0; i < 2; i++) {
				if (n + i >= v_pieces)
					continue;
				if constexpr (has_blocks) {
					const int run = min((part * v_pieces + n + i) * 2 + g / 4, runs - 1);
					u32 scale[2];
#pragma unroll
					for (int half = 0; half < 2; half++)
						scale[half] = load_word(scales + (run * keys + row0 + quad * 2 + half * 8) * 2);
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
						e4m3_to_f16(__byte_perm(b[2 * i + half], 0, 0x3120), y[0][half], y[1][half]);
					mma_f16(s.o[0][(n + i) * 2], a, y[0][0], y[0][1]);
					mma_f16(s.o[0][(n + i) * 2 + 1], a, y[1][0], y[1][1]);
				}
			}
		}
	}
};

// bf16: as it lies there.
template <int HDIM_, int NKV_, int PAGE_> struct History<bf16, HDIM_, NKV_, PAGE_> {
	static constexpr bool is_half = false;
	static constexpr int keys = 16, width = HDIM_, stride = tile_stride(HDIM_);
	static constexpr int v_columns = value_columns(HDIM_), v_stride = tile_stride(v_columns);
	static constexpr int stage_bytes = keys * (stride + v_stride);
	static constexpr int fresh_bytes = 4 * HDIM_, scratch_bytes = 0;
	using State = Attention<HDIM_, 1>;

	static __device__ __forceinline__ int column(int d) { return d; }

	static __device__ __forceinline__ i64 line(i64 page, int which, int head, int p)
	{
		return ((page * 2 + which) * NKV_ + head) * PAGE_ + u32(p) % PAGE_;
	}

	static __device__ __forceinline__ void fill(u32 stage, const bf16 *kv, const e4m3 *, const i32 *table, int head,
		int part, int p0, int end)
	{
		fill_sixteen<HDIM_, v_columns, NKV_, PAGE_>(stage, kv, table, head, part, p0, end);
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

	static __device__ __forceinline__ void insert(u32 stage, int row, const char *fresh, int part)
	{
		constexpr int pieces = HDIM_ / 8, v_pieces = v_columns / 8;
		constexpr bool is_split = v_pieces < pieces;
		for (int i = threadIdx.x % 32; i < 2 * pieces; i += 32) {
			if (is_split && i >= pieces && i % pieces / v_pieces != part)
				continue;
			store_shared(is_split && i >= pieces ? stage + keys * stride + row * v_stride + i % v_pieces * 16
				: stage + (i / pieces * keys + row) * stride + i % pieces * 16,
				reinterpret_cast<const uint4 *>(fresh)[i]);
		}
		__syncwarp();
	}

	template <int REACH_> static __device__ __forceinline__ void look(State &s, u32 q_tile, u32 stage, u32,
		const float (&)[2], int, int p0, int last, bool masked, float scale_log2)
	{
		const int rows[1][2] = { { last, last } };
		attention_step<keys, REACH_, v_columns>(s, q_tile, 0, stage, stage + keys * stride, p0, rows, masked,
			scale_log2);
	}

	template <class Put> static __device__ __forceinline__ void take(const State &s, int i, Put put)
	{
#pragma unroll
		for (int d = 0; d < v_columns / 8; d++)
			put(d * 8 + threadIdx.x % 4 * 2, make_float2(s.o[0][d][2 * i], s.o[0][d][2 * i + 1]));
	}
};
