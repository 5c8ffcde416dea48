// stream_row.cuh - y = x w^T for one row of x and codes of e4m3 or e2m1, streamed as stream.cuh says (sm_90a only).
//
// Codes become f16 on the way to the product: of e4m3 by one instruction for two, of e2m1, 2^-14 of their size, by
// moving bits alone. x becomes f16 too: times the power of two that brings the largest element of a warp's columns to
// 2^14, so bits are lost only of elements 2^-28 of it and smaller. The sums of a warp lose that factor in the end.
//
// One row leaves seven of the eight columns of a product empty. Where e2m1 has scales of groups, they take the groups
// apart: of 128 columns of w, eight groups of 16, column n of the product has x where group n is and zeros elsewhere,
// so each group's sum comes out alone, and its scale multiplies the sum, in f32, and none of the codes. Groups of 32
// are two of 16 with one scale.
//
// PAIR_ blocks, a cluster, share the columns of 16 * TILES rows of w, where there would be two or three blocks for a
// multiprocessor and a third of the card waited for the last ones. The second leaves its sums with the first.
#pragma once
#include "shared/arrive.cuh"
#include "products/stream.cuh"

// Eight codes as four pairs, of e2m1 elements i and i + 4 (thread level).
__device__ __forceinline__ void row_decode(const u32 (&w)[1], u32 (&pair)[4])
{
	const u32 c = w[0], rest = 0x0e0e0e0eu, sign = 0x80808080u; // in the upper byte of an f16
	const u32 even = (c << 1 & rest) | (c << 4 & sign), odd = (c >> 3 & rest) | (c & sign);
	pair[0] = __byte_perm(even, 0, 0x2404);
	pair[1] = __byte_perm(odd, 0, 0x2404);
	pair[2] = even & 0xff00ff00u;
	pair[3] = odd & 0xff00ff00u;
}

__device__ __forceinline__ void row_decode(const u32 (&w)[2], u32 (&pair)[4])
{
#pragma unroll
	for (int i = 0; i < 2; i++)
		asm("{\n"
			".reg .b16 l, h;\n"
			"mov.b32 {l, h}, %2;\n"
			"cvt.rn.f16x2.e4m3x2 %0, l;\n"
			"cvt.rn.f16x2.e4m3x2 %1, h;\n"
			"}" : "=r"(pair[2 * i]), "=r"(pair[2 * i + 1]) : "r"(w[i]));
}

__device__ __forceinline__ u32 warp_largest(u32 x)
{
	u32 y;
	asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
	return y;
}

__device__ __forceinline__ void leave_at_rank(u32 to, float x)
{
	asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(to), "f"(x) : "memory");
}

__device__ __forceinline__ u32 pack_f16(float low, float high)
{
	u32 y;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
	return y;
}

__device__ __forceinline__ void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float row_scale(e4m3, u32 code)
{
	return __uint_as_float(multiply_bf16(code << 4, pair_of_two_to(120)) << 16);
}
__device__ __forceinline__ float row_scale(e8m0, u32 code)
{
	return __uint_as_float(code ? code << 23 : 0x400000u); // 2^-127 is subnormal
}

// The scales of the two groups of 16 that a lane has, or twice that of its group of 32 (thread level).
template <class S> __device__ __forceinline__ float2 row_scales(const char *from)
{
	using Scale = typename S::Scale;
	if constexpr (S::block_k == 16) {
		const u32 both = *reinterpret_cast<const unsigned short *>(from);
		return make_float2(row_scale(Scale(), both & 0xffu), row_scale(Scale(), both >> 8));
	} else {
		const float scale = row_scale(Scale(), *reinterpret_cast<const unsigned char *>(from));
		return make_float2(scale, scale);
	}
}

