// sum_rest.cuh - what is added to the sum of all ranks' parts, sum_peers.cu, sum_peers_two.cu, sum_nccl.cu: included
// behind struct Args, which it reads.
#pragma once

constexpr int PER = K % (16 / T_BYTES) == 0 ? 16 / T_BYTES : 1; // elements of a unit

// thread level: the bias and the residual of unit u
template <class U> __device__ __forceinline__ void add_rest(const Args &a, i64 u, float (&sum)[PER])
{
#pragma unroll
	for (int i = 0; i < PER && BIAS; i++)
		sum[i] += to_f32(a.bias[(u * PER + i) % K]);
	if (RESIDUAL) {
		float v[PER];
		U::unpack(U::load(a.residual + u * PER), v);
#pragma unroll
		for (int i = 0; i < PER; i++)
			sum[i] += v[i];
	}
}
