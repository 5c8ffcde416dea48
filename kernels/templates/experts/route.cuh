// route.cuh - which experts a row goes to, and with which share (warp level).
#pragma once
#include "shared/reduce.cuh"

__device__ __forceinline__ u32 warp_max_bits(u32 x)
{
	u32 y;
	asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
	return y;
}

__device__ __forceinline__ u32 warp_min_bits(u32 x)
{
	u32 y;
	asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
	return y;
}

// The ids of the TOPK_ largest of EXPERTS_ logits, largest first, the lowest id among equals, and their shares: of the
// softmax over all, or, SUM_ONE, over these. The logits may be another block's: they are read past L1. Ids are in range
// whatever the logits are, and shares of logits that are no numbers are none either.
template <int EXPERTS_, int TOPK_, bool SUM_ONE>
__device__ __forceinline__ void route_row(const float *logits, i32 *expert, float *share)
{
	static_assert(TOPK_ <= 32 && TOPK_ <= EXPERTS_, "a lane keeps one choice");
	constexpr int each = ceil_div(EXPERTS_, 32);
	const int lane = threadIdx.x % 32;
	float x[each], largest = minus_infinity(), all = 0.0f, chosen = 0.0f, mine = 0.0f;
	u32 key[each], id = 0; // 0: taken, or none
#pragma unroll
	for (int i = 0; i < each; i++) {
		const int e = i * 32 + lane;
		x[i] = e < EXPERTS_ ? __ldcg(logits + e) + 0.0f : minus_infinity(); // -0 is as large as 0
		const u32 bits = __float_as_uint(x[i]);
		key[i] = e < EXPERTS_ ? max(bits ^ (bits >> 31 ? ~0u : 0x80000000u), 1u) : 0u;
		largest = fmaxf(largest, x[i]);
	}
	largest = warp_max(largest);
#pragma unroll
	for (int i = 0; i < each; i++)
		all += i * 32 + lane < EXPERTS_ ? expf(x[i] - largest) : 0.0f;
	all = warp_sum(all);
#pragma unroll
	for (int j = 0; j < TOPK_; j++) {
		u32 best[each];
		int at[each];
#pragma unroll
		for (int i = 0; i < each; i++) {
			best[i] = key[i];
			at[i] = i * 32 + lane;
		}
#pragma unroll
		for (int s = 1; s < each; s *= 2)
#pragma unroll
			for (int i = 0; i + s < each; i += 2 * s)
				if (best[i + s] > best[i]) {
					best[i] = best[i + s];
					at[i] = at[i + s];
				}
		const u32 top = warp_max_bits(best[0]), e = warp_min_bits(best[0] == top ? u32(at[0]) : ~0u);
		const float p = expf(__uint_as_float(top >> 31 ? top ^ 0x80000000u : ~top) - largest);
#pragma unroll
		for (int i = 0; i < each; i++)
			key[i] = i * 32 + lane == int(e) ? 0u : key[i];
		chosen += p;
		if (lane == j) {
			id = e;
			mine = p;
		}
	}
	if (lane < TOPK_) {
		expert[lane] = int(id);
		share[lane] = mine / (SUM_ONE ? chosen : all);
	}
}

// As large as x by comparison of integers; 0 is less than all of them.
__device__ __forceinline__ u32 ordered(float x)
{
	const u32 bits = __float_as_uint(x + 0.0f); // -0 is as large as 0
	return max(bits ^ (bits >> 31 ? ~0u : 0x80000000u), 1u);
}

