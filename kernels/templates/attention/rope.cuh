// rope.cuh - one head of q or k in a warp's registers: its rmsnorm, its turn by a position, and, where the op says
// ROTATE, the Hadamard matrix behind that.
//
// A head of HDIM elements is HDIM / 2 pairs, a lane holds those at lane, lane + 32, ...: pair p is the elements p and
// p + ROTARY / 2 that rope turns together, and beyond ROTARY / 2 two neighbours that it leaves alone. Where rope turns
// NEIGHBOURS, all pairs are neighbours.
#pragma once
#include "shared/reduce.cuh"

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

// thread level: a + b, never fused with a product that one of them is
__device__ __forceinline__ float sum_rn(float a, float b)
{
	float y;
	asm("add.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
	return y;
}

// A warp's view of heads of one shape.
template <int HDIM_, int ROTARY_, int NEIGHBOURS_, int ROTATE_> struct Head {
	static_assert(ROTARY_ <= HDIM_ && ROTARY_ % 2 == 0 && HDIM_ % 2 == 0, "rope turns pairs inside one head");
	static constexpr int pairs = pairs_a_lane(HDIM_), runs = (HDIM_ + 31) / 32;
	static constexpr int apart = NEIGHBOURS_ ? 0 : ROTARY_, half = apart / 2; // elements whose pairs are not neighbours
	using Pairs = float[pairs][2];

	static __device__ __forceinline__ bool exists(int j) { return int(threadIdx.x % 32) + 32 * j < HDIM_ / 2; }
	static __device__ __forceinline__ bool turns(int j) { return int(threadIdx.x % 32) + 32 * j < ROTARY_ / 2; }

	// Element of the head that is first or second of this lane's pair j.
	static __device__ __forceinline__ int element(int j, int second)
	{
		const int p = threadIdx.x % 32 + 32 * j;
		return p < half ? p + second * half : apart + 2 * (p - half) + second;
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

	// Is any of elements e .. e + 31 the first or second of one of the pairs 32 j .. 32 j + 31?
	static __device__ constexpr bool meets(int e, int j, int second)
	{
		const int p = 32 * j, end = p + 32; // pairs from `half` on are neighbours
		const int a = second * half + p, a_end = second * half + (end < half ? end : half);
		const int b = apart + 2 * (p > half ? p - half : 0), b_end = apart + 2 * (end - half);
		return (a < a_end && a < e + 32 && e < a_end) || (b < b_end && b < e + 32 && e < b_end);
	}

	// y[r] = element lane + 32 r of the head, 0 behind its end
	static __device__ __forceinline__ void to_elements(float (&y)[runs], const Pairs &x)
	{
#pragma unroll
		for (int r = 0; r < runs; r++) {
			const int e = threadIdx.x % 32 + 32 * r;
			const int p = e < apart ? e % (half + !half) : half + (e - apart) / 2;
			const int second = e < apart ? e / (half + !half) : (e - apart) % 2;
			y[r] = 0.0f;
#pragma unroll
			for (int i = 0; i < 2 * pairs; i++)
				if (meets(32 * r, i / 2, i % 2)) {
					const float v = __shfl_sync(~0u, x[i / 2][i % 2], p % 32);
					y[r] = p / 32 == i / 2 && second == i % 2 ? v : y[r];
				}
		}
	}

	static __device__ __forceinline__ void from_elements(Pairs &x, const float (&y)[runs])
	{
#pragma unroll
		for (int i = 0; i < 2 * pairs; i++) {
			const int e = element(i / 2, i % 2);
#pragma unroll
			for (int r = 0; r < runs; r++)
				if (meets(32 * r, i / 2, i % 2)) {
					const float v = __shfl_sync(~0u, y[r], e % 32);
					x[i / 2][i % 2] = e / 32 == r ? v : x[i / 2][i % 2];
				}
		}
	}

	// The head times the Hadamard matrix that ops.h describes, in place. An element's block is as long as the highest
	// bit in which its index and HDIM differ. Sums in f32, of neighbours first, and none of them fused with what was
	// multiplied before: each kernel and the reference make the same bits of the same head.
	static __device__ __forceinline__ void rotate(Pairs &x)
	{
		static_assert(HDIM_ % 16 == 0 && HDIM_ < 1024, "blocks are whole runs of lanes, of a known root");
		constexpr bool is_aligned = apart == HDIM_ && HDIM_ % 64 == 0; // a lane has its elements already
		float y[runs];
		if constexpr (is_aligned) {
#pragma unroll
			for (int r = 0; r < runs; r++)
				y[r] = x[r % pairs][r / pairs];
		} else {
			to_elements(y, x);
		}
#pragma unroll
		for (int m = 1; m < 32; m *= 2)
#pragma unroll
			for (int r = 0; r < runs; r++)
				if ((HDIM_ ^ 32 * r) >= 2 * m) {
					const float other = __shfl_xor_sync(~0u, y[r], m);
					y[r] = threadIdx.x & m ? sum_rn(other, -y[r]) : sum_rn(y[r], other);
				}
#pragma unroll
		for (int m = 1; m < runs; m *= 2)
#pragma unroll
			for (int r = 0; r < runs; r++)
				if (!(r & m) && (HDIM_ ^ 32 * r) >= 64 * m) {
					const float first = y[r], second = y[r + m];
					y[r] = sum_rn(first, second);
					y[r + m] = sum_rn(first, -second);
				}
#pragma unroll
		for (int r = 0; r < runs; r++) {
			const int block = HDIM_ ^ 32 * r; // its highest bit; the factor is 1 over the root of that
			y[r] *= block >= 512 ? 0.0441941731f : block >= 256 ? 0.0625f : block >= 128 ? 0.0883883461f
				: block >= 64 ? 0.125f : block >= 32 ? 0.176776692f : 0.25f;
		}
		if constexpr (is_aligned) {
#pragma unroll
			for (int r = 0; r < runs; r++)
				x[r % pairs][r / pairs] = y[r];
		} else {
			from_elements(x, y);
		}
	}

	static __device__ __forceinline__ void rope(Pairs &x, const Pairs &turn)
	{
#pragma unroll
		for (int j = 0; j < pairs; j++)
			if (turns(j)) {
				const float s = turn[j][0], c = turn[j][1], x0 = x[j][0], x1 = x[j][1];
				x[j][0] = x0 * c - x1 * s;
				x[j][1] = x1 * c + x0 * s;
			}
		if constexpr (ROTATE_ != 0)
			rotate(x);
	}
};
