// what      the keys of row t's slot up to row_pos[t], in SPLITS equal runs of pages; of run i, with s = SCALE log2(e)
//           q.k:
//           part_ml[t,h,i] = m = max s, l = sum 2^(s - m); part[t,h,i,:] = sum 2^(s - m) v. Empty runs: -inf, 0, 0
// numerics  scores and sums in f32, probabilities rounded to bf16 for the second product; part stays f32. The order
//           depends on the row's length and SPLITS alone: same bits every run; batch-invariant
// measured  tests/gpu/results: share of the read bound at real shapes
// why       the heads of a group share one mma tile of 16 rows, so each key and value is read once for all of them;
//           padding them to 16 is free, as the tensor cores wait for memory. Each warp takes 16 keys of a tile of KEYS
#include "contract.cuh"
#include "attend.cuh"
#include "paged.cuh"

KERNEL(attn_split, attention_split)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NH, 32)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 16)
ATTR_FLOAT(SCALE, 0.125f)
TUNE(SPLITS, 1, 2, 4, 8, 16, 32)
TUNE(KEYS, 64, 32)
REQUIRE(HDIM == 64 || HDIM == 80 || HDIM == 96 || HDIM == 128 || HDIM == 256)
REQUIRE(NH % NKV == 0)
REQUIRE(ROWS <= 65535 && NKV * ceil_div(NH / NKV, 16) <= 65535)
GRID(SPLITS, NKV * ceil_div(NH / NKV, 16), ROWS)
BLOCK(2 * KEYS)
SMEM((16 + 4 * KEYS) * (HDIM * 2 + 16))
READS(ROWS * (NH * HDIM * 2 + MAX_PAGES * PAGE * NKV * HDIM * 4))
WRITES(ROWS * NH * SPLITS * (HDIM + 2) * 4)
FLOPS(4 * ROWS * NH * HDIM * (MAX_PAGES * PAGE))
struct Args {
	IN(i32, step, "4");
	IN(bf16, q, "ROWS, NH * HDIM");
	IN(bf16, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	OUT(f32, part, "ROWS, NH, SPLITS, HDIM");
	OUT(f32, part_ml, "ROWS, NH, SPLITS, 2");
};

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

constexpr int GROUP = NH / NKV, GROUP_TILES = (GROUP + 15) / 16, THREADS = 2 * KEYS, N_WARPS = KEYS / 16;

extern "C" __global__ void __launch_bounds__(THREADS, 1) attn_split(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(tiles); // q [16], then two stages of K [KEYS], V [KEYS]; at the end the warps' sums
	__shared__ float warp_ml[N_WARPS][16][2];
	constexpr int stride = tile_stride(HDIM), stage_bytes = 2 * KEYS * stride;
	constexpr float scale_log2 = float(SCALE) * 1.4426950408889634f;
	const int split = blockIdx.x, kv_head = blockIdx.y / GROUP_TILES, t = blockIdx.z;
	const int in_group = blockIdx.y % GROUP_TILES * 16, heads = min(GROUP - in_group, 16);
	const int head0 = kv_head * GROUP + in_group;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;

	const int slot = t < a.step[0] ? a.row_slot[t] : -1;
	const int length = slot < 0 ? 0 : a.row_pos[t] + 1;
	const int pages = ceil_div(length, PAGE), per_split = ceil_div(pages, SPLITS);
	const int begin = min(split * per_split * PAGE, length), end = min(begin + per_split * PAGE, length);
	float *const out = a.part + ((i64(t) * NH + head0) * SPLITS + split) * HDIM; // of head 0; a head: SPLITS * HDIM
	float *const out_ml = a.part_ml + ((i64(t) * NH + head0) * SPLITS + split) * 2;
	if (begin >= end) {
		for (int i = threadIdx.x; i < heads * HDIM; i += THREADS)
			out[i64(i / HDIM) * SPLITS * HDIM + i % HDIM] = 0.0f;
		for (int i = threadIdx.x; i < heads * 2; i += THREADS)
			out_ml[i64(i / 2) * SPLITS * 2 + i % 2] = i % 2 ? 0.0f : minus_infinity();
		return;
	}
	const i32 *table = a.page_table + i64(slot) * MAX_PAGES;
	const u32 q_tile = shared_address(tiles), ring = q_tile + 16 * stride;
	for (int i = threadIdx.x; i < 16 * (HDIM / 8); i += THREADS) {
		const int h = i / (HDIM / 8), piece = i % (HDIM / 8);
		const bool inside = h < heads;
		copy_async(q_tile + h * stride + piece * 16,
			a.q + (i64(t) * NH + head0 + (inside ? h : 0)) * HDIM + piece * 8, inside);
	}
	const int steps = ceil_div(end - begin, KEYS);
	auto fill = [&](int step) {
		if (step < steps)
			fill_keys_values<THREADS, KEYS, HDIM, NKV, PAGE>(
				ring + step % 2 * stage_bytes, a.kv, table, kv_head, begin + step * KEYS, end);
		copy_commit();
	};
	fill(0);
	Attention<HDIM, 1> state;
	const int last[1][2] = { { end - 1, end - 1 } };
	for (int step = 0; step < steps; step++) {
		copy_wait<0>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the other any more
		fill(step + 1);
		if (step == 0)
			attention_start(state, q_tile, 0);
		const u32 k = ring + step % 2 * stage_bytes + warp * 16 * stride;
		const int p0 = begin + step * KEYS + warp * 16;
		attention_step<16>(state, q_tile, 0, k, k + KEYS * stride, p0, last, p0 + 15 >= end, scale_log2);
	}
	attention_finish(state);
	__syncthreads();

	// the warps' sums become one: each warp's 16 x HDIM into the ring, which nobody reads any more
	float *const sums = reinterpret_cast<float *>(reinterpret_cast<char *>(tiles) + 16 * stride);
	static_assert(N_WARPS * 16 * HDIM * 4 <= 2 * stage_bytes, "the warps' sums fit the ring");
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float *row = sums + (warp * 16 + g + 8 * i) * HDIM + quad * 2;
#pragma unroll
		for (int d = 0; d < HDIM / 8; d++) {
			row[d * 8] = state.o[0][d][2 * i];
			row[d * 8 + 1] = state.o[0][d][2 * i + 1];
		}
		if (quad == 0) {
			warp_ml[warp][g + 8 * i][0] = state.m[0][i];
			warp_ml[warp][g + 8 * i][1] = state.l[0][i];
		}
	}
	__syncthreads();
	for (int i = threadIdx.x; i < heads * HDIM; i += THREADS) {
		const int h = i / HDIM, d = i % HDIM;
		float m = warp_ml[0][h][0], l = 0.0f, sum = 0.0f;
#pragma unroll
		for (int w = 1; w < N_WARPS; w++)
			m = fmaxf(m, warp_ml[w][h][0]);
#pragma unroll
		for (int w = 0; w < N_WARPS; w++) {
			const float weight = exp2_fast(warp_ml[w][h][0] - m);
			l = fmaf(warp_ml[w][h][1], weight, l);
			sum = fmaf(sums[(w * 16 + h) * HDIM + d], weight, sum);
		}
		out[i64(h) * SPLITS * HDIM + d] = sum;
		if (d == 0) {
			out_ml[i64(h) * SPLITS * 2] = m;
			out_ml[i64(h) * SPLITS * 2 + 1] = l;
		}
	}
}
