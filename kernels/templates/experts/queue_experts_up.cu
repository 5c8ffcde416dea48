// what      h[t,:] = for each of row t's experts share * (silu(gate n[t]) * (up n[t])), then the same of the expert
//           that all rows go to; weights may be codes with scales. For steps of some rows, of which several may have
//           chosen one expert
// numerics  as stream_experts_up: n times w, whose codes are decoded exactly, accumulated in f32; scales of rows, silu,
//           products and the share in f32; one rounding. Same bits every run, whatever the rows beside
// why       a slice of a tile, of up to 8 rows that chose one expert and 8 * TILES of its columns of h, is a product
//           whose columns 8 warps share. Blocks that stay take one slice after the other, and their rings never run dry
//           between them (expert_queue.cuh); slices of a tile stand together, so that rows and, of an expert with
//           more tiles, weights come from the L2 cache
// measured  H200, FP8 1024 x 2048, 256 experts and the shared one, in a chain of its own kind: 52, 81, 109, 143, 194 us
//           at 16, 32, 64, 128, 256 rows, which have about 96, 150, 206, 243, 255 experts: 86, 87, 88, 79, 61 % of the
//           read rate (stream_experts_up: 68, 106, 131, 181 us; gemm_experts_up: 190, 210 us at 128, 256). NVFP4, 32
//           and 128 rows: 72 and 128 us (stream_experts_up at 32: 98)
// ring      of two turns, and two blocks a multiprocessor; four leave room for one, and cost a third
#include "shared/contract.cuh"
#include "experts/expert_queue.cuh"

KERNEL(queue_experts_up, experts_up)
#define UP 1
#define LISTED 0
#define ALIKE 1
#define BIASED 0
DIM(ROWS, 16)
DIM(K, 2048)
DIM(EXPERTS, 256)
DIM(N, 1024)
DIM(WIDTH, 4608)
DTYPES(WT, e4m3, bf16, e2m1)
#include "experts/experts_contract.cuh"
TUNE(TILES, 2, 4)
TUNE(DEPTH, 2, 4)
REQUIRE(ROWS > 8 && ROWS <= 256 && EXPERTS <= 1024 && ROWS * TOPK <= 4096)
REQUIRE(K % 8 == 0 && K * WT_BITS % 128 == 0)
REQUIRE(WT_BITS != 8 || !SCALE || stream_takes_blocks(K, 128, BLOCK_K))
PREFER(DEPTH == 2 && TILES == 2)
PREFER(WT_BITS < 16)
FORMULA(slices(), ceil_div(N / 2, 8 * TILES))
FORMULA(turn_bytes(), TILES * 16 * (128 + stream_group_bytes(WT_BITS, K, 1024 / WT_BITS, BLOCK_K, ST_BITS)))
FORMULA(sums_bytes(), 32 * (16 * TILES + 5))
FORMULA(all_bytes(), 8 * DEPTH * turn_bytes() + 2 * 8 * sums_bytes() + queue_bytes(ROWS * TOPK, EXPERTS))
REQUIRE(sums_bytes() <= DEPTH * TILES * 2048)
FORMULA(chains(), WT_BITS < 16 || TILES == 2 ? 2 : 1)
ORDER(stream, 8, 1024 / WT_BITS, chains())
FORMULA(at_once(), 2 * all_bytes() <= SMEM_MAX - 3072 ? 2 : 1)
GRID(min(at_once() * SMS,
	slices() * (queue_tiles(ROWS * TOPK, EXPERTS) + SHARED * ceil_div(ROWS, 8))), 1, 1)
BLOCK(256)
SMEM(all_bytes())
READS(min(EXPERTS, ROWS * TOPK) * each_bytes() + SHARED * shared_bytes() + ROWS * (K * 2 + TOPK * 8))

constexpr int width = N / 2, half = 8 * TILES; // rows of gate, then as many of up
using Scales = typename TypeIf<SCALE != 0, BlockScales<ST, BLOCK_N, BLOCK_K>, NoScales>::Type;
using S = Stream<8, K, stream_warps, TILES, 64, DEPTH, WT, Scales, DEPTH, chains()>;
using Ring = StreamRing<S, width % half == 0, void>;
using Queue = ExpertQueue<ROWS, TOPK, SHARED != 0, EXPERTS, 256>;
static_assert(8 * Ring::warp_bytes + 2 * 8 * S::sums_bytes
	+ queue_bytes(ROWS * TOPK, EXPERTS) <= dynamic_smem(), "SMEM");

