// what      z[t,:] = residual[t,:] + all of row t's experts of n[t,:], and the one that all rows go to: both halves in
//           one launch; weights may be codes with scales
// numerics  as of stream_experts_up and stream_experts_down, which are its halves. Same bits every run and for every
//           batch
// why       the weights of down are on their way while those of gate and up still come, so that the memory rests only
//           before a row's experts are known
// blocks    take their places in the order in which they come: first those of gate and up, then those of down, which
//           wait for the former's h with their weights in shared memory. So who is waited for runs already
// rows      that chose the same expert read its weights at the same time, all but one from the L2 cache: READS counts
//           an expert once
#include "contract.cuh"
#include "arrive.cuh"
#include "stream_experts.cuh"

KERNEL(stream_experts, experts_step)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
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
FLAG(DOWN_SCALE)
FLAG(DOWN_ROW_SCALE)
FLAG(SHARED_DOWN)
FLAG(SHARED_DOWN_SCALE)
FLAG(SHARED_DOWN_ROW_SCALE)
DTYPES(WT, bf16, e4m3, e2m1)
DTYPES(ST, bf16, f32, e4m3, e8m0)
DTYPES(SWT, bf16, e4m3, e2m1)
DTYPES(SST, bf16, f32, e4m3, e8m0)
TUNE(TILES, 2, 4)
TUNE(DEPTH, 2, 4)
REQUIRE(ROWS <= 8 && TOPK <= EXPERTS && TOPK + SHARED <= 16)
REQUIRE(K % 8 == 0 && K * WT_BITS % 128 == 0 && K * SWT_BITS % 128 == 0 && N % 16 == 0 && N / 2 * WT_BITS % 128 == 0)
REQUIRE(!SHARED || (WIDTH - TOPK * N / 2) % 8 == 0 && (WIDTH - TOPK * N / 2) * SWT_BITS % 128 == 0)
REQUIRE(SHARED ? 2 * WIDTH > TOPK * N : 2 * WIDTH == TOPK * N && !SHARED_SCALE && !SHARED_ROW_SCALE)
REQUIRE(SCALE == DOWN_SCALE && ROW_SCALE == DOWN_ROW_SCALE && SHARED == SHARED_DOWN
	&& SHARED_SCALE == SHARED_DOWN_SCALE && SHARED_ROW_SCALE == SHARED_DOWN_ROW_SCALE)
REQUIRE((WT_BITS < 16 || !SCALE && !ROW_SCALE) && (SWT_BITS < 16 || !SHARED_SCALE && !SHARED_ROW_SCALE))
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K > 0 && BLOCK_K % 32 == 0 && (BLOCK_K >= K || 128 % BLOCK_K == 0
	|| BLOCK_K % 128 == 0))
REQUIRE(WT_BITS != 8 || !SCALE || BLOCK_K >= N / 2 || 128 % BLOCK_K == 0 || BLOCK_K % 128 == 0)
REQUIRE(WT_BITS != 4 || SCALE && ST_BITS == 8 && BLOCK_N == 1 && (BLOCK_K == 16 || BLOCK_K == 32))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || SHARED_BLOCK_K > 0 && SHARED_BLOCK_K % 32 == 0 && (SHARED_BLOCK_K >= K
	|| 128 % SHARED_BLOCK_K == 0 || SHARED_BLOCK_K % 128 == 0))
REQUIRE(SWT_BITS != 8 || !SHARED_SCALE || SHARED_BLOCK_K >= WIDTH - TOPK * N / 2 || 128 % SHARED_BLOCK_K == 0
	|| SHARED_BLOCK_K % 128 == 0)
REQUIRE(SWT_BITS != 4 || SHARED_SCALE && SST_BITS == 8 && SHARED_BLOCK_N == 1
	&& (SHARED_BLOCK_K == 16 || SHARED_BLOCK_K == 32))
REQUIRE(WT_BITS == 16 || TILES == 2)
GRID(ROWS * TOPK * ceil_div(N / 2, 8 * TILES) + SHARED * ceil_div(WIDTH - TOPK * N / 2, 8 * TILES)
	+ ROWS * ceil_div(K, 16), 1, 1)
BLOCK(32 * max(8, TOPK + SHARED))
SMEM(max(max(16 * TILES * 16 * (128 + (WT_BITS == 4) * (256 / max(BLOCK_K, 1)))
		+ (WT_BITS < 16) * (16384 / WT_BITS * ceil_div(K, 8192 / WT_BITS) + 4096),
	SHARED * (16 * TILES * 16 * (128 + (SWT_BITS == 4) * (256 / max(SHARED_BLOCK_K, 1)))
		+ (SWT_BITS < 16 && ROWS <= 4) * ROWS * (16384 / SWT_BITS * ceil_div(K, 8192 / SWT_BITS) + 4096))),
	TOPK * (DEPTH * 16 * (128 + (WT_BITS == 4) * (256 / max(BLOCK_K, 1)))
		+ (WT_BITS < 16) * (2048 / WT_BITS * ceil_div(N / 2, 1024 / WT_BITS) + 512))
	+ SHARED * (DEPTH * 16 * (128 + (SWT_BITS == 4) * (256 / max(SHARED_BLOCK_K, 1)))
		+ (SWT_BITS < 16) * (2048 / SWT_BITS * ceil_div(WIDTH - TOPK * N / 2, 1024 / SWT_BITS) + 512))))
READS(min(EXPERTS, ROWS * TOPK) * (N * K * WT_BITS / 8 + N / 2 * K * WT_BITS / 8 + ROW_SCALE * (N + K) * 4
		+ SCALE * (2 * ceil_div(N / 2, max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1))
			+ ceil_div(K, max(BLOCK_N, 1)) * ceil_div(N / 2, max(BLOCK_K, 1))) * ST_BITS / 8)
	+ SHARED * ((2 * WIDTH - TOPK * N) * K * SWT_BITS / 8 + (WIDTH - TOPK * N / 2) * K * SWT_BITS / 8
		+ SHARED_ROW_SCALE * (2 * WIDTH - TOPK * N + K) * 4
		+ SHARED_SCALE * SST_BITS / 8
			* (2 * ceil_div(WIDTH - TOPK * N / 2, max(SHARED_BLOCK_N, 1)) * ceil_div(K, max(SHARED_BLOCK_K, 1))
			+ ceil_div(K, max(SHARED_BLOCK_N, 1)) * ceil_div(WIDTH - TOPK * N / 2, max(SHARED_BLOCK_K, 1))))
	+ ROWS * (2 * K * 2 + TOPK * 8))
WRITES(ROWS * K * 2)
FLOPS(6 * ROWS * WIDTH * K)
EARLY(turns)
struct Args {
	IN(i32, step, "4");
	IN(bf16, n, "ROWS, K");
	IN(i32, expert, "ROWS, TOPK");
	IN(WT, gate_up, "EXPERTS, N, K");
	IN_IF(SCALE, ST, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(ROW_SCALE, f32, gate_up_row_scale, "EXPERTS, N");
	IN_IF(SHARED, SWT, shared, "2 * WIDTH - TOPK * N, K");
	IN_IF(SHARED_SCALE, SST, shared_scale,
		"2 * ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)");
	IN_IF(SHARED_ROW_SCALE, f32, shared_row_scale, "2 * WIDTH - TOPK * N");
	IN(WT, down, "EXPERTS, K, N / 2");
	IN_IF(DOWN_SCALE, ST, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N / 2, BLOCK_K)");
	IN_IF(DOWN_ROW_SCALE, f32, down_row_scale, "EXPERTS, K");
	IN_IF(SHARED_DOWN, SWT, shared_down, "K, WIDTH - TOPK * N / 2");
	IN_IF(SHARED_DOWN_SCALE, SST, shared_down_scale,
		"ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_K)");
	IN_IF(SHARED_DOWN_ROW_SCALE, f32, shared_down_row_scale, "K");
	IN(f32, share, "ROWS, TOPK + SHARED");
	IN(bf16, residual, "ROWS, K");
	INOUT(i32, turns, "ROWS + 1");
	OUT(bf16, h, "ROWS, WIDTH");
	OUT(bf16, z, "ROWS, K");
};

constexpr int width = N / 2, shared_width = WIDTH - TOPK * width, shares = TOPK + SHARED;
constexpr int up_blocks = ceil_div(width, 8 * TILES), shared_blocks = SHARED * ceil_div(shared_width, 8 * TILES);
constexpr int down_blocks = ceil_div(K, 16);
constexpr int before_down = TOPK * up_blocks + shared_blocks; // blocks that a row's h comes from
using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using SharedScales = typename TypeIf<SHARED_SCALE != 0, BlockScales<SST, SHARED_BLOCK_N, SHARED_BLOCK_K>,
	NoScales>::Type;

// thread level, behind a barrier of the block: it is done with row t, and the last of the row's makes the count 0
__device__ __forceinline__ void arrive_for(const Args &a, int t)
{
	last_to_arrive(a.turns + 1 + t, before_down + down_blocks);
}

// warp level: all of row t's h is there
__device__ __forceinline__ void wait_for_h(const Args &a, int t)
{
	int there;
	do
		asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(a.turns + 1 + t) : "memory");
	while (there < before_down);
	__syncwarp();
}

// block level: rows of gate and up of an expert, chosen or shared
__device__ __forceinline__ void go_up(const Args &a, uint4 *ring, int place, int rows)
{
	const bool is_shared = place < shared_blocks;
	const int pair = (place - shared_blocks) / up_blocks, t = is_shared ? 0 : pair / TOPK, j = pair % TOPK;
	const int n0 = (is_shared ? place : (place - shared_blocks) % up_blocks) * 8 * TILES;
	if (!is_shared)
		inputs_ready();
	if (t >= rows)
		return;
	if (threadIdx.x >= 32 * stream_warps) {
		__syncthreads(); // the one of stream
	} else if (is_shared) {
		using S = Stream<ROWS, K, stream_warps, TILES, 64, 2, SWT, SharedScales>;
		if constexpr (SHARED)
			stream_gated<S, max_of(shared_width, 8), SHARED_ROW_SCALE != 0>(ring, a.shared, a.shared_scale,
				a.shared_row_scale, n0, true, [&](int t) { return a.n + i64(t) * K; }, [&](int t, int n, float y) {
					store(a.h + i64(t) * WIDTH + TOPK * width + n, y * a.share[t * shares + TOPK]);
				});
	} else {
		using S = Stream<1, K, stream_warps, TILES, 64, 2, WT, Scales>;
		const int e = a.expert[pair];
		const float share = a.share[t * shares + j];
		stream_gated<S, width, ROW_SCALE != 0>(ring, matrix_at<WT, N, K>(a.gate_up, e),
			scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, e),
			ROW_SCALE ? a.gate_up_row_scale + i64(e) * N : nullptr, n0, true, [&](int) { return a.n + i64(t) * K; },
			[&](int, int n, float y) { store(a.h + i64(t) * WIDTH + j * width + n, y * share); });
	}
	__syncthreads();
	if (is_shared ? int(threadIdx.x) < min(rows, ROWS) : threadIdx.x == 0)
		arrive_for(a, is_shared ? threadIdx.x : t);
}

// block level: 16 columns of row t of z
__device__ __forceinline__ void go_down(const Args &a, uint4 *ring, int place, int rows)
{
	using S = Stream<1, width, 1, 1, 64, DEPTH, WT, Scales, DEPTH>;
	using T = Stream<1, SHARED ? shared_width : 32, 1, 1, 64, DEPTH, SWT, SharedScales, DEPTH>;
	constexpr int each = stream_part_place<S, K>();
	const int warp = threadIdx.x / 32, t = place / down_blocks, n0 = place % down_blocks * 16, n = n0 + threadIdx.x;
	const bf16 *const x = a.h + i64(t) * WIDTH + warp * width;
	const bool mine = threadIdx.x < 16 && n < K;
	float rest = 0.0f;
	if (SHARED && warp == TOPK) {
		if constexpr (SHARED)
			if (!stream_part<T, K, SHARED_ROW_SCALE != 0>(ring + TOPK * each, a.shared_down, a.shared_down_scale,
				a.shared_down_row_scale, n0, t < rows, x, [&] { wait_for_h(a, t); }))
				return;
	} else {
		inputs_ready();
		if (t >= rows)
			return;
		if (mine)
			rest = to_f32(a.residual[i64(t) * K + n]);
		if (warp < TOPK) {
			const int e = a.expert[t * TOPK + warp];
			stream_part<S, K, ROW_SCALE != 0>(ring + warp * each, matrix_at<WT, K, width>(a.down, e),
				scales_at<1, K, width, BLOCK_N, BLOCK_K>(a.down_scale, e),
				ROW_SCALE ? a.down_row_scale + i64(e) * K : nullptr, n0, true, x, [&] { wait_for_h(a, t); });
		}
	}
	__syncthreads();
	if (threadIdx.x == 0)
		arrive_for(a, t);
	if (!mine)
		return;
	float sum = 0.0f;
#pragma unroll
	for (int j = 0; j < TOPK + SHARED; j++)
		sum += reinterpret_cast<const float *>(ring + j * each)[threadIdx.x];
	store(a.z + i64(t) * K + n, sum + rest);
}

extern "C" __global__ void __launch_bounds__(32 * (TOPK + SHARED > 8 ? TOPK + SHARED : 8), 2)
stream_experts(const Args a)
{
	__shared__ u32 turn;
	DYNAMIC_SMEM(ring);
	const int rows = a.step[0];
	if (threadIdx.x == 0)
		asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(turn) : "l"(a.turns), "r"(gridDim.x - 1)
			: "memory");
	__syncthreads();
	let_next_start(); // which finds the count at 0: all of this launch have begun
	const int place = int(turn), ups = shared_blocks + ROWS * TOPK * up_blocks;
	if (rows <= 0)
		inputs_ready();
	else if (place < ups)
		go_up(a, ring, place, rows);
	else
		go_down(a, ring, place - ups, rows);
}
