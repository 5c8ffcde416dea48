// what      n = rmsnorm(x); logits = n . router; the TOPK largest of each row, with their shares of the softmax; with
//           shared_gate also sigmoid(n . shared_gate). For batches and prompts; rows beyond step[0] stay as they are
// numerics  bf16(x * norm) times bf16(router), accumulated in f32 in ascending k, 1 / rms at the end; the softmax in
//           f32; n is rounded once. Same bits every run; a row's bits do not depend on the other rows
// why       the last of a row tile's blocks chooses, so that the logits are read while they lie in the L2 cache; each
//           of them writes its part of the normed rows
#include "contract.cuh"
#include "arrive.cuh"
#include "gemm.cuh"
#include "route.cuh"

KERNEL(route_tiles, norm_route)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
DIM(K, 2048)
DIM(EXPERTS, 256)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(TOPK, 8)
ATTR_INT(NORM_TOPK, 1)
FLAG(SHARED)
DTYPES(NT, bf16, f16, f32)
DTYPES(RT, bf16, f16, f32)
DTYPES(GT, bf16, f16, f32)
TUNE(BM, 16, 32, 64)
REQUIRE(ROWS >= 9)
REQUIRE(K % 8 == 0)
REQUIRE(TOPK <= EXPERTS && TOPK <= 32 && EXPERTS <= 1024)
REQUIRE(BM == 16 || ceil_div(ROWS, BM) * ceil_div(EXPERTS, 64) >= 88)
GRID(ceil_div(ROWS, BM), ceil_div(EXPERTS, 64), 1)
BLOCK(32 * ceil_div(BM, 32) * (BM < 64 ? 2 : 1))
SMEM((BM <= 32 ? 8 : 3) * ((BM + 64) * 144 + 256))
READS(ceil_div(ROWS, BM) * EXPERTS * K * RT_BYTES + (ceil_div(EXPERTS, 64) + 1) * ROWS * K * 2 + SHARED * K * GT_BYTES
	+ K * NT_BYTES)
WRITES(ROWS * (K * 2 + EXPERTS * 4 + (2 * TOPK + SHARED) * 4))
FLOPS(2 * ROWS * (EXPERTS + SHARED) * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(RT, router, "EXPERTS, K");
	IN_IF(SHARED, GT, shared_gate, "1, K");
	INOUT(i32, routed, "ROWS");
	OUT(bf16, n, "ROWS, K");
	OUT(f32, logits, "ROWS, EXPERTS");
	OUT(i32, expert, "ROWS, TOPK");
	OUT(f32, share, "ROWS, TOPK + SHARED");
};

// warp level: row t of n, and the share of the expert that all rows go to
__device__ __forceinline__ void leave_norm(const Args &a, int t)
{
	float ss = 0.0f, dot = 0.0f;
	const int first = int(threadIdx.x) % 32 * 8;
	for (int k = first; k < K; k += 256) {
		float v[8];
		route_norm<NORM_ONE != 0>(*reinterpret_cast<const uint4 *>(a.x + i64(t) * K + k), a.norm + k, v, ss);
		if constexpr (SHARED) {
			float w[8];
			unpack(load8(a.shared_gate + k), w);
#pragma unroll
			for (int i = 0; i < 8; i++)
				dot = fmaf(v[i], w[i], dot);
		}
	}
	const float scale = rsqrtf(warp_sum(ss) / K + float(EPS));
	if constexpr (SHARED) {
		dot = warp_sum(dot);
		if (first == 0)
			a.share[i64(t) * (TOPK + 1) + TOPK] = sigmoid(dot * scale);
	}
	for (int k = first; k < K; k += 256) {
		float v[8], unused = 0.0f;
		route_norm<NORM_ONE != 0>(*reinterpret_cast<const uint4 *>(a.x + i64(t) * K + k), a.norm + k, v, unused);
#pragma unroll
		for (int i = 0; i < 8; i++)
			v[i] *= scale;
		*reinterpret_cast<uint4 *>(a.n + i64(t) * K + k) = pack8(v);
	}
}

extern "C" __global__ void __launch_bounds__(Tile<BM, 64>::threads) route_tiles(const Args a)
{
	using T = Tile<BM, 64>;
	constexpr int shares = TOPK + SHARED, warps = T::threads / 32;
	__shared__ bool is_last;
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(ring);
	const int t0 = blockIdx.x * BM, e0 = blockIdx.y * 64, end = min(min(t0 + BM, ROWS), a.step[0]);
	const int warp = threadIdx.x / 32;
	if (t0 >= end)
		return;
	for (int t = t0 + int(blockIdx.y) * warps + warp; t < end; t += int(gridDim.y) * warps)
		leave_norm(a, t);
	float acc[T::m_tiles][T::n_tiles][4] = {}, scale[T::m_tiles][2];
	gemm<BM, 64, K, true, NORM_ONE != 0, RT>(
		ring,
		[&](int r) {
			const bool exists = ROWS % BM == 0 || t0 + r < ROWS;
			return Row<bf16> { a.x + (exists ? i64(t0 + r) * K : 0), exists };
		},
		[&](int r) {
			const bool exists = EXPERTS % 64 == 0 || e0 + r < EXPERTS;
			return Row<RT> { a.router + (exists ? i64(e0 + r) * K : 0), exists };
		},
		a.norm, float(EPS), acc, scale);
	gemm_each<BM, 64>(acc, scale, [&](int r, int c, float lo, float hi, float s) {
		const int t = t0 + r, e = e0 + c;
		if (t >= end || e >= EXPERTS)
			return;
		a.logits[i64(t) * EXPERTS + e] = lo * s;
		if (e + 1 < EXPERTS)
			a.logits[i64(t) * EXPERTS + e + 1] = hi * s;
	});
	__syncthreads();
	if (threadIdx.x == 0)
		is_last = last_to_arrive(a.routed + blockIdx.x, gridDim.y);
	__syncthreads();
	if (!is_last)
		return;
	for (int t = t0 + warp; t < end; t += warps)
		route_row<EXPERTS, TOPK, NORM_TOPK != 0>(a.logits + i64(t) * EXPERTS, a.expert + i64(t) * TOPK,
			a.share + i64(t) * shares);
}
