// wgmma_fp8.cuh - tiles of x w^T of e4m3 codes with scales, on the machinery of wgmma.cuh (sm_90a only).
//
// A stage is 128 columns of both operands, which is one block of scales along k: x has one for each of its rows there,
// w one for each 128 of its rows. The tensor cores sum a stage alone, in their own registers, and then each sum is
// added, times its two scales, to f32 accumulators: they keep 13 bits of a running sum of codes, which is enough for
// 128 products and not for thousands.
//
// A tile of 256 rows of w is summed in two halves, since accumulators of all and partial sums of all are more
// registers than there are. While one warpgroup scales and adds, the other one's products run, so that the tensor
// cores are short of nothing; scales are loaded a stage ahead.
#pragma once
#include "shared/quant.cuh"
#include "products/wgmma.cuh"

#define WGMMA_FP8_TEXT "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" WGMMA_64_NAMES "}, %64, %65, "

// warpgroup level: c (+)= 64 rows of x, 32 columns, times 128 rows of w
template <bool ADD_> __device__ __forceinline__ void wgmma_codes(float (&c)[16][4], u64 x, u64 w)
{
	if constexpr (ADD_)
		asm volatile(WGMMA_FP8_TEXT "1, 1, 1;" : WGMMA_64(0) : "l"(x), "l"(w));
	else
		asm volatile(WGMMA_FP8_TEXT "0, 1, 1;" : WGMMA_64(0) : "l"(x), "l"(w));
}

// The scales of a stage: of this thread's rows g and g + 8, and of each 128 rows of w.
template <int HALVES_> struct StageScales { float x[2], w[HALVES_]; };

