// what      z[t,n] = residual[t,n] + sum_j (down of row t's j-th expert)[n,:] . h[t, part j], the shared expert's part
//           last; weights may be codes with scales
// numerics  each expert's product accumulated in f32, these added in the order of the row's choice, then the residual;
//           one rounding. Same bits every run, whatever the rows beside
// why       a warp is an expert's: the experts of a row are streamed side by side and meet once, in shared memory, so
//           that neither a second pass nor an atomic sum is needed. It has few turns, which it asks for all at once
// measured  H100 SXM, in a chain of its own kind, one row: FP8 2048 x 512 with the shared expert 5.7 us, 54 % of the
//           read rate, NVFP4 5.0 us; bf16 2048 x 768 10.8 us, 76 %; FP8 8 rows 99 %. Two turns cost codes of one row
//           half as much again, four cost more rows a fifth
// rows      that chose the same expert read its weights at the same time, all but one from the L2 cache: READS counts
//           an expert once
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_down, experts_down)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 512)
DIM(WIDTH, 4096)
ATTR_INT(TOPK, 8)
ATTR_INT(BLOCK_N, 128)
ATTR_INT(BLOCK_K, 128)
ATTR_INT(SHARED_BLOCK_N, 128)
ATTR_INT(SHARED_BLOCK_K, 128)
FLAG(SCALE)
FLAG(ROW_SCALE)
FLAG(SHARED)
FLAG(SHARED_SCALE)
FLAG(SHARED_ROW_SCALE)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
DTYPES(SWT, bf16, e4m3, e2m1)
DTYPES(SST, bf16, f32, e4m3, e8m0)
TUNE(DEPTH, 2, 4, 6)
REQUIRE(ROWS <= 8 && TOPK <= EXPERTS && TOPK + SHARED <= 16)
REQUIRE(ROWS <= 2 && WT_BITS < 16 ? DEPTH >= 4 : DEPTH == 2)
REQUIRE(N % 8 == 0 && N * WT_BITS % 128 == 0)
REQUIRE(!SHARED || (WIDTH - TOPK * N) % 8 == 0 && (WIDTH - TOPK * N) * SWT_BITS % 128 == 0)
REQUIRE(WIDTH % 8 == 0 && (SHARED ? WIDTH > TOPK * N : WIDTH == TOPK * N && !SHARED_SCALE && !SHARED_ROW_SCALE))
REQUIRE(WT_BITS < 16 || !SCALE && !ROW_SCALE)
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K >= N || BLOCK_K > 0 && 128 % BLOCK_K == 0 && BLOCK_K % 32 == 0
	|| BLOCK_K > 0 && BLOCK_K % 128 == 0)
REQUIRE(WT_BITS != 4 || SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
REQUIRE(SWT_BITS < 16 || !SHARED_SCALE && !SHARED_ROW_SCALE)
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || SHARED_BLOCK_K >= WIDTH - TOPK * N || SHARED_BLOCK_K > 0
	&& 128 % SHARED_BLOCK_K == 0 && SHARED_BLOCK_K % 32 == 0 || SHARED_BLOCK_K > 0 && SHARED_BLOCK_K % 128 == 0)
REQUIRE(SWT_BITS != 4 || SHARED_SCALE && SST_BITS == 8 && SHARED_BLOCK_N == 1
	&& (SHARED_BLOCK_K == 16 || SHARED_BLOCK_K == 32))
ORDER(stream, 1, 1024 / WT_BITS, 2)
GRID(ceil_div(K, 16), ROWS, 1)
BLOCK(32 * (TOPK + SHARED))
SMEM(TOPK * (DEPTH * 16 * (128 + (WT_BITS == 4) * (256 / max(BLOCK_K, 1)))
		+ (WT_BITS < 16) * (2048 / WT_BITS * ceil_div(N, 1024 / WT_BITS) + 512))
	+ SHARED * (DEPTH * 16 * (128 + (SWT_BITS == 4) * (256 / max(SHARED_BLOCK_K, 1)))
		+ (SWT_BITS < 16) * (2048 / SWT_BITS * ceil_div(WIDTH - TOPK * N, 1024 / SWT_BITS) + 512)))
