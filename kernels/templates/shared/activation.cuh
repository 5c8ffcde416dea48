// activation.cuh - what gates make of a number (thread level). Quotients are good to two units in the last place; where
// e^-x is beyond 2^126 they are 0.
#pragma once
#include "shared/types.cuh"

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// gelu by its tanh form
__device__ __forceinline__ float gelu(float x)
{
	return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * fmaf(0.044715f * x * x, x, x)));
}

// what an expert makes of its gate: silu (0) or gelu (1)
template <int ACT_> __device__ __forceinline__ float activated(float gate)
{
	if constexpr (ACT_ == 1)
		return gelu(gate);
	else
		return gate / (1.0f + __expf(-gate));
}

// log(1 + e^x) without a number that overflows
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x))); }
