// plain.cu - a template that is right: material for the tests of kernelgen and of the cubin reader.
//
// what      y[t,n] = sum_k x[t,k] / rms(x[t,:]) norm[k] w[n,k] + bias[n]
// numerics  one thread an output, f32, in order of k
#include "shared/contract.cuh"
#include "plain_types.cuh"

KERNEL(plain, norm_linear)
ARCH(80, 90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 576)
DIM(N, 960)
DTYPES(WT, bf16, f32)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(BIAS)
TUNE(WARPS, 4, 8)
REQUIRE(K % 8 == 0 || ROWS == 1)
ORDER(chain)
GRID(ceil_div(N, 32 * WARPS), ROWS, 1)
BLOCK(32 * WARPS)
SMEM(32 * WARPS * 4)
READS(N * K * WT_BYTES + ROWS * K * 2)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)

struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, norm, "K");
	IN(WT, w, "N, K");
	IN_IF(BIAS, WT, bias, "N");
	OUT(bf16, y, "ROWS, N");
};

// A function template that stands on the argument struct: its uses count.
template <class A> __device__ float bias_of(const A &a, int n)
{
	if constexpr (BIAS)
		return to_float(a.bias[n]);
	return 0.0f;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) plain(const Args a)
{
	extern __shared__ __align__(16) float partial[];
	__shared__ float scale[1];
	const int t = blockIdx.y, n = blockIdx.x * blockDim.x + threadIdx.x;
	if (t >= a.step[0])
		return;
	float square = 0.0f;
	for (int k = threadIdx.x; k < K; k += 32 * WARPS)
		square = fmaf(to_float(a.x[t * K + k]), to_float(a.x[t * K + k]), square);
	partial[threadIdx.x] = square;
	__syncthreads();
	if (threadIdx.x == 0) {
		float sum = 0.0f;
		for (int i = 0; i < 32 * WARPS; i++)
			sum += partial[i];
		scale[0] = rsqrtf(sum / K + EPS);
	}
	__syncthreads();
	if (n >= N)
		return;
	float y = bias_of(a, n);
	for (int k = 0; k < K; k++)
		y = fmaf(to_float(a.x[t * K + k]) * scale[0] * (to_float(a.norm[k]) + NORM_ONE),
			to_float(a.w[(size_t)n * K + k]), y);
	a.y[t * N + n] = to_bf16(y);
}
