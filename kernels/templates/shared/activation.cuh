// activation.cuh - what gates make of a number (thread level). Quotients are good to two units in the last place; where
// e^-x is beyond 2^126 they are 0.
#pragma once
#include "shared/types.cuh"

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// x within bounds; a NaN stays one
__device__ __forceinline__ float within(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

__device__ __forceinline__ float limited_swiglu(float gate, float up, float limit)
{
	gate = silu(gate);
	return (gate > limit ? limit : gate) * within(up, -limit, limit);
}

// gelu by its tanh form
__device__ __forceinline__ float gelu(float x)
{
	return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * fmaf(0.044715f * x * x, x, x)));
}

// log(1 + e^x) without a number that overflows
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x))); }