// warp level: x in f16 to its place in shared memory. What sums of it times codes are to be multiplied by
template <class S, class Ring, class Stage>
__device__ __forceinline__ float row_fill(const Stage &stage, const Ring &ring, const bf16 *x)
{
	uint4 v[Stage::each];
	u32 largest = 0; // of the magnitudes, as f32
#pragma unroll
	for (int i = 0; i < Stage::each; i++) {
		const int k = Stage::column(ring, threadIdx.x % 32 + 32 * i);
		v[i] = make_uint4(0, 0, 0, 0);
		if (k < S::k)
			v[i] = *reinterpret_cast<const uint4 *>(x + k);
		const u32 words[4] = { v[i].x, v[i].y, v[i].z, v[i].w };
#pragma unroll
		for (int j = 0; j < 4; j++)
			largest = max(largest, max(words[j] & 0x7fff0000u, words[j] << 16 & 0x7fff0000u));
	}
	const u32 up = min(268u - (warp_largest(largest) >> 23), 239u); // exponents with the bias of f32
	const float factor = __uint_as_float(up << 23);
	constexpr int apart = S::bits == 4 ? 4 : 1; // elements of a pair
#pragma unroll
	for (int i = 0; i < Stage::each; i++) {
		const int piece = threadIdx.x % 32 + 32 * i;
		float f[8];
		unpack(Vec8<bf16> { v[i] }, f);
		u32 words[4];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int first = S::bits == 4 ? j : 2 * j;
			words[j] = pack_f16(f[first] * factor, f[first + apart] * factor);
		}
		if (Stage::pieces % 32 == 0 || piece < Stage::pieces)
			stage.mine[piece] = make_uint4(words[0], words[1], words[2], words[3]);
	}
	__syncwarp();
	return __uint_as_float((254u - up + (S::bits == 4 ? 14 : 0)) << 23);
}

// warp level: products of 16 rows of w with 128 columns: acc[chain] of a lane's rows in column 2q and 2q + 1. codes:
// where this lane's are in its first row; b: x in its column
template <class S, class Ring>
__device__ __forceinline__ void row_multiply(const char *codes, int unit, int row, const uint4 (&b)[4],
	float (&acc)[S::chains][4])
{
	constexpr int words = S::bits / 4; // of eight codes
	u32 w[2][4 * words];
	const int q = threadIdx.x % 4;
#pragma unroll
	for (int h = 0; h < 2; h++)
#pragma unroll
		for (int i = 0; i < words; i++) {
			const uint4 v = *reinterpret_cast<const uint4 *>(codes + 8 * h * S::row_bytes
				+ ((unit * 4 * words + i * 4 + q) ^ Ring::twist(row)) * 16);
			w[h][4 * i] = v.x, w[h][4 * i + 1] = v.y, w[h][4 * i + 2] = v.z, w[h][4 * i + 3] = v.w;
		}
#pragma unroll
	for (int s = 0; s < 4; s++) {
		u32 a[2][4];
#pragma unroll
		for (int h = 0; h < 2; h++) {
			u32 eight[words], pair[4];
#pragma unroll
			for (int i = 0; i < words; i++)
				eight[i] = w[h][s * words + i];
			row_decode(eight, pair);
#pragma unroll
			for (int i = 0; i < 4; i++)
				a[i / 2][i % 2 * 2 + h] = pair[i];
		}
		mma_f16(acc[0], a[0], b[s].x, b[s].y);
		mma_f16(acc[S::chains - 1], a[1], b[s].z, b[s].w);
	}
}

// Sums of all warps, for the threads of a pair's first block.
struct RowSums {
	const float *own, *other; // of each block; NULL: it is alone
	__device__ __forceinline__ float at(int place) const { return other ? own[place] + other[place] : own[place]; }
};

