// stream_codes.cuh - eight neighbouring weights of a row as operands of two products, from any format (thread level).
//
// Every value of e4m3 is a bf16, and so is every e2m1 times its e4m3 or e8m0 scale: decoding is exact. The bits of a
// code move to where a bf16 has sign, exponent and fraction, and one multiplication by a power of two, or by the scale,
// sets the exponent right, of subnormal codes too. A pair of bf16 holds two elements that move together rather than
// two neighbours: k may stand in any order as long as the other operand has the same (stream_pair). NaN codes of e4m3
// do not occur in weights; here they are worth 480.
//
// u4 becomes an integer, less the zero of its group; the scale is not in it (u4.cuh).
#pragma once
#include "shared/codes.cuh"
#include "shared/u4.cuh"

// What is decoded times this is the weight.
template <class W, class Scale> struct CodeUnit { static constexpr float value = 1.0f; };
template <> struct CodeUnit<e2m1, e4m3> { static constexpr float value = E2M1_UNIT; };

// Eight codes as four pairs; `scale`: that of the codes, twice. bf16 are neighbours already.
template <class Scale> __device__ __forceinline__ void stream_decode(const u32 (&w)[4], u32, u32 (&pair)[4])
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		pair[i] = w[i];
}

template <class Scale> __device__ __forceinline__ void stream_decode(const u32 (&w)[2], u32, u32 (&pair)[4])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const u32 even = (w[i] << 8 & 0x80008000u) | (w[i] << 4 & 0x07f007f0u);
		const u32 odd = (w[i] & 0x80008000u) | (w[i] >> 4 & 0x07f007f0u);
		pair[2 * i] = multiply_bf16(even, pair_of_two_to(120));
		pair[2 * i + 1] = multiply_bf16(odd, pair_of_two_to(120));
	}
}

// `scale` of u4: that of u4_zero
template <class Scale> __device__ __forceinline__ void stream_decode(const u32 (&w)[1], u32 scale, u32 (&pair)[4])
{
	if constexpr (same_type<Scale, f32z>::value) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			pair[i] = u4_less(w[0] >> 4 * i, scale);
		return;
	}
	// elements i and i + 4 are 16 bits apart. One multiplication puts a code where its sign is to be and where its rest
	const u32 c[2] = { w[0], w[0] >> 8 };
#pragma unroll
	for (int i = 0; i < 4; i++) {
		pair[i] = (i % 2 ? (c[i / 2] & 0x00f000f0u) * 0x104u : (c[i / 2] & 0x000f000fu) * 0x1040u) & 0x81c081c0u;
		if constexpr (same_type<Scale, e8m0>::value)
			pair[i] = multiply_bf16(pair[i], pair_of_two_to(126));
		pair[i] = multiply_bf16(pair[i], scale);
	}
}

// Eight neighbouring bf16 in the pairs that codes of these bits come in.
template <int BITS_> __device__ __forceinline__ uint4 stream_pair(uint4 x)
{
	if constexpr (BITS_ == 8)
		return make_uint4(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632),
			__byte_perm(x.z, x.w, 0x5410), __byte_perm(x.z, x.w, 0x7632));
	else if constexpr (BITS_ == 4)
		return make_uint4(__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
			__byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
	else
		return x;
}

// Scales of four groups, a byte each, as stream_decode takes them: the first and the third, the second and the fourth.
// e4m3 ones are 2^119 times their size, so that the product with a code takes one multiplication.
template <class Scale> __device__ __forceinline__ void stream_scales(u32 four, u32 (&pair)[2])
{
	if constexpr (same_type<Scale, e4m3>::value) {
		pair[0] = multiply_bf16(multiply_bf16(four << 4 & 0x07f007f0u, pair_of_two_to(120)), pair_of_two_to(119));
		pair[1] = multiply_bf16(multiply_bf16(four >> 4 & 0x07f007f0u, pair_of_two_to(120)), pair_of_two_to(119));
	} else {
		pair[0] = four << 7 & 0x7f807f80u;
		pair[1] = four >> 1 & 0x7f807f80u;
#pragma unroll
		for (int i = 0; i < 2; i++) // 2^-127 is subnormal
			pair[i] |= (pair[i] & 0x7f80u ? 0 : 0x40u) | (pair[i] & 0x7f800000u ? 0 : 0x400000u);
	}
}

// One of the four, twice.
__device__ __forceinline__ u32 stream_scale(const u32 (&pair)[2], int i)
{
	return __byte_perm(pair[i % 2], 0, i / 2 ? 0x3232 : 0x1010);
}
