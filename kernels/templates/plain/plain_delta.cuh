// plain_delta.cuh - the delta rule row after row (block level), for the plain templates: thread j has column j of a
// value head's state, and all rows of a slot one after the other.
//
// A template has the attributes NK, NV, DK and DV; its block is delta_threads.
#pragma once
#include "shared/activation.cuh"
#include "shared/reduce.cuh"

constexpr int delta_threads = ceil_div(DV, 32) * 32;

struct DeltaShared { float q[DK], k[DK], scratch[delta_threads / 32]; };

// Row t of value head h: the state becomes the one after it, and o what the row reads of that.
template <class Args_>
__device__ __forceinline__ void delta_row(DeltaShared &s, const Args_ &a, int t, int h, float (&state)[DK])
{
	const int j = threadIdx.x, head = h / (NV / NK);
	const auto *const row = a.qkv + i64(t) * (2 * NK * DK + NV * DV);
	float qq = 0.0f, kk = 0.0f;
	for (int i = j; i < DK; i += delta_threads) {
		const float q = to_f32(row[head * DK + i]), k = to_f32(row[(NK + head) * DK + i]);
		s.q[i] = q;
		s.k[i] = k;
		qq = fmaf(q, q, qq);
		kk = fmaf(k, k, kk);
	}
	const float q_scale = rsqrtf((block_sum<delta_threads / 32>(qq, s.scratch) + 1e-6f) * DK);
	const float k_scale = rsqrtf(block_sum<delta_threads / 32>(kk, s.scratch) + 1e-6f); // and q and k are there
	const float decay = expf(-expf(to_f32(a.a_log[h])) * softplus(to_f32(a.a[i64(t) * NV + h]) + to_f32(a.dt_bias[h])));
	const float rate = sigmoid(to_f32(a.b[i64(t) * NV + h]));
	const float v = j < DV ? to_f32(row[2 * NK * DK + h * DV + j]) : 0.0f;
	float held = 0.0f, out = 0.0f;
#pragma unroll
	for (int i = 0; i < DK; i++) {
		state[i] *= decay;
		held = fmaf(s.k[i], state[i], held);
	}
	const float change = rate * (v - held * k_scale) * k_scale;
#pragma unroll
	for (int i = 0; i < DK; i++) {
		state[i] = fmaf(s.k[i], change, state[i]);
		out = fmaf(s.q[i], state[i], out);
	}
	if (j < DV)
		store(a.o + (i64(t) * NV + h) * DV + j, out * q_scale);
	__syncthreads(); // before q and k are those of the next row
}

template <class T> __device__ __forceinline__ void load_state(float (&state)[DK], const T *from)
{
#pragma unroll
	for (int i = 0; i < DK; i++)
		state[i] = threadIdx.x < DV ? to_f32(from[i * DV + threadIdx.x]) : 0.0f;
}

template <class T> __device__ __forceinline__ void store_state(T *to, const float (&state)[DK])
{
#pragma unroll
	for (int i = 0; i < DK; i++)
		if (threadIdx.x < DV)
			store(to + i * DV + threadIdx.x, state[i]);
}

// What a state of that type keeps of it.
template <class T> __device__ __forceinline__ void round_state(float (&state)[DK])
{
	if constexpr (same_type<T, bf16>::value)
#pragma unroll
		for (int i = 0; i < DK; i++)
			state[i] = low_bf16(pack_bf16(state[i], 0.0f));
}
