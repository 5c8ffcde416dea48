// what      n = rmsnorm(x); logits = n . router; the TOPK largest of each row, with their shares of the softmax; with
//           shared_gate also sigmoid(n . shared_gate). For up to 8 rows
// numerics  x times norm * router in f32, 1 / rms at the end; the softmax in f32; n is rounded once. Same bits
//           every run, whatever the rows beside
// measured  H100 SXM, 256 experts of 2048: 5.8 us at one row, 9.8 at 8, in a chain of its own kind
// why       a warp holds a row of the router before the launches before have ended, so that of the time of its bytes
//           nothing is left; the block that comes last chooses. Each warp sums the squares itself rather than wait
#include "shared/contract.cuh"
#include "shared/arrive.cuh"
#include "experts/route.cuh"

KERNEL(route_few, norm_route)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
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
TUNE(WARPS, 8, 4)
REQUIRE(ROWS <= 8)
REQUIRE(K % 8 == 0)
REQUIRE(TOPK <= EXPERTS && TOPK <= 32 && EXPERTS <= 1024)
ORDER(route_few)
GRID(ceil_div(EXPERTS + SHARED, WARPS), 1, 1)
BLOCK(32 * WARPS)
READS(EXPERTS * K * RT_BYTES + SHARED * K * GT_BYTES + K * NT_BYTES + ROWS * K * 2)
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

// A row of weights, of which some pieces are read before the others are asked for, as are the norm's.
template <class T> struct RouterRow {
	static constexpr int pieces = ceil_div(K, 256), held = pieces * int(sizeof(T)) <= 32 ? pieces : 32 / int(sizeof(T));
	static constexpr int norms = pieces * int(sizeof(NT)) <= 16 ? pieces : 16 / int(sizeof(NT));
	const T *row;
	Vec8<T> early[held];
	Vec8<NT> norm[norms];
	static __device__ __forceinline__ int column(int i) { return (i * 32 + int(threadIdx.x) % 32) * 8; }
	__device__ __forceinline__ RouterRow(const T *from, const NT *of_norm) : row(from)
	{
#pragma unroll
		for (int i = 0; i < held; i++)
			early[i] = load8_once(row + (column(i) < K ? column(i) : 0));
#pragma unroll
		for (int i = 0; i < norms; i++)
			norm[i] = load8(of_norm + (column(i) < K ? column(i) : 0));
	}
	// dot[t] += row . (x * norm) of row t, ss[t] += its squares: a part of both in each lane
	__device__ __forceinline__ void add(const bf16 *x, const NT *of_norm, float (&dot)[ROWS], float (&ss)[ROWS]) const
	{
#pragma unroll
		for (int i = 0; i < pieces; i++) {
			const int k = column(i);
			if (k >= K)
				break;
			float w[8], m[8];
			unpack(i < held ? early[i < held ? i : 0] : load8_once(row + k), w);
			unpack(i < norms ? norm[i < norms ? i : 0] : load8(of_norm + k), m);
#pragma unroll
			for (int e = 0; e < 8; e++)
				w[e] *= NORM_ONE ? 1.0f + m[e] : m[e];
#pragma unroll
			for (int t = 0; t < ROWS; t++) {
				float v[8];
				unpack(load8(x + i64(t) * K + k), v);
#pragma unroll
				for (int e = 0; e < 8; e++) {
					dot[t] = fmaf(v[e], w[e], dot[t]);
					ss[t] = fmaf(v[e], v[e], ss[t]);
				}
			}
		}
	}
};

// warp level: row t of n
__device__ __forceinline__ void leave_norm(const Args &a, int t, float inverse_rms)
{
	for (int k = int(threadIdx.x) % 32 * 8; k < K; k += 256) {
		float v[8], unused = 0.0f;
		const i64 at = i64(t) * K + k;
		route_norm<NORM_ONE != 0>(*reinterpret_cast<const uint4 *>(a.x + at), a.norm + k, v, unused);
#pragma unroll
		for (int i = 0; i < 8; i++)
			v[i] *= inverse_rms;
		*reinterpret_cast<uint4 *>(a.n + at) = pack8(v);
	}
}

template <class T, class Leave>
__device__ __forceinline__ void products(const Args &a, const T *from, Leave leave)
{
	const RouterRow<T> row(from, a.norm);
	float dot[ROWS] = {}, ss[ROWS] = {};
	inputs_ready();
	row.add(a.x, a.norm, dot, ss);
#pragma unroll
	for (int t = 0; t < ROWS; t++) {
		const float scale = rsqrtf(warp_sum(ss[t]) / K + float(EPS));
		leave(t, warp_sum(dot[t]) * scale);
		if (blockIdx.x == 0 && int(threadIdx.x) / 32 == t % WARPS)
			leave_norm(a, t, scale);
	}
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) route_few(const Args a)
{
	__shared__ bool is_last;
	constexpr int shares = TOPK + SHARED;
	let_next_start();
	const int rows = a.step[0], warp = threadIdx.x / 32, lane = threadIdx.x % 32, e = blockIdx.x * WARPS + warp;
	if (SHARED && e == EXPERTS)
		products(a, a.shared_gate, [&](int t, float y) {
			if (lane == 0)
				a.share[t * shares + TOPK] = sigmoid(y);
		});
	else
		products(a, a.router + i64(min(e, EXPERTS - 1)) * K, [&](int t, float y) {
			if (lane == 0 && e < EXPERTS)
				a.logits[t * EXPERTS + e] = y;
		});
	__syncthreads();
	if (threadIdx.x == 0)
		is_last = last_to_arrive(a.routed, gridDim.x);
	__syncthreads();
	if (!is_last)
		return;
	for (int t = warp; t < min(rows, ROWS); t += WARPS)
		route_row<EXPERTS, TOPK, NORM_TOPK != 0>(a.logits + t * EXPERTS, a.expert + t * TOPK, a.share + t * shares);
}