// thread level: the 16 * TILES rows of an expert's slice
__device__ __forceinline__ Ring slice_of(const Args &a, uint4 *place, const QueueTile &tile, int n0)
{
	const auto *const w = tile.is_shared ? a.shared : matrix_at<WT, N, K>(a.gate_up, tile.expert);
	const auto *const scales = tile.is_shared ? a.shared_scale
		: scales_at<2, width, K, BLOCK_N, BLOCK_K>(a.gate_up_scale, tile.expert);
	return Ring(place, [&](int m) {
			const bool is_gate = m < TILES / 2;
			return stream_tile<S>(is_gate ? w : w + i64(width) * S::pitch / int(sizeof(WT)),
				is_gate ? static_cast<const typename S::Scale *>(scales)
					: static_cast<const typename S::Scale *>(scales + ceil_div(width, S::block_n) * S::scale_pitch),
				n0 + m % (TILES / 2) * 16, width);
		}, static_cast<const void *>(nullptr));
}

extern "C" __global__ void __launch_bounds__(256, at_once()) queue_experts_up(const Args a)
{
	DYNAMIC_SMEM(memory);
	let_next_start();
	const int rows = min(a.step[0], ROWS), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	uint4 *const place = memory + warp * (Ring::warp_bytes / 16);
	float *const sums = reinterpret_cast<float *>(memory + 8 * (Ring::warp_bytes / 16)); // [2][8 warps]
	constexpr int warp_sums = S::sums_bytes / 4;
	const Queue queue(memory + 8 * (Ring::warp_bytes / 16) + 2 * 8 * S::sums_bytes / 16, rows);
	const auto ring_of = [&](int i) { return slice_of(a, place, queue.at(i / slices()), i % slices() * half); };

	// what is asked for first: of the expert all rows go to
	const int first = blockIdx.x, stride = gridDim.x, known = queue.shared_tiles * slices();
	const bool is_known = first < known;
	if (is_known) {
		QueueFill<Ring, decltype(ring_of)> fill(first, stride, ring_of);
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
			if (i < fill.ring.turns)
				fill.fill(i, known);
	}
	queue.clear();
	inputs_ready();
	if (rows <= 0) {
		copy_wait<0>();
		return;
	}
	queue.make<true>(a.expert);
	const int end = queue.tiles() * slices();
	if (first >= end)
		return;
	QueueFill<Ring, decltype(ring_of)> fill(first, stride, ring_of);
	if (is_known)
		fill.turn = min(fill.ring.turns, DEPTH);
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		if (!is_known || i >= fill.ring.turns)
			fill.fill(i, end);

	QueueRows<S, 8> x;
	const auto rows_of = [&](int i, const bf16 *(&rows)[S::n_tiles]) {
		const QueueTile tile = i < end ? queue.at(i / slices()) : QueueTile { 0, 0, 0, false };
		queue_rows<S>([&](int t) -> const bf16 * {
			return t < tile.count ? a.n + i64(queue.pair_of(tile, t) / Queue::shares) * K : nullptr;
		}, rows);
	};
	Ring next = ring_of(first);
	rows_of(first, x.of_next);
#pragma unroll
	for (int s = 0; s < x.ahead_steps; s++)
		queue_read<S>(next, x.of_next, s, x.ahead[s]);
	int slot = 0;
	for (int i = first, odd = 0; i < end; i += stride, odd ^= 1) {
		const Ring ring = next;
#pragma unroll
		for (int j = 0; j < S::n_tiles; j++)
			x.x[j] = x.of_next[j];
		rows_of(i + stride, x.of_next);
		if (i + stride < end)
			next = ring_of(i + stride); // its scales are on their way
		QueueSums<S> own;
		queue_multiply<S>(ring, slot, x, [&](int free) { fill.fill(free, end); }, own);
		const QueueTile done = queue.at(i / slices());
		const int n0 = i % slices() * half;
		float *const out = sums + odd * 8 * warp_sums, *const mine = out + warp * warp_sums;
#pragma unroll
		for (int j = 0; j < S::n_tiles; j++)
#pragma unroll
			for (int m = 0; m < TILES; m++)
#pragma unroll
				for (int k = 0; k < 4; k++)
					mine[(j * 8 + lane % 4 * 2 + k % 2) * S::column + m * 16 + lane / 4 + k / 2 * 8] = own.sum(m, j, k);
		__syncthreads();
		const StreamSums<S> all = { out, warp_sums };
		stream_each<S, half>([&](int, int t, int row) {
			const int n = n0 + row;
			if (t >= done.count || (width % half != 0 && n >= width))
				return;
			float gate = all.at(t, row), up = all.at(t, half + row);
			if constexpr (ROW_SCALE != 0) {
				const float *const by_row = done.is_shared ? a.shared_row_scale
					: a.gate_up_row_scale + i64(done.expert) * N;
				gate *= by_row[n];
				up *= by_row[width + n];
			}
			const int p = queue.pair_of(done, t);
			store(a.h + i64(p) * width + n, gate / (1.0f + __expf(-gate)) * up * a.share[p]);
		});
	}
	copy_wait<0>();
}
