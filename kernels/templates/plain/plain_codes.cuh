// plain_codes.cuh - one code at a time as a number, for the plain templates (thread level).
#pragma once
#include "shared/u4.cuh"

// As the bits of an f32 a code is one of 2^-126 times its size, subnormals too.
__device__ __forceinline__ float e2m1_to_f32(u32 code)
{
	return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * __uint_as_float(0x7e800000u);
}

// Eight elements from index i on, a multiple of 8, without scales; of u4 less nothing.
template <class T> __device__ __forceinline__ void elements8(const T *x, i64 i, float (&v)[8])
{
	if constexpr (same_type<T, e4m3>::value) {
		const uint2 codes = *reinterpret_cast<const uint2 *>(x + i);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] = e4m3_to_f32((e < 4 ? codes.x : codes.y) >> e % 4 * 8 & 0xff);
	} else if constexpr (bits_of<T> == 4) {
		const u32 codes = *reinterpret_cast<const u32 *>(x + i / 2);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] = same_type<T, e2m1>::value ? e2m1_to_f32(codes >> 4 * e & 15) : float(codes >> 4 * e & 15);
	} else {
		unpack(load8_once(x + i), v);
	}
}

// A scale of a block, and the zero of its codes, which u4 alone have.
template <class T> __device__ __forceinline__ float scale_of(T x) { return to_f32(x); }
template <class T> __device__ __forceinline__ float zero_of(T x)
{
	if constexpr (same_type<T, f32z>::value)
		return float(x.bits & 31);
	else
		return 0.0f;
}