// Lane g's is the sum of the two largest scores of group g, of GROUPS_ groups of OF_.
template <int GROUPS_, int OF_, int EACH_>
__device__ __forceinline__ float group_sum(const float (&score)[EACH_], int lane)
{
	float mine = 0.0f;
	for (int g = 0; g < GROUPS_; g++) {
		float first = minus_infinity(), second = minus_infinity();
#pragma unroll
		for (int i = 0; i < EACH_; i++)
			if ((i * 32 + lane) / OF_ == g) {
				second = fmaxf(second, fminf(first, score[i]));
				first = fmaxf(first, score[i]);
			}
#pragma unroll
		for (int step = 16; step > 0; step /= 2) {
			const float a = __shfl_xor_sync(~0u, first, step), b = __shfl_xor_sync(~0u, second, step);
			second = fmaxf(fmaxf(second, b), fminf(first, a));
			first = fmaxf(first, a);
		}
		if (lane == g)
			mine = OF_ > 1 ? first + second : first;
	}
	return mine;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The experts of a row by the sigmoids of its logits, largest first, the lowest id among equals: s + bias decides, or
// s where bias is NULL, out of the TOP_GROUPS_ best of GROUPS_ groups by the sum of their two largest; shares are their
// s, with NORM_ over (the sum of these + eps), times scale. s is kept beside s + bias, from which a large bias could
// not be taken again. Logits are read past L1, as by route_row.
template <int EXPERTS_, int TOPK_, int GROUPS_, int TOP_GROUPS_, bool NORM_, class Bias>
__device__ __forceinline__ void route_row_by_sigmoid(const float *logits, const Bias *bias, float eps, float scale,
	i32 *expert, float *share)
{
	constexpr int each = ceil_div(EXPERTS_, 32), of = EXPERTS_ / GROUPS_;
	const int lane = threadIdx.x % 32;
	float s[each], score[each], chosen = eps, mine = 0.0f;
	u32 key[each], id = 0, open = ~0u; // bit g: group g is among the best
#pragma unroll
	for (int i = 0; i < each; i++) {
		const int e = i * 32 + lane;
		s[i] = e < EXPERTS_ ? sigmoid(__ldcg(logits + e)) : 0.0f;
		score[i] = e < EXPERTS_ ? s[i] : minus_infinity();
		if (bias)
			score[i] += e < EXPERTS_ ? to_f32(bias[e]) : 0.0f;
	}
	if (GROUPS_ > 1) {
		const float sum = group_sum<GROUPS_, of>(score, lane);
		int before = 0;
#pragma unroll
		for (int g = 0; g < GROUPS_; g++) {
			const float other = __shfl_sync(~0u, sum, g);
			before += other > sum || (other == sum && g < lane);
		}
		open = __ballot_sync(~0u, before < TOP_GROUPS_);
	}
#pragma unroll
	for (int i = 0; i < each; i++) {
		const int e = i * 32 + lane;
		key[i] = e < EXPERTS_ && (open >> (e / of) & 1) ? ordered(score[i]) : 0u;
	}
	for (int j = 0; j < TOPK_; j++) {
		u32 best = 0, at = ~0u;
#pragma unroll
		for (int i = 0; i < each; i++)
			if (key[i] > best) {
				best = key[i];
				at = i * 32 + lane;
			}
		const u32 top = warp_max_bits(best), e = min(warp_min_bits(best == top ? at : ~0u), u32(EXPERTS_ - 1));
		float worth = 0.0f;
#pragma unroll
		for (int i = 0; i < each; i++)
			if (i * 32 + lane == int(e)) {
				worth = s[i];
				key[i] = 0;
			}
		worth = __shfl_sync(~0u, worth, e % 32);
		chosen += worth;
		if (lane == j) {
			id = e;
			mine = worth;
		}
	}
	if (lane < TOPK_) {
		expert[lane] = int(id);
		share[lane] = (NORM_ ? mine / chosen : mine) * scale;
	}
}

// 8 elements of x: with their norm, in f32; ss gains their squares.
template <bool ONE, class Norm>
__device__ __forceinline__ void route_norm(uint4 x, const Norm *norm, float (&v)[8], float &ss)
{
	float m[8];
	unpack(Vec8<bf16> { x }, v);
	unpack(load8(norm), m);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		ss = fmaf(v[i], v[i], ss);
		v[i] *= ONE ? 1.0f + m[i] : m[i];
	}
}
