// wgmma_few_fp8.cuh - the products of wgmma_few.cuh of e4m3 codes with scales (sm_90a only).
//
// A stage is 128 columns, which is one block of scales along k. The tensor cores sum it alone, and then each sum is
// added, times its two scales, to f32 accumulators, as wgmma_fp8.cuh says. Scales are loaded four stages ahead.
#pragma once
#include "products/wgmma_few.cuh"
#include "products/wgmma_fp8.cuh"

// warpgroup level: c = 64 rows of x, 128 columns, times 32, 64 or 128 rows of w
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
// has ROWS_ of each stage; w_scale, NULL without, one for each 128 rows and stage
template <class P, int ROWS_, int N_, class ST_>
__device__ __forceinline__ void few_multiply_codes(FewRing<P> &ring, int group, float (&acc)[P::sums][4],
	const float *x_scale, const ST_ *w_scale)
{
	static_assert(P::parts == 1 && P::columns == code_columns, "a tile has one scale of w a stage");
	const int row = P::row_of(group) + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
	const float *x[2] = { x_scale + min(row, ROWS_ - 1), x_scale + min(row + 8, ROWS_ - 1) };
	const i64 block = i64(min(P::column(), N_ - 1) / 128) * P::steps;
	float part[P::sums][4] = {};
#pragma unroll
	for (int j = 0; j < P::sums; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	struct Scales { float x[2], w; } ahead[4]; // of the stages to come: a stage takes less time than its scales do
	auto load = [&](int step) {
		step = min(step, P::last() - 1);
		return Scales { { x[0][i64(step) * ROWS_], x[1][i64(step) * ROWS_] },
			w_scale ? to_f32(w_scale[block + step]) : 1.0f };
	};
#pragma unroll
	for (int u = 0; u < 4; u++)
		ahead[u] = load(P::first() + u);
	for (int four = P::first(); four < P::last(); four += 4)
#pragma unroll
		for (int u = 0; u < 4; u++) {
			if (four + u >= P::last())
				break;
			const Scales now = ahead[u];
			barrier_wait(ring.full(), ring.turn);
			const u64 of_x = ring.x(group), of_w = ring.w(group);
			wgmma_begin();
			wgmma_codes<false>(part, of_x, of_w);
#pragma unroll
			for (int i = 1; i < 4; i++)
				wgmma_codes<true>(part, of_x + 2 * i, of_w + 2 * i);
			wgmma_commit();
			ahead[u] = load(four + u + 4);
			wgmma_wait<0>();
			hold(part);
			wgmma_release<1>(ring.free());
			ring.advance();
			const float scale[2] = { now.x[0] * now.w, now.x[1] * now.w };
#pragma unroll
			for (int j = 0; j < P::sums; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc[j][i] = fmaf(part[j][i], scale[i / 2], acc[j][i]);
		}
}