// block level: as stream, of row x. False, to all threads alike, if there is nothing to finish
template <class S, int PAIR_, bool FULL, class WTile, class Ready>
__device__ __forceinline__ bool stream_row_of(uint4 *memory, WTile w_tile, const bf16 *x, bool some, Ready ready,
	RowSums &sums)
{
	using Ring = StreamRing<S, FULL, void>;
	using Stage = StreamStage<S, false, void, Ring, true>;
	static_assert(S::rows == 1 && S::bits < 16 && !S::zeroed && Ring::staged, "what this is for");
	static_assert(S::split == stream_warps * PAIR_, "a pair's warps share all columns");
	static_assert(!S::grouped || Ring::scale_piece != 0, "scales of groups come with their codes");
	static_assert(!S::blocked || S::period % 128 == 0, "a scale is that of whole units");
	constexpr int units = S::cols / 128, chains = S::chains; // of a turn: what a lane has 32 codes of
	constexpr int results = 16 * S::tiles;
	__shared__ float left[PAIR_][results]; // of each block, in the first
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
	const int rank = PAIR_ == 1 ? 0 : blockIdx.x % PAIR_;
	// and row + 8: rows that are read together lie in different banks
	const int row = S::bits == 4 ? g % 2 * 4 + g / 2 : g / 4 * 4 + g % 2 * 2 + g / 2 % 2;
	if constexpr (PAIR_ > 1)
		team_arrive();
	Ring ring(memory + warp * (Ring::warp_bytes / 16), w_tile, static_cast<const void *>(nullptr));
	if constexpr (PAIR_ > 1) {
		ring.turn = rank * stream_warps + warp;
		ring.turns = (Ring::units - ring.turn + S::split - 1) / S::split;
		if constexpr (Ring::waiting)
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
				ring.block_scale[m] = ring.read_block_scale(m, 0,
					ring.column(lane * S::period / S::cols) + lane * S::period % S::cols);
	}
#pragma unroll
	for (int i = 0; i < S::depth; i++) {
		if (i >= S::ahead)
			copy_wait<S::ahead - 1>();
		ring.fill(i, i);
	}
	const Stage stage(memory + stream_warps * (Ring::warp_bytes / 16) + warp * Stage::place, ring);
	inputs_ready();
	if (PAIR_ > 1)
		team_wait(); // the other block is there
	if (!some) {
		copy_wait<0>();
		return false;
	}
	ready();

	const float factor = row_fill<S>(stage, ring, x);
	// whose column of the product has the lane's first 16 codes, whose the second 16
	const bool is_first = S::grouped ? g == 2 * q : g == 0, is_second = S::grouped ? g == 2 * q + 1 : g == 0;
	const uint4 *first = stage.mine + (S::bits == 4 ? 4 : 2) * q, *second = first + (S::bits == 4 ? 2 : 8);
	uint4 b[4] = {};
	float total[S::tiles][2] = {};
	int slot = 0, to_fill = S::ahead % S::depth;
	for (int turn = 0; turn < ring.turns; turn++) {
		copy_wait<S::ahead - 1>();
		__syncwarp();
		const char *const at = ring.mine + slot * Ring::turn_bytes;
#pragma unroll
		for (int u = 0; u < units; u++, first += 16, second += 16) {
			if (is_first) {
				b[0] = first[0];
				b[1] = first[1];
			}
			if (is_second) {
				b[2] = second[0];
				b[3] = second[1];
			}
#pragma unroll
			for (int m = 0; m < S::tiles; m++) {
				float acc[chains][4] = {}, sum[4];
				row_multiply<S, Ring>(at + (m * 16 + row) * S::row_bytes, u, row, b, acc);
#pragma unroll
				for (int i = 0; i < 4; i++)
					sum[i] = chains == 2 ? acc[0][i] + acc[chains - 1][i] : acc[0][i];
				float scale[2] = { 1.0f, 1.0f };
				if constexpr (S::blocked)
					ring.block_scales(m, turn, u * 4, scale);
#pragma unroll
				for (int h = 0; h < 2; h++) {
					if constexpr (S::grouped) {
						const float2 of_groups = row_scales<S>(at + Ring::scales_at
							+ (m * 16 + 8 * h + row) * Ring::row_scales + (u * 128 + q * 32) / S::block_k);
						total[m][h] = fmaf(sum[2 * h + 1], of_groups.y, fmaf(sum[2 * h], of_groups.x, total[m][h]));
					} else {
						total[m][h] = fmaf(sum[2 * h], scale[h], total[m][h]);
					}
				}
			}
		}
		__syncwarp(); // the slot is read by all
		const int next = turn + S::ahead;
		ring.fill(next < S::depth ? ring.turns : next, to_fill); // the first ones are there already
		to_fill = to_fill + 1 == S::depth ? 0 : to_fill + 1;
		slot = slot + 1 == S::depth ? 0 : slot + 1;
	}
	copy_wait<0>();
	__syncwarp();
	float *const out = reinterpret_cast<float *>(ring.mine);
#pragma unroll
	for (int m = 0; m < S::tiles; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float sum = total[m][h];
			if constexpr (S::grouped) {
				sum += __shfl_xor_sync(~0u, sum, 1);
				sum += __shfl_xor_sync(~0u, sum, 2);
			}
			if (q == 0)
				out[m * 16 + 8 * h + row] = sum * factor;
		}
	__syncthreads();
	if (threadIdx.x < results) {
		const float *const from = reinterpret_cast<const float *>(memory) + threadIdx.x;
		float sum = 0.0f;
#pragma unroll
		for (int i = 0; i < stream_warps; i++)
			sum += from[i * (Ring::warp_bytes / 4)];
		if (rank == 0)
			left[0][threadIdx.x] = sum;
		else
			leave_at_rank(at_rank(&left[PAIR_ - 1][threadIdx.x], 0), sum);
	}
	if constexpr (PAIR_ > 1)
		team_meet();
	else
		__syncthreads();
	sums = { left[0], PAIR_ > 1 ? left[PAIR_ - 1] : nullptr };
	return rank == 0;
}
