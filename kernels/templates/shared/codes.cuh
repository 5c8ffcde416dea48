// codes.cuh - codes of e4m3 and e2m1 as pairs of bf16, and numbers as codes (thread level).
//
// Decoding is exact: every value of both formats is a bf16. Encoding rounds to nearest, ties to even; what is too large
// becomes the largest value, infinities too. NaN stays NaN in e4m3; e2m1 has none.
//
// e2m1 is decoded together with the e4m3 scale of its block, whose product with it is a bf16 as well: as a number
// 2^-7 of its size (E2M1_UNIT), since the scale takes the code's exponent along in one multiplication.
#pragma once
#include "shared/types.cuh"

constexpr int NVFP4_GROUP = 16;     // elements of e2m1 that share a scale in e4m3
constexpr float E2M1_UNIT = 128.0f; // times what e2m1_to_bf16 gives is the value

// two bf16 products, exact here
__device__ __forceinline__ u32 multiply_bf16(u32 a, u32 b)
{
	u32 y;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u)); // + -0: zeros keep their sign
	return y;
}

constexpr u32 pair_of_two_to(int exponent) { return u32(exponent + 127) * 0x00800080u; } // as two bf16

// Four codes as two pairs, the first code in the low half of lo: their bits as bf16 of 2^-120 times the size. NaN,
// which does not occur in weights, becomes 480.
__device__ __forceinline__ void e4m3_numbers(u32 codes, u32 &lo, u32 &hi)
{
	const u32 first = __byte_perm(codes, 0, 0x1404), second = __byte_perm(codes, 0, 0x3424);
	lo = multiply_bf16((first & 0x80008000u) | (first >> 4 & 0x07f007f0u), pair_of_two_to(120));
	hi = multiply_bf16((second & 0x80008000u) | (second >> 4 & 0x07f007f0u), pair_of_two_to(120));
}

// The same with NaN.
__device__ __forceinline__ void e4m3_to_bf16(u32 codes, u32 &lo, u32 &hi)
{
#if __CUDA_ARCH__ >= 890
	u32 a, b;
	asm("{\n"
		".reg .b16 l, h;\n"
		"mov.b32 {l, h}, %2;\n"
		"cvt.rn.f16x2.e4m3x2 %0, l;\n"
		"cvt.rn.f16x2.e4m3x2 %1, h;\n"
		"}" : "=r"(a), "=r"(b) : "r"(codes));
	auto half = [](u32 x) { return to_f32(f16 { static_cast<unsigned short>(x) }); };
	lo = pack_bf16(half(a), half(a >> 16));
	hi = pack_bf16(half(b), half(b >> 16));
#else
	e4m3_numbers(codes, lo, hi);
	const u32 nan = ((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
	if (nan) {
		lo |= (nan & 0x80 ? 0x7fc0u : 0) | (nan & 0x8000 ? 0x7fc00000u : 0);
		hi |= (nan & 0x800000 ? 0x7fc0u : 0) | (nan & 0x80000000u ? 0x7fc00000u : 0);
	}
#endif
}

// The scale of a block as e2m1_to_bf16 takes it.
__device__ __forceinline__ u32 e2m1_scale(u32 block)
{
	const float x = e4m3_to_f32(block) * __uint_as_float(0x7b000000u); // 2^119
	return pack_bf16(x, x);
}

// Eight codes of a block as four pairs, over E2M1_UNIT.
__device__ __forceinline__ void e2m1_to_bf16(u32 codes, u32 scale, u32 (&y)[4])
{
	const u32 firsts = codes << 4; // the high half of a byte is its second code there, its first one here
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const u32 pair = __byte_perm(codes, firsts, i << 12 | i << 8 | (4 + i) << 4 | i); // codes in bits 12.. and 28..
		y[i] = multiply_bf16((pair & 0x80008000u) | (pair >> 6 & 0x01c001c0u), scale);
	}
}

__device__ __forceinline__ u32 to_e4m3(float x)
{
	const u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80, a = bits & 0x7fffffffu;
	if (a > 0x7f800000u)
		return 0x7f;
	if (a >= 0x43e00000u) // 448
		return sign | 0x7e;
	if (a < 0x3c800000u) // below 2^-6 a step is 2^-9: added to 2^14, the rest is rounded away
		return sign | (__float_as_uint(__uint_as_float(a) + 16384.0f) & 15);
	return sign | (((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120 << 3));
}

// Four numbers as codes, the first in the low byte.
__device__ __forceinline__ u32 pack_e4m3(float a, float b, float c, float d)
{
#if __CUDA_ARCH__ >= 890
	u32 y;
	asm("{\n"
		".reg .b16 l, h;\n"
		"cvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
		"cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\n"
		"mov.b32 %0, {l, h};\n"
		"}" : "=r"(y) : "f"(a), "f"(b), "f"(c), "f"(d));
	return y;
#else
	return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | to_e4m3(d) << 24;
#endif
}

__device__ __forceinline__ u32 to_e2m1(float x)
{
	const float a = fabsf(x);
	const u32 code = u32(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
	return (__float_as_uint(x) >> 28 & 8) | code;
}

// two lanes, eight elements each of a group of 16 with another `scale` around it: the code of the group's scale, in
// both, and the codes of this lane's elements. All lanes of the warp call it
__device__ __forceinline__ u32 e2m1_group(const float (&v)[8], float scale, u32 &codes)
{
	float largest = 0.0f;
#pragma unroll
	for (int i = 0; i < 8; i++)
		largest = fmaxf(largest, fabsf(v[i]));
	bool is_nan = false; // which fmaxf overlooks
#pragma unroll
	for (int i = 0; i < 8; i++)
		is_nan |= v[i] != v[i];
	largest = is_nan ? __uint_as_float(0x7fffffffu) : largest;
	const u32 a = __float_as_uint(largest), b = __shfl_xor_sync(~0u, a, 1); // NaN is above all numbers
	const u32 group = max(to_e4m3(__uint_as_float(max(a, b)) / scale / 6.0f), 1u); // 2^-9 is code 1
	const float step = e4m3_to_f32(group) * scale;
	codes = 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		codes |= to_e2m1(v[i] / step) << (4 * i);
	return group;
}
