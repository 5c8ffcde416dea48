// kv.cuh - keys and values as a cache holds them: bf16, e4m3 codes, or e2m1 codes with a scale for each run of 16.
//
// An element is code * kv_scale, or code * block * kv_scale (artifacts/ops.h). What is decoded leaves the scale of the
// head out: a kernel multiplies the scores by kv_factor of the keys and its result by that of the values. Everything
// before that is exact in bf16.
#pragma once
#include "codes.cuh"
#include "mma.cuh"

// The formats there are; no other type has a cache.
template <class T> struct Kv;
template <> struct Kv<bf16> { static constexpr int bits = 16; };
template <> struct Kv<e4m3> { static constexpr int bits = 8; static constexpr float unit = 1.0f; };
template <> struct Kv<e2m1> { static constexpr int bits = 4; static constexpr float unit = E2M1_UNIT; };

constexpr int KV_RUN = 16; // elements with one block scale; a head is whole runs
template <class T> constexpr int kv_bytes(int elements) { return elements * Kv<T>::bits / 8; }

// An element from its index: of the first half of a byte, where two share one.
template <class T> __device__ __forceinline__ const T *kv_at(const T *kv, i64 i)
{
	return kv + (Kv<T>::bits < 8 ? i / 2 : i);
}
template <class T> __device__ __forceinline__ T *kv_at(T *kv, i64 i) { return kv + (Kv<T>::bits < 8 ? i / 2 : i); }

// By what a decoded element is less than what it means; i: its place in kv_scale [2, NKV].
template <class T> __device__ __forceinline__ float kv_factor(const float *kv_scale, int i)
{
	if constexpr (Kv<T>::bits == 16)
		return 1.0f;
	else
		return kv_scale[i] * Kv<T>::unit;
}

// thread level: a run of codes from global to shared memory, cp.async; zeros when `inside` is false
template <class T> __device__ __forceinline__ void copy_run_async(u32 to, const T *from, bool inside)
{
	static_assert(Kv<T>::bits <= 8, "a run of codes");
	constexpr int bytes = kv_bytes<T>(KV_RUN);
	const u32 there = inside ? bytes : 0;
	if constexpr (bytes == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(there) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(from), "r"(there) : "memory");
}

// thread level: the four bytes at a multiple of four, likewise; then byte i % 4 of those
__device__ __forceinline__ void copy_word_async(u32 to, const e4m3 *from, bool inside)
{
	const u32 there = inside ? 4 : 0;
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(there) : "memory");
}

__device__ __forceinline__ u32 byte_of_word(u32 from, int i)
{
	u32 word;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
	return word >> i % 4 * 8 & 0xff;
}

// thread level: a run of codes in shared memory as bf16; block: its e4m3 scale, of e2m1 alone
template <class T> __device__ __forceinline__ void decode_run(u32 from, u32 block, uint4 (&y)[2])
{
	static_assert(Kv<T>::bits <= 8, "a run of codes");
	if constexpr (Kv<T>::bits == 8) {
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
// and, of e2m1, blocks at `blocks`; `to` may be NULL: then nothing is written. `decoded` [HDIM_], in shared memory,
// gets what a reader of the cache decodes, unless it is NULL.
template <class T, int HDIM_>
__device__ __forceinline__ void keep_head(const float *x, float scale, T *to, e4m3 *blocks, bf16 *decoded)
{
	static_assert(HDIM_ % KV_RUN == 0 && HDIM_ <= 256, "whole runs, and no more than two a lane's turn");
	const int lane = threadIdx.x % 32;
	if constexpr (Kv<T>::bits == 8) {
#pragma unroll
		for (int i = lane * 4; i < HDIM_; i += 128) {
			const float4 v = *reinterpret_cast<const float4 *>(x + i);
			const u32 codes = pack_e4m3(v.x / scale, v.y / scale, v.z / scale, v.w / scale);
			if (to)
				*reinterpret_cast<u32 *>(to + i) = codes;
			if (decoded) {
				uint2 pairs;
				e4m3_to_bf16(codes, pairs.x, pairs.y);
				*reinterpret_cast<uint2 *>(decoded + i) = pairs;
			}
		}
	} else {
		static_assert(Kv<T>::bits == 4, "codes");
		const bool mine = lane < HDIM_ / 8; // half a run a lane
		float v[8] = {}, largest = 0.0f;
		if (mine)
#pragma unroll
			for (int i = 0; i < 8; i++)
				v[i] = x[lane * 8 + i];
#pragma unroll
		for (int i = 0; i < 8; i++)
			largest = fmaxf(largest, fabsf(v[i]));
		bool is_nan = false; // which fmaxf overlooks
#pragma unroll
		for (int i = 0; i < 8; i++)
			is_nan |= v[i] != v[i];
		largest = is_nan ? __uint_as_float(0x7fffffffu) : largest;
		const u32 a = __float_as_uint(largest), b = __shfl_xor_sync(~0u, a, 1); // NaN is above all numbers
		const u32 block = max(to_e4m3(__uint_as_float(max(a, b)) / scale / 6.0f), 1u); // 2^-9 is code 1
		const float step = e4m3_to_f32(block) * scale;
		u32 codes = 0;
#pragma unroll
		for (int i = 0; i < 8; i++)
			codes |= to_e2m1(v[i] / step) << (4 * i);
		if (mine && to) {
			*reinterpret_cast<u32 *>(to + lane * 4) = codes;
			if (lane % 2 == 0)
				blocks[lane / 2].bits = static_cast<unsigned char>(block);
		}
		if (mine && decoded) {
			u32 pairs[4];
			e2m1_to_bf16(codes, e2m1_scale(block), pairs);
			*reinterpret_cast<uint4 *>(decoded + lane * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
		}
	}
}
