// what      h[t,:] = for each of row t's experts share * (silu(gate n[t]) * (up n[t])), then the same of the expert
//           that all rows go to; weights may be codes with scales
// numerics  n times w, whose codes are decoded exactly, accumulated in f32; scales of rows, silu, products and the
//           share in f32; one rounding. Same bits every run, whatever the rows beside
// why       nothing is sorted: of up to 8 rows each pair of row and expert is a slice of the grid, which streams the
//           expert's rows as if there were no other. Of more rows a slice finds all pairs of its expert, which is the
//           first pair's or, of many, the slice's own, and streams its rows once for 8 of them; a slice without any
//           ends. Which rows those are is known only when the launch before is done; the shared expert's are on their
//           way by then
// measured  H100 SXM, in a chain of its own kind, one row: FP8 1024 x 2048 with the shared expert 9.5 us, 64 % of the
//           read rate, NVFP4 7.0 us; bf16 1536 x 2048 18.7 us, 87 %; FP8 4 rows 90 %, 8 rows 106 %: they share experts
// one       launch for both halves, in which down's blocks wait with their weights in place, took 17.4 us where the two
//           take 15.2
// ring      of two turns: four leave room for one block where three are wanted and cost 5 to 30 %; 32 rows of codes a
//           block, 64 of bf16
// rows      up to 8 that chose the same expert read its weights at the same time, all but one from the L2 cache: READS
//           counts an expert once
#include "shared/contract.cuh"
#include "experts/experts.cuh"
#include "products/stream.cuh"

KERNEL(stream_experts_up, experts_up)
#define UP 1
#define LISTED 0
#define ALIKE 0
DIM(ROWS, 1)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
DIM(WIDTH, 4096)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(SWT, bf16, e4m3, e2m1)
#include "experts/experts_contract.cuh"
TUNE(TILES, 2, 4)
REQUIRE(ROWS <= 256 && ROWS * TOPK <= 4096)
REQUIRE(K % 8 == 0 && K * WT_BITS % 128 == 0 && K * SWT_BITS % 128 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(K, 128, BLOCK_K))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || stream_takes_blocks(K, 128, SHARED_BLOCK_K))
REQUIRE(WT_BITS == 16 || TILES == 2)
PREFER(ROWS <= 8 || WT_BITS != 8)
ORDER(stream, 8, 1024 / WT_BITS, TILES == 2 ? 2 : 1)
GRID(max(ceil_div(N / 2, 8 * TILES), ceil_div(WIDTH - TOPK * N / 2, 8 * TILES)),
	SHARED * ceil_div(ROWS, 8) + (ROWS <= 8 ? ROWS * TOPK : min(EXPERTS, ROWS * TOPK)), 1)
BLOCK(256)
SMEM(max(16 * TILES * 16 * (128 + (WT_BITS == 4) * (256 / max(BLOCK_K, 1)))
		+ (WT_BITS < 16 && ROWS <= 8 && 16384 / WT_BITS * ceil_div(K, 8192 / WT_BITS) + 4096 + 75776 <= SMEM_MAX)
			* (16384 / WT_BITS * ceil_div(K, 8192 / WT_BITS) + 4096),
	SHARED * (16 * TILES * 16 * (128 + (SWT_BITS == 4) * (256 / max(SHARED_BLOCK_K, 1)))
		+ (SWT_BITS < 16 && ROWS <= 4
			&& ROWS * (16384 / SWT_BITS * ceil_div(K, 8192 / SWT_BITS) + 4096) + 75776 <= SMEM_MAX)
			* ROWS * (16384 / SWT_BITS * ceil_div(K, 8192 / SWT_BITS) + 4096))))
READS(min(EXPERTS, ROWS * TOPK) * each_bytes() + SHARED * shared_bytes() + ROWS * (K * 2 + TOPK * 8))

// block level: out(t, n, value) of the rows of an expert from n0 on, N_ of gate and as many of up
template <class S, int N_, bool BY_ROW, class Scale, class XRow, class Out>
__device__ __forceinline__ void gated(uint4 *ring, const typename S::W *w, const Scale *scales, const float *by_row,
	int n0, bool some, XRow x_row, Out out)
{
	constexpr int half = 8 * S::tiles; // rows of gate, then as many of up
	const auto *const up = w + i64(N_) * S::pitch / int(sizeof(typename S::W));
	const Scale *const up_scales = scales + ceil_div(N_, S::block_n) * S::scale_pitch;
	float gate_scale = 1.0f, up_scale = 1.0f;
	if constexpr (BY_ROW) {
		const int n = min(n0 + stream_row<S, half>(), N_ - 1);
		gate_scale = by_row[n];
		up_scale = by_row[N_ + n];
	}
	StreamSums<S> sums;
	if (!stream<S, N_ % half == 0, false, void>(ring, [&](int m) {
			const bool first = m < S::tiles / 2;
			return stream_tile<S>(first ? w : up, first ? scales : up_scales, n0 + m % (S::tiles / 2) * 16, N_);
		}, x_row, static_cast<const void *>(nullptr), some, [] {}, sums))
		return;
	stream_each<S, half>([&](int, int t, int row) {
		if (n0 + row >= N_)
			return;
		const float gate = sums.at(t, row) * gate_scale, y = sums.at(t, half + row) * up_scale;
		out(t, n0 + row, gate / (1.0f + __expf(-gate)) * y);
	});
}

