// u4.cuh - codes of u4 and the scales with zeros that they have, and how they become pairs of bf16 (thread level).
//
// A code less the zero of its group is an integer from -31 to 15. Behind the exponent of 128 a code's bits are the bf16
// 128 + code, and one subtraction of 128 + zero is exact. The scale is not in it: it multiplies sums of products, in
// f32.
#pragma once
#include "shared/types.cuh"

struct u4 { unsigned char bits; }; // two elements, the first in the low half: pointers count bytes
struct f32z { u32 bits; };         // an f32, but for its low five bits: an integer, the zero of codes of u4

template <> constexpr int bits_of<u4> = 4;
static_assert(sizeof(u4) == 1 && sizeof(f32z) == 4, "element sizes are part of the format");

__device__ __forceinline__ float to_f32(f32z x) { return __uint_as_float(x.bits & ~31u); } // the scale

// The zero as u4_less takes it: -(128 + zero), twice.
__device__ __forceinline__ u32 u4_zero(f32z group) { return (group.bits & 31) * 0x00010001u + 0xc300c300u; }

// Two codes less their zero; `codes`: one in bits 0 to 3, one in 16 to 19, and anything in the others.
__device__ __forceinline__ u32 u4_less(u32 codes, u32 zero)
{
	const u32 numbers = (codes & 0x000f000fu) | 0x43004300u;
	u32 y;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(numbers), "r"(0x3f803f80u), "r"(zero)); // times one
	return y;
}

// Eight neighbouring codes of a group as four pairs.
__device__ __forceinline__ void u4_to_bf16(u32 codes, u32 zero, u32 (&y)[4])
{
	const u32 seconds = codes >> 4; // the low half of a byte is its first code there, its second one here
#pragma unroll
	for (int i = 0; i < 4; i++)
		y[i] = u4_less(__byte_perm(codes, seconds, (4 + i) << 8 | i), zero);
}
