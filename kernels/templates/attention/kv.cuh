// kv.cuh - keys and values as a cache holds them: bf16, e4m3 codes, or e2m1 codes with a scale for each run of 16.
//
// An element is code * kv_scale, or code * block * kv_scale (artifacts/ops.h). What is decoded leaves the scale of the
// head out: a kernel multiplies the scores by kv_factor of the keys and its result by that of the values. Everything
// before that is exact in bf16.
#pragma once
#include "shared/codes.cuh"
#include "shared/mma.cuh"

// The formats there are; no other type has a cache.
template <class T> struct Kv;
template <> struct Kv<bf16> { static constexpr float unit = 1.0f; };
template <> struct Kv<e4m3> { static constexpr float unit = 1.0f; };
template <> struct Kv<e2m1> { static constexpr float unit = E2M1_UNIT; };

template <class T> constexpr int kv_bytes(int elements) { return elements * bits_of<T> / 8; }

// An element from its index: of the first half of a byte, where two share one.
template <class T> __device__ __forceinline__ const T *kv_at(const T *kv, i64 i)
{
	return kv + (bits_of<T> < 8 ? i / 2 : i);
}
template <class T> __device__ __forceinline__ T *kv_at(T *kv, i64 i) { return kv + (bits_of<T> < 8 ? i / 2 : i); }

// By what a decoded element is less than what it means; i: its place in kv_scale [2, NKV].
template <class T> __device__ __forceinline__ float kv_factor(const float *kv_scale, int i)
{
	if constexpr (bits_of<T> == 16)
		return 1.0f;
	else
		return kv_scale[i] * Kv<T>::unit;
}

// thread level: a run of codes from global to shared memory, cp.async; zeros when `inside` is false
template <class T> __device__ __forceinline__ void copy_run_async(u32 to, const T *from, bool inside)
{
	static_assert(bits_of<T> <= 8, "a run of codes");
	if constexpr (bits_of<T> == 8)
		copy_async(to, from, inside);
	else
		copy_few_async<8>(to, from, inside);
}

// thread level: byte i % 4 of the four at `from`
__device__ __forceinline__ u32 byte_of_word(u32 from, int i)
{
	u32 word;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
	return word >> i % 4 * 8 & 0xff;
}

// thread level: a run of codes in shared memory as bf16; block: its e4m3 scale, of e2m1 alone
template <class T> __device__ __forceinline__ void decode_run(u32 from, u32 block, uint4 (&y)[2])
{
	static_assert(bits_of<T> <= 8, "a run of codes");
	if constexpr (bits_of<T> == 8) {
		uint4 x;
		asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
			: "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(from) : "memory");
		e4m3_to_bf16(x.x, y[0].x, y[0].y);
		e4m3_to_bf16(x.y, y[0].z, y[0].w);
		e4m3_to_bf16(x.z, y[1].x, y[1].y);
		e4m3_to_bf16(x.w, y[1].z, y[1].w);
	} else {
		u32 x[2], pairs[2][4];
		asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(from) : "memory");
		const u32 scale = e2m1_scale(block);
		e2m1_to_bf16(x[0], scale, pairs[0]);
		e2m1_to_bf16(x[1], scale, pairs[1]);
#pragma unroll
		for (int i = 0; i < 2; i++)
			y[i] = make_uint4(pairs[i][0], pairs[i][1], pairs[i][2], pairs[i][3]);
	}
}

// warp level: a head x [HDIM_], f32 in shared memory that all lanes have written (__syncwarp), becomes codes at `to`
// and, of e2m1, blocks at `blocks`
template <class T, int HDIM_>
__device__ __forceinline__ void keep_head(const float *x, float scale, T *to, e4m3 *blocks)
{
	static_assert(HDIM_ % NVFP4_GROUP == 0, "whole runs");
	const int lane = threadIdx.x % 32;
	if constexpr (bits_of<T> == 8) {
#pragma unroll
		for (int i = lane * 4; i < HDIM_; i += 128) {
			const float4 v = *reinterpret_cast<const float4 *>(x + i);
			const u32 codes = pack_e4m3(v.x / scale, v.y / scale, v.z / scale, v.w / scale);
			*reinterpret_cast<u32 *>(to + i) = codes;
		}
	} else {
		static_assert(bits_of<T> == 4, "codes");
#pragma unroll
		for (int turn = 0; turn < HDIM_; turn += 256) {
			const int at = turn / 8 + lane; // half a run a lane
			const bool mine = at < HDIM_ / 8;
			float v[8] = {};
			if (mine)
#pragma unroll
				for (int i = 0; i < 8; i++)
					v[i] = x[at * 8 + i];
			u32 codes;
			const u32 block = e2m1_group(v, scale, codes);
			if (mine) {
				*reinterpret_cast<u32 *>(to + at * 4) = codes;
				if (lane % 2 == 0)
					blocks[at / 2].bits = static_cast<unsigned char>(block);
			}
		}
	}
}
