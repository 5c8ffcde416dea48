// types.cuh - the element types of artifacts/dtypes.h and how they become float and back (thread level).
//
// The names are those of the dtype table, so that a dtype variable of a contract is a type here. Conversions
// round to nearest even. Nothing includes a toolkit header.
#pragma once
#include "shared/contract.cuh"

using u32 = unsigned;
using u64 = unsigned long long;
using i64 = long long;
using i32 = int;
using f32 = float;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct e4m3 { unsigned char bits; };
struct e8m0 { unsigned char bits; };
struct e2m1 { unsigned char bits; }; // two elements, the first in the low half: pointers count bytes

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2 && sizeof(u64) == 8, "element sizes are part of the format");
static_assert(sizeof(e4m3) == 1 && sizeof(e8m0) == 1 && sizeof(e2m1) == 1, "element sizes are part of the format");

template <> constexpr int bits_of<e2m1> = 4;

template <class A, class B> struct same_type { static constexpr bool value = false; };
template <class A> struct same_type<A, A> { static constexpr bool value = true; };

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ __forceinline__ float to_f32(f16 x)
{
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
	return y;
}

// A code of e4m3 in the low byte; as the bits of an f32 it is one of 2^-120 times its size, subnormals too.
__device__ __forceinline__ float e4m3_to_f32(u32 code)
{
	const float y = __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * __uint_as_float(0x7b800000u);
	return (code & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000u) : y;
}
__device__ __forceinline__ float to_f32(e4m3 x) { return e4m3_to_f32(x.bits); }
__device__ __forceinline__ float to_f32(e8m0 x)
{
	const u32 b = x.bits;
	return __uint_as_float(b == 0 ? 0x00400000u : b == 0xff ? 0x7fc00000u : b << 23);
}

// Two floats as two bf16, the first in the low half.
__device__ __forceinline__ u32 pack_bf16(float lo, float hi)
{
	u32 y;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

__device__ __forceinline__ float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ void store(float *p, float x) { *p = x; }
__device__ __forceinline__ void store(bf16 *p, float x) { p->bits = static_cast<unsigned short>(pack_bf16(x, 0.0f)); }

// Overlap with the launch before and the one behind (grid level; nothing before sm_90).
//   let_next_start  the next kernel may be put on the card as soon as every block of this one has called it
//   inputs_ready    blocks until all launches before this one are done and their writes can be seen. A kernel that
//                   calls it touches nothing before but weights, inputs of the host (`step`, row_slot, out_row) and
//                   what its contract names EARLY: state as the steps before have left it, which no launch before this
//                   one in its step writes; all of the step before is done by then, as the first launches of a step
//                   with such a kernel start behind it (compiler/plan/schedule.c). A block with work calls it on every
//                   path, so that the launch's end implies that of all before it. kernelgen sees the call, and the
//                   plan's edges become programmatic
__device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void inputs_ready()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Eight consecutive elements of type T, as they lie in memory.
template <class T> struct Vec8 { uint4 raw[sizeof(T) / 2]; };

__device__ __forceinline__ void unpack(const Vec8<bf16> &v, float (&x)[8])
{
	const u32 w[4] = { v.raw[0].x, v.raw[0].y, v.raw[0].z, v.raw[0].w };
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = low_bf16(w[i]);
		x[2 * i + 1] = high_bf16(w[i]);
	}
}

__device__ __forceinline__ void unpack(const Vec8<f16> &v, float (&x)[8])
{
	const u32 w[4] = { v.raw[0].x, v.raw[0].y, v.raw[0].z, v.raw[0].w };
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = to_f32(f16 { static_cast<unsigned short>(w[i] & 0xffff) });
		x[2 * i + 1] = to_f32(f16 { static_cast<unsigned short>(w[i] >> 16) });
	}
}

__device__ __forceinline__ void unpack(const Vec8<f32> &v, float (&x)[8])
{
	const u32 w[8] = { v.raw[0].x, v.raw[0].y, v.raw[0].z, v.raw[0].w,
		v.raw[1].x, v.raw[1].y, v.raw[1].z, v.raw[1].w };
#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = __uint_as_float(w[i]);
}

__device__ __forceinline__ uint4 pack8(const float (&x)[8])
{
	return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
}

// 16 bytes that are read once (weights): past L1, so that activations stay there.
__device__ __forceinline__ uint4 load_once(const uint4 *p)
{
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
}

template <class T> __device__ __forceinline__ Vec8<T> load8_once(const T *p)
{
	Vec8<T> v;
#pragma unroll
	for (int i = 0; i < int(sizeof(T) / 2); i++)
		v.raw[i] = load_once(reinterpret_cast<const uint4 *>(p) + i);
	return v;
}

template <class T> __device__ __forceinline__ Vec8<T> load8(const T *p)
{
	Vec8<T> v;
#pragma unroll
	for (int i = 0; i < int(sizeof(T) / 2); i++)
		v.raw[i] = reinterpret_cast<const uint4 *>(p)[i];
	return v;
}

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }
