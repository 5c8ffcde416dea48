// what      z[t,n] = residual[t,n] + sum_j (down of row t's j-th expert)[n,:] . h[t, part j], the shared expert's part
//           last; weights may be codes with scales. For steps of some rows, of which several may have chosen one expert
// numerics  as stream_experts_down: each expert's product accumulated in f32, these added in the order of the row's
//           choice, then the residual; one rounding. Same bits every run, whatever the rows beside
// why       a block has 16 columns of all rows, or of as many as have room: its warps take tiles, up to 8 rows that
//           chose one expert, in turns, with rings that never run dry between them (expert_queue.cuh), and leave the
//           terms of all sums side by side in shared memory: neither a second pass nor an atomic sum is needed
// measured  H200, FP8 2048 x 512, 256 experts and the shared one, in a chain of its own kind: 31, 44, 60, 74, 106 us at
//           16, 32, 64, 128, 256 rows: 73, 79, 80, 76, 56 % of the read rate (stream_experts_down: 36, 53, 72, 98 us;
//           gemm_experts_down and sum_experts: 88, 101 us at 128, 256). Other formats are not measured
// warps     are what this lacks: 12 with twice as much of x ahead take a quarter longer
#include "shared/contract.cuh"
#include "experts/expert_queue.cuh"

KERNEL(queue_experts_down, experts_down)
#define UP 0
#define LISTED 0
#define ALIKE 1
#define BIASED 0
DIM(ROWS, 16)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 512)
DIM(WIDTH, 4608)
DTYPES(WT, e4m3, bf16, e2m1)
#include "experts/experts_contract.cuh"
TUNE(DEPTH, 2, 4)
REQUIRE(ROWS > 8 && ROWS <= 256 && EXPERTS <= 1024 && TOPK + SHARED <= 16)
REQUIRE(N % 8 == 0 && N * WT_BITS % 128 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(N, 128, BLOCK_K))
PREFER(DEPTH == 2)
PREFER(WT_BITS < 16)
FORMULA(rings_bytes(), 16 * DEPTH * 16 * (128 + stream_group_bytes(WT_BITS, N, 1024 / WT_BITS, BLOCK_K, ST_BITS)))
FORMULA(list_bytes(int rows), queue_bytes(rows * TOPK, EXPERTS))
FORMULA(row_bytes(), 64 * (TOPK + SHARED) + 6 * TOPK)
FORMULA(fits(), (SMEM_MAX - 4096 - rings_bytes() - 4 * EXPERTS) / row_bytes())
FORMULA(most_rows(), min(ROWS, fits()))
REQUIRE(fits() >= 8 && most_rows() * TOPK <= 4096)
ORDER(stream, 1, 1024 / WT_BITS, 2)
GRID(ceil_div(K, 16), ceil_div(ROWS, most_rows()), 1)
BLOCK(512)
SMEM(rings_bytes() + most_rows() * (TOPK + SHARED) * 64 + list_bytes(most_rows()))
READS((min(EXPERTS, ROWS * TOPK) * each_bytes() + SHARED * shared_bytes()) * ceil_div(ROWS, most_rows())
	+ ROWS * (WIDTH * 2 + K * 2 + TOPK * 4))

constexpr int threads = 512, warps = threads / 32, shares = TOPK + SHARED, block_rows = most_rows();
using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<8, N, 1, 1, 64, DEPTH, WT, Scales, DEPTH, 2>;
using Ring = StreamRing<S, K % 16 == 0, void>;
using Queue = ExpertQueue<block_rows, TOPK, SHARED != 0, EXPERTS, threads>;
static_assert(warps * Ring::warp_bytes + block_rows * shares * 64 + list_bytes(block_rows) <= dynamic_smem(), "SMEM");

// thread level: the 16 rows of an expert from n0 on
__device__ __forceinline__ Ring tile_of(const Args &a, uint4 *place, const QueueTile &tile, int n0)
{
	const auto *const w = tile.is_shared ? a.shared_down : matrix_at<WT, K, N>(a.down, tile.expert);
	const auto *const scales = tile.is_shared ? a.shared_down_scale
		: scales_at<1, K, N, BLOCK_N, BLOCK_K>(a.down_scale, tile.expert);
	return Ring(place, [&](int) {
			return stream_tile<S>(w, static_cast<const typename S::Scale *>(scales), n0, K);
		}, static_cast<const void *>(nullptr));
}

