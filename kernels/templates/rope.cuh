// rope.cuh - one head of q or k in a warp's registers: its rmsnorm and its rotation by a position.
//
// A head of HDIM elements is HDIM / 2 pairs, a lane holds those at lane, lane + 32, ...: pair p is the elements p and
// p + ROTARY / 2 that rope turns together, and beyond ROTARY / 2 two neighbours that it leaves alone.
#pragma once
#include "reduce.cuh"

constexpr int pairs_a_lane(int hdim) { return (hdim / 2 + 31) / 32; }

// thread level: sine and cosine of 0 <= x < 6e6. Three-part pi/2; the first step is exact, because both sides are
// multiples of 2^-23 and their difference is below 1.
__device__ __forceinline__ void sin_cos(float x, float &sine, float &cosine)
{
	constexpr float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer held in the low bits
	const float shifted = fmaf(x, 0.636619772f, magic), k = shifted - magic;
	const u32 quadrant = __float_as_uint(shifted);
	float r = fmaf(k, -1.57079637f, x);
	r = fmaf(k, 4.37113883e-8f, r);
	r = fmaf(k, 1.71512451e-15f, r);
	const float r2 = r * r;
	float s = fmaf(r2, -1.9515295891e-4f, 8.3321608736e-3f);
	s = fmaf(s, r2, -1.6666654611e-1f);
	s = fmaf(s * r2, r, r);
	float c = fmaf(r2, 2.443315711809948e-5f, -1.388731625493765e-3f);
	c = fmaf(c, r2, 4.166664568298827e-2f);
	c = fmaf(c * r2, r2, fmaf(r2, -0.5f, 1.0f));
	const bool swap = quadrant & 1;
	sine = swap ? c : s;
	cosine = swap ? s : c;
	sine = quadrant & 2 ? -sine : sine;
	cosine = (quadrant + 1) & 2 ? -cosine : cosine;
}

// A warp's view of heads of one shape.
template <int HDIM_, int ROTARY_> struct Head {
	static_assert(ROTARY_ <= HDIM_ && ROTARY_ % 2 == 0 && HDIM_ % 2 == 0, "rope turns pairs inside one head");
	static constexpr int pairs = pairs_a_lane(HDIM_);
	using Pairs = float[pairs][2];

	static __device__ __forceinline__ bool exists(int j) { return int(threadIdx.x % 32) + 32 * j < HDIM_ / 2; }
	static __device__ __forceinline__ bool turns(int j) { return int(threadIdx.x % 32) + 32 * j < ROTARY_ / 2; }

	// Element of the head that is first or second of this lane's pair j.
	static __device__ __forceinline__ int element(int j, int second)
	{
		const int p = threadIdx.x % 32 + 32 * j;
		return p < ROTARY_ / 2 ? p + second * (ROTARY_ / 2) : ROTARY_ + 2 * (p - ROTARY_ / 2) + second;
	}

	template <class T> static __device__ __forceinline__ void load(Pairs &x, const T *from)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				x[j][e] = exists(j) ? to_f32(from[element(j, e)]) : 0.0f;
	}

	template <class T> static __device__ __forceinline__ void store_to(T *to, const Pairs &x)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				if (exists(j))
					store(to + element(j, e), x[j][e]);
	}

	// The head's rmsnorm, in place; w as loaded, or 1 + w.
	static __device__ __forceinline__ void norm(Pairs &x, const Pairs &w, bool one, float eps)
	{
		float ss = 0.0f;
#pragma unroll
		for (int j = 0; j < pairs; j++)
			ss += x[j][0] * x[j][0] + x[j][1] * x[j][1];
		const float scale = rsqrtf(warp_sum(ss) / HDIM_ + eps);
#pragma unroll
		for (int j = 0; j < pairs; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				x[j][e] *= scale * ((one ? 1.0f : 0.0f) + w[j][e]);
	}

	static __device__ __forceinline__ void load_frequencies(float (&f)[pairs], const float *inv_freq)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++)
			f[j] = turns(j) ? inv_freq[threadIdx.x % 32 + 32 * j] : 0.0f;
	}

	// turn[j] = sine and cosine of the position's angle, times factor: the f32 product, as in the models' own code
	static __device__ __forceinline__ void angles(Pairs &turn, const float (&f)[pairs], int pos, float factor)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++) {
			sin_cos(float(pos) * f[j], turn[j][0], turn[j][1]);
			turn[j][0] *= factor;
			turn[j][1] *= factor;
		}
	}

	static __device__ __forceinline__ void rotate(Pairs &x, const Pairs &turn)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++)
			if (turns(j)) {
				const float s = turn[j][0], c = turn[j][1], x0 = x[j][0], x1 = x[j][1];
				x[j][0] = x0 * c - x1 * s;
				x[j][1] = x1 * c + x0 * s;
			}
	}
};
