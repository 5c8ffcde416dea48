// plain_types.cuh - the element types that plain.cu needs.
#pragma once

struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
typedef float f32;
typedef int i32;

__device__ inline float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
__device__ inline float to_float(f32 v) { return v; }
__device__ inline bf16 to_bf16(float v)
{
	unsigned u = __float_as_uint(v);
	return bf16{(unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