extern "C" __global__ void __launch_bounds__(512) queue_experts_down(const Args a)
{
	DYNAMIC_SMEM(memory);
	let_next_start();
	constexpr int count = ceil_div(block_rows * 16, threads);
	const i64 t0 = blockIdx.y * block_rows;
	const int rows = min(min(a.step[0], ROWS) - int(t0), block_rows), n0 = blockIdx.x * 16;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = n0 + int(threadIdx.x) % 16;
	uint4 *const place = memory + warp * (Ring::warp_bytes / 16);
	float *const term = reinterpret_cast<float *>(memory + warps * (Ring::warp_bytes / 16)); // [rows][shares][16]
	const Queue queue(memory + warps * (Ring::warp_bytes / 16) + block_rows * shares * 4, rows);
	const auto ring_of = [&](int i) { return tile_of(a, place, queue.at(i), n0); };
	if (rows <= 0) {
		inputs_ready();
		return;
	}

	// what is asked for first: of the expert all rows go to
	const bool is_known = warp < queue.shared_tiles;
	if (is_known) {
		QueueFill<Ring, decltype(ring_of)> fill(warp, warps, ring_of);
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
			if (i < fill.ring.turns)
				fill.fill(i, queue.shared_tiles);
	}
	queue.clear();
	inputs_ready();
	queue.make<false>(a.expert + t0 * TOPK);
	const int end = queue.tiles();
	float rest[count];
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int t = (i * threads + int(threadIdx.x)) / 16;
		rest[i] = t < rows && n < K ? to_f32(a.residual[(t0 + t) * K + n]) : 0.0f;
	}
	if (warp < end) {
		QueueFill<Ring, decltype(ring_of)> fill(warp, warps, ring_of);
		if (is_known)
			fill.turn = min(fill.ring.turns, DEPTH);
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
			if (!is_known || i >= fill.ring.turns)
				fill.fill(i, end);
		QueueRows<S, 8> x;
		const bf16 *const h = a.h + t0 * WIDTH;
		const auto rows_of = [&](int i, const bf16 *(&rows)[S::n_tiles]) {
			const QueueTile tile = i < end ? queue.at(i) : QueueTile { 0, 0, 0, false };
			queue_rows<S>([&](int t) -> const bf16 * {
				return t < tile.count ? h + i64(queue.pair_of(tile, t)) * N : nullptr;
			}, rows);
		};
		Ring next = ring_of(warp);
		rows_of(warp, x.of_next);
#pragma unroll
		for (int s = 0; s < x.ahead_steps; s++)
			queue_read<S>(next, x.of_next, s, x.ahead[s]);
		int slot = 0;
		for (int i = warp; i < end; i += warps) {
			const Ring ring = next;
#pragma unroll
			for (int j = 0; j < S::n_tiles; j++)
				x.x[j] = x.of_next[j];
			rows_of(i + warps, x.of_next);
			if (i + warps < end)
				next = ring_of(i + warps); // its scales are on their way
			QueueSums<S> own;
			queue_multiply<S>(ring, slot, x, [&](int free) { fill.fill(free, end); }, own);
			const QueueTile done = queue.at(i);
#pragma unroll
			for (int k = 0; k < 4; k++) {
				const int row = lane / 4 + k / 2 * 8;
				float scale = S::unit;
				if constexpr (ROW_SCALE != 0)
					scale *= (done.is_shared ? a.shared_down_row_scale : a.down_row_scale + i64(done.expert) * K)[
						min(n0 + row, K - 1)];
#pragma unroll
				for (int j = 0; j < S::n_tiles; j++) {
					const int t = j * 8 + 2 * (lane % 4) + k % 2;
					if (t < done.count)
						term[queue.pair_of(done, t) * 16 + row] = own.sum(0, j, k) * scale;
				}
			}
		}
	}
	copy_wait<0>();
	__syncthreads();
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int t = (i * threads + int(threadIdx.x)) / 16;
		if (t >= rows || n >= K)
			continue;
		float sum = 0.0f;
#pragma unroll
		for (int j = 0; j < shares; j++)
			sum += term[(t * shares + j) * 16 + n - n0];
		store(a.z + (t0 + t) * K + n, sum + rest[i]);
	}
}