// block level: the pairs in use, numbers t * TOPK + j, of an expert, all in `list`; how many there are. first_of: not
// -1: the block is that pair's, and has none if a lower one is of the same expert.
__device__ __forceinline__ int pairs_of(const i32 *expert, int e, int in_use, int first_of, unsigned short *list)
{
	__shared__ int count;
	bool is_own[ceil_div(ROWS * TOPK, 256)], is_lower = false;
#pragma unroll
	for (int i = 0; i < ceil_div(ROWS * TOPK, 256); i++) {
		const int p = i * 256 + int(threadIdx.x);
		is_own[i] = p < in_use && expert[p] == e;
		is_lower |= is_own[i] && p < first_of;
	}
	if (threadIdx.x == 0)
		count = 0;
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ceil_div(ROWS * TOPK, 256); i++)
		if (is_own[i])
			list[atomicAdd(&count, 1)] = static_cast<unsigned short>(i * 256 + int(threadIdx.x));
	return __syncthreads_or(is_lower) ? 0 : count;
}

extern "C" __global__ void __launch_bounds__(256, stream_blocks(1, TILES, bits_of<WT>))
stream_experts_up(const Args a)
{
	constexpr int width = N / 2, shared_width = WIDTH - TOPK * width, shares = TOPK + SHARED;
	constexpr int tile = ROWS < 8 ? ROWS : 8, shared_tiles = SHARED * ceil_div(ROWS, 8);
	DYNAMIC_SMEM(ring);
	let_next_start();
	const int rows = a.step[0], n0 = blockIdx.x * 8 * TILES, pair = int(blockIdx.y) - shared_tiles;
	if constexpr (SHARED) {
		using Scales = typename TypeIf<SHARED_SCALE != 0, BlockScales<SST, SHARED_BLOCK_N, SHARED_BLOCK_K>,
			NoScales>::Type;
		using S = Stream<tile, K, stream_warps, TILES, 64, 2, SWT, Scales>;
		if (pair < 0) {
			const int t0 = ROWS > 8 ? int(blockIdx.y) * 8 : 0;
			if (n0 < shared_width)
				gated<S, shared_width, SHARED_ROW_SCALE != 0>(ring, a.shared, a.shared_scale, a.shared_row_scale, n0,
					rows > t0,
					[&](int t) { return ROWS % tile == 0 || t0 + t < ROWS ? a.n + i64(t0 + t) * K : nullptr; },
					[&](int t, int n, float y) {
						if (ROWS % tile == 0 || t0 + t < ROWS)
							store(a.h + i64(t0 + t) * WIDTH + TOPK * width + n, y * a.share[(t0 + t) * shares + TOPK]);
					});
			return;
		}
	}
	using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
	using S = Stream<ROWS <= 8 ? 1 : 8, K, stream_warps, TILES, 64, 2, WT, Scales>;
	if constexpr (ROWS <= 8) {
		const int t = pair / TOPK, j = pair % TOPK;
		inputs_ready();
		if (t >= rows || n0 >= width)
			return;
		const int e = a.expert[pair];
		const float share = a.share[t * shares + j];
		gated<S, width, ROW_SCALE != 0>(ring, matrix_at<WT, N, K>(a.gate_up, e),
			scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
			ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr,
			n0, true, [&](int) { return a.n + i64(t) * K; },
			[&](int, int n, float y) { store(a.h + i64(t) * WIDTH + j * width + n, y * share); });
	} else {
		__shared__ unsigned short list[ROWS * TOPK];
		constexpr bool is_first_pairs = ROWS * TOPK <= EXPERTS;
		const int in_use = min(rows, ROWS) * TOPK;
		inputs_ready();
		if (n0 >= width || (is_first_pairs && pair >= in_use))
			return;
		const int e = is_first_pairs ? a.expert[pair] : pair;
		const int count = pairs_of(a.expert, e, in_use, is_first_pairs ? pair : -1, list);
		for (int first = 0; first < count; first += 8) {
			if (first)
				__syncthreads(); // the sums before are read
			gated<S, width, ROW_SCALE != 0>(ring, matrix_at<WT, N, K>(a.gate_up, e),
				scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
				ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr, n0, true,
				[&](int t) { return first + t < count ? a.n + i64(list[first + t] / TOPK) * K : nullptr; },
				[&](int t, int n, float y) {
					if (first + t >= count)
						return;
					const int row = list[first + t] / TOPK, j = list[first + t] % TOPK;
					store(a.h + i64(row) * WIDTH + j * width + n, y * a.share[row * shares + j]);
				});
		}
	}
}
