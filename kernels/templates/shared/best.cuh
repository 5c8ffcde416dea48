// best.cuh - the best of a part of the vocabulary, so that who draws a token need not read all logits again.
//
// The vocabulary is cut into parts of equal length, a power of two of ids. For each out and part: the largest logit
// and the sum of e^(l - largest), and the lowest id that has it; ids from `n_valid` on do not exist. A part without ids
// has -inf, 0. A NaN or +inf among the logits makes the sum a NaN.
#pragma once
#include "shared/reduce.cuh"

// thread level: a logit within -cap and cap; cap 0: as it is
__device__ __forceinline__ float soft_cap(float logit, float cap)
{
	return cap > 0.0f ? cap * tanhf(logit / cap) : logit;
}

// warp level: one out and one part: f(i) is the logit of id first + i, i < IDS_.
template <int IDS_, class F>
__device__ __forceinline__ void best_of_part(int first, int n_valid, F f, float *best, i32 *best_id)
{
	constexpr int each = (IDS_ + 31) / 32;
	const int lane = threadIdx.x % 32;
	float l[each], top = minus_infinity();
	int id = first + lane;
#pragma unroll
	for (int j = 0; j < each; j++) {
		const int i = lane + 32 * j;
		l[j] = (IDS_ % 32 == 0 || i < IDS_) && first + i < n_valid ? f(i) : minus_infinity();
		if (l[j] > top) {
			top = l[j];
			id = first + i;
		}
	}
#pragma unroll
	for (int m = 16; m; m >>= 1) {
		const float other = __shfl_xor_sync(~0u, top, m);
		const int other_id = __shfl_xor_sync(~0u, id, m);
		if (other > top || (other == top && other_id < id)) {
			top = other;
			id = other_id;
		}
	}
	const float base = top == minus_infinity() ? 0.0f : top;
	float sum = 0.0f;
#pragma unroll
	for (int j = 0; j < each; j++)
		sum += expf(l[j] - base);
	sum = warp_sum(sum);
	if (lane == 0) {
		*reinterpret_cast<float2 *>(best) = make_float2(top, sum);
		*best_id = id;
	}
}
