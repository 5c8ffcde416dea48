// wgmma_few_fp8.cuh - the products of wgmma_few.cuh of e4m3 codes with scales (sm_90a only).
//
// A stage is 128 columns, which is one block of scales along k. The tensor cores sum it alone, and then each sum is
// added, times its two scales, to f32 accumulators, as wgmma_fp8.cuh says.
#pragma once
#include "products/wgmma_few.cuh"
#include "products/wgmma_fp8.cuh"

// warpgroup level: c (+)= 64 rows of x, 32 columns, times 32 or 64 rows of w; 128: wgmma_fp8.cuh
#define FEW_CODES_TEXT(n) "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 {"
template <bool ADD_> __device__ __forceinline__ void wgmma_codes(float (&c)[4][4], u64 x, u64 w)
{
	asm volatile(FEW_CODES_TEXT("32") WGMMA_16_NAMES "}, %16, %17, %18, 1, 1;" : WGMMA_16(0)
		: "l"(x), "l"(w), "n"(int(ADD_)));
}

template <bool ADD_> __device__ __forceinline__ void wgmma_codes(float (&c)[8][4], u64 x, u64 w)
{
	asm volatile(FEW_CODES_TEXT("64") WGMMA_32_NAMES "}, %32, %33, %34, 1, 1;" : WGMMA_32(0)
		: "l"(x), "l"(w), "n"(int(ADD_)));
}

// one warpgroup, number `group` of two: acc = its part of the tile, scaled, over the block's run of columns. x_scale
// has ROWS_ of each stage; w_scale, NULL without, one for each 128 rows and stage of each part
template <class P, int ROWS_, int N_, class ST_>
__device__ __forceinline__ void few_multiply_codes(FewRing<P> &ring, int group, float (&acc)[P::sums][4],
	const float *x_scale, const ST_ *const (&w_scale)[P::parts])
{
	static_assert(P::columns == code_columns, "a tile has one scale of each part of w a stage");
	const int lane = threadIdx.x % 32, g = lane / 4;
	const float *x = x_scale + min(P::row_of(group) + int(threadIdx.x) % 128 / 32 * 16 + lane % 16, ROWS_ - 1);
	const i64 block = i64(min(P::column(), N_ - 1) / 128) * P::steps;
	float part[P::sums][4] = {};
#pragma unroll
	for (int j = 0; j < P::sums; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	// Of eight stages: x[i] in lane 16 s + r is that of stage 2 i + s and row r of the warp's 16; w in lane l that of
	// stage l % 8. A load a stage would be waited for: its latency is that of several stages
	struct Scales { float x[4], w[P::parts]; } next, now;
	auto load = [&](int first) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			next.x[i] = x[i64(min(first + 2 * i + lane / 16, P::last() - 1)) * ROWS_];
#pragma unroll
		for (int i = 0; i < P::parts; i++)
			next.w[i] = w_scale[i] ? to_f32(w_scale[i][block + min(first + lane % 8, P::last() - 1)]) : 1.0f;
	};
	load(P::first());
	for (int eight = P::first(); eight < P::last(); eight += 8) {
		now = next;
		load(eight + 8);
#pragma unroll
		for (int u = 0; u < 8; u++) {
			if (eight + u >= P::last())
				break;
			barrier_wait(ring.full(), ring.turn);
			const u64 of_x = ring.x(group), of_w = ring.w(group);
			wgmma_begin();
			wgmma_codes<false>(part, of_x, of_w);
#pragma unroll
			for (int i = 1; i < 4; i++)
				wgmma_codes<true>(part, of_x + 2 * i, of_w + 2 * i);
			wgmma_commit();
			float scale[P::parts][2];
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const float of_row = __shfl_sync(~0u, now.x[u / 2], u % 2 * 16 + h * 8 + g);
#pragma unroll
				for (int i = 0; i < P::parts; i++)
					scale[i][h] = of_row * __shfl_sync(~0u, now.w[i], u);
			}
			wgmma_wait<0>();
			hold(part);
			wgmma_release<1>(ring.free());
			ring.advance();
#pragma unroll
			for (int j = 0; j < P::sums; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc[j][i] = fmaf(part[j][i], scale[j / (P::sums / P::parts)][i / 2], acc[j][i]);
		}
	}
}
