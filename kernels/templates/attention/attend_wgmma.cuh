// attend_wgmma.cuh - softmax(q k^T) v of 64 rows of q by a warpgroup, a run of keys at a time (sm_90a only).
//
// Scores are products of two tiles in shared memory; probabilities stay in registers, where the accumulators of the
// first product have the layout that the second wants of its left operand. Values are read "transposed": their tile
// has keys as rows, and keys are what the second product sums over.
//
// Accumulators of m64nNk16, in each warp of the warpgroup 16 rows, with g = lane / 4 and q = lane % 4: c[j][0..3]
// are (g, 8j + 2q), (g, 8j + 2q + 1), (g + 8, 8j + 2q), (g + 8, 8j + 2q + 1), as mma.sync has them. Pairs below have
// index 0 for row g and 1 for row g + 8. Maxima live in the log2 domain, as in attend.cuh.
#pragma once
#include "attention/attend.cuh"
#include "shared/hopper.cuh"

#define ACC_4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define ACC_16(j) ACC_4(j), ACC_4(j + 1), ACC_4(j + 2), ACC_4(j + 3)
#define ACC_32(j) ACC_16(j), ACC_16(j + 4)
#define ACC_64(j) ACC_32(j), ACC_32(j + 8)
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128 NAMES_64 ", " \
	"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_BF16(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {"

// Products (warpgroup level) ------------------------------------------------------------------------------------

// c = 64 rows of q, 16 columns, times as many of k; ADD_ = 1: plus c
template <int ADD_> __device__ __forceinline__ void wgmma_scores(float (&c)[8][4], u64 q, u64 k)
{
	asm volatile(WGMMA_BF16("64") NAMES_32 "}, %32, %33, %34, 1, 1, 0, 0;" : ACC_32(0) : "l"(q), "l"(k), "n"(ADD_));
}

template <int ADD_> __device__ __forceinline__ void wgmma_scores(float (&c)[16][4], u64 q, u64 k)
{
	asm volatile(WGMMA_BF16("128") NAMES_64 "}, %64, %65, %66, 1, 1, 0, 0;" : ACC_64(0) : "l"(q), "l"(k), "n"(ADD_));
}

// c += 64 rows of p, 16 keys, times the values of those keys
#define WGMMA_P "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v)
__device__ __forceinline__ void wgmma_values(float (&c)[8][4], const u32 (&p)[4], u64 v)
{
	asm volatile(WGMMA_BF16("64") NAMES_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;" : ACC_32(0) : WGMMA_P);
}

__device__ __forceinline__ void wgmma_values(float (&c)[12][4], const u32 (&p)[4], u64 v)
{
	asm volatile(WGMMA_BF16("96") NAMES_48 "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
		: ACC_32(0), ACC_16(8) : WGMMA_P);
}

__device__ __forceinline__ void wgmma_values(float (&c)[16][4], const u32 (&p)[4], u64 v)
{
	asm volatile(WGMMA_BF16("128") NAMES_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;" : ACC_64(0) : WGMMA_P);
}

__device__ __forceinline__ void wgmma_values(float (&c)[32][4], const u32 (&p)[4], u64 v)
{
	asm volatile(WGMMA_BF16("256") NAMES_128 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
		: ACC_64(0), ACC_64(16) : WGMMA_P);
}

// The state of 64 rows ------------------------------------------------------------------------------------------

template <int KEYS_, int HDIM_> struct WideAttention {
	static_assert(KEYS_ % 16 == 0 && HDIM_ % 16 == 0, "whole steps of the tensor cores");
	float s[KEYS_ / 8][4]; // scores, then probabilities
	u32 p[KEYS_ / 16][4];  // probabilities of the run before, as the second product takes them
	float o[HDIM_ / 8][4]; // unnormalised
	float m[2], l[2];      // running maximum; this lane's share of the running sum
	float shrink[2];       // what the last run's maximum makes of o and l before it
};

// Other rows: nothing seen yet. Their output starts apart, since that of the rows before may still be under way.
template <int KEYS_, int HDIM_> __device__ __forceinline__ void wide_forget(WideAttention<KEYS_, HDIM_> &a)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		a.m[i] = minus_infinity();
		a.l[i] = 0.0f;
	}
}

