// whole_numbers.cuh - codes of e2m1 and a row of x as whole numbers, for products of bytes (thread level).
//
// Twice a code of e2m1 is a whole number from -12 to 12. One permutation of bytes looks four of them up: the codes are
// its selector, and where a code's sign is set it gives that of the number looked up, which is zero. So one gives the
// positive numbers of four codes, and one with all signs turned the negative ones; they are rows of a product apart.
//
// One row of x leaves seven of the eight columns of a product empty. So x becomes whole numbers too, times the power of
// two that brings the largest element of a turn to 2^29, of four digits in base 256 with signs, which are
// columns: bits are lost only of elements below 2^-21 of it. Sums of products are exact until a group ends; a lane has
// those of two digits, and adds their value times the group's scale in f32.
#pragma once
#include "shared/types.cuh"

// A sum that begins with the bits of 1.5 * 2^23 is, as long as it is below 2^22, a float of that plus the sum.
constexpr u32 whole_zero = 0x4b400000u;

// The smaller half of the numbers, in a register of which the compiler does not see what it holds: else it moves it
// there again for every four codes. `zero` is what it does not know to be that, of each thread.
__device__ __forceinline__ u32 whole_table(u32 zero) { return 0x03020100u + zero; }

__device__ __forceinline__ u32 whole_numbers(u32 codes, u32 table)
{
	u32 y;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(table), "r"(0x0c080604u), "r"(codes));
	return y;
}

// Eight codes of a row: rows g of the product are positive, rows g + 8 negative numbers.
__device__ __forceinline__ void whole_decode(u32 codes, u32 table, u32 (&a)[4])
{
	const u32 turned = codes ^ 0x88888888u;
	a[0] = whole_numbers(codes, table);
	a[1] = whole_numbers(turned, table);
	a[2] = whole_numbers(codes >> 16, table);
	a[3] = whole_numbers(turned >> 16, table);
}

__device__ __forceinline__ void mma_whole(u32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The value of a lane's two digits, in units of the lower one.
__device__ __forceinline__ float whole_sum(const u32 (&c)[4])
{
	const float high = __uint_as_float(c[0]) - __uint_as_float(c[2]);
	const float low = __uint_as_float(c[1]) - __uint_as_float(c[3]);
	return fmaf(high, 256.0f, low);
}

// The scale of a group, and what products with it are to be multiplied by: an e4m3 is 2^-120 of its size.
__device__ __forceinline__ float whole_scale(e4m3, u32 code) { return __uint_as_float(code << 20); }
__device__ __forceinline__ float whole_scale(e8m0, u32 code) // 2^-127 is subnormal
{
	return __uint_as_float(max(code << 23, 0x400000u));
}
__device__ __forceinline__ float whole_unit(e4m3) { return __uint_as_float(246u << 23); } // 2^119
__device__ __forceinline__ float whole_unit(e8m0) { return 0.5f; }

// The power of two, with the bias of f32, that x becomes whole numbers by; of `largest`, the bits of its magnitude
__device__ __forceinline__ u32 whole_exponent(u32 largest) { return min(283u - (largest >> 23), 253u); }
// and what undoes it; infinities and NaN make all sums NaN.
__device__ __forceinline__ float whole_factor(u32 largest)
{
	return __uint_as_float(largest >= 0x7f800000u ? 0x7fffffffu : (254u - whole_exponent(largest)) << 23);
}

// The largest magnitude of eight elements, as the bits of an f32.
__device__ __forceinline__ u32 whole_largest(uint4 x)
{
	const u32 words[4] = { x.x, x.y, x.z, x.w };
	u32 largest = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		largest = max(largest, max(words[i] & 0x7fff0000u, words[i] << 16 & 0x7fff0000u));
	return largest;
}

// Eight elements of x times `factor` as digits: those of elements 0 to 3, of 4 to 7, the highest digit first.
__device__ __forceinline__ void whole_digits(uint4 x, float factor, u32 (&digit)[4][2])
{
	float f[8];
	unpack(Vec8<bf16> { x }, f);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		u32 n[4];
#pragma unroll
		for (int i = 0; i < 4; i++)
			n[i] = (static_cast<u32>(__float2int_rn(f[4 * h + i] * factor)) + 0x808080u) ^ 0x808080u;
		const u32 low = __byte_perm(n[0], n[1], 0x5140), high = __byte_perm(n[0], n[1], 0x7362);
		const u32 low2 = __byte_perm(n[2], n[3], 0x5140), high2 = __byte_perm(n[2], n[3], 0x7362);
		digit[3][h] = __byte_perm(low, low2, 0x5410);
		digit[2][h] = __byte_perm(low, low2, 0x7632);
		digit[1][h] = __byte_perm(high, high2, 0x5410);
		digit[0][h] = __byte_perm(high, high2, 0x7632);
	}
}