READS(min(EXPERTS, ROWS * TOPK) * (N * K * WT_BITS / 8 + ROW_SCALE * K * 4
		+ SCALE * ceil_div(K, max(BLOCK_N, 1)) * ceil_div(N, max(BLOCK_K, 1)) * ST_BITS / 8)
	+ SHARED * (K * ((WIDTH - TOPK * N) * SWT_BITS / 8 + SHARED_ROW_SCALE * 4) + SHARED_SCALE
		* ceil_div(K, max(SHARED_BLOCK_N, 1)) * ceil_div(WIDTH - TOPK * N, max(SHARED_BLOCK_K, 1)) * SST_BITS / 8)
	+ ROWS * (WIDTH * 2 + K * 2 + TOPK * 4))
WRITES(ROWS * K * 2)
FLOPS(2 * ROWS * WIDTH * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, h, "ROWS, WIDTH");
	IN(i32, expert, "ROWS, TOPK");
	IN(WT, down, "EXPERTS, K, N");
	IN_IF(SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, down_row_scale, "EXPERTS, K");
	IN_IF(SHARED, SWT, shared_down, "K, WIDTH - TOPK * N");
	IN_IF(SHARED_SCALE, SST, shared_down_scale,
		"ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)");
	IN_IF(SHARED_ROW_SCALE, f32, shared_down_row_scale, "K");
	IN(bf16, residual, "ROWS, K");
	OUT(bf16, z, "ROWS, K");
};

// warp level: 16 columns of z by one expert, into `place`, as values; false when there is nothing to do
template <class S, bool BY_ROW, class Scale>
__device__ __forceinline__ bool part(uint4 *place, const typename S::W *w, const Scale *scales, const float *by_row,
	int n0, bool some, const bf16 *x)
{
	constexpr bool full = K % (16 * S::tiles) == 0;
	constexpr int ring = StreamRing<S, full, void>::warp_bytes / 16;
	const int lane = threadIdx.x % 32;
	float scale = S::unit;
	if constexpr (BY_ROW)
		scale *= by_row[min(n0 + lane, K - 1)];
	StreamSums<S> sums;
	if (!stream_at<S, full, false, void>(place, place + ring,
		[&](int m) { return stream_tile<S>(w, scales, n0 + m * 16, K); }, [&](int) { return x; },
		static_cast<const void *>(nullptr), some, [] {}, sums))
		return false;
	float *const value = reinterpret_cast<float *>(place) + lane; // that is where the sums are
	if (lane < 16 * S::tiles)
		*value *= scale;
	return true;
}

extern "C" __global__ void __launch_bounds__(32 * (TOPK + SHARED)) stream_experts_down(const Args a)
{
	constexpr int shared_width = WIDTH - TOPK * N, most = max_of(shared_width, 32);
	using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<1, N, 1, 1, 64, DEPTH, WT, Scales, DEPTH>;
	using SharedScales = typename TypeIf<SHARED_SCALE != 0, BlockScales<SST, SHARED_BLOCK_N, SHARED_BLOCK_K>,
		NoScales>::Type;
	using T = Stream<1, SHARED ? shared_width : most, 1, 1, 64, DEPTH, SWT,
		typename TypeIf<SHARED != 0, SharedScales, NoScales>::Type, DEPTH>;
	constexpr bool full = K % 16 == 0;
	using Ring = StreamRing<S, full, void>;
	constexpr int place = Ring::warp_bytes / 16 + StreamStage<S, false, void, Ring, Ring::staged>::place;
	DYNAMIC_SMEM(ring);
	let_next_start();
	const int warp = threadIdx.x / 32, n0 = blockIdx.x * 16, t = blockIdx.y;
	const bool some = t < a.step[0];
	const bf16 *const x = a.h + i64(t) * WIDTH + warp * N;
	if (SHARED && warp == TOPK) {
		if (!part<T, SHARED_ROW_SCALE != 0>(ring + TOPK * place, a.shared_down, a.shared_down_scale,
			a.shared_down_row_scale, n0, some, x))
			return;
	} else {
		inputs_ready();
		if (!some)
			return;
		const int e = a.expert[t * TOPK + warp];
		part<S, ROW_SCALE != 0>(ring + warp * place, matrix_at<WT, K, N>(a.down, e),
			scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, e), ROW_SCALE ? a.down_row_scale + i64(e) * K : nullptr,
			n0, true, x);
	}
	const int n = n0 + threadIdx.x;
	const bool mine = threadIdx.x < 16 && n < K;
	const float rest = mine ? to_f32(a.residual[i64(t) * K + n]) : 0.0f;
	__syncthreads();
	if (!mine)
		return;
	float sum = 0.0f;
#pragma unroll
	for (int j = 0; j < TOPK + SHARED; j++)
		sum += reinterpret_cast<const float *>(ring + j * place)[threadIdx.x];
	store(a.z + i64(t) * K + n, sum + rest);
}