template <int KEYS_, int HDIM_> __device__ __forceinline__ void wide_clear(WideAttention<KEYS_, HDIM_> &a)
{
#pragma unroll
	for (int d = 0; d < HDIM_ / 8; d++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			a.o[d][i] = 0.0f;
}

// Issues the scores of a run: q is a tile of 64 rows, k one of KEYS_ rows, each a chunk for 64 columns.
template <int KEYS_, int HDIM_>
__device__ __forceinline__ void wide_scores(WideAttention<KEYS_, HDIM_> &a, u32 q, u32 k)
{
	const u64 left = tile_descriptor(q), right = tile_descriptor(k);
	wgmma_scores<0>(a.s, left, right);
#pragma unroll
	for (int d = 1; d < HDIM_ / 16; d++)
		wgmma_scores<1>(a.s, left + (d / 4 * (64 * 128) + d % 4 * 32) / 16,
			right + (d / 4 * (KEYS_ * 128) + d % 4 * 32) / 16);
	wgmma_commit();
}

// Issues o += p v, v a tile of KEYS_ rows.
template <int KEYS_, int HDIM_> __device__ __forceinline__ void wide_values(WideAttention<KEYS_, HDIM_> &a, u32 v)
{
	const u64 values = tile_descriptor(v, KEYS_ * 128);
#pragma unroll
	for (int j = 0; j < KEYS_ / 16; j++)
		wgmma_values(a.o, a.p[j], values + j * (16 * 128 / 16));
	wgmma_commit();
}

// The first key of the run stands at position p0; this thread's rows see positions up to last[0] and last[1], of these
// the last REACH_ (0: all).
template <int REACH_, int KEYS_, int HDIM_>
__device__ __forceinline__ void wide_mask(WideAttention<KEYS_, HDIM_> &a, int p0, const int (&last)[2])
{
	const int column = p0 + threadIdx.x % 4 * 2;
#pragma unroll
	for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (is_hidden<REACH_>(column + j * 8 + i % 2, last[i / 2]))
				a.s[j][i] = minus_infinity();
}

// Scores become probabilities, in place; maximum, sum and shrink follow. Two chains a row hide latencies.
template <int KEYS_, int HDIM_>
__device__ __forceinline__ void wide_softmax(WideAttention<KEYS_, HDIM_> &a, float scale_log2)
{
	float base[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top[2] = { a.s[0][2 * i], a.s[0][2 * i + 1] };
#pragma unroll
		for (int j = 1; j < KEYS_ / 8; j++) {
			top[0] = fmaxf(top[0], a.s[j][2 * i]);
			top[1] = fmaxf(top[1], a.s[j][2 * i + 1]);
		}
		top[0] = fmaxf(top[0], top[1]);
		top[0] = fmaxf(top[0], __shfl_xor_sync(~0u, top[0], 1));
		top[0] = fmaxf(top[0], __shfl_xor_sync(~0u, top[0], 2));
		const float now = fmaxf(top[0] * scale_log2, a.m[i]);
		base[i] = now == minus_infinity() ? 0.0f : now; // nothing seen yet: -inf - 0, not -inf - -inf
		a.shrink[i] = exp2_fast(a.m[i] - base[i]);
		a.m[i] = now;
	}
	float sum[2][2] = {};
#pragma unroll
	for (int j = 0; j < KEYS_ / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			a.s[j][i] = exp2_fast(fmaf(a.s[j][i], scale_log2, -base[i / 2]));
			sum[i / 2][i % 2] += a.s[j][i];
		}
#pragma unroll
	for (int i = 0; i < 2; i++)
		a.l[i] = fmaf(a.l[i], a.shrink[i], sum[i][0] + sum[i][1]);
}

template <int KEYS_, int HDIM_> __device__ __forceinline__ void wide_round(WideAttention<KEYS_, HDIM_> &a)
{
#pragma unroll
	for (int j = 0; j < KEYS_ / 16; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			a.p[j][i] = pack_bf16(a.s[2 * j + i / 2][i % 2 * 2], a.s[2 * j + i / 2][i % 2 * 2 + 1]);
}

template <int KEYS_, int HDIM_> __device__ __forceinline__ void wide_shrink(WideAttention<KEYS_, HDIM_> &a)
{
#pragma unroll
	for (int d = 0; d < HDIM_ / 8; d++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			a.o[d][i] *= a.shrink[i / 2];
}

// a row's sum from the shares of its four lanes (warp level)
__device__ __forceinline__ float row_sum(float l)
{
	l += __shfl_xor_sync(~0u, l, 1);
	return l + __shfl_xor_sync(~0u, l, 2);
}