// one warpgroup, number `group` of two: acc = its 64 rows of the tile, scaled. scales(step) gives StageScales
template <int BN_, int K_, int CLUSTER_, class Scales>
__device__ __forceinline__ void wgmma_multiply_codes(Ring<BN_> &ring, int group, float (&acc)[BN_ / 8][4],
	Scales scales)
{
	using T = WideTile<BN_>;
	constexpr int steps = ceil_div(K_, code_columns), halves = BN_ / 128;
	float part[16][4] = {};
#pragma unroll
	for (int j = 0; j < BN_ / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	StageScales<halves> next = scales(0);
	for (int step = 0; step < steps; step++) {
		const StageScales<halves> now = next;
		const u64 x = tile_descriptor(ring.stage() + group * (64 * 128));
		const u64 w = tile_descriptor(ring.stage() + T::piece_bytes);
		barrier_wait(ring.full(ring.slot), ring.turn);
#pragma unroll
		for (int h = 0; h < halves; h++) {
			wgmma_begin();
			wgmma_codes<false>(part, x, w + h * (128 * 128 / 16));
#pragma unroll
			for (int i = 1; i < 4; i++)
				wgmma_codes<true>(part, x + 2 * i, w + h * (128 * 128 / 16) + 2 * i);
			wgmma_commit();
			if (h == 0)
				next = scales(step + 1 < steps ? step + 1 : step);
			wgmma_wait<0>();
			hold(part);
			if (h == halves - 1)
				wgmma_release<CLUSTER_>(ring.free(ring.slot));
			const float s[2] = { now.x[0] * now.w[h], now.x[1] * now.w[h] };
#pragma unroll
			for (int j = 0; j < 16; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc[h * 16 + j][i] = fmaf(part[j][i], s[i / 2], acc[h * 16 + j][i]);
		}
		ring.advance();
	}
}

// The scales of a weight, of which one or both may be absent.
template <class ST_> struct CodeScales { const ST_ *block; const float *row; };

// block level, all 384 threads: as wgmma_products, of codes. ROWS_ is what x_scale has of rows; HAS_BLOCKS_: the parts
// of w have scales of 128 x 128
template <int BN_, int K_, int N_, int CLUSTER_, int ROWS_, bool HAS_BLOCKS_, int PARTS_, class ST_, class Finish>
__device__ __forceinline__ void wgmma_code_products(uint4 *dynamic, int rows, const Products<PARTS_> &p,
	const float *x_scale, const CodeScales<ST_> (&w_scale)[PARTS_], Finish finish)
{
	static_assert(BN_ == 128 || BN_ == 256, "whole blocks of scales");
	static_assert(PARTS_ == 1 || BN_ / PARTS_ == 128, "a half of a tile is of one matrix");
	static_assert(K_ % 16 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");
	constexpr int blocks = ceil_div(K_, code_columns), halves = BN_ / 128;
	Ring<BN_> ring;
	Tiles<BN_ / PARTS_, N_, CLUSTER_> tiles(rows);
	const int group = wgmma_open<BN_, CLUSTER_>(dynamic, p, ring);
	if (group == 0) {
		registers_down<40>();
		if (threadIdx.x == 0)
			wgmma_request<BN_, K_, N_, CLUSTER_, code_columns>(ring, tiles, p);
	} else {
		registers_up<232>();
		inputs_ready(); // x_scale is not fetched by the thread that waits for x
		while (tiles.take()) {
			const int row = tiles.row + (group - 1) * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
			const float *x[2] = { x_scale + min(row, ROWS_ - 1), x_scale + min(row + 8, ROWS_ - 1) };
			auto scales = [&](int step) {
				StageScales<halves> s = { { x[0][i64(step) * ROWS_], x[1][i64(step) * ROWS_] }, {} };
#pragma unroll
				for (int h = 0; h < halves; h++) {
					const int block = tiles.column / 128 + (PARTS_ == 1 ? h : 0);
					s.w[h] = HAS_BLOCKS_ ? to_f32(w_scale[PARTS_ == 1 ? 0 : h].block[
						i64(min(block, ceil_div(N_, 128) - 1)) * blocks + step]) : 1.0f;
				}
				return s;
			};
			float acc[BN_ / 8][4];
			wgmma_multiply_codes<BN_, K_, CLUSTER_>(ring, group - 1, acc, scales);
			finish(ring, group - 1, acc, tiles.row + (group - 1) * 64, tiles.column);
		}
	}
	if constexpr (CLUSTER_ > 1)
		cluster_sync(); // the other block may still arrive at barriers of this one
}

// Results -------------------------------------------------------------------------------------------------------

// thread level: all columns of a tile from n0 on times the scales of their rows of w
template <int N_, int TILES_>
__device__ __forceinline__ void scale_columns(float (&acc)[TILES_][4], const float *scale, int n0)
{
#pragma unroll
	for (int j = 0; j < TILES_; j++) {
		const float2 s = bias_pair<N_>(scale, n0 + j * 8 + threadIdx.x % 4 * 2);
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] *= i % 2 ? s.y : s.x;
	}
}

// warpgroup level: acc[0..15], 64 rows of 128 columns, as codes with a scale for each row, to a matrix of N_ columns.
// largest[i]: of what this thread has of row g + 8 i
template <int N_, int ROWS_, int TILES_>
__device__ __forceinline__ void store_codes(e4m3 *y, float *y_scale, int rows, int t0, int n0, float (&acc)[TILES_][4],
	float (&largest)[2])
{
	static_assert(N_ % 16 == 0 && TILES_ >= 16, "lanes store 16 codes");
	const int row = t0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], 1));
		largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], 2));
		const float scale = code_scale(largest[i]), inverse = 1.0f / scale;
		const bool is_used = row + 8 * i < rows;
		if (is_used && q == 0)
			y_scale[i64(n0 / code_columns) * ROWS_ + row + 8 * i] = scale;
#pragma unroll
		for (int half = 0; half < 16; half += 8) {
			u32 w[4]; // of columns 16 m + 2 q, 16 m + 2 q + 1 and those 8 further on
#pragma unroll
			for (int m = 0; m < 4; m++) {
				const float (&a)[4] = acc[half + 2 * m], (&b)[4] = acc[half + 2 * m + 1];
				w[m] = pack_e4m3(a[2 * i] * inverse, a[2 * i + 1] * inverse, b[2 * i] * inverse,
					b[2 * i + 1] * inverse);
			}
			quad_transpose(w); // of columns 16 q + 2 m, 16 q + 2 m + 1 and those 8 further on
			const int n = n0 + half * 8 + q * 16;
			if (is_used && n < N_)
				*reinterpret_cast<uint4 *>(y + i64(row + 8 * i) * N_ + n) = make_uint4(
					__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
					__byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
		}
	}
}
